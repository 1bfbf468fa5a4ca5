//! Call sites that are ready to be called.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use callbox::call::InstanceMemory;
use callbox::values::untouched;
use callbox::wasm::{Mapping, Module, ModuleFile, PreparedCall};
use callbox::{ArrayShape, CallOptions, ElementType, Status, StatusCode};

use super::Shapes;
use super::late::LateRuns;
use super::status::{check_status, fill_code, fill_with_status, no_status, note_failure, poison};
use super::text::SiteText;
use crate::buffers::{RawArrays, Undo};
use crate::host::HostCore;
use crate::record::{self, Recordable};
use crate::stats::Stats;

/// The size of the pieces in which an elementwise target or one with rows gets its arrays, in
/// bytes.
///
/// The caller's arrays, those in the guest and the saved results of a piece fit into 512 KiB of a
/// core's cache together.
const PIECE_BYTES: usize = 64 << 10;

/// The size in bytes of the largest array up to which arrays are not cut: they stay in the cache as
/// a whole.
const WHOLE_BYTES: usize = 256 << 10;

/// A call site that is ready to be called.
#[derive(Debug)]
pub(crate) struct Ready {
    call: PreparedCall,
    options: CallOptions,
    stats: Arc<Stats>,
    late: Arc<LateRuns>,
    /// What a recording has of a call. `None` for calls on batches, which are not recorded.
    recordable: Option<Recordable>,
    /// Whether the last result is a status, which the target does not have.
    has_status: bool,
    /// For each result the size of one batch element in bytes, and the type of its numbers.
    elements: Vec<(usize, ElementType)>,
    bytes_in: usize,
    bytes_out: usize,
    text_bytes: usize,
    shape_bytes: usize,
    kept: Arc<Kept>,
    /// Whether a call has begun since [`Ready::take_used`].
    used: AtomicBool,
    /// Set if a call that fails leaves results as they were, and writes them before it has ended.
    saved: Option<Arc<Saved>>,
}

/// Where the target of a call site is from.
pub(crate) struct Origin<'a> {
    pub(crate) module: &'a Arc<Module>,
    pub(crate) file: &'a ModuleFile,
    pub(crate) host: &'a Arc<HostCore>,
    pub(crate) stats: &'a Arc<Stats>,
    pub(crate) late: &'a Arc<LateRuns>,
}

/// The memory in which a call saves results, kept for the next call.
#[derive(Debug, Default)]
struct Saved(Mutex<Vec<u8>>);

impl Saved {
    /// The memory that a call gave back, or else new memory.
    fn take(&self, size: usize) -> callbox::Result<Vec<u8>> {
        let memory = std::mem::take(&mut *self.lock());
        if memory.len() == size {
            Ok(memory)
        } else {
            // Only what is saved is accessed.
            untouched(size)
        }
    }

