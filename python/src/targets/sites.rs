//! The call sites of a target: their checks, and the cache of those that direct calls prepared.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

use callbox::attributes_to_mlir;
use callbox::call::{ApiVersion, CallBuffers, Mapping, Signature};
use callbox::values::untouched;
use callbox::{ArrayShape, CallOptions, CallSite, Dictionary, Status};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::Target;
use super::options::{self, Options};
use super::results::{Outs, Results, with_operands};
use crate::arrays::{Array, Maker};
use crate::attributes;
use crate::checks;
use crate::error::{or_raise, raised};
use crate::exit::Inside;
use crate::interrupts;
use crate::module::{FamilyKey, Loaded, SiteKey, key_part};
use crate::native;
use crate::shadow::ShadowSite;
use crate::site::{CallText, InfoText, Passage, Ready, Shapes, SiteText};
use crate::stack::on_enough;
use crate::waiting::on_a_thread;

/// The maximum number of call sites of direct calls. The cache is cleared when full.
const MOST_SITES: usize = 1024;

/// The call sites of a target's direct calls, in one loaded module.
#[derive(Default)]
pub(crate) struct DirectSites {
    /// By the encoded key of everything but the attributes.
    families: HashMap<Vec<u8>, DirectFamily>,
    /// The number of call sites.
    count: usize,
}

/// Call sites of direct calls that differ in their attributes alone.
struct DirectFamily {
    common: Arc<Common>,
    /// By the encoded attributes. The module may have dropped a call site.
    ready: HashMap<Vec<u8>, Weak<Ready>>,
}

/// The parts of a call site that are not attributes.
struct Common {
    key: Arc<FamilyKey>,
    shapes: Shapes,
    text: CallText,
    makers: Arc<[Maker]>,
}

/// The key of a direct call.
struct DirectKey {
    family: Vec<u8>,
    attributes: Vec<u8>,
}

impl DirectSites {
    /// The family of a call, and the call site itself if it is ready.
    fn find(&self, key: &DirectKey) -> Option<(Arc<Common>, Option<Arc<Ready>>)> {
        let family = self.families.get(&key.family)?;
        let ready = family.ready.get(&key.attributes).and_then(Weak::upgrade);
        Some((Arc::clone(&family.common), ready))
    }

    fn keep(&mut self, key: DirectKey, common: &Arc<Common>, ready: &Arc<Ready>) {
        if self.count >= MOST_SITES {
            *self = Self::default();
        }
        if !self.families.contains_key(&key.family) {
            self.forget_dropped();
        }
        let family = self
            .families
            .entry(key.family)
            .or_insert_with(|| DirectFamily {
                common: Arc::clone(common),
                ready: HashMap::new(),
            });
        family.common = Arc::clone(common);
        let before = family.ready.insert(key.attributes, Arc::downgrade(ready));
        self.count += usize::from(before.is_none());
    }

    /// Forgets the call sites that the module has dropped.
    pub(crate) fn forget_dropped(&mut self) {
        self.families.retain(|_, family| {
            family.ready.retain(|_, ready| ready.strong_count() > 0);
            !family.ready.is_empty()
        });
        self.count = self.families.values().map(|known| known.ready.len()).sum();
    }
}

/// The arguments of a direct call.
pub(super) struct Request<'a, 'py> {
    pub(super) operands: &'a [Array],
    pub(super) options: &'a Options<'py>,
    pub(super) outs: &'a Outs<'py>,
}

impl Target {
    pub(super) fn call_text(
        &self,
        shapes: &Shapes,
        opaque: Option<&[u8]>,
        static_info: Option<InfoText>,
        api_version: Option<&str>,
    ) -> PyResult<CallText> {
        let has_opaque = opaque.is_some();
        let version = checks::api_version(
            self.signature(),
            api_version,
            has_opaque,
            static_info.is_some(),
        )?;
        let instead = match version {
            ApiVersion::TypedFfi => Some("remove opaque="),
            ApiVersion::JaxFfi => Some("pass them as static_info="),
            _ => None,
        };
        if let Some(instead) = instead.filter(|_| has_opaque) {
            return Err(PyTypeError::new_err(format!(
                "{}(): {version} has no opaque bytes: {instead}",
                self.signature().label()
            )));
        }
        let mut text = CallText::new(version, shapes);
        text.opaque = crate::site::to_hex(opaque.unwrap_or_default());
        text.static_info = static_info;
        Ok(text)
    }

