//! The platform XLA: runs programs without custom calls on XLA's CPU backend, as an independent
//! check of the cases' expectations.

mod oracle;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, bail};
use callbox::{ArrayShape, ElementType, Literal, Status};
use serde_json::{Value, json};

use self::oracle::{Oracle, Reply};
use super::{Bench, Failure, Found, Outcome, Platform, PlatformName, Prepared};
use crate::case::{Case, Phase, Step, Subject};
use crate::literal::bytes_of_hex;

/// XLA through JAX, in a separate process.
#[derive(Debug)]
pub struct Xla {
    /// The interpreter with JAX, or why there is none.
    python: Result<PathBuf, String>,
    oracle: OnceLock<Result<Mutex<Oracle>, String>>,
}

impl Xla {
    /// Makes the platform with this interpreter, or unavailable for the reason in `Err`.
    #[must_use]
    pub fn new(python: Result<PathBuf, String>) -> Self {
        Self {
            python,
            oracle: OnceLock::new(),
        }
    }

    /// Returns the process, started on the first use.
    fn oracle(&self) -> Result<&Mutex<Oracle>, String> {
        let start = || {
            let oracle = Oracle::start(self.python.as_ref()?, &script());
            oracle.map(Mutex::new).map_err(|error| format!("{error:#}"))
        };
        self.oracle
            .get_or_init(start)
            .as_ref()
            .map_err(Clone::clone)
    }

    /// Releases a program. If the process was replaced since, the new process never had the
    /// program.
    fn release(&self, number: u64) {
        if let Ok(oracle) = self.oracle() {
            let mut oracle = oracle.lock().unwrap_or_else(PoisonError::into_inner);
            oracle.tell(&json!({"release": number}));
        }
    }

    fn ask(&self, request: &Value) -> Result<Reply> {
        let oracle = self.oracle().map_err(anyhow::Error::msg)?;
        oracle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .ask(request)
    }
}

impl Platform for Xla {
    fn name(&self) -> PlatformName {
        PlatformName::Xla
    }

    fn availability(&self) -> Result<(), String> {
        self.oracle().map(drop)
    }

    fn is_stressed(&self) -> bool {
        false
    }

    fn open<'c>(&'c self, case: &'c Case) -> Result<Box<dyn Bench + 'c>> {
        match &case.subject {
            Subject::Program { text, .. } => Ok(Box::new(XlaBench { xla: self, text })),
            Subject::Call { .. } | Subject::FfiCall(_) | Subject::Load { .. } => {
                bail!("expected a program")
            }
        }
    }
}

struct XlaBench<'c> {
    xla: &'c Xla,
    text: &'c str,
}

impl Bench for XlaBench<'_> {
    fn prepare(&self) -> Result<Result<Box<dyn Prepared + '_>, Failure>> {
        Ok(match self.xla.ask(&json!({"compile": self.text}))? {
            Ok(reply) => {
                let number = reply["program"].as_u64().context("expected a program")?;
                let xla = self.xla;
                Ok(Box::new(Compiled { xla, number }))
            }
            Err(problem) => Err(Failure::new(Phase::Prepare, refusal(&problem))),
        })
    }

    /// Guests do not run on this platform.
    fn run_healthy(&self) -> Result<()> {
        Ok(())
    }
}

struct Compiled<'c> {
    xla: &'c Xla,
    number: u64,
}

impl Prepared for Compiled<'_> {
    fn run(&self, step: &Step) -> Result<Outcome> {
        let operands: Vec<Value> = step.operands.iter().map(array_text).collect();
        let request = json!({"execute": self.number, "operands": operands});
        Ok(match self.xla.ask(&request)? {
            Ok(reply) => {
                let results = reply["results"].as_array().context("expected results")?;
                let leaves = results.iter().map(array).collect::<Result<_>>()?;
                Ok(Found::Results(leaves, Vec::new()))
            }
            Err(problem) => Err(Failure::new(Phase::Execute, refusal(&problem))),
        })
    }
}

impl Drop for Compiled<'_> {
    fn drop(&mut self) {
        self.xla.release(self.number);
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("xla/oracle.py")
}

/// Makes a status of XLA's rejection of a program. Its code is not compared: cases that expect a
/// status do not run here.
fn refusal(problem: &str) -> Status {
    Status::invalid_argument(format!("XLA: {problem}"))
}

fn array_text(literal: &Literal) -> Value {
    let leaves = literal.leaves().map(|(shape, bytes)| {
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let ty = shape.element_type().to_string();
        json!({"type": ty, "dimensions": shape.dimensions(), "hex": hex})
    });
    leaves.collect::<Vec<_>>().pop().unwrap_or_default()
}

fn array(text: &Value) -> Result<(ArrayShape, Vec<u8>)> {
    let ty: ElementType = text["type"].as_str().context("expected a type")?.parse()?;
    let dimensions: Vec<usize> = serde_json::from_value(text["dimensions"].clone())?;
    let hex = text["hex"].as_str().context("expected bytes")?;
    Ok((ArrayShape::new(ty, &dimensions)?, bytes_of_hex(hex)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_go_there_and_back() {
        let literal = Literal::array(&[2], &[1.5_f32, -2.0]).unwrap();
        let text = array_text(&literal);
        assert_eq!(
            text,
            json!({"type": "f32", "dimensions": [2], "hex": "0000c03f000000c0"})
        );
        let (shape, bytes) = array(&text).unwrap();
        assert_eq!(shape.to_string(), "f32[2]");
        assert_eq!(Some(bytes.as_slice()), literal.bytes());
    }

    #[test]
    fn without_python_the_platform_is_not_available() {
        let xla = Xla::new(Err("no python3".to_owned()));
        assert_eq!(xla.availability().unwrap_err(), "no python3");
        let xla = Xla::new(Ok("/no/such/python".into()));
        let reason = xla.availability().unwrap_err();
        assert!(reason.contains("cannot start /no/such/python"), "{reason}");
    }
}
