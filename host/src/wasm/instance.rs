//! Instances: a module's memory with an arena in it, and the calls into it.

use wasmtime::{Memory, Store, TypedFunc};

use super::engine::Shared;
use super::interrupt::Interrupt;
use super::memory::GuestMemory;
use super::metadata::export_name;
use super::module::Module;
use super::prepared::Site;
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
        arm(&mut store).map_err(|error| trap::status(&error, store.data_mut(), "the module"))?;
        let instance = module.pre.instantiate(&mut store);
        let instance = instance
            .map_err(|error| trap::status(&error, store.data_mut(), "the module's start"))?;
        let memory = instance
            .get_module_export(&mut store, &module.exports.memory)
            .and_then(wasmtime::Extern::into_memory)
            .ok_or_else(|| Status::internal("a memory that was checked is not exported"))?;
        store.data_mut().memory = Some(memory);
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

    /// Sets when the calls to come are stopped.
    #[inline]
    pub(super) fn begin(&mut self, options: &CallOptions) {
        let limit = self.store.data().shared.limits.deadline;
        self.store.data_mut().interrupt = Interrupt::new(options, limit);
    }

    /// Runs a stage other than `execute` of the call site with this number.
    pub(super) fn run_stage(&mut self, index: usize, site: &Site, stage: Stage) -> Result<()> {
        let function = self.function(&export_name(&site.target, stage))?;
        let frame = match stage {
            Stage::Instantiate => Frame::Attributes,
            _ => Frame::Whole,
        };
        let state = self.bound[index]
            .as_ref()
            .map_or([0; 3], |bound| bound.state);
        let mut image = site.layout.image(frame, self.arena);
        image.set_stage(stage);
        image.set_state(state);
        let at = self.arena as usize + site.layout.frame();
        self.guest_memory()
            .write("the call frame", at, image.bytes())?;
        enter(&mut self.store, &mut self.healthy, &function, at, site)?;

        // The word is a claim that means nothing to the host: it is handed back as it is.
        let word = stage as usize;
        let field = at + abi::call_frame::INSTANTIATE_STATE + 4 * word;
        let value = self.guest_memory().read_u32("the state", field)?;
        if let Some(bound) = &mut self.bound[index] {
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
        enter(
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

    #[cold]
    fn stopped(&mut self, error: &wasmtime::Error, what: &str) -> Status {
        self.healthy = false;
        trap::status(error, self.store.data_mut(), what)
    }

    /// Runs `_initialize`, by which C and C++ modules run their constructors.
    fn initialize_module(&mut self, module: &Module) -> Result<()> {
        let Some(initialize) = self.typed_export::<(), ()>(module.exports.initialize.as_ref())
        else {
            return Ok(());
        };
        let outcome = arm(&mut self.store).and_then(|()| initialize.call(&mut self.store, ()));
        outcome.map_err(|error| self.stopped(&error, "the module's _initialize"))
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
        let outcome = arm(&mut self.store).and_then(|()| realloc.call(&mut self.store, arguments));
        match outcome {
            Ok(0) => Err(exhausted(format!(
                "{} found no memory for an arena of {size} bytes",
                abi::REALLOC
            ))),
            Ok(offset) => Ok(offset),
            Err(error) => Err(self.stopped(&error, abi::REALLOC)),
        }
    }

    fn grow(&mut self, size: usize) -> Result<u32> {
        let page = self.memory.page_size(&self.store);
        let end = self.memory.data_size(&self.store);
        let offset = end.next_multiple_of(ARENA_ALIGNMENT);
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

/// Makes a store ready for the guest to run: forgets the last call, starts the clock, and looks whether to run at all.
#[inline]
fn arm(store: &mut Store<GuestState>) -> wasmtime::Result<()> {
    store.set_epoch_deadline(1);
    let state = store.data_mut();
    state.reset();
    let shared: &Shared = &state.shared;
    shared.ticker.note_activity();
    state.interrupt.restart();
    state.interrupt.check_before().map_err(wasmtime::Error::new)
}

/// Enters the guest, and turns what comes back into a status. It takes an instance's parts, so that the function to call may be
/// another: cloning one costs more than calling it.
#[inline]
fn enter(
    store: &mut Store<GuestState>,
    healthy: &mut bool,
    function: &StageFunction,
    frame: usize,
    site: &Site,
) -> Result<()> {
    let code = arm(store).and_then(|()| function.call(&mut *store, frame as u32));
    match code {
        Ok(0) if store.data().failure.is_none() => Ok(()),
        Ok(code) => Err(reported(code, store.data_mut(), site)),
        Err(error) => {
            *healthy = false;
            Err(trap::status(&error, store.data_mut(), &site.what))
        }
    }
}

/// The status of a call that returned: what the guest set through the API table, or else what the code says.
#[cold]
fn reported(code: u32, state: &mut GuestState, site: &Site) -> Status {
    if let Some(failure) = state.failure.take() {
        return Status::new(failure.code, Blame::Guest, failure.message)
            .with_recoverable(failure.recoverable);
    }
    let what = &site.what;
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