    /// Checks a call site as far as that is possible without running the guest.
    pub(super) fn check(
        &self,
        py: Python<'_>,
        shapes: &Shapes,
        text: &CallText,
        attributes: Dictionary,
    ) -> PyResult<CallSite> {
        checks::operands(self.signature(), &shapes.operands)?;
        checks::results(self.signature(), &shapes.results)?;
        checks::inferred(self.signature(), &shapes.operands, &shapes.results)?;
        for &(result, operand) in &text.aliases {
            let pair = (shapes.results.get(result), shapes.operands.get(operand));
            let (Some(to), Some(from)) = pair else {
                return Err(PyValueError::new_err(format!(
                    "expected aliases of {} operands and {} results, \
                     found operand {operand} and result {result}",
                    shapes.operands.len(),
                    shapes.results.len()
                )));
            };
            if !to.is_compatible(from) {
                return Err(PyValueError::new_err(format!(
                    "expected operand {operand} and result {result}, which share memory, \
                     to have one shape, found {from} and {to}",
                )));
            }
        }
        let site = or_raise(py, text.site(&self.signature().name, attributes, shapes))?;
        or_raise(py, self.signature().check(&site))?;
        Ok(site)
    }

    /// Compiles the module in a forked child, as long as a load takes, while other threads run.
    #[cold]
    fn load_again(&self, py: Python<'_>, inside: Inside) -> PyResult<(Inside, Arc<Loaded>)> {
        drop(inside);
        let core = Arc::clone(&self.core);
        let loaded = on_a_thread(py, move || core.loaded())?;
        Ok((Inside::enter(py), or_raise(py, loaded)?))
    }

    /// Returns the call site of a direct call, from the cache if possible. Otherwise the time of
    /// the call begins.
    pub(super) fn direct(
        &self,
        py: Python<'_>,
        inside: Inside,
        request: &Request<'_, '_>,
        within: &mut CallOptions,
    ) -> PyResult<(Inside, Arc<Ready>, Arc<[Maker]>)> {
        let Request {
            operands,
            options,
            outs,
        } = *request;
        let (inside, loaded) = match self.core.loaded_here() {
            Some(loaded) => (inside, loaded),
            None => self.load_again(py, inside)?,
        };
        let mut key = DirectKey {
            family: Vec::with_capacity(256),
            attributes: Vec::with_capacity(64),
        };
        options.write_key(&mut key.family);
        let passage = passage(self.signature(), operands, outs);
        key.family.push(passage as u8);
        write_arrays(&mut key.family, operands.iter().map(Some));
        write_arrays(
            &mut key.family,
            outs.iter().map(|out| out.as_ref().map(|(_, array)| array)),
        );
        let is_complete = options.write_attributes(&mut key.attributes);
        let sites = || loaded.direct(self.number);
        let mut known = sites().find(&key);
        if is_complete && let Some((common, Some(ready))) = &known {
            return Ok((inside, Arc::clone(ready), Arc::clone(&common.makers)));
        }
        let attributes = attributes::dictionary(py, self.signature(), &options.given)?;
        let text = attributes_to_mlir(&attributes);
        if !is_complete {
            key.attributes.extend_from_slice(key_part(&text).as_bytes());
            known = sites().find(&key);
            if let Some((common, Some(ready))) = &known {
                return Ok((inside, Arc::clone(ready), Arc::clone(&common.makers)));
            }
        }
        let common = match known {
            Some((common, _)) => common,
            None => Arc::new(self.common(py, request, passage, &attributes)?),
        };
        *within = self.core.begun(within);
        let mut within = within.clone();
        let running = interrupts::begin(py, &mut within)?;
        let start = Instant::now();
        let budget = options.budget();
        let (inside, ready) = inside.detach(py, || {
            let key = SiteKey {
                family: Arc::clone(&common.key),
                attributes: key_part(&text),
            };
            let text = SiteText {
                call: &common.text,
                attributes: &text,
                parsed: Some(&attributes),
            };
            let core = &self.core;
            let ready =
                |within: &CallOptions| core.ready(&loaded, key, text, &common.shapes, within);
            let ready = match budget {
                None => ready(&within),
                Some(budget) => budget.spend(&within, ready),
            };
            let stats = core.stats(self.number);
            ready.inspect_err(|failure| stats.count_unprepared(start, failure))
        });
        interrupts::check(py, running.as_ref(), &ready)?;
        let ready = or_raise(py, ready)?;
        sites().keep(key, &common, &ready);
        Ok((inside, ready, Arc::clone(&common.makers)))
    }

