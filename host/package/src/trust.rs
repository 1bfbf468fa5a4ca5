//! Rules about signatures: which keys must have signed the modules of which names.

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;

use callbox_core::json::{Entries, Object};
use callbox_core::untrusted_text::shown_name;
use callbox_core::values::{Blame, Result, Status, StatusCode};
use serde::Deserialize;

pub use self::names::names_of_file;
use self::names::{UNRESOLVED, is_absolute, is_for, with_slashes};
use crate::keys::PublicKey;
use crate::oms::{Bundle, BundleSigner, Identity, TrustedRoot};
use crate::signature::{Signatures, Signer};

/// Rules about signatures, by the names of modules.
///
/// A name is the one by which the user asks for a module: a path ([`names_of_file`]), or
/// `hf:org/name@v1`. What a module calls itself does not matter. A module whose name matches the
/// patterns of several rules must satisfy each of them; one that matches none needs no signature.
///
/// ```json
/// {
///   "keys": {"alice": "ed25519:..."},
///   "signatures": {"hf:org/*": {"signed_by": ["alice"]}},
///   "revoked": ["ed25519:..."]
/// }
/// ```
///
/// With `"native": true`, a rule also grants the native twin of a package that satisfies it.
///
/// A key is of Ed25519, which signs inside a module, or of ECDSA, which signs bundles beside it. A
/// key in PEM is also allowed, and so is the certificate of an authority, which vouches for the
/// keys of bundles.
///
/// An identity has no key of its own: sigstore's authorities and logs vouch for it. In place of a
/// key stands `{"identity": "alice@example.com", "issuer": "https://accounts.example.com"}`, and
/// `trusted_root` is the path of sigstore's `trusted_root.json`, or its contents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trust {
    /// The names of keys, for messages.
    names: BTreeMap<TrustedKey, String>,
    rules: Vec<Rule>,
    revoked: BTreeSet<TrustedKey>,
}

/// A key of a rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum TrustedKey {
    /// Signs inside a module.
    Inside(PublicKey),
    /// Signs a bundle beside it.
    Beside(BundleSigner),
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    pattern: String,
    signed_by: Vec<TrustedKey>,
    /// Whether the signatures also grant native code.
    native: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustFile {
    #[serde(default)]
    keys: Entries<SignerFile>,
    signatures: Entries<Object<RuleFile>>,
    #[serde(default)]
    revoked: Vec<SignerFile>,
    trusted_root: Option<RootFile>,
}

/// The path of a trusted root, or its contents.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a path or a trusted root of sigstore")]
enum RootFile {
    Path(String),
    Contents(serde_json::Map<String, serde_json::Value>),
}

