//! `callbox.graph.launch` on CUDA: the work of a function, captured once and then launched as one
//! graph.
//!
//! The first call of a call site runs its function eagerly. That loads the kernels, which a capture
//! cannot, and records which memory the function allocates. The second call allocates that memory
//! for the graph, captures the work, and launches the graph. Later calls launch the same graph. If
//! operands or results have other addresses, the graph's parameters are updated first
//! (`cuGraphExecUpdate`), and if the work has another form, it is captured again.
//!
//! Captures use the relaxed mode, because pinned slots are taken and their events are queried
//! during a capture. Only targets with the trait `command_buffer_compatible` are captured.

mod cache;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use callbox_core::call::{DeviceBuffer, DeviceQueue, Stage};
use callbox_core::graph_launch;
use callbox_core::locks::locked;
use callbox_core::values::{Result, Status, StatusCode};

use self::cache::{GraphCache, GraphEntry, GraphKey, GraphState};
use super::call::{CudaBuffer, CudaCall};
use super::driver::{Graph, GraphExec, Updated};
use super::module::{CudaModule, CudaTarget};
use super::queue::Captured;

/// The handling of a function that cannot be captured, because it branches on a value or calls a
/// target without the trait `command_buffer_compatible`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Uncapturable {
    /// It runs eagerly in each call.
    #[default]
    RunEagerly,
    /// It fails with FAILED_PRECONDITION.
    Refuse,
}

/// Options for graphs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphOptions {
    /// The most graphs that are kept. The least recently launched one is evicted. Default: 32.
    pub most: usize,
    /// The handling of a function that cannot be captured.
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

/// Counts the work of a [`GraphLaunch`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GraphCounts {
    /// Calls that ran their function eagerly.
    pub eager: u64,
    /// First captures of a function.
    pub captured: u64,
    /// Launches of an unchanged graph.
    pub unchanged: u64,
    /// Launches of a graph whose parameters were updated.
    pub updated: u64,
    /// Captures of a function whose graph could not be updated.
    pub recaptured: u64,
    /// Evicted graphs.
    pub evicted: u64,
}

/// The target `callbox.graph.launch`, and its graphs.
#[derive(Clone, Debug, Default)]
pub struct GraphLaunch(Arc<Graphs>);

#[derive(Debug, Default)]
struct Graphs {
    options: GraphOptions,
    cache: Mutex<GraphCache>,
    counts: Mutex<GraphCounts>,
}

/// A call site of the target.
#[derive(Debug)]
struct GraphSite {
    /// The number of the function that it runs.
    number: usize,
    /// A number that no other call site of this process has.
    id: u64,
}

/// A function's graph, and the values that it uses.
///
/// Dropping it does not wait: the device's staging keeps the values that a launch may still use.
#[derive(Debug)]
struct Launchable {
    /// `None` only while the value is dropped.
    exec: Option<GraphExec>,
    captured: Captured,
    /// The addresses of operands and results at the last capture.
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
                Ok(Some(Arc::new(GraphSite {
                    number: graph_launch::function(stage.site())?,
                    id: COUNT.fetch_add(1, Ordering::Relaxed),
                })))
            })
            .declaring(|signature| *signature = graph_launch::signature());
        CudaModule::from_targets([target])
    }

    /// The counts so far.
    #[must_use]
    pub fn counts(&self) -> GraphCounts {
        *locked(&self.0.counts)
    }
}

impl Graphs {
    fn count(&self, count: impl FnOnce(&mut GraphCounts)) {
        count(&mut locked(&self.counts));
    }

    fn run(&self, call: &mut CudaCall<'_>) -> Result<()> {
        // A graph within a graph becomes part of it.
        if call.is_capturing() || call.queue().is_recording() {
            return inline(call);
        }
        let key = GraphKey::new(call)?;
        let (entry, evicted) = locked(&self.cache).entry(&key, self.options.most);
        self.drop_evicted(evicted);
        // A concurrent call of the same call site runs eagerly instead of waiting.
        let Ok(mut state) = entry.try_lock() else {
            return self.eager(call).map(drop);
        };
        match &mut *state {
            GraphState::New => {
                drop(state);
                let sizes = self.eager(call)?;
                let mut state = locked(&entry);
                if matches!(*state, GraphState::New) {
                    *state = GraphState::Seen { sizes };
                }
                return Ok(());
            }
            GraphState::Uncapturable => {
                drop(state);
                return self.eager(call).map(drop);
            }
            GraphState::Refused(status) => return Err(status.clone()),
            GraphState::Seen { .. } | GraphState::Graph(_) => {}
        }
        let Err(status) = self.launch(call, &mut state) else {
            return Ok(());
        };
        *state = self.without_graph(&status, &state);
        if matches!(*state, GraphState::Refused(_)) || call.device().lost().is_some() {
            return Err(status);
        }
        drop(state);
        self.eager(call).map(drop)
    }

    fn drop_evicted(&self, evicted: Vec<GraphEntry>) {
        self.count(|counts| counts.evicted += evicted.len() as u64);
    }

