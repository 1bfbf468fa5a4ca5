//! The text of a call in a program, and the call site that it describes.

use std::time::Duration;

use callbox::attributes_from_mlir;
use callbox::call::{Alias, ApiVersion};
use callbox::{ArrayShape, CallOptions, CallSite, Deadline, Dictionary, Shape, Status};
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

/// A call site without its shapes and target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallText {
    /// The name of the convention in HLO text.
    pub(crate) api_version: String,
    /// The ranks of the operands and results of one call. Further leading dimensions are the batch.
    pub(crate) operand_ranks: Vec<usize>,
    pub(crate) result_ranks: Vec<usize>,
    /// Pairs of a result and an operand that share memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) aliases: Vec<(usize, usize)>,
    /// Whether a failure is a result, not a failure of the program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) status: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) deadline_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) threads: Option<usize>,
    /// In hexadecimal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) opaque: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) static_info: Option<InfoText>,
}

/// Static information of the JAX FFI proposal, with bytes in hexadecimal.
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

/// Static information that a guest makes itself, for the JAX FFI proposal's convention.
///
/// The target gets it by reference. Plain bytes are static information by value.
#[pyclass(frozen, module = "callbox")]
#[derive(Clone, Debug)]
pub(crate) struct StaticInfo(pub(crate) InfoText);

#[pymethods]
impl StaticInfo {
    /// The object that the export `constructor` makes of `argument` in each instance.
    ///
    /// `constructor` is `(data, size) -> object`; the export `destructor` frees the object.
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

/// Formats bytes as hexadecimal digits.
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

/// The parts of a call site that are text in a program.
#[derive(Clone, Copy)]
pub(crate) struct SiteText<'a> {
    pub(crate) call: &'a CallText,
    /// The attributes in MLIR's syntax.
    pub(crate) attributes: &'a str,
    /// The same, if the caller has them already.
    pub(crate) parsed: Option<&'a Dictionary>,
}

impl SiteText<'_> {
    pub(super) fn dictionary(self) -> callbox::Result<Dictionary> {
        match self.parsed {
            Some(parsed) => Ok(parsed.clone()),
            None => attributes_from_mlir(self.attributes),
        }
    }
}

/// The shapes of the operands and results of a call site, for the whole batch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Shapes {
    pub(crate) operands: Vec<ArrayShape>,
    pub(crate) results: Vec<ArrayShape>,
}

impl CallText {
    /// The text of a call without a batch.
    pub(crate) fn new(api_version: ApiVersion, shapes: &Shapes) -> Self {
        Self {
            api_version: api_version.name().to_owned(),
            operand_ranks: shapes.operands.iter().map(ArrayShape::rank).collect(),
            result_ranks: shapes.results.iter().map(ArrayShape::rank).collect(),
            ..Self::default()
        }
    }

    /// The number of leading batch dimensions, which all arrays share.
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

    /// Makes the call site, with the shapes of the whole batch.
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
                result_index: if is_single { Vec::new() } else { vec![result] },
                operand,
                operand_index: Vec::new(),
            })
            .collect();
        Ok(site)
    }

    /// The options of each call.
    pub(crate) fn options(&self) -> CallOptions {
        CallOptions {
            deadline: self
                .deadline_ms
                .map(|ms| Deadline::After(Duration::from_millis(ms))),
            threads: self.threads,
            ..CallOptions::default()
        }
    }
}
