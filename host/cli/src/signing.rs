//! `callbox sign` and `callbox verify`, and the rules of `--trust`.

mod bundle;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use callbox::{Blame, Status, StatusCode};
use callbox_package::oms::{BundleSigner, EcdsaSecretKey};
use callbox_package::{Limits, PublicKey, SecretKey, Signatures, Signer, Trust, names_of_file};
use serde::Serialize;
use sha2::{Digest, Sha256};

pub(super) use self::bundle::BESIDE;
#[cfg(feature = "fetch")]
pub(super) use self::bundle::{MOST_BUNDLE, beside};
use super::failure::{Failure, Outcome};
use super::inspect::field;
use super::text::{name, printable};
use super::{json, output, package, regular_file, write_file};

/// The largest file with a key or with rules.
const MOST_BYTES: usize = 1 << 20;

const SIGN_EXAMPLES: &str = "\
Examples:
  openssl genpkey -algorithm ed25519 -out key.pem
  callbox sign softmax-1.0.0.wasm --key key.pem
  callbox verify softmax-1.0.0.wasm --key ed25519:...
  openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out ec.pem
  callbox sign repository/ --oms --key ec.pem

The signature covers every byte of the module or package: code, cases, native twin, documentation
and licence. It is a custom section of the WebAssembly tool conventions, which `wasmsign2` reads
too. Earlier signatures of the same contents stay. The file then has another SHA-256.

