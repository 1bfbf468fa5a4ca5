//! Files and directories that other users may write to, or that have another type.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;

use callbox::policy::Policy;
use callbox::wasm::{Cache, CacheOptions, CacheOutcome, CacheProblem};
use callbox::{Status, StatusCode};
use rustix::fs::{CWD, FileType, Mode};

use super::{
    Place, Reports, check, check_hit, check_replaced, check_stored, engine_with, module, take,
};

const REJECTED: (CacheProblem, StatusCode) = (CacheProblem::Rejected, StatusCode::PermissionDenied);
const NOT_STORED: (CacheProblem, StatusCode) =
    (CacheProblem::NotStored, StatusCode::PermissionDenied);

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

/// A user id other than this process's.
const ANOTHER_USER: u32 = 12_345;

/// Returns whether this process can change the owner of files.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[track_caller]
fn refuse(path: &Path, code: StatusCode, part: &str) -> Status {
    let status = Cache::open_ambient(path, CacheOptions::default()).unwrap_err();
    assert_eq!(status.code(), code, "{status}");
    assert!(status.message().contains(part), "{status}");
    status
}

/// Stores module 1, alters its entry with `alter`, and loads the module again.
#[track_caller]
fn check_altered(alter: impl Fn(&Place, &Path)) {
    let place = Place::new();
    let (engine, reports) = place.engine();
    check_stored(&engine.load(&module(1)).unwrap());
    let entry = place.entry();
    alter(&place, &entry);
    let status = engine.is_cached(&module(1)).unwrap_err();
    assert_eq!(status.code(), StatusCode::PermissionDenied, "{status}");
    let loaded = engine.load(&module(1)).unwrap();
    check_replaced(&loaded, StatusCode::PermissionDenied);
    check(&loaded, 1);
    assert_eq!(take(&reports), [REJECTED]);
    // The replacement is an ordinary entry.
    let metadata = fs::symlink_metadata(&entry).unwrap();
    assert!(metadata.is_file() && metadata.permissions().mode() & 0o777 == 0o600);
    check_hit(&engine.load(&module(1)).unwrap());
}

#[test]
fn entries_that_are_links_are_not_followed() {
    let elsewhere = |place: &Place| place.folder.path().join("elsewhere");
    check_altered(|place, entry| {
        fs::rename(entry, elsewhere(place)).unwrap();
        symlink(elsewhere(place), entry).unwrap();
    });
    // Links inside the directory are rejected too, even to the entry itself.
    check_altered(|_, entry| {
        fs::rename(entry, entry.with_extension("moved")).unwrap();
        let moved = entry.with_extension("moved");
        symlink(moved.file_name().unwrap(), entry).unwrap();
    });
    check_altered(|_, entry| {
        fs::remove_file(entry).unwrap();
        symlink("nothing", entry).unwrap();
    });
    check_altered(|place, entry| fs::hard_link(entry, elsewhere(place)).unwrap());
}

#[test]
fn entries_that_are_no_files_are_not_opened() {
    // The pipe has no writer, so that a reader would block for ever.
    check_altered(|_, entry| {
        fs::remove_file(entry).unwrap();
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, entry, FileType::Fifo, mode, 0).unwrap();
    });
    check_altered(|place, entry| {
        fs::remove_file(entry).unwrap();
        // The path of a socket has a small length limit.
        let socket = place.folder.path().join("s");
        drop(UnixListener::bind(&socket).unwrap());
        fs::rename(socket, entry).unwrap();
    });
}

#[test]
fn an_entry_that_is_a_directory_stays_there() {
    let place = Place::new();
    let (engine, reports) = place.engine();
    engine.load(&module(1)).unwrap();
    let entry = place.entry();
    fs::remove_file(&entry).unwrap();
    fs::create_dir(&entry).unwrap();
    for _ in 0..2 {
        let loaded = engine.load(&module(1)).unwrap();
        check(&loaded, 1);
        let reports = take(&reports);
        assert_eq!(reports.len(), 2, "{reports:?}");
        assert_eq!(reports[0], REJECTED);
        assert_eq!(reports[1].0, CacheProblem::NotStored);
    }
    assert_eq!(place.files("unfinished").len(), 0);
}

#[test]
fn entries_of_other_modes_and_users_are_not_taken() {
    for mode in [0o644, 0o640, 0o620, 0o604, 0o602, 0o400, 0o700, 0o666] {
        check_altered(|_, entry| set_mode(entry, mode));
    }
    if is_root() {
        check_altered(|_, entry| chown(entry, Some(ANOTHER_USER), None).unwrap());
    }
}

#[test]
fn directories_of_other_modes_and_users_are_refused() {
    let place = Place::new();
    for mode in [
        0o755, 0o750, 0o710, 0o701, 0o770, 0o707, 0o720, 0o777, 0o500,
    ] {
        fs::create_dir(place.path()).unwrap();
        set_mode(&place.path(), mode);
        let found = format!("expected a directory of mode 0700, found {mode:04o}");
        refuse(&place.path(), StatusCode::PermissionDenied, &found);
        // The directory must still be empty.
        fs::remove_dir(place.path()).unwrap();
    }
    if is_root() {
        fs::create_dir(place.path()).unwrap();
        set_mode(&place.path(), 0o700);
        chown(place.path(), Some(ANOTHER_USER), None).unwrap();
        refuse(&place.path(), StatusCode::PermissionDenied, "user 12345");
    }
}

