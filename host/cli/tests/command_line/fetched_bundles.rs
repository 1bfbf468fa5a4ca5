//! Bundles of signatures beside packages of hosts, in `callbox fetch` and `callbox update`.

use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::bundles::{LEAF, ROOT, folder, sign};
use crate::fetch::{COMMIT, OTHER, REF, Repository, fetch, hub, refused, repository, run};
use crate::fetch::{set_environment, variant};
use crate::packages::refuse;
use crate::server::{Answer, Server};
use crate::support::{Folder, Ran};

fn update(folder: &Folder, server: &Server, arguments: &[&str]) -> Ran {
    let mut command = folder.command(&[&["update"], arguments].concat());
    set_environment(&mut command, folder, &server.address(""));
    run(command)
}

/// The bundle of a module in a folder of its own.
pub(crate) fn bundle_of(module: &[u8]) -> Vec<u8> {
    let folder = folder();
    folder.write("signed.wasm", module);
    sign(&folder, &["signed.wasm", "--certificate", "chain.pem"]);
    folder.read("signed.wasm.sig")
}

/// Puts the bundle of a commit's module at this path of its repository.
fn put_bundle(repository: &Arc<Mutex<Repository>>, commit: &'static str, path: &str) {
    let module = repository.lock().unwrap().commits[commit]["negate.wasm"].clone();
    let bundle = bundle_of(&module);
    let mut repository = repository.lock().unwrap();
    let files = repository.commits.get_mut(commit).unwrap();
    files.insert(path.to_owned(), bundle);
}

pub(crate) fn write_rules(folder: &Folder, revoked: &[&str]) {
    let rules = json!({"keys": {"root": ROOT, "leaf": LEAF}, "revoked": revoked,
        "signatures": {"hf:*": {"signed_by": "root"}, "http:*": {"signed_by": "root"},
            "*.wasm": {"signed_by": "root"}}});
    folder.write("trust.json", rules.to_string());
}

pub(crate) const TRUST: [&str; 2] = ["--trust", "trust.json"];

#[test]
fn bundles_of_the_hub_are_fetched_and_count() {
    for path in ["negate.wasm.sig", "model.sig"] {
        let repository = repository();
        let server = hub(&repository, |_, _, answer| answer);
        let folder = folder();
        write_rules(&folder, &[]);
        let arguments = [&[REF], &TRUST[..], &["--json"]].concat();
        let ran = fetch(&folder, &server, &arguments);
        refused(&ran, 1, "PERMISSION_DENIED", "found no signature");
        assert!(!folder.path("negate.wasm").exists());

        put_bundle(&repository, COMMIT, path);
        let ran = fetch(&folder, &server, &arguments);
        assert_eq!(
            ran.object()["fetched"]["bundle"],
            "negate.wasm.sig",
            "{ran:?}"
        );
        // The rules hold for the file, too.
        folder
            .run(&[&["test", "negate.wasm"], &TRUST[..]].concat())
            .done();
        std::fs::remove_file(folder.path("negate.wasm.sig")).unwrap();
        let offline = [&arguments[..], &["--offline"]].concat();
        fetch(&folder, &server, &offline).done();
        assert!(folder.path("negate.wasm.sig").exists());

        write_rules(&folder, &["leaf"]);
        let ran = fetch(&folder, &server, &arguments);
        refused(&ran, 1, "PERMISSION_DENIED", "which is revoked");
        // Without rules about bundles, none is asked for.
        let asked = server.requests().len();
        fetch(&folder, &server, &[REF]).done();
        let requests = server.requests();
        let asked = &requests[asked..];
        assert!(asked.iter().all(|request| !request.path.ends_with(".sig")));
    }
}

