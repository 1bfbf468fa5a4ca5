//! Instances: a module's memory with an arena in it, and the calls into it.

use wasmtime::{Memory, Store, TypedFunc};

use super::interrupt::{Interrupt, Interrupted};
use super::memory::GuestMemory;
use super::metadata::export_name;
use super::module::Module;
use super::shared::Shared;
use super::site::Site;
use super::state::GuestState;
use super::trap;
use crate::call::{CallOptions, Stage};
use crate::frame::{ARENA_ALIGNMENT, BufferPlace, Frame, FrameImage, abi};
use crate::values::{Blame, Result, Status, StatusCode};

/// A function of a stage: `(frame) -> status`.
type StageFunction = TypedFunc<u32, u32>;

/// An instance that serves the call sites of one executable, one call at a time. One in which a call trapped, or was stopped,
/// is not used again: [`Instance::is_healthy`].
pub(super) struct Instance {
    store: Store<GuestState>,
    instance: wasmtime::Instance,
    memory: Memory,
    /// Where the arena begins.
    arena: u32,
    /// What each call site has here, made when it is first called.
    bound: Box<[Option<Bound>]>,
    healthy: bool,
}

/// A call site in an instance.
struct Bound {
    execute: StageFunction,
    image: FrameImage,
    /// What the guest left for later stages.
    state: [u32; 3],
}

impl Instance {
    /// Instantiates a module and reserves an arena of `arena_size` bytes for `sites` call sites.
    pub(super) fn new(
        module: &Module,
        arena_size: usize,
        sites: usize,
        options: &CallOptions,
    ) -> Result<Self> {
        let shared = &module.shared;
        let interrupt = Interrupt::new(options, shared.limits.deadline);
        let mut store = Store::new(&shared.engine, GuestState::new(shared.clone(), interrupt));
        store.limiter(|state| state);
        store.epoch_deadline_callback(|mut context| match context.data_mut().interrupt.tick() {
            Ok(()) => {
                context.data().shared.ticker.note_activity();
                Ok(wasmtime::UpdateDeadline::Continue(1))
            }
            Err(interrupted) => Err(wasmtime::Error::new(interrupted)),
        });
        arm(&mut store, "the module")?;
        let instance = module.pre.instantiate(&mut store);
        let instance = instance
            .map_err(|error| trap::status(&error, store.data_mut(), "the module's start"))?;
        let memory = instance
            .get_module_export(&mut store, &module.exports.memory)
            .and_then(wasmtime::Extern::into_memory)
            .ok_or_else(|| Status::internal("a memory that was checked is not exported"))?;
        store.data_mut().memory = Some(memory);
        returned(0, store.data_mut(), "the module's start")?;
        let mut new = Self {
            store,
            instance,
            memory,
            arena: 0,
            bound: std::iter::repeat_with(|| None).take(sites).collect(),
            healthy: true,
        };
        new.initialize_module(module)?;
        new.arena = new.reserve(module, arena_size)?;
        Ok(new)
    }

    /// Whether it can be used again.
    pub(super) fn is_healthy(&self) -> bool {
        self.healthy
    }

    /// Begins a call or an execution: sets when it is stopped, and how much it may log.
    #[inline]
    pub(super) fn begin(&mut self, options: &CallOptions) {
        let state = self.store.data_mut();
        state.interrupt = Interrupt::new(options, state.shared.limits.deadline);
        state.log_budget = state.shared.limits.log_bytes;
    }

    /// Begins another call of the same execution: what the limits give to each call, it gets anew.
    #[inline]
    pub(super) fn begin_next_call(&mut self) {
        let state = self.store.data_mut();
        state.interrupt.begin_next_call();
        state.log_budget = state.shared.limits.log_bytes;
    }

    /// Runs a stage other than `execute` of the call site with this number.
    pub(super) fn run_stage(&mut self, index: usize, site: &Site, stage: Stage) -> Result<()> {
        let function = self.function(&export_name(&site.target, stage))?;
        let frame = match stage {
            Stage::Instantiate => Frame::Attributes,
            _ => Frame::Whole,
        };
        let mut state = self.bound[index]
            .as_ref()
            .map_or([0; 3], |bound| bound.state);
        // What the last execution's stages left is not shown to this one's.
        if matches!(stage, Stage::Prepare | Stage::Initialize) {
            state[stage as usize..].fill(0);
        }
        let mut image = site.layout.image(frame, self.arena);
        image.set_stage(stage);
        image.set_state(state);
        let at = self.arena as usize + site.layout.frame();
        self.guest_memory()
            .write("the call frame", at, image.bytes())?;
        enter_stage(&mut self.store, &mut self.healthy, &function, at, site)?;

        // The word is a claim that means nothing to the host: it is handed back as it is.
        let word = stage as usize;
        let field = at + abi::call_frame::INSTANTIATE_STATE + 4 * word;
        let value = self.guest_memory().read_u32("the state", field)?;
        if let Some(bound) = &mut self.bound[index] {
            bound.state = state;
            bound.state[word] = value;
            bound.image.set_state(bound.state);
        }
        Ok(())
    }

