//! `callbox update`, and `callbox fetch --write-lock`.

use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::fetch::{COMMIT, OTHER, REF, Repository, digest, fetch, hub, refused, repository, run};
use crate::fetch::{set_environment, variant};
use crate::packages::{self, HEADER, refuse};
use crate::server::{Answer, Server};
use crate::support::{Folder, Ran};

fn update(folder: &Folder, server: &Server, arguments: &[&str]) -> Ran {
    let mut command = folder.command(&[&["update"], arguments].concat());
    set_environment(&mut command, folder, &server.address(""));
    run(command)
}

/// A folder with the kernel of a hub, which is locked.
fn locked() -> (Folder, Server, Arc<Mutex<Repository>>) {
    let repository = repository();
    let server = hub(&repository, |_, _, answer| answer);
    let folder = Folder::new();
    folder.write("k/.keep", "");
    let file = ["-o", "k/n.wasm", "--write-lock", "callbox.lock"];
    fetch(&folder, &server, &[&[REF], &file[..]].concat()).done();
    (folder, server, repository)
}

fn move_to(repository: &Arc<Mutex<Repository>>, version: &str) {
    let mut repository = repository.lock().unwrap();
    repository.branches.insert("v1", OTHER);
    repository.commits.insert(OTHER, variant(version));
}

fn lock_of(folder: &Folder) -> Value {
    serde_json::from_slice(&folder.read("callbox.lock")).unwrap()
}

#[track_caller]
fn check_refused(ran: &Ran, code: &str, message: &str) {
    let object = ran.object();
    assert_eq!(
        (ran.code, &object["status"]["code"]),
        (1, &json!(code)),
        "{ran:?}"
    );
    let found = object["status"]["message"].as_str().unwrap();
    assert!(found.contains(message), "expected {message:?} in {found:?}");
}

#[test]
fn a_fetched_kernel_is_locked_with_its_reference() {
    let (folder, server, repository) = locked();
    let files = repository.lock().unwrap().commits[COMMIT].clone();
    let (package, metadata) = (&files["negate.wasm"], &files["metadata.json"]);
    let expected = json!({"format": 1, "files": [
        {"file": "hf:org/negate@v1", "digest": digest(metadata), "size": metadata.len(),
         "name": "negate", "version": "1.0.0", "commit": COMMIT},
        {"file": "k/n.wasm", "digest": digest(package), "size": package.len(),
         "name": "negate", "version": "1.0.0", "from": "hf:org/negate@v1"}]});
    assert_eq!(lock_of(&folder), expected);
    folder
        .run(&["test", "k/n.wasm", "--lock", "callbox.lock"])
        .done();
    // `lock` keeps the origin.
    folder.run(&["lock", "k/n.wasm"]).done();
    assert_eq!(lock_of(&folder), expected);
    // Another machine gets the same, wherever the branch is.
    move_to(&repository, "1.1.0");
    let other = Folder::new();
    other.write("callbox.lock", folder.read("callbox.lock"));
    fetch(&other, &server, &[REF, "--lock", "callbox.lock"]).done();
    assert_eq!(other.read("negate.wasm"), *package);
    // The lock does not move without `update`.
    let again = [
        REF,
        "-o",
        "k/n.wasm",
        "--replace",
        "--write-lock",
        "callbox.lock",
        "--json",
    ];
    let ran = fetch(&folder, &server, &again);
    let message = "with another digest";
    refused(&ran, 1, "FAILED_PRECONDITION", message);
    assert_eq!(folder.read("k/n.wasm"), *package);
}

