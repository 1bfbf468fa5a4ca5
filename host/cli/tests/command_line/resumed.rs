//! Interrupted downloads of `callbox fetch`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::fetch::{COMMIT, REF, digest, fetch, hub, refused, repository};
use crate::server::{Answer, Request, Server};
use crate::support::Folder;

/// A module with a custom section of these bytes.
fn module(byte: u8) -> Vec<u8> {
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    // The section's size is in five bytes of LEB128.
    let size = 200_000 + 2;
    let leb = [0, 7, 14, 21].map(|shift| (size >> shift & 0x7f) as u8 | 0x80);
    module.push(0);
    module.extend(leb);
    module.push((size >> 28) as u8);
    module.extend([1, b'x']);
    module.resize(module.len() + 200_000, byte);
    module
}

/// The ranges that the requests had.
fn ranges(server: &Server) -> Vec<Option<String>> {
    let requests = server.requests();
    let ranges = requests.iter().map(|request| request.header("range"));
    ranges.map(|range| range.map(str::to_owned)).collect()
}

fn some(ranges: &[Option<&str>]) -> Vec<Option<String>> {
    ranges
        .iter()
        .map(|range| range.map(str::to_owned))
        .collect()
}

/// A server that sends so many bytes of each of the first answers.
fn interrupted(
    sent: &'static [usize],
    answer: impl Fn(&Request, usize) -> Answer + Send + Sync + 'static,
) -> Server {
    let tries = AtomicUsize::new(0);
    Server::new(move |request| {
        let index = tries.fetch_add(1, Ordering::Relaxed);
        let mut answer = answer(request, index);
        if let Some(sent) = sent.get(index) {
            answer.sent = *sent;
        }
        answer
    })
}

#[test]
fn a_download_goes_on_where_it_was_interrupted() {
    let server = interrupted(&[1000, 70_000], |request, _| {
        Answer::file(request, &module(1), "\"one\"")
    });
    let folder = Folder::new();
    fetch(&folder, &server, &[&server.address("/k.wasm")]).done();
    assert_eq!(folder.read("k.wasm"), module(1));
    let asked = ranges(&server);
    assert_eq!(
        asked,
        some(&[None, Some("bytes=1000-"), Some("bytes=71000-")])
    );
    assert_eq!(server.requests()[2].header("if-range"), Some("\"one\""));
    assert_eq!(folder.list("home/callbox/parts"), Vec::<String>::new());
}

/// The first command fails, and the next one goes on.
#[test]
fn the_next_command_goes_on() {
    for pin in [String::new(), format!("#sha256:{}", digest(&module(1)))] {
        let server = interrupted(&[1000, 1000, 1000], |request, _| {
            Answer::file(request, &module(1), "\"one\"")
        });
        let folder = Folder::new();
        let reference = format!("{}{pin}", server.address("/k.wasm"));
        let ran = fetch(&folder, &server, &[&reference, "--json"]);
        let message = "the download failed 3 times: ";
        refused(&ran, 1, "UNAVAILABLE", message);
        assert_eq!(folder.list("home/callbox/parts").len(), 1);
        assert!(!folder.path("k.wasm").exists());
        fetch(&folder, &server, &[&reference]).done();
        assert_eq!(folder.read("k.wasm"), module(1));
        assert_eq!(ranges(&server)[3].as_deref(), Some("bytes=3000-"));
        assert_eq!(folder.list("home/callbox/parts"), Vec::<String>::new());
    }
}