    /// The parts of a new call site that are not attributes. Checks the whole call site.
    fn common(
        &self,
        py: Python<'_>,
        request: &Request<'_, '_>,
        passage: Passage,
        attributes: &Dictionary,
    ) -> PyResult<Common> {
        let shapes = self.shapes(py, request)?;
        let options = request.options;
        let info = options.static_info.clone();
        let text = self.call_text(
            &shapes,
            options.opaque.as_deref(),
            info,
            options.api_version(),
        )?;
        self.check(py, &shapes, &text, attributes.clone())?;
        let key = FamilyKey {
            target: self.number,
            call: serde_json::to_string(&text)
                .map_err(|error| PyValueError::new_err(error.to_string()))?,
            arrays: FamilyKey::arrays(&shapes),
            passage,
        };
        let makers = shapes.results.iter().map(|shape| Maker::new(py, shape));
        let makers = makers.collect::<PyResult<Vec<_>>>()?;
        Ok(Common {
            key: Arc::new(key),
            shapes,
            text,
            makers: makers.into(),
        })
    }

    /// The shapes of a direct call.
    ///
    /// The shapes of results are the requested ones, else the inferred ones, else those of `out`.
    fn shapes(&self, py: Python<'_>, request: &Request<'_, '_>) -> PyResult<Shapes> {
        let outs = request.outs;
        let operands = request.operands.iter().map(|array| array.shape(py));
        let operands = operands.collect::<PyResult<Vec<_>>>()?;
        checks::operands(self.signature(), &operands)?;
        let arrays = || outs.iter().map(|out| out.as_ref().map(|(_, array)| array));
        let results = match &request.options.result_shape_dtypes {
            Some(given) => options::result_shapes(given)?,
            None => match self.signature().infer_results(&operands) {
                Ok(results) => {
                    let given = |number: usize| outs.get(number).is_some_and(Option::is_some);
                    let new = results.iter().enumerate();
                    let new = new.filter(|(number, _)| !given(*number));
                    let new = new.map(|(_, shape)| shape.byte_size());
                    or_raise(
                        py,
                        self.core.check_declared(self.signature(), &operands, new),
                    )?;
                    results
                }
                Err(_) if !outs.is_empty() && arrays().all(|array| array.is_some()) => {
                    let shapes = arrays().flatten().map(|array| array.shape(py));
                    shapes.collect::<PyResult<_>>()?
                }
                Err(status) => {
                    let signature = self.signature();
                    let declared = signature.results.iter().flatten();
                    let says = signature.has_trait("elementwise")
                        || declared.clone().count() > 0
                            && declared.clone().all(|result| result.dimensions.is_some());
                    let status = if says {
                        status
                    } else {
                        status.context("pass out= or result_shape_dtypes=")
                    };
                    let name = signature.label();
                    return Err(raised(py, &status.context(format_args!("{name}()"))));
                }
            },
        };
        if !outs.is_empty() && outs.len() != results.len() {
            return Err(PyTypeError::new_err(format!(
                "{}(): expected {} arrays as out, found {}",
                self.signature().label(),
                results.len(),
                outs.len()
            )));
        }
        for (number, (out, expected)) in arrays().zip(&results).enumerate() {
            if let Some(out) = out {
                out.expect(expected, &|| {
                    format!("{}(): out {number}", self.signature().label())
                })?;
            }
        }
        Ok(Shapes { operands, results })
    }