    /// Makes what a call site has here, if it is not made, and runs its stage `instantiate`.
    #[inline]
    pub(super) fn bind(&mut self, index: usize, site: &Site) -> Result<()> {
        match self.bound[index] {
            Some(_) => Ok(()),
            None => self.bind_new(index, site),
        }
    }

    /// Calls the target: copies the operands in, and the results out if it succeeds. The call site is bound, and the buffers are as
    /// many and as long as it says.
    #[inline]
    pub(super) fn execute(
        &mut self,
        index: usize,
        site: &Site,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        let Some(bound) = &self.bound[index] else {
            return Err(Status::internal("a call site was not bound"));
        };
        let arena = self.arena as usize;
        let frame = arena + site.layout.frame();
        let mut memory = GuestMemory::new(self.memory.data_mut(&mut self.store));
        memory.write("the call frame", frame, bound.image.bytes())?;
        for (bytes, place) in std::iter::zip(operands, site.layout.operands()) {
            memory.write("an operand", arena + place.offset, bytes)?;
        }
        enter_stage(
            &mut self.store,
            &mut self.healthy,
            &bound.execute,
            frame,
            site,
        )?;
        self.copy_results(site.layout.results(), results)
    }

    fn copy_results(&mut self, places: &[BufferPlace], results: &mut [&mut [u8]]) -> Result<()> {
        let arena = self.arena as usize;
        let memory = self.guest_memory();
        for (bytes, place) in std::iter::zip(results, places) {
            bytes.copy_from_slice(memory.read("a result", arena + place.offset, place.size)?);
        }
        Ok(())
    }

    #[cold]
    fn bind_new(&mut self, index: usize, site: &Site) -> Result<()> {
        self.bound[index] = Some(Bound {
            execute: self.function(&site.target)?,
            image: site.layout.image(Frame::Whole, self.arena),
            state: [0; 3],
        });
        if site.stages.contains(&Stage::Instantiate)
            && let Err(status) = self.run_stage(index, site, Stage::Instantiate)
        {
            // The next call tries again.
            self.bound[index] = None;
            return Err(status);
        }
        Ok(())
    }

    /// Runs `_initialize`, by which C and C++ modules run their constructors.
    fn initialize_module(&mut self, module: &Module) -> Result<()> {
        let Some(initialize) = self.typed_export::<(), ()>(module.exports.initialize.as_ref())
        else {
            return Ok(());
        };
        let what = "the module's _initialize";
        enter(&mut self.store, &mut self.healthy, &initialize, (), what)?;
        returned(0, self.store.data_mut(), what)
    }

    /// Reserves the arena: from the guest's allocator where it exports one, or else behind its memory's end.
    fn reserve(&mut self, module: &Module, size: usize) -> Result<u32> {
        let too_large = |_| {
            exhausted(format!(
                "expected an arena of at most 4 GiB, found {size} bytes"
            ))
        };
        let wanted = u32::try_from(size).map_err(too_large)?;
        let offset = match self.typed_export(module.exports.realloc.as_ref()) {
            Some(realloc) => self.allocate(&realloc, wanted)?,
            None => self.grow(size)?,
        };
        self.check_arena(offset, size)?;
        Ok(offset)
    }

    /// An export, if it is there and a function of this type.
    fn typed_export<P: wasmtime::WasmParams, R: wasmtime::WasmResults>(
        &mut self,
        export: Option<&wasmtime::ModuleExport>,
    ) -> Option<TypedFunc<P, R>> {
        let export = self.instance.get_module_export(&mut self.store, export?)?;
        export.into_func()?.typed(&self.store).ok()
    }

    fn allocate(
        &mut self,
        realloc: &TypedFunc<(u32, u32, u32, u32), u32>,
        size: u32,
    ) -> Result<u32> {
        let arguments = (0, 0, ARENA_ALIGNMENT as u32, size);
        match enter(
            &mut self.store,
            &mut self.healthy,
            realloc,
            arguments,
            abi::REALLOC,
        )? {
            0 => Err(exhausted(format!(
                "{} found no memory for an arena of {size} bytes",
                abi::REALLOC
            ))),
            offset => Ok(offset),
        }
    }

