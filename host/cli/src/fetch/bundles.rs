//! Bundles of signatures beside the packages of hosts.
//!
//! The bundle of an address is at the address with `.sig` at its end. That of a kernel of the Hub
//! is beside the module, or else `model.sig` of the repository, which `model-signing` writes for a
//! folder. That of an artefact in a registry is an artefact that refers to it.

use callbox::{Result, StatusCode};
use callbox_package::Trust;
use callbox_package::oms::Bundle;

use super::cache::{Cache, digest};
use super::http::{Address, Client, Rules, Token};
use super::hub::{self, Hub};
use super::oci;
use super::reference::{OciReference, Place, Reference};
use super::source::Package;
use crate::failure::Outcome;
use crate::signing::{self, BESIDE, MOST_BUNDLE};

/// The name of the bundle of a folder.
pub(crate) const OF_FOLDER: &str = "model.sig";

/// The bundle of a package, if its host has one. It is read and checked later. Of several in a
/// registry, the one that satisfies the rules is taken.
pub(crate) fn of(
    reference: &Reference,
    package: &Package,
    trust: Option<&Trust>,
    is_offline: bool,
) -> Outcome<Option<Vec<u8>>> {
    let found = find(reference, package, trust, is_offline);
    found.map_err(|failure| reference.in_failure(failure))
}

fn find(
    reference: &Reference,
    package: &Package,
    trust: Option<&Trust>,
    is_offline: bool,
) -> Outcome<Option<Vec<u8>>> {
    match &reference.place {
        Place::File(path) => signing::bundle_of(path),
        Place::Oci(reference) => Ok(of_registry(reference, package, trust, is_offline)?),
        // The query can be a signature for this one file.
        Place::Web(address) if address.has_query() => Ok(None),
        Place::Web(address) => {
            let beside = Address::parse(&format!("{}{BESIDE}", address.text()));
            let beside = beside.map_err(callbox::Status::invalid_argument)?;
            let client = (!is_offline).then(|| Client::new(&beside)).transpose()?;
            let key = format!("bundle {}", beside.text());
            let wanted = Wanted {
                address: &beside,
                token: None,
                within: None,
                key: &key,
            };
            Ok(get(client.as_ref(), &hub::cache()?, &wanted)?)
        }
        Place::Hub(reference) => {
            let commit = package.hub.as_ref().map_or("", |entry| &entry.commit);
            let hub = Hub::open(is_offline)?;
            Ok(hub.bundle(reference, commit, &package.file_name)?)
        }
    }
}

/// The bundle of an artefact in a registry.
fn of_registry(
    reference: &OciReference,
    package: &Package,
    trust: Option<&Trust>,
    is_offline: bool,
) -> Result<Option<Vec<u8>>> {
    let cache = hub::cache()?;
    let sha256 = digest(&package.bytes);
    let key = format!("bundle {} {sha256}", reference.name());
    if is_offline {
        let known = cache.note(&key);
        return Ok(known.and_then(|known| cache.file(&known, MOST_BUNDLE)));
    }
    let is_wanted = |bundle: &[u8]| match trust {
        Some(trust) => {
            let mut names = package.names.iter();
            names.all(|name| trust.check_with(name, &package.bytes, Some(bundle)).is_ok())
        }
        None => Bundle::read(bundle).is_ok_and(|bundle| bundle.lists(&package.bytes)),
    };
    let chosen = oci::bundle(reference, &sha256, is_wanted)?;
    if let Some(chosen) = &chosen {
        cache.keep(chosen);
        cache.take_note(&key, &digest(chosen));
    }
    Ok(chosen)
}

/// A bundle at an address.
pub(super) struct Wanted<'a> {
    pub(super) address: &'a Address,
    pub(super) token: Option<&'a Token>,
    /// The text that the path of each address must have.
    pub(super) within: Option<&'a str>,
    /// The key of the note about it.
    pub(super) key: &'a str,
}

/// Downloads a bundle, or offline takes the last known one.
pub(super) fn get(
    client: Option<&Client>,
    cache: &Cache,
    wanted: &Wanted<'_>,
) -> Result<Option<Vec<u8>>> {
    let Some(client) = client else {
        let known = cache.note(wanted.key);
        return Ok(known.and_then(|known| cache.file(&known, MOST_BUNDLE)));
    };
    let rules = Rules {
        token: wanted.token,
        // Its digest is not known.
        may_leave: false,
        within: wanted.within,
        most: MOST_BUNDLE,
        commit: None,
        digest: None,
        cache: None,
    };
    match client.get(wanted.address, rules) {
        Ok(bytes) => {
            cache.keep(&bytes);
            cache.take_note(wanted.key, &digest(&bytes));
            Ok(Some(bytes))
        }
        Err(status) if status.code() == StatusCode::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}