#[test]
fn what_changed_is_shown_and_taken_over() {
    let (folder, server, repository) = locked();
    let before = folder.read("callbox.lock");
    let package = folder.read("k/n.wasm");
    let shown = update(&folder, &server, &[]).done();
    assert_eq!(
        shown,
        "hf:org/negate@v1\n  did not move\ncallbox.lock: nothing moved\n"
    );
    move_to(&repository, "1.1.0");
    let shown = update(&folder, &server, &[]).done();
    for expected in [
        format!("  commit {COMMIT} became {OTHER}\n"),
        "    ~ package version\n        - 1.0.0\n        + 1.1.0\n".to_owned(),
        "callbox.lock: nothing written; --yes takes the new versions\n".to_owned(),
    ] {
        assert!(shown.contains(&expected), "{expected:?} in {shown}");
    }
    assert_eq!(folder.read("callbox.lock"), before);
    assert_eq!(folder.read("k/n.wasm"), package);
    let object = update(&folder, &server, &["--json"]).object();
    let report = &object["update"]["references"][0];
    assert_eq!(object["update"]["written"], false);
    assert_eq!(
        (&report["moved"], &report["older"]),
        (&json!(true), &json!(false))
    );
    let change = json!({"kind": "package", "name": "version", "old": "1.0.0", "new": "1.1.0"});
    assert_eq!(report["diff"]["changes"], json!([change]));
    assert_eq!(folder.read("callbox.lock"), before);

    let shown = update(&folder, &server, &["--yes"]).done();
    assert!(shown.ends_with("callbox.lock: 1 updated\n"), "{shown}");
    let files = repository.lock().unwrap().commits[OTHER].clone();
    assert_eq!(folder.read("k/n.wasm"), files["negate.wasm"]);
    let lock = lock_of(&folder);
    assert_eq!(lock["files"][0]["commit"], OTHER);
    assert_eq!(lock["files"][0]["digest"], digest(&files["metadata.json"]));
    assert_eq!(lock["files"][1]["digest"], digest(&files["negate.wasm"]));
    assert_eq!(lock["files"][1]["version"], "1.1.0");
    folder
        .run(&["test", "k/n.wasm", "--lock", "callbox.lock"])
        .done();
    // Back to the older version, which is told.
    repository.lock().unwrap().branches.insert("v1", COMMIT);
    let shown = update(&folder, &server, &[]).done();
    assert!(
        shown.contains("  ! the new version is older than the locked one\n"),
        "{shown}"
    );
}

/// An entry that Python wrote has no file.
#[test]
fn kernels_without_files_move_too() {
    let (folder, server, repository) = locked();
    let mut lock = lock_of(&folder);
    lock["files"].as_array_mut().unwrap().pop();
    folder.write("callbox.lock", lock.to_string());
    move_to(&repository, "1.1.0");
    // Nothing is in the cache: the host still has the locked commit.
    std::fs::remove_dir_all(folder.path("home")).unwrap();
    update(&folder, &server, &["--yes"]).done();
    let lock = lock_of(&folder);
    assert_eq!(lock["files"].as_array().unwrap().len(), 1);
    assert_eq!(lock["files"][0]["commit"], OTHER);
}

#[test]
fn files_of_addresses_move_too() {
    let body = Arc::new(Mutex::new(wat::parse_str(crate::guests::NEGATE).unwrap()));
    let answers = Arc::clone(&body);
    let server = Server::new(move |_| Answer::new(200, &answers.lock().unwrap()));
    let folder = Folder::new();
    let address = server.address("/k.wasm");
    fetch(
        &folder,
        &server,
        &[&address, "--write-lock", "callbox.lock"],
    )
    .done();
    let first = body.lock().unwrap().clone();
    let lock = lock_of(&folder);
    assert_eq!(lock["files"][0]["from"], json!(address));
    let second = wat::parse_str(crate::guests::SEED).unwrap();
    *body.lock().unwrap() = second.clone();
    let pinned = [
        address.as_str(),
        "--lock",
        "callbox.lock",
        "-o",
        "o.wasm",
        "--json",
    ];
    let ran = fetch(&folder, &server, &pinned);
    refused(
        &ran,
        1,
        "PERMISSION_DENIED",
        &format!("expected the digest {}", digest(&first)),
    );
    let shown = update(&folder, &server, &[]).done();
    assert!(shown.contains("    ~ code module\n"), "{shown}");
    assert!(shown.contains("    + import callbox:ffi/api"), "{shown}");
    // A file that the user changed stays.
    folder.write("k.wasm", "mine");
    check_refused(
        &update(&folder, &server, &["--yes", "--json"]),
        "FAILED_PRECONDITION",
        "its locked version is neither in its file nor in the cache",
    );
    assert_eq!(folder.read("k.wasm"), b"mine");
    folder.write("k.wasm", &first);
    update(&folder, &server, &["--yes"]).done();
    assert_eq!(folder.read("k.wasm"), second);
    let address = server.address("/k.wasm?key=secret");
    let ran = fetch(
        &folder,
        &server,
        &[&address, "--write-lock", "b.lock", "--json"],
    );
    refused(
        &ran,
        2,
        "INVALID_ARGUMENT",
        "expected an address without a query",
    );
}

