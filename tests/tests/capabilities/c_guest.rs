//! A guest in C that opens files: `guests/c/wasi/table.c`.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use callbox::policy::{Access, Directory, Grants, LogLevel, Policy};
use callbox::wasm::{Config, Engine};
use callbox::{Blame, CallSite, ElementType, Result, Shape, StatusCode};

/// Calls a target that returns numbers, with the folder granted as `/tables`. Also returns its log
/// messages.
fn call(
    target: &str,
    shape: &[usize],
    folder: &Path,
    access: Access,
) -> (Result<Vec<i32>>, Vec<(LogLevel, String)>) {
    let wasm = callbox_tests::module::read_guest("table").unwrap();
    let lines = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&lines);
    let engine = Engine::with_config(Config {
        policy: Policy::default(),
        log: Some(Arc::new(move |record| {
            let line = (record.level, record.message.to_owned());
            sink.lock().unwrap().push(line);
        })),
        ..Config::default()
    });
    let grants = Grants {
        directories: vec![Directory {
            path: folder.to_owned(),
            name: "/tables".to_owned(),
            access,
        }],
        ..Grants::log(LogLevel::Info)
    };
    let module = engine.unwrap().load_with(&wasm, &grants).unwrap();
    let result = Shape::array(ElementType::S32, shape).unwrap();
    let prepared = module.prepare_call(CallSite::new(target, Vec::new(), result));
    let mut bytes = vec![0; 4 * shape.iter().product::<usize>()];
    let outcome = prepared.unwrap().call(&[], &mut [&mut bytes]);
    let numbers = bytes
        .chunks(4)
        .map(|n| i32::from_le_bytes(n.try_into().unwrap()));
    let lines = std::mem::take(&mut *lines.lock().unwrap());
    (outcome.map(|()| numbers.collect()), lines)
}

#[test]
fn a_table_is_read_into_a_result() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("numbers.txt");
    fs::write(&path, "1\n-20\n300\n2147483647\n").unwrap();
    let (numbers, lines) = call("table", &[4], folder.path(), Access::Read);
    assert_eq!(numbers.unwrap(), [1, -20, 300, i32::MAX]);
    let line = "read /tables/numbers.txt".to_owned();
    assert_eq!(lines, [(LogLevel::Warn, line)]);
    let (short, _) = call("table", &[5], folder.path(), Access::Read);
    assert_eq!(short.unwrap_err().code(), StatusCode::OutOfRange);
    fs::remove_file(path).unwrap();
    let missing = call("table", &[4], folder.path(), Access::Read)
        .0
        .unwrap_err();
    assert_eq!(
        (missing.code(), missing.blame()),
        (StatusCode::NotFound, Blame::Guest)
    );
    let end = " failed: the guest says \"No such file or directory\"";
    assert!(missing.message().ends_with(end), "{missing}");
}

#[test]
fn a_file_is_written_where_that_is_granted() {
    let folder = tempfile::tempdir().unwrap();
    for (access, can) in [(Access::Read, 0), (Access::ReadWrite, 1)] {
        let (numbers, _) = call("can_write", &[], folder.path(), access);
        assert_eq!(numbers.unwrap(), [can]);
        assert_eq!(folder.path().join("numbers.txt").exists(), can == 1);
    }
}
