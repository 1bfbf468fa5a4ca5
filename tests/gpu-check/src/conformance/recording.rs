//! Wraps the platform CUDA and records the status codes of its steps.

use std::cell::RefCell;

use anyhow::Result;
use callbox_tests::case::{Case, Step};
use callbox_tests::platform::cuda::Cuda;
use callbox_tests::platform::{Bench, Failure, Outcome, Platform, PlatformName, Prepared};

thread_local! {
    /// The codes of the case that runs on this thread.
    static CODES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Returns the codes of this thread's last case: of its preparation if that failed, otherwise of
/// each step of its first run.
pub(super) fn take() -> Vec<String> {
    CODES.take()
}

/// Records up to `most` codes. Later ones come from repetitions of the case.
fn note<T>(outcome: &Result<T, Failure>, most: usize) {
    let code = match outcome {
        Ok(_) => "OK".to_owned(),
        Err(failure) => failure.status.code().to_string(),
    };
    CODES.with_borrow_mut(|codes| {
        if codes.len() < most {
            codes.push(code);
        }
    });
}

/// The wrapped platform.
pub(super) struct Recording<'r> {
    cuda: &'r Cuda,
    is_stressed: bool,
}

impl<'r> Recording<'r> {
    pub(super) fn new(cuda: &'r Cuda, is_stressed: bool) -> Self {
        Self { cuda, is_stressed }
    }
}

impl Platform for Recording<'_> {
    fn name(&self) -> PlatformName {
        self.cuda.name()
    }

    fn label(&self) -> String {
        self.cuda.label()
    }

    fn availability(&self) -> Result<(), String> {
        self.cuda.availability()
    }

    fn reason_against(&self, case: &Case) -> Option<&'static str> {
        self.cuda.reason_against(case)
    }

    fn is_stressed(&self) -> bool {
        self.is_stressed
    }

    fn open<'c>(&'c self, case: &'c Case) -> Result<Box<dyn Bench + 'c>> {
        drop(take());
        Ok(Box::new(RecordingBench {
            bench: self.cuda.open(case)?,
            steps: case.steps.len(),
        }))
    }
}

struct RecordingBench<'c> {
    bench: Box<dyn Bench + 'c>,
    steps: usize,
}

impl Bench for RecordingBench<'_> {
    fn prepare(&self) -> Result<Result<Box<dyn Prepared + '_>, Failure>> {
        Ok(match self.bench.prepare()? {
            Ok(prepared) => Ok(Box::new(RecordingPrepared {
                prepared,
                steps: self.steps,
            })),
            Err(failure) => {
                note::<()>(&Err(failure.clone()), 1);
                Err(failure)
            }
        })
    }

    fn run_healthy(&self) -> Result<()> {
        self.bench.run_healthy()
    }
}

struct RecordingPrepared<'p> {
    prepared: Box<dyn Prepared + 'p>,
    steps: usize,
}

impl Prepared for RecordingPrepared<'_> {
    fn run(&self, step: &Step) -> Result<Outcome> {
        let outcome = self.prepared.run(step)?;
        note(&outcome, self.steps);
        Ok(outcome)
    }
}
