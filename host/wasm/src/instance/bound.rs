//! A call site's part of an instance: its function, the function's parameters, and the state of its
//! stages.
//!
//! - The stage `instantiate` runs once per instance: the first time when the program is compiled,
//!   so that wrong attributes fail before anything runs. The state belongs to the instance, which
//!   any execution may use later. So the stage sees no user data and calls nothing back.
//! - Exports of the guest, the deleters, free the state. They never run in an instance that trapped
//!   or was interrupted, whose memory is freed as a whole.
//! - The deleters of an execution's states run at its end, within its deadline. Those of a dropped
//!   instance run in the background ([`discard`](crate::discard)), and together have 1 second.
//! - The API table of the JAX FFI proposal is the guest's own array of function pointers: a
//!   function pointer in wasm is an index into the module's own table, which the host could fill
//!   only if every guest exported it. `jax_ffi.h` defines the array, and the host passes it on.

use std::time::Instant;

use wasmtime::Store;

use callbox_core::call::{ApiVersion, CancelToken, Stage, StaticInfo};
use callbox_core::values::{Blame, Result};

use super::Instance;
use super::enter::{enter, returned, stack_needed};
use crate::claim::{Claim, GuestFunction};
use crate::failure::status;
use crate::frame::{Frame, FrameImage, Pointers, abi};
use crate::metadata::{drop_name, export_name};
use crate::site::{Site, SiteId};
use crate::state::GuestState;

/// A guest's function that frees a state word or an object.
type Deleter = GuestFunction<u32, ()>;

/// A call site's part of an instance.
pub(super) struct Bound {
    pub(super) site: SiteId,
    pub(super) entry: Entry,
    pub(super) image: FrameImage,
    /// The state words that stages returned.
    state: [u32; 3],
    /// Which state words are still to be deleted.
    held: [bool; 3],
    deleters: [Option<Deleter>; 3],
    /// The static information that the guest constructed.
    object: Option<Object>,
}

/// An object that a guest constructed.
struct Object {
    pointer: u32,
    destructor: Deleter,
}

/// A target's function and its parameters, by calling convention.
pub(super) enum Entry {
    /// `(frame) -> status`.
    Frame(GuestFunction<u32, u32>, u32),
    /// `(out, ins)`.
    Original(GuestFunction<(u32, u32), ()>, (u32, u32)),
    /// A function with the parameters `(out, ins, status)`.
    StatusReturning(GuestFunction<(u32, u32, u32), ()>, (u32, u32, u32)),
    /// `(out, ins, opaque, opaque_len, status)`, or `(api, status, static_info, outputs, inputs)`.
    Five(
        GuestFunction<(u32, u32, u32, u32, u32), ()>,
        (u32, u32, u32, u32, u32),
    ),
}

impl Entry {
    /// Calls the target.
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
                enter(store, healthy, function, *parameters, what)?;
                Claim::SUCCESS
            }
            Self::StatusReturning(function, parameters) => {
                enter(store, healthy, function, *parameters, what)?;
                Claim::SUCCESS
            }
            Self::Five(function, parameters) => {
                enter(store, healthy, function, *parameters, what)?;
                Claim::SUCCESS
            }
        };
        returned(code, store.data_mut(), what)
    }
}

impl Instance {
    /// Makes a call site's part, detached from the current execution, and runs its stage
    /// `instantiate`.
    #[cold]
    pub(super) fn bind_new(&mut self, index: usize, site: &Site) -> Result<()> {
        let execution = self.store.data_mut().detach_execution();
        let bound = self.bind_detached(index, site);
        self.store.data_mut().attached = execution;
        bound
    }

