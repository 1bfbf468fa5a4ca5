//! `callbox publish` and `callbox fetch` with registries of containers.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::fetch::{digest, refused};
use crate::published::check_refused;
use crate::registry::{Registry, State, USER, answer, callbox, folder, host_of, registry};
use crate::server::{Answer, Request};
use crate::support::Folder;

#[test]
fn a_published_artefact_is_fetched() {
    let Registry {
        state,
        server,
        folder,
        reference,
    } = Registry::new(State {
        interrupted: 2,
        ..State::default()
    });
    let host = host_of(&server);
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
    let registry = Registry::new(State::default());
    let (folder, reference) = (&registry.folder, &registry.reference);
    callbox(folder, &["publish", "1.0.0.wasm", reference]).done();
    callbox(
        folder,
        &["fetch", reference, "--write-lock", "callbox.lock"],
    )
    .done();
    callbox(folder, &["publish", "1.1.0.wasm", reference]).done();
    let ran = callbox(
        folder,
        &["fetch", reference, "--lock", "callbox.lock", "-o", "l.wasm"],
    );
    ran.done();
    assert_eq!(folder.read("l.wasm"), folder.read("1.0.0.wasm"));
    let shown = callbox(folder, &["update", "--yes"]).done();
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
    let registry = Registry::with(&state, move |request| {
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
    let (folder, reference) = (&registry.folder, &registry.reference);
    callbox(folder, &["publish", "1.0.0.wasm", reference]).done();
    let first = state.lock().unwrap().manifests["1"].clone();
    callbox(folder, &["publish", "1.1.0.wasm", reference]).done();
    let second = state.lock().unwrap().manifests["1"].clone();
    state
        .lock()
        .unwrap()
        .manifests
        .insert("1".to_owned(), first);
    *next.lock().unwrap() = Some(second);
    let fetch = ["fetch", reference, "--write-lock", "callbox.lock"];
    callbox(folder, &fetch).done();
    assert_eq!(folder.read("negate.wasm"), folder.read("1.0.0.wasm"));
    let lock: Value = serde_json::from_slice(&folder.read("callbox.lock")).unwrap();
    let locked = &lock["files"][0]["digest"];
    assert_eq!(locked, &json!(digest(&folder.read("1.0.0.wasm"))));
    // From now on the tag is at the other version, which only `update` takes.
    let fetch = [
        "fetch",
        reference,
        "--lock",
        "callbox.lock",
        "-o",
        "again.wasm",
    ];
    callbox(folder, &fetch).done();
    assert_eq!(folder.read("again.wasm"), folder.read("1.0.0.wasm"));
    callbox(folder, &["update", "--yes"]).done();
    assert_eq!(folder.read("negate.wasm"), folder.read("1.1.0.wasm"));
}

/// The first connections end within the layer.
#[test]
fn an_interrupted_pull_goes_on() {
    let state = Arc::new(Mutex::new(State::default()));
    let is_short = Arc::new(Mutex::new(false));
    let (inner, short) = (Arc::clone(&state), Arc::clone(&is_short));
    let registry = Registry::with(&state, move |request| {
        let mut short = short.lock().unwrap();
        if *short && request.method == "GET" && request.path.contains("/blobs/") {
            *short = false;
            let mut answer = answer(&mut inner.lock().unwrap(), request);
            answer.sent = 50;
            return Some(answer);
        }
        None
    });
    let (folder, reference) = (&registry.folder, &registry.reference);
    callbox(folder, &["publish", "1.0.0.wasm", reference]).done();
    *is_short.lock().unwrap() = true;
    callbox(folder, &["fetch", reference, "-o", "back.wasm"]).done();
    assert_eq!(folder.read("back.wasm"), folder.read("1.0.0.wasm"));
    let requests = registry.server.requests();
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