    fn give_back(&self, memory: Vec<u8>) {
        *self.lock() = memory;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The memory that a call site keeps between calls. Call sites that share instances share it.
#[derive(Debug)]
pub(crate) struct Kept {
    instances: Option<Arc<dyn InstanceMemory>>,
    saved: Option<Arc<Saved>>,
}

impl Kept {
    /// The size of the instances' memory, to which guests may have grown it, and of saved results.
    pub(crate) fn bytes(&self) -> usize {
        let instances = self.instances.as_ref().map_or(0, |memory| memory.bytes());
        let saved = self.saved.as_ref().map_or(0, |saved| saved.lock().len());
        instances.saturating_add(saved)
    }
}

/// How arrays are copied into a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Passage {
    /// The arrays of an elementwise target or one with rows go in pieces. A call that fails may
    /// have written some results.
    Pieces,
    /// The same, but the results of a call that fails are restored.
    PiecesOrNothing,
    /// All arrays go as a whole. Results are written only if the call succeeds.
    Whole,
}

impl Ready {
    /// Prepares a call site within the time of a call. `shapes` include the status if the text has
    /// one.
    pub(crate) fn new(
        origin: &Origin<'_>,
        target: &str,
        text: SiteText<'_>,
        shapes: &Shapes,
        passage: Passage,
        options: &CallOptions,
    ) -> callbox::Result<Self> {
        let (given, text) = (text, text.call);
        let mut shapes = shapes.clone();
        let status = if text.status {
            Some(shapes.results.pop().ok_or_else(no_status)?)
        } else {
            None
        };
        let batch_dimensions = text.batch_dimensions(&shapes)?;
        let attributes = given.dictionary()?;
        let text_bytes = given.bytes(&attributes);
        let site = text.site(target, attributes, &shapes)?;
        let arrays = shapes.operands.iter().chain(&shapes.results);
        let is_large = arrays.map(ArrayShape::byte_size).max() > Some(WHOLE_BYTES);
        let mapping = Mapping {
            batch_dimensions,
            piece_bytes: (is_large && passage != Passage::Whole).then_some(PIECE_BYTES),
        };
        let element_size = |shape: &ArrayShape| {
            let elements: usize = shape.dimensions()[batch_dimensions..].iter().product();
            let size = elements * shape.element_type().byte_width();
            (size, shape.element_type())
        };
        let elements: Vec<_> = shapes.results.iter().map(element_size).collect();
        if let Some(status) = &status {
            check_status(status, &shapes, batch_dimensions)?;
        }
        let bytes = |shapes: &[ArrayShape]| shapes.iter().map(ArrayShape::byte_size).sum();
        let recordable = (batch_dimensions == 0).then(|| Recordable {
            file: origin.file.clone(),
            host: Arc::clone(origin.host),
            site: site.clone(),
        });
        let call = origin.module.prepare_within(site, &mapping, options)?;
        let bytes_out = bytes(&shapes.results);
        let saves = passage == Passage::PiecesOrNothing && call.is_cut();
        let saved: Option<Arc<Saved>> = saves.then(Arc::default);
        Ok(Self {
            kept: Arc::new(Kept {
                instances: call.memory(),
                saved: saved.clone(),
            }),
            saved,
            call,
            options: text.options(),
            stats: Arc::clone(origin.stats),
            late: Arc::clone(origin.late),
            recordable,
            has_status: status.is_some(),
            elements,
            bytes_in: bytes(&shapes.operands),
            bytes_out,
            text_bytes,
            shape_bytes: shape_bytes(&shapes),
            used: AtomicBool::new(true),
        })
    }

    /// The same call site with other attributes, if its instances serve both.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for attributes that the target does not accept.
    pub(crate) fn with_attributes(&self, text: SiteText<'_>) -> callbox::Result<Option<Self>> {
        let attributes = text.dictionary()?;
        let text_bytes = text.bytes(&attributes);
        let call = self.call.with_attributes(attributes.clone())?;
        let recordable = self.recordable.as_ref().map(|known| Recordable {
            file: known.file.clone(),
            host: Arc::clone(&known.host),
            site: known.site.clone().with_attributes(attributes),
        });
        Ok(call.map(|call| Self {
            recordable,
            call,
            options: self.options.clone(),
            stats: Arc::clone(&self.stats),
            late: Arc::clone(&self.late),
            has_status: self.has_status,
            elements: self.elements.clone(),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            text_bytes,
            shape_bytes: self.shape_bytes,
            used: AtomicBool::new(true),
            kept: Arc::clone(&self.kept),
            saved: self.saved.clone(),
        }))
    }

    /// Calls the target with these options, or with those of the call site.
    ///
    /// # Errors
    /// The failure of the target, or of the host.
    #[inline]
    pub(crate) fn call(
        &self,
        options: Option<&CallOptions>,
        arrays: &mut RawArrays<'_>,
    ) -> callbox::Result<()> {
        self.used.store(true, Ordering::Relaxed);
        let start = Instant::now();
        let options = options.unwrap_or(&self.options);
        let recorded = record::begin(self.recordable.as_ref(), options, arrays);
        let outcome = match &self.saved {
            None => self.call.call_buffers(options, arrays),
            Some(saved) => self.call_or_undo(saved, options, arrays),
        };
        if let Some(recorded) = recorded {
            recorded.end(outcome.as_ref().err(), arrays);
        }
        self.stats
            .count(start, self.bytes_in, self.bytes_out, &outcome);
        if outcome.is_ok() {
            self.make_values(arrays);
        }
        outcome
    }

    /// Calls the target in pieces, and restores the results if it fails.
    fn call_or_undo(
        &self,
        saved: &Saved,
        options: &CallOptions,
        arrays: &mut RawArrays<'_>,
    ) -> callbox::Result<()> {
        let mut memory = saved.take(self.bytes_out)?;
        let mut undo = Undo::new(arrays, &mut memory);
        let outcome = self.call.call_buffers(options, &mut undo);
        if outcome.is_ok() {
            undo.keep();
        } else {
            drop(undo);
        }
        saved.give_back(memory);
        outcome
    }

