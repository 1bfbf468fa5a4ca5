//! What a call site has in an instance: its function, what the function is called with, and what its stages left.

use std::time::Instant;

use wasmtime::Store;

use super::Instance;
use super::enter::{enter, returned, stack_needed};
use crate::call::{ApiVersion, Stage, StaticInfo};
use crate::frame::{Frame, FrameImage, Pointers, abi};
use crate::values::{Blame, Result, Status, StatusCode};
use crate::wasm::claim::{Claim, GuestFunction};
use crate::wasm::metadata::{drop_name, export_name};
use crate::wasm::site::Site;
use crate::wasm::state::GuestState;

/// A function that takes something back.
type Deleter = GuestFunction<u32, ()>;

/// A call site in an instance.
pub(super) struct Bound {
    pub(super) entry: Entry,
    pub(super) image: FrameImage,
    /// What the guest left for later stages.
    state: [u32; 3],
    /// Which of these words a stage left that nobody took back yet.
    held: [bool; 3],
    deleters: [Option<Deleter>; 3],
    /// The static information that the guest made, and what takes it back.
    object: Option<(Deleter, u32)>,
}

/// A target's function with what it is called with, by convention.
pub(super) enum Entry {
    /// `(frame) -> status`.
    Frame(GuestFunction<u32, u32>, u32),
    /// `(out, ins)`.
    Original(GuestFunction<(u32, u32), ()>, (u32, u32)),
    /// `(out, ins, status)`.
    StatusReturning(GuestFunction<(u32, u32, u32), ()>, (u32, u32, u32)),
    /// `(out, ins, opaque, opaque_len, status)`, or `(api, status, static_info, outputs, inputs)`.
    Five(
        GuestFunction<(u32, u32, u32, u32, u32), ()>,
        (u32, u32, u32, u32, u32),
    ),
}

impl Entry {
    /// Calls the target, and turns what comes back into a status.
    #[inline]
    pub(super) fn call(
        &self,
        store: &mut Store<GuestState>,
        healthy: &mut bool,
        what: &str,
    ) -> Result<()> {
        let code = match self {
            Self::Frame(function, frame) => enter(store, healthy, function, *frame, what)?,
            Self::Original(function, parameters) => {
                enter(store, healthy, function, *parameters, what).map(|()| Claim::NONE)?
            }
            Self::StatusReturning(function, parameters) => {
                enter(store, healthy, function, *parameters, what).map(|()| Claim::NONE)?
            }
            Self::Five(function, parameters) => {
                enter(store, healthy, function, *parameters, what).map(|()| Claim::NONE)?
            }
        };
        returned(code, store.data_mut(), what)
    }
}

impl Instance {
    /// Makes what a call site has here, and runs its stage `instantiate`. What is made is the executable's: it knows nothing of the
    /// execution during which it happens to be made, and calls nothing back.
    #[cold]
    pub(super) fn bind_new(&mut self, index: usize, site: &Site) -> Result<()> {
        let execution = self.store.data_mut().leave_execution();
        let bound = self.bind_outside(index, site);
        self.store.data_mut().return_to_execution(execution);
        bound
    }

