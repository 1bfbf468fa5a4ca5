//! `callbox publish` and `callbox fetch` with registries of containers.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::bundles::{LEAF, ROOT};
use crate::fetch::{digest, refused, run};
use crate::fetched_bundles::bundle_of;
use crate::packages;
use crate::published::check_refused;
use crate::registry::{State, USER, answer, registry};
use crate::server::{Answer, Request, Server};
use crate::support::{Folder, Ran};

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

#[test]
fn a_published_artefact_is_fetched() {
    let state = Arc::new(Mutex::new(State {
        interrupted: 2,
        ..State::default()
    }));
    let server = registry(&state, |_| None);
    let host = host_of(&server);
    let folder = folder(&host);
    let reference = format!("oci:{host}/org/negate:1");
    let ran = callbox(&folder, &["publish", "1.0.0.wasm", &reference, "--json"]);
    let published = ran.object()["published"].clone();
    ran.done();
    let manifest = state.lock().unwrap().manifests["1"].clone();
    let sha256 = format!("sha256:{}", digest(&manifest));
    assert_eq!(
        (&published["manifest_digest"], &published["to"]),
        (&json!(sha256), &json!(reference))
    );
    let manifest: Value = serde_json::from_slice(&manifest).unwrap();
    let package = folder.read("1.0.0.wasm");
    let layer = json!({"mediaType": "application/wasm",
        "digest": format!("sha256:{}", digest(&package)), "size": package.len()});
    assert_eq!(manifest["layers"], json!([layer]));
    let kind = "application/vnd.wasm.config.v0+json";
    assert_eq!(manifest["config"]["mediaType"], kind);
    let config = manifest["config"]["digest"]
        .as_str()
        .unwrap()
        .replace("sha256:", "");
    let config: Value = serde_json::from_slice(&state.lock().unwrap().blobs[&config]).unwrap();
    let expected = json!({"created": "1970-01-01T00:00:00Z", "architecture": "wasm",
        "os": "wasip1", "layerDigests": [layer["digest"]]});
    assert_eq!(config, expected);

    for (index, by) in [
        reference.clone(),
        format!("oci:{host}/org/negate@{sha256}"),
        format!("{reference}#sha256:{}", digest(&package)),
    ]
    .iter()
    .enumerate()
    {
        let _ = std::fs::remove_dir_all(folder.path("home"));
        let file = format!("back{index}.wasm");
        callbox(&folder, &["fetch", by, "-o", &file]).done();
        assert_eq!(folder.read(&file), package);
    }
    callbox(&folder, &["fetch", &reference, "-o", "negate.wasm"]).done();
    // Offline, the tag is what it was.
    callbox(
        &folder,
        &["fetch", &reference, "--offline", "-o", "offline.wasm"],
    )
    .done();
    assert_eq!(folder.read("offline.wasm"), package);
    // The same again writes nothing, and a tag goes forward alone.
    let again = callbox(&folder, &["publish", "1.0.0.wasm", &reference, "--json"]);
    assert_eq!(again.object()["published"]["changed"], false, "{again:?}");
    callbox(&folder, &["publish", "1.1.0.wasm", &reference]).done();
    let back = callbox(&folder, &["publish", "1.0.0.wasm", &reference, "--json"]);
    let message = "it has \"negate\" \"1.1.0\", which is not an earlier version";
    check_refused(&back, 1, "FAILED_PRECONDITION", message);
    // The pin of the file holds, and the older manifest is still there by its digest.
    let pinned = format!("{reference}#sha256:{}", digest(&package));
    std::fs::remove_dir_all(folder.path("home")).unwrap();
    let ran = callbox(&folder, &["fetch", &pinned, "--json"]);
    refused(&ran, 1, "PERMISSION_DENIED", "expected the digest ");
    let old = format!("oci:{host}/org/negate@{sha256}");
    callbox(&folder, &["fetch", &old, "-o", "old.wasm"]).done();
    assert_eq!(folder.read("old.wasm"), package);
}

