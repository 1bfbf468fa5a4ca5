//! `callbox publish` to a server that speaks the Hub's interface for commits.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::committing_hub::{State, hub};
use crate::fetch::{OTHER, digest, fetch, refused, run, set_environment};
use crate::fetched_bundles::{TRUST, bundle_of, write_rules};
use crate::packages::{self, HEADER};
use crate::server::{Answer, Request, Server};
use crate::support::{Folder, Ran};

const DESTINATION: &str = "hf:org/negate@1";
const VARIANT: &str = "build/callbox-wasm32/";

fn publish(folder: &Folder, server: &Server, arguments: &[&str]) -> Ran {
    let mut command = folder.command(&[&["publish"], arguments].concat());
    set_environment(&mut command, folder, &server.address(""));
    run(command)
}

/// A folder with packages of three versions.
pub(crate) fn folder() -> Folder {
    let folder = packages::folder();
    for version in ["1.0.0", "1.1.0", "2.0.0"] {
        folder.write("k/callbox-package.json", HEADER.replace("1.0.0", version));
        folder
            .run(&["pack", "k", "-o", &format!("{version}.wasm")])
            .done();
    }
    folder.write("k/README.md", "Another one.\n");
    folder.write("k/callbox-package.json", HEADER);
    folder.run(&["pack", "k", "-o", "other.wasm"]).done();
    folder
}

#[track_caller]
pub(crate) fn check_refused(ran: &Ran, exit: i32, code: &str, message: &str) {
    let object = ran.object();
    assert_eq!(ran.code, exit, "{ran:?}");
    assert_eq!(object["status"]["code"], code, "{ran:?}");
    let found = object["status"]["message"].as_str().unwrap();
    assert!(found.contains(message), "expected {message:?} in {found:?}");
    assert_eq!(object["published"], Value::Null);
}

#[test]
fn a_published_kernel_is_fetched() {
    for lfs in ["", ".wasm"] {
        let state = Arc::new(Mutex::new(State {
            lfs,
            ..State::default()
        }));
        let server = hub(&state, |_| None);
        let folder = folder();
        let ran = publish(&folder, &server, &["1.0.0.wasm", DESTINATION, "--json"]);
        let published = ran.object()["published"].clone();
        ran.done();
        let metadata = state.lock().unwrap().files[&format!("{VARIANT}metadata.json")].clone();
        let package = folder.read("1.0.0.wasm");
        let expected = json!({"to": "hf:org/negate@v1", "name": "negate", "version": "1.0.0",
            "sha256": digest(&package), "changed": true, "bundle": null, "commit": OTHER,
            "hub_digest": digest(&metadata), "manifest_digest": null, "bundle_digest": null});
        assert_eq!(published, expected);
        assert_eq!(
            state.lock().unwrap().stored.len(),
            usize::from(!lfs.is_empty())
        );
        assert_eq!(state.lock().unwrap().visibility, None);
        let reference = format!("{DESTINATION}#sha256:{}", digest(&metadata));
        fetch(&folder, &server, &[&reference, "-o", "back.wasm"]).done();
        assert_eq!(folder.read("back.wasm"), package);
        // The same again changes nothing, and makes no commit.
        let count = server.requests().len();
        let again = publish(&folder, &server, &["1.0.0.wasm", DESTINATION, "--json"]);
        assert_eq!(again.object()["published"]["changed"], false, "{again:?}");
        let asked = &server.requests()[count..];
        assert!(
            asked.iter().all(|request| request.method == "GET"),
            "{asked:?}"
        );
    }
}

#[test]
fn a_branch_goes_forward() {
    let state = Arc::new(Mutex::new(State::default()));
    let server = hub(&state, |_| None);
    let folder = folder();
    let first = ["1.0.0.wasm", DESTINATION, "--private"];
    publish(&folder, &server, &first).done();
    assert_eq!(state.lock().unwrap().visibility, Some(json!("private")));
    let message = "hf:org/negate@v1: it has \"negate\" \"1.0.0\", which is not an earlier version";
    let ran = publish(&folder, &server, &["other.wasm", DESTINATION, "--json"]);
    check_refused(&ran, 1, "FAILED_PRECONDITION", message);
    // A file of the earlier version that the new one lacks goes.
    {
        let state = &mut *state.lock().unwrap();
        let name = format!("{VARIANT}metadata.json");
        let text = String::from_utf8(state.files[&name].clone()).unwrap();
        let entry = format!(
            "\"files\": [{{\"path\": \"old.ptx\", \"size\": 1, \"sha256\": \"{}\"}},",
            "0".repeat(64)
        );
        let text = text.replacen("\"files\": [", &entry, 1);
        state.files.insert(name, text.into_bytes());
        state
            .files
            .insert(format!("{VARIANT}old.ptx"), b"x".to_vec());
    }
    publish(&folder, &server, &["1.1.0.wasm", DESTINATION]).done();
    assert!(
        !state
            .lock()
            .unwrap()
            .files
            .contains_key(&format!("{VARIANT}old.ptx"))
    );
    let ran = publish(&folder, &server, &["1.0.0.wasm", DESTINATION, "--json"]);
    let message = "it has \"negate\" \"1.1.0\", which is not an earlier version";
    check_refused(&ran, 1, "FAILED_PRECONDITION", message);
    publish(&folder, &server, &["1.0.0.wasm", DESTINATION, "--replace"]).done();
    let ran = publish(&folder, &server, &["2.0.0.wasm", DESTINATION, "--json"]);
    check_refused(
        &ran,
        2,
        "INVALID_ARGUMENT",
        "expected a package of version 1, found 2.0.0",
    );
}

