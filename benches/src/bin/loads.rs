//! Prints what loads of a module take: compiled in a child process, beside compiling in this
//! process; from the cache, beside reading the file; and beside eight hostile modules that load all
//! the time, beside the same alone.
//!
//! The loads that are compared alternate, or run in turns of some seconds beside hostile modules.
//! Each figure is the median of many, and each difference and ratio that of the rounds.

#![allow(
    clippy::print_stdout,
    reason = "a command-line program prints its results"
)]

use std::fmt::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use callbox::policy::{CompileIn, Limits, Policy};
use callbox::process::{CompilerProcess, Worker, worker_main};
use callbox::wasm::{Cache, CacheOptions, Compiler, Config, Engine, ModuleFile};
use callbox_benches::guest;
use callbox_benches::second_wall::{WORKER, is_worker};

/// How often each load is measured.
const ROUNDS: usize = 100;

/// How often the hostile modules begin and end.
const TURNS: usize = 4;

/// How many hostile modules load at one time.
const HOSTILE: usize = 8;

fn main() -> Result<ExitCode> {
    if is_worker() {
        return Ok(worker_main());
    }
    let compiler = Arc::new(CompilerProcess::new(Worker::this_program([WORKER]))?);
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    println!("load before: {}", load.trim());
    println!("\n| a load of `add_n` | median of {ROUNDS} | beside | more | ratio | goal |");
    println!("| --- | --- | --- | --- | --- | --- |");
    alone(&compiler)?;
    beside_hostile(&compiler)?;
    Ok(ExitCode::SUCCESS)
}

/// Loads without and with the cache.
fn alone(compiler: &Arc<CompilerProcess>) -> Result<()> {
    let wasm = guest("add_n");
    let limits = Limits::default();
    let here = engine(compiler, CompileIn::ThisProcess, limits.clone())?;
    let there = engine(compiler, CompileIn::Process, limits.clone())?;
    let folder = tempfile::tempdir()?;
    let cache = Cache::open_ambient(&folder.path().join("cache"), CacheOptions::default())?;
    let cached = Engine::with_config(Config {
        cache: Some(Arc::new(cache)),
        ..Config::default()
    })?;
    let [here, there, read, cached] = measure(
        ROUNDS,
        [
            &mut || here.load(&wasm).map(drop),
            &mut || there.load(&wasm).map(drop),
            &mut || ModuleFile::read(wasm.clone(), &limits).map(drop),
            &mut || cached.load(&wasm).map(drop),
        ],
    )?;
    row(
        "compiled in a child, to in this process",
        &there,
        &here,
        "3 ms more",
    );
    row("from the cache, to reading the file", &cached, &read, "");
    Ok(())
}

/// Loads beside modules that take long to compile, and beside files that take long to read.
fn beside_hostile(compiler: &Arc<CompilerProcess>) -> Result<()> {
    let wasm = guest("add_n");
    let limits = Limits {
        function_work: u64::MAX,
        module_work: u64::MAX,
        compile_time: Some(Duration::from_secs(3)),
        compile_refusal: None,
        ..Limits::default()
    };
    let engine = engine(compiler, CompileIn::Process, limits)?;
    let slow = (0..HOSTILE)
        .map(slow_to_compile)
        .collect::<Result<Vec<_>>>()?;
    let long: Vec<_> = (0..HOSTILE).map(slow_to_read).collect();
    for (what, hostile) in [
        ("beside eight that take long to compile, to alone", slow),
        ("beside eight that take long to read, to alone", long),
    ] {
        let mut load = || engine.load(&wasm).map(drop);
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            let [times] = measure(ROUNDS / TURNS, [&mut load])?;
            alone.extend(times);
            let [times] =
                while_loading(&engine, &hostile, || measure(ROUNDS / TURNS, [&mut load]))?;
            beside.extend(times);
        }
        row(what, &beside, &alone, "2x");
    }
    Ok(())
}