#[test]
fn updates_that_are_wrong_write_nothing() {
    let (folder, server, repository) = locked();
    move_to(&repository, "1.1.0");
    let before = folder.read("callbox.lock");
    let rules = json!({"signatures": {"hf:org/*": {"signed_by":
        callbox_package::SecretKey::from_bytes(&[7; 32]).unwrap().public().to_string()}}});
    folder.write("trust.json", rules.to_string());
    let trust = ["--yes", "--trust", "trust.json", "--json"];
    check_refused(
        &update(&folder, &server, &trust),
        "PERMISSION_DENIED",
        "found no signature",
    );
    // The kernel is known, and its file is another one.
    folder.write("k/n.wasm", "mine");
    check_refused(
        &update(&folder, &server, &["--yes", "--json"]),
        "FAILED_PRECONDITION",
        "k/n.wasm: expected the file that callbox.lock has, found another one",
    );
    assert_eq!(folder.read("callbox.lock"), before);
    for (from, message) in [
        (
            "../evil.wasm",
            "../evil.wasm: expected the reference of a host",
        ),
        ("ftp://host/k.wasm", "expected an https address"),
        ("hf:org/negate@1", "expected the reference of a host"),
    ] {
        let lock = json!({"format": 1, "files": [
            {"file": "k.wasm", "digest": "0".repeat(64), "size": 1, "from": from}]});
        folder.write("callbox.lock", lock.to_string());
        check_refused(
            &update(&folder, &server, &["--json"]),
            "INVALID_ARGUMENT",
            message,
        );
    }
    let lock = json!({"format": 1, "files": [{"file": "../k.wasm", "digest": "0".repeat(64),
        "size": 1, "from": "hf:org/negate@v1"}]});
    folder.write("callbox.lock", lock.to_string());
    let message = "../k.wasm: expected the path of a file below the folder of the lock";
    check_refused(
        &update(&folder, &server, &["--json"]),
        "INVALID_ARGUMENT",
        message,
    );
    let other = packages::folder();
    other.write("k/callbox-package.json", HEADER);
    other.run(&["lock", "k/negate.wasm"]).done();
    check_refused(
        &update(&other, &server, &["--json"]),
        "FAILED_PRECONDITION",
        "the lock has no references",
    );
    let ran = update(&other, &server, &["--lock", "none.lock", "--json"]);
    assert_eq!(
        (ran.code, &ran.object()["status"]["code"]),
        (2, &json!("NOT_FOUND"))
    );
}

/// A lock that is a link: the file behind it gets the new contents, and the link stays.
#[cfg(unix)]
#[test]
fn a_lock_behind_a_link_is_updated_in_place() {
    let (folder, server, repository) = locked();
    folder.write("shared/.keep", "");
    std::fs::rename(folder.path("callbox.lock"), folder.path("shared/real.lock")).unwrap();
    std::os::unix::fs::symlink("shared/real.lock", folder.path("callbox.lock")).unwrap();
    let before = folder.read("callbox.lock");
    move_to(&repository, "1.1.0");
    update(&folder, &server, &["--yes"]).done();
    assert_ne!(folder.read("callbox.lock"), before);
    let fetched = [REF, "-o", "n2.wasm", "--write-lock", "callbox.lock"];
    fetch(&folder, &server, &fetched).done();
    folder.run(&["lock", "n2.wasm"]).done();
    assert!(folder.path("callbox.lock").is_symlink());
    assert_eq!(folder.read("callbox.lock"), folder.read("shared/real.lock"));
    assert_eq!(folder.list("shared"), [".keep", "real.lock"]);
    // A link that leads nowhere stays as well.
    std::fs::remove_file(folder.path("shared/real.lock")).unwrap();
    let message = "expected to write callbox.lock: ";
    refuse(&folder, &["lock", "n2.wasm"], 2, "NOT_FOUND", message);
    assert!(folder.path("callbox.lock").is_symlink());
}

/// A folder that is a link below the lock's folder: the lock has the real path, and the file is
/// updated behind the link. A link that the lock has in a path leads the update nowhere.
#[cfg(unix)]
#[test]
fn files_behind_links_to_folders_are_updated_in_place() {
    use std::os::unix::fs::symlink;

    let (folder, server, repository) = locked();
    folder.write("store/.keep", "").write("out/.keep", "");
    symlink("store", folder.path("link")).unwrap();
    let fetched = [REF, "-o", "link/m.wasm", "--write-lock", "callbox.lock"];
    fetch(&folder, &server, &fetched).done();
    assert_eq!(lock_of(&folder)["files"][2]["file"], "store/m.wasm");
    move_to(&repository, "1.1.0");
    symlink(".", folder.path("here")).unwrap();
    let update_here = ["--yes", "--lock", "here/callbox.lock"];
    update(&folder, &server, &update_here).done();
    assert!(folder.path("link").is_symlink() && folder.path("here").is_symlink());
    assert_eq!(folder.list("store"), [".keep", "m.wasm"]);
    assert_eq!(folder.read("store/m.wasm"), folder.read("k/n.wasm"));
    let test = ["test", "link/m.wasm", "--lock", "here/callbox.lock"];
    folder.run(&test).done();
    // A name that is a link to a folder is not replaced by a file.
    let onto = [REF, "-o", "link", "--replace", "--json"];
    let ran = fetch(&folder, &server, &onto);
    refused(
        &ran,
        2,
        "INVALID_ARGUMENT",
        "link: expected the name of a file to write, found a folder",
    );
    assert!(folder.path("link").is_symlink());

    repository.lock().unwrap().branches.insert("v1", COMMIT);
    let before = (folder.read("callbox.lock"), folder.read("k/n.wasm"));
    std::fs::rename(folder.path("store"), folder.path("kept")).unwrap();
    symlink("out", folder.path("store")).unwrap();
    let message = "callbox.lock: store/m.wasm: expected a folder below that of the lock, found a \
                   link to ";
    check_refused(
        &update(&folder, &server, &["--yes", "--json"]),
        "FAILED_PRECONDITION",
        message,
    );
    assert_eq!(folder.list("out"), [".keep"]);
    assert_eq!(
        (folder.read("callbox.lock"), folder.read("k/n.wasm")),
        before
    );
}

