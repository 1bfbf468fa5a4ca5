//! Directory trees for guests, with files inside and outside of the grants.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use callbox::policy::{Access, Directory, Grants};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

/// The contents of the files outside of all grants.
pub(crate) const SECRET: &str = "secret";

/// A folder with `in`, which is granted, `two`, which may be, and `out`, which is not.
pub(crate) struct Tree(TempDir);

impl Tree {
    pub(crate) fn new() -> Self {
        let tree = Self(TempDir::new().unwrap());
        for folder in ["in/dir/deep", "in/empty", "two", "out/dir"] {
            fs::create_dir_all(tree.path().join(folder)).unwrap();
        }
        for (file, text) in [
            ("in/file.txt", "inside"),
            ("in/dir/deep/file.txt", "deep"),
            ("two/file.txt", "two"),
            ("out/secret.txt", SECRET),
            ("out/dir/secret.txt", SECRET),
        ] {
            fs::write(tree.path().join(file), text).unwrap();
        }
        let out = tree.path().join("out");
        let absolute = [out.join("secret.txt"), out];
        for (link, target) in [
            ("in/to_file", Path::new("file.txt")),
            ("in/to_dir", Path::new("dir")),
            ("in/to_nothing", Path::new("nothing")),
            ("in/out_file", Path::new("../out/secret.txt")),
            ("in/out_dir", Path::new("../out")),
            ("in/out_slash", Path::new("../out/")),
            ("in/out_new", Path::new("../out/new.txt")),
            ("in/out_by_dir", Path::new("dir/../../out/secret.txt")),
            ("in/absolute_file", &absolute[0]),
            ("in/absolute_dir", &absolute[1]),
            ("in/absolute_root", Path::new("/")),
            ("in/process", Path::new("/proc/self")),
            ("in/chain_1", Path::new("chain_2")),
            ("in/chain_2", Path::new("dir/chain_3")),
            ("in/dir/chain_3", Path::new("../../out/secret.txt")),
            ("in/dir/up", Path::new("..")),
            ("in/dir/up_and_out", Path::new("../../out")),
            ("in/loop_1", Path::new("loop_2")),
            ("in/loop_2", Path::new("loop_1")),
            ("in/itself", Path::new("itself")),
        ] {
            symlink(target, tree.path().join(link)).unwrap();
        }
        mknodat(
            CWD,
            tree.path().join("in/fifo"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        symlink("fifo", tree.path().join("in/to_fifo")).unwrap();
        drop(UnixListener::bind(tree.path().join("in/socket")).unwrap());
        tree
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// Makes a grant of one of its folders, by the folder's name.
    pub(crate) fn directory(&self, folder: &str, access: Access) -> Directory {
        Directory {
            path: self.path().join(folder),
            name: format!("/{folder}"),
            access,
        }
    }

    /// Makes a grant of `in`.
    pub(crate) fn grants(&self, access: Access) -> Grants {
        Grants {
            directories: vec![self.directory("in", access)],
            ..Grants::default()
        }
    }

    /// Describes a folder's contents: names, types, contents and times, except access times.
    pub(crate) fn everything_in(&self, folder: &str) -> Vec<String> {
        let mut found = Vec::new();
        describe(&self.path().join(folder), &mut found);
        found.sort();
        found
    }
}

fn describe(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let metadata = fs::symlink_metadata(&path).unwrap();
        let kind = metadata.file_type();
        let holds = if kind.is_file() {
            fs::read(&path).unwrap()
        } else if kind.is_symlink() {
            fs::read_link(&path)
                .unwrap()
                .into_os_string()
                .into_encoded_bytes()
        } else {
            Vec::new()
        };
        found.push(format!(
            "{} {kind:?} links {} modified {}.{:09} holds {}",
            path.display(),
            metadata.nlink(),
            metadata.mtime(),
            metadata.mtime_nsec(),
            holds.escape_ascii()
        ));
        if kind.is_dir() {
            describe(&path, found);
        }
    }
}
