//! Bundles of signatures beside the packages of hosts.
//!
//! The bundle of an address is at the address with `.sig` at its end. That of a kernel of the Hub
//! is beside the module, or else `model.sig` of the repository, which `model-signing` writes for a
//! folder. Registries of containers have no place for bundles.

use callbox::{Result, StatusCode};

use super::cache::{Cache, digest};
use super::http::{Address, Client, Rules, Token};
use super::hub::{self, Hub};
use super::reference::{Place, Reference};
use super::source::Package;
use crate::failure::Outcome;
use crate::signing;

/// The end of the name of the bundle beside a file, and the name of the bundle of a folder.
pub(crate) const BESIDE: &str = ".sig";
pub(crate) const OF_FOLDER: &str = "model.sig";

/// The largest bundle that is read.
const MOST_BUNDLE: usize = 16 << 20;

/// The bundle of a package, if its host has one. It is read and checked later.
pub(crate) fn of(
    reference: &Reference,
    package: &Package,
    is_offline: bool,
) -> Outcome<Option<Vec<u8>>> {
    match &reference.place {
        Place::File(path) => signing::bundle_of(path),
        Place::Oci(_) => Ok(None),
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
