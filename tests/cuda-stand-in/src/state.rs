//! The driver's state: contexts with their objects, and the settings of the tests.

pub(crate) mod capture;
pub(crate) mod graph;
pub(crate) mod handle;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod stream;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use cudarc::driver::sys::CUresult;

use self::capture::Capture;
use self::graph::{Exec, Graph};
use self::handle::{Kind, Table};
use self::memory::{Memory, Owner, Place};
use self::module::{Function, ModuleBody};
use self::stream::{Mark, Stream};
use crate::control::Leaks;

/// The settings of the tests.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) lazy: bool,
    pub(crate) devices: usize,
    pub(crate) capability: (u32, u32),
    pub(crate) local_bytes: u32,
    pub(crate) driver_version: i32,
    /// Memory sizes of devices, where they were set.
    pub(crate) memory: BTreeMap<usize, u64>,
}

/// The default memory size of a device, in bytes.
const MEMORY: u64 = 4 << 30;

impl Settings {
    /// Returns a device's memory size, in bytes.
    pub(crate) fn capacity(&self, device: usize) -> u64 {
        self.memory.get(&device).copied().unwrap_or(MEMORY)
    }
}

/// The record of calls, and the injected failures.
#[derive(Debug, Default)]
pub(crate) struct Log {
    pub(crate) calls: Vec<&'static str>,
    pub(crate) injected: Option<Injected>,
    /// A description of the last failure.
    pub(crate) fault: String,
}

/// An injected failure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Injected {
    /// The number of matching calls until then, the failing one included.
    pub(crate) left: u64,
    /// Restricts it to calls of this name: [`name_number`](crate::driver::name_number).
    pub(crate) of: Option<u64>,
    pub(crate) code: CUresult,
}

/// A device's primary context.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) retained: u64,
    /// The error that broke it, which every later call returns.
    pub(crate) failed: Option<CUresult>,
    pub(crate) null_stream: usize,
}

/// An event, with its last recording.
#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: usize,
    pub(crate) timing: bool,
    pub(crate) recorded: Recorded,
}

/// The recording of an event.
#[derive(Clone, Debug)]
pub(crate) enum Recorded {
    Never,
    Mark(Arc<Mark>),
    /// In a capture, after these nodes.
    Captured {
        capture: u64,
        nodes: Vec<usize>,
    },
}

/// The whole state.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) log: Log,
    pub(crate) initialised: bool,
    pub(crate) contexts: Table<Context>,
    /// Primary contexts by device.
    pub(crate) primary: BTreeMap<usize, usize>,
    pub(crate) memory: Memory,
    pub(crate) streams: Table<Stream>,
    pub(crate) events: Table<Event>,
    pub(crate) modules: Table<Arc<ModuleBody>>,
    pub(crate) functions: Table<Function>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    pub(crate) next_capture: u64,
    pub(crate) graphs: Table<Graph>,
    pub(crate) execs: Table<Exec>,
    /// The objects that were alive when their context was destroyed.
    pub(crate) abandoned: Leaks,
}

thread_local! {
    /// This thread's context stack, the current context last.
    static CURRENT: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
    /// Whether this thread runs a host function of a stream, which must not call the driver.
    static IN_HOST_FUNCTION: Cell<bool> = const { Cell::new(false) };
}

/// Gives access to this thread's context stack.
pub(crate) fn with_current<T>(access: impl FnOnce(&mut Vec<usize>) -> T) -> T {
    CURRENT.with_borrow_mut(access)
}

/// Returns whether this thread runs a host function.
pub(crate) fn in_host_function() -> bool {
    IN_HOST_FUNCTION.get()
}

/// Sets whether this thread runs a host function.
pub(crate) fn set_in_host_function(runs: bool) {
    IN_HOST_FUNCTION.set(runs);
}

impl State {
    pub(crate) const fn new() -> State {
        State {
            settings: Settings {
                lazy: false,
                devices: 1,
                capability: (9, 0),
                local_bytes: 0,
                driver_version: 13000,
                memory: BTreeMap::new(),
            },
            log: Log {
                calls: Vec::new(),
                injected: None,
                fault: String::new(),
            },
            initialised: false,
            contexts: Table::new(Kind::Context),
            primary: BTreeMap::new(),
            memory: Memory::new(),
            streams: Table::new(Kind::Stream),
            events: Table::new(Kind::Event),
            modules: Table::new(Kind::Module),
            functions: Table::new(Kind::Function),
            captures: BTreeMap::new(),
            next_capture: 0,
            graphs: Table::new(Kind::Graph),
            execs: Table::new(Kind::Exec),
            abandoned: Leaks::NONE,
        }
    }

