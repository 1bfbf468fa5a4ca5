//! The cases of a package: calls of its targets with their expected results or statuses.
//!
//! A case is a file `cases/NAME.json`. Its keys are those of callbox's own conformance suite as far
//! as they concern single calls, with tolerances as NumPy's `allclose` has them. Cases are
//! untrusted: they are read in proportion to their size, and name files of the package only.

mod compare;
mod run;
mod values;

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use callbox::call::ApiVersion;
use callbox::call::signature::json::MAX_BUFFERS;
use callbox::{
    ArrayShape, Attribute, Blame, Dictionary, Literal, Platform, Result, Shape, Status, StatusCode,
};
use callbox_core::json::Limited;
use serde::Deserialize;

pub use self::compare::Tolerance;
pub use self::compare::compare;
pub(super) use self::run::Ending;
pub(super) use self::values::Arrays;
use self::values::{AttributeText, LiteralText, check_memory};
use super::package::wrong;
use super::text::name;

/// The bytes that the arrays of all cases of a package may have together.
const MOST_ARRAYS: usize = 256 << 20;

/// The bytes of memory that a shape takes, however few it says, and each dimension.
const SHAPE: usize = 96;
const DIMENSION: usize = size_of::<usize>();

/// The longest deadline of a case: each call's of the default policy.
const MOST_DEADLINE: Duration = Duration::from_secs(10);

/// The largest text of a case.
const MOST_TEXT: usize = 1 << 20;

/// A case that was read.
#[derive(Debug)]
pub(super) struct Case {
    /// The path in the package.
    pub(super) path: String,
    target: String,
    operands: Vec<Literal>,
    result: Shape,
    attributes: Dictionary,
    opaque: Vec<u8>,
    api_version: Option<ApiVersion>,
    deadline: Option<Duration>,
    /// The platforms of the case, if not all.
    platforms: Option<Vec<Platform>>,
    expect: Expect,
}

/// The expected outcome.
#[derive(Debug)]
enum Expect {
    /// Results with any values: a benchmark.
    Anything,
    Results(Vec<Literal>, Tolerance),
    Status {
        code: StatusCode,
        contains: String,
    },
}

/// Operands or results: as many as a target can declare.
type List<T> = Limited<T, MAX_BUFFERS>;

/// The JSON of a case.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseText {
    /// Where the expectation comes from, for people.
    #[serde(default, rename = "origin")]
    _origin: String,
    call: CallText,
    #[serde(default)]
    operands: List<LiteralText>,
    deadline_ms: Option<u64>,
    platforms: Option<Vec<String>>,
    expect: ExpectText,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallText {
    target: String,
    /// The shapes of the results. If left out, those of the expected results.
    results: Option<List<String>>,
    #[serde(default)]
    attributes: BTreeMap<String, AttributeText>,
    #[serde(default)]
    opaque: String,
    api_version: Option<String>,
}

