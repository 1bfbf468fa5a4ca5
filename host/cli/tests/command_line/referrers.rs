//! Bundles of signatures in registries of containers, which are artefacts that refer to a package.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::bundles::{LEAF, ROOT};
use crate::fetch::{digest, refused};
use crate::fetched_bundles::bundle_of;
use crate::published::check_refused;
use crate::registry::{Registry, State, callbox, host_of};
use crate::server::{Answer, Request};
use crate::support::{Folder, Ran};

const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";

/// Rules that take bundles for references of registries.
pub(crate) fn write_rules(folder: &Folder, revoked: &[&str]) {
    let rules = json!({"keys": {"root": ROOT, "leaf": LEAF}, "revoked": revoked,
        "signatures": {"oci:*": {"signed_by": "root"}}});
    folder.write("trust.json", rules.to_string());
}

/// Pushes an artefact that refers to a subject, without the command line.
fn push_bundle(state: &Arc<Mutex<State>>, subject: &str, kind: &str, bundle: &[u8]) -> String {
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

/// A registry with one package, to which artefacts can refer.
struct Published {
    registry: Registry,
    /// The digest of the package's manifest.
    subject: String,
}

impl Published {
    fn new(change: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static) -> Self {
        let state = State {
            lists_referrers: true,
            ..State::default()
        };
        let mut published = Self {
            registry: Registry::with(&Arc::new(Mutex::new(state)), change),
            subject: String::new(),
        };
        write_rules(&published.registry.folder, &[]);
        let object = published.publish().object();
        let subject = object["published"]["manifest_digest"].as_str();
        published.subject = subject.unwrap().to_owned();
        published
    }

    fn publish(&self) -> Ran {
        let publish = ["publish", "1.0.0.wasm", &self.registry.reference, "--json"];
        callbox(&self.registry.folder, &publish)
    }

    fn push(&self, bundle: &[u8]) {
        push_bundle(&self.registry.state, &self.subject, BUNDLE, bundle);
    }

    fn fetch(&self) -> Ran {
        let reference = &self.registry.reference;
        let fetch = ["fetch", reference, "--trust", "trust.json", "--json"];
        callbox(&self.registry.folder, &fetch)
    }
}

#[test]
fn bundles_are_published_and_fetched_beside_artefacts() {
    for lists_referrers in [false, true] {
        let Registry {
            state,
            server,
            folder,
            reference,
        } = Registry::new(State {
            lists_referrers,
            ..State::default()
        });
        let host = host_of(&server);
        write_rules(&folder, &[]);
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
        let published = Published::new(|_| None);
        let Registry { state, folder, .. } = &published.registry;
        let [right, other] = ["1.0.0.wasm", "1.1.0.wasm"].map(|file| folder.read(file));
        let [right, other] = [right, other].map(|module| bundle_of(&module));
        add(state, &published.subject, &right, &other);
        refused(&published.fetch(), 1, code, message);
        assert!(!folder.path("negate.wasm").exists());
        // The one that counts is found among them.
        state.lock().unwrap().lists_referrers = true;
        folder.write("1.0.0.wasm.sig", bundle_of(&folder.read("1.0.0.wasm")));
        published.publish().done();
        published.fetch().done();
    }
}

#[test]
fn the_bundle_that_counts_is_found_on_any_page() {
    let published = Published::new(|_| None);
    for number in 0..40 {
        published.push(format!("{{\"number\": {number}}}").as_bytes());
    }
    published.registry.state.lock().unwrap().per_page = 3;
    let ran = published.fetch();
    refused(&ran, 1, "INVALID_ARGUMENT", "the bundle is malformed");
    let bundle = bundle_of(&published.registry.folder.read("1.0.0.wasm"));
    published.push(&bundle);
    published.fetch().done();
    assert_eq!(published.registry.folder.read("negate.wasm.sig"), bundle);
    // Publishing finds a bundle that is there.
    let package = published.registry.folder.read("1.0.0.wasm");
    published
        .registry
        .folder
        .write("1.0.0.wasm.sig", bundle_of(&package));
    for changed in [true, false] {
        let ran = published.publish();
        assert_eq!(ran.object()["published"]["changed"], changed, "{ran:?}");
    }
}

/// A user is told that there are more bundles than are looked at.
#[test]
fn the_last_bundles_are_looked_at() {
    let published = Published::new(|_| None);
    for number in 0..70 {
        published.push(format!("{{\"number\": {number}}}").as_bytes());
    }
    let ran = published.fetch();
    refused(&ran, 1, "INVALID_ARGUMENT", "the bundle is malformed");
    let warning = "only the last 64 of 70 bundles were looked at";
    assert!(ran.stderr.contains(warning), "{ran:?}");
}

/// Lists whose next page does not end the list, is too much, or is elsewhere.
#[test]
fn lists_of_registries_have_bounds() {
    fn page(request: &Request, link: &str, body: &[u8]) -> Option<Answer> {
        let is_list = request.method == "GET" && request.path.contains("/referrers/");
        is_list.then(|| Answer::new(200, body).with("Link", link))
    }
    type Change = fn(&Request) -> Option<Answer>;
    let cases: [(Change, usize, &str, &str); 8] = [
        (
            |request| {
                let next = format!("<{}>; rel=next", request.path);
                page(request, &next, b"{\"manifests\": []}")
            },
            64,
            "RESOURCE_EXHAUSTED",
            "expected at most 64 pages in the list of the artefacts of sha256:",
        ),
        (
            |request| {
                let padding = " ".repeat(1 << 20);
                let body = format!("{{\"manifests\": []}}{padding}");
                page(request, "<?more>; rel=\"next\"", body.as_bytes())
            },
            4,
            "RESOURCE_EXHAUSTED",
            "expected at most 4194304 bytes in the list of the artefacts of sha256:",
        ),
        (
            |request| {
                let elsewhere = "<http://127.0.0.2:1/v2/>; rel=\"next\"";
                page(request, elsewhere, b"{\"manifests\": []}")
            },
            1,
            "PERMISSION_DENIED",
            "has its next page on another host, http://127.0.0.2:1/v2/",
        ),
        (
            |request| page(request, "<next>; rel=\"next\"", b"{\"manifests\": []}"),
            1,
            "DATA_LOSS",
            "the link to the next page: expected an https address, found \"next\"",
        ),
        (
            |request| page(request, "", b"{\"manifests\": 1}"),
            1,
            "DATA_LOSS",
            "expected an index of manifests",
        ),
        (
            |request| page(request, "", b"[]"),
            1,
            "DATA_LOSS",
            "expected an index of manifests",
        ),
        (
            |request| page(request, "", b"1"),
            1,
            "DATA_LOSS",
            "expected an index of manifests",
        ),
        (
            |request| page(request, "", b"null"),
            1,
            "DATA_LOSS",
            "expected an index of manifests",
        ),
    ];
    for (change, pages, code, message) in cases {
        let published = Published::new(change);
        let ran = published.fetch();
        refused(&ran, 1, code, message);
        assert!(!published.registry.folder.path("negate.wasm").exists());
        let asked = published.registry.server.requests();
        let asked = asked.iter().filter(|one| one.path.contains("/referrers/"));
        assert_eq!(asked.count(), pages, "{message}");
    }
}
