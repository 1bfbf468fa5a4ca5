//! `callbox.graph.launch` on CUDA: a function's work, captured once and launched as one graph from then on.
//!
//! The first call of a call site runs its function eagerly, and with that loads what it needs and says which memory it takes. The second takes that
//! memory for good, captures the function's work into a graph, and launches it. Later ones launch the graph: as it is if operands and results lie
//! where they did, and after an update of its parameters if not. What cannot be updated is captured anew.

mod cache;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use self::cache::{Cache, Key, Place};
use super::call::{CudaBuffer, CudaCall};
use super::driver::{GraphExec, Updated};
use super::guard::locked;
use super::module::{CudaModule, CudaTarget};
use super::queue::Captured;
use crate::call::{DeviceBuffer, DeviceQueue, Stage};
use crate::graph_launch;
use crate::values::{Result, Status, StatusCode};

/// What is done with a function that cannot become a graph: one that decides where control goes by a value, or calls a target without the trait
/// `command_buffer_compatible`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Uncapturable {
    /// It runs eagerly, each time.
    #[default]
    RunEagerly,
    /// It fails with FAILED_PRECONDITION.
    Refuse,
}

/// How graphs are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphOptions {
    /// The most graphs that are kept. The one whose last launch is longest ago makes way. Default: 32.
    pub most: usize,
    /// What is done with what cannot become a graph.
    pub uncapturable: Uncapturable,
}

impl Default for GraphOptions {
    fn default() -> Self {
        Self {
            most: 32,
            uncapturable: Uncapturable::default(),
        }
    }
}

/// How often what was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphCounts {
    /// Calls whose function ran eagerly.
    pub eager: u64,
    /// Captures of a function for the first time.
    pub captured: u64,
    /// Launches of a graph as it was.
    pub unchanged: u64,
    /// Launches of a graph whose parameters were updated.
    pub updated: u64,
    /// Captures of a function whose graph could not be updated.
    pub recaptured: u64,
    /// Graphs that made way for others.
    pub evicted: u64,
}

/// The target `callbox.graph.launch`, and its graphs.
#[derive(Clone, Debug, Default)]
pub struct GraphLaunch(Arc<Graphs>);

#[derive(Debug, Default)]
struct Graphs {
    options: GraphOptions,
    cache: Mutex<Cache>,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    eager: AtomicU64,
    captured: AtomicU64,
    unchanged: AtomicU64,
    updated: AtomicU64,
    recaptured: AtomicU64,
    evicted: AtomicU64,
}

/// A call site of the target.
#[derive(Debug)]
struct Site {
    /// Which of its functions it runs.
    number: usize,
    /// Tells it from all others, those of programs that are gone too.
    id: u64,
}

/// A function's graph, and all that it uses. Whoever drops it waits for nothing: what a launch may still use is handed to the device's staging.
#[derive(Debug)]
struct Launchable {
    /// There until this is dropped.
    exec: Option<GraphExec>,
    captured: Captured,
    /// Where operands and results lay when it was captured.
    addresses: Vec<u64>,
}

impl GraphLaunch {
    /// The target, with options.
    #[must_use]
    pub fn new(options: GraphOptions) -> Self {
        Self(Arc::new(Graphs {
            options,
            ..Graphs::default()
        }))
    }

    /// The module to register.
    ///
    /// # Errors
    /// None that depend on the arguments.
    pub fn module(&self) -> Result<Arc<CudaModule>> {
        let graphs = Arc::clone(&self.0);
        let target = CudaTarget::new(graph_launch::NAME, move |call| graphs.run(call))
            .on_instantiate(|stage| {
                static COUNT: AtomicU64 = AtomicU64::new(0);
                Ok(Some(Arc::new(Site {
                    number: graph_launch::function(stage.site())?,
                    id: COUNT.fetch_add(1, Ordering::Relaxed),
                })))
            })
            .declaring(|signature| *signature = graph_launch::signature());
        CudaModule::from_targets([target])
    }

