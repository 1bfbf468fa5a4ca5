//! Evicts entries to keep the directory below its maximum size.

use std::time::{Duration, SystemTime};

use callbox_core::values::Result;

use super::directory::{Directory, Listed};
use crate::failure::host_exhausted;

/// The age at which an unfinished file counts as abandoned by its process, and is removed. If the
/// process is alive, it then reports that the entry was not stored.
const STALE: Duration = Duration::from_secs(60);

/// Removes abandoned files, and the least recently used entries until there is room for `needed`
/// more bytes.
///
/// # Errors
/// RESOURCE_EXHAUSTED if there is no room even without entries, and errors of the operating system.
pub(super) fn make_room(directory: &Directory, most: u64, needed: u64) -> Result<()> {
    if needed > most {
        return Err(host_exhausted(format!(
            "expected an entry of at most {most} bytes (`max_bytes`), found one of {needed}"
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
    if needed > 0 && total.saturating_add(needed) > most {
        return Err(host_exhausted(format!(
            "no room for {needed} bytes in a cache of {most} (`max_bytes`): other processes are writing {total} bytes"
        )));
    }
    Ok(())
}

/// The time since a file was written. A time in the future counts as old.
fn age(file: &Listed, now: SystemTime) -> Duration {
    let since = now.duration_since(file.modified);
    since.unwrap_or_else(|error| error.duration())
}
