//! `callbox fetch` from a hub that contradicts itself, or leads elsewhere.

use crate::fetch::{COMMIT, OTHER, REF, fetch, hub, refused, repository, variant};
use crate::server::{Answer, Request, Server};
use crate::support::Folder;

#[test]
fn other_hosts_get_no_token_and_send_only_files_of_known_digests() {
    let repository = repository();
    let package = repository.lock().unwrap().commits[COMMIT]["negate.wasm"].clone();
    let metadata = repository.lock().unwrap().commits[COMMIT]["metadata.json"].clone();
    let storage = Server::new(move |request| match request.path.as_str() {
        "/metadata.json" => Answer::new(200, &metadata),
        _ => Answer::new(200, &package),
    });
    let to = storage.address("/x?signature=hidden");
    let server = hub(&repository, move |_, file, answer| match file {
        "negate.wasm" => Answer::redirect(&to).with("X-Repo-Commit", COMMIT),
        _ => answer,
    });
    let folder = Folder::new();
    fetch(&folder, &server, &[REF]).done();
    let asked = storage.requests();
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0].header("authorization"), None);
    for (location, message) in [
        (
            storage.address("/metadata.json?signature=hidden"),
            "redirects to another host, http://",
        ),
        (
            "/kernels/evil/negate/metadata.json".to_owned(),
            "which is of another repository",
        ),
    ] {
        let server = hub(&repository, move |request, file, answer| match file {
            "metadata.json" if request.method == "GET" => {
                Answer::redirect(&location).with("X-Repo-Commit", COMMIT)
            }
            _ => answer,
        });
        let ran = fetch(&Folder::new(), &server, &[REF, "--json"]);
        refused(&ran, 1, "PERMISSION_DENIED", message);
        assert!(!ran.stdout.contains("hidden"), "{ran:?}");
    }
    // A redirect within the repository is followed.
    let server = hub(&repository, |request, file, answer| {
        if file == "metadata.json" && request.method == "GET" && !request.path.contains("?") {
            return Answer::redirect(&format!("{}?now", request.path))
                .with("X-Repo-Commit", COMMIT);
        }
        answer
    });
    let ran = fetch(&Folder::new(), &server, &[REF, "--json"]);
    refused(&ran, 1, "NOT_FOUND", "there is no such file");
    assert!(
        server
            .requests()
            .iter()
            .any(|request| request.path.ends_with("?now"))
    );
}

/// The bytes as gzip, in one block that is not compressed (RFC 1951 and 1952).
fn gzip(bytes: &[u8]) -> Vec<u8> {
    let length = u16::try_from(bytes.len()).unwrap();
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    [
        &b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x01"[..],
        &length.to_le_bytes(),
        &(!length).to_le_bytes(),
        bytes,
        &(!crc).to_le_bytes(),
        &u32::from(length).to_le_bytes(),
    ]
    .concat()
}

/// A hub that contradicts itself.
#[test]
fn lies_are_statuses() {
    type Lie = fn(&Request, &str, Answer) -> Answer;
    let lies: [(Lie, &str, &str); 12] = [
        // What the metadata names, compressed: a client that decompresses it takes any number of
        // bytes.
        (
            |_, file, mut answer| {
                if file == "negate.wasm" {
                    answer.body = gzip(&answer.body);
                    return answer.with("Content-Encoding", "gzip");
                }
                answer
            },
            "RESOURCE_EXHAUSTED",
            "negate.wasm: expected at most ",
        ),
        (
            |_, file, mut answer| {
                if file == "metadata.json" {
                    answer.body = gzip(&answer.body);
                    return answer.with("Content-Encoding", "gzip");
                }
                answer
            },
            "INVALID_ARGUMENT",
            "org/negate: metadata.json: ",
        ),
        (
            |_, file, answer| {
                if file == "negate.wasm" {
                    return answer.with("X-Large", &"x".repeat(1 << 20));
                }
                answer
            },
            "UNAVAILABLE",
            "negate.wasm: ",
        ),
        (
            |_, file, mut answer| {
                if file == "negate.wasm" {
                    answer.body[20] ^= 1;
                }
                answer
            },
            "DATA_LOSS",
            "negate.wasm: expected ",
        ),
        (
            |_, file, mut answer| {
                if file == "negate.wasm" {
                    answer.body.push(0);
                }
                answer
            },
            "RESOURCE_EXHAUSTED",
            "negate.wasm: expected at most ",
        ),
        (
            |_, file, mut answer| {
                if file == "negate.wasm" {
                    answer.body.pop();
                }
                answer
            },
            "DATA_LOSS",
            "negate.wasm: expected ",
        ),
        (
            |request, _, mut answer| {
                if request.method == "GET" {
                    answer.headers = vec![("X-Repo-Commit", OTHER.to_owned())];
                }
                answer
            },
            "DATA_LOSS",
            "expected the commit 0123",
        ),
        (
            |_, _, mut answer| {
                answer.headers.clear();
                answer
            },
            "DATA_LOSS",
            "expected a commit of 40 hexadecimal digits, found \"\"",
        ),
        (
            |_, file, mut answer| {
                if file == "metadata.json" {
                    answer.body = vec![b'['; 300 << 10];
                }
                answer
            },
            "RESOURCE_EXHAUSTED",
            "metadata.json: expected at most 262144 bytes, found 307200",
        ),
        (
            |_, file, mut answer| {
                if file == "metadata.json" {
                    answer.body = vec![b'['; 200 << 10];
                }
                answer
            },
            "INVALID_ARGUMENT",
            "org/negate: metadata.json: ",
        ),
        (
            |_, _, _| Answer::new(401, b""),
            "PERMISSION_DENIED",
            "it may need a token",
        ),
        (
            |_, _, _| Answer::new(503, b""),
            "UNAVAILABLE",
            "cannot answer now (status 503)",
        ),
    ];
    let repository = repository();
    for (lie, code, message) in lies {
        let server = hub(&repository, lie);
        let folder = Folder::new();
        let ran = fetch(&folder, &server, &[REF, "--json"]);
        refused(&ran, 1, code, message);
        assert_eq!(folder.list("."), ["home"]);
    }
    let server = hub(&repository, |_, _, answer| answer);
    let ran = fetch(&Folder::new(), &server, &["hf:org/other@1", "--json"]);
    refused(&ran, 1, "NOT_FOUND", "there is no such file");
}