#[test]
fn tags_are_locked_and_updated() {
    let state = Arc::new(Mutex::new(State::default()));
    let server = registry(&state, |_| None);
    let host = host_of(&server);
    let folder = folder(&host);
    let reference = format!("oci:{host}/org/negate:1");
    callbox(&folder, &["publish", "1.0.0.wasm", &reference]).done();
    callbox(
        &folder,
        &["fetch", &reference, "--write-lock", "callbox.lock"],
    )
    .done();
    callbox(&folder, &["publish", "1.1.0.wasm", &reference]).done();
    let ran = callbox(
        &folder,
        &[
            "fetch",
            &reference,
            "--lock",
            "callbox.lock",
            "-o",
            "l.wasm",
        ],
    );
    ran.done();
    assert_eq!(folder.read("l.wasm"), folder.read("1.0.0.wasm"));
    let shown = callbox(&folder, &["update", "--yes"]).done();
    assert!(shown.contains("~ package version\n"), "{shown}");
    assert_eq!(folder.read("negate.wasm"), folder.read("1.1.0.wasm"));
}

/// The tag moves after the registry is asked for its manifest: the file is the one of that
/// manifest, and so is what the lock has.
#[test]
fn a_tag_that_moves_between_look_and_load_gives_one_version() {
    let state = Arc::new(Mutex::new(State::default()));
    let next = Arc::new(Mutex::new(None));
    let (inner, moving) = (Arc::clone(&state), Arc::clone(&next));
    let server = registry(&state, move |request| {
        let answer = answer(&mut inner.lock().unwrap(), request);
        let is_look = request.method == "GET" && request.path.ends_with("/manifests/1");
        if is_look
            && answer.status == 200
            && let Some(manifest) = moving.lock().unwrap().take()
        {
            inner
                .lock()
                .unwrap()
                .manifests
                .insert("1".to_owned(), manifest);
        }
        Some(answer)
    });
    let host = host_of(&server);
    let folder = folder(&host);
    let reference = format!("oci:{host}/org/negate:1");
    callbox(&folder, &["publish", "1.0.0.wasm", &reference]).done();
    let first = state.lock().unwrap().manifests["1"].clone();
    callbox(&folder, &["publish", "1.1.0.wasm", &reference]).done();
    let second = state.lock().unwrap().manifests["1"].clone();
    state
        .lock()
        .unwrap()
        .manifests
        .insert("1".to_owned(), first);
    *next.lock().unwrap() = Some(second);
    let fetch = ["fetch", &reference, "--write-lock", "callbox.lock"];
    callbox(&folder, &fetch).done();
    assert_eq!(folder.read("negate.wasm"), folder.read("1.0.0.wasm"));
    let lock: Value = serde_json::from_slice(&folder.read("callbox.lock")).unwrap();
    let locked = &lock["files"][0]["digest"];
    assert_eq!(locked, &json!(digest(&folder.read("1.0.0.wasm"))));
    // From now on the tag is at the other version, which only `update` takes.
    let fetch = [
        "fetch",
        &reference,
        "--lock",
        "callbox.lock",
        "-o",
        "again.wasm",
    ];
    callbox(&folder, &fetch).done();
    assert_eq!(folder.read("again.wasm"), folder.read("1.0.0.wasm"));
    callbox(&folder, &["update", "--yes"]).done();
    assert_eq!(folder.read("negate.wasm"), folder.read("1.1.0.wasm"));
}

/// The first connections end within the layer.
#[test]
fn an_interrupted_pull_goes_on() {
    let state = Arc::new(Mutex::new(State::default()));
    let is_short = Arc::new(Mutex::new(false));
    let (inner, short) = (Arc::clone(&state), Arc::clone(&is_short));
    let server = registry(&state, move |request| {
        let mut short = short.lock().unwrap();
        if *short && request.method == "GET" && request.path.contains("/blobs/") {
            *short = false;
            let mut answer = answer(&mut inner.lock().unwrap(), request);
            answer.sent = 50;
            return Some(answer);
        }
        None
    });
    let host = host_of(&server);
    let folder = folder(&host);
    let reference = format!("oci:{host}/org/negate:1");
    callbox(&folder, &["publish", "1.0.0.wasm", &reference]).done();
    *is_short.lock().unwrap() = true;
    callbox(&folder, &["fetch", &reference, "-o", "back.wasm"]).done();
    assert_eq!(folder.read("back.wasm"), folder.read("1.0.0.wasm"));
    let requests = server.requests();
    assert_eq!(requests.last().unwrap().header("range"), Some("bytes=50-"));
}

