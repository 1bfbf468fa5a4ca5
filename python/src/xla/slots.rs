//! The call sites that a thread called last: to find one again takes no lock and no allocation.

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::thread::LocalKey;

use callbox::{ArrayShape, Status};

use super::frame::Frame;
use crate::module::{ModuleCore, SiteKey, short};
use crate::registry;
use crate::site::{CallText, Passage, Ready, Shapes};

/// How many a thread remembers.
const SLOTS: usize = 64;

/// An attribute's name or value.
type Bytes = Box<[u8]>;

/// A call site with all that tells it from others, ready to be called.
pub(super) struct Known<R> {
    /// Names and values, in XLA's order.
    attributes: Vec<(Bytes, Bytes)>,
    operands: Vec<ArrayShape>,
    results: Vec<ArrayShape>,
    pub(super) operand_sizes: Vec<usize>,
    pub(super) result_sizes: Vec<usize>,
    /// Whoever keeps it may let it make way.
    ready: Weak<R>,
}

/// What a thread remembers.
pub(super) struct Slots<R>([Option<Arc<Known<R>>>; SLOTS]);

impl<R> Slots<R> {
    pub(super) const fn new() -> Self {
        Self([const { None }; SLOTS])
    }
}

/// Makes a call site ready that no thread remembers.
pub(super) type Prepare<R> = fn(Said, &Arc<ModuleCore>, &Shapes) -> callbox::Result<Arc<R>>;

thread_local! {
    static KNOWN: RefCell<Slots<Ready>> = const { RefCell::new(Slots::new()) };
}

/// Calls what a frame says, with the call site ready to be called.
#[inline]
pub(super) fn with<T>(
    frame: Frame<'_>,
    call: impl FnOnce(&Known<Ready>, &Ready) -> callbox::Result<T>,
) -> callbox::Result<T> {
    with_in(&KNOWN, frame, prepare, call)
}

/// The same, ready in some other way.
#[inline]
pub(super) fn with_in<R, T>(
    slots: &'static LocalKey<RefCell<Slots<R>>>,
    frame: Frame<'_>,
    prepare: Prepare<R>,
    call: impl FnOnce(&Known<R>, &R) -> callbox::Result<T>,
) -> callbox::Result<T> {
    // Frames of one instruction share their attributes, of which the address says where to look. What is there is compared with the frame.
    let slot = (frame.hint() >> 4) % SLOTS;
    let known = slots.with_borrow(|known| known.0[slot].clone());
    if let Some(known) = known
        && known.is_of(frame)?
        && let Some(ready) = known.ready.upgrade()
    {
        return call(&known, &ready);
    }
    let (known, ready) = find_anew(slots, slot, frame, prepare)?;
    call(&known, &ready)
}

#[cold]
fn find_anew<R>(
    slots: &'static LocalKey<RefCell<Slots<R>>>,
    slot: usize,
    frame: Frame<'_>,
    prepare: Prepare<R>,
) -> callbox::Result<(Arc<Known<R>>, Arc<R>)> {
    let (known, ready) = Known::new(frame, prepare)?;
    let known = Arc::new(known);
    slots.with_borrow_mut(|all| all.0[slot] = Some(Arc::clone(&known)));
    Ok((known, ready))
}

impl<R> Known<R> {
    #[inline]
    fn is_of(&self, frame: Frame<'_>) -> callbox::Result<bool> {
        let attributes = frame.attributes();
        if attributes.len() != self.attributes.len() {
            return Ok(false);
        }
        for (found, (name, value)) in attributes.zip(&self.attributes) {
            let found = found?;
            if found.0 != &**name || found.1 != &**value {
                return Ok(false);
            }
        }
        Ok(frame.operands()?.are(&self.operands) && frame.results()?.are(&self.results))
    }

    fn new(frame: Frame<'_>, prepare: Prepare<R>) -> callbox::Result<(Self, Arc<R>)> {
        let said = Said::of(frame)?;
        let module = registry::find(&said.module)?;
        let shapes = Shapes {
            operands: frame.operands()?.shapes()?,
            results: frame.results()?.shapes()?,
        };
        let ready = prepare(said, &module, &shapes)?;
        let sizes = |shapes: &[ArrayShape]| shapes.iter().map(ArrayShape::byte_size).collect();
        let known = Self {
            attributes: frame
                .attributes()
                .map(|found| found.map(|(name, value)| (name.into(), value.into())))
                .collect::<callbox::Result<_>>()?,
            operand_sizes: sizes(&shapes.operands),
            result_sizes: sizes(&shapes.results),
            operands: shapes.operands,
            results: shapes.results,
            ready: Arc::downgrade(&ready),
        };
        Ok((known, ready))
    }
}

/// A call of the target in the sandbox.
fn prepare(said: Said, module: &Arc<ModuleCore>, shapes: &Shapes) -> callbox::Result<Arc<Ready>> {
    let target = module.target(&said.target).ok_or_else(|| {
        Status::not_found(format!(
            "expected a target of the module, found {:?}",
            said.target
        ))
    })?;
    let key = SiteKey {
        target,
        call: said.call_text,
        attributes: short(&said.attributes),
        arrays: SiteKey::arrays(shapes),
        // XLA throws away the results of a program that fails.
        passage: Passage::Pieces,
    };
    let loaded = module.loaded()?;
    let said_of_it = (&said.call, said.attributes.as_str());
    module.ready(&loaded, key, said_of_it, shapes)
}

/// What a frame's attributes say.
pub(super) struct Said {
    pub(super) module: String,
    pub(super) target: String,
    pub(super) attributes: String,
    pub(super) call: CallText,
    /// As JSON.
    pub(super) call_text: String,
}

impl Said {
    pub(super) fn of(frame: Frame<'_>) -> callbox::Result<Self> {
        let [mut module, mut target, mut attributes, mut call_text] = [const { None }; 4];
        for found in frame.attributes() {
            let (name, value) = found?;
            let place = match name {
                b"module" => &mut module,
                b"target" => &mut target,
                b"attributes" => &mut attributes,
                b"call" => &mut call_text,
                other => return Err(unknown(other)),
            };
            let text = std::str::from_utf8(value).map_err(|_| unknown(name))?;
            *place = Some(text.to_owned());
        }
        let missing = || {
            Status::invalid_argument(
                "expected the attributes module, target, attributes and call, found not all of them",
            )
        };
        let call_text: String = call_text.ok_or_else(missing)?;
        let call = serde_json::from_str(&call_text)
            .map_err(|error| Status::invalid_argument(format!("attribute \"call\": {error}")))?;
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
        "expected the attributes module, target, attributes and call as text, found {:?}",
        String::from_utf8_lossy(name)
    ))
}
