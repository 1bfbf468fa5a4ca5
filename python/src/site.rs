//! Call sites: what a program says of a call to a target, as text and ready to be called.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use callbox::call::{Alias, ApiVersion, CallBuffers};
use callbox::program::attributes_from_mlir;
use callbox::wasm::{MappedCall, Mapping, Module};
use callbox::{
    ArrayShape, CallOptions, CallSite, Deadline, Dictionary, ElementType, Shape, Status, StatusCode,
};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use crate::buffers::Places;
use crate::stats::Stats;

/// Bytes of an array that an elementwise target gets at one time: they stay in a core's cache on the way in, through and out.
const PIECE_BYTES: usize = 256 << 10;

/// All that a call site says but its shapes, and whom it calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallText {
    /// As HLO text has it.
    pub(crate) api_version: String,
    /// The ranks of one call's operands and results. What arrays have more is the batch.
    pub(crate) operand_ranks: Vec<usize>,
    pub(crate) result_ranks: Vec<usize>,
    /// Results and operands that share memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) aliases: Vec<(usize, usize)>,
    /// Whether failures are a result and not a failure of the program: XLA waits for all shards that take part in a collective, and a
    /// shard that failed does not come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) status: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline_ms: Option<u64>,
    /// Hexadecimal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) opaque: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) static_info: Option<InfoText>,
}

/// Static information of the JAX FFI proposal, its bytes in hexadecimal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(crate) enum InfoText {
    Value(String),
    Reference {
        constructor: String,
        destructor: String,
        argument: String,
    },
}

/// Static information for a target of the JAX FFI proposal's convention that the guest makes itself, and gets by reference.
///
/// Bytes are static information by value, without this.
#[pyclass(frozen, module = "callbox")]
#[derive(Clone, Debug)]
pub(crate) struct StaticInfo(pub(crate) InfoText);

#[pymethods]
impl StaticInfo {
    /// What the export `constructor`, `(data, size) -> object`, makes of `argument` in each instance, and `destructor` takes back.
    #[staticmethod]
    fn reference(constructor: String, destructor: String, argument: &[u8]) -> Self {
        Self(InfoText::Reference {
            constructor,
            destructor,
            argument: to_hex(argument),
        })
    }

    fn __repr__(&self) -> String {
        match &self.0 {
            InfoText::Value(value) => format!("StaticInfo({} bytes)", value.len() / 2),
            InfoText::Reference {
                constructor,
                destructor,
                argument,
            } => format!(
                "StaticInfo.reference({constructor:?}, {destructor:?}, <{} bytes>)",
                argument.len() / 2
            ),
        }
    }
}

/// Bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: [char; 16] = [
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    let digits = bytes.iter().flat_map(|byte| {
        [
            DIGITS[usize::from(byte >> 4)],
            DIGITS[usize::from(byte & 15)],
        ]
    });
    digits.collect()
}

fn from_hex(text: &str) -> callbox::Result<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
    bytes.ok_or_else(|| Status::invalid_argument("expected pairs of hexadecimal digits"))
}

/// The shapes of a call site's operands and results: of all elements of the batch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shapes {
    pub(crate) operands: Vec<ArrayShape>,
    pub(crate) results: Vec<ArrayShape>,
}

impl CallText {
    /// Of calls without a batch.
    pub(crate) fn new(api_version: ApiVersion, shapes: &Shapes) -> Self {
        Self {
            api_version: api_version.name().to_owned(),
            operand_ranks: shapes.operands.iter().map(ArrayShape::rank).collect(),
            result_ranks: shapes.results.iter().map(ArrayShape::rank).collect(),
            ..Self::default()
        }
    }

    /// How many leading dimensions are the batch's: the same number of all arrays.
    pub(crate) fn batch_dimensions(&self, shapes: &Shapes) -> callbox::Result<usize> {
        let ranks = self.operand_ranks.iter().zip(&shapes.operands);
        let ranks = ranks.chain(self.result_ranks.iter().zip(&shapes.results));
        let counts = (self.operand_ranks.len(), self.result_ranks.len());
        let found = (shapes.operands.len(), shapes.results.len());
        if counts != found {
            return Err(Status::invalid_argument(format!(
                "expected {} operands and {} results, found {} and {}",
                counts.0, counts.1, found.0, found.1
            )));
        }
        let mut batch = None;
        for (&rank, shape) in ranks {
            let more = shape.rank().checked_sub(rank);
            match (more, batch) {
                (Some(more), None) => batch = Some(more),
                (Some(more), Some(known)) if more == known => {}
                _ => {
                    return Err(Status::invalid_argument(format!(
                        "expected an array of rank {rank} behind {} dimensions of the batch, found {shape}",
                        batch.unwrap_or(0)
                    )));
                }
            }
        }
        Ok(batch.unwrap_or(0))
    }

