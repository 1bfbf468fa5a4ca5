//! Cases: a generated file, what is done with it, and what that may cost.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use callbox::policy::Policy;
use callbox::process::{CompilerProcess, Sandbox, SandboxConfig, Worker};
use callbox::wasm::{Compiler, Config, Engine, inspect};
use callbox::{CallSite, Result, Shape, Status};
use callbox_tests::worker::WORKER;
use rustix::process::{Resource, Rlimit, setrlimit};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::file::File;
use crate::generators::Generator;

/// The program that becomes a compiler.
const PROGRAM: &str = env!("CARGO_BIN_EXE_callbox-conformance");

/// A module with a memory and nothing else.
const EMPTY: &[u8] = b"\0asm\x01\0\0\0\x05\x03\x01\0\0\x07\x0a\x01\x06memory\x02\0";

/// A case. Unknown keys are errors.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Case {
    /// Why the file is expensive.
    #[allow(dead_code, reason = "for readers")]
    origin: String,
    /// Exactly one of `module` and `file`.
    module: Option<Generator>,
    file: Option<File>,
    /// The deadline of a program that is executed, in milliseconds.
    #[serde(default = "short")]
    execution_ms: u64,
    #[serde(default)]
    policy: Value,
    /// Whether the module is compiled in a process of its own, whose costs do not count.
    #[serde(default)]
    compile_elsewhere: bool,
    /// Whether the module is loaded behind the second wall, whose costs do not count.
    #[serde(default)]
    behind_the_wall: bool,
    #[serde(default)]
    action: Action,
    expect: Expectation,
    /// The most time for the action.
    seconds: f64,
    /// The most memory for the action, beyond what the process had before.
    mebibytes: f64,
}

/// What is measured.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Action {
    /// Loading the module, or reading the file.
    #[default]
    Load,
    /// Describing the module without loading it.
    Inspect,
    /// Calling the target `f` of the loaded module, or using the file.
    Call,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expectation {
    /// The status, or `OK`.
    code: String,
    /// Parts of the message.
    #[serde(default)]
    contains: Vec<String>,
}

/// The outcome of a case.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The size of the file.
    bytes: usize,
    code: String,
    blame: String,
    message: String,
    seconds: f64,
    mebibytes: f64,
}

fn compiler() -> Arc<dyn Compiler> {
    Arc::new(CompilerProcess::new(Worker::new(PROGRAM, [WORKER])).unwrap())
}

/// The deadline of programs that would run for long.
fn short() -> u64 {
    100
}

impl Case {
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let text = fs::read(file).map_err(|error| error.to_string())?;
        serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", file.display()))
    }

    /// How long the process may run.
    pub(crate) fn patience(&self) -> Duration {
        Duration::from_secs_f64(20.0 + 4.0 * self.seconds)
    }

    /// Runs the case in this process.
    pub(crate) fn run(&self) -> Outcome {
        match (&self.module, &self.file) {
            (Some(module), None) => self.run_module(&module.module()),
            (None, Some(file)) => {
                let bytes = file.bytes();
                let is_used = matches!(self.action, Action::Call);
                self.measure(&bytes, || {
                    file.read(
                        &bytes,
                        is_used.then(|| Duration::from_millis(self.execution_ms)),
                    )
                })
            }
            _ => panic!("expected a case to have exactly one of `module` and `file`"),
        }
    }

    fn run_module(&self, wasm: &[u8]) -> Outcome {
        let mut policy = match &self.policy {
            Value::Null => Policy::default(),
            policy => Policy::from_json(policy.to_string().as_bytes()).unwrap(),
        };
        policy.limits.instances = policy.limits.instances.min(8);
        if self.behind_the_wall {
            let config = SandboxConfig::new(Worker::new(PROGRAM, [WORKER]));
            let sandbox = Sandbox::new(SandboxConfig { policy, ..config }).unwrap();
            return self.measure(wasm, || sandbox.load(wasm).map(drop));
        }
        let engine = Engine::with_config(Config {
            policy: policy.clone(),
            compiler: self.compile_elsewhere.then(compiler),
            ..Config::default()
        })
        .unwrap();
        if self.compile_elsewhere {
            // The process starts before the measurement.
            engine.load(EMPTY).unwrap();
        }
        match self.action {
            Action::Load => self.measure(wasm, || engine.load(wasm).map(drop)),
            Action::Inspect => self.measure(wasm, || inspect(wasm, &policy.limits).map(drop)),
            Action::Call => {
                let nothing = Shape::tuple(Vec::new()).unwrap();
                let module = engine.load(wasm).unwrap();
                let call = module.prepare_call(CallSite::new("f", Vec::new(), nothing));
                let call = call.unwrap();
                self.measure(wasm, || call.call(&[], &mut []))
            }
        }
    }

    /// Runs the action under a limit on memory, and measures it.
    fn measure(&self, file: &[u8], action: impl FnOnce() -> Result<()>) -> Outcome {
        // Workers would inherit the limit.
        if !self.behind_the_wall {
            self.limit_memory();
        }
        fs::write("/proc/self/clear_refs", "5").unwrap();
        let before = resident();
        let begun = Instant::now();
        let result = action();
        let seconds = begun.elapsed().as_secs_f64();
        let mebibytes = peak() - before;
        let status = result.err();
        let text = |read: fn(&Status) -> String| status.as_ref().map(read).unwrap_or_default();
        Outcome {
            bytes: file.len(),
            code: status
                .as_ref()
                .map_or_else(|| "OK".to_owned(), |status| status.code().to_string()),
            blame: text(|status| status.blame().to_string()),
            message: text(|status| status.message().to_owned()),
            seconds,
            mebibytes,
        }
    }

    /// Limits the process to somewhat more than the case may take.
    fn limit_memory(&self) {
        const MEBIBYTE: f64 = (1 << 20) as f64;
        let most = (1024.0 + 4.0 * self.mebibytes) * MEBIBYTE;
        let limit = Rlimit {
            current: Some(most as u64),
            maximum: Some(most as u64),
        };
        setrlimit(Resource::Data, limit).unwrap();
    }

    /// Compares an outcome with what is expected.
    pub(crate) fn check(&self, outcome: &Outcome) -> Result<(), String> {
        let parts = &self.expect.contains;
        let blame = if self.file.is_some() {
            "caller"
        } else {
            "guest"
        };
        let is_busy = outcome.message.contains("other work took the processors");
        let is_blamed = outcome.code == "OK" || outcome.blame == blame || is_busy;
        let is_as_expected = outcome.code == self.expect.code
            && is_blamed
            && parts.iter().all(|part| outcome.message.contains(part))
            && outcome.seconds <= self.seconds
            && outcome.mebibytes <= self.mebibytes;
        if is_as_expected {
            return Ok(());
        }
        Err(format!(
            "expected {:?}, at most {} s and {} MiB, found {outcome:#?}",
            self.expect, self.seconds, self.mebibytes
        ))
    }
}

/// The resident memory of this process, in MiB.
fn resident() -> f64 {
    memory("VmRSS:")
}

/// The most resident memory since the measurement began, in MiB.
fn peak() -> f64 {
    memory("VmHWM:")
}

fn memory(field: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    let kibibytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kibibytes / 1024.0
}