    /// The options of the call site.
    pub(crate) fn options(&self) -> &CallOptions {
        &self.options
    }

    /// Whether the last result is a status.
    pub(crate) fn has_status(&self) -> bool {
        self.has_status
    }

    /// Calls the target in a run of a program, and writes the status of each batch element to the
    /// last result.
    ///
    /// `prepared` is when the call began to prepare its call site, if it did.
    ///
    /// The other results of an element that failed are filled with bytes 0xFF, which is NaN for
    /// floating point, or with true.
    pub(crate) fn call_with_status(
        &self,
        (run, prepared): (Option<i64>, Option<Instant>),
        options: Option<&CallOptions>,
        arrays: &mut RawArrays<'_>,
    ) {
        self.used.store(true, Ordering::Relaxed);
        let start = Instant::now();
        arrays.hide_last_result();
        let status = self.elements.len();
        arrays.fill(status, 0, arrays.hidden_size(), 0);
        let options = options.unwrap_or(&self.options);
        let recorded = record::begin(self.recordable.as_ref(), options, arrays);
        let mut last_failure = None;
        let mut failed_bytes = 0;
        let mut is_late = false;
        let mut failed = |arrays: &mut RawArrays<'_>, elements: Range<usize>, failure: Status| {
            for (result, &(size, element_type)) in self.elements.iter().enumerate() {
                let bytes = elements.len() * size;
                let poison = poison(element_type.is_pred());
                arrays.fill(result, elements.start * size, bytes, poison);
                failed_bytes += bytes;
            }
            self.stats.count_failures(&failure, elements.len());
            fill_code(arrays, status, elements, &failure);
            note_failure(&failure);
            is_late |= failure.code() == StatusCode::DeadlineExceeded;
            last_failure = recorded.is_some().then_some(failure);
            Ok(())
        };
        let outcome = match self.late.check(run) {
            Ok(()) => self.call.call_each(options, arrays, &mut failed),
            over => over,
        };
        let code = outcome.as_ref().err().map(Status::code);
        is_late |= code == Some(StatusCode::DeadlineExceeded);
        if let (true, Some(run)) = (is_late, run) {
            self.late.note(run, prepared.unwrap_or(start).elapsed());
        }
        if let Some(recorded) = recorded {
            recorded.end(outcome.as_ref().err().or(last_failure.as_ref()), arrays);
        }
        let bytes_out = self.bytes_out.saturating_sub(failed_bytes);
        self.stats.count(start, self.bytes_in, bytes_out, &outcome);
        match outcome {
            Ok(()) => self.make_values(arrays),
            Err(failure) => {
                let is_pred = self.elements.iter().map(|(_, t)| t.is_pred());
                fill_with_status(arrays, is_pred, &failure);
            }
        }
    }

    /// Replaces values that a guest wrote into bytes by those that XLA and NumPy know: truth values
    /// are 0 and 1, and numbers of 2 and 4 bits have no others.
    fn make_values(&self, arrays: &mut RawArrays<'_>) {
        for (result, (_, element_type)) in self.elements.iter().enumerate() {
            match element_type.bit_width() {
                _ if element_type.is_pred() => arrays.replace(result, |byte| u8::from(byte != 0)),
                2 => arrays.replace(result, |byte| byte & 3),
                4 => arrays.replace(result, |byte| byte & 15),
                _ => {}
            }
        }
    }

    /// Whether a call has begun since this was asked last.
    pub(crate) fn take_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// The memory between calls, which other call sites may share.
    pub(crate) fn kept(&self) -> &Arc<Kept> {
        &self.kept
    }

    /// Estimates the memory of the copies of a kept call site's texts and shapes.
    pub(crate) fn site_bytes(&self) -> usize {
        self.text_bytes.saturating_add(self.shape_bytes)
    }
}

/// Estimates the memory of the copies of shapes: a module can declare a thousand results of sixty
/// dimensions.
fn shape_bytes(shapes: &Shapes) -> usize {
    const COPIES: usize = 10;
    const WITHOUT_DIMENSIONS: usize = 64;
    let arrays = shapes.operands.iter().chain(&shapes.results);
    let bytes = arrays.map(|shape| WITHOUT_DIMENSIONS + 8 * shape.rank());
    bytes.sum::<usize>() * COPIES
}