    fn bind_outside(&mut self, index: usize, site: &Site) -> Result<()> {
        let image = site.layout.image(Frame::Whole, self.arena);
        let deleters = [
            self.deleter(site, Stage::Instantiate)?,
            self.deleter(site, Stage::Prepare)?,
            self.deleter(site, Stage::Initialize)?,
        ];
        let (entry, object) = self.entry(site, &image)?;
        self.bound[index] = Some(Bound {
            entry,
            image,
            state: [0; 3],
            held: [false; 3],
            deleters,
            object,
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

    /// The target's function, and the static information that was made for it.
    fn entry(
        &mut self,
        site: &Site,
        image: &FrameImage,
    ) -> Result<(Entry, Option<(Deleter, u32)>)> {
        let at = |offset: Option<u32>| offset.map_or(0, |offset| self.arena + offset);
        let pointers @ Pointers { opaque_len, .. } = site.layout.pointers();
        let (out, ins, status) = (at(pointers.out), at(pointers.ins), at(pointers.status));
        let (opaque, frame) = (at(pointers.opaque), at(Some(site.layout.frame() as u32)));
        let name = site.target.as_str();
        let entry = match site.api_version {
            ApiVersion::TypedFfi => Entry::Frame(self.function(name)?, frame),
            ApiVersion::Original => Entry::Original(self.function(name)?, (out, ins)),
            ApiVersion::StatusReturning => {
                Entry::StatusReturning(self.function(name)?, (out, ins, status))
            }
            ApiVersion::StatusReturningUnified => {
                let parameters = (out, ins, opaque, opaque_len, status);
                Entry::Five(self.function(name)?, parameters)
            }
            ApiVersion::JaxFfi => {
                let function = self.function(name)?;
                let api = self.jax_ffi_api()?;
                let object = match &site.static_info {
                    Some(StaticInfo::Reference {
                        constructor,
                        destructor,
                        ..
                    }) => {
                        let destructor = self.function(destructor)?;
                        self.write_frame(site, image)?;
                        let object = self.construct(constructor, opaque, opaque_len)?;
                        Some((destructor, object))
                    }
                    _ => None,
                };
                let static_info = object.as_ref().map_or(opaque, |(_, object)| *object);
                let parameters = (api, status, static_info, out, ins);
                return Ok((Entry::Five(function, parameters), object));
            }
        };
        Ok((entry, None))
    }

    /// The guest's own table of the functions of the JAX FFI proposal.
    fn jax_ffi_api(&mut self) -> Result<u32> {
        let function: GuestFunction<(), u32> = self.function(abi::JAX_FFI_API)?;
        let (store, healthy) = (&mut self.store, &mut self.healthy);
        let api = enter(store, healthy, &function, (), abi::JAX_FFI_API)?;
        returned(Claim::NONE, store.data_mut(), abi::JAX_FFI_API)?;
        // It is handed back as it is.
        Ok(api.opaque())
    }

    fn construct(&mut self, name: &str, data: u32, size: u32) -> Result<u32> {
        let what = format!("the constructor {name:?}");
        let function: GuestFunction<(u32, u32), u32> = self.function(name)?;
        let (store, healthy) = (&mut self.store, &mut self.healthy);
        let object = enter(store, healthy, &function, (data, size), &what)?;
        returned(Claim::NONE, store.data_mut(), &what)?;
        // It is handed back as it is.
        match object.opaque() {
            0 => Err(Status::new(
                StatusCode::Internal,
                Blame::Guest,
                format!("expected {what} to return an object, found the null pointer"),
            )),
            object => Ok(object),
        }
    }

    fn deleter(&mut self, site: &Site, stage: Stage) -> Result<Option<Deleter>> {
        match site.drops.contains(&stage) {
            true => self.function(&drop_name(&site.target, stage)).map(Some),
            false => Ok(None),
        }
    }

    /// Runs a stage other than `execute` of the call site with this number.
    pub(in crate::wasm) fn run_stage(
        &mut self,
        index: usize,
        site: &Site,
        stage: Stage,
    ) -> Result<()> {
        let function = self.function(&export_name(&site.target, stage))?;
        let frame = match stage {
            Stage::Instantiate => Frame::Attributes,
            _ => Frame::Whole,
        };
        let word = stage as usize;
        let mut state = self.bound[index].as_ref().map_or([0; 3], |b| b.state);
        // What the last execution's stages left is not shown to this one's.
        if matches!(stage, Stage::Prepare | Stage::Initialize) {
            state[word..].fill(0);
        }
        let mut image = site.layout.image(frame, self.arena);
        image.set_stage(stage);
        image.set_state(state);
        self.write_frame(site, &image)?;
        let at = self.arena as usize + site.layout.frame();
        match stage {
            Stage::Instantiate => {}
            _ => self.set_functions(site),
        }
        let entered =
            Entry::Frame(function, at as u32).call(&mut self.store, &mut self.healthy, &site.what);
        entered.map_err(|status| status.context(format_args!("stage {stage}")))?;

        // The word is a claim that means nothing to the host: it is handed back as it is.
        let field = at + abi::call_frame::INSTANTIATE_STATE + 4 * word;
        let value = self.guest_memory().read_u32("the state", field)?;
        if let Some(bound) = &mut self.bound[index] {
            bound.state = state;
            bound.state[word] = value.opaque();
            bound.held[word] = true;
            bound.image.set_state(bound.state);
        }
        Ok(())
    }

    /// Takes back what the stages of an execution left.
    pub(in crate::wasm) fn end_execution(&mut self) {
        self.with_stack(|instance| {
            instance.store.data_mut().begin_end_of_execution();
            instance.take_back(Stage::Initialize);
            instance.take_back(Stage::Prepare);
        });
    }

    fn take_back(&mut self, stage: Stage) {
        for bound in self.bound.iter_mut().rev().flatten() {
            let held = std::mem::take(&mut bound.held[stage as usize]);
            if let (true, true, Some(deleter)) =
                (held, self.healthy, &bound.deleters[stage as usize])
            {
                let word = bound.state[stage as usize];
                delete(&mut self.store, &mut self.healthy, deleter, word);
            }
        }
    }

    /// Takes back all that call sites have here. Past `deadline`, what is left goes as it is.
    pub(in crate::wasm) fn unbind(&mut self, deadline: Option<Instant>) {
        if self.bound.iter().flatten().all(Bound::is_plain) {
            return;
        }
        self.with_stack(|instance| {
            instance.store.data_mut().begin_deletion(deadline);
            instance.take_back(Stage::Initialize);
            instance.take_back(Stage::Prepare);
            instance.take_back(Stage::Instantiate);
            for bound in instance.bound.iter_mut().rev().flatten() {
                if let (true, Some((deleter, object))) = (instance.healthy, bound.object.take()) {
                    delete(&mut instance.store, &mut instance.healthy, &deleter, object);
                }
            }
        });
    }

    /// Runs deleters on another stack where the thread's would not do: whoever drops an executable did not choose the thread for it.
    fn with_stack(&mut self, delete: impl FnOnce(&mut Self)) {
        let needed = stack_needed(self.store.data().shared.policy.limits.stack_bytes);
        stacker::maybe_grow(needed, needed.saturating_mul(2), || delete(self));
    }
}

impl Bound {
    /// Whether there is nothing to take back.
    fn is_plain(&self) -> bool {
        self.object.is_none() && self.held == [false; 3]
    }
}

/// Lets the guest take something back. What it fails with nobody hears of.
fn delete(store: &mut Store<GuestState>, healthy: &mut bool, deleter: &Deleter, word: u32) {
    // The log's sink may have panicked. If it did again, the process would end.
    if std::thread::panicking() {
        *healthy = false;
        return;
    }
    // A deleter that fails without trapping leaves an instance that can go on; one that was not called does not.
    if let Err(status) = enter(store, healthy, deleter, word, "a deleter")
        && status.blame() == Blame::Caller
    {
        *healthy = false;
    }
}

impl Drop for Instance {
    /// What the guest was to take back, it takes back now; unless it was stopped or trapped: then its memory goes as it is.
    fn drop(&mut self) {
        self.unbind(None);
    }
}
