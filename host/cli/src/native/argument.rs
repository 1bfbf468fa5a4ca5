//! The arguments that name native code.

use std::path::{Path, PathBuf};

use callbox::call::ApiVersion;
use callbox::cuda::{Buffers, LibraryTarget};

use crate::inspect::is_library;

/// `DIR`, `FILE.json` or `FILE.so:NAME[@WORD...][,...]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NativeArgument {
    /// A manifest, or its folder.
    Manifest(PathBuf),
    /// Functions of a shared library.
    Library {
        file: PathBuf,
        targets: Vec<LibraryTarget>,
    },
}

/// Reads `DIR`, `FILE.json` or `FILE.so:NAME[@WORD...][,...]`.
pub(crate) fn parse(text: &str) -> Result<NativeArgument, String> {
    if let Some((file, names)) = text.rsplit_once(':')
        && is_library(Path::new(file))
    {
        let targets = names.split(',').map(target);
        return Ok(NativeArgument::Library {
            file: file.into(),
            targets: targets.collect::<Result<_, _>>()?,
        });
    }
    if text.is_empty() || is_library(Path::new(text)) {
        return Err(format!(
            "expected a manifest callbox.json, its folder, or FILE.so:NAME[@CONVENTION][,...] with the names of functions, found {text:?}"
        ));
    }
    Ok(NativeArgument::Manifest(text.into()))
}

/// Reads `NAME[@original|@status][@leaves|@preorder]`. A library does not declare the types of its
/// functions.
pub(crate) fn target(text: &str) -> Result<LibraryTarget, String> {
    let wrong = || {
        format!("expected NAME[@original|@status][@leaves|@preorder] of a function, found {text:?}")
    };
    let (mut api_version, mut buffers) = (None, None);
    let mut words = text.split('@');
    let name = words.next().filter(|name| !name.is_empty());
    for word in words {
        let is_again = match word {
            "original" => api_version.replace(ApiVersion::Original).is_some(),
            "status" => api_version.replace(ApiVersion::StatusReturning).is_some(),
            "leaves" => buffers.replace(Buffers::Leaves).is_some(),
            "preorder" => buffers.replace(Buffers::Preorder).is_some(),
            _ => true,
        };
        if is_again {
            return Err(wrong());
        }
    }
    Ok(LibraryTarget {
        name: name.ok_or_else(wrong)?.to_owned(),
        api_version: api_version.unwrap_or(ApiVersion::StatusReturning),
        buffers: buffers.unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn manifests_are_what_is_no_library() {
        for path in ["callbox.json", "kernels", "k.so/callbox.json", "a:b", "."] {
            let expected = NativeArgument::Manifest(path.into());
            assert_eq!(parse(path), Ok(expected));
        }
    }

    #[test]
    fn functions_of_libraries_have_conventions() {
        let target = |name: &str, api_version, buffers| LibraryTarget {
            name: name.to_owned(),
            api_version,
            buffers,
        };
        let expected = NativeArgument::Library {
            file: "dir:1/libk.so.2".into(),
            targets: vec![
                target("f", ApiVersion::StatusReturning, Buffers::Leaves),
                target("g", ApiVersion::Original, Buffers::Leaves),
                target("h", ApiVersion::Original, Buffers::Preorder),
                target("i", ApiVersion::StatusReturning, Buffers::Preorder),
            ],
        };
        let text = "dir:1/libk.so.2:f,g@original,h@preorder@original,i@status@preorder";
        assert_eq!(parse(text), Ok(expected));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for wrong in [
            "",
            "k.so",
            "k.dll",
            "k.so:",
            "k.so:f,",
            "k.so:@status",
            "k.so:f@",
            "k.so:f@typed",
            "k.so:f@status@original",
            "k.so:f@leaves@leaves",
        ] {
            let message = parse(wrong).unwrap_err();
            assert!(message.starts_with("expected "), "{wrong:?}: {message}");
        }
        assert_eq!(
            parse("k.so:f@typed").unwrap_err(),
            "expected NAME[@original|@status][@leaves|@preorder] of a function, found \"f@typed\""
        );
    }
}