/// The answer that wants an upload in parts of this size, which no storage takes.
fn in_parts(request: &Request, size: &str, count: usize) -> Option<Answer> {
    let asked = request.path.ends_with("/objects/batch");
    let asked: Value = serde_json::from_slice(asked.then_some(&request.body)?).unwrap();
    let mut header = serde_json::Map::new();
    header.insert("chunk_size".to_owned(), size.into());
    for number in 1..=count {
        let address = format!("http://127.0.0.1:1/{number}");
        header.insert(format!("{number:05}"), address.into());
    }
    let upload = json!({"href": "http://127.0.0.1:1/join", "header": header});
    let objects = json!([{"oid": asked["objects"][0]["oid"], "actions": {"upload": upload}}]);
    let answer = json!({"objects": objects}).to_string();
    Some(Answer::new(200, answer.as_bytes()))
}

/// A file goes up in the parts that the Hub asks for, in their order, and is joined by their tags.
#[test]
fn large_files_go_in_parts() {
    let storage = Arc::new(Server::new(|request| {
        let answer = Answer::new(200, b"{}");
        match request.method.as_str() {
            "PUT" if request.path.starts_with("/part/") => answer.with("ETag", &request.path),
            _ => answer,
        }
    }));
    let folder = folder();
    let package = folder.read("1.0.0.wasm");
    let size = package.len().div_ceil(11);
    let state = Arc::new(Mutex::new(State {
        lfs: ".wasm",
        ..State::default()
    }));
    let (at, count) = (Arc::clone(&storage), package.len().div_ceil(size));
    assert_eq!(count, 11);
    let server = hub(&state, move |request| {
        let asked = request.path.ends_with("/objects/batch");
        let asked: Value = serde_json::from_slice(asked.then_some(&request.body)?).unwrap();
        assert_eq!(asked["transfers"], json!(["basic", "multipart"]));
        let mut header = json!({"chunk_size": size.to_string()});
        for number in 1..=count {
            // Without zeros before it, 10 would come before 2.
            header[number.to_string()] = at.address(&format!("/part/{number}?hidden")).into();
        }
        let upload = json!({"href": at.address("/join"), "header": header});
        let objects = json!([{"oid": asked["objects"][0]["oid"], "actions": {"upload": upload}}]);
        let answer = json!({"objects": objects}).to_string();
        Some(Answer::new(200, answer.as_bytes()))
    });
    // The hub's own storage lacks the file, so that the commit fails.
    let _ = publish(&folder, &server, &["1.0.0.wasm", DESTINATION]);
    let mut asked = storage.requests();
    assert!(
        asked
            .iter()
            .all(|one| one.header("authorization").is_none())
    );
    let join = asked.pop().unwrap();
    assert_eq!(
        (join.method.as_str(), join.path.as_str()),
        ("POST", "/join")
    );
    let tag = |number: usize| format!("/part/{number}?hidden");
    let tags = (1..=count).map(|number| json!({"partNumber": number, "etag": tag(number)}));
    let expected = json!({"oid": digest(&package), "parts": tags.collect::<Vec<_>>()});
    assert_eq!(
        serde_json::from_slice::<Value>(&join.body).unwrap(),
        expected
    );
    let paths: Vec<_> = asked.iter().map(|one| one.path.clone()).collect();
    assert_eq!(paths, (1..=count).map(tag).collect::<Vec<_>>());
    let bodies: Vec<_> = asked.iter().map(|one| one.body.clone()).collect();
    assert_eq!(bodies.concat(), package);
    assert!(bodies[..count - 1].iter().all(|part| part.len() == size));
}

