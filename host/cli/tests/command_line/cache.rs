//! `--cache-dir`: entries are used; a damaged one is reported and the module is compiled anew.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use crate::guests::NEGATE;
use crate::support::{Folder, Ran};

fn folder() -> Folder {
    let folder = Folder::new();
    folder.module("negate.wasm", NEGATE);
    folder.npy("x.npy", &[3], &[1.0_f32, 2.0, 3.0]);
    folder
}

fn call(folder: &Folder, directory: &str) -> Ran {
    let call = ["call", "negate.wasm", "negate", "--operand", "x.npy"];
    let rest = ["--result", "f32[3]", "--cache-dir", directory];
    folder.run(&[&call[..], &rest].concat())
}

fn entry(folder: &Folder) -> PathBuf {
    let mut names = folder.list("cache");
    names.retain(|name| name.ends_with(".callbox-module"));
    assert_eq!(names.len(), 1, "{names:?}");
    folder.path("cache").join(&names[0])
}

#[test]
fn modules_are_kept_and_taken() {
    let folder = folder();
    let first = call(&folder, "cache").done();
    let before = fs::metadata(entry(&folder)).unwrap().modified().unwrap();
    assert_eq!(call(&folder, "cache").done(), first);
    // The entry was used and not written again.
    let metadata = fs::metadata(entry(&folder)).unwrap();
    assert!(metadata.modified().unwrap() > before);
}

#[test]
fn what_is_wrong_is_a_warning() {
    let folder = folder();
    let first = call(&folder, "cache").done();
    let mut bytes = fs::read(entry(&folder)).unwrap();
    bytes[100] ^= 1;
    fs::write(entry(&folder), bytes).unwrap();
    let ran = call(&folder, "cache");
    assert_eq!((ran.code, &ran.stdout), (0, &first), "{ran:?}");
    let lines: Vec<_> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 1, "{ran:?}");
    assert!(lines[0].starts_with("warning: compile cache: the entry "));
    assert!(lines[0].contains("DATA_LOSS"), "{ran:?}");
    assert_eq!(call(&folder, "cache").done(), first);

    symlink("cache", folder.path("link")).unwrap();
    let ran = call(&folder, "link");
    assert_eq!((ran.code, &ran.stdout), (0, &first), "{ran:?}");
    let expected = "warning: the compile cache is not used: ";
    assert!(ran.stderr.starts_with(expected), "{ran:?}");
    assert!(ran.stderr.contains("found a symbolic link"), "{ran:?}");
}