#[test]
fn registries_that_lie_or_refuse_are_statuses() {
    type Change = fn(&Request) -> Option<Answer>;
    let cases: [(Change, &str, &str); 9] = [
        (
            |request| {
                let manifest = request.path.contains("/manifests/");
                manifest.then(|| Answer::new(200, b"{}").with("Docker-Content-Digest", "sha256:00"))
            },
            "DATA_LOSS",
            "which the registry calls \"sha256:00\"",
        ),
        (
            |request| {
                request
                    .path
                    .contains("/manifests/")
                    .then(|| Answer::new(200, b"{}"))
            },
            "INVALID_ARGUMENT",
            "expected an artefact of one wasm module",
        ),
        (
            |request| {
                let text = br#"{"schemaVersion":2,"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"sha256:0","size":2},"layers":[]}"#;
                request
                    .path
                    .contains("/manifests/")
                    .then(|| Answer::new(200, text))
            },
            "INVALID_ARGUMENT",
            "expected a wasm artefact, application/vnd.wasm.config.v0+json, found",
        ),
        (
            |request| {
                let text = br#"{"schemaVersion":2,"config":{"mediaType":"application/vnd.wasm.config.v0+json","digest":"sha256:0","size":2},"layers":[{"mediaType":"application/wasm","digest":"sha512:00","size":1}]}"#;
                request
                    .path
                    .contains("/manifests/")
                    .then(|| Answer::new(200, text))
            },
            "INVALID_ARGUMENT",
            "expected a digest sha256:HEX of the layer, found \"sha512:00\"",
        ),
        (
            |request| {
                let text = br#"{"schemaVersion":2,"config":{"mediaType":"application/vnd.wasm.config.v0+json","digest":"sha256:0","size":2},"layers":[{"mediaType":"application/wasm","digest":"sha256:0000000000000000000000000000000000000000000000000000000000000000","size":99999999999}]}"#;
                request
                    .path
                    .contains("/manifests/")
                    .then(|| Answer::new(200, text))
            },
            "RESOURCE_EXHAUSTED",
            "expected a layer of at most ",
        ),
        (
            |request| {
                request
                    .path
                    .contains("/blobs/")
                    .then(|| Answer::new(200, b"\0asm evil"))
            },
            "DATA_LOSS",
            "bytes with SHA-256 ",
        ),
        (
            |request| {
                request
                    .path
                    .starts_with("/v2/")
                    .then(|| Answer::new(401, b""))
            },
            "DATA_LOSS",
            "expected a challenge for Basic or Bearer, found \"\"",
        ),
        (
            |request| {
                let realm = "Bearer realm=\"http://tokens.example/\"";
                let challenge = || Answer::new(401, b"").with("WWW-Authenticate", realm);
                request.path.starts_with("/v2/").then(challenge)
            },
            "PERMISSION_DENIED",
            "wants the password sent to http://tokens.example/, without TLS",
        ),
        (
            |request| {
                request
                    .path
                    .starts_with("/token")
                    .then(|| Answer::new(403, b"no"))
            },
            "PERMISSION_DENIED",
            "/token: the server refuses it",
        ),
    ];
    let state = Arc::new(Mutex::new(State::default()));
    let good = registry(&state, |_| None);
    let packed = folder(&host_of(&good));
    let reference = format!("oci:{}/org/negate:1", host_of(&good));
    callbox(&packed, &["publish", "1.0.0.wasm", &reference]).done();
    for (change, code, message) in cases {
        let server = registry(&state, change);
        let host = host_of(&server);
        let folder = Folder::new();
        let auths = json!({"auths": {&host: {"auth": STANDARD.encode(USER)}}});
        folder.write("docker/config.json", auths.to_string());
        let reference = format!("oci:{host}/org/negate:1");
        let ran = callbox(&folder, &["fetch", &reference, "--json"]);
        refused(&ran, 1, code, message);
        assert!(!folder.path("negate.wasm").exists());
    }
    // Without a password, and without such a tag.
    packed.write("docker/config.json", "{}");
    let ran = callbox(&packed, &["fetch", &reference, "--json"]);
    refused(
        &ran,
        1,
        "PERMISSION_DENIED",
        "asks for a password: `docker login ",
    );
    packed.write("docker/config.json", "secretsecret");
    let ran = callbox(&packed, &["fetch", &reference, "--json"]);
    refused(
        &ran,
        1,
        "INVALID_ARGUMENT",
        "expected the JSON of `docker login`",
    );
    let other = folder(&host_of(&good));
    let none = format!("oci:{}/org/negate:2", host_of(&good));
    let ran = callbox(&other, &["fetch", &none, "--json"]);
    refused(&ran, 1, "NOT_FOUND", "the registry has no such artefact");
    let digest = format!(
        "oci:{}/org/negate@sha256:{}",
        host_of(&good),
        "0".repeat(64)
    );
    let ran = callbox(&other, &["publish", "1.0.0.wasm", &digest, "--json"]);
    check_refused(
        &ran,
        2,
        "INVALID_ARGUMENT",
        "expected a tag, found a digest",
    );
}