/// A part without an entity tag cannot be joined.
#[test]
fn a_part_without_a_tag_is_an_error() {
    let storage = Arc::new(Server::new(|_| Answer::new(200, b"")));
    let state = Arc::new(Mutex::new(State {
        lfs: ".wasm",
        ..State::default()
    }));
    let at = Arc::clone(&storage);
    let server = hub(&state, move |request| {
        let asked = request.path.ends_with("/objects/batch");
        let asked: Value = serde_json::from_slice(asked.then_some(&request.body)?).unwrap();
        let header = json!({"chunk_size": "67108864", "00001": at.address("/part?hidden")});
        let upload = json!({"href": at.address("/join"), "header": header});
        let objects = json!([{"oid": asked["objects"][0]["oid"], "actions": {"upload": upload}}]);
        let answer = json!({"objects": objects}).to_string();
        Some(Answer::new(200, answer.as_bytes()))
    });
    let folder = folder();
    let ran = publish(&folder, &server, &["1.0.0.wasm", DESTINATION, "--json"]);
    check_refused(
        &ran,
        1,
        "DATA_LOSS",
        "expected an entity tag for part 1 of 1",
    );
    assert!(!ran.stdout.contains("hidden"), "{ran:?}");
    assert_eq!(storage.requests().len(), 1);
}

#[test]
fn refusals_of_the_hub_are_statuses_without_the_token() {
    type Change = fn(&Request) -> Option<Answer>;
    let folder = folder();
    let cases: [(Change, &str, &str); 10] = [
        // The hub repeats the token.
        (
            |request| {
                let said = request.header("authorization").unwrap();
                Some(Answer::new(403, b"").with("X-Error-Message", said))
            },
            "PERMISSION_DENIED",
            "it may need a token with the right to write (status 403): \"Bearer ***\"",
        ),
        (
            |request| {
                request
                    .path
                    .ends_with("/commit/v1")
                    .then(|| Answer::new(412, b"moved"))
            },
            "ABORTED",
            "it was changed at the same time (status 412): \"moved\"",
        ),
        (
            |request| {
                request
                    .path
                    .ends_with("/refs")
                    .then(|| Answer::new(503, b""))
            },
            "UNAVAILABLE",
            "it cannot answer now (status 503)",
        ),
        (
            |request| {
                request
                    .path
                    .ends_with("/refs")
                    .then(|| Answer::new(200, b"[]"))
            },
            "DATA_LOSS",
            "the answer is wrong",
        ),
        (
            |request| {
                let answer = br#"{"files": []}"#;
                request
                    .path
                    .contains("preupload")
                    .then(|| Answer::new(200, answer))
            },
            "DATA_LOSS",
            "expected `regular` or `lfs` for build/callbox-wasm32/metadata.json",
        ),
        (
            |request| in_parts(request, "five", 20),
            "DATA_LOSS",
            "expected the size of parts in bytes, found \"five\"",
        ),
        (
            |request| in_parts(request, "0", 20),
            "DATA_LOSS",
            "expected the size of parts in bytes, found \"0\"",
        ),
        (
            |request| in_parts(request, "1", 2),
            "DATA_LOSS",
            "of 1 bytes each for ",
        ),
        (
            |request| in_parts(request, "67108864", 2),
            "DATA_LOSS",
            "expected addresses for 1 parts",
        ),
        // The storage has no such part.
        (
            |request| in_parts(request, "67108864", 1),
            "UNAVAILABLE",
            "http://127.0.0.1:1/1: ",
        ),
    ];
    for (change, code, message) in cases {
        let state = Arc::new(Mutex::new(State {
            lfs: ".wasm",
            ..State::default()
        }));
        let server = hub(&state, change);
        let ran = publish(&folder, &server, &["1.0.0.wasm", DESTINATION, "--json"]);
        check_refused(&ran, 1, code, message);
        assert!(state.lock().unwrap().files.is_empty());
    }
}

/// Storage at another host gets the file and not the token.
#[test]
fn storage_gets_no_token() {
    let storage = Arc::new(Server::new(|_| Answer::new(200, b"")));
    let state = Arc::new(Mutex::new(State {
        lfs: ".wasm",
        ..State::default()
    }));
    let at = Arc::clone(&storage);
    let server = hub(&state, move |request| {
        let asked = request
            .path
            .ends_with("/objects/batch")
            .then_some(&request.body)?;
        let asked: Value = serde_json::from_slice(asked).unwrap();
        let upload = json!({"href": at.address("/x?signature=hidden"), "header": {"x-own": "1"}});
        let objects = json!([{"oid": asked["objects"][0]["oid"], "actions": {"upload": upload}}]);
        Some(Answer::new(
            200,
            json!({"objects": objects}).to_string().as_bytes(),
        ))
    });
    let folder = folder();
    // The hub's own storage lacks the file, so that the commit fails.
    let _ = publish(&folder, &server, &["1.0.0.wasm", DESTINATION]);
    let asked = storage.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        (asked[0].method.as_str(), &asked[0].body),
        ("PUT", &folder.read("1.0.0.wasm"))
    );
    assert_eq!(asked[0].header("authorization"), None);
    assert_eq!(asked[0].header("x-own"), Some("1"));
}

