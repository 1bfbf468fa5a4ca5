//! `callbox run --record`: writes capsules of the calls of a program.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use callbox::policy::Policy;
use callbox::{CallSite, Literal, Result, Shape, Status};

use crate::capsule::{self, Capsule, StatusRecord};
use crate::failure::Outcome;
use crate::modules::OpenedFile;
use crate::policy::PolicyArguments;
use crate::{call, output};

/// The most capsules of a program.
const MOST: u64 = 100;

/// Writes capsules to a folder.
#[derive(Debug)]
pub(super) struct Recorder {
    folder: PathBuf,
    every: Option<NonZeroU64>,
    policy: Policy,
    deadline_ms: Option<u64>,
    calls: AtomicU64,
    written: AtomicU64,
}

impl Recorder {
    pub(super) fn new(
        folder: &Path,
        every: Option<NonZeroU64>,
        policy: &PolicyArguments,
    ) -> Outcome<Self> {
        capsule::make_folder(folder)?;
        Ok(Self {
            folder: folder.to_owned(),
            every,
            deadline_ms: policy.deadline_ms(),
            policy: policy.read()?,
            calls: AtomicU64::new(0),
            written: AtomicU64::new(0),
        })
    }

    /// Records a call if it failed, or if it is an N-th one. What cannot be recorded is told.
    pub(super) fn observe(
        &self,
        file: &OpenedFile,
        site: &CallSite,
        operands: &[&[u8]],
        results: &[&mut [u8]],
        outcome: &Result<()>,
    ) {
        let number = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
        let is_nth = self.every.is_some_and(|every| number % every == 0);
        if !is_nth && outcome.is_ok() {
            return;
        }
        match self.written.fetch_add(1, Ordering::Relaxed) {
            ..MOST => {}
            MOST => return output::warn(&format!("only the first {MOST} calls are recorded")),
            _ => return,
        }
        let results = || results.iter().map(|result| result.to_vec()).collect();
        let outcome = match outcome {
            Ok(()) => Ok(call::to_row_major_order(&site.result, results())),
            Err(status) => Err(StatusRecord::from(status)),
        };
        let written = self.capsule(file, site, operands, outcome);
        let written = written.map_err(Into::into);
        let written =
            written.and_then(|capsule| capsule::write(&capsule, &self.folder, output::note));
        if let Err(failure) = written {
            let (target, status) = (site.label(), failure.status());
            output::warn(&format!("a call of {target} is not recorded: {status}"));
        }
    }

    fn capsule(
        &self,
        file: &OpenedFile,
        site: &CallSite,
        operands: &[&[u8]],
        outcome: std::result::Result<Vec<Vec<u8>>, StatusRecord>,
    ) -> Result<Capsule> {
        let leaves = site.operands.iter().flat_map(Shape::leaves);
        let operands = leaves.zip(operands).map(|(shape, bytes)| {
            let shape = shape.clone().without_layout();
            Literal::from_bytes(shape, bytes.to_vec())
        });
        let operands = operands.collect::<Result<_>>();
        Ok(Capsule {
            file: file.name(),
            module: file.contents.bytes().to_vec(),
            policy: self.policy.clone(),
            deadline_ms: self.deadline_ms,
            site: site.clone(),
            operands: operands.map_err(|status: Status| status.context("an operand"))?,
            outcome,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        })
    }
}