pub(crate) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// Rules that take bundles for references of registries.
pub(crate) fn write_rules(folder: &Folder, revoked: &[&str]) {
    let rules = json!({"keys": {"root": ROOT, "leaf": LEAF}, "revoked": revoked,
        "signatures": {"oci:*": {"signed_by": "root"}}});
    folder.write("trust.json", rules.to_string());
}

/// Pushes an artefact that refers to a subject, without the command line.
pub(crate) fn push_bundle(
    state: &Arc<Mutex<State>>,
    subject: &str,
    kind: &str,
    bundle: &[u8],
) -> String {
    let mut state = state.lock().unwrap();
    let sha256 = digest(bundle);
    let manifest = json!({"schemaVersion": 2, "artifactType": BUNDLE, "subject": {
            "mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": subject,
            "size": 7},
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": {"mediaType": "application/vnd.oci.empty.v1+json", "size": 2,
            "digest": format!("sha256:{}", digest(b"{}"))},
        "layers": [{"mediaType": kind, "digest": format!("sha256:{sha256}"),
            "size": bundle.len()}]});
    let manifest = manifest.to_string().into_bytes();
    state.blobs.insert(sha256, bundle.to_vec());
    let name = format!("sha256:{}", digest(&manifest));
    state.manifests.insert(name.clone(), manifest);
    name
}

