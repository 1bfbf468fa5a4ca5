//! `callbox fetch`, against servers on this machine.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use callbox_package::SecretKey;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::packages::{self, HEADER};
use crate::server::{Answer, Request, Server};
use crate::support::{Folder, Ran, text};

pub(crate) const TOKEN: &str = "hf_secretsecret";
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
pub(crate) const OTHER: &str = "76543210fedcba9876543210fedcba9876543210";

pub(crate) fn digest(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// The variant of a package with this version.
pub(crate) fn variant(version: &str) -> Files {
    let folder = packages::folder();
    folder.write("k/callbox-package.json", HEADER.replace("1.0.0", version));
    folder.run(&["pack", "k", "--hub", "r"]).done();
    let names = folder.list("r/build/callbox-wasm32").into_iter();
    names
        .map(|name| {
            let contents = folder.read(&format!("r/build/callbox-wasm32/{name}"));
            (name, contents)
        })
        .collect()
}

/// A hub with one repository, whose branches and commits a test changes.
#[derive(Default)]
pub(crate) struct Repository {
    pub(crate) branches: BTreeMap<&'static str, &'static str>,
    pub(crate) commits: BTreeMap<&'static str, Files>,
}

/// Answers of the Hub, some of which `lie` changes.
pub(crate) fn hub(
    repository: &Arc<Mutex<Repository>>,
    lie: impl Fn(&Request, &str, Answer) -> Answer + Send + Sync + 'static,
) -> Server {
    let repository = Arc::clone(repository);
    Server::new(move |request| {
        let found = answer(&repository.lock().unwrap(), &request.path);
        let file = request.path.rsplit('/').next().unwrap_or_default();
        lie(request, file, found)
    })
}

fn answer(repository: &Repository, path: &str) -> Answer {
    let missing = || Answer::new(404, b"");
    let Some(rest) = path.strip_prefix("/kernels/org/negate/resolve/") else {
        return missing();
    };
    let Some((revision, path)) = rest.split_once('/') else {
        return missing();
    };
    let path = path.strip_prefix("build/callbox-wasm32/").unwrap_or(path);
    let commit = *repository.branches.get(revision).unwrap_or(&revision);
    let files = repository.commits.get(commit);
    match files.and_then(|files| files.get(path)) {
        Some(contents) => Answer::new(200, contents).with("X-Repo-Commit", commit),
        None => missing(),
    }
}

pub(crate) fn repository() -> Arc<Mutex<Repository>> {
    Arc::new(Mutex::new(Repository {
        branches: [("v1", COMMIT)].into(),
        commits: [(COMMIT, variant("1.0.0"))].into(),
    }))
}

pub(crate) fn command(folder: &Folder, hub: &str, arguments: &[&str]) -> Command {
    let mut command = folder.command(&[&["fetch"], arguments].concat());
    set_environment(&mut command, folder, hub);
    command
}

/// The environment of commands that ask a hub.
pub(crate) fn set_environment(command: &mut Command, folder: &Folder, hub: &str) {
    command
        .env("HF_ENDPOINT", hub)
        .env("HF_HOME", folder.path("home"))
        .env("HF_TOKEN", TOKEN)
        .env_remove("HF_HUB_OFFLINE");
    for name in ["http_proxy", "https_proxy", "all_proxy"] {
        command.env_remove(name).env_remove(name.to_uppercase());
    }
}

pub(crate) fn fetch(folder: &Folder, hub: &Server, arguments: &[&str]) -> Ran {
    run(command(folder, &hub.address(""), arguments))
}

/// Runs a command, which must not show the token.
pub(crate) fn run(mut command: Command) -> Ran {
    let ran = Ran::new(&command.output().unwrap());
    assert!(
        !ran.stdout.contains(TOKEN) && !ran.stderr.contains(TOKEN),
        "{ran:?}"
    );
    ran
}

#[track_caller]
pub(crate) fn refused(ran: &Ran, exit: i32, code: &str, message: &str) {
    let object = ran.object();
    assert_eq!(ran.code, exit, "{ran:?}");
    assert_eq!(object["status"]["code"], code, "{ran:?}");
    let found = object["status"]["message"].as_str().unwrap();
    assert!(found.contains(message), "expected {message:?} in {found:?}");
    assert_eq!(object["fetched"], Value::Null);
}

pub(crate) const REF: &str = "hf:org/negate@1";

#[test]
fn a_kernel_of_the_hub_is_fetched_and_kept() {
    let repository = repository();
    let server = hub(&repository, |_, _, answer| answer);
    let folder = Folder::new();
    let ran = fetch(&folder, &server, &[REF, "--json"]);
    let object = ran.object();
    ran.done();
    let files = repository.lock().unwrap().commits[COMMIT].clone();
    let (package, metadata) = (&files["negate.wasm"], &files["metadata.json"]);
    let expected = json!({"from": "hf:org/negate@v1", "file": "negate.wasm", "bundle": null,
        "sha256": digest(package), "size": package.len(), "name": "negate", "version": "1.0.0",
        "commit": COMMIT, "hub_digest": digest(metadata)});
    assert_eq!(object["fetched"], expected);
    assert_eq!(folder.read("negate.wasm"), *package);
    let asked = server.requests();
    assert_eq!(asked.len(), 3);
    for request in &asked {
        let authorization = format!("Bearer {TOKEN}");
        assert_eq!(
            request.header("authorization"),
            Some(authorization.as_str())
        );
        assert_eq!(request.header("accept-encoding"), Some("identity"));
    }
    // Only the branch is asked for again, and offline nothing.
    std::fs::remove_file(folder.path("negate.wasm")).unwrap();
    fetch(&folder, &server, &[REF]).done();
    assert_eq!(
        server.requests()[3..]
            .iter()
            .map(|r| r.method.as_str())
            .collect::<Vec<_>>(),
        ["HEAD"]
    );
    let pinned = format!("{REF}#sha256:{}", digest(metadata));
    fetch(
        &folder,
        &server,
        &[&pinned, "--offline", "-o", "again.wasm"],
    )
    .done();
    let mut offline = command(&folder, &server.address(""), &[REF, "-o", "b.wasm"]);
    Ran::new(&offline.env("HF_HUB_OFFLINE", "1").output().unwrap()).done();
    assert_eq!(server.requests().len(), 4);
    folder.run(&["test", "again.wasm"]).done();
    // Another user's folder, or one that others can write, is not used.
    use std::os::unix::fs::PermissionsExt as _;
    let kept = folder.path("home/callbox/sha256");
    std::fs::set_permissions(kept, std::fs::Permissions::from_mode(0o777)).unwrap();
    let ran = fetch(&folder, &server, &[REF, "--json"]);
    refused(
        &ran,
        1,
        "FAILED_PRECONDITION",
        "that this user alone can write",
    );
}

#[test]
fn a_kept_file_that_was_changed_is_downloaded_again() {
    let repository = repository();
    let server = hub(&repository, |_, _, answer| answer);
    let folder = Folder::new();
    fetch(&folder, &server, &[REF]).done();
    let package = folder.read("negate.wasm");
    folder.write(&format!("home/callbox/sha256/{}", digest(&package)), "evil");
    fetch(&folder, &server, &[REF, "-o", "b.wasm"]).done();
    assert_eq!(folder.read("b.wasm"), package);
}

#[test]
fn pins_and_locks_hold_wherever_the_branch_is() {
    let repository = repository();
    let server = hub(&repository, |_, _, answer| answer);
    let folder = Folder::new();
    let metadata = repository.lock().unwrap().commits[COMMIT]["metadata.json"].clone();
    let lock = json!({"format": 1, "files": [{"file": "hf:org/negate@v1",
        "digest": digest(&metadata), "size": metadata.len(), "commit": COMMIT}]});
    folder.write("callbox.lock", lock.to_string());
    {
        let mut repository = repository.lock().unwrap();
        repository.branches.insert("v1", OTHER);
        repository.commits.insert(OTHER, variant("1.0.1"));
    }
    let pinned = format!("{REF}#sha256:{}", digest(&metadata));
    let ran = fetch(&folder, &server, &[&pinned, "--json"]);
    let message = format!(
        "org/negate: expected the digest {}, found ",
        digest(&metadata)
    );
    refused(&ran, 1, "PERMISSION_DENIED", &message);
    assert!(!folder.path("negate.wasm").exists());
    let locked = fetch(&folder, &server, &[REF, "--lock", "callbox.lock", "--json"]);
    assert_eq!(locked.object()["fetched"]["commit"], COMMIT, "{locked:?}");
    let moved = fetch(&folder, &server, &[REF, "-o", "new.wasm", "--json"]);
    assert_eq!(moved.object()["fetched"]["version"], "1.0.1", "{moved:?}");
    let ran = fetch(
        &folder,
        &server,
        &["hf:org/negate@main", "--lock", "callbox.lock", "--json"],
    );
    refused(
        &ran,
        1,
        "PERMISSION_DENIED",
        "hf:org/negate@main is not in callbox.lock",
    );
    // The hub sends another commit's file for the locked one.
    let other = repository.lock().unwrap().commits[OTHER].clone();
    repository.lock().unwrap().commits.insert(COMMIT, other);
    std::fs::remove_dir_all(folder.path("home")).unwrap();
    let ran = fetch(&folder, &server, &[REF, "--lock", "callbox.lock", "--json"]);
    refused(&ran, 1, "PERMISSION_DENIED", "callbox.lock has the digest ");
}

#[test]
fn a_download_that_breaks_off_begins_anew() {
    let tries = AtomicUsize::new(0);
    let server = Server::new(move |_| {
        let mut answer = Answer::new(200, &wat::parse_str(crate::guests::NEGATE).unwrap());
        if tries.fetch_add(1, Ordering::Relaxed) == 0 {
            answer.sent = 10;
        }
        answer
    });
    let folder = Folder::new();
    fetch(&folder, &server, &[&server.address("/k.wasm")]).done();
    assert_eq!(server.requests().len(), 2);
    assert_eq!(
        folder.read("k.wasm"),
        wat::parse_str(crate::guests::NEGATE).unwrap()
    );
}

#[test]
fn files_of_addresses_are_checked_and_replace_no_others() {
    let module = wat::parse_str(crate::guests::NEGATE).unwrap();
    let body = module.clone();
    let elsewhere = Server::new(move |_| Answer::new(200, &body));
    let (body, to) = (
        module.clone(),
        elsewhere.address("/k.wasm?signature=hidden"),
    );
    let server = Server::new(move |request| match request.path.as_str() {
        "/k.wasm" | "/-k.wasm" => Answer::new(200, &body),
        "/text.wasm" => Answer::new(200, b"text"),
        "/away.wasm" => Answer::redirect(&to),
        "/loop.wasm" => Answer::redirect("/loop.wasm"),
        "/huge.wasm" => Answer::new(200, b"").with("Content-Length", "9999999999"),
        _ => Answer::new(404, b""),
    });
    let folder = Folder::new();
    let run = |path: &str, rest: &[&str]| {
        let address = server.address(path);
        fetch(
            &folder,
            &server,
            &[&[address.as_str()], rest, &["--json"]].concat(),
        )
    };
    let right = format!("/k.wasm#sha256:{}", digest(&module));
    let wrong = format!("/k.wasm#sha256:{}", "0".repeat(64));
    run(&right, &[]).done();
    assert_eq!(folder.read("k.wasm"), module);
    for request in server.requests() {
        assert_eq!(request.header("authorization"), None);
    }
    run(&right, &["--offline"]).done();
    for (path, rest, code, message) in [
        (
            wrong.as_str(),
            &[][..],
            "PERMISSION_DENIED",
            "expected the digest 0000",
        ),
        (
            "/text.wasm",
            &[],
            "INVALID_ARGUMENT",
            "expected a WebAssembly module",
        ),
        (
            "/away.wasm",
            &[],
            "PERMISSION_DENIED",
            "redirects to another host",
        ),
        (
            "/loop.wasm",
            &[],
            "UNAVAILABLE",
            "expected at most 5 redirects",
        ),
        ("/huge.wasm", &[], "RESOURCE_EXHAUSTED", "found 9999999999"),
        ("/none.wasm", &[], "NOT_FOUND", "there is no such file"),
        (
            "/none.wasm",
            &["--offline"],
            "UNAVAILABLE",
            "this command is offline",
        ),
    ] {
        refused(&run(path, rest), 1, code, message);
    }
    assert_eq!(folder.list("."), ["home", "k.wasm"]);
    let away = format!("/away.wasm#sha256:{}", digest(&module));
    run(&away, &["-o", "a.wasm"]).done();
    assert_eq!(folder.read("a.wasm"), module);
    // Another file stays, unless it is to be replaced.
    folder.write("k.wasm", "mine");
    let message = "k.wasm: expected no other file of this name";
    refused(&run("/k.wasm", &[]), 1, "FAILED_PRECONDITION", message);
    assert_eq!(folder.read("k.wasm"), b"mine");
    run("/k.wasm", &["--replace"]).done();
    assert_eq!(folder.read("k.wasm"), module);
    std::fs::create_dir(folder.path("kernels")).unwrap();
    for rest in [&["-o", "kernels"][..], &["-o", "kernels", "--replace"]] {
        let message = "kernels: expected the name of a file to write, found a folder";
        refused(&run("/k.wasm", rest), 2, "INVALID_ARGUMENT", message);
    }
    std::fs::remove_dir(folder.path("kernels")).unwrap();
    // Programs would take such a name for an option.
    run("/-k.wasm", &[]).done();
    assert_eq!(
        folder.list("."),
        ["a.wasm", "home", "k.wasm", "package.wasm"]
    );
    folder.write("callbox.lock", r#"{"format":1,"files":[]}"#);
    let lock = run("/k.wasm", &["--lock", "callbox.lock"]);
    refused(
        &lock,
        1,
        "PERMISSION_DENIED",
        "k.wasm is not in callbox.lock: `callbox fetch --write-lock`",
    );
}

/// The address that does not answer is none that the user wrote.
#[test]
fn failed_connections_name_the_reference() {
    let folder = packages::folder();
    folder.run(&["pack", "k", "-o", "k.wasm"]).done();
    for reference in ["hf:org/negate@v1", "oci:127.0.0.1:1/org/negate:1"] {
        let message = format!("{reference}: http://127.0.0.1:1/");
        for words in [&["fetch", reference][..], &["publish", "k.wasm", reference]] {
            let mut command = folder.command(&[words, &["--json"]].concat());
            set_environment(&mut command, &folder, "http://127.0.0.1:1");
            let object = run(command).object();
            assert_eq!(object["status"]["code"], "UNAVAILABLE", "{object}");
            let found = object["status"]["message"].as_str().unwrap();
            assert!(
                found.starts_with(&message),
                "expected {message:?} in {found:?}"
            );
        }
    }
}

#[test]
fn https_takes_certificates_of_known_authorities_alone() {
    let module = wat::parse_str(crate::guests::NEGATE).unwrap();
    let body = module.clone();
    let server = Server::with_tls(move |_| Answer::new(200, &body));
    let folder = Folder::new();
    folder.write("ca.pem", include_bytes!("tls/ca.pem"));
    let address = server.address("/k.wasm");
    let run = |authorities: &Path| {
        let mut command = command(&folder, "https://127.0.0.1:1", &[&address, "--json"]);
        command.env_remove("SSL_CERT_DIR");
        let output = command.env("SSL_CERT_FILE", authorities).output();
        Ran::new(&output.unwrap())
    };
    run(&folder.path("ca.pem")).done();
    assert_eq!(folder.read("k.wasm"), module);
    // The certificate of the server is no authority's.
    folder.write("other.pem", include_bytes!("tls/cert.pem"));
    let ran = run(&folder.path("other.pem"));
    refused(&ran, 1, "UNAVAILABLE", "127.0.0.1");
    folder.write("none.pem", "");
    refused(
        &run(&folder.path("none.pem")),
        1,
        "UNAVAILABLE",
        "no certificates of authorities",
    );
}

#[test]
fn rules_about_signatures_hold_for_references() {
    let repository = repository();
    let server = hub(&repository, |_, _, answer| answer);
    let folder = packages::folder();
    let key = SecretKey::from_bytes(&[7; 32])
        .unwrap()
        .public()
        .to_string();
    let rules = json!({"signatures": {"hf:org/*": {"signed_by": key}}});
    folder.write("trust.json", rules.to_string());
    let ran = fetch(&folder, &server, &[REF, "--trust", "trust.json", "--json"]);
    refused(&ran, 1, "PERMISSION_DENIED", "found no signature");
    assert!(!folder.path("negate.wasm").exists());
    // The rules are for the Hub alone.
    folder.run(&["pack", "k", "-o", "p.wasm"]).done();
    let path = folder.path("p.wasm");
    let copied = ["--trust", "trust.json", "-o", "copy.wasm"];
    fetch(&folder, &server, &[&[text(&path)], &copied[..]].concat()).done();
    assert_eq!(folder.read("copy.wasm"), folder.read("p.wasm"));
}

#[test]
fn wrong_references_are_wrong_usage() {
    let folder = Folder::new();
    for (reference, message) in [
        ("hf:org/name", "expected hf:ORG/NAME@VERSION"),
        // Its first letter is Cyrillic.
        ("hf:\u{43e}rg/name@1", "expected ORG/NAME of ASCII letters"),
        (
            "hf:org/na\u{2212}me@1",
            "expected ORG/NAME of ASCII letters",
        ),
        ("hf:org/../name@1", "expected ORG/NAME of ASCII letters"),
        ("oci:localhost:5000/a/../b:1", "found \"a/../b\""),
        (
            "https://ex\u{430}mple.com/k.wasm",
            "expected an https address",
        ),
        (
            "hf:org/name@1#sha512:00",
            "expected nothing or #sha256:DIGEST, found \"#sha512:00\"",
        ),
        ("https://example.com/k.wasm#md5:00", "found \"#md5:00\""),
        ("oci:localhost:5000/a:1#x", "found \"#x\""),
        ("http://example.com/k.wasm", "expected an https address"),
        ("oci:host/path:tag", "expected the host of a registry"),
    ] {
        let ran = folder.run(&["fetch", reference, "--json"]);
        refused(&ran, 2, "INVALID_ARGUMENT", message);
    }
    let ran = folder.run(&["fetch", "absent.wasm", "--json"]);
    refused(&ran, 2, "NOT_FOUND", "absent.wasm");
}
