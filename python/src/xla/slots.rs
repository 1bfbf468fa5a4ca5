//! A cache of the call sites that each thread called last. A lookup takes no lock and does not
//! allocate.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Weak};
use std::thread::LocalKey;
use std::time::Instant;

use callbox::untrusted_text::{sanitize, shown_name};
use callbox::{ArrayShape, CallOptions, Status, StatusCode};

use super::frame::{Arrays, Frame};
use super::packing::{Packing, bytes_in_xla};
use crate::interrupts::{self, LastOptions};
use crate::module::{FamilyKey, ModuleCore, SiteKey, key_part};
use crate::registry;
use crate::site::{CallText, Passage, Ready, Shapes, SiteText};

/// The bytes of texts and shapes from which on a call site is not cached: a cache outlives modules,
/// and a lookup takes little time beside a comparison of long texts.
const LONG: usize = 1 << 14;

/// The number of sets of cached call sites of a thread.
const SETS: usize = 512;

/// The number of call sites in a set.
const WAYS: usize = 4;

/// A cached call site, with everything that distinguishes it from others.
pub(super) struct CachedSite<R> {
    attributes: AttributeValues,
    operands: Vec<ArrayShape>,
    results: Vec<ArrayShape>,
    /// The sizes in XLA's memory.
    pub(super) operand_sizes: Vec<usize>,
    pub(super) result_sizes: Vec<usize>,
    pub(super) packing: Option<Box<Packing>>,
    pub(super) last_options: LastOptions,
    /// The module may have dropped it.
    ready: Weak<R>,
}

/// The values of a frame's attributes.
struct AttributeValues {
    attributes: Box<[u8]>,
    call: Box<[u8]>,
    module: Box<[u8]>,
    target: Box<[u8]>,
}

impl AttributeValues {
    fn new(parsed: &CallAttributes) -> Self {
        Self {
            attributes: parsed.attributes.as_bytes().into(),
            call: parsed.call_text.as_bytes().into(),
            module: parsed.module.as_bytes().into(),
            target: parsed.target.as_bytes().into(),
        }
    }

    /// Whether the frame has these attributes. XLA sorts them by name.
    #[inline]
    fn are_of(&self, frame: Frame<'_>) -> bool {
        let mut found = frame.attributes();
        let mut is = |name: &[u8], value: &[u8]| matches!(found.next(), Some(Ok(next)) if next == (name, value));
        is(b"attributes", &self.attributes)
            && is(b"call", &self.call)
            && is(b"module", &self.module)
            && is(b"target", &self.target)
            && found.len() == 0
    }
}

/// The cache of a thread: sets of a few call sites, selected by the frame's hint.
pub(super) struct Slots<R> {
    /// Empty before the first call.
    sets: Vec<[Option<Slot<R>>; WAYS]>,
    /// The way that is replaced next.
    next: usize,
}

/// A cached call site with the hint of its frames.
type Slot<R> = (usize, Rc<CachedSite<R>>);

impl<R> Slots<R> {
    pub(super) const fn new() -> Self {
        Self {
            sets: Vec::new(),
            next: 0,
        }
    }

    /// The call site that had a frame with this hint last.
    #[inline]
    fn get(&self, hint: usize) -> Option<Rc<CachedSite<R>>> {
        let mut ways = self.sets.get(set_of(hint))?.iter().flatten();
        let (_, cached) = ways.find(|(of, _)| *of == hint)?;
        Some(Rc::clone(cached))
    }

    /// Keeps a call site in place of the one with the same hint, or of another one of its set.
    fn keep(&mut self, hint: usize, cached: Rc<CachedSite<R>>) -> Option<Slot<R>> {
        if self.sets.is_empty() {
            self.sets.resize_with(SETS, || [const { None }; WAYS]);
        }
        let ways = self.sets.get_mut(set_of(hint))?;
        let same = |way: &Option<Slot<R>>| way.as_ref().is_none_or(|(of, _)| *of == hint);
        let way = ways.iter().position(same).unwrap_or(self.next % WAYS);
        self.next = self.next.wrapping_add(1);
        ways.get_mut(way)?.replace((hint, cached))
    }
}

/// The set of a hint. Attributes lie at addresses that differ by some tens of bytes.
#[inline]
fn set_of(hint: usize) -> usize {
    /// 2^64 divided by the golden ratio, which spreads the numbers of any arithmetic progression.
    const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
    let spread = (hint as u64 >> 4).wrapping_mul(SPREAD);
    (spread >> (u64::BITS - SETS.ilog2())) as usize
}

/// Prepares a call site that is not in the thread's cache, within the time of a call.
pub(super) type Prepare<R> =
    fn(CallAttributes, &Arc<ModuleCore>, &Shapes, &CallOptions) -> callbox::Result<Arc<R>>;