    /// The call site, with the shapes of all elements of the batch.
    pub(crate) fn site(
        &self,
        target: &str,
        attributes: Dictionary,
        shapes: &Shapes,
    ) -> callbox::Result<CallSite> {
        let operands = shapes.operands.iter().cloned().map(Shape::Array).collect();
        let result = match shapes.results.as_slice() {
            [result] => Shape::Array(result.clone()),
            results => Shape::tuple(results.iter().cloned().map(Shape::Array).collect())?,
        };
        let mut site = CallSite::new(target, operands, result).with_attributes(attributes);
        site.api_version = self.api_version.parse()?;
        site.opaque = from_hex(&self.opaque)?;
        site.static_info = match &self.static_info {
            None => None,
            Some(InfoText::Value(bytes)) => Some(callbox::StaticInfo::Value(from_hex(bytes)?)),
            Some(InfoText::Reference {
                constructor,
                destructor,
                argument,
            }) => Some(callbox::StaticInfo::Reference {
                constructor: constructor.clone(),
                destructor: destructor.clone(),
                argument: from_hex(argument)?,
            }),
        };
        let is_single = shapes.results.len() == 1;
        site.aliasing = self
            .aliases
            .iter()
            .map(|&(result, operand)| Alias {
                result_index: match is_single {
                    true => Vec::new(),
                    false => vec![result],
                },
                operand,
                operand_index: Vec::new(),
            })
            .collect();
        Ok(site)
    }

    /// What a caller says of each call.
    pub(crate) fn options(&self) -> CallOptions {
        CallOptions {
            deadline: self
                .deadline_ms
                .map(|ms| Deadline::After(Duration::from_millis(ms))),
            ..CallOptions::default()
        }
    }
}

/// A call site that is ready to be called.
#[derive(Debug)]
pub(crate) struct Ready {
    call: MappedCall,
    options: CallOptions,
    stats: Arc<Stats>,
    /// Whether the last result is a status, which the target knows nothing of.
    has_status: bool,
    /// The bytes of one element's results, and whether they are truth values.
    element_sizes: Vec<(usize, bool)>,
    bytes_in: usize,
    bytes_out: usize,
    /// The length of the attributes' text.
    attribute_bytes: usize,
}

/// How arrays go into a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Passage {
    /// Those of an elementwise target in pieces. Of a call that fails, results may have been written.
    Pieces,
    /// Each as a whole. Results are written only if the call succeeds.
    Whole,
}

impl Ready {
    /// Lays a call site out. `shapes` are those of all arrays, the status among them if the text says that there is one.
    pub(crate) fn new(
        module: &Arc<Module>,
        target: &str,
        (text, attributes): (&CallText, &str),
        shapes: &Shapes,
        passage: Passage,
        stats: &Arc<Stats>,
    ) -> callbox::Result<Self> {
        let mut shapes = shapes.clone();
        let status = match text.status {
            true => Some(shapes.results.pop().ok_or_else(no_status)?),
            false => None,
        };
        let batch_dimensions = text.batch_dimensions(&shapes)?;
        let site = text.site(target, attributes_from_mlir(attributes)?, &shapes)?;
        let mapping = Mapping {
            batch_dimensions,
            piece_bytes: match passage {
                Passage::Pieces => Some(PIECE_BYTES),
                Passage::Whole => None,
            },
        };
        let element_size = |shape: &ArrayShape| {
            let elements: usize = shape.dimensions()[batch_dimensions..].iter().product();
            let size = elements * shape.element_type().byte_width();
            (size, shape.element_type().is_pred())
        };
        let element_sizes: Vec<_> = shapes.results.iter().map(element_size).collect();
        if let Some(status) = &status {
            check_status(status, &shapes, batch_dimensions)?;
        }
        let bytes = |shapes: &[ArrayShape]| shapes.iter().map(ArrayShape::byte_size).sum();
        Ok(Self {
            call: module.prepare_mapped(site, &mapping)?,
            options: text.options(),
            stats: Arc::clone(stats),
            has_status: status.is_some(),
            element_sizes,
            bytes_in: bytes(&shapes.operands),
            bytes_out: bytes(&shapes.results),
            attribute_bytes: attributes.len(),
        })
    }

    /// Calls the target, with the call site's own options or others.
    ///
    /// # Errors
    /// What the target reports or how it failed, unless failures are a result.
    #[inline]
    pub(crate) fn call(
        &self,
        options: Option<&CallOptions>,
        places: &mut Places<'_>,
    ) -> callbox::Result<()> {
        let options = options.unwrap_or(&self.options);
        let outcome = self.call.call_with(options, places);
        self.stats.count(self.bytes_in, self.bytes_out, &outcome);
        if outcome.is_ok() {
            self.make_truth_values(places);
        }
        outcome
    }