    /// Returns this thread's current context, if it is alive.
    pub(crate) fn current(&self) -> Result<usize, CUresult> {
        let top = with_current(|contexts| contexts.last().copied())
            .filter(|top| *top != 0)
            .ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        self.contexts
            .get(top)
            .map(|_| top)
            .map_err(|_| CUresult::CUDA_ERROR_CONTEXT_IS_DESTROYED)
    }

    /// Checks that a context is alive and not broken.
    pub(crate) fn check(&self, context: usize) -> Result<(), CUresult> {
        self.contexts.get(context)?.failed.map_or(Ok(()), Err)
    }

    /// Resolves a stream handle, 0 being the current context's default stream, and checks that its
    /// context works.
    pub(crate) fn stream(&self, stream: usize) -> Result<usize, CUresult> {
        let stream = self.stream_handle(stream, self.current()?)?;
        self.check(self.streams.get(stream)?.context)?;
        Ok(stream)
    }

    /// Breaks a context until it is reset. The first error is the one that is reported.
    pub(crate) fn fail(&mut self, context: usize, code: CUresult, why: String) {
        if let Ok(context) = self.contexts.get_mut(context)
            && context.failed.is_none()
        {
            context.failed = Some(code);
            self.log.fault = why;
        }
    }

    /// Returns the objects that the program has not released.
    pub(crate) fn leaks(&self) -> Leaks {
        let mut leaks = self.abandoned;
        leaks += self.alive(|_| true);
        leaks
    }

    fn alive(&self, in_context: impl Fn(usize) -> bool) -> Leaks {
        let null: Vec<usize> = self
            .contexts
            .iter()
            .map(|(_, context)| context.null_stream)
            .collect();
        let memory = |place: Place| {
            let held = self.memory.iter().filter(|found| {
                found.place == place && found.owner == Owner::Program && found.is_held()
            });
            held.map(|found| u64::from(in_context(found.context))).sum()
        };
        let streams = self.streams.iter().filter(|(handle, stream)| {
            !stream.destroyed && !null.contains(handle) && in_context(stream.context)
        });
        Leaks {
            allocations: memory(Place::Device),
            pinned: memory(Place::Host),
            modules: self.modules.count(|module| in_context(module.context)),
            events: self.events.count(|event| in_context(event.context)),
            streams: streams.map(|_| 1).sum(),
            graphs: self.graphs.count(|graph| in_context(graph.context)),
            graph_execs: self.execs.count(|exec| in_context(exec.context)),
        }
    }

    /// Destroys a context after its last release. Its remaining objects count as leaked.
    pub(crate) fn destroy_context(&mut self, context: usize) -> Result<(), CUresult> {
        self.abandoned += self.alive(|of| of == context);
        self.clear_context(context);
        let gone = self.contexts.remove(context)?;
        let _ = self.streams.remove(gone.null_stream);
        self.primary.remove(&gone.device);
        Ok(())
    }

    /// Destroys all objects of a context. The context stays and works again.
    pub(crate) fn clear_context(&mut self, context: usize) {
        let Ok(found) = self.contexts.get_mut(context) else {
            return;
        };
        found.failed = None;
        let _ = self.streams.remove(found.null_stream);
        self.streams.retain(|stream| stream.context != context);
        self.events.retain(|event| event.context != context);
        let modules: Vec<usize> = self
            .modules
            .iter()
            .filter(|(_, module)| module.context == context)
            .map(|(handle, _)| handle)
            .collect();
        self.functions
            .retain(|function| !modules.contains(&function.module));
        self.modules.retain(|module| module.context != context);
        let streams = &self.streams;
        self.captures
            .retain(|_, capture| streams.get(capture.origin).is_ok());
        self.graphs.retain(|graph| graph.context != context);
        self.execs.retain(|exec| exec.context != context);
        self.memory.remove_context(context);
        let null_stream = self.streams.insert(Stream::new(context, false, 0));
        if let Ok(found) = self.contexts.get_mut(context) {
            found.null_stream = null_stream;
        }
    }
}