    /// Launches the call site's graph, or makes one.
    fn launch(&self, call: &mut CudaCall<'_>, state: &mut GraphState) -> Result<()> {
        let (sizes, is_first) = match state {
            GraphState::Graph(launchable) => {
                let addresses = addresses(call);
                if launchable.addresses == addresses {
                    self.count(|counts| counts.unchanged += 1);
                    return launchable.launch(call);
                }
                if self.update(call, launchable, addresses)? {
                    return Ok(());
                }
                (launchable.captured.sizes(), false)
            }
            GraphState::Seen { sizes } => (sizes.clone(), true),
            _ => return Err(Status::internal("a call site without a graph")),
        };
        // The old graph is dropped after the new one exists.
        let launchable = self.capture(call, &sizes)?;
        self.count(|counts| {
            if is_first {
                counts.captured += 1;
            } else {
                counts.recaptured += 1;
            }
        });
        *state = GraphState::Graph(Box::new(launchable));
        Ok(())
    }

    /// The state of a call site whose graph failed with this status.
    fn without_graph(&self, status: &Status, state: &GraphState) -> GraphState {
        if let StatusCode::FailedPrecondition | StatusCode::Unimplemented = status.code() {
            return match self.options.uncapturable {
                Uncapturable::Refuse => GraphState::Refused(status.clone()),
                Uncapturable::RunEagerly => GraphState::Uncapturable,
            };
        }
        // The failure may pass, such as a lack of memory. The next call tries again.
        match state {
            GraphState::Graph(launchable) => GraphState::Seen {
                sizes: launchable.captured.sizes(),
            },
            GraphState::Seen { sizes } => GraphState::Seen {
                sizes: sizes.clone(),
            },
            _ => GraphState::New,
        }
    }

    /// Runs the function, and returns the sizes of the memory that it allocated.
    fn eager(&self, call: &mut CudaCall<'_>) -> Result<Vec<usize>> {
        self.count(|counts| counts.eager += 1);
        call.queue().begin_recording();
        let outcome = inline(call);
        let sizes = call.queue().end_recording();
        outcome.map(|()| sizes)
    }

    /// Captures the function with memory of these sizes, and launches the graph.
    fn capture(&self, call: &mut CudaCall<'_>, sizes: &[usize]) -> Result<Launchable> {
        match capture_once(call, sizes) {
            Err(status) if status.code() == StatusCode::ResourceExhausted => {
                // Idle graphs hold memory: try once more without them.
                let idle = locked(&self.cache).evict_idle();
                self.drop_evicted(idle);
                capture_once(call, sizes)
            }
            other => other,
        }
    }

    /// Captures the function again in the same memory, and updates the graph with it. Returns
    /// `false` if the work has another form.
    fn update(
        &self,
        call: &mut CudaCall<'_>,
        launchable: &mut Launchable,
        addresses: Vec<u64>,
    ) -> Result<bool> {
        let memory = launchable.captured.memory().to_vec();
        let (mut graph, captured) = record(call, memory)?;
        let Some(exec) = &mut launchable.exec else {
            return Ok(false);
        };
        let updated = exec.update(&mut graph);
        if call.queue().check("updating a graph", updated)? == Updated::OtherForm {
            return Ok(false);
        }
        self.count(|counts| counts.updated += 1);
        // A launch in progress may still use the old values, which dropping keeps until it is done.
        launchable.captured = captured;
        launchable.addresses = addresses;
        launchable.launch(call)?;
        Ok(true)
    }
}

/// Runs the function, and copies its results to the call's.
fn inline(call: &mut CudaCall<'_>) -> Result<()> {
    let site = call.state::<GraphSite>(Stage::Instantiate);
    let number = site.ok_or_else(no_function)?.number;
    let memory = |buffers: Vec<CudaBuffer<'_>>| -> Vec<DeviceBuffer> {
        let buffers = buffers.iter();
        buffers.map(|buffer| Arc::clone(buffer.memory())).collect()
    };
    let operands = memory(call.operands());
    let mut found = call.call_function(number, &operands)?;
    let results = memory(call.results());
    // By aliasing, a value of the function may lie in the memory of another result.
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
    std::iter::zip(&found, &results).try_for_each(|(from, to)| call.queue().copy(from, to))
}

fn capture_once(call: &mut CudaCall<'_>, sizes: &[usize]) -> Result<Launchable> {
    let memory = call.queue().allocate_for_graph(sizes)?;
    let (mut graph, captured) = record(call, memory)?;
    let exec = graph.instantiate();
    let exec = call.queue().check("making a graph ready", exec)?;
    let mut launchable = Launchable {
        exec: Some(exec),
        captured,
        addresses: addresses(call),
    };
    launchable.launch(call)?;
    Ok(launchable)
}

/// Captures the function's work without doing it.
fn record(call: &mut CudaCall<'_>, memory: Vec<DeviceBuffer>) -> Result<(Graph, Captured)> {
    call.queue().begin_capture(memory)?;
    let outcome = inline(call);
    let ended = call.queue().end_capture();
    // The function's failure is more specific than the capture's.
    outcome?;
    ended
}

impl Launchable {
    fn launch(&mut self, call: &mut CudaCall<'_>) -> Result<()> {
        match &mut self.exec {
            Some(exec) => {
                let options = call.options;
                call.queue().launch_graph(exec, &mut self.captured, options)
            }
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

/// The addresses of a call's operands and results.
fn addresses(call: &CudaCall<'_>) -> Vec<u64> {
    let operands = call.operands();
    let results = call.results();
    let all = operands.iter().chain(&results);
    all.map(CudaBuffer::address).collect()
}

fn no_function() -> Status {
    Status::internal("a graph launch without a function")
}
