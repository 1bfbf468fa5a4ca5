//! Makes room where a limit of the process leaves too little: waits for memory that engines of this
//! process take back, and discards idle instances of any engine, those of the fullest pools first.

use std::cmp::Reverse;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use callbox_core::call::CancelToken;
use callbox_core::locks::locked;

use crate::address_space::{Bytes, plus};
use crate::discard;
use crate::fork::PerProcess;
use crate::shared::EngineShared;

/// The time for which memory that is being taken back is waited for, before instances are
/// discarded. Others may take what becomes free.
const PATIENCE: Duration = Duration::from_millis(20);

/// How often one caller has instances discarded: a guest may ask for more each time.
const MOST_EVICTIONS: u32 = 16;

type Engines = Mutex<Vec<Weak<EngineShared>>>;

static ENGINES: PerProcess<Engines> = PerProcess::of_first(Mutex::new(Vec::new()));

/// Lets an engine's idle instances give way.
pub(crate) fn register(engine: &Arc<EngineShared>) {
    let mut engines = locked(ENGINES.get());
    engines.retain(|engine| engine.strong_count() > 0);
    engines.push(Arc::downgrade(engine));
}

fn engines() -> Vec<Arc<EngineShared>> {
    let engines = locked(ENGINES.get());
    engines.iter().filter_map(Weak::upgrade).collect()
}

/// The instances that are being taken back at one time: those that follow could keep a caller
/// waiting for ever.
pub(crate) struct Freeing(Vec<(Arc<EngineShared>, u64)>);

impl Freeing {
    pub(crate) fn now() -> Self {
        let freeing = engines().into_iter().filter_map(|engine| {
            let all = engine.discarder.freed_with_all()?;
            Some((engine, all))
        });
        Self(freeing.collect())
    }

    /// Waits until one of them, or another instance of its engine, was taken back, at most until
    /// `end`. Returns false if all are.
    pub(crate) fn wait(&self, end: Instant, cancel: Option<&CancelToken>) -> bool {
        self.0.iter().any(|(engine, all)| {
            let (discarder, done) = (&engine.discarder, engine.discarder.done());
            discarder.freed() < *all && discarder.wait_for_freed(done, (None, None), end, cancel)
        })
    }
}

fn wait(engines: &[Arc<EngineShared>], end: Instant, cancel: Option<&CancelToken>) -> bool {
    engines.iter().any(|engine| {
        let discarder = &engine.discarder;
        discarder.wait_for_freed(discarder.done(), (None, None), end, cancel)
    })
}

/// The attempts of one caller to get room.
pub(crate) struct Reclaim {
    begun: Instant,
    /// The number of instances that had been taken back before the last attempt.
    seen: u64,
    /// How often it discarded instances.
    evictions: u32,
}

impl Reclaim {
    pub(crate) fn new() -> Self {
        Self {
            begun: Instant::now(),
            seen: discard::freed(),
            evictions: 0,
        }
    }

    /// When the first attempt began.
    pub(crate) fn begun(&self) -> Instant {
        self.begun
    }

    /// Begins another attempt.
    pub(crate) fn begin(&mut self) {
        self.seen = discard::freed();
    }

    /// Leaves out the instance that the last attempt made, which has been taken back.
    pub(crate) fn leave_out_own(&mut self) {
        self.seen += 1;
    }

    /// Waits for memory, or discards idle instances until they took as much as is missing. Returns
    /// false if neither can help.
    pub(crate) fn make_room(
        &mut self,
        missing: Bytes,
        end: Instant,
        cancel: Option<&CancelToken>,
    ) -> bool {
        let engines = engines();
        let is_patient = self.begun.elapsed() < PATIENCE;
        if is_patient && (discard::freed() > self.seen || wait(&engines, end, cancel)) {
            return true;
        }
        let is_over = || Instant::now() >= end || cancel.is_some_and(CancelToken::is_cancelled);
        let has_evicted = self.evictions < MOST_EVICTIONS && evict(&engines, missing, is_over);
        if !has_evicted {
            return wait(&engines, end, cancel);
        }
        self.evictions += 1;
        // Else the next attempt would discard more than is missing.
        for engine in &engines {
            engine.discarder.wait_for_all(end, cancel);
        }
        true
    }
}

/// Discards idle instances until they took as much as is missing, or the time is over. Discards
/// none if all of them would not do.
fn evict(engines: &[Arc<EngineShared>], missing: Bytes, is_over: impl Fn() -> bool) -> bool {
    let mut pools = Vec::new();
    let mut all = Bytes::default();
    for engine in engines {
        for pool in engine.pools.all() {
            let idle = pool.idle();
            if idle != Bytes::default() {
                all = plus(all, idle);
                pools.push((idle, engine, pool));
            }
        }
    }
    let suffices = |taken: Bytes| std::iter::zip(taken, missing).all(|(taken, most)| taken >= most);
    if !suffices(all) {
        return false;
    }
    // An instance may reserve address space that does not count.
    let of_missing = |idle: Bytes| {
        let limits = std::iter::zip(idle, missing);
        limits
            .filter_map(|(idle, missing)| (missing > 0).then_some(idle))
            .max()
    };
    pools.sort_by_key(|(idle, ..)| Reverse(of_missing(*idle)));
    let mut taken = Bytes::default();
    for (_, engine, pool) in pools {
        while !suffices(taken)
            && !is_over()
            && let Some(bytes) = pool.evict_one()
        {
            taken = plus(taken, bytes);
            // Their deleters may run on.
            engine.discarder.hurry();
        }
    }
    taken != Bytes::default()
}
