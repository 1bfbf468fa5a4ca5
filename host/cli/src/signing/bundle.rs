//! Bundles of `callbox sign --oms` and `callbox verify --oms`, which sign a file or a folder.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use callbox::{Blame, Status, StatusCode};
use callbox_package::oms::{
    self, Bundle, BundleSigner, Certificate, EcdsaSecretKey, Identity, LEFT_OUT, ONE_FILE,
    SignedFiles, TrustedRoot,
};
use sha2::{Digest, Sha256};

use super::{DescribedSigner, MOST_BYTES, SignArguments, Signed, VerifyArguments, check_output};
use crate::failure::{Failure, Outcome};
use crate::{lock, regular_file, write_file};

/// The largest bundle that is read.
pub(crate) const MOST_BUNDLE: usize = 16 << 20;

/// The name of the bundle in a folder, as `model-signing` has it.
const IN_FOLDER: &str = "model.sig";

/// The end of the name of the bundle beside a file.
pub(crate) const BESIDE: &str = ".sig";

/// Signs a file or a folder.
pub(super) fn write(arguments: &SignArguments) -> Outcome<Signed> {
    let path = &arguments.file;
    let key = regular_file::read(&arguments.key, MOST_BYTES)?;
    let key = EcdsaSecretKey::from_file(&key)
        .map_err(|status| status.context(arguments.key.display()))?;
    let chain = arguments.certificate.as_deref().map(certificates);
    let chain = chain.transpose()?.unwrap_or_default();
    let output = arguments.output.clone().unwrap_or_else(|| {
        if path.is_dir() {
            path.join(IN_FOLDER)
        } else {
            beside(path)
        }
    });
    check_output(&output, &arguments.key)?;
    check_output(&output, path)?;
    let files = files_at(path, &output)?;
    let name = fs::canonicalize(path).map_err(|error| regular_file::cannot(path, &error))?;
    let name = name.file_name().unwrap_or_default().to_string_lossy();
    let text = oms::sign_files(&name, &files, &key, &chain)?;
    write_file::write(&output, &[text.as_bytes()])?;
    let signer = BundleSigner::Key(key.public().clone());
    Ok(signed(&output, text.as_bytes(), &[signer]))
}

/// Checks the bundle of a file or a folder.
pub(super) fn check(arguments: &VerifyArguments, path: &Path) -> Outcome<Signed> {
    let signers = arguments.key.iter().map(|key| signer(key));
    let mut signers = signers.collect::<Outcome<Vec<_>>>()?;
    signers.extend(identity(arguments)?);
    let text = regular_file::read(path, MOST_BUNDLE)?;
    let in_bundle = |status: Status| Failure::from(status.context(path.display()));
    let bundle = Bundle::read(&text).map_err(in_bundle)?;
    for signer in &signers {
        bundle.verify(signer).map_err(in_bundle)?;
    }
    let found = files_at(&arguments.file, path)?;
    compare(bundle.files(), &found)
        .map_err(|message| denied(message).context(arguments.file.display()))?;
    Ok(signed(path, &text, &signers))
}

/// The bundle beside a module, if there is one.
pub(in crate::signing) fn of_module(path: &Path) -> Outcome<Option<Vec<u8>>> {
    read_if_there(&beside(path))
}

/// The bundle that an interrupted update has not yet moved to its place beside a module.
pub(in crate::signing) fn staged(path: &Path) -> Outcome<Option<Vec<u8>>> {
    read_if_there(&lock::staged(&beside(path)))
}

fn read_if_there(path: &Path) -> Outcome<Option<Vec<u8>>> {
    match path.symlink_metadata() {
        Ok(_) => regular_file::read(path, MOST_BUNDLE).map(Some),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(regular_file::cannot(path, &error)),
    }
}

/// The path of the bundle of a file.
pub(crate) fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(BESIDE);
    name.into()
}

fn certificates(path: &Path) -> Outcome<Vec<Certificate>> {
    let contents = regular_file::read(path, MOST_BYTES)?;
    Ok(Certificate::from_file(&contents).map_err(|status| status.context(path.display()))?)
}

