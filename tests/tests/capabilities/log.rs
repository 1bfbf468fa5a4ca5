//! A guest's standard output and error, and its exit.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use callbox::policy::{Grants, Limits, LogLevel, Policy};
use callbox::wasm::{Config, Engine};
use callbox::{Blame, StatusCode};
use serde_json::{Value, json};

use crate::{script, steps};

type Lines = Vec<(LogLevel, String)>;

/// Runs a script. Returns the logged messages, and whether the script reached its end.
fn logged(least: Option<LogLevel>, limits: Limits, script: Value) -> (Lines, bool) {
    let lines = Arc::new(Mutex::new(Lines::new()));
    let sink = Arc::clone(&lines);
    let engine = Engine::with_config(Config {
        policy: Policy {
            limits,
            ..Policy::default()
        },
        log: Some(Arc::new(move |record| {
            let line = (record.level, record.message.to_owned());
            sink.lock().unwrap().push(line);
        })),
        ..Config::default()
    });
    let grants = Grants {
        clock: true,
        log: least,
        ..Grants::default()
    };
    let ended = script::run(&engine.unwrap(), &grants, &steps(script)).is_ok();
    let lines = std::mem::take(&mut *lines.lock().unwrap());
    (lines, ended)
}

fn out(text: &str) -> Value {
    json!({"do": "write", "at": 1, "path": text})
}

fn err(text: &str) -> Value {
    json!({"do": "write", "at": 2, "path": text})
}

fn check(least: Option<LogLevel>, limits: &Limits, script: Value, expected: &[(LogLevel, &str)]) {
    let (lines, ended) = logged(least, limits.clone(), script);
    let lines: Vec<_> = lines
        .iter()
        .map(|(level, text)| (*level, &**text))
        .collect();
    assert_eq!(lines, expected);
    assert!(ended);
}

#[test]
fn lines_are_logged_where_that_is_granted() {
    use LogLevel::{Error, Info, Trace, Warn};
    let limits = Limits::default();
    let script = json!([out("a\nb"), err("x"), out("c\n\n"), err("y\nz"), out("end")]);
    let all = [
        (Info, "a"),
        (Info, "bc"),
        (Info, ""),
        (Warn, "xy"),
        (Info, "end"),
        (Warn, "z"),
    ];
    for least in [Trace, Info] {
        check(Some(least), &limits, script.clone(), &all);
    }
    check(
        Some(Warn),
        &limits,
        script.clone(),
        &[(Warn, "xy"), (Warn, "z")],
    );
    check(Some(Error), &limits, script.clone(), &[]);
    check(None, &limits, script, &[]);
    let control =
        json!([out("\u{1b}[31mred\r\n"), {"do": "write", "at": 1, "path": {"hex": "ff00410a"}}]);
    let cleaned = [
        (Info, "\u{fffd}[31mred\u{fffd}"),
        (Info, "\u{fffd}\u{fffd}A"),
    ];
    check(Some(Info), &limits, control, &cleaned);
}

#[test]
fn lines_are_cut_and_bounded_like_messages() {
    use LogLevel::{Info, Warn};
    let limits = Limits {
        message_bytes: 8,
        log_bytes: 20,
        ..Limits::default()
    };
    let cut = json!([
        out("0123"),
        out("4567"),
        out("89"),
        out("\n"),
        out("short\n")
    ]);
    let expected = [(Info, "01234567... (8 of 10 bytes shown)"), (Info, "short")];
    check(Some(Info), &limits, cut, &expected);
    // Eight and eight bytes, and the four that remain of the limit.
    let flood = json!([out("aaaaaaaa\nbbbbbbbb\ncccccccc\ndddd\n"), err("gone\n")]);
    let expected = [
        (Info, "aaaaaaaa"),
        (Info, "bbbbbbbb"),
        (Info, "cccc... (4 of 8 bytes shown)"),
    ];
    check(Some(Warn.min(Info).max(Info)), &limits, flood, &expected);
    let empty = json!([{"do": "write", "at": 1, "path": {"repeat": ["\n", 1000]}}]);
    check(Some(Info), &limits, empty, &[(Info, ""); 20]);
}

/// A sink may take its time for each line of one write.
#[test]
fn lines_end_at_the_deadline() {
    const LINES: usize = 20_000;
    let logged = Arc::new(Mutex::new(0));
    let sink = Arc::clone(&logged);
    let mut policy = Policy::default();
    policy.limits.deadline = Some(Duration::from_millis(30));
    let engine = Engine::with_config(Config {
        policy,
        log: Some(Arc::new(move |_| {
            *sink.lock().unwrap() += 1;
            thread::sleep(Duration::from_millis(1));
        })),
        ..Config::default()
    });
    let grants = Grants {
        clock: true,
        log: Some(LogLevel::Info),
        ..Grants::default()
    };
    let script = json!([{"do": "write", "at": 1, "path": {"repeat": ["x\n", LINES]}}]);
    let ended = script::run(&engine.unwrap(), &grants, &steps(script));
    assert_eq!(ended.unwrap_err().code(), StatusCode::DeadlineExceeded);
    // All would take 20 seconds.
    let logged = *logged.lock().unwrap();
    assert!((1..LINES / 2).contains(&logged), "{logged}");
}

#[test]
fn a_closed_stream_takes_nothing() {
    let script = json!([
        {"do": "close", "at": 1},
        {"do": "write", "at": 1, "path": "x", "errno": "badf"},
        {"do": "close", "at": 2}
    ]);
    check(Some(LogLevel::Trace), &Limits::default(), script, &[]);
}

/// Output before an exit is logged, and the exit ends the call.
#[test]
fn an_exit_ends_the_call() {
    let engine = Engine::new().unwrap();
    let grants = Grants {
        clock: true,
        ..Grants::default()
    };
    for code in [0, 1, 125, 126, 255, -1] {
        let script = json!([out("last words"), {"do": "exit", "number": code}, out("never")]);
        let status = script::run(&engine, &grants, &steps(script.clone())).unwrap_err();
        assert_eq!(
            (status.code(), status.blame()),
            (StatusCode::Aborted, Blame::Guest)
        );
        let message = format!("exited with code {code}");
        assert!(status.message().contains(&message), "{status}");
        let (lines, ended) = logged(Some(LogLevel::Info), Limits::default(), script);
        assert_eq!(lines, [(LogLevel::Info, "last words".to_owned())]);
        assert!(!ended);
    }
}
