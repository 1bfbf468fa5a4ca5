//! The compile cache: only unmodified entries are loaded, and no defect of the directory makes a
//! load fail.
#![cfg(unix)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod concurrency;
mod damage;
mod eviction;
mod places;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use callbox::policy::{Limits, Policy};
use callbox::wasm::{Cache, CacheOptions, CacheOutcome, CacheProblem, Config, Engine, Module};
use callbox::{CallSite, Shape, StatusCode};

/// The problems that a cache reported.
type Reports = Arc<Mutex<Vec<(CacheProblem, StatusCode)>>>;

/// A cache directory, removed at the end of the test.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Returns the directory. Its parent belongs to the test as well.
    fn path(&self) -> PathBuf {
        self.folder.path().join("cache")
    }

    fn engine(&self) -> (Engine, Reports) {
        engine(&self.path(), u64::MAX, Policy::default())
    }

    /// Returns the files whose names contain `part`.
    fn files(&self, part: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path()).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        let mut paths: Vec<_> = paths
            .filter(|path| path.to_str().unwrap().contains(part))
            .collect();
        paths.sort();
        paths
    }

    fn entries(&self) -> Vec<PathBuf> {
        self.files(".callbox-module")
    }

    /// Returns the only entry.
    fn entry(&self) -> PathBuf {
        let mut entries = self.entries();
        assert_eq!(entries.len(), 1, "{entries:?}");
        entries.remove(0)
    }

    fn secret(&self) -> PathBuf {
        self.path().join("callbox-secret")
    }
}

/// Makes an engine with a cache in this directory, and returns the cache's reports too.
#[track_caller]
fn engine(path: &Path, max_bytes: u64, policy: Policy) -> (Engine, Reports) {
    let reports = Reports::default();
    let sink = Arc::clone(&reports);
    let options = CacheOptions {
        max_bytes,
        report: Some(Arc::new(move |report| {
            let mut reports = sink.lock().unwrap();
            reports.push((report.problem, report.status.code()));
        })),
    };
    let cache = Cache::open_ambient(path, options).unwrap();
    (engine_with(Arc::new(cache), policy), reports)
}

/// Makes an engine with few instance slots, because a test makes many engines.
fn engine_with(cache: Arc<Cache>, policy: Policy) -> Engine {
    let limits = Limits {
        instances: 4,
        memory_bytes: 1 << 20,
        ..policy.limits
    };
    Engine::with_config(Config {
        policy: Policy { limits, ..policy },
        cache: Some(cache),
        ..Config::default()
    })
    .unwrap()
}

/// Returns a module whose target `f` returns this number. Each number has an entry of its own.
fn module(number: u32) -> Vec<u8> {
    wat::parse_str(format!(
        r#"(module
            (memory (export "memory") 1)
            (func (export "f") (param i32) (result i32)
                (i32.store (i32.load (i32.load offset=16 (local.get 0))) (i32.const {number}))
                (i32.const 0)))"#
    ))
    .unwrap()
}

/// Calls the module's target and checks the number.
#[track_caller]
fn check(module: &Arc<Module>, number: u32) {
    let shape: Shape = "u32[]".parse().unwrap();
    let site = CallSite::new("f", Vec::new(), shape);
    let mut result = [0xff; 4];
    let call = module.prepare_call(site).unwrap();
    call.call(&[], &mut [&mut result]).unwrap();
    assert_eq!(u32::from_le_bytes(result), number);
}

/// Checks that the module was compiled and its existing entry replaced.
#[track_caller]
fn check_replaced(module: &Module, code: StatusCode) {
    match module.cache_outcome() {
        CacheOutcome::Compiled {
            rejected: Some(status),
            stored: Ok(()),
        } => assert_eq!(status.code(), code, "{status}"),
        other => panic!("expected an entry that was rejected and replaced, found {other:?}"),
    }
}

/// Checks that the module was compiled and stored, without an existing entry.
#[track_caller]
fn check_stored(module: &Module) {
    let stored = CacheOutcome::Compiled {
        rejected: None,
        stored: Ok(()),
    };
    let outcome = module.cache_outcome();
    assert_eq!(format!("{outcome:?}"), format!("{stored:?}"));
}

#[track_caller]
fn check_hit(module: &Module) {
    let outcome = module.cache_outcome();
    assert!(matches!(outcome, CacheOutcome::Hit), "{outcome:?}");
}

/// Returns and clears the reports.
fn take(reports: &Reports) -> Vec<(CacheProblem, StatusCode)> {
    std::mem::take(&mut *reports.lock().unwrap())
}

#[test]
fn what_was_stored_is_loaded() {
    let place = Place::new();
    let wasm = module(7);
    let (first, reports) = place.engine();
    assert!(!first.is_cached(&wasm).unwrap());
    let compiled = first.load(&wasm).unwrap();
    check_stored(&compiled);
    check(&compiled, 7);
    assert!(first.is_cached(&wasm).unwrap());
    // Check the engine that stored the module, and another engine on the same directory.
    let (second, other_reports) = place.engine();
    for engine in [&first, &second] {
        let loaded = engine.load(&wasm).unwrap();
        check_hit(&loaded);
        check(&loaded, 7);
    }
    assert_eq!(place.files("").len(), 2, "{:?}", place.files(""));
    assert_eq!([take(&reports), take(&other_reports)], [vec![], vec![]]);
}

#[test]
fn an_engine_without_a_cache_says_so() {
    let engine = Engine::new().unwrap();
    assert!(!engine.is_cached(&module(1)).unwrap());
    let module = engine.load(&module(1)).unwrap();
    let outcome = module.cache_outcome();
    assert!(matches!(outcome, CacheOutcome::NotUsed), "{outcome:?}");
}

#[test]
fn what_is_wrong_with_a_module_is_said_before_the_cache_is_asked() {
    let place = Place::new();
    let (engine, reports) = place.engine();
    for status in [
        engine.load(b"no module").unwrap_err(),
        engine.is_cached(b"no module").unwrap_err(),
    ] {
        assert_eq!(status.code(), StatusCode::InvalidArgument, "{status}");
    }
    // A cached module that exceeds another engine's limits is not loaded by it.
    let wasm = module(1);
    engine.load(&wasm).unwrap();
    let small = Policy {
        limits: Limits {
            module_bytes: 10,
            ..Limits::default()
        },
        ..Policy::default()
    };
    let (small, _) = self::engine(&place.path(), u64::MAX, small);
    let status = small.load(&wasm).unwrap_err();
    assert_eq!(status.code(), StatusCode::ResourceExhausted, "{status}");
    assert_eq!(take(&reports), []);
}
