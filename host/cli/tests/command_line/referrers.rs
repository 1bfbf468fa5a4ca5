//! Lists of the artefacts that refer to a package of a registry, on several pages.

use std::sync::{Arc, Mutex};

use crate::fetch::refused;
use crate::fetched_bundles::bundle_of;
use crate::registries::{BUNDLE, callbox, folder, host_of, push_bundle, write_rules};
use crate::registry::{State, registry};
use crate::server::{Answer, Request, Server};
use crate::support::{Folder, Ran};

/// A registry with one package, to which artefacts can refer.
struct Published {
    state: Arc<Mutex<State>>,
    server: Server,
    folder: Folder,
    reference: String,
    /// The digest of its manifest.
    subject: String,
}

impl Published {
    fn new(change: impl Fn(&Request) -> Option<Answer> + Send + Sync + 'static) -> Self {
        let state = Arc::new(Mutex::new(State {
            lists_referrers: true,
            ..State::default()
        }));
        let server = registry(&state, change);
        let host = host_of(&server);
        let folder = folder(&host);
        write_rules(&folder, &[]);
        let reference = format!("oci:{host}/org/negate:1");
        let ran = callbox(&folder, &["publish", "1.0.0.wasm", &reference, "--json"]);
        let subject = ran.object()["published"]["manifest_digest"].clone();
        Self {
            state,
            server,
            folder,
            reference,
            subject: subject.as_str().unwrap().to_owned(),
        }
    }

    fn push(&self, bundle: &[u8]) {
        push_bundle(&self.state, &self.subject, BUNDLE, bundle);
    }

    fn fetch(&self) -> Ran {
        let fetch = ["fetch", &self.reference, "--trust", "trust.json", "--json"];
        callbox(&self.folder, &fetch)
    }
}

#[test]
fn the_bundle_that_counts_is_found_on_any_page() {
    let published = Published::new(|_| None);
    for number in 0..40 {
        published.push(format!("{{\"number\": {number}}}").as_bytes());
    }
    published.state.lock().unwrap().per_page = 3;
    let ran = published.fetch();
    refused(&ran, 1, "INVALID_ARGUMENT", "the bundle is malformed");
    let bundle = bundle_of(&published.folder.read("1.0.0.wasm"));
    published.push(&bundle);
    published.fetch().done();
    assert_eq!(published.folder.read("negate.wasm.sig"), bundle);
    // Publishing finds a bundle that is there.
    let package = published.folder.read("1.0.0.wasm");
    published
        .folder
        .write("1.0.0.wasm.sig", bundle_of(&package));
    for changed in [true, false] {
        let publish = ["publish", "1.0.0.wasm", &published.reference, "--json"];
        let ran = callbox(&published.folder, &publish);
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
    let cases: [(Change, usize, &str, &str); 5] = [
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
    ];
    for (change, pages, code, message) in cases {
        let published = Published::new(change);
        let ran = published.fetch();
        refused(&ran, 1, code, message);
        assert!(!published.folder.path("negate.wasm").exists());
        let asked = published.server.requests();
        let asked = asked.iter().filter(|one| one.path.contains("/referrers/"));
        assert_eq!(asked.count(), pages, "{message}");
    }
}