    /// How often what was done.
    #[must_use]
    pub fn counts(&self) -> GraphCounts {
        let counts = &self.0.counts;
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        GraphCounts {
            eager: of(&counts.eager),
            captured: of(&counts.captured),
            unchanged: of(&counts.unchanged),
            updated: of(&counts.updated),
            recaptured: of(&counts.recaptured),
            evicted: of(&counts.evicted),
        }
    }
}

impl Graphs {
    fn run(&self, call: &mut CudaCall<'_>) -> Result<()> {
        // A graph within a graph is part of it.
        if call.is_capturing() || call.queue().is_recording() {
            return self.inline(call);
        }
        let key = Key::new(call)?;
        let (place, evicted) = locked(&self.cache).place(&key, self.options.most);
        self.counts
            .evicted
            .fetch_add(evicted.len() as u64, Ordering::Relaxed);
        drop(evicted);
        // Nobody waits for another's call: whoever comes meanwhile runs eagerly.
        let Ok(mut guard) = place.try_lock() else {
            return self.eager(call).map(drop);
        };
        match &mut *guard {
            Place::New => {
                drop(guard);
                let sizes = self.eager(call)?;
                let mut guard = locked(&place);
                if matches!(*guard, Place::New) {
                    *guard = Place::Seen { sizes };
                }
                return Ok(());
            }
            Place::Uncapturable => {
                drop(guard);
                return self.eager(call).map(drop);
            }
            Place::Refused(status) => return Err(status.clone()),
            Place::Seen { .. } | Place::Graph(_) => {}
        }
        match self.by_graph(call, &mut guard) {
            Ok(()) => Ok(()),
            Err(status) => {
                *guard = self.without_graph(&status, &guard);
                if let Place::Refused(_) = *guard {
                    return Err(status);
                }
                let is_lost = call.device().lost().is_some();
                drop(guard);
                match is_lost {
                    true => Err(status),
                    false => self.eager(call).map(drop),
                }
            }
        }
    }

    /// Launches the graph that there is, or makes one.
    fn by_graph(&self, call: &mut CudaCall<'_>, place: &mut Place) -> Result<()> {
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        let (sizes, counter) = match place {
            Place::Graph(launchable) => {
                let addresses = addresses(call);
                if launchable.addresses == addresses {
                    count(&self.counts.unchanged);
                    return launchable.launch(call);
                }
                if self.updated(call, launchable, addresses)? {
                    return Ok(());
                }
                (launchable.captured.sizes(), &self.counts.recaptured)
            }
            Place::Seen { sizes } => (sizes.clone(), &self.counts.captured),
            _ => return Err(Status::internal("a place without a graph")),
        };
        // The old one goes only when the new one is there.
        let launchable = self.captured(call, &sizes)?;
        count(counter);
        *place = Place::Graph(Box::new(launchable));
        Ok(())
    }

    /// What a place becomes when there is no graph, for this reason.
    fn without_graph(&self, status: &Status, place: &Place) -> Place {
        match (status.code(), self.options.uncapturable) {
            (StatusCode::FailedPrecondition | StatusCode::Unimplemented, Uncapturable::Refuse) => {
                Place::Refused(status.clone())
            }
            (StatusCode::FailedPrecondition | StatusCode::Unimplemented, _) => Place::Uncapturable,
            // There may be room for a graph another time. It is tried anew with what is known.
            _ => match place {
                Place::Graph(launchable) => Place::Seen {
                    sizes: launchable.captured.sizes(),
                },
                Place::Seen { sizes } => Place::Seen {
                    sizes: sizes.clone(),
                },
                _ => Place::New,
            },
        }
    }

    /// Runs the function, and says which memory it took.
    fn eager(&self, call: &mut CudaCall<'_>) -> Result<Vec<usize>> {
        self.counts.eager.fetch_add(1, Ordering::Relaxed);
        call.queue().begin_recording();
        let outcome = self.inline(call);
        let sizes = call.queue().end_recording();
        outcome.map(|()| sizes)
    }

