//! The directory stays below its size limit.

use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::time::{Duration, SystemTime};

use callbox::StatusCode;
use callbox::policy::Policy;
use callbox::wasm::{CacheOutcome, CacheProblem};

use super::{Place, check, check_hit, check_stored, engine, module, take};

/// Sets a file's last use to `seconds` ago.
fn age(path: &Path, seconds: u64) {
    let time = SystemTime::now() - Duration::from_secs(seconds);
    let file = File::options().write(true).open(path).unwrap();
    file.set_times(FileTimes::new().set_modified(time)).unwrap();
}

fn total(place: &Place) -> u64 {
    let files = place.files(".callbox-");
    files.iter().map(|p| fs::metadata(p).unwrap().len()).sum()
}

/// Returns the size of an entry. The modules' entries are of similar size.
fn entry_size() -> u64 {
    let place = Place::new();
    place.engine().0.load(&module(1)).unwrap();
    fs::metadata(place.entry()).unwrap().len()
}

#[test]
fn what_was_not_used_for_longest_goes_first() {
    let place = Place::new();
    let most = 3 * entry_size() + entry_size() / 2;
    let (engine, reports) = engine(&place.path(), most, Policy::default());
    for number in 1..=3 {
        let before = place.entries();
        check_stored(&engine.load(&module(number)).unwrap());
        let new = place.entries();
        let new = new.iter().find(|path| !before.contains(path)).unwrap();
        age(new, 400 - 100 * u64::from(number));
    }
    // Use the oldest entry, which makes the second one the oldest.
    check_hit(&engine.load(&module(1)).unwrap());
    check_stored(&engine.load(&module(4)).unwrap());
    let is_cached: Vec<_> = (1..=4)
        .map(|number| engine.is_cached(&module(number)).unwrap())
        .collect();
    assert_eq!(is_cached, [true, false, true, true]);
    assert!(total(&place) <= most);
    assert_eq!(take(&reports), []);
}

#[test]
fn it_is_never_larger_than_it_may_be() {
    let place = Place::new();
    let most = 5 * entry_size();
    let (engine, reports) = engine(&place.path(), most, Policy::default());
    for number in 0..30 {
        check_stored(&engine.load(&module(number)).unwrap());
        assert!(total(&place) <= most, "after module {number}");
    }
    assert!(place.entries().len() >= 4);
    assert_eq!(take(&reports), []);
    // An engine with a smaller limit evicts entries when it opens the directory.
    drop(self::engine(&place.path(), most / 2, Policy::default()));
    assert!(total(&place) <= most / 2);
    assert!(!place.entries().is_empty());
}

#[test]
fn an_entry_that_is_too_large_is_not_stored() {
    let place = Place::new();
    let most = entry_size() / 2;
    let (engine, reports) = engine(&place.path(), most, Policy::default());
    let loaded = engine.load(&module(1)).unwrap();
    check(&loaded, 1);
    let exhausted = StatusCode::ResourceExhausted;
    match loaded.cache_outcome() {
        CacheOutcome::Compiled {
            rejected: None,
            stored: Err(status),
        } => assert_eq!(status.code(), exhausted, "{status}"),
        other => panic!("expected a module that is not stored, found {other:?}"),
    }
    assert_eq!(take(&reports), [(CacheProblem::NotStored, exhausted)]);
    assert!(place.entries().is_empty());
}

#[test]
fn what_a_writer_left_behind_is_swept() {
    let place = Place::new();
    drop(place.engine());
    let unfinished = |name: &str| place.path().join(format!("{name}.callbox-unfinished"));
    for name in ["old", "young"] {
        fs::write(unfinished(name), "half of it").unwrap();
    }
    age(&unfinished("old"), 600);
    let (engine, _) = place.engine();
    assert_eq!(place.files("unfinished"), [unfinished("young")]);
    // Eviction also happens with each store.
    age(&unfinished("young"), 600);
    engine.load(&module(1)).unwrap();
    assert!(place.files("unfinished").is_empty());
}

#[test]
fn unfinished_files_count() {
    let place = Place::new();
    drop(place.engine());
    let most = 2 * entry_size();
    let unfinished = place.path().join("a.callbox-unfinished");
    fs::write(&unfinished, vec![0; (most - 10) as usize]).unwrap();
    let (engine, reports) = engine(&place.path(), most, Policy::default());
    check(&engine.load(&module(1)).unwrap(), 1);
    let exhausted = StatusCode::ResourceExhausted;
    assert_eq!(take(&reports), [(CacheProblem::NotStored, exhausted)]);
    assert!(unfinished.exists() && place.entries().is_empty());
}

#[test]
fn what_is_not_the_caches_own_is_left_alone() {
    let place = Place::new();
    drop(place.engine());
    let (file, folder) = (place.path().join("notes"), place.path().join("folder"));
    fs::write(&file, vec![0; 100_000]).unwrap();
    fs::create_dir(&folder).unwrap();
    for path in [&file, &place.secret()] {
        age(path, 1_000_000);
    }
    let (engine, reports) = engine(&place.path(), entry_size() * 3 / 2, Policy::default());
    for number in 0..4 {
        check_stored(&engine.load(&module(number)).unwrap());
    }
    assert_eq!(take(&reports), []);
    assert!(file.exists() && folder.exists());
    assert_eq!(place.entries().len(), 1);
}
