//! Damaged entries.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use callbox::StatusCode;
use callbox::policy::{Policy, Traps};
use callbox::wasm::{CacheProblem, Engine};

use super::{Place, check, check_hit, check_replaced, check_stored, engine, module, take};

/// Returns evenly spread positions below `length` for slow tests, the first and the last included.
fn some_of(length: usize) -> impl Iterator<Item = usize> {
    const PLACES: usize = 24;
    (0..PLACES).map(move |i| i * (length - 1) / (PLACES - 1))
}

fn open(path: &Path) -> File {
    OpenOptions::new().write(true).open(path).unwrap()
}

/// Returns whether the entry is loaded. Otherwise the report must call it corrupt.
#[track_caller]
fn is_taken(engine: &Engine, wasm: &[u8], what: impl std::fmt::Display) -> bool {
    match engine.is_cached(wasm) {
        Ok(is_taken) => {
            assert!(is_taken, "expected the entry to be found, {what}");
            true
        }
        Err(status) => {
            assert_eq!(status.code(), StatusCode::DataLoss, "{what}: {status}");
            false
        }
    }
}

/// Creates a cache with one entry, and returns the entry's bytes.
fn stored(number: u32) -> (Place, Vec<u8>) {
    let place = Place::new();
    let (engine, _) = place.engine();
    check_stored(&engine.load(&module(number)).unwrap());
    let bytes = fs::read(place.entry()).unwrap();
    (place, bytes)
}

#[test]
fn no_entry_with_an_altered_byte_is_taken() {
    let (place, bytes) = stored(1);
    let (engine, _) = place.engine();
    let (wasm, file) = (module(1), open(&place.entry()));
    let mut taken = 0;
    for (i, byte) in bytes.iter().enumerate() {
        // Flip all bits, and a single one.
        for altered in [!byte, byte ^ (1 << (i % 8))] {
            file.write_all_at(&[altered], i as u64).unwrap();
            taken += usize::from(is_taken(&engine, &wasm, format_args!("byte {i}")));
        }
        file.write_all_at(&[*byte], i as u64).unwrap();
    }
    assert_eq!(taken, 0, "of {} bytes", bytes.len());
    assert!(is_taken(&engine, &wasm, "as it was"));
}

#[test]
fn an_altered_entry_is_compiled_anew_and_reported() {
    let (place, bytes) = stored(1);
    let (engine, reports) = place.engine();
    for i in some_of(bytes.len()) {
        open(&place.entry())
            .write_all_at(&[bytes[i] ^ 0x10], i as u64)
            .unwrap();
        let loaded = engine.load(&module(1)).unwrap();
        check_replaced(&loaded, StatusCode::DataLoss);
        check(&loaded, 1);
        let rejected = (CacheProblem::Rejected, StatusCode::DataLoss);
        assert_eq!(take(&reports), [rejected], "byte {i}");
        check_hit(&engine.load(&module(1)).unwrap());
    }
    assert_eq!(take(&reports), []);
}

#[test]
fn no_entry_that_was_cut_is_taken() {
    let (place, bytes) = stored(1);
    let (engine, reports) = place.engine();
    let (wasm, file) = (module(1), open(&place.entry()));
    let mut taken = 0;
    for length in (0..bytes.len()).rev() {
        file.set_len(length as u64).unwrap();
        taken += usize::from(is_taken(&engine, &wasm, format_args!("{length} bytes")));
    }
    assert_eq!(taken, 0, "of {} lengths", bytes.len());
    for length in some_of(bytes.len()) {
        open(&place.entry()).set_len(length as u64).unwrap();
        check_replaced(&engine.load(&wasm).unwrap(), StatusCode::DataLoss);
        assert_eq!(
            take(&reports),
            [(CacheProblem::Rejected, StatusCode::DataLoss)]
        );
    }
}

