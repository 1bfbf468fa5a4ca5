//! A folder for a test's files, and the command line run in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use callbox::NativeType;
use npyz::WriterBuilder;
use serde_json::Value;

/// A folder that is removed with the test.
pub(crate) struct Folder(tempfile::TempDir);

/// The outcome of a run of the command line.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> &Self {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        self
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// Writes a module, from its text.
    pub(crate) fn module(&self, name: &str, text: &str) -> &Self {
        self.write(name, wat::parse_str(text).unwrap())
    }

    /// Writes an array with a crate other than the command line's own writer.
    pub(crate) fn npy<T: NativeType + npyz::AutoSerialize>(
        &self,
        name: &str,
        dimensions: &[u64],
        elements: &[T],
    ) -> &Self {
        let mut bytes = Vec::new();
        let options = npyz::WriteOptions::new().default_dtype();
        let mut writer = options
            .shape(dimensions)
            .writer(&mut bytes)
            .begin_nd()
            .unwrap();
        writer.extend(elements.iter().copied()).unwrap();
        writer.finish().unwrap();
        self.write(name, bytes)
    }

    /// Reads an array: dimensions and elements.
    pub(crate) fn read_npy<T: npyz::Deserialize>(&self, name: &str) -> (Vec<u64>, Vec<T>) {
        let bytes = fs::read(self.path(name)).unwrap();
        let file = npyz::NpyFile::new(&bytes[..]).unwrap();
        (file.shape().to_vec(), file.into_vec().unwrap())
    }

    /// The sorted names in a folder, or none if it does not exist.
    pub(crate) fn list(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// The command line with this folder as the current one.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_callbox"));
        command.current_dir(self.0.path()).args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        let output = self.command(arguments).output().unwrap();
        Ran::new(&output)
    }

    /// Runs the command line with `--json`, and expects this exit code and status.
    pub(crate) fn refuse(&self, arguments: &[&str], code: i32, status: &str, message: &str) -> Ran {
        let ran = self.run(&[arguments, &["--json"]].concat());
        let object = ran.object();
        assert_eq!(ran.code, code, "{ran:?}");
        assert_eq!(object["status"]["code"], status, "{ran:?}");
        let found = object["status"]["message"].as_str().unwrap();
        assert!(found.contains(message), "expected {message:?} in {found:?}");
        assert_eq!(object["results"], Value::Array(Vec::new()));
        assert!(ran.stderr.starts_with("error: "), "{ran:?}");
        ran
    }
}

impl Ran {
    pub(crate) fn new(output: &Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout.clone()).unwrap(),
            stderr: String::from_utf8(output.stderr.clone()).unwrap(),
        }
    }

    /// Expects success and an empty standard error. Returns standard output.
    pub(crate) fn done(self) -> String {
        assert_eq!((self.code, self.stderr.as_str()), (0, ""), "{self:?}");
        self.stdout
    }

    /// The only object on standard output.
    pub(crate) fn object(&self) -> Value {
        let lines: Vec<_> = self.stdout.split_inclusive('\n').collect();
        assert_eq!(lines.len(), 1, "{self:?}");
        assert!(lines[0].ends_with('\n'), "{self:?}");
        serde_json::from_str(lines[0]).unwrap()
    }
}

/// A path as an argument.
pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
