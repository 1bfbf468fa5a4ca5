//! User data: named bytes that targets can read.

use std::path::PathBuf;
use std::sync::Arc;

use callbox::{Status, UserData};

use super::failure::{Failure, Outcome};
use super::regular_file;

/// The largest file that is read: the default limit on a guest's memory.
const MOST: usize = 1 << 30;

/// The flag for user data.
#[derive(Debug, clap::Args)]
pub(super) struct UserDataArguments {
    /// Let targets read the bytes of a file by this name
    #[arg(long = "user-data", value_name = "NAME=FILE", value_parser = parse)]
    files: Vec<(String, PathBuf)>,
}

impl UserDataArguments {
    /// Whether the flag is not given.
    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Reads the files. `None` without the flag.
    pub(super) fn read(&self) -> Outcome<Option<Arc<UserData>>> {
        let mut data = UserData::new();
        for (name, file) in &self.files {
            if data
                .insert(name.clone(), regular_file::read(file, MOST)?)
                .is_some()
            {
                let message = format!("expected --user-data {name} once, found it again");
                return Err(Failure::usage(Status::invalid_argument(message)));
            }
        }
        Ok((!data.is_empty()).then(|| Arc::new(data)))
    }
}

/// Reads `NAME=FILE`.
fn parse(text: &str) -> Result<(String, PathBuf), String> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok((name.to_owned(), file.into()))
        }
        _ => Err(format!("expected NAME=FILE, found {text:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_data_has_a_name_and_a_file() {
        let read = |text| parse(text).ok();
        let pair = |name: &str, file: &str| Some((name.to_owned(), file.into()));
        assert_eq!(read("seed=s.bin"), pair("seed", "s.bin"));
        assert_eq!(read("a b=c=d"), pair("a b", "c=d"));
        for wrong in ["", "seed", "=s.bin", "seed="] {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