    /// Whether the last result is a status.
    pub(crate) fn has_status(&self) -> bool {
        self.has_status
    }

    /// Calls the target, and says in the last result how it went, for each element of the batch. The other results of an element whose call failed are
    /// filled with bytes 0xFF, which is NaN for floating point; truth values with true.
    pub(crate) fn call_with_status(&self, places: &mut Places<'_>) {
        places.hide_last_result();
        let status = self.element_sizes.len();
        places.fill(status, 0, places.hidden_size(), 0);
        let mut failed_bytes = 0;
        let mut failed = |places: &mut Places<'_>, element: usize, failure: Status| {
            for (result, &(size, is_pred)) in self.element_sizes.iter().enumerate() {
                places.fill(result, element * size, size, poison(is_pred));
                failed_bytes += size;
            }
            let code = i32::from(failure.code().number());
            places.write(status, element * size_of::<i32>(), &code.to_le_bytes());
            self.stats.count_failure(&failure);
            note_failure(&failure);
            Ok(())
        };
        let outcome = self.call.call_each(&self.options, places, &mut failed);
        let bytes_out = self.bytes_out.saturating_sub(failed_bytes);
        self.stats.count(self.bytes_in, bytes_out, &outcome);
        match outcome {
            Ok(()) => self.make_truth_values(places),
            Err(failure) => {
                let is_pred = self.element_sizes.iter().map(|(_, is_pred)| *is_pred);
                fill_with_status(places, is_pred, &failure);
            }
        }
    }

    /// A guest may write any byte where a truth value belongs. Neither XLA nor NumPy knows others than 0 and 1.
    fn make_truth_values(&self, places: &mut Places<'_>) {
        for (result, (_, is_pred)) in self.element_sizes.iter().enumerate() {
            if *is_pred {
                places.make_truth_values(result);
            }
        }
    }

    /// What it takes while it is kept, about: the arena of an instance, and its attributes once more in each thing that is made of them.
    pub(crate) fn bytes(&self) -> usize {
        let attributes = self.attribute_bytes.saturating_mul(4);
        self.call.arena_bytes().saturating_add(attributes)
    }
}

/// Says of a call that it failed: its results are filled as those of each of its elements, and the last result, which is the status, with the code.
pub(crate) fn fill_with_status(
    places: &mut Places<'_>,
    is_pred: impl ExactSizeIterator<Item = bool>,
    failure: &Status,
) {
    note_failure(failure);
    let status = is_pred.len();
    for (result, is_pred) in is_pred.enumerate() {
        places.fill(result, 0, places.result_size(result), poison(is_pred));
    }
    let code = i32::from(failure.code().number()).to_le_bytes();
    for at in (0..places.result_size(status)).step_by(code.len()) {
        places.write(status, at, &code);
    }
}

/// What results of failed calls are filled with.
pub(crate) const fn poison(is_pred: bool) -> u8 {
    match is_pred {
        true => 1,
        false => 0xFF,
    }
}

/// Checks that the last result can take a status for each element of the batch.
pub(crate) fn check_status(
    status: &ArrayShape,
    shapes: &Shapes,
    batch: usize,
) -> callbox::Result<()> {
    let batch_of = |shape: &ArrayShape| shape.dimensions()[..batch].to_vec();
    // Without results the batch is the operands', of which those of size 1 are the same for all.
    let operands = || shapes.operands.iter().map(batch_of);
    let largest = |one: Vec<usize>, other: Vec<usize>| {
        let pairs = one.into_iter().zip(other);
        pairs.map(|(a, b)| if a == 1 { b } else { a }).collect()
    };
    let dimensions = match shapes.results.first() {
        Some(result) => batch_of(result),
        None => operands().reduce(largest).unwrap_or_default(),
    };
    let is_right = status.element_type() == ElementType::S32 && status.dimensions() == dimensions;
    match is_right {
        true => Ok(()),
        false => Err(Status::invalid_argument(format!(
            "expected the status to be s32{dimensions:?}, found {status}"
        ))),
    }
}

pub(crate) fn no_status() -> Status {
    Status::invalid_argument("expected a result for the status, found no results")
}

/// The last failure with each code that was a result, for whoever finds the code there.
static LAST_FAILURES: Mutex<[Option<String>; StatusCode::ALL.len()]> =
    Mutex::new([const { None }; StatusCode::ALL.len()]);

pub(crate) fn note_failure(failure: &Status) {
    let mut last = LAST_FAILURES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(last) = last.get_mut(usize::from(failure.code().number())) {
        *last = Some(failure.message().to_owned());
    }
}

/// The message of the last failure with this code that was a result, in this process.
pub(crate) fn last_failure(code: StatusCode) -> Option<String> {
    let last = LAST_FAILURES.lock().unwrap_or_else(PoisonError::into_inner);
    last.get(usize::from(code.number())).cloned().flatten()
}
