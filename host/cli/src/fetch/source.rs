//! The package of a reference, wherever it is.

use callbox::{Blame, Status, StatusCode};
use callbox_package::{Limits, Trust, names_of_file};

use super::cache::digest;
use super::http::{Address, Client, Rules, denied};
use super::hub::{self, Hub, HubEntry, Wanted};
use super::reference::{HubReference, Place, Reference};
use crate::failure::{Failure, Outcome};
use crate::lock::Lock;
use crate::text::name;
use crate::{modules, regular_file};

/// A package that was read.
#[derive(Debug)]
pub(crate) struct Package {
    /// The names for rules about signatures, the reference's own first.
    pub(crate) names: Vec<String>,
    pub(crate) bytes: Vec<u8>,
    /// The file to write, if the user names none.
    pub(crate) file_name: String,
    /// What is known of a kernel of the Hub.
    pub(crate) hub: Option<HubEntry>,
    /// The bundle of signatures beside it, if rules ask for one.
    pub(crate) bundle: Option<Vec<u8>>,
}

/// Gets the package of a reference, as the lock has it if there is one.
pub(crate) fn get(
    reference: &Reference,
    lock: Option<&Lock>,
    is_offline: bool,
) -> Outcome<Package> {
    let found = find(reference, lock, is_offline);
    let package = found.map_err(|failure| reference.in_failure(failure))?;
    package.check_form()?;
    Ok(package)
}

fn find(reference: &Reference, lock: Option<&Lock>, is_offline: bool) -> Outcome<Package> {
    match &reference.place {
        Place::File(path) => {
            if lock.is_some() {
                let message = "--lock is for references of hosts; add #sha256:DIGEST to a path";
                return Err(Failure::usage(Status::invalid_argument(message)));
            }
            let bytes = regular_file::read(path, Limits::default().package_bytes)?;
            let package = Package {
                names: names_of_file(path),
                bytes,
                file_name: last_name(&path.to_string_lossy()),
                hub: None,
                bundle: None,
            };
            package.checked(reference.digest.as_deref())
        }
        Place::Web(address) => {
            let wanted = digest_of(&address.text(), reference, lock)?;
            from_web(address, wanted.as_deref(), is_offline)
        }
        Place::Oci(oci) => {
            let wanted = digest_of(&oci.name(), reference, lock)?;
            let name = oci.path.rsplit('/').next().unwrap_or_default();
            Ok(Package {
                names: vec![oci.name()],
                bytes: super::oci::fetch(oci, wanted.as_deref(), is_offline)?,
                file_name: last_name(&format!("{name}.wasm")),
                hub: None,
                bundle: None,
            })
        }
        Place::Hub(hub) => {
            let wanted = wanted(hub, reference.digest.as_deref(), lock)?;
            from_hub(hub, &wanted, is_offline)
        }
    }
}

/// The package of a kernel of the Hub.
pub(crate) fn from_hub(
    reference: &HubReference,
    wanted: &Wanted,
    is_offline: bool,
) -> Outcome<Package> {
    let found = Hub::open(is_offline)?.fetch(reference, wanted)?;
    Ok(Package {
        names: vec![reference.name()],
        bytes: found.package,
        file_name: found.name,
        hub: Some(found.entry),
        bundle: None,
    })
}

/// Downloads a file of an address. One with a digest is kept, and not downloaded again.
fn from_web(address: &Address, wanted: Option<&str>, is_offline: bool) -> Outcome<Package> {
    let most = Limits::default().package_bytes;
    let cache = hub::cache();
    // Without a digest, the cache keeps interrupted downloads alone.
    let cache = match wanted {
        Some(_) => Some(cache?),
        None => cache.ok(),
    };
    let known = cache.as_ref().zip(wanted);
    let known = known.and_then(|(cache, wanted)| cache.file(wanted, most));
    let bytes = match known {
        Some(known) => known,
        None if is_offline => {
            let message =
                format!("{address} was not downloaded before, and this command is offline");
            let status = Status::new(StatusCode::Unavailable, Blame::Caller, message);
            return Err(status.into());
        }
        None => {
            let rules = Rules {
                token: None,
                may_leave: wanted.is_some(),
                within: None,
                most,
                commit: None,
                digest: wanted,
                cache: cache.as_ref(),
            };
            Client::new(address)?.get(address, rules)?
        }
    };
    let package = Package {
        names: vec![address.text()],
        bytes,
        file_name: last_name(address.path()),
        hub: None,
        bundle: None,
    };
    let package = package.checked(wanted)?;
    if let Some(cache) = cache.filter(|_| wanted.is_some()) {
        cache.keep(&package.bytes);
    }
    Ok(package)
}