#[test]
fn bundles_are_published_and_fetched_beside_artefacts() {
    for lists_referrers in [false, true] {
        let state = Arc::new(Mutex::new(State {
            lists_referrers,
            ..State::default()
        }));
        let server = registry(&state, |_| None);
        let host = host_of(&server);
        let folder = folder(&host);
        write_rules(&folder, &[]);
        let reference = format!("oci:{host}/org/negate:1");
        let publish = |file: &str| callbox(&folder, &["publish", file, &reference, "--json"]);
        let fetch = |more: &[&str]| {
            let trusted = ["fetch", &reference, "--trust", "trust.json", "--json"];
            callbox(&folder, &[&trusted[..], more].concat())
        };
        publish("1.0.0.wasm").done();
        let ran = fetch(&[]);
        refused(&ran, 1, "PERMISSION_DENIED", "found no signature");
        // A bundle of another file is not published.
        folder.write("1.0.0.wasm.sig", bundle_of(&folder.read("1.1.0.wasm")));
        let message = "1.0.0.wasm.sig: expected a bundle of the package";
        check_refused(&publish("1.0.0.wasm"), 1, "FAILED_PRECONDITION", message);
        // The package is there already, and its bundle comes later.
        let bundle = bundle_of(&folder.read("1.0.0.wasm"));
        folder.write("1.0.0.wasm.sig", &bundle);
        let published = publish("1.0.0.wasm").object()["published"].clone();
        assert_eq!(published["changed"], true, "{published}");
        let again = publish("1.0.0.wasm").object()["published"].clone();
        assert_eq!(again["changed"], false, "{again}");
        assert_eq!(again["bundle_digest"], published["bundle_digest"]);
        let subject = published["manifest_digest"].as_str().unwrap().to_owned();
        let artefact = published["bundle_digest"].as_str().unwrap().to_owned();
        let kept = state.lock().unwrap().manifests.clone();
        let found: Value = serde_json::from_slice(&kept[&artefact]).unwrap();
        assert_eq!(
            (&found["artifactType"], &found["subject"]["digest"]),
            (&json!(BUNDLE), &json!(subject))
        );
        // The digest of the empty configuration is a constant of the specification.
        let empty = json!({"mediaType": "application/vnd.oci.empty.v1+json", "size": 2, "digest":
            "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"});
        assert_eq!(found["config"], empty);
        let list = subject.replace(':', "-");
        assert_eq!(kept.contains_key(&list), !lists_referrers);

        let ran = fetch(&[]);
        assert_eq!(
            ran.object()["fetched"]["bundle"],
            "negate.wasm.sig",
            "{ran:?}"
        );
        assert_eq!(folder.read("negate.wasm.sig"), bundle);
        std::fs::remove_file(folder.path("negate.wasm.sig")).unwrap();
        fetch(&["--offline"]).done();
        assert_eq!(folder.read("negate.wasm.sig"), bundle);
        write_rules(&folder, &["leaf"]);
        refused(&fetch(&[]), 1, "PERMISSION_DENIED", "which is revoked");
        write_rules(&folder, &[]);

        // A newer version with its bundle, which an update brings.
        callbox(
            &folder,
            &["fetch", &reference, "--write-lock", "callbox.lock"],
        )
        .done();
        publish("1.1.0.wasm").done();
        let update = ["update", "--yes", "--trust", "trust.json", "--json"];
        let ran = callbox(&folder, &update);
        assert_eq!(
            ran.object()["status"]["code"],
            "PERMISSION_DENIED",
            "{ran:?}"
        );
        // The lock has the first version, whose bundle is found after the tag has moved.
        fetch(&["--lock", "callbox.lock", "-o", "old.wasm"]).done();
        assert_eq!(folder.read("old.wasm.sig"), bundle);
        let newer = bundle_of(&folder.read("1.1.0.wasm"));
        folder.write("1.1.0.wasm.sig", &newer);
        publish("1.1.0.wasm").done();
        callbox(&folder, &update).done();
        assert_eq!(folder.read("negate.wasm.sig"), newer);
        // By its digest, and together with the package.
        let pinned = format!("oci:{host}/org/negate@{subject}");
        let by_digest = ["fetch", &pinned, "--trust", "trust.json", "-o", "p.wasm"];
        callbox(&folder, &by_digest).done();
        assert_eq!(folder.read("p.wasm.sig"), bundle);
        *state.lock().unwrap() = State {
            lists_referrers,
            ..State::default()
        };
        publish("1.1.0.wasm").done();
        std::fs::remove_dir_all(folder.path("home")).unwrap();
        fetch(&["-o", "both.wasm"]).done();
        assert_eq!(folder.read("both.wasm.sig"), newer);
    }
}

