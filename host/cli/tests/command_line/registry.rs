//! A registry of containers, with one repository.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::fetch::{digest, run};
use crate::packages;
use crate::server::{Answer, Request, Server};
use crate::support::{Folder, Ran};

/// A repository of a registry.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) blobs: BTreeMap<String, Vec<u8>>,
    /// The manifests by tag and by digest.
    pub(crate) manifests: BTreeMap<String, Vec<u8>>,
    /// How many uploads end before they are answered.
    pub(crate) interrupted: usize,
    /// Whether it lists the artefacts that refer to a manifest, as from version 1.1 of the
    /// specification on.
    pub(crate) lists_referrers: bool,
    /// How many artefacts a page of such a list has. 0: all of them.
    pub(crate) per_page: usize,
}

pub(crate) const USER: &str = "user:secretsecret";

/// A registry, and a folder with two versions of a package and the password of the registry.
pub(crate) struct Registry {
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) server: Server,
    pub(crate) folder: Folder,
    /// The tag `1` of its repository.
    pub(crate) reference: String,
}

impl Registry {
    pub(crate) fn new(state: State) -> Self {
        Self::with(&Arc::new(Mutex::new(state)), |_| None)
    }

    /// A registry of which `change` decides some answers.
    pub(crate) fn with(
        state: &Arc<Mutex<State>>,
        change: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static,
    ) -> Self {
        let server = registry(state, change);
        let host = host_of(&server);
        Self {
            state: Arc::clone(state),
            server,
            folder: folder(&host),
            reference: format!("oci:{host}/org/negate:1"),
        }
    }
}

/// A folder with two versions, and the password of a host.
pub(crate) fn folder(host: &str) -> Folder {
    let folder = packages::two_versions();
    let auths = json!({"auths": {host: {"auth": STANDARD.encode(USER)}}});
    folder.write("docker/config.json", auths.to_string());
    folder
}

pub(crate) fn callbox(folder: &Folder, arguments: &[&str]) -> Ran {
    let mut command = folder.command(arguments);
    command
        .env("HF_HOME", folder.path("home"))
        .env("DOCKER_CONFIG", folder.path("docker"))
        .env_remove("HF_HUB_OFFLINE");
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
    let ran = run(command);
    for secret in ["secretsecret", &STANDARD.encode(USER)] {
        assert!(
            !ran.stdout.contains(secret) && !ran.stderr.contains(secret),
            "{ran:?}"
        );
    }
    ran
}

pub(crate) fn host_of(server: &Server) -> String {
    server.address("").replace("http://", "")
}

/// A registry that asks for tokens, which its server gives for a password.
pub(crate) fn registry(
    state: &Arc<Mutex<State>>,
    change: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static,
) -> Server {
    let state = Arc::clone(state);
    Server::new(move |request| match change(request) {
        Some(answer) => answer,
        None => answer(&mut state.lock().unwrap(), request),
    })
}

pub(crate) fn answer(state: &mut State, request: &Request) -> Answer {
    let host = request.header("host").unwrap();
    let authorization = request.header("authorization").unwrap_or_default();
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    if path == "/token" {
        if authorization != format!("Basic {}", STANDARD.encode(USER)) {
            return Answer::new(401, b"{}");
        }
        let rights = if query.contains("%2Cpush") {
            "push"
        } else {
            "pull"
        };
        assert!(
            query.contains("scope=repository%3Aorg%2Fnegate%3Apull"),
            "{query}"
        );
        assert!(query.contains("service=a%20registry"), "{query}");
        return Answer::new(200, json!({"token": rights}).to_string().as_bytes());
    }
    let is_write = !matches!(request.method.as_str(), "GET" | "HEAD");
    if !(authorization == "Bearer push" || authorization == "Bearer pull" && !is_write) {
        let challenge = format!("Bearer realm=\"http://{host}/token\",service=\"a registry\"");
        return Answer::new(401, b"{}").with("WWW-Authenticate", &challenge);
    }
    let Some(rest) = path.strip_prefix("/v2/org/negate/") else {
        return Answer::new(if path == "/v2/" { 200 } else { 404 }, b"{}");
    };
    if let Some(version) = rest.strip_prefix("manifests/") {
        if request.method == "PUT" {
            let sha256 = format!("sha256:{}", digest(&request.body));
            for name in [version, &sha256] {
                state
                    .manifests
                    .insert(name.to_owned(), request.body.clone());
            }
            let answer = Answer::new(201, b"").with("Docker-Content-Digest", &sha256);
            let manifest: Value = serde_json::from_slice(&request.body).unwrap();
            return match manifest["subject"]["digest"].as_str() {
                Some(subject) if state.lists_referrers => answer.with("OCI-Subject", subject),
                _ => answer,
            };
        }
        return match state.manifests.get(version) {
            Some(manifest) => Answer::new(200, manifest),
            None => Answer::new(404, b"{}"),
        };
    }
    if let Some(subject) = rest
        .strip_prefix("referrers/")
        .filter(|_| state.lists_referrers)
    {
        let page = query
            .strip_prefix("page=")
            .map_or(0, |n| n.parse().unwrap());
        return referrers(state, subject, page);
    }
    match (request.method.as_str(), rest) {
        ("POST", "blobs/uploads/") => {
            Answer::new(202, b"").with("Location", "/v2/org/negate/blobs/uploads/1?state=x")
        }
        ("PUT", "blobs/uploads/1") => {
            if state.interrupted > 0 {
                state.interrupted -= 1;
                return Answer::new(500, b"");
            }
            let sha256 = query.strip_prefix("state=x&digest=sha256%3A").unwrap();
            assert_eq!(sha256, digest(&request.body));
            state.blobs.insert(sha256.to_owned(), request.body.clone());
            Answer::new(201, b"")
        }
        ("GET" | "HEAD", _) => {
            let sha256 = rest.strip_prefix("blobs/sha256:").unwrap_or_default();
            match state.blobs.get(sha256) {
                Some(blob) => Answer::file(request, blob, "\"blob\""),
                None => Answer::new(404, b"{}"),
            }
        }
        _ => Answer::new(400, b"{}"),
    }
}

/// A page of the index of the manifests with this subject.
fn referrers(state: &State, subject: &str, page: usize) -> Answer {
    let by_digest = state.manifests.iter();
    let by_digest = by_digest.filter(|(name, _)| name.starts_with("sha256:"));
    let manifests = by_digest.filter_map(|(digest, text)| {
        let manifest: Value = serde_json::from_slice(text).ok()?;
        let is_of_subject = manifest["subject"]["digest"] == subject;
        is_of_subject.then(|| {
            json!({"mediaType": manifest["mediaType"], "digest": digest, "size": text.len(),
                "artifactType": manifest["artifactType"]})
        })
    });
    let all = Vec::from_iter(manifests);
    let mut pages = all.chunks(if state.per_page == 0 {
        usize::MAX
    } else {
        state.per_page
    });
    let manifests = pages.nth(page).unwrap_or_default();
    let index = json!({"schemaVersion": 2, "manifests": manifests,
        "mediaType": "application/vnd.oci.image.index.v1+json"});
    let answer = Answer::new(200, index.to_string().as_bytes());
    if pages.next().is_none() {
        return answer;
    }
    let next = format!("/v2/org/negate/referrers/{subject}?page={}", page + 1);
    answer.with("Link", &format!("<{next}>; rel=\"next\""))
}