/// Runs `work` while each of the hostile modules is loaded again and again.
fn while_loading<T>(engine: &Engine, hostile: &[Vec<u8>], work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for wasm in hostile {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    // It fails, or runs out of time.
                    drop(engine.load(wasm));
                }
            });
        }
        thread::sleep(Duration::from_secs(2));
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        done
    })
}

fn engine(
    compiler: &Arc<CompilerProcess>,
    compile: CompileIn,
    limits: Limits,
) -> callbox::Result<Engine> {
    Engine::with_config(Config {
        policy: Policy {
            compile,
            limits,
            ..Policy::default()
        },
        compiler: Some(Arc::clone(compiler) as Arc<dyn Compiler>),
        ..Config::default()
    })
}

/// The times of these actions, which take turns.
fn measure<const N: usize>(
    rounds: usize,
    mut actions: [&mut dyn FnMut() -> callbox::Result<()>; N],
) -> Result<[Vec<Duration>; N]> {
    let mut times = [const { Vec::new() }; N];
    for _ in 0..rounds {
        for (times, action) in times.iter_mut().zip(&mut actions) {
            let begun = Instant::now();
            action()?;
            times.push(begun.elapsed());
        }
    }
    Ok(times)
}

/// Prints medians, in milliseconds, and the medians of the differences and ratios of the rounds.
fn row(what: &str, times: &[Duration], beside: &[Duration], goal: &str) {
    let pairs = || {
        let pairs = times.iter().zip(beside);
        pairs.map(|(time, beside)| (milliseconds(*time), milliseconds(*beside)))
    };
    let time = median(pairs().map(|(time, _)| time));
    let other = median(pairs().map(|(_, beside)| beside));
    let more = median(pairs().map(|(time, beside)| time - beside));
    let ratio = median(pairs().map(|(time, beside)| time / beside));
    println!("| {what} | {time:.2} ms | {other:.2} ms | {more:+.2} ms | {ratio:.2}x | {goal} |");
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Nested loops that set each other's locals: a few kilobytes that take minutes to compile.
fn slow_to_compile(number: usize) -> Result<Vec<u8>> {
    const DEPTH: usize = 1600;
    const LOCALS: usize = 200;
    let local = |number: usize| 1 + number % LOCALS;
    let mut text = format!(
        r#"(module (memory (export "memory") 1) (func (export "f") (param i32) (result i32)
            (local {}) (local.set 1 (i32.const {number}))"#,
        "i32 ".repeat(LOCALS)
    );
    for depth in 0..DEPTH {
        let (to, from) = (local(depth), local(depth * 7 + 3));
        write!(
            text,
            " (loop (local.set {to} (i32.add (local.get {to}) (local.get {from})))"
        )?;
    }
    for depth in 0..DEPTH {
        write!(text, " (br_if 0 (local.get {})))", local(depth))?;
    }
    text.push_str(" (i32.const 0)))");
    Ok(wat::parse_str(text)?)
}

/// 60 MB of functions, of which the last one is not valid.
fn slow_to_read(number: usize) -> Vec<u8> {
    const FUNCTIONS: u32 = 240;
    const BYTES: usize = 250_000;
    let section = |id: u8, contents: Vec<u8>| [vec![id], leb(contents.len()), contents].concat();
    let functions = leb(FUNCTIONS as usize);
    // No locals; a constant; `i32.eqz` again and again; the end.
    let mut body = vec![0, 0x41, number as u8];
    body.resize(BYTES, 0x45);
    body.push(0x0b);
    let body = [leb(body.len()), body].concat();
    let mut code = functions.clone();
    for _ in 1..FUNCTIONS {
        code.extend_from_slice(&body);
    }
    code.extend_from_slice(&[2, 0, 0x0b]);
    [
        b"\0asm\x01\0\0\0".to_vec(),
        section(1, vec![1, 0x60, 0, 1, 0x7f]),
        section(3, [functions, vec![0; FUNCTIONS as usize]].concat()),
        section(5, vec![1, 0, 1]),
        section(7, b"\x01\x06memory\x02\0".to_vec()),
        section(10, code),
    ]
    .concat()
}

/// A number in LEB128.
fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}