    fn bind_detached(&mut self, index: usize, site: &Site) -> Result<()> {
        let image = site.layout.image(Frame::Whole, self.arena);
        let deleters = [
            self.deleter(site, Stage::Instantiate)?,
            self.deleter(site, Stage::Prepare)?,
            self.deleter(site, Stage::Initialize)?,
        ];
        let (entry, object) = self.entry(site, &image)?;
        self.bound[index] = Some(Bound {
            site: site.id,
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

    /// Replaces the call site of a bound part by one that differs in its attributes alone.
    #[cold]
    pub(super) fn bind_frame(&mut self, index: usize, site: &Site) {
        if let Some(bound) = &mut self.bound[index] {
            bound.image = site.layout.image(Frame::Whole, self.arena);
            bound.site = site.id;
        }
    }

    /// The target's function and parameters, and the static information that they point to.
    fn entry(&mut self, site: &Site, image: &FrameImage) -> Result<(Entry, Option<Object>)> {
        let at = |offset: Option<u32>| offset.map_or(0, |offset| self.arena + offset);
        let pointers @ Pointers { opaque_len, .. } = site.layout.pointers();
        let (out, ins, status) = (at(pointers.out), at(pointers.ins), at(pointers.status));
        let (opaque, frame) = (at(pointers.opaque), at(Some(site.layout.frame() as u32)));
        let name = &*site.target;
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
                        let pointer = self.construct(constructor, opaque, opaque_len)?;
                        Some(Object {
                            pointer,
                            destructor,
                        })
                    }
                    _ => None,
                };
                let static_info = object.as_ref().map_or(opaque, |object| object.pointer);
                let parameters = (api, status, static_info, out, ins);
                return Ok((Entry::Five(function, parameters), object));
            }
        };
        Ok((entry, None))
    }

    /// The guest's API table of the JAX FFI proposal: an opaque pointer, handed back as it is.
    fn jax_ffi_api(&mut self) -> Result<u32> {
        let function: GuestFunction<(), u32> = self.function(abi::JAX_FFI_API)?;
        let (store, healthy) = (&mut self.store, &mut self.healthy);
        let api = enter(store, healthy, &function, (), abi::JAX_FFI_API)?;
        returned(Claim::SUCCESS, store.data_mut(), abi::JAX_FFI_API)?;
        Ok(api.opaque())
    }

    fn construct(&mut self, name: &str, data: u32, size: u32) -> Result<u32> {
        let what = format!("the constructor {name:?}");
        let function: GuestFunction<(u32, u32), u32> = self.function(name)?;
        let (store, healthy) = (&mut self.store, &mut self.healthy);
        let object = enter(store, healthy, &function, (data, size), &what)?;
        returned(Claim::SUCCESS, store.data_mut(), &what)?;
        match object.opaque() {
            0 => Err(status!(
                Internal,
                Guest,
                "expected {what} to return an object, found the null pointer"
            )),
            object => Ok(object),
        }
    }

    fn deleter(&mut self, site: &Site, stage: Stage) -> Result<Option<Deleter>> {
        if !site.drops.contains(&stage) {
            return Ok(None);
        }
        self.function(&drop_name(&site.target, stage)).map(Some)
    }

    /// Runs a stage other than `execute` of the call site at this index.
    pub(crate) fn run_stage(&mut self, index: usize, site: &Site, stage: Stage) -> Result<()> {
        let function = self.function(&export_name(&site.target, stage))?;
        let frame = match stage {
            Stage::Instantiate => Frame::Attributes,
            _ => Frame::Whole,
        };
        let word = stage as usize;
        let mut state = self.bound[index].as_ref().map_or([0; 3], |b| b.state);
        // An execution's stages do not see the state of the execution before.
        if matches!(stage, Stage::Prepare | Stage::Initialize) {
            state[word..].fill(0);
        }
        let mut image = site.layout.image(frame, self.arena);
        image.set_stage(stage);
        image.set_state(state);
        self.write_frame(site, &image)?;
        let at = self.arena as usize + site.layout.frame();
        if stage != Stage::Instantiate {
            self.set_callable(site);
        }
        let entered =
            Entry::Frame(function, at as u32).call(&mut self.store, &mut self.healthy, &site.what);
        entered.map_err(|status| status.context(format_args!("stage {stage}")))?;

        // The state word is opaque to the host, which hands it back as it is.
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

    /// Deletes the state of an execution's stages.
    pub(crate) fn end_execution(&mut self) {
        self.with_stack(|instance| {
            instance.store.data_mut().begin_end_of_execution();
            instance.delete_state(Stage::Initialize);
            instance.delete_state(Stage::Prepare);
        });
    }

    fn delete_state(&mut self, stage: Stage) {
        for bound in self.bound.iter_mut().rev().flatten() {
            let held = std::mem::take(&mut bound.held[stage as usize]);
            if let Some(deleter) = &bound.deleters[stage as usize]
                && held
                && self.healthy
            {
                let word = bound.state[stage as usize];
                delete(&mut self.store, &mut self.healthy, deleter, word);
            }
        }
    }

    /// Deletes all states and objects at the end of the instance's only call.
    pub(crate) fn end_only_call(&mut self) {
        if self.holds_state() {
            self.with_stack(|instance| {
                instance.store.data_mut().begin_end_of_execution();
                instance.delete_all();
            });
        }
    }

    /// Deletes all states and objects of an instance that is dropped, until `end` or until `cancel`
    /// stops it.
    pub(super) fn unbind(&mut self, end: Instant, cancel: CancelToken) {
        self.with_stack(|instance| {
            instance
                .store
                .data_mut()
                .begin_deletion(Some(end), Some(cancel));
            instance.delete_all();
        });
    }

    /// Whether there is something to delete.
    pub(super) fn holds_state(&self) -> bool {
        !self.bound.iter().flatten().all(Bound::is_plain)
    }

    fn delete_all(&mut self) {
        self.delete_state(Stage::Initialize);
        self.delete_state(Stage::Prepare);
        self.delete_state(Stage::Instantiate);
        for bound in self.bound.iter_mut().rev().flatten() {
            if let Some(object) = bound.object.take()
                && self.healthy
            {
                let (store, healthy) = (&mut self.store, &mut self.healthy);
                delete(store, healthy, &object.destructor, object.pointer);
            }
        }
    }

    /// Runs deleters, on another stack where the thread's is too short.
    fn with_stack(&mut self, delete: impl FnOnce(&mut Self)) {
        let needed = stack_needed(self.store.data().shared.policy.limits.stack_bytes);
        stacker::maybe_grow(needed, needed.saturating_mul(2), || delete(self));
    }
}

impl Bound {
    /// Whether there is nothing to delete.
    fn is_plain(&self) -> bool {
        let mut states = std::iter::zip(&self.held, &self.deleters);
        self.object.is_none() && states.all(|(held, deleter)| !held || deleter.is_none())
    }
}

/// Calls a deleter. Errors are discarded, as its call has ended. In the deterministic mode, others
/// that share the call's fuel fail if what it used depends on what others take.
fn delete(store: &mut Store<GuestState>, healthy: &mut bool, deleter: &Deleter, word: u32) {
    // The log's sink may have panicked. A second panic would abort the process.
    if std::thread::panicking() {
        *healthy = false;
        return;
    }
    // A deleter that was called and failed leaves a usable instance. One that could not be called
    // does not.
    if let Err(status) = enter(store, healthy, deleter, word, "a deleter")
        && status.blame() == Blame::Caller
    {
        *healthy = false;
        if status.is_lack() {
            store.data().fuel.note_lack();
        }
    }
}