    /// Calls the native kernel with copies of the arrays, which go to the device and back.
    pub(super) fn call_native<'py>(
        &self,
        py: Python<'py>,
        inside: Inside,
        mut operands: Vec<Array>,
        options: &Options<'py>,
        outs: Outs<'py>,
        within: &CallOptions,
    ) -> PyResult<Bound<'py, PyAny>> {
        let name = &self.signature().name;
        let native = self.core.native.as_ref().filter(|native| native.has(name));
        let native = native.ok_or_else(|| raised(py, &native::missing(name)))?;
        let request = Request {
            operands: &operands,
            options,
            outs: &outs,
        };
        or_raise(py, self.core.check_open())?;
        let shapes = self.shapes(py, &request)?;
        let info = options.static_info.clone();
        let text = self.call_text(
            &shapes,
            options.opaque.as_deref(),
            info,
            options.api_version(),
        )?;
        let attributes = attributes::dictionary(py, self.signature(), &options.given)?;
        let site = self.check(py, &shapes, &text, attributes)?;
        for operand in &mut operands {
            operand.put_in_order(py)?;
        }
        let start = Instant::now();
        let stats = self.core.native_stats(self.number);
        let shadow = self.core.shadow.as_ref();
        let shadowed = shadow
            .is_some_and(|shadow| shadow.chooses(name))
            .then(|| site.clone());
        let (inside, outcome) = with_operands(py, inside, &operands, |arrays| {
            let from = (0..arrays.operands()).map(|number| arrays.operand_bytes(number));
            let from: Vec<Vec<u8>> = from.collect::<callbox::Result<_>>()?;
            let to = shapes.results.iter();
            let to = to.map(|shape| untouched(shape.byte_size()));
            let mut to: Vec<Vec<u8>> = to.collect::<callbox::Result<_>>()?;
            let from: Vec<&[u8]> = from.iter().map(Vec::as_slice).collect();
            let mut buffers: Vec<&mut [u8]> = to.iter_mut().map(Vec::as_mut_slice).collect();
            // The verifier of PTX descends into what nests.
            on_enough(|| native.call(site, within, &from, &mut buffers))?;
            let Some(site) = shadowed else { return Ok(to) };
            let whole = Mapping::default();
            let wasm = ShadowSite::new(&self.core, self.number, &site, &whole, &shapes.results);
            let found = Vec::from_iter(to.iter().map(Vec::as_slice));
            if let Some(wasm) = wasm {
                wasm.compare(within, &from, &found, stats)?;
            }
            Ok(to)
        });
        let bytes = |shapes: &[ArrayShape]| shapes.iter().map(ArrayShape::byte_size).sum();
        let (bytes_in, bytes_out) = (bytes(&shapes.operands), bytes(&shapes.results));
        let ended = outcome.as_ref().map(drop).map_err(Status::clone);
        stats.count(start, bytes_in, bytes_out, &ended);
        let to = or_raise(py, outcome)?;
        let makers = shapes.results.iter().map(|shape| Maker::new(py, shape));
        let results = Results::new(py, outs, &makers.collect::<PyResult<Vec<_>>>()?)?;
        let _inside = results.write(py, inside, to);
        results.into_python(py)
    }
}

/// How the arrays of a direct call are copied. The caller's own arrays must be unchanged if the
/// call fails, and pieces must not write what others have yet to read.
fn passage(signature: &Signature, operands: &[Array], outs: &Outs<'_>) -> Passage {
    let outs = || {
        let outs = outs.iter().enumerate();
        outs.filter_map(|(number, out)| Some((number, &out.as_ref()?.1)))
    };
    if outs().next().is_none() {
        return Passage::Pieces;
    }
    let is_apart = outs().all(|(result, out)| {
        let raw = out.raw();
        let after = outs().skip_while(|(number, _)| *number <= result);
        let mut operands = operands.iter().enumerate();
        after
            .map(|(_, other)| other.raw())
            .all(|other| !raw.overlaps(&other))
            && operands.all(|(operand, array)| {
                let read = array.raw();
                !raw.overlaps(&read)
                    || raw.is_same(&read)
                        && out.element_type() == array.element_type()
                        && out.dimensions() == array.dimensions()
                        && signature.shares_rows(operand, result)
            })
    });
    if is_apart {
        Passage::PiecesOrNothing
    } else {
        Passage::Whole
    }
}

/// Writes element types and dimensions, so that different lists of arrays have different bytes.
fn write_arrays<'a>(key: &mut Vec<u8>, arrays: impl ExactSizeIterator<Item = Option<&'a Array>>) {
    key.extend_from_slice(&arrays.len().to_le_bytes());
    for array in arrays {
        let Some(array) = array else {
            key.push(0);
            continue;
        };
        key.push(array.element_type().number());
        let dimensions = array.dimensions();
        key.extend_from_slice(&dimensions.len().to_le_bytes());
        for dimension in dimensions {
            key.extend_from_slice(&dimension.to_le_bytes());
        }
    }
}