impl CallText {
    /// The most bytes of memory that the shapes of the results take. Each bracket may begin one.
    fn shape_bytes(&self) -> usize {
        let results = self.results.iter().flat_map(Limited::iter);
        let bytes = results.flat_map(|shape| shape.bytes());
        bytes
            .map(|byte| match byte {
                b'[' | b'(' => SHAPE,
                b',' => DIMENSION,
                _ => 0,
            })
            .sum()
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ExpectText {
    results: Option<List<LiteralText>>,
    #[serde(default)]
    rtol: f64,
    #[serde(default)]
    atol: f64,
    status: Option<StatusText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StatusText {
    code: String,
    #[serde(default)]
    contains: String,
}

impl Case {
    /// Reads a case. The files that it names are beside it in the package.
    ///
    /// # Errors
    /// Blamed on the guest: INVALID_ARGUMENT if the case is wrong, RESOURCE_EXHAUSTED past a limit.
    pub(super) fn read(path: &str, text: &[u8], arrays: &mut Arrays<'_, '_>) -> Result<Self> {
        if text.len() > MOST_TEXT {
            return Err(too_large(format!(
                "expected a case of at most {MOST_TEXT} bytes, found {}: .npy files hold large \
                 arrays",
                text.len()
            )));
        }
        check_memory(text).map_err(too_large)?;
        let mut text: CaseText =
            serde_json::from_slice(text).map_err(|error| wrong(name(&error.to_string())))?;
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let operands = within("operands", std::mem::take(&mut text.operands)).map_err(wrong)?;
        let operands = arrays.read(folder, "operand", &operands)?;
        let expect = match (text.expect.results.take(), &text.expect.status) {
            (Some(results), None) => {
                let results = within("expected results", results).map_err(wrong)?;
                let (rtol, atol) = (text.expect.rtol, text.expect.atol);
                let tolerance = Tolerance::new(rtol, atol).map_err(wrong)?;
                Expect::Results(arrays.read(folder, "expected result", &results)?, tolerance)
            }
            (None, Some(status)) => Expect::Status {
                code: failure_code(&status.code).map_err(wrong)?,
                contains: status.contains.clone(),
            },
            _ => {
                let message = "expected `results` or `status` in `expect`";
                return Err(wrong(message.to_owned()));
            }
        };
        let declares_results = text.call.results.is_some();
        arrays.charge(text.call.shape_bytes())?;
        let case = Self::assemble(path, text, operands, expect).map_err(wrong)?;
        if declares_results {
            let mut leaves = case.result.leaves().into_iter();
            leaves.try_for_each(|leaf| arrays.charge(leaf.byte_size()))?;
        }
        Ok(case)
    }

    fn assemble(
        path: &str,
        mut text: CaseText,
        operands: Vec<Literal>,
        expect: Expect,
    ) -> Result<Self, String> {
        let attributes = std::mem::take(&mut text.call.attributes).into_iter();
        let attributes = attributes.map(|(key, text)| {
            let value = text.read();
            let value = value.map_err(|error| format!("attribute \"{}\": {error}", name(&key)))?;
            Ok((key, value))
        });
        let attributes: Vec<(String, Attribute)> = attributes.collect::<Result<_, String>>()?;
        Ok(Self {
            path: path.to_owned(),
            result: result_shape(text.call.results.take(), &expect)?,
            target: text.call.target,
            operands,
            attributes: attributes.into_iter().collect(),
            opaque: text.call.opaque.into_bytes(),
            api_version: api_version(text.call.api_version.as_deref())?,
            deadline: text.deadline_ms.map(deadline).transpose()?,
            platforms: platforms(text.platforms.as_deref())?,
            expect,
        })
    }

    /// Reads a benchmark: a call without expected results, whose operands are shapes. Their
    /// elements are numbers from 0 to 1, or whole numbers from 0 to 6.
    ///
    /// # Errors
    /// A message about the first thing that is wrong.
    pub(super) fn read_benchmark(path: &str, text: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct BenchmarkText {
            call: CallText,
            operands: List<String>,
        }
        check_memory(text)?;
        let text: BenchmarkText =
            serde_json::from_slice(text).map_err(|error| name(&error.to_string()))?;
        if text.call.results.is_none() {
            return Err("expected the shapes `results` in `call`, found none".to_owned());
        }
        let operands = within("operands", text.operands)?;
        let shapes = operands.iter().map(|shape| parsed(shape));
        let shapes = shapes.collect::<Result<Vec<ArrayShape>, String>>()?;
        let text = CaseText {
            _origin: String::new(),
            call: text.call,
            operands: List::default(),
            deadline_ms: None,
            platforms: None,
            expect: ExpectText::default(),
        };
        let operands = shapes
            .into_iter()
            .map(values::filled)
            .collect::<Result<_, _>>()?;
        let case = Self::assemble(path, text, operands, Expect::Anything)?;
        let results = case
            .result
            .leaves()
            .iter()
            .map(|leaf| leaf.byte_size())
            .fold(0, usize::saturating_add);
        if results > MOST_ARRAYS {
            return Err(format!(
                "expected results of at most {MOST_ARRAYS} bytes, found {results}"
            ));
        }
        Ok(case)
    }

    /// The target that the case calls.
    pub(super) fn target(&self) -> &str {
        &self.target
    }

    /// How near the results must be to the expected ones.
    pub(super) fn tolerance(&self) -> Option<Tolerance> {
        match self.expect {
            Expect::Results(_, tolerance) => Some(tolerance),
            Expect::Anything | Expect::Status { .. } => None,
        }
    }

    /// Whether the case concerns a platform.
    pub(super) fn is_for(&self, platform: Platform) -> bool {
        let platforms = self.platforms.as_ref();
        platforms.is_none_or(|platforms| platforms.contains(&platform))
    }
}

/// The shape of the result: the given ones, or those of the expected results.
fn result_shape(given: Option<List<String>>, expect: &Expect) -> Result<Shape, String> {
    let mut shapes: Vec<Shape> = match (given, expect) {
        (Some(shapes), _) => {
            let shapes = within("results", shapes)?;
            let shapes = shapes.iter().map(|shape| parsed(shape));
            shapes.collect::<Result<_, String>>()?
        }
        (None, Expect::Results(results, _)) => results
            .iter()
            .map(|result| result.shape().clone())
            .collect(),
        (None, Expect::Status { .. } | Expect::Anything) => {
            return Err("expected the shapes `results` in `call`, found none".to_owned());
        }
    };
    if shapes.len() == 1 {
        return Ok(shapes.swap_remove(0));
    }
    Shape::tuple(shapes).map_err(|status| status.message().to_owned())
}

/// The items of a list that is not too long.
fn within<T>(what: &str, list: List<T>) -> Result<Vec<T>, String> {
    list.within()
        .map_err(|found| format!("expected at most {MAX_BUFFERS} {what}, found {found}"))
}

fn platforms(names: Option<&[String]>) -> Result<Option<Vec<Platform>>, String> {
    let platforms = names.map(|names| names.iter().map(|name| parsed(name)).collect());
    platforms.transpose()
}

fn deadline(milliseconds: u64) -> Result<Duration, String> {
    let deadline = Duration::from_millis(milliseconds);
    if deadline > MOST_DEADLINE {
        return Err(format!(
            "expected `deadline_ms` of at most {}, found {milliseconds}",
            MOST_DEADLINE.as_millis()
        ));
    }
    Ok(deadline)
}

fn api_version(text: Option<&str>) -> Result<Option<ApiVersion>, String> {
    let version = text.map(str::parse::<ApiVersion>).transpose();
    version.map_err(|error| error.to_string())
}

fn parsed<T: FromStr<Err = Status>>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|status: Status| status.message().to_owned())
}

fn too_large(message: String) -> Status {
    Status::new(StatusCode::ResourceExhausted, Blame::Guest, message)
}

fn failure_code(text: &str) -> Result<StatusCode, String> {
    let code = StatusCode::from_name(text).filter(|&code| code != StatusCode::Ok);
    code.ok_or_else(|| {
        format!(
            "expected the code of a failure such as INVALID_ARGUMENT, found \"{}\"",
            name(text)
        )
    })
}