#[test]
fn no_entry_that_was_extended_is_taken() {
    let (place, bytes) = stored(1);
    let (engine, reports) = place.engine();
    for more in [&[0][..], &[0xff; 32], &bytes[bytes.len() - 32..], &bytes] {
        fs::write(place.entry(), [&bytes, more].concat()).unwrap();
        check_replaced(&engine.load(&module(1)).unwrap(), StatusCode::DataLoss);
        fs::write(place.entry(), [more, &bytes].concat()).unwrap();
        check_replaced(&engine.load(&module(1)).unwrap(), StatusCode::DataLoss);
        let rejected = (CacheProblem::Rejected, StatusCode::DataLoss);
        assert_eq!(take(&reports), [rejected; 2]);
    }
}

#[test]
fn entries_that_changed_places_are_not_taken() {
    let place = Place::new();
    let (engine, reports) = place.engine();
    engine.load(&module(1)).unwrap();
    let first = place.entry();
    engine.load(&module(2)).unwrap();
    let entries = place.entries();
    let second = entries.iter().find(|path| **path != first).unwrap();
    let third = place.path().join("third");
    for (from, to) in [(&first, &third), (second, &first), (&third, second)] {
        fs::rename(from, to).unwrap();
    }
    for number in [1, 2] {
        assert!(!is_taken(&engine, &module(number), number));
        let loaded = engine.load(&module(number)).unwrap();
        check_replaced(&loaded, StatusCode::DataLoss);
        check(&loaded, number);
        check_hit(&engine.load(&module(number)).unwrap());
    }
    let rejected = (CacheProblem::Rejected, StatusCode::DataLoss);
    assert_eq!(take(&reports), [rejected; 2]);
}

#[test]
fn an_entry_by_another_secret_is_not_taken() {
    let (mine, _) = stored(1);
    let (other, foreign) = stored(1);
    // The same module and engine have the same entry name in every directory.
    assert_eq!(mine.entry().file_name(), other.entry().file_name());
    fs::write(mine.entry(), foreign).unwrap();
    let (engine, reports) = mine.engine();
    check_replaced(&engine.load(&module(1)).unwrap(), StatusCode::DataLoss);
    let rejected = (CacheProblem::Rejected, StatusCode::DataLoss);
    assert_eq!(take(&reports), [rejected]);
}

#[test]
fn each_engine_setting_has_entries_of_its_own() {
    let place = Place::new();
    let policies = [(Traps::Signals, false), (Traps::Explicit, false)];
    let policies = policies
        .into_iter()
        .chain([(Traps::Signals, true), (Traps::Explicit, true)]);
    let mut engines = Vec::new();
    for (traps, deterministic) in policies {
        let policy = Policy {
            traps,
            deterministic,
            ..Policy::default()
        };
        let before = place.path().exists().then(|| place.entries());
        let (engine, reports) = engine(&place.path(), u64::MAX, policy);
        check_stored(&engine.load(&module(1)).unwrap());
        let new = place.entries().into_iter();
        let new: Vec<_> = new
            .filter(|path| !before.iter().flatten().any(|known| known == path))
            .collect();
        assert_eq!(new.len(), 1);
        engines.push((engine, reports, new[0].clone()));
    }
    // Entries are rejected under each other's names.
    let bytes: Vec<_> = engines
        .iter()
        .map(|(_, _, path)| fs::read(path).unwrap())
        .collect();
    for (i, (engine, reports, path)) in engines.iter().enumerate() {
        check_hit(&engine.load(&module(1)).unwrap());
        for (j, others) in bytes.iter().enumerate().filter(|(j, _)| *j != i) {
            fs::write(path, others).unwrap();
            let what = format_args!("{j} in place of {i}");
            assert!(!is_taken(engine, &module(1), what));
            let loaded = engine.load(&module(1)).unwrap();
            check_replaced(&loaded, StatusCode::DataLoss);
            check(&loaded, 1);
        }
        let rejected = (CacheProblem::Rejected, StatusCode::DataLoss);
        assert_eq!(take(reports), [rejected; 3]);
    }
}