#[test]
fn the_hub_needs_a_token() {
    let folder = folder();
    let mut command = folder.command(&["publish", "1.0.0.wasm", DESTINATION, "--json"]);
    set_environment(&mut command, &folder, "http://127.0.0.1:1");
    let ran = run_without_token(command);
    check_refused(
        &ran,
        1,
        "PERMISSION_DENIED",
        "expected a token with the right to write",
    );
}

/// The bundle beside a package goes with it, in one commit.
#[test]
fn the_hub_gets_bundles_beside_packages() {
    let state = Arc::new(Mutex::new(State::default()));
    let server = hub(&state, |_| None);
    let folder = folder();
    let to_hub = |file: &str, more: &[&str]| {
        let arguments = [file, DESTINATION, "--json"];
        publish(&folder, &server, &[&arguments[..], more].concat())
    };
    let at = format!("{VARIANT}negate.wasm.sig");
    let on_hub = || state.lock().unwrap().files.get(&at).cloned();
    write_rules(&folder, &[]);
    let trusted = |file: &str| {
        // All commits of this hub have one name, under which metadata are kept.
        let _ = std::fs::remove_dir_all(folder.path("home"));
        let arguments = [&[DESTINATION, "-o", file, "--json"], &TRUST[..]].concat();
        fetch(&folder, &server, &arguments)
    };
    let bundle = bundle_of(&folder.read("1.0.0.wasm"));
    folder.write("1.0.0.wasm.sig", &bundle);
    let published = to_hub("1.0.0.wasm", &[]).object()["published"].clone();
    assert_eq!(published["bundle"], json!(at), "{published}");
    assert_eq!(on_hub(), Some(bundle.clone()));
    let commits = server.requests();
    let commits = commits.iter().filter(|one| one.path.contains("/commit/"));
    assert_eq!(commits.count(), 1);
    trusted("back.wasm").done();
    assert_eq!(folder.read("back.wasm.sig"), bundle);
    let again = to_hub("1.0.0.wasm", &[]).object()["published"].clone();
    assert_eq!(again["changed"], false, "{again}");

    // Another signature of the same package.
    let other = bundle_of(&folder.read("1.0.0.wasm"));
    folder.write("1.0.0.wasm.sig", &other);
    let message =
        format!("{at}: another bundle of signatures is there: --replace replaces or removes it");
    let ran = to_hub("1.0.0.wasm", &[]);
    check_refused(&ran, 1, "FAILED_PRECONDITION", &message);
    to_hub("1.0.0.wasm", &["--replace"]).done();
    assert_eq!(on_hub(), Some(other));

    // The bundle of an earlier version does not stay beside a new one, which gets its own later.
    to_hub("1.1.0.wasm", &[]).done();
    assert_eq!(on_hub(), None);
    refused(&trusted("n.wasm"), 1, "PERMISSION_DENIED", "no signature");
    let newer = bundle_of(&folder.read("1.1.0.wasm"));
    folder.write("1.1.0.wasm.sig", &newer);
    let published = to_hub("1.1.0.wasm", &[]).object()["published"].clone();
    assert_eq!(published["changed"], true, "{published}");
    trusted("n.wasm").done();
    assert_eq!(folder.read("n.wasm.sig"), newer);

    // A bundle of another file is published nowhere.
    folder.write("2.0.0.wasm.sig", &newer);
    let ran = publish(
        &folder,
        &server,
        &["2.0.0.wasm", "hf:org/negate@2", "--json"],
    );
    let message = "2.0.0.wasm.sig: expected a bundle of the package";
    check_refused(&ran, 1, "FAILED_PRECONDITION", message);
}

/// Storage for large files is another host, from which `fetch` takes no bundle.
#[test]
fn a_bundle_in_storage_for_large_files_is_an_error() {
    let state = Arc::new(Mutex::new(State {
        lfs: ".sig",
        ..State::default()
    }));
    let server = hub(&state, |_| None);
    let folder = folder();
    folder.write("1.0.0.wasm.sig", bundle_of(&folder.read("1.0.0.wasm")));
    let ran = publish(&folder, &server, &["1.0.0.wasm", DESTINATION, "--json"]);
    let message = "put build/callbox-wasm32/negate.wasm.sig into the storage for large files";
    check_refused(&ran, 1, "FAILED_PRECONDITION", message);
    assert!(state.lock().unwrap().files.is_empty());
}

fn run_without_token(mut command: std::process::Command) -> Ran {
    run({
        command.env_remove("HF_TOKEN");
        command
    })
}