#[test]
fn a_directory_that_was_opened_to_others_is_used_no_longer() {
    let place = Place::new();
    let (engine, reports) = place.engine();
    engine.load(&module(1)).unwrap();
    for mode in [0o770, 0o755, 0o702] {
        set_mode(&place.path(), mode);
        let before = fs::read(place.entry()).unwrap();
        let loaded = engine.load(&module(1)).unwrap();
        check(&loaded, 1);
        let outcome = loaded.cache_outcome();
        let is_neither = matches!(
            outcome,
            CacheOutcome::Compiled {
                rejected: Some(_),
                stored: Err(_)
            }
        );
        assert!(is_neither, "{outcome:?}");
        assert_eq!(take(&reports), [REJECTED, NOT_STORED]);
        assert_eq!(fs::read(place.entry()).unwrap(), before);
    }
    set_mode(&place.path(), 0o700);
    check_hit(&engine.load(&module(1)).unwrap());
}

#[test]
fn a_directory_is_made_for_its_user_alone() {
    let place = Place::new();
    let (engine, _) = place.engine();
    engine.load(&module(1)).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.path()), 0o700);
    assert_eq!(mode(&place.secret()), 0o600);
    assert_eq!(mode(&place.entry()), 0o600);
}

#[test]
fn paths_that_are_no_directory_are_refused() {
    let place = Place::new();
    drop(place.engine());
    let link = place.folder.path().join("link");
    symlink(place.path(), &link).unwrap();
    let denied = StatusCode::PermissionDenied;
    refuse(&link, denied, "found a symbolic link");
    refuse(&link.join(""), denied, "found a symbolic link");
    refuse(&link.join("."), denied, "found a symbolic link");
    // A link that stays within the parent directory is rejected too.
    fs::remove_file(&link).unwrap();
    symlink("cache", &link).unwrap();
    refuse(&link, denied, "found a symbolic link");
    refuse(&link.join(""), denied, "found a symbolic link");
    let file = place.folder.path().join("file");
    fs::write(&file, "").unwrap();
    refuse(&file, denied, "found a regular file");
    let missing = place.folder.path().join("missing/cache");
    refuse(
        &missing,
        StatusCode::NotFound,
        "cannot open the parent directory",
    );
    for path in ["", "/", ".."] {
        refuse(
            Path::new(path),
            StatusCode::InvalidArgument,
            "the name of its directory",
        );
    }
}

#[test]
fn a_directory_can_be_handed_over_as_a_capability() {
    let place = Place::new();
    fs::create_dir(place.path()).unwrap();
    let open = || {
        let authority = cap_std::ambient_authority();
        let dir = cap_std::fs::Dir::open_ambient_dir(place.path(), authority).unwrap();
        Cache::open(dir, CacheOptions::default())
    };
    set_mode(&place.path(), 0o755);
    let status = open().unwrap_err();
    assert_eq!(status.code(), StatusCode::PermissionDenied, "{status}");
    set_mode(&place.path(), 0o700);
    for is_first in [true, false] {
        let engine = engine_with(Arc::new(open().unwrap()), Policy::default());
        let loaded = engine.load(&module(1)).unwrap();
        if is_first {
            check_stored(&loaded)
        } else {
            check_hit(&loaded)
        }
    }
}

#[test]
fn a_secret_that_is_wrong_is_an_error() {
    let place = Place::new();
    drop(place.engine());
    let secret = fs::read(place.secret()).unwrap();
    assert_eq!(secret.len(), 32);
    for mode in [0o640, 0o644, 0o604, 0o400, 0o622] {
        set_mode(&place.secret(), mode);
        refuse(
            &place.path(),
            StatusCode::PermissionDenied,
            "callbox-secret",
        );
    }
    set_mode(&place.secret(), 0o600);
    for length in [0, 1, 31, 33, 64] {
        fs::write(place.secret(), vec![7; length]).unwrap();
        refuse(&place.path(), StatusCode::DataLoss, "callbox-secret");
    }
    fs::write(place.secret(), &secret).unwrap();
    let elsewhere = place.folder.path().join("elsewhere");
    fs::rename(place.secret(), &elsewhere).unwrap();
    symlink(&elsewhere, place.secret()).unwrap();
    refuse(&place.path(), StatusCode::PermissionDenied, "symbolic link");
    if is_root() {
        fs::rename(&elsewhere, place.secret()).unwrap();
        chown(place.secret(), Some(ANOTHER_USER), None).unwrap();
        refuse(&place.path(), StatusCode::PermissionDenied, "user 12345");
    }
}

#[test]
fn a_secret_that_was_removed_takes_its_entries_with_it() {
    let place = Place::new();
    let (engine, _) = place.engine();
    engine.load(&module(1)).unwrap();
    let before = fs::read(place.secret()).unwrap();
    fs::remove_file(place.secret()).unwrap();
    let (engine, reports): (_, Reports) = place.engine();
    assert_ne!(fs::read(place.secret()).unwrap(), before);
    let loaded = engine.load(&module(1)).unwrap();
    check_replaced(&loaded, StatusCode::DataLoss);
    assert_eq!(
        take(&reports),
        [(CacheProblem::Rejected, StatusCode::DataLoss)]
    );
    check_hit(&engine.load(&module(1)).unwrap());
}