/// The call site of a frame, and the frame's arrays.
pub(super) struct Found<'a, R> {
    pub(super) operands: Arrays<'a>,
    pub(super) results: Arrays<'a>,
    pub(super) cached: Rc<CachedSite<R>>,
    pub(super) ready: Arc<R>,
    /// The options of a call that prepared its call site, with the deadline's time begun, and when
    /// it began.
    within: Option<(CallOptions, Instant)>,
}

impl<R> Found<'_, R> {
    /// The options of a call that prepared its call site, with the deadline's time begun.
    pub(super) fn within(&self) -> Option<&CallOptions> {
        self.within.as_ref().map(|(options, _)| options)
    }

    /// When a call that prepared its call site began.
    pub(super) fn begun(&self) -> Option<Instant> {
        self.within.as_ref().map(|(_, begun)| *begun)
    }
}

thread_local! {
    static CACHE: RefCell<Slots<Ready>> = const { RefCell::new(Slots::new()) };
}

/// Runs `call` with the call site of a frame, prepared for the sandbox.
#[inline]
pub(super) fn with<T>(
    frame: Frame<'_>,
    call: impl FnOnce(&Found<'_, Ready>) -> callbox::Result<T>,
) -> callbox::Result<T> {
    with_in(&CACHE, frame, prepare, call)
}

/// Runs `call` with the call site of a frame, prepared by `prepare`.
#[inline]
pub(super) fn with_in<R, T>(
    slots: &'static LocalKey<RefCell<Slots<R>>>,
    frame: Frame<'_>,
    prepare: Prepare<R>,
    call: impl FnOnce(&Found<'_, R>) -> callbox::Result<T>,
) -> callbox::Result<T> {
    let (operands, results) = (frame.operands()?, frame.results()?);
    // The frames of one instruction share their attributes, whose address is the hint. The memory
    // may be another instruction's by now, so that the call site is compared with the frame.
    let hint = frame.hint();
    if let Some(cached) = slots.with_borrow(|slots| slots.get(hint))
        && cached.attributes.are_of(frame)
        && operands.are(&cached.operands)
        && results.are(&cached.results)
        && let Some(ready) = cached.ready.upgrade()
    {
        return call(&Found {
            operands,
            results,
            cached,
            ready,
            within: None,
        });
    }
    call(&insert(slots, hint, frame, prepare)?)
}

#[cold]
fn insert<'a, R>(
    slots: &'static LocalKey<RefCell<Slots<R>>>,
    hint: usize,
    frame: Frame<'a>,
    prepare: Prepare<R>,
) -> callbox::Result<Found<'a, R>> {
    let parsed = CallAttributes::read(frame)?;
    let module = registry::find(&parsed.module)?;
    // Preparing the call site is a part of the call.
    let within = module.begun(&parsed.call.options());
    let target = module.target(&parsed.target);
    let start = Instant::now();
    let has_status = parsed.call.status;
    if has_status {
        module.late.check(frame.run())?;
    }
    let last = LastOptions::default();
    let prepared = interrupts::cancellable(frame.run(), &within, &last, |within| {
        CachedSite::new(frame, parsed, &module, within, prepare)
    });
    let (cached, ready) = prepared.inspect_err(|failure| {
        if let Some(target) = target {
            module.stats(target).count_unprepared(start, failure);
        }
        if let (true, Some(run)) = (has_status, frame.run())
            && failure.code() == StatusCode::DeadlineExceeded
        {
            module.late.note(run, start.elapsed());
        }
    })?;
    let cached = Rc::new(cached);
    if cached.bytes() < LONG {
        drop(slots.with_borrow_mut(|slots| slots.keep(hint, Rc::clone(&cached))));
    }
    Ok(Found {
        operands: frame.operands()?,
        results: frame.results()?,
        cached,
        ready,
        within: Some((within, start)),
    })
}

impl<R> CachedSite<R> {
    /// Estimates the memory of the texts and the shapes.
    fn bytes(&self) -> usize {
        const WITHOUT_DIMENSIONS: usize = 64;
        let texts = &self.attributes;
        let arrays = self.operands.iter().chain(&self.results);
        let shapes = arrays.map(|shape| WITHOUT_DIMENSIONS + 8 * shape.rank());
        texts.attributes.len() + texts.call.len() + shapes.sum::<usize>()
    }