/// The identity that must have signed a keyless bundle.
fn identity(arguments: &VerifyArguments) -> Outcome<Option<BundleSigner>> {
    let (Some(name), Some(issuer), Some(root)) = (
        &arguments.identity,
        &arguments.issuer,
        &arguments.trusted_root,
    ) else {
        return Ok(None);
    };
    let json = regular_file::read(root, MOST_BYTES)?;
    let root = TrustedRoot::from_json(&json).map_err(|status| status.context(root.display()))?;
    let identity = Identity::new(name, issuer, Arc::new(root)).map_err(Failure::usage)?;
    Ok(Some(BundleSigner::Identity(identity)))
}

/// Whom a keyless bundle beside a module names, if it is of the module. Only rules and `verify`
/// check it.
pub(in crate::signing) fn claimed(path: &Path, module: &[u8]) -> Option<(String, String)> {
    let text = of_module(path).ok()??;
    let bundle = Bundle::read(&text).ok()?;
    bundle.lists(module).then(|| bundle.claimed_identity())?
}

/// Reads a public key or the certificate of an authority: the text of a key, or a file.
fn signer(key: &str) -> Outcome<BundleSigner> {
    if key.starts_with("ecdsa-") {
        return BundleSigner::from_file(key.as_bytes()).map_err(Failure::usage);
    }
    let contents = regular_file::read(Path::new(key), MOST_BYTES)?;
    Ok(BundleSigner::from_file(&contents).map_err(|status| status.context(key))?)
}

fn signed(path: &Path, text: &[u8], signers: &[BundleSigner]) -> Signed {
    let signers = signers.iter().map(|signer| DescribedSigner {
        key: signer.to_string(),
        state: "valid",
    });
    Signed {
        file: path.to_string_lossy().into_owned(),
        sha256: hex::encode(Sha256::digest(text)),
        signers: signers.collect(),
    }
}

/// The digests of a file, or of all files of a folder but the bundle and those of git.
fn files_at(path: &Path, bundle: &Path) -> Outcome<SignedFiles> {
    let metadata = path
        .metadata()
        .map_err(|error| regular_file::cannot(path, &error))?;
    if !metadata.is_dir() {
        return Ok(SignedFiles::from([(ONE_FILE.to_owned(), digest(path)?)]));
    }
    let bundle = fs::canonicalize(bundle).ok();
    let mut files = SignedFiles::new();
    let mut folders = vec![(path.to_owned(), String::new())];
    while let Some((folder, start)) = folders.pop() {
        let cannot = |error: io::Error| regular_file::cannot(&folder, &error);
        for entry in fs::read_dir(&folder).map_err(cannot)? {
            let entry = entry.map_err(cannot)?;
            let at = entry.path();
            let name = entry.file_name().into_string().map_err(|_| {
                Status::invalid_argument("the name of a file is not UTF-8").context(at.display())
            })?;
            if start.is_empty() && LEFT_OUT.contains(&name.as_str()) {
                continue;
            }
            let kind = entry.file_type().map_err(cannot)?;
            if kind.is_symlink() {
                let message = "expected files and folders, found a symbolic link";
                return Err(Status::invalid_argument(message)
                    .context(at.display())
                    .into());
            }
            let name = format!("{start}{name}");
            if kind.is_dir() {
                folders.push((at, format!("{name}/")));
            } else if bundle.is_none() || fs::canonicalize(&at).ok() != bundle {
                files.insert(name, digest(&at)?);
            }
        }
    }
    if files.is_empty() {
        let status = Status::invalid_argument("expected a folder with files, found none");
        return Err(status.context(path.display()).into());
    }
    Ok(files)
}

fn digest(path: &Path) -> Outcome<[u8; 32]> {
    let mut file = regular_file::open(path)?;
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(digest.finalize().into()),
            Ok(read) => digest.update(&buffer[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(regular_file::cannot(path, &error)),
        }
    }
}

/// Checks that the files are those that the bundle lists.
fn compare(listed: &SignedFiles, found: &SignedFiles) -> Result<(), String> {
    for (name, digest) in listed {
        match found.get(name) {
            None => return Err(format!("the bundle lists {name:?}, which is missing")),
            Some(other) if other != digest => {
                return Err(format!(
                    "the bundle lists {name:?} with SHA-256 {}, found {}",
                    hex::encode(digest),
                    hex::encode(other)
                ));
            }
            Some(_) => {}
        }
    }
    match found.keys().find(|name| !listed.contains_key(*name)) {
        Some(name) => Err(format!("the bundle does not list {name:?}")),
        None => Ok(()),
    }
}

fn denied(message: String) -> Status {
    Status::new(StatusCode::PermissionDenied, Blame::Caller, message)
}
