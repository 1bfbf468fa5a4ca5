//! Files of many parts: modules, texts and array files in which something is repeated, nested or
//! long. Whatever they hold, reading them takes time and memory in proportion to their bytes.

mod bombs;
mod texts;

use std::io::Cursor;
use std::sync::OnceLock;

use arbitrary::{Result, Unstructured};
use callbox::call::Platform;
use callbox::cuda::manifest::Manifest;
use callbox::policy::{Limits, Policy};
use callbox::program::{Executable, Program, attributes_from_mlir};
use callbox::wasm::{Config, Engine, inspect};
use callbox::{CallSite, Registry, Shape, Status, StatusCode};
use callbox_cli::files::{ReadError, npy, tensors};

use crate::Target;
use crate::budget::{Cost, Meter};
use crate::generators::Generator;
use crate::outcome::Outcome;

/// The target.
pub const TARGET: Target = Target {
    name: "cost",
    run,
    max_len: 256,
    executions: 300,
    words: &[],
};

/// What a file of this kind may cost: a base, and an amount for each byte.
#[derive(Clone, Copy)]
struct Budget {
    milliseconds: u64,
    nanoseconds_for_a_byte: u64,
    mebibytes: u64,
    bytes_for_a_byte: u64,
}

/// For a text or an array file. JSON takes the most: a value of 72 bytes for two of `[],`.
const FILE: Budget = Budget {
    milliseconds: 500,
    nanoseconds_for_a_byte: 10_000,
    mebibytes: 16,
    bytes_for_a_byte: 400,
};

/// For a module, which is compiled under tight limits.
const MODULE: Budget = Budget {
    milliseconds: 2_000,
    nanoseconds_for_a_byte: 10_000,
    mebibytes: 96,
    bytes_for_a_byte: 400,
};

/// The first byte chooses the kind of file, the rest its parts.
fn run(input: &[u8]) -> Outcome {
    let Some((&kind, rest)) = input.split_first() else {
        return Outcome::of("too few bytes");
    };
    let mut u = Unstructured::new(rest);
    let ran = match texts::GRAMMARS.get(usize::from(kind) % (texts::GRAMMARS.len() + 4)) {
        Some(grammar) => grammar.file(&mut u).map(|file| text(grammar.kind, &file)),
        None => bombs::module(&mut u).map(|generator| module(&generator)),
    };
    ran.unwrap_or_else(|_| Outcome::of("too few bytes"))
}

/// Reads a file and checks what it cost.
fn text(kind: texts::Kind, file: &[u8]) -> Outcome {
    let meter = Meter::new();
    let read = read(kind, file);
    let shown = file[..file.len().min(200)].escape_ascii();
    FILE.check(meter.cost(), file.len(), || {
        format!("{kind:?} of {} bytes, {shown}: {read:?}", file.len())
    });
    outcome(kind, &read)
}

fn read(kind: texts::Kind, file: &[u8]) -> Result<(), Status> {
    use texts::Kind;
    let text = String::from_utf8_lossy(file);
    match kind {
        Kind::Hlo => {
            let program = Program::from_hlo_text(&text)?;
            drop(program.to_hlo_text());
            Executable::compile(&program, &Registry::new(), Platform::Host).map(drop)
        }
        Kind::Manifest => {
            let vector: Shape = "f32[1024]".parse()?;
            for target in &Manifest::parse(&text)?.targets {
                let name = target.signature.name.as_str();
                let site = CallSite::new(name, vec![vector.clone()], vector.clone());
                drop(target.plan(&site));
            }
            Ok(())
        }
        Kind::Policy => Policy::from_json(file).map(drop),
        Kind::Metadata => inspect(&super::metadata::module(file), &Limits::default()).map(drop),
        Kind::Attributes => attributes_from_mlir(&text).map(drop),
        Kind::Shape => text.parse::<Shape>().map(drop),
        Kind::Npy => array(npy::read(file, None)),
        Kind::Safetensors => array(tensors::read(Cursor::new(file), "x", None)),
    }
}

fn array<T>(read: Result<T, ReadError>) -> Result<(), Status> {
    match read {
        Ok(_) => Ok(()),
        Err(ReadError::Status(status)) => Err(status),
        Err(ReadError::Io(error)) => panic!("{error}"),
    }
}

/// Describes a module, loads it, and checks what each cost.
fn module(generator: &Generator) -> Outcome {
    let wasm = generator.module();
    let engine = engine();
    let shown = |what: &str, result: &Result<(), Status>| {
        format!("{what} {generator:?}, of {} bytes: {result:?}", wasm.len())
    };
    let meter = Meter::new();
    let described = inspect(&wasm, &engine.policy().limits).map(drop);
    FILE.check(meter.cost(), wasm.len(), || shown("inspecting", &described));
    let meter = Meter::new();
    let loaded = engine.load(&wasm).map(drop);
    MODULE.check(meter.cost(), wasm.len(), || shown("loading", &loaded));
    let generator = std::mem::discriminant(generator);
    outcome(generator, &loaded)
}

/// An engine whose limits are tight, so that a module within them is compiled in little time.
fn engine() -> &'static Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| {
        let limits = Limits {
            function_work: 1 << 14,
            module_work: 1 << 16,
            functions: 1 << 10,
            instances: 2,
            compile_refusal: None,
            ..Limits::default()
        };
        let policy = Policy {
            limits,
            ..Policy::default()
        };
        let config = Config {
            policy,
            ..Config::default()
        };
        Engine::with_config(config).unwrap()
    })
}

fn outcome(kind: impl std::hash::Hash, result: &Result<(), Status>) -> Outcome {
    match result {
        Ok(()) => Outcome::of((kind, "read")),
        Err(status) => {
            assert_ne!(status.code(), StatusCode::Internal, "{status}");
            assert!(
                status.message().len() <= 8 << 10,
                "a message of {} bytes",
                status.message().len()
            );
            Outcome::of((kind, Outcome::failure(status)))
        }
    }
}

impl Budget {
    fn check(self, cost: Cost, bytes: usize, what: impl Fn() -> String) {
        let bytes = bytes as u64;
        let milliseconds = self.milliseconds + bytes * self.nanoseconds_for_a_byte / 1_000_000;
        assert!(
            cost.milliseconds <= milliseconds,
            "expected at most {milliseconds} ms, found {}: {}",
            cost.milliseconds,
            what()
        );
        let kibibytes = (self.mebibytes << 10) + bytes * self.bytes_for_a_byte / 1024;
        assert!(
            cost.kibibytes <= kibibytes,
            "expected at most {kibibytes} KiB, found {}: {}",
            cost.kibibytes,
            what()
        );
    }
}