/// Anyone who may write to a repository can add artefacts. They do not hide the bundle that counts.
#[test]
fn bundles_of_others_in_a_registry_do_not_count() {
    type Add = fn(&Arc<Mutex<State>>, &str, &[u8], &[u8]);
    let additions: [(Add, &str, &str); 6] = [
        (
            |state, subject, _, other| drop(push_bundle(state, subject, BUNDLE, other)),
            "PERMISSION_DENIED",
            "found a bundle of other content",
        ),
        (
            |state, subject, _, _| drop(push_bundle(state, subject, BUNDLE, b"{}")),
            "INVALID_ARGUMENT",
            "the bundle is malformed",
        ),
        (
            |state, subject, right, _| drop(push_bundle(state, subject, "text/plain", right)),
            "INVALID_ARGUMENT",
            "expected a layer of application/vnd.dev.sigstore.bundle, found \"text/plain\"",
        ),
        (
            |state, subject, right, _| {
                push_bundle(state, subject, BUNDLE, right);
                let sha256 = digest(right);
                let mut state = state.lock().unwrap();
                state.blobs.get_mut(&sha256).unwrap()[0] ^= 1;
            },
            "DATA_LOSS",
            "bytes with SHA-256 ",
        ),
        (
            |state, subject, right, _| {
                let name = push_bundle(state, subject, BUNDLE, right);
                let mut state = state.lock().unwrap();
                let text = String::from_utf8(state.manifests.remove(&name).unwrap()).unwrap();
                let size = format!("\"size\":{}", right.len());
                let large = text.replace(&size, "\"size\":99999999999").into_bytes();
                state
                    .manifests
                    .insert(format!("sha256:{}", digest(&large)), large);
            },
            "RESOURCE_EXHAUSTED",
            "expected a layer of at most 16777216 bytes, found 99999999999",
        ),
        (
            |state, subject, right, _| {
                // The list has an artefact of another subject.
                let name = push_bundle(
                    state,
                    &subject.replace("sha256:", "sha256:0"),
                    BUNDLE,
                    right,
                );
                let index = json!({"schemaVersion": 2, "manifests": [{"digest": name, "size": 1,
                    "mediaType": "any", "artifactType": BUNDLE}]});
                let mut state = state.lock().unwrap();
                state.lists_referrers = false;
                let list = subject.replace(':', "-");
                state.manifests.insert(list, index.to_string().into_bytes());
            },
            "INVALID_ARGUMENT",
            "expected an artefact of the subject sha256:",
        ),
    ];
    for (add, code, message) in additions {
        let state = Arc::new(Mutex::new(State {
            lists_referrers: true,
            ..State::default()
        }));
        let server = registry(&state, |_| None);
        let host = host_of(&server);
        let folder = folder(&host);
        write_rules(&folder, &[]);
        let reference = format!("oci:{host}/org/negate:1");
        let publish = ["publish", "1.0.0.wasm", &reference, "--json"];
        let published = callbox(&folder, &publish).object()["published"].clone();
        let subject = published["manifest_digest"].as_str().unwrap();
        let [right, other] = ["1.0.0.wasm", "1.1.0.wasm"].map(|file| folder.read(file));
        let [right, other] = [right, other].map(|module| bundle_of(&module));
        add(&state, subject, &right, &other);
        let fetch = ["fetch", &reference, "--trust", "trust.json", "--json"];
        let ran = callbox(&folder, &fetch);
        refused(&ran, 1, code, message);
        assert!(!folder.path("negate.wasm").exists());
        // The one that counts is found among them.
        state.lock().unwrap().lists_referrers = true;
        folder.write("1.0.0.wasm.sig", bundle_of(&folder.read("1.0.0.wasm")));
        callbox(&folder, &publish).done();
        callbox(&folder, &fetch).done();
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The registry of Debian's package `docker-registry`, if it is installed, or the one that the
/// variable names.
#[test]
fn a_real_registry_takes_and_gives_packages() {
    let named = std::env::var_os("CALLBOX_DOCKER_REGISTRY").map(PathBuf::from);
    let program = named.unwrap_or_else(|| "/usr/bin/docker-registry".into());
    if !program.exists() {
        eprintln!("not run: {} is not installed", program.display());
        return;
    }
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let host = format!("127.0.0.1:{port}");
    let folder = folder(&host);
    // The hash of the password `secretsecret`.
    let user = "user:$2b$05$abcdefghijklmnopqrstuuGVJCQNsz03YEB5S/PfgS6BZF5TnhtLu\n";
    folder.write("htpasswd", user);
    let text = format!(
        "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {host}\n\
         auth:\n  htpasswd:\n    realm: basic-realm\n    path: {}\n",
        folder.path("registry").display(),
        folder.path("htpasswd").display()
    );
    folder.write("config.yml", text);
    let mut command = Command::new(program);
    command.arg("serve").arg(folder.path("config.yml"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let _running = Running(child.unwrap());
    while std::net::TcpStream::connect(&host).is_err() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let reference = format!("oci:{host}/org/negate:1");
    let ran = callbox(&folder, &["publish", "1.0.0.wasm", &reference, "--json"]);
    let manifest = ran.object()["published"]["manifest_digest"].clone();
    ran.done();
    callbox(
        &folder,
        &["fetch", &reference, "--write-lock", "callbox.lock"],
    )
    .done();
    assert_eq!(folder.read("negate.wasm"), folder.read("1.0.0.wasm"));
    let again = callbox(&folder, &["publish", "1.0.0.wasm", &reference, "--json"]);
    assert_eq!(again.object()["published"]["changed"], false, "{again:?}");
    // Bundles, of which this registry keeps no list.
    write_rules(&folder, &[]);
    let trusted = ["fetch", &reference, "--trust", "trust.json", "--json"];
    refused(
        &callbox(&folder, &trusted),
        1,
        "PERMISSION_DENIED",
        "found no signature",
    );
    let bundle = bundle_of(&folder.read("1.0.0.wasm"));
    folder.write("1.0.0.wasm.sig", &bundle);
    for changed in [true, false] {
        let ran = callbox(&folder, &["publish", "1.0.0.wasm", &reference, "--json"]);
        assert_eq!(ran.object()["published"]["changed"], changed, "{ran:?}");
    }
    callbox(&folder, &trusted).done();
    assert_eq!(folder.read("negate.wasm.sig"), bundle);
    std::fs::remove_file(folder.path("negate.wasm.sig")).unwrap();
    callbox(&folder, &["publish", "1.1.0.wasm", &reference]).done();
    callbox(&folder, &["update", "--yes"]).done();
    assert_eq!(folder.read("negate.wasm"), folder.read("1.1.0.wasm"));
    let old = format!("oci:{host}/org/negate@{}", manifest.as_str().unwrap());
    callbox(&folder, &["fetch", &old, "-o", "old.wasm"]).done();
    assert_eq!(folder.read("old.wasm"), folder.read("1.0.0.wasm"));
    folder.write("docker/config.json", "{}");
    let ran = callbox(&folder, &["fetch", &old, "-o", "none.wasm", "--json"]);
    refused(&ran, 1, "PERMISSION_DENIED", "asks for a password");
}

/// The manifest of the registry, in an index under the tag `many`.
fn put_index(state: &Arc<Mutex<State>>, manifests: Value) {
    let index = json!({"schemaVersion": 2, "manifests": manifests,
        "mediaType": "application/vnd.oci.image.index.v1+json"});
    let mut state = state.lock().unwrap();
    state
        .manifests
        .insert("many".to_owned(), index.to_string().into_bytes());
}

#[test]
fn the_wasm_artefact_of_an_index_is_fetched() {
    let state = Arc::new(Mutex::new(State::default()));
    let server = registry(&state, |_| None);
    let host = host_of(&server);
    let folder = folder(&host);
    callbox(
        &folder,
        &["publish", "1.0.0.wasm", &format!("oci:{host}/org/negate:1")],
    )
    .done();
    let sha256 = format!("sha256:{}", digest(&state.lock().unwrap().manifests["1"]));
    let kind = "application/vnd.oci.image.manifest.v1+json";
    let listed = |digest: &str, architecture: &str| {
        json!({"mediaType": kind, "digest": digest, "size": 7,
            "platform": {"architecture": architecture, "os": "wasip1"}})
    };
    let other = format!("sha256:{}", "1".repeat(64));
    let reference = format!("oci:{host}/org/negate:many");
    let alone = json!({"mediaType": kind, "digest": sha256, "size": 7});
    let named = json!({"mediaType": kind, "digest": sha256, "size": 7,
        "artifactType": "application/vnd.wasm.config.v0+json"});
    for manifests in [
        json!([listed(&other, "amd64"), listed(&sha256, "wasm")]),
        json!([alone]),
        json!([listed(&other, "arm64"), named]),
    ] {
        put_index(&state, manifests);
        let _ = std::fs::remove_dir_all(folder.path("home"));
        callbox(&folder, &["fetch", &reference, "-o", "i.wasm", "--replace"]).done();
        assert_eq!(folder.read("i.wasm"), folder.read("1.0.0.wasm"));
    }
    // The digest of an index is one of an artefact, too.
    let index = state.lock().unwrap().manifests["many"].clone();
    let of_index = format!("sha256:{}", digest(&index));
    state
        .lock()
        .unwrap()
        .manifests
        .insert(of_index.clone(), index);
    let pinned = format!("oci:{host}/org/negate@{of_index}");
    callbox(&folder, &["fetch", &pinned, "-o", "p.wasm"]).done();
    for (manifests, code, message) in [
        (
            json!([listed(&other, "wasm"), listed(&sha256, "wasm")]),
            "INVALID_ARGUMENT",
            "the index has several manifests for wasm: name one of \"sha256:11",
        ),
        (
            json!([listed(&other, "amd64"), listed(&sha256, "arm64")]),
            "INVALID_ARGUMENT",
            "expected a manifest for wasm in the index, found 2 others",
        ),
        (json!([]), "INVALID_ARGUMENT", "found 0 others"),
        (
            json!([listed("sha512:00", "wasm")]),
            "INVALID_ARGUMENT",
            "expected a digest sha256:HEX of the manifest, found \"sha512:00\"",
        ),
        (
            json!([listed(&other, "wasm")]),
            "NOT_FOUND",
            "has no such artefact",
        ),
        // An index of an index is none of a package.
        (
            json!([listed(&of_index, "wasm")]),
            "INVALID_ARGUMENT",
            "expected an artefact of one wasm module",
        ),
        (
            Value::Array(vec![listed(&sha256, "wasm"); 257]),
            "INVALID_ARGUMENT",
            "expected an index of at most 256 manifests, found 257",
        ),
    ] {
        put_index(&state, manifests);
        let ran = callbox(&folder, &["fetch", &reference, "-o", "i.wasm", "--json"]);
        refused(&ran, 1, code, message);
    }
}

/// A program `docker-credential-test`, which a test writes.
#[cfg(unix)]
#[test]
fn programs_that_keep_passwords_are_asked() {
    use std::os::unix::fs::PermissionsExt as _;

    let state = Arc::new(Mutex::new(State::default()));
    let server = registry(&state, |request| {
        // A server of tokens takes an identity token in a form.
        let is_identity = request.method == "POST" && request.path.starts_with("/token");
        let is_known =
            String::from_utf8_lossy(&request.body).contains("&refresh_token=secretsecret&");
        is_identity.then(|| {
            if is_known {
                Answer::new(200, br#"{"access_token": "push"}"#)
            } else {
                Answer::new(401, b"secretsecret")
            }
        })
    });
    let host = host_of(&server);
    let folder = folder(&host);
    let reference = format!("oci:{host}/org/negate:1");
    let (user, secret) = USER.split_once(':').unwrap();
    let program = folder.path("bin/docker-credential-test");
    let answers = |script: &str| {
        folder.write(
            "bin/docker-credential-test",
            format!("#!/bin/sh\n{script}\n"),
        );
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&program, mode).unwrap();
    };
    let known = |user: &str, secret: &str| {
        let answer = json!({"ServerURL": host, "Username": user, "Secret": secret});
        format!("read name; [ \"$1 $name\" = 'get {host}' ] && echo '{answer}'")
    };
    let fetch = |config: Value| {
        folder.write("docker/config.json", config.to_string());
        let mut command = folder.command(&["fetch", &reference, "-o", "k.wasm", "--json"]);
        let path = std::env::var("PATH").unwrap();
        command
            .env("PATH", format!("{}:{path}", folder.path("bin").display()))
            .env("HF_HOME", folder.path("home"))
            .env("DOCKER_CONFIG", folder.path("docker"))
            .env_remove("HF_HUB_OFFLINE");
        for name in ["http_proxy", "https_proxy", "all_proxy"] {
            command.env_remove(name).env_remove(name.to_uppercase());
        }
        let ran = run(command);
        assert!(
            !ran.stdout.contains(secret) && !ran.stderr.contains(secret),
            "{ran:?}"
        );
        ran
    };
    callbox(&folder, &["publish", "1.0.0.wasm", &reference]).done();
    let store = json!({"credsStore": "test"});
    answers(&known(user, secret));
    fetch(store.clone()).done();
    fetch(json!({"credHelpers": {&host: "test"}, "credsStore": "none"})).done();
    answers(&known("<token>", secret));
    fetch(store.clone()).done();
    fetch(json!({"auths": {&host: {"identitytoken": secret}}})).done();
    // A program without the password leaves the one of the file.
    answers("echo 'credentials not found in native keychain'; exit 1");
    let auth = STANDARD.encode(USER);
    fetch(json!({"credsStore": "test", "auths": {&host: {"auth": auth}}})).done();
    for (script, code, message) in [
        (
            "exit 1",
            "FAILED_PRECONDITION",
            "docker-credential-test: the program failed",
        ),
        (
            "echo secretsecret",
            "FAILED_PRECONDITION",
            "expected JSON with `Username`",
        ),
        (
            "echo 'credentials not found'; exit 1",
            "PERMISSION_DENIED",
            "asks for a password",
        ),
        (
            r#"echo '{"Username": "<token>", "Secret": "other"}'"#,
            "PERMISSION_DENIED",
            "the server refuses the identity token (status 401)",
        ),
    ] {
        answers(script);
        refused(&fetch(store.clone()), 1, code, message);
    }
    for (name, message) in [
        (
            "../test",
            "expected the name of a program after `docker-credential-`",
        ),
        ("absent", "docker-credential-absent: No such file"),
    ] {
        let ran = fetch(json!({"credsStore": name}));
        refused(&ran, 1, "FAILED_PRECONDITION", message);
    }
}