    fn grow(&mut self, size: usize) -> Result<u32> {
        let page = self.memory.page_size(&self.store);
        let end = self.memory.data_size(&self.store);
        // Not at 0, which guests take for no address at all.
        let offset = end.max(ARENA_ALIGNMENT).next_multiple_of(ARENA_ALIGNMENT);
        let pages = ((offset - end + size) as u64).div_ceil(page);
        if self.memory.grow(&mut self.store, pages).is_err() {
            let limit = self.store.data().shared.limits.memory_bytes;
            return Err(exhausted(format!(
                "expected memory of {size} bytes more than {end} for the arena: the limit is {limit}, and the module may have its own"
            )));
        }
        u32::try_from(offset)
            .map_err(|_| exhausted(format!("expected an arena below 4 GiB, found {offset}")))
    }

    /// An arena is where the guest says only if it can be.
    fn check_arena(&mut self, offset: u32, size: usize) -> Result<()> {
        if !(offset as usize).is_multiple_of(ARENA_ALIGNMENT) {
            return Err(Status::new(
                StatusCode::Internal,
                Blame::Guest,
                format!(
                    "expected {} to return a multiple of {ARENA_ALIGNMENT}, found {offset}",
                    abi::REALLOC
                ),
            ));
        }
        self.guest_memory()
            .read("the arena", offset as usize, size)?;
        Ok(())
    }

    fn function(&mut self, name: &str) -> Result<StageFunction> {
        self.instance
            .get_typed_func(&mut self.store, name)
            .map_err(|error| {
                Status::internal(format!(
                    "an export that was checked is not there: {error:#}"
                ))
            })
    }

    fn guest_memory(&mut self) -> GuestMemory<'_> {
        GuestMemory::new(self.memory.data_mut(&mut self.store))
    }
}

/// Makes a store ready for the guest to run: forgets what the last entry left, and looks whether to run at all.
///
/// # Errors
/// DEADLINE_EXCEEDED or CANCELLED, the caller's doing: the guest did not run.
#[inline]
fn arm(store: &mut Store<GuestState>, what: &str) -> Result<()> {
    store.set_epoch_deadline(1);
    let state = store.data_mut();
    state.failure = None;
    state.growth_refused = None;
    let shared: &Shared = &state.shared;
    shared.ticker.note_activity();
    state
        .interrupt
        .check_before()
        .map_err(|interrupted| not_called(interrupted, what))
}

#[cold]
fn not_called(interrupted: Interrupted, what: &str) -> Status {
    let (code, why) = match interrupted {
        Interrupted::Deadline => (StatusCode::DeadlineExceeded, "its deadline had passed"),
        Interrupted::Cancelled => (StatusCode::Cancelled, "it was cancelled"),
    };
    Status::new(code, Blame::Caller, format!("{what} was not called: {why}"))
}

/// Enters the guest. It takes an instance's parts, so that the function may be another: cloning one costs more than calling it. The
/// instance is healthy again only if the guest returns: not if it traps, is stopped, or if the log's sink panics.
#[inline]
fn enter<P: wasmtime::WasmParams, R: wasmtime::WasmResults>(
    store: &mut Store<GuestState>,
    healthy: &mut bool,
    function: &TypedFunc<P, R>,
    parameters: P,
    what: &str,
) -> Result<R> {
    arm(store, what)?;
    *healthy = false;
    match function.call(&mut *store, parameters) {
        Ok(results) => {
            *healthy = true;
            Ok(results)
        }
        Err(error) => Err(trap::status(&error, store.data_mut(), what)),
    }
}

/// Enters a stage's function, and turns what comes back into a status.
#[inline]
fn enter_stage(
    store: &mut Store<GuestState>,
    healthy: &mut bool,
    function: &StageFunction,
    frame: usize,
    site: &Site,
) -> Result<()> {
    let code = enter(store, healthy, function, frame as u32, &site.what)?;
    returned(code, store.data_mut(), &site.what)
}

/// The outcome of a guest that returned: what it set through the API table, or else what the code says.
#[inline]
fn returned(code: u32, state: &mut GuestState, what: &str) -> Result<()> {
    match (code, &state.failure) {
        (0, None) => Ok(()),
        _ => Err(reported(code, state, what)),
    }
}

#[cold]
fn reported(code: u32, state: &mut GuestState, what: &str) -> Status {
    if let Some(failure) = state.failure.take() {
        return Status::new(failure.code, Blame::Guest, failure.message)
            .with_recoverable(failure.recoverable);
    }
    match StatusCode::from_number(code) {
        Some(code) => Status::new(
            code,
            Blame::Guest,
            format!("{what} returned {code} without a message"),
        ),
        None => Status::new(
            StatusCode::Internal,
            Blame::Guest,
            format!("expected {what} to return a status code from 0 to 16, found {code}"),
        ),
    }
}

fn exhausted(message: String) -> Status {
    Status::new(StatusCode::ResourceExhausted, Blame::Guest, message)
}