/// The digest that the file of a reference must have: its own, or the one of the lock.
fn digest_of(name: &str, reference: &Reference, lock: Option<&Lock>) -> Outcome<Option<String>> {
    let Some(lock) = lock else {
        return Ok(reference.digest.clone());
    };
    let locked = lock.fetched(name)?;
    check_same(name, reference.digest.as_deref(), &locked, lock)?;
    Ok(Some(locked))
}

/// The commit and the digest that a kernel of the Hub must have.
fn wanted(reference: &HubReference, digest: Option<&str>, lock: Option<&Lock>) -> Outcome<Wanted> {
    let Some(lock) = lock else {
        return Ok(Wanted {
            commit: None,
            digest: digest.map(|digest| (digest.to_owned(), "expected".to_owned())),
        });
    };
    let (commit, locked) = lock.kernel(&reference.name())?;
    check_same(&reference.name(), digest, &locked, lock)?;
    Ok(Wanted {
        commit: Some(commit),
        digest: Some((locked, format!("{} has", lock.path().display()))),
    })
}

/// Checks that the user and the lock want the same digest.
fn check_same(name: &str, wanted: Option<&str>, locked: &str, lock: &Lock) -> Outcome<()> {
    match wanted {
        Some(wanted) if wanted != locked => {
            let lock = lock.path().display();
            let message = format!("{name}: expected the digest {wanted}, {lock} has {locked}");
            Err(denied(message).into())
        }
        _ => Ok(()),
    }
}

impl Package {
    /// The reference.
    pub(crate) fn from(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// The package, whose file must have this digest.
    fn checked(self, wanted: Option<&str>) -> Outcome<Self> {
        let found = digest(&self.bytes);
        match wanted {
            Some(wanted) if wanted != found => {
                let message = format!("expected the digest {wanted}, found {found}");
                Err(denied(message).context(name(self.from())).into())
            }
            _ => Ok(self),
        }
    }

    /// Checks that the file is a module.
    fn check_form(&self) -> Outcome<()> {
        if self.bytes.starts_with(modules::MAGIC) {
            return Ok(());
        }
        let status = Status::invalid_argument("expected a WebAssembly module, found another file");
        Err(status.context(name(self.from())).into())
    }

    /// The name and the version of a package. `None` for a plain module.
    pub(crate) fn header(&self) -> Outcome<Option<(String, String)>> {
        let found = callbox_package::find(&self.bytes, &Limits::default());
        let found = found.map_err(|status| status.context(name(self.from())))?;
        Ok(found.map(|found| {
            let header = found.header();
            (header.name.clone(), header.version.clone())
        }))
    }

    /// Checks the rules about signatures for each name of the package.
    pub(crate) fn check_trust(&self, trust: Option<&Trust>) -> Outcome<()> {
        let Some(trust) = trust else {
            return Ok(());
        };
        let mut names = self.names.iter();
        let bundle = self.bundle.as_deref();
        Ok(names.try_for_each(|name| trust.check_with(name, &self.bytes, bundle))?)
    }

    /// Whether a bundle beside the package can satisfy a rule for it.
    pub(crate) fn takes_bundles(&self, trust: Option<&Trust>) -> bool {
        let mut names = self.names.iter();
        trust.is_some_and(|trust| names.any(|name| trust.takes_bundles(name)))
    }
}

/// The name of a file at the end of a path, for a file in the current folder.
fn last_name(path: &str) -> String {
    let last = path.rsplit(['/', '\\']).next().unwrap_or_default();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-+".contains(c);
    if last.ends_with(".wasm") && !last.starts_with(['.', '-']) && last.chars().all(is_plain) {
        return last.to_owned();
    }
    "package.wasm".to_owned()
}