/// The file changes in between, the server has no ranges, or it names no version of the file.
#[test]
fn a_download_that_cannot_go_on_begins_anew() {
    type Answers = fn(&Request, usize) -> Answer;
    let servers: [(Answers, &[Option<&str>]); 5] = [
        (
            |request, index| match index {
                0 => Answer::file(request, &module(2), "\"old\""),
                _ => Answer::file(request, &module(1), "\"new\""),
            },
            &[None, Some("bytes=1000-")],
        ),
        (
            |_, _| Answer::new(200, &module(1)).with("ETag", "\"one\""),
            &[None, Some("bytes=1000-")],
        ),
        (
            |request, _| Answer::file(request, &module(1), "W/\"weak\""),
            &[None, None],
        ),
        // A server that ignores the condition sends a part of the new file.
        (
            |request, index| match index {
                0 => Answer::file(request, &module(2), "\"old\""),
                1 => Answer::file(request, &module(1), "\"old\"").with("ETag", "\"new\""),
                _ => Answer::file(request, &module(1), "\"new\""),
            },
            &[None, Some("bytes=1000-")],
        ),
        // Another part than the one that was asked for.
        (
            |request, index| match index {
                1 => Answer::new(206, &module(1)[7..])
                    .with("Content-Range", "bytes 7-9/10")
                    .with("ETag", "\"one\""),
                _ => Answer::file(request, &module(1), "\"one\""),
            },
            &[None, Some("bytes=1000-"), None],
        ),
    ];
    for (index, (answers, asked)) in servers.into_iter().enumerate() {
        let server = interrupted(&[1000], answers);
        let folder = Folder::new();
        fetch(&folder, &server, &[&server.address("/k.wasm")]).done();
        if index != 3 {
            assert_eq!(folder.read("k.wasm"), module(1), "{index}");
        }
        assert_eq!(ranges(&server), some(asked), "{index}");
    }
}

/// With a digest, parts of two versions are found out, whatever the server says of them.
#[test]
fn parts_of_two_versions_are_no_file() {
    let server = interrupted(&[1000], |request, index| match index {
        0 => Answer::file(request, &module(2), "\"one\""),
        _ => Answer::file(request, &module(1), "\"one\""),
    });
    let folder = Folder::new();
    let reference = format!(
        "{}#sha256:{}",
        server.address("/k.wasm"),
        digest(&module(1))
    );
    fetch(&folder, &server, &[&reference]).done();
    assert_eq!(folder.read("k.wasm"), module(1));
    assert_eq!(ranges(&server), some(&[None, Some("bytes=1000-"), None]));
    // A kept part that was altered.
    let folder = Folder::new();
    let part = format!("home/callbox/parts/{}", digest(&module(1)));
    std::fs::create_dir_all(folder.path("home/callbox/parts")).unwrap();
    for name in ["home", "home/callbox", "home/callbox/parts"] {
        use std::os::unix::fs::PermissionsExt as _;
        let private = std::fs::Permissions::from_mode(0o700);
        std::fs::set_permissions(folder.path(name), private).unwrap();
    }
    for contents in [
        "",
        "callbox-part-1 x \nevil",
        "evil",
        "callbox-part-1 x \"one\"\n",
    ] {
        folder.write(&part, contents);
        fetch(&folder, &server, &[&reference, "--replace"]).done();
        assert_eq!(folder.read("k.wasm"), module(1), "{contents:?}");
        std::fs::remove_dir_all(folder.path("home/callbox/sha256")).unwrap();
    }
}

#[test]
fn a_kernel_of_the_hub_goes_on_at_its_storage() {
    let repository = repository();
    let package = repository.lock().unwrap().commits[COMMIT]["negate.wasm"].clone();
    let body = package.clone();
    let storage = Arc::new(interrupted(&[100], move |request, _| {
        // Storage names no version.
        let mut answer = Answer::file(request, &body, "");
        answer.headers.retain(|(name, _)| *name != "ETag");
        answer
    }));
    let signed = AtomicUsize::new(0);
    let at = Arc::clone(&storage);
    let server = hub(&repository, move |_, file, answer| match file {
        "negate.wasm" => {
            let count = signed.fetch_add(1, Ordering::Relaxed);
            Answer::redirect(&at.address(&format!("/x?signature={count}")))
                .with("X-Repo-Commit", COMMIT)
        }
        _ => answer,
    });
    let folder = Folder::new();
    fetch(&folder, &server, &[REF]).done();
    assert_eq!(folder.read("negate.wasm"), package);
    assert_eq!(ranges(&storage), some(&[None, Some("bytes=100-")]));
    assert_eq!(storage.requests()[1].header("authorization"), None);
}

/// A server that sends more than there may be is not asked for the rest.
#[test]
fn a_part_that_is_too_large_is_not_kept() {
    let folder = Folder::new();
    let server = Server::new(|_| Answer::new(200, b"").with("Content-Length", "9999999999"));
    let ran = fetch(&folder, &server, &[&server.address("/k.wasm"), "--json"]);
    refused(&ran, 1, "RESOURCE_EXHAUSTED", "found 9999999999");
    assert_eq!(folder.list("home/callbox/parts"), Vec::<String>::new());
}
