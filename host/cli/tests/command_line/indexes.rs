//! Image indexes of registries, of which `callbox fetch` takes the manifest for wasm.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::fetch::{digest, refused};
use crate::registry::{Registry, State, callbox, host_of};

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
    let Registry {
        state,
        server,
        folder,
        reference,
    } = Registry::new(State::default());
    let host = host_of(&server);
    callbox(&folder, &["publish", "1.0.0.wasm", &reference]).done();
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
