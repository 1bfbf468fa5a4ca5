//! The text of a traced call, and the call site that it describes.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::call::{Alias, ApiVersion, CallOptions, CallSite, Deadline, StaticInfo};
use crate::values::{ArrayShape, Dictionary, Result, Shape, Status};

/// A call site without its shapes and target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallText {
    /// The name of the convention in HLO text.
    pub api_version: String,
    /// The ranks of the operands and results of one call. Further leading dimensions are the batch.
    pub operand_ranks: Vec<usize>,
    /// The same of results.
    pub result_ranks: Vec<usize>,
    /// Pairs of a result and an operand that share memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<(usize, usize)>,
    /// Whether a failure is a result, not a failure of the program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub status: bool,
    /// Whether the results are those that the module declares, with sizes that are checked when
    /// the call runs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub declared: bool,
    /// The time limit of each call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
    /// The most threads that share a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// The opaque bytes, in hexadecimal.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub opaque: String,
    /// The static information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub static_info: Option<InfoText>,
}

/// Static information of the JAX FFI proposal, with bytes in hexadecimal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum InfoText {
    /// The bytes themselves.
    Value(String),
    /// An object that the guest makes.
    Reference {
        /// The export that makes it.
        constructor: String,
        /// The export that frees it.
        destructor: String,
        /// The bytes that it is made of.
        argument: String,
    },
}

/// Formats bytes as hexadecimal digits.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
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

fn from_hex(text: &str) -> Result<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let pair = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    let bytes: Option<Vec<u8>> = text.as_bytes().chunks(2).map(pair).collect();
    bytes.ok_or_else(|| Status::invalid_argument("expected pairs of hexadecimal digits"))
}

/// The shapes of the operands and results of a call site, for the whole batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Shapes {
    /// The operands.
    pub operands: Vec<ArrayShape>,
    /// The results.
    pub results: Vec<ArrayShape>,
}

impl CallText {
    /// The text of a call without a batch.
    #[must_use]
    pub fn new(api_version: ApiVersion, shapes: &Shapes) -> Self {
        Self {
            api_version: api_version.name().to_owned(),
            operand_ranks: shapes.operands.iter().map(ArrayShape::rank).collect(),
            result_ranks: shapes.results.iter().map(ArrayShape::rank).collect(),
            ..Self::default()
        }
    }

    /// The number of leading batch dimensions, which all arrays share.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the shapes do not fit the ranks.
    pub fn batch_dimensions(&self, shapes: &Shapes) -> Result<usize> {
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
    ///
    /// # Errors
    /// INVALID_ARGUMENT for an unknown convention, or bytes that are not hexadecimal.
    pub fn site(&self, target: &str, attributes: Dictionary, shapes: &Shapes) -> Result<CallSite> {
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
            Some(InfoText::Value(bytes)) => Some(StaticInfo::Value(from_hex(bytes)?)),
            Some(InfoText::Reference {
                constructor,
                destructor,
                argument,
            }) => Some(StaticInfo::Reference {
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
                // Indices that do not exist are refused with the call site.
                result_index: if is_single && result == 0 {
                    Vec::new()
                } else {
                    vec![result]
                },
                operand,
                operand_index: Vec::new(),
            })
            .collect();
        Ok(site)
    }

    /// The options of each call.
    #[must_use]
    pub fn options(&self) -> CallOptions {
        CallOptions {
            deadline: self
                .deadline_ms
                .map(|ms| Deadline::After(Duration::from_millis(ms))),
            threads: self.threads,
            ..CallOptions::default()
        }
    }
}