    /// Runs the function, and copies what it gives to the call's results.
    fn inline(&self, call: &mut CudaCall<'_>) -> Result<()> {
        let site = call.state::<Site>(Stage::Instantiate);
        let number = site.ok_or_else(no_function)?.number;
        let memory = |buffers: Vec<CudaBuffer<'_>>| -> Vec<DeviceBuffer> {
            let buffers = buffers.iter();
            buffers.map(|buffer| Arc::clone(buffer.memory())).collect()
        };
        let operands = memory(call.operands());
        let mut found = call.call_function(number, &operands)?;
        let results = memory(call.results());
        // What the function hands on may lie where another result goes, by aliasing.
        for (place, from) in found.iter_mut().enumerate() {
            let mut others = results.iter().enumerate();
            if from.size() > 0
                && others.any(|(other, to)| other != place && to.address() == from.address())
            {
                let apart = call.queue().allocate(from.size())?;
                call.queue().copy(from, &apart)?;
                *from = apart;
            }
        }
        for (from, to) in std::iter::zip(&found, &results) {
            call.queue().copy(from, to)?;
        }
        Ok(())
    }

    /// Captures the function's work in memory of these sizes, and launches it.
    fn captured(&self, call: &mut CudaCall<'_>, sizes: &[usize]) -> Result<Launchable> {
        match self.capture(call, sizes) {
            Err(status) if status.code() == StatusCode::ResourceExhausted => {
                // Graphs take memory: once more without the others.
                let evicted = locked(&self.cache).evict_idle();
                let count = evicted.len() as u64;
                self.counts.evicted.fetch_add(count, Ordering::Relaxed);
                drop(evicted);
                self.capture(call, sizes)
            }
            other => other,
        }
    }

    fn capture(&self, call: &mut CudaCall<'_>, sizes: &[usize]) -> Result<Launchable> {
        let memory = call.queue().take_for_graph(sizes)?;
        let (mut graph, captured) = self.record(call, memory)?;
        let device = Arc::clone(call.device());
        let exec = device.check("making a graph ready", graph.instantiate())?;
        let mut launchable = Launchable {
            exec: Some(exec),
            captured,
            addresses: addresses(call),
        };
        launchable.launch(call)?;
        Ok(launchable)
    }

    /// Has the function's work become a graph, without doing it.
    fn record(
        &self,
        call: &mut CudaCall<'_>,
        memory: Vec<DeviceBuffer>,
    ) -> Result<(super::driver::Graph, Captured)> {
        call.queue().begin_capture(memory)?;
        let outcome = self.inline(call);
        let ended = call.queue().end_capture();
        // What went wrong in it says more than that it went wrong.
        outcome?;
        ended
    }

    /// Captures anew in the same memory, and makes the graph that there is launch that. `false` if it is of another form.
    fn updated(
        &self,
        call: &mut CudaCall<'_>,
        launchable: &mut Launchable,
        addresses: Vec<u64>,
    ) -> Result<bool> {
        let memory = launchable.captured.memory().to_vec();
        let (mut graph, captured) = self.record(call, memory)?;
        let device = Arc::clone(call.device());
        let Some(exec) = &mut launchable.exec else {
            return Ok(false);
        };
        let updated = exec.update(&mut graph);
        if device.check("updating a graph", updated)? == Updated::OtherForm {
            return Ok(false);
        }
        self.counts.updated.fetch_add(1, Ordering::Relaxed);
        // A launch that is still under way may use what the old one used: it stays until that is done.
        launchable.captured = captured;
        launchable.addresses = addresses;
        launchable.launch(call)?;
        Ok(true)
    }
}

impl Launchable {
    fn launch(&mut self, call: &mut CudaCall<'_>) -> Result<()> {
        match &mut self.exec {
            Some(exec) => call.queue().launch_graph(exec, &mut self.captured),
            None => Err(Status::internal("a graph that is gone")),
        }
    }
}

impl Drop for Launchable {
    fn drop(&mut self) {
        if let Some(exec) = self.exec.take() {
            self.captured.keep_graph(exec);
        }
    }
}

/// Where a call's operands and results lie.
fn addresses(call: &CudaCall<'_>) -> Vec<u64> {
    let operands = call.operands();
    let results = call.results();
    let all = operands.iter().chain(&results);
    all.map(CudaBuffer::address).collect()
}

fn no_function() -> Status {
    Status::internal("a graph launch without a function")
}