    fn new(
        frame: Frame<'_>,
        parsed: CallAttributes,
        module: &Arc<ModuleCore>,
        within: &CallOptions,
        prepare: Prepare<R>,
    ) -> callbox::Result<(Self, Arc<R>)> {
        let shapes = Shapes {
            operands: frame.operands()?.shapes()?,
            results: frame.results()?.shapes()?,
        };
        let attributes = AttributeValues::new(&parsed);
        let ready = prepare(parsed, module, &shapes, within)?;
        let sizes = |shapes: &[ArrayShape]| shapes.iter().map(bytes_in_xla).collect();
        let cached = Self {
            attributes,
            operand_sizes: sizes(&shapes.operands),
            result_sizes: sizes(&shapes.results),
            packing: Packing::of(&shapes.operands, &shapes.results),
            operands: shapes.operands,
            results: shapes.results,
            last_options: LastOptions::default(),
            ready: Arc::downgrade(&ready),
        };
        Ok((cached, ready))
    }
}

/// Prepares a call of the target in the sandbox.
fn prepare(
    parsed: CallAttributes,
    module: &Arc<ModuleCore>,
    shapes: &Shapes,
    options: &CallOptions,
) -> callbox::Result<Arc<Ready>> {
    let target = module
        .target(&parsed.target)
        .ok_or_else(|| missing(&parsed.target))?;
    if parsed.call.declared {
        check_declared(&parsed, module, &shapes.operands, &shapes.results)?;
    }
    let key = SiteKey {
        family: Arc::new(FamilyKey {
            target,
            call: parsed.call_text,
            arrays: FamilyKey::arrays(shapes),
            // XLA discards the results of a program that fails.
            passage: Passage::Pieces,
        }),
        attributes: key_part(&parsed.attributes),
    };
    let loaded = module.loaded()?;
    let text = SiteText {
        call: &parsed.call,
        attributes: &parsed.attributes,
        parsed: None,
    };
    module.ready(&loaded, key, text, shapes, options)
}

/// Checks the sizes of results that the module declares, for each element of a batch.
pub(super) fn check_declared(
    parsed: &CallAttributes,
    module: &ModuleCore,
    operands: &[ArrayShape],
    results: &[ArrayShape],
) -> callbox::Result<()> {
    let ranks = &parsed.call.operand_ranks;
    let batch = std::iter::zip(ranks, operands);
    let batch = batch.map(|(rank, shape)| shape.rank().saturating_sub(*rank));
    let batch = batch.max().unwrap_or(0);
    let element = |shape: &ArrayShape| {
        let dimensions = shape.dimensions().get(batch..).unwrap_or_default();
        ArrayShape::new(shape.element_type(), dimensions)
    };
    let operands = operands.iter().map(element);
    let operands = operands.collect::<callbox::Result<Vec<_>>>()?;
    // A status comes last.
    let results = results.iter().take(parsed.call.result_ranks.len());
    let results = results.map(element).collect::<callbox::Result<Vec<_>>>()?;
    let sizes = results.iter().map(ArrayShape::byte_size);
    let target = module
        .target(&parsed.target)
        .ok_or_else(|| missing(&parsed.target))?;
    module.check_declared(&module.signatures()[target], &operands, sizes)
}

fn missing(target: &str) -> Status {
    Status::not_found(format!(
        "the module has no target \"{}\"",
        shown_name(target)
    ))
}

/// The attributes of a frame, which name a module, a target and a call site.
pub(super) struct CallAttributes {
    pub(super) module: String,
    pub(super) target: String,
    pub(super) attributes: String,
    pub(super) call: CallText,
    /// `call` in JSON.
    pub(super) call_text: String,
}

impl CallAttributes {
    pub(super) fn read(frame: Frame<'_>) -> callbox::Result<Self> {
        let [mut module, mut target, mut attributes, mut call_text] = [const { None }; 4];
        for found in frame.attributes() {
            let (name, value) = found?;
            let slot = match name {
                b"module" => &mut module,
                b"target" => &mut target,
                b"attributes" => &mut attributes,
                b"call" => &mut call_text,
                other => return Err(unknown(other)),
            };
            let text = std::str::from_utf8(value).map_err(|_| unknown(name))?;
            *slot = Some(text.to_owned());
        }
        let missing = || {
            Status::invalid_argument(
                "expected the attributes module, target, attributes and call, found fewer",
            )
        };
        let call_text: String = call_text.ok_or_else(missing)?;
        let call = serde_json::from_str(&call_text).map_err(|error| {
            const MOST_SHOWN: usize = 256;
            let error = error.to_string();
            let error = sanitize(error.as_bytes(), error.len(), MOST_SHOWN);
            Status::invalid_argument(format!("attribute \"call\": {error}"))
        })?;
        Ok(Self {
            module: module.ok_or_else(missing)?,
            target: target.ok_or_else(missing)?,
            attributes: attributes.ok_or_else(missing)?,
            call,
            call_text,
        })
    }
}

fn unknown(name: &[u8]) -> Status {
    Status::invalid_argument(format!(
        "expected the attributes module, target, attributes and call as text, found \"{}\"",
        shown_name(&String::from_utf8_lossy(name))
    ))
}