/// A key, its name, or an identity.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a key or an identity with its issuer")]
enum SignerFile {
    Key(String),
    Identity(Object<IdentityFile>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct IdentityFile {
    identity: String,
    issuer: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleFile {
    signed_by: OneOrMore,
    #[serde(default)]
    native: bool,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected the name of a key, a key, or a list of these, or an identity with its \
                 issuer"
)]
enum OneOrMore {
    One(SignerFile),
    More(Vec<SignerFile>),
}

impl Trust {
    /// Reads rules. Keys are named in `keys`, or given as text.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for JSON that is not as shown above, an unknown name of a key, a rule
    /// without keys, no rules, or a `trusted_root` that is a path.
    pub fn from_json(json: &[u8]) -> Result<Self> {
        Self::from_json_with(json, |_| {
            let message = "expected the contents of a trusted root in `trusted_root`, found a path";
            Err(Status::invalid_argument(message))
        })
    }

    /// Reads rules, and the file of a `trusted_root` that is a path.
    ///
    /// # Errors
    /// Those of [`from_json`](Self::from_json), of [`TrustedRoot::from_json`] and of `read`.
    pub fn from_json_with(
        json: &[u8],
        read: impl FnOnce(&Path) -> Result<Vec<u8>>,
    ) -> Result<Self> {
        let wrong = |error: serde_json::Error| {
            let error = error.to_string();
            Status::invalid_argument(format!("the rules are wrong: {}", shown_name(&error)))
        };
        let file: Object<TrustFile> = serde_json::from_slice(json).map_err(wrong)?;
        let file = file.0;
        let root = file.trusted_root.map(|root| match root {
            RootFile::Path(path) => {
                let path = Path::new(&path);
                let root = read(path).and_then(|json| TrustedRoot::from_json(&json));
                root.map_err(|status| status.context(path.display()))
            }
            RootFile::Contents(contents) => {
                let json = serde_json::to_vec(&contents).map_err(wrong)?;
                TrustedRoot::from_json(&json).map_err(|status| status.context("`trusted_root`"))
            }
        });
        let root = root.transpose()?.map(Arc::new);
        let identity = |given: &Object<IdentityFile>| {
            let root = root.as_ref().ok_or_else(|| {
                let message = "expected a `trusted_root` for the identity, found none";
                Status::invalid_argument(message)
            })?;
            let identity = Identity::new(&given.0.identity, &given.0.issuer, Arc::clone(root))?;
            Ok(TrustedKey::Beside(BundleSigner::Identity(identity)))
        };
        let mut keys = BTreeMap::new();
        for (name, given) in &file.keys.0 {
            let key = match given {
                SignerFile::Key(text) => text.parse(),
                SignerFile::Identity(given) => identity(given),
            };
            let key: TrustedKey =
                key.map_err(|status: Status| status.context(format_args!("key {name:?}")))?;
            keys.insert(name.clone(), key);
        }
        let key = |given: &SignerFile| {
            let text = match given {
                SignerFile::Key(text) => text,
                SignerFile::Identity(given) => return identity(given),
            };
            match keys.get(text) {
                Some(key) => Ok(key.clone()),
                None if text.contains(':') => text.parse(),
                None => Err(Status::invalid_argument(format!(
                    "`keys` has no key {text:?}"
                ))),
            }
        };
        let mut rules = Vec::new();
        for (pattern, rule) in file.signatures.0 {
            let of_rule =
                |status: Status| status.context(format_args!("`signatures` for {pattern:?}"));
            let rule = rule.0;
            let given = match rule.signed_by {
                OneOrMore::One(one) => vec![one],
                OneOrMore::More(more) => more,
            };
            let signed_by = given.iter().map(key).collect::<Result<Vec<_>>>();
            let signed_by = signed_by.map_err(of_rule)?;
            if signed_by.is_empty() {
                let status = Status::invalid_argument("expected a key in `signed_by`, found none");
                return Err(of_rule(status));
            }
            rules.push(Rule {
                pattern: with_slashes(&pattern),
                signed_by,
                native: rule.native,
            });
        }
        if rules.is_empty() {
            return Err(Status::invalid_argument(
                "expected a rule in `signatures`, found none",
            ));
        }
        Ok(Self {
            revoked: file.revoked.iter().map(key).collect::<Result<_>>()?,
            names: keys.into_iter().map(|(name, key)| (key, name)).collect(),
            rules,
        })
    }

    /// The patterns that match no absolute path and no reference of a host, such as
    /// `kernels/*.wasm`. Where modules have no other names, their rules never hold.
    pub fn relative_patterns(&self) -> impl Iterator<Item = &str> {
        let patterns = self.rules.iter().map(|rule| rule.pattern.as_str());
        patterns.filter(|pattern| !is_absolute(pattern))
    }

    /// Whether a rule asks for a signature of the module of this name.
    #[must_use]
    pub fn asks_for(&self, name: &str) -> bool {
        self.rules_for(name).next().is_some()
    }

    /// Whether a bundle beside the module of this name can satisfy a rule for it.
    #[must_use]
    pub fn takes_bundles(&self, name: &str) -> bool {
        let is_beside = |key: &TrustedKey| matches!(key, TrustedKey::Beside(_));
        self.rules_for(name)
            .any(|rule| rule.signed_by.iter().any(is_beside))
    }

    /// Checks the signatures inside a module.
    ///
    /// # Errors
    /// PERMISSION_DENIED if a rule for the name asks for another signature, and those of
    /// [`Signatures::read`].
    pub fn check(&self, name: &str, module: &[u8]) -> Result<()> {
        self.check_with(name, module, None)
    }

    /// Checks the signatures inside a module and that of the bundle beside it, if there is one.
    ///
    /// # Errors
    /// As for [`check`](Self::check), and those of [`Bundle::read`].
    pub fn check_with(&self, name: &str, module: &[u8], bundle: Option<&[u8]>) -> Result<()> {
        if !self.asks_for(name) {
            return Ok(());
        }
        let signed = Signed {
            inside: Signatures::read(module)?,
            beside: bundle.map(Bundle::read).transpose()?,
            module,
        };
        self.rules_for(name).try_for_each(|rule| {
            let is_valid = |key: &&TrustedKey| !self.is_revoked(key, &signed) && signed.is_by(key);
            match rule.signed_by.iter().find(is_valid) {
                Some(_) => Ok(()),
                None => Err(self.refusal(rule, &self.found(rule, &signed))),
            }
        })
    }

    /// Whether a rule for the name says `"native": true`: the user vouches for the native code of
    /// the packages that satisfy the rule. Ask after [`check_with`](Self::check_with) has passed.
    #[must_use]
    pub fn grants_native(&self, name: &str) -> bool {
        !name.starts_with(UNRESOLVED) && self.rules_for(name).any(|rule| rule.native)
    }

    /// Whether a key does not count for these signatures: it is revoked, or a certificate of the
    /// bundle has a revoked key.
    fn is_revoked(&self, key: &TrustedKey, signed: &Signed<'_>) -> bool {
        match (key, &signed.beside) {
            (TrustedKey::Beside(signer), Some(bundle)) => {
                let mut revoked = self.revoked.iter();
                revoked.any(|revoked| {
                    let der = revoked.to_der();
                    revoked == key || der.is_some_and(|der| bundle.uses(&der, signer))
                })
            }
            _ => self.revoked.contains(key),
        }
    }

    /// Refuses something that cannot carry a signature, such as a library, if a rule for its name
    /// asks for one.
    ///
    /// # Errors
    /// PERMISSION_DENIED if so.
    pub fn check_unsigned(&self, name: &str) -> Result<()> {
        match self.rules_for(name).next() {
            Some(rule) => Err(self.refusal(rule, "native code that is not part of a package")),
            None => Ok(()),
        }
    }

    fn rules_for(&self, name: &str) -> impl Iterator<Item = &Rule> {
        let name = with_slashes(name);
        let matching = move |rule: &&Rule| is_for(&rule.pattern, &name);
        self.rules.iter().filter(matching)
    }

    /// What signatures there are instead, for a message.
    fn found(&self, rule: &Rule, signed: &Signed<'_>) -> String {
        let mut revoked = rule.signed_by.iter();
        if let Some(key) = revoked.find(|key| self.is_revoked(key, signed) && signed.is_by(key)) {
            return if self.revoked.contains(key) {
                format!("a signature by {}, which is revoked", self.name(key))
            } else {
                format!("a certificate by {}, which is revoked", self.name(key))
            };
        }
        let beside = signed.beside.as_ref().map(|bundle| {
            if !bundle.lists(signed.module) {
                return "a bundle of other content".to_owned();
            }
            let mut reasons = rule.signed_by.iter().filter_map(|key| match key {
                TrustedKey::Beside(signer @ BundleSigner::Identity(_)) => bundle.refusal(signer),
                _ => None,
            });
            match reasons.next() {
                Some(reason) => format!("a bundle that does not prove it: {reason}"),
                None => "a bundle by another key".to_owned(),
            }
        });
        let signers = signed.inside.signers();
        let inside = signers.iter().take(8).map(|signer| match signer {
            Signer::Valid(key) => format!("a signature by {}", self.name_inside(key)),
            Signer::Wrong(key) => {
                format!("a signature by {} of other content", self.name_inside(key))
            }
            Signer::Unknown(_) => "a signature by an unknown key".to_owned(),
        });
        let found: Vec<_> = inside.chain(beside).collect();
        if found.is_empty() {
            return "no signature".to_owned();
        }
        found.join(", ")
    }

    fn refusal(&self, rule: &Rule, found: &str) -> Status {
        let keys: Vec<_> = rule.signed_by.iter().map(|key| self.name(key)).collect();
        let message = format!(
            "the rule for \"{}\" asks for a signature by {}, found {found}",
            shown_name(&rule.pattern),
            keys.join(" or ")
        );
        Status::new(StatusCode::PermissionDenied, Blame::Caller, message)
    }

    fn name_inside(&self, key: &PublicKey) -> String {
        self.name(&TrustedKey::Inside(*key))
    }

    fn name(&self, key: &TrustedKey) -> String {
        self.names
            .get(key)
            .map_or_else(|| key.to_string(), |name| shown_name(name).to_string())
    }
}

/// A module with its signatures.
struct Signed<'a> {
    inside: Signatures<'a>,
    beside: Option<Bundle>,
    module: &'a [u8],
}

impl Signed<'_> {
    fn is_by(&self, key: &TrustedKey) -> bool {
        match (key, &self.beside) {
            (TrustedKey::Inside(key), _) => self.inside.is_by(key),
            (TrustedKey::Beside(signer), Some(bundle)) => {
                bundle.lists(self.module) && bundle.verify(signer).is_ok()
            }
            (TrustedKey::Beside(_), None) => false,
        }
    }
}

impl TrustedKey {
    /// The public key, a SubjectPublicKeyInfo in DER. An identity has none.
    fn to_der(&self) -> Option<Vec<u8>> {
        match self {
            Self::Inside(key) => Some(key.to_der()),
            Self::Beside(signer) => signer.key(),
        }
    }
}

impl fmt::Display for TrustedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inside(key) => key.fmt(f),
            Self::Beside(signer) => signer.fmt(f),
        }
    }
}

impl FromStr for TrustedKey {
    type Err = Status;

    fn from_str(text: &str) -> Result<Self> {
        if text.starts_with("ecdsa-") {
            return BundleSigner::from_file(text.as_bytes()).map(Self::Beside);
        }
        if !text.starts_with("-----BEGIN ") {
            return text.parse().map(Self::Inside);
        }
        match PublicKey::from_file(text.as_bytes()) {
            Ok(key) => Ok(Self::Inside(key)),
            Err(_) => BundleSigner::from_file(text.as_bytes()).map(Self::Beside),
        }
    }
}