#[test]
fn bundles_that_lie_are_refused() {
    type Lie = fn(Answer) -> Answer;
    let lies: [(Lie, &str, &str); 5] = [
        (
            |_| Answer::new(200, b"{}"),
            "INVALID_ARGUMENT",
            "the bundle is malformed",
        ),
        (
            |_| Answer::new(200, &bundle_of(&variant("1.1.0")["negate.wasm"])),
            "PERMISSION_DENIED",
            "found a bundle of other content",
        ),
        (
            |_| Answer::redirect("http://127.0.0.2:1/negate.wasm.sig"),
            "PERMISSION_DENIED",
            "redirects to another host",
        ),
        (
            |_| Answer::new(200, b"").with("Content-Length", "99999999999"),
            "RESOURCE_EXHAUSTED",
            "expected at most 16777216 bytes",
        ),
        (
            |_| Answer::new(500, b""),
            "UNAVAILABLE",
            "cannot answer now",
        ),
    ];
    let repository = repository();
    for (lie, code, message) in lies {
        let server = hub(&repository, move |_, file, answer| match file {
            "negate.wasm.sig" => lie(answer),
            _ => answer,
        });
        let folder = folder();
        write_rules(&folder, &[]);
        let arguments = [&[REF], &TRUST[..], &["--json"]].concat();
        let ran = fetch(&folder, &server, &arguments);
        refused(&ran, 1, code, message);
        assert!(!folder.path("negate.wasm").exists());
    }
}

#[test]
fn bundles_of_addresses_count_and_files_of_others_stay() {
    let module = wat::parse_str(crate::guests::NEGATE).unwrap();
    let bundle = bundle_of(&module);
    let server = Server::new(move |request| match request.path.as_str() {
        "/k.wasm" | "/k.wasm?x=1" | "/bare.wasm" => Answer::new(200, &module),
        "/k.wasm.sig" => Answer::new(200, &bundle),
        _ => Answer::new(404, b""),
    });
    let folder = folder();
    write_rules(&folder, &[]);
    for (path, is_signed) in [
        ("/k.wasm", true),
        ("/k.wasm?x=1", false),
        ("/bare.wasm", false),
    ] {
        let address = server.address(path);
        let arguments = [&[address.as_str(), "-o", "o.wasm"], &TRUST[..], &["--json"]].concat();
        if is_signed {
            folder.write("o.wasm.sig", "mine");
            let ran = fetch(&folder, &server, &arguments);
            refused(
                &ran,
                1,
                "FAILED_PRECONDITION",
                "o.wasm.sig: expected no other file",
            );
            assert!(!folder.path("o.wasm").exists());
            fetch(&folder, &server, &[&arguments[..], &["--replace"]].concat()).done();
        } else {
            let ran = fetch(&folder, &server, &arguments);
            refused(&ran, 1, "PERMISSION_DENIED", "found no signature");
        }
    }
}

/// An update takes the bundle along, and one that was interrupted before the bundle was moved
/// leaves a file that its rules take.
#[test]
fn updates_take_bundles_along() {
    let repository = repository();
    put_bundle(&repository, COMMIT, "negate.wasm.sig");
    let server = hub(&repository, |_, _, answer| answer);
    let folder = folder();
    write_rules(&folder, &[]);
    let locked = [REF, "--write-lock", "callbox.lock", "-o", "n2.wasm"];
    fetch(&folder, &server, &[&locked, &TRUST[..]].concat()).done();
    let old = folder.read("n2.wasm.sig");
    {
        let mut repository = repository.lock().unwrap();
        repository.branches.insert("v1", OTHER);
        repository.commits.insert(OTHER, variant("1.1.0"));
    }
    let yes = [&["--yes", "--json"], &TRUST[..]].concat();
    let ran = update(&folder, &server, &yes);
    let object = ran.object();
    assert_eq!(object["status"]["code"], "PERMISSION_DENIED", "{ran:?}");
    assert_eq!(folder.read("n2.wasm.sig"), old);

    put_bundle(&repository, OTHER, "negate.wasm.sig");
    // The file has a bundle, so that one comes along without rules, too.
    update(&folder, &server, &["--yes"]).done();
    let new = folder.read("n2.wasm.sig");
    assert_ne!(new, old);
    let test = [&["test", "n2.wasm", "--lock", "callbox.lock"], &TRUST[..]].concat();
    folder.run(&test).done();
    folder.write("n2.wasm.sig", &old);
    refuse(
        &folder,
        &test,
        1,
        "PERMISSION_DENIED",
        "a bundle of other content",
    );
    folder.write("n2.wasm.sig.callbox-next", &new);
    folder.run(&test).done();
}