/// Metadata whose digests are right and whose claims are not.
#[test]
fn metadata_that_is_wrong_is_refused() {
    let repository = repository();
    let right = repository.lock().unwrap().commits[COMMIT].clone();
    let right = String::from_utf8(right["metadata.json"].clone()).unwrap();
    for (from, to, code, message) in [
        (
            "\"format\": 1",
            "\"format\": 2",
            "INVALID_ARGUMENT",
            "a newer callbox wrote",
        ),
        (
            "\"format\"",
            "\"run\": \"x\", \"format\"",
            "INVALID_ARGUMENT",
            "unknown field `run`",
        ),
        (
            "\"name\": \"negate\"",
            "\"name\": \"../k\"",
            "INVALID_ARGUMENT",
            "found \"../k\"",
        ),
        (
            "\"module\": \"negate",
            "\"module\": \"/k",
            "INVALID_ARGUMENT",
            "found \"/k.wasm\"",
        ),
        (
            "\"path\": \"negate",
            "\"path\": \"k",
            "INVALID_ARGUMENT",
            "once in `files`",
        ),
        (
            "\"size\": ",
            "\"size\": 9999999",
            "RESOURCE_EXHAUSTED",
            "expected a file of at most",
        ),
        (
            "\"1.0.0\"",
            "\"2.0.0\"",
            "FAILED_PRECONDITION",
            "on the branch v1, found \"2.0.0\"",
        ),
        (
            "\"1.0.0\"",
            "\"1.9.0\"",
            "INVALID_ARGUMENT",
            "expected the package \"negate\" of",
        ),
        (
            "\"sha256\": \"",
            "\"sha256\": \"../",
            "INVALID_ARGUMENT",
            "expected a SHA-256 of 64",
        ),
    ] {
        assert!(right.contains(from), "{from}");
        let wrong = right.replacen(from, to, 1).into_bytes();
        let mut hub_of = repository.lock().unwrap();
        let files = hub_of.commits.get_mut(COMMIT).unwrap();
        files.insert("metadata.json".to_owned(), wrong);
        drop(hub_of);
        let server = hub(&repository, |_, _, answer| answer);
        let folder = Folder::new();
        refused(&fetch(&folder, &server, &[REF, "--json"]), 1, code, message);
        assert_eq!(folder.list("."), ["home"]);
    }
}

/// The branch moves after the hub is asked for its commit: all files are of that commit.
#[test]
fn a_branch_that_moves_between_look_and_load_gives_one_commit() {
    let repository = repository();
    let newer = variant("1.1.0");
    let moving = std::sync::Arc::clone(&repository);
    let server = hub(&repository, move |_, _, answer| {
        let mut repository = moving.lock().unwrap();
        repository.branches.insert("v1", OTHER);
        repository.commits.insert(OTHER, newer.clone());
        answer
    });
    let folder = Folder::new();
    let ran = fetch(&folder, &server, &[REF, "--json"]);
    let fetched = &ran.object()["fetched"];
    assert_eq!(fetched["commit"], COMMIT, "{ran:?}");
    let files = repository.lock().unwrap().commits[COMMIT].clone();
    assert_eq!(folder.read("negate.wasm"), files["negate.wasm"]);
}
