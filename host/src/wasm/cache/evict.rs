//! Keeping the directory below its size.

use std::time::{Duration, SystemTime};

use super::directory::{Directory, Listed};
use crate::values::{Blame, Result, Status, StatusCode};

/// A file that is being written for longer than this is taken for one that its process left behind. Should that process live after all, it
/// finds its file gone, and reports that the entry was not stored.
const STALE: Duration = Duration::from_secs(60);

/// Removes what other processes left unfinished, and entries, those first that were not used for longest, until there is room for
/// `needed` bytes more.
///
/// # Errors
/// RESOURCE_EXHAUSTED if there is not enough room without entries either, and what the operating system says.
pub(super) fn make_room(directory: &Directory, most: u64, needed: u64) -> Result<()> {
    if needed > most {
        return Err(exhausted(format!(
            "expected an entry of at most {most} bytes, which is the cache's size, found one of {needed}"
        )));
    }
    let now = SystemTime::now();
    let (stale, mut files): (Vec<_>, Vec<_>) = directory
        .list()?
        .into_iter()
        .partition(|file| !file.is_entry && age(file, now) > STALE);
    stale.iter().for_each(|file| directory.remove(&file.name));
    let sizes = files.iter().map(|file| file.size);
    let mut total = sizes.fold(0, u64::saturating_add);
    files.sort_by(|a, b| (a.modified, &a.name).cmp(&(b.modified, &b.name)));
    for file in files.iter().filter(|file| file.is_entry) {
        if total.saturating_add(needed) <= most {
            break;
        }
        directory.remove(&file.name);
        total = total.saturating_sub(file.size);
    }
    match total.saturating_add(needed) <= most || needed == 0 {
        true => Ok(()),
        false => Err(exhausted(format!(
            "expected room for {needed} bytes in a cache of {most}, found {total} bytes that other processes are writing"
        ))),
    }
}

/// How long ago a file was written to. A time that is still to come is as strange as one long ago.
fn age(file: &Listed, now: SystemTime) -> Duration {
    let since = now.duration_since(file.modified);
    since.unwrap_or_else(|error| error.duration())
}

fn exhausted(message: String) -> Status {
    Status::new(StatusCode::ResourceExhausted, Blame::Host, message)
}