With --json, standard output is one object, of failures too (then signature is null):
  {\"status\":{...},\"signature\":{\"file\":...,\"sha256\":...,
    \"signers\":[{\"key\":...,\"state\":\"valid\"}]}}
  state is \"valid\", \"other content\" or \"unknown key\"; then key is what the signature says of it,
  in hexadecimal.";

const VERIFY_EXAMPLES: &str = "\
Examples:
  callbox verify softmax-1.0.0.wasm --key alice.pem
  callbox verify softmax-1.0.0.wasm --key ed25519:...
  callbox verify softmax-1.0.0.wasm --trust trust.json
  callbox verify repository/ --oms repository/model.sig --key ec.pub.pem
  callbox verify softmax-1.0.0.wasm --oms softmax-1.0.0.wasm.sig --trusted-root trusted_root.json \
    --identity alice@example.com --issuer https://accounts.google.com

With several keys, each of them must have signed. With --json, standard output is one object, as of
`callbox sign`.";

/// Sign a module or package with a key of Ed25519
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{SIGN_EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct SignArguments {
    /// The module or package; with --oms also another file, or a folder
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,

    /// The secret key: PEM, as `openssl genpkey -algorithm ed25519` writes it
    #[arg(long, value_name = "FILE.pem")]
    key: PathBuf,

    /// Write a bundle of the OpenSSF model-signing format, and leave FILE as it is. The key is of
    /// ECDSA on P-256 or P-384
    #[arg(long)]
    oms: bool,

    /// The certificate of the key, and those between it and an authority
    #[arg(long, value_name = "FILE.pem", requires = "oms")]
    certificate: Option<PathBuf>,

    /// The signed file to write. If left out, FILE is replaced. With --oms the bundle: if left out,
    /// FILE.sig, or model.sig in the folder
    #[arg(short, long, value_name = "FILE.wasm")]
    output: Option<PathBuf>,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// Check that a module or package is signed, and by whom
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{VERIFY_EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct VerifyArguments {
    /// The module or package, or a package in FILE.safetensors#TENSOR; with --oms also another
    /// file, or a folder
    #[arg(value_name = "FILE.wasm")]
    file: PathBuf,

    /// The bundle of the OpenSSF model-signing format that must be of FILE
    #[arg(
        long,
        visible_alias = "bundle",
        value_name = "FILE.sig",
        conflicts_with = "trust"
    )]
    oms: Option<PathBuf>,

    /// A public key that must have signed: ed25519:HEX, or a PEM file. With --oms ecdsa-p256:HEX,
    /// or a PEM file with a public key or the certificate of an authority
    #[arg(long, value_name = "KEY", required_unless_present_any = ["trust", "identity"])]
    key: Vec<String>,

    /// The email address or URI that must have signed the bundle without a key
    #[arg(long, value_name = "NAME", requires_all = ["oms", "issuer", "trusted_root"])]
    identity: Option<String>,

    /// The OpenID provider that vouches for the identity, such as https://accounts.google.com
    #[arg(long, value_name = "URL", requires = "identity")]
    issuer: Option<String>,

    /// The authorities and logs of sigstore that count: its file `trusted_root.json`
    #[arg(
        long,
        visible_alias = "trust-root",
        value_name = "FILE.json",
        requires = "identity"
    )]
    trusted_root: Option<PathBuf>,

    /// The rules about signatures that must hold, for the absolute path of the file
    #[arg(long, value_name = "FILE.json")]
    trust: Option<PathBuf>,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// A file and its signatures.
#[derive(Debug, Serialize)]
struct Signed {
    file: String,
    sha256: String,
    signers: Vec<DescribedSigner>,
}

/// A signature for a person and for programs.
#[derive(Debug, Serialize)]
pub(super) struct DescribedSigner {
    pub(super) key: String,
    pub(super) state: &'static str,
}

pub(super) fn sign(arguments: &SignArguments) -> ExitCode {
    let signed = if arguments.oms {
        bundle::write(arguments)
    } else {
        write(arguments)
    };
    finish(arguments.json, signed)
}

pub(super) fn verify(arguments: &VerifyArguments) -> ExitCode {
    let checked = match &arguments.oms {
        Some(path) => bundle::check(arguments, path),
        None => check(arguments),
    };
    finish(arguments.json, checked)
}

fn finish(is_json: bool, outcome: Outcome<Signed>) -> ExitCode {
    let code = output::exit_code(&outcome);
    match (is_json, &outcome) {
        (true, outcome) => output::emit(&json::command("signature", outcome.as_ref()), code),
        (false, Ok(signed)) => output::emit(&signed.describe(), code),
        (false, Err(_)) => code,
    }
}

fn write(arguments: &SignArguments) -> Outcome<Signed> {
    let bytes = regular_file::read(&arguments.file, Limits::default().package_bytes)?;
    let in_file = |status: Status| Failure::from(status.context(arguments.file.display()));
    // A package that is wrong is not worth a signature.
    callbox_package::find(&bytes, &Limits::default()).map_err(in_file)?;
    let signed = callbox_package::sign(&bytes, &secret_key(&arguments.key)?).map_err(in_file)?;
    let path = arguments.output.as_ref().unwrap_or(&arguments.file);
    check_output(path, &arguments.key)?;
    write_file::write(path, &[&signed])?;
    Ok(Signed::new(path, &signed)?)
}

/// Refuses to replace the secret key by what is signed with it.
pub(super) fn check_output(path: &Path, key: &Path) -> Outcome<()> {
    let real = |path: &Path| std::fs::canonicalize(path).ok();
    match real(path) {
        Some(found) if real(key).as_ref() == Some(&found) => {
            let message = "expected another file to write than the secret key of the signature";
            let status = Status::invalid_argument(message).context(path.display());
            Err(Failure::usage(status))
        }
        _ => Ok(()),
    }
}

fn check(arguments: &VerifyArguments) -> Outcome<Signed> {
    let path = &arguments.file;
    let keys = arguments.key.iter().map(|key| public_key(key));
    let keys = keys.collect::<Outcome<Vec<_>>>()?;
    let trust = arguments.trust.as_deref().map(rules).transpose()?;
    let bytes = package::read_file(path)?;
    let in_file = |status: Status| Failure::from(status.context(path.display()));
    let signatures = Signatures::read(&bytes).map_err(in_file)?;
    for key in &keys {
        if !signatures.is_by(key) {
            let found: Vec<_> = described(&signatures).iter().map(phrase).collect();
            let found = if found.is_empty() {
                "none".to_owned()
            } else {
                found.join(", ")
            };
            let message = format!("expected a signature by {key}, found {found}");
            let status = Status::new(StatusCode::PermissionDenied, Blame::Caller, message);
            return Err(in_file(status));
        }
    }
    if let Some(trust) = trust {
        let names = names_of(path);
        if !names.iter().any(|name| trust.asks_for(name)) {
            return Err(in_file(Status::new(
                StatusCode::NotFound,
                Blame::Caller,
                format!("no rule is for {names:?}, so that none asks for a signature"),
            )));
        }
        check_module(Some(&trust), path, &bytes)?;
    }
    Ok(Signed::new(path, &bytes)?)
}

impl Signed {
    fn new(path: &Path, bytes: &[u8]) -> callbox::Result<Self> {
        Ok(Self {
            file: path.to_string_lossy().into_owned(),
            sha256: hex::encode(Sha256::digest(bytes)),
            signers: described(&Signatures::read(bytes)?),
        })
    }

    fn describe(&self) -> String {
        let mut lines = vec![name(&self.file), field("sha256", &self.sha256)];
        lines.extend(lines_of(&self.signers));
        printable(&(lines.join("\n") + "\n"))
    }
}

/// The signatures of a module.
fn described(signatures: &Signatures<'_>) -> Vec<DescribedSigner> {
    let signers = signatures.signers().into_iter();
    let signers = signers.map(|signer| match signer {
        Signer::Valid(key) => DescribedSigner {
            key: key.to_string(),
            state: "valid",
        },
        Signer::Wrong(key) => DescribedSigner {
            key: key.to_string(),
            state: "other content",
        },
        Signer::Unknown(id) => DescribedSigner {
            key: hex::encode(id),
            state: "unknown key",
        },
    });
    signers.collect()
}

/// The same for a module that may have a section of the same name with another meaning.
pub(super) fn of_module(bytes: &[u8]) -> Vec<DescribedSigner> {
    match Signatures::read(bytes) {
        Ok(signatures) => described(&signatures),
        Err(_) => vec![DescribedSigner {
            key: String::new(),
            state: "unreadable",
        }],
    }
}

/// The same, and whom a keyless bundle beside the file names.
pub(super) fn of_file(path: &Path, bytes: &[u8]) -> Vec<DescribedSigner> {
    let mut signers = of_module(bytes);
    if let Some((name, issuer)) = bundle::claimed(path, bytes) {
        signers.push(DescribedSigner {
            key: format!("{name} of {issuer}"),
            state: "unchecked bundle",
        });
    }
    signers
}

/// The signatures for a person.
pub(super) fn lines_of(signers: &[DescribedSigner]) -> Vec<String> {
    let lines = signers.iter();
    lines
        .map(|signer| field("signed by", &phrase(signer)))
        .collect()
}

fn phrase(signer: &DescribedSigner) -> String {
    match signer.state {
        "valid" => signer.key.clone(),
        "unreadable" => "unknown: its section `signature` cannot be read".to_owned(),
        "unchecked bundle" => format!("{}, says the bundle beside it", signer.key),
        "unknown key" if signer.key.is_empty() => "a key that is not named".to_owned(),
        "unknown key" => format!("an unknown key, {}", signer.key),
        _ => format!("{}, but other content than this", signer.key),
    }
}

/// Reads a secret key.
pub(super) fn secret_key(path: &Path) -> Outcome<SecretKey> {
    let contents = regular_file::read(path, MOST_BYTES)?;
    let key = SecretKey::from_file(&contents).map_err(|status| {
        if EcdsaSecretKey::from_file(&contents).is_ok() {
            return Status::invalid_argument(
                "expected a secret key of Ed25519, found one of ECDSA, with which `callbox sign \
                 --oms` signs",
            );
        }
        status
    });
    Ok(key.map_err(|status| status.context(path.display()))?)
}

/// Reads a public key: its text, or the path of a file with it.
fn public_key(key: &str) -> Outcome<PublicKey> {
    if key.starts_with("ed25519:") {
        return key.parse().map_err(Failure::usage);
    }
    let contents = regular_file::read(Path::new(key), MOST_BYTES)?;
    let read = PublicKey::from_file(&contents).map_err(|status| {
        if BundleSigner::from_file(&contents).is_ok() {
            return Status::invalid_argument(
                "expected a public key of Ed25519, found a key or certificate of ECDSA, which is \
                 for bundles: name one with --oms",
            );
        }
        status
    });
    Ok(read.map_err(|status| status.context(key))?)
}

/// Reads the rules of `--trust`.
pub(super) fn rules(path: &Path) -> Outcome<Trust> {
    let text = regular_file::read(path, MOST_BYTES)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let read = |root: &Path| {
        let read = regular_file::read(&folder.join(root), MOST_BYTES);
        read.map_err(|failure| failure.status().clone())
    };
    let trust = Trust::from_json_with(&text, read);
    let trust = trust.map_err(|status| status.context(path.display()))?;
    // Such a rule would never hold, and its author would not know.
    if let Some(pattern) = trust.relative_patterns().next() {
        let message = format!(
            "the rule for {pattern:?} matches no module, whose names are absolute paths and \
             references: write {:?}",
            format!("*/{}", pattern.trim_start_matches("./"))
        );
        return Err(Status::invalid_argument(message)
            .context(path.display())
            .into());
    }
    Ok(trust)
}

/// The names of a file for rules, and of the tensor if the file has the module in one.
fn names_of(path: &Path) -> Vec<String> {
    let Some((file, tensor)) = package::tensor_in(path) else {
        return names_of_file(path);
    };
    let files = names_of_file(&file);
    let tensors = Vec::from_iter(files.iter().map(|file| format!("{file}#{tensor}")));
    [files, tensors].concat()
}

/// Checks the signatures of a module that is to be loaded from a file.
pub(super) fn check_module(trust: Option<&Trust>, path: &Path, module: &[u8]) -> Outcome<()> {
    let Some(trust) = trust else {
        return Ok(());
    };
    if !names_of(path).iter().any(|name| trust.asks_for(name)) {
        return Ok(());
    }
    let bundle = bundle::of_module(path)?;
    let check = |bundle: Option<Vec<u8>>| {
        check_names(Some(trust), path, |trust, name| {
            trust.check_with(name, module, bundle.as_deref())
        })
    };
    check(bundle).or_else(|failure| match bundle::staged(path)? {
        Some(staged) => check(Some(staged)),
        None => Err(failure),
    })
}

/// The bundle beside a file, if there is one.
#[cfg(feature = "fetch")]
pub(super) fn bundle_of(path: &Path) -> Outcome<Option<Vec<u8>>> {
    bundle::of_module(path)
}

/// Checks the signatures of a package, and tells whether a rule grants its native twin.
#[cfg_attr(
    not(feature = "cuda"),
    allow(dead_code, reason = "of native code only")
)]
pub(super) fn grants_native(trust: Option<&Trust>, path: &Path, module: &[u8]) -> Outcome<bool> {
    check_module(trust, path, module)?;
    let names = names_of(path);
    Ok(trust.is_some_and(|trust| names.iter().any(|name| trust.grants_native(name))))
}

/// Refuses native code in files of its own, which cannot be signed, if a rule is for its name.
#[cfg_attr(
    not(feature = "cuda"),
    allow(dead_code, reason = "of native code only")
)]
pub(super) fn check_native(trust: Option<&Trust>, path: &Path) -> Outcome<()> {
    check_names(trust, path, Trust::check_unsigned)
}

fn check_names(
    trust: Option<&Trust>,
    path: &Path,
    of_name: impl Fn(&Trust, &str) -> callbox::Result<()>,
) -> Outcome<()> {
    let Some(trust) = trust else {
        return Ok(());
    };
    let mut names = names_of(path).into_iter();
    let checked = names.try_for_each(|name| of_name(trust, &name));
    Ok(checked.map_err(|status| status.context(path.display()))?)
}
