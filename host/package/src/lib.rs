//! Packages: one `.wasm` file that carries everything that a user of its targets needs.
//!
//! A package is a WebAssembly module, unchanged, followed by custom sections: a [`Header`] with the
//! name, version and licence, and files such as the manifest of a native twin, test cases and
//! documentation. Tools and hosts that know nothing of packages run it as a plain module.
//!
//! [`pack`] writes a package and [`read`] reads one. Neither runs or validates the module.
//!
//! # Example
//!
//! ```
//! use std::collections::BTreeMap;
//!
//! use callbox_package::{Header, Limits, pack, read};
//!
//! # fn main() -> callbox_core::Result<()> {
//! let module = b"\0asm\x01\0\0\0"; // the bytes of a .wasm file
//! let header = Header::new("softmax", "1.0.0", "MIT");
//! let files = BTreeMap::from([("README.md".to_owned(), b"Rows that sum to 1.".to_vec())]);
//! let packed = pack(module, &header, &files, &Limits::default())?;
//!
//! let package = read(&packed, &Limits::default())?;
//! assert_eq!(package.header().version, "1.0.0");
//! assert_eq!(package.file("README.md"), Some(&b"Rows that sum to 1."[..]));
//! assert_eq!(package.module(), module);
//! // `sha256sum` prints the same digest of the file.
//! assert_eq!(package.sha256().len(), 64);
//! # Ok(())
//! # }
//! ```
//!
//! # Format
//!
//! | bytes | contents |
//! | --- | --- |
//! | the module | every section of the author's module, as it was |
//! | custom section `callbox.package` | the header: compact JSON with its keys in a fixed order |
//! | custom sections `callbox.file/PATH` | one file each, in the order of the paths' bytes |
//!
//! The same module, header and files always give the same bytes: no times, modes, owners or
//! absolute paths are stored. [`read`] refuses every other encoding of the same content, so that
//! the SHA-256 of the file names the content, and no two packages of the same content differ.
//!
//! # Hostile packages
//!
//! A package is untrusted input. [`Limits`] bound its size and the number and names of its files.
//! A path has letters, digits and `._-+` in names separated by `/`, so that it is safe to create on
//! every system, and two paths differ in more than case. A file that is itself a WebAssembly module
//! is refused: a package holds one module. Every failure is a status that is blamed on the guest.
//!
//! # Signatures
//!
//! [`sign`] puts a signature into a module or package, [`Signatures`] reads and checks those that
//! are there, and [`Trust`] has the rules of a user about which modules must be signed by whom.
//! [`oms`] has detached signatures of files and folders.
//!
//! # Capsules
//!
//! A [`Capsule`] is a call in one file, with everything that repeating it takes and how it ended.
//!
//! # Features
//!
//! None.
//!
//! # Where to go next
//!
//! The repository's `docs/shipping.md` describes the folder that `callbox pack` reads.

mod capsule;
mod header;
mod keys;
pub mod oms;
mod path;
mod sections;
mod signature;
mod targets;
pub mod tensors;
mod trust;

pub use capsule::{Capsule, CapsuleFile, StatusRecord, check_grants};
pub use header::{FORMAT, Header};
pub use keys::{PublicKey, SecretKey};
pub use sections::{Limits, Package, find, pack, read};
pub use signature::{Signatures, Signer, sign};
pub use targets::with_targets;
pub use trust::{Trust, names_of_file};

/// The file with the manifest of a package's native twin.
pub const MANIFEST: &str = "callbox.json";

/// The beginning of the paths of a package's cases, which end with `.json`.
pub const CASES: &str = "cases/";
