//! Packages that are wrong or attack their reader: each gets its own status.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use callbox_core::values::{Blame, Status, StatusCode};
use callbox_package::{FORMAT, Header, Limits, find, pack, read};
use proptest::prelude::*;

const MODULE: &[u8] = b"\0asm\x01\0\0\0";

const HEADER: &[u8] = br#"{"format":1,"name":"k","version":"1.0.0","license":"MIT"}"#;

/// A number in as few bytes as it takes.
fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn section_of(id: u8, contents: &[u8]) -> Vec<u8> {
    [&[id][..], &leb(contents.len()), contents].concat()
}

fn section(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Vec<u8> {
    let (name, data) = (name.as_ref(), data.as_ref());
    section_of(0, &[&leb(name.len())[..], name, data].concat())
}

fn header() -> Vec<u8> {
    section("callbox.package", HEADER)
}

fn file(path: &str) -> Vec<u8> {
    section(format!("callbox.file/{path}"), "text")
}

/// A module, a header and these sections.
fn package(sections: &[Vec<u8>]) -> Vec<u8> {
    [MODULE, &header(), &sections.concat()].concat()
}

fn small() -> Limits {
    Limits {
        package_bytes: 4096,
        header_bytes: 256,
        files: 3,
        path_bytes: 40,
    }
}

fn refused(bytes: &[u8]) -> Status {
    read(bytes, &small()).unwrap_err()
}

#[track_caller]
fn check(bytes: &[u8], code: StatusCode, message: &str) {
    let status = refused(bytes);
    assert_eq!((status.code(), status.blame()), (code, Blame::Guest));
    assert!(
        status.message().contains(message),
        "expected {message:?} in {:?}",
        status.message()
    );
}

#[test]
fn paths_that_lead_elsewhere_are_refused() {
    for (path, reason) in [
        ("", "it has an empty name"),
        ("/etc/passwd", "it is absolute"),
        ("../key", "the name \"..\" begins or ends with a dot"),
        ("a/../../key", "the name \"..\" begins or ends with a dot"),
        ("./a", "the name \".\" begins or ends with a dot"),
        (".ssh/key", "the name \".ssh\" begins or ends with a dot"),
        ("a.", "the name \"a.\" begins or ends with a dot"),
        ("a//b", "it has an empty name"),
        ("a/", "it has an empty name"),
        ("a\\b", "it has the character '\\\\'"),
        ("C:/a", "it has the character ':'"),
        ("a\0b", "it has the character '\\0'"),
        ("a b", "it has the character ' '"),
        ("a\u{202e}b", "it has the character '\\u{202e}'"),
        ("\u{441}ases", "it has the character '\u{441}'"),
        (
            "docs/NUL.txt",
            "the name \"NUL.txt\" is a device on Windows",
        ),
        ("com1", "the name \"com1\" is a device on Windows"),
        (
            "a23456789/b23456789/c23456789/d23456789/e",
            "it has 41 bytes, at most 40 are allowed",
        ),
    ] {
        check(&package(&[file(path)]), StatusCode::InvalidArgument, reason);
    }
    for path in ["a", "cases/rows-2.json", "com10", "a..b", "A_b+c/D.e"] {
        assert!(read(&package(&[file(path)]), &small()).is_ok(), "{path}");
    }
}

#[test]
fn paths_that_collide_are_refused() {
    let collide = "collide where case does not count";
    for (paths, message) in [
        (["A", "a"], collide),
        (["cases/A", "cases/a"], collide),
        (["Cases/a", "cases/b"], collide),
        (["a", "a/b"], collide),
        (["A/b", "a"], collide),
        (["a", "a"], "the file \"a\" occurs twice"),
        (["b", "a"], "found \"a\" after \"b\""),
    ] {
        let bytes = package(&paths.map(file));
        check(&bytes, StatusCode::InvalidArgument, message);
    }
}

#[test]
fn sections_in_another_form_are_refused() {
    let long_size = |mut section: Vec<u8>| {
        section[1] |= 0x80;
        section.insert(2, 0);
        section
    };
    let code = section_of(1, &[0]);
    for (bytes, message) in [
        (
            package(&[header()]),
            "the section `callbox.package` occurs twice",
        ),
        (
            [MODULE, &file("a"), &header()].concat(),
            "expected the section `callbox.package` before the file \"a\"",
        ),
        (package(&[code]), "found a section at byte 83"),
        (
            package(&[section("name", "")]),
            "expected nothing after the sections of the package",
        ),
        (
            package(&[section("callbox.package.signature", "")]),
            "the section `callbox.package.signature` is unknown: a newer callbox",
        ),
        (
            package(&[long_size(file("a"))]),
            "the section `callbox.file/a` is not encoded as `callbox pack` does it",
        ),
        (
            package(&[section("callbox.file/k.wasm", MODULE)]),
            "the file \"k.wasm\" is a WebAssembly module: a package holds one module",
        ),
        (
            package(&[section(b"callbox.file/\xff", "")]),
            "malformed UTF-8",
        ),
        (MODULE.to_vec(), "it has no section `callbox.package`"),
        (b"PK\x03\x04".to_vec(), "expected a WebAssembly module"),
        (b"\0asm\x0d\0\x01\0".to_vec(), "found a component"),
    ] {
        check(&bytes, StatusCode::InvalidArgument, message);
    }
}

/// A section's size and a name's length past the end of what holds them.
#[test]
fn lengths_that_lie_are_refused() {
    let mut sections = vec![vec![0, 0xff, 0xff, 0xff, 0xff, 0x0f], vec![0, 0x80]];
    let mut past_section = file("a");
    past_section[2] = 0x7f;
    let mut past_file = file("a");
    past_file[1] += 1;
    sections.extend([past_section, past_file]);
    for section in sections {
        check(
            &package(&[section]),
            StatusCode::InvalidArgument,
            "expected a WebAssembly module: ",
        );
    }
    let whole = package(&[file("a"), file("b")]);
    for end in 0..whole.len() {
        // A package that is cut between two sections is another package.
        if let Ok(package) = read(&whole[..end], &small()) {
            assert!(package.files().len() < 2, "{end}");
        }
    }
}

#[test]
fn sizes_are_bounded() {
    let big = section("callbox.file/a", vec![b' '; 4096]);
    let long = br#"{"format":1,"name":"k","version":"1.0.0","license":""#;
    let long = [&long[..], &[b'M'; 256], b"\"}"].concat();
    let many = ["a", "b", "c", "d"].map(file);
    for (bytes, limit) in [
        (package(&[big]), "`package_bytes`"),
        (
            [MODULE, &section("callbox.package", long)].concat(),
            "`header_bytes`",
        ),
        (package(&many), "`files`"),
    ] {
        check(&bytes, StatusCode::ResourceExhausted, limit);
    }
}

#[test]
fn headers_that_are_wrong_are_refused() {
    for (json, message) in [
        ("", "the header is wrong"),
        ("[]", "the header is wrong"),
        (r#"{"format":1}"#, "missing field `name`"),
        (
            r#"{"format":1,"name":"k","version":"1.0.0","license":"MIT","scripts":{}}"#,
            "unknown field `scripts`",
        ),
        (
            r#"{"format":1,"name":"k","name":"k","version":"1.0.0","license":"MIT"}"#,
            "duplicate field `name`",
        ),
        (
            r#"{"format":2,"name":"k","version":"1.0.0","license":"MIT"}"#,
            "expected `format` 1, found 2: a newer callbox",
        ),
        (
            r#"{"format":1,"name":"../k","version":"1.0.0","license":"MIT"}"#,
            "expected a `name` of at most 64",
        ),
        (
            r#"{"format":1,"name":"k","version":"1.0","license":"MIT"}"#,
            "expected a `version` such as 1.0.0",
        ),
        (
            r#"{"format":1,"name":"k","version":"01.0.0","license":"MIT"}"#,
            "expected a `version` such as 1.0.0",
        ),
        (
            r#"{"format":1,"name":"k","version":"1.0.0","license":" "}"#,
            "expected a `license`, found none",
        ),
        (
            r#"{"format":1,"name":"k","version":"1.0.0","license":"MIT","source":"\u001b[2J"}"#,
            "`source` has the character '\\u{1b}', which cannot be shown",
        ),
        (
            r#"{"format":1,"name":"k","version":"1.0.0","license":"MIT","derivatives":{"f":"f"}}"#,
            "`derivatives` names \"f\" as its own derivative",
        ),
        (
            r#"{"format":1, "name":"k","version":"1.0.0","license":"MIT"}"#,
            "`callbox.package` is not encoded as `callbox pack` does it",
        ),
        (
            r#"{"name":"k","format":1,"version":"1.0.0","license":"MIT"}"#,
            "`callbox.package` is not encoded as `callbox pack` does it",
        ),
    ] {
        let bytes = [MODULE, &section("callbox.package", json)].concat();
        check(&bytes, StatusCode::InvalidArgument, message);
    }
}

/// The bytes are written out, so that a package has the same digest on every machine.
#[test]
fn the_same_content_has_the_same_bytes() {
    let mut header = Header::new("k", "1.0.0-rc.1", "MIT OR Apache-2.0");
    header.derivatives =
        BTreeMap::from([("g", "dg"), ("f", "df")].map(|(f, g)| (f.into(), g.into())));
    let files = ["b", "a/c", "a-b"].map(|path| (path.to_owned(), path.as_bytes().to_vec()));
    let packed = pack(MODULE, &header, &BTreeMap::from(files), &small()).unwrap();
    let json = r#"{"format":1,"name":"k","version":"1.0.0-rc.1","license":"MIT OR Apache-2.0","derivatives":{"f":"df","g":"dg"}}"#;
    let files = ["a-b", "a/c", "b"].map(|path| section(format!("callbox.file/{path}"), path));
    let expected = [MODULE, &section("callbox.package", json), &files.concat()].concat();
    assert_eq!(packed, expected);

    let package = read(&packed, &small()).unwrap();
    assert_eq!((package.module(), package.header()), (MODULE, &header));
    assert_eq!(package.header().format, FORMAT);
    let files: Vec<_> = package.files().collect();
    assert_eq!(files, [("a-b", &b"a-b"[..]), ("a/c", b"a/c"), ("b", b"b")]);
    // Computed with Python's hashlib.
    assert_eq!(
        package.sha256(),
        "0886597949c5bd9c1209f6b83a195ae906d20a5ba9736f9f24be0b475a74665b"
    );
}

#[test]
fn the_author_gets_the_same_errors() {
    let header = Header::new("k", "1.0.0", "MIT");
    let files = |path: &str| BTreeMap::from([(path.to_owned(), Vec::new())]);
    let packed = pack(MODULE, &header, &files("a"), &small()).unwrap();
    for (module, files, message) in [
        (&packed[..], files("a"), "the module is a package already"),
        (MODULE, files("../a"), "\"../a\" cannot be the path"),
        (b"text", files("a"), "expected a WebAssembly module"),
    ] {
        let status = pack(module, &header, &files, &small()).unwrap_err();
        assert_eq!(status.code(), StatusCode::InvalidArgument);
        assert_eq!(status.blame(), Blame::Caller);
        assert!(status.message().contains(message), "{status}");
    }
    let wrong = Header::new("K", "1.0.0", "MIT");
    let status = pack(MODULE, &wrong, &BTreeMap::new(), &small()).unwrap_err();
    assert!(status.message().contains("expected a `name`"), "{status}");
}

proptest! {
    /// Altered packages are read or refused, and what is read packs to the same bytes.
    #[test]
    fn altered_packages_are_read_or_refused(at in 8_usize..110, byte: u8, cut in 0_usize..110) {
        let mut bytes = package(&["a", "b"].map(file));
        let at = at.min(bytes.len() - 1);
        bytes[at] = byte;
        bytes.truncate(bytes.len() - cut.min(bytes.len()) * usize::from(cut % 4 == 0));
        if let Ok(Some(package)) = find(&bytes, &small()) {
            let files = package.files().map(|(path, data)| (path.to_owned(), data.to_vec()));
            let files = files.collect();
            let again = pack(package.module(), package.header(), &files, &small());
            prop_assert_eq!(again.unwrap(), bytes);
        }
    }
}
