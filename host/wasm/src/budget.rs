//! The limits on the work and the time of reading a file.

use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use callbox_core::policy::Limits;
use callbox_core::values::{Result, Status};

use crate::failure::{exhausted, status};
use crate::processor_time::LEAST_SHARE;
use crate::turns::Turns;
use crate::work::FunctionWork;

/// The remainder of the limits on work and time.
pub(crate) struct Budget {
    function: u64,
    module: u64,
    /// The units of the functions that have ended.
    ended: u64,
    clock: Clock,
}

impl Budget {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            function: limits.function_work,
            module: limits.module_work,
            ended: 0,
            clock: Clock {
                begun: Instant::now(),
                limit: limits.compile_time,
                seen: 0,
                turns: Turns::new(),
            },
        }
    }

    /// Checks the work of a function up to the operator at `position`.
    #[inline]
    pub(crate) fn check(&mut self, work: &FunctionWork, index: u32, position: usize) -> Result<()> {
        let units = work.units();
        if units > self.function {
            return Err(exhausted(format!(
                "expected functions of at most {} units of work (`function_work`), found more in function {index} at byte {position}",
                self.function
            )));
        }
        let all = self.ended.saturating_add(units);
        if all > self.module {
            return Err(exhausted(format!(
                "expected functions of at most {} units of work in all (`module_work`), found more in function {index} at byte {position}",
                self.module
            )));
        }
        self.clock.look_after(all + position as u64)
    }

    /// Looks at the clock after the section that ends at `position`.
    pub(crate) fn look(&mut self, position: usize) -> Result<()> {
        self.clock.look_after(self.ended + position as u64)
    }

    /// SHA-256 of the file, with looks at the clock.
    pub(crate) fn digest(&mut self, wasm: &[u8]) -> Result<[u8; 32]> {
        /// A few milliseconds' work.
        const PIECE: usize = 1 << 20;
        let mut hasher = Sha256::new();
        for piece in wasm.chunks(PIECE) {
            hasher.update(piece);
            self.clock.check()?;
        }
        Ok(hasher.finalize().into())
    }

    pub(crate) fn end_function(&mut self, work: &FunctionWork) {
        self.ended = self.ended.saturating_add(work.units());
    }
}

/// The time that reading has taken of the limit on compiling.
struct Clock {
    begun: Instant,
    limit: Option<Duration>,
    /// The units of work and the bytes before the last look.
    seen: u64,
    turns: Turns,
}

impl Clock {
    /// Looks at the clock if there were enough units of work and bytes since the last time.
    #[inline]
    fn look_after(&mut self, progress: u64) -> Result<()> {
        const STEP: u64 = 1 << 16;
        if progress.saturating_sub(self.seen) < STEP {
            return Ok(());
        }
        self.seen = progress;
        self.check()
    }

    /// Fails if the time is over, and lets other files have a turn.
    fn check(&mut self) -> Result<()> {
        let end = self.limit.and_then(|limit| self.begun.checked_add(limit));
        self.turns.look(end);
        /// The processor time in which most modules are read.
        const SHORT: Duration = Duration::from_millis(125);
        /// The most time that a file may have beyond the limit.
        const GRACE: Duration = Duration::from_secs(10);
        let taken = self.begun.elapsed();
        let Some(limit) = self.limit.filter(|limit| taken > *limit) else {
            return Ok(());
        };
        let is_past_grace = taken > limit + limit.min(GRACE);
        match self.turns.processor_time() {
            // The machine did not run this thread.
            Some(used) if used < SHORT.min(limit / LEAST_SHARE) && !is_past_grace => Ok(()),
            Some(used) if used < limit / LEAST_SHARE => Err(status!(
                DeadlineExceeded,
                Caller,
                "the module was not read within {limit:?} (`compile_time_ms`): other work took the processors, of which it got {used:.1?}"
            )),
            _ => Err(too_slow(limit)),
        }
    }
}

/// DEADLINE_EXCEEDED for a module that takes longer to compile than `limit`.
#[must_use]
pub fn too_slow(limit: Duration) -> Status {
    status!(
        DeadlineExceeded,
        Guest,
        "expected the module to compile within {limit:?} (`compile_time_ms`), found that it takes longer"
    )
}