/// A lock with two files of one reference, the older version of which is in `old`.
fn two_files() -> (Folder, Server, Arc<Mutex<Repository>>) {
    let (folder, server, repository) = locked();
    let second = [REF, "-o", "m.wasm", "--write-lock", "callbox.lock"];
    fetch(&folder, &server, &second).done();
    (folder, server, repository)
}

/// Each file passes its cases under the lock.
#[track_caller]
fn check_loads(folder: &Folder) {
    for file in ["k/n.wasm", "m.wasm"] {
        let ran = folder.run(&["test", file, "--lock", "callbox.lock"]);
        assert_eq!(ran.code, 0, "{ran:?}");
    }
}

#[test]
fn an_interrupted_update_is_told_and_finished() {
    let (folder, server, repository) = two_files();
    let (old, lock) = (folder.read("m.wasm"), folder.read("callbox.lock"));
    move_to(&repository, "1.1.0");
    update(&folder, &server, &["--yes"]).done();
    let (new, new_lock) = (folder.read("m.wasm"), lock_of(&folder));
    assert_ne!(old, new);
    assert_eq!(folder.list("k"), [".keep", "n.wasm"]);
    // As if the update was ended when it had moved one of its files.
    folder.write("callbox.lock", &lock);
    folder.write("m.wasm", &old);
    folder.write("m.wasm.callbox-next", &new);
    let next = json!({"format": 1, "replaces": digest(&lock), "lock": new_lock,
        "files": {"k/n.wasm": digest(&new), "m.wasm": digest(&new)}});
    folder.write("callbox.lock.next", next.to_string());
    check_loads(&folder);
    let ran = folder.run(&["test", "m.wasm", "--lock", "callbox.lock"]);
    let message =
        "callbox.lock: an update was interrupted, so that its files count in both versions";
    assert!(ran.stderr.contains(message), "{ran:?}");
    let ran = update(&folder, &server, &[]);
    let message = "callbox.lock: an earlier update, which was interrupted, is finished";
    assert!(ran.code == 0 && ran.stderr.contains(message), "{ran:?}");
    assert!(
        ran.stdout.ends_with("callbox.lock: nothing moved\n"),
        "{ran:?}"
    );
    assert_eq!((lock_of(&folder), folder.read("m.wasm")), (new_lock, new));
    assert!(!folder.path("callbox.lock.next").exists());
    assert!(!folder.path("m.wasm.callbox-next").exists());
}

/// Whenever an update is ended, its files load.
#[test]
fn a_killed_update_leaves_files_that_load() {
    for round in 0..8_u64 {
        let (folder, server, repository) = two_files();
        move_to(&repository, "1.1.0");
        let mut command = folder.command(&["update", "--yes"]);
        set_environment(&mut command, &folder, &server.address(""));
        let mut child = command.stdout(Stdio::null()).spawn().unwrap();
        // It is ended near its end, when it has asked for the module.
        let has_asked = || {
            let requests = server.requests();
            let asked = requests
                .iter()
                .filter(|request| request.path.contains("negate.wasm"));
            asked.count() > 1
        };
        let until = Instant::now() + Duration::from_secs(60);
        while !has_asked() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(round * 3));
        let _ = child.kill();
        child.wait().unwrap();
        check_loads(&folder);
        // It says so if it finishes the first one.
        let ran = update(&folder, &server, &["--yes"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        check_loads(&folder);
        assert_eq!(lock_of(&folder)["files"][0]["commit"], OTHER);
        assert!(!folder.path("callbox.lock.next").exists());
    }
}
