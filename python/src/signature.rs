//! The declarations of a target, for people and for `inspect.signature`.

use std::collections::HashSet;

use callbox::call::{AttributeSignature, BufferSignature, Dimension, Signature};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::element::dtype_name;
use crate::exit::Inside;

/// The declaration of an operand or result.
#[pyclass(frozen, module = "callbox")]
pub(crate) struct Buffer(BufferSignature);

#[pymethods]
impl Buffer {
    /// The name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The accepted dtypes, by their NumPy names. Empty: any.
    #[getter]
    fn dtypes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let names = self.0.element_types.iter().filter_map(|t| dtype_name(*t));
        PyTuple::new(py, names.collect::<Vec<_>>())
    }

    /// The number of dimensions. None: any.
    #[getter]
    fn rank(&self) -> Option<usize> {
        self.0.rank
    }

    /// The dimensions: sizes, symbols, expressions such as `"n/2"`, and `".."` for any number of
    /// dimensions. None: undeclared.
    #[getter]
    fn dimensions<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(dimensions) = &self.0.dimensions else {
            return Ok(None);
        };
        let dimension = |dimension: &Dimension| match dimension {
            Dimension::Any => ".."
                .into_pyobject(py)
                .map(Bound::into_any)
                .map_err(PyErr::from),
            Dimension::Size(size) => size
                .into_pyobject(py)
                .map(Bound::into_any)
                .map_err(PyErr::from),
            Dimension::Symbol(_) | Dimension::Expression(_) => dimension
                .to_string()
                .into_pyobject(py)
                .map(Bound::into_any)
                .map_err(PyErr::from),
        };
        let dimensions = dimensions
            .iter()
            .map(dimension)
            .collect::<PyResult<Vec<_>>>()?;
        PyTuple::new(py, dimensions).map(Some)
    }

    /// Whether it can be omitted, together with all that follow.
    #[getter]
    fn optional(&self) -> bool {
        self.0.optional
    }

    fn __repr__(&self) -> String {
        format!("<callbox.Buffer {}>", buffer(&self.0))
    }
}

/// The declaration of an attribute.
#[pyclass(frozen, module = "callbox")]
pub(crate) struct Attribute(AttributeSignature);

#[pymethods]
impl Attribute {
    /// The name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The kind: `"scalar"`, `"array"`, `"string"`, `"dictionary"` or `"function"`.
    #[getter]
    fn kind(&self) -> &str {
        &self.0.kind
    }

    /// The dtype of a scalar or array, by its NumPy name.
    #[getter]
    fn dtype(&self) -> Option<&'static str> {
        self.0.element_type.and_then(dtype_name)
    }

    /// The fields of a dictionary. None: any.
    #[getter]
    fn fields<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        attributes(py, self.0.fields.as_deref())
    }

    /// The numbers of an enum's variants by name. None: no enum is declared.
    #[getter]
    fn variants<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let Some(variants) = &self.0.variants else {
            return Ok(None);
        };
        let numbers = PyDict::new(py);
        for (name, number) in variants {
            numbers.set_item(name, number)?;
        }
        Ok(Some(numbers))
    }

    /// Whether it can be omitted.
    #[getter]
    fn optional(&self) -> bool {
        self.0.optional
    }

    fn __repr__(&self) -> String {
        format!("<callbox.Attribute {}>", attribute(&self.0))
    }
}

/// The declared operands or results as Python objects.
pub(crate) fn buffers<'py>(
    py: Python<'py>,
    declared: Option<&[BufferSignature]>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let Some(declared) = declared else {
        return Ok(None);
    };
    let buffers = declared.iter().map(|b| Bound::new(py, Buffer(b.clone())));
    PyTuple::new(py, buffers.collect::<PyResult<Vec<_>>>()?).map(Some)
}

/// The declared attributes as Python objects.
pub(crate) fn attributes<'py>(
    py: Python<'py>,
    declared: Option<&[AttributeSignature]>,
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let Some(declared) = declared else {
        return Ok(None);
    };
    let attributes = declared
        .iter()
        .map(|a| Bound::new(py, Attribute(a.clone())));
    PyTuple::new(py, attributes.collect::<PyResult<Vec<_>>>()?).map(Some)
}

/// The most dimensions without names that are displayed one by one.
const MOST_SHOWN: usize = 16;

/// Formats an operand or result: `x: float32[.., n]`.
pub(crate) fn buffer(declared: &BufferSignature) -> String {
    let types: Vec<_> = declared
        .element_types
        .iter()
        .filter_map(|t| dtype_name(*t))
        .collect();
    let types = if types.is_empty() {
        "any".to_owned()
    } else {
        types.join("|")
    };
    let dimensions = match (&declared.dimensions, declared.rank) {
        (Some(dimensions), _) => {
            let dimensions: Vec<_> = dimensions.iter().map(ToString::to_string).collect();
            dimensions.join(", ")
        }
        (None, Some(rank)) if rank > MOST_SHOWN => format!("{rank} dimensions"),
        (None, Some(rank)) => vec!["?"; rank].join(", "),
        (None, None) => "...".to_owned(),
    };
    let optional = if declared.optional { ", optional" } else { "" };
    format!("{}: {types}[{dimensions}]{optional}", declared.name)
}

/// Formats an attribute: `n: float32`.
pub(crate) fn attribute(declared: &AttributeSignature) -> String {
    let dtype = declared.element_type.and_then(dtype_name);
    let kind = match (declared.kind.as_str(), dtype) {
        ("scalar", Some(dtype)) => dtype.to_owned(),
        ("array", Some(dtype)) => format!("array of {dtype}"),
        (kind, _) => kind.to_owned(),
    };
    let fields = declared.fields.as_deref().map_or_else(String::new, |all| {
        let fields: Vec<_> = all.iter().map(attribute).collect();
        format!(" {{{}}}", fields.join(", "))
    });
    let optional = if declared.optional { ", optional" } else { "" };
    let variants = declared
        .variants
        .as_deref()
        .map_or_else(String::new, |all| {
            let variants: Vec<_> = all
                .iter()
                .map(|(name, number)| format!("{number} ({name})"))
                .collect();
            format!(" of {}", variants.join(", "))
        });
    format!("{}: {kind}{variants}{fields}{optional}", declared.name)
}

/// The texts of the first items of a list, and how many follow. A line is for people.
fn some<T>(items: &[T], text: impl Fn(&T) -> String) -> Vec<String> {
    const MOST: usize = 64;
    let mut texts: Vec<_> = items.iter().take(MOST).map(text).collect();
    if let Some(more) = items.len().checked_sub(MOST + 1) {
        texts.push(format!("... {} more", more + 1));
    }
    texts
}

/// Formats a signature: `add_n(x: float32[..], *, n: float32) -> y: float32[..]`.
pub(crate) fn line(signature: &Signature) -> String {
    let mut parameters: Vec<String> = match &signature.operands {
        Some(operands) => some(operands, buffer),
        None => vec!["*arrays".to_owned()],
    };
    if signature.operands.is_some() && signature.remaining_operands {
        parameters.push("*more".to_owned());
    }
    if let Some(attributes) = signature.attributes.as_deref().filter(|a| !a.is_empty()) {
        parameters.push("*".to_owned());
        parameters.extend(some(attributes, attribute));
    }
    let results = match &signature.results {
        Some(results) if results.len() == 1 => buffer(&results[0]),
        Some(results) => {
            format!("({})", some(results, buffer).join(", "))
        }
        None => "...".to_owned(),
    };
    format!(
        "{}({}) -> {results}",
        signature.label(),
        parameters.join(", ")
    )
}

/// Makes the value for `inspect.signature`: operands by position, attributes by name.
pub(crate) fn for_inspect<'py>(
    py: Python<'py>,
    signature: &Signature,
) -> PyResult<Bound<'py, PyAny>> {
    let _inside = Inside::enter(py);
    let inspect = py.import("inspect")?;
    let kind = inspect.getattr("Parameter")?;
    let parameters = PyList::empty(py);
    let mut names: HashSet<String> = HashSet::new();
    // The lower ones are taken. A module may declare very many operands without a name.
    let mut number = 0_usize;
    let mut add = |name: &str, of: &str, default: Option<Option<()>>| -> PyResult<()> {
        let mut name = name.to_owned();
        if !is_identifier(&name) || names.contains(&name) {
            name = format!("_{number}");
            while names.contains(&name) {
                number += 1;
                name = format!("_{number}");
            }
        }
        let details = PyDict::new(py);
        if default.is_some() {
            details.set_item("default", py.None())?;
        }
        parameters.append(kind.call((&name, kind.getattr(of)?), Some(&details))?)?;
        names.insert(name);
        Ok(())
    };
    match &signature.operands {
        Some(operands) => {
            let kind = if can_all_be_named(signature) {
                "POSITIONAL_OR_KEYWORD"
            } else {
                "POSITIONAL_ONLY"
            };
            for operand in operands {
                let default = operand.optional.then_some(None);
                add(&operand.name, kind, default)?;
            }
            if signature.remaining_operands {
                add("arrays", "VAR_POSITIONAL", None)?;
            }
        }
        None => add("arrays", "VAR_POSITIONAL", None)?,
    }
    for attribute in signature.attributes.iter().flatten() {
        let default = attribute.optional.then_some(None);
        add(&attribute.name, "KEYWORD_ONLY", default)?;
    }
    for option in ["out", "result_shape_dtypes", "deadline"] {
        if !signature
            .attributes
            .iter()
            .flatten()
            .any(|a| a.name == option)
        {
            add(option, "KEYWORD_ONLY", Some(None))?;
        }
    }
    inspect.getattr("Signature")?.call1((parameters,))
}

/// Whether each operand can be passed by its name.
fn can_all_be_named(signature: &Signature) -> bool {
    const OPTIONS: [&str; 9] = [
        "out",
        "result_shape_dtypes",
        "deadline",
        "threads",
        "opaque",
        "static_info",
        "api_version",
        "platform",
        "attributes",
    ];
    let attributes = signature.attributes.iter().flatten();
    let attributes = attributes.map(|attribute| attribute.name.as_str());
    let mut taken: HashSet<&str> = OPTIONS.into_iter().chain(attributes).collect();
    let mut operands = signature.operands.iter().flatten();
    operands.all(|operand| is_identifier(&operand.name) && taken.insert(&operand.name))
}

fn is_identifier(name: &str) -> bool {
    const KEYWORDS: [&str; 35] = [
        "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class",
        "continue", "def", "del", "elif", "else", "except", "finally", "for", "from", "global",
        "if", "import", "in", "is", "lambda", "nonlocal", "not", "or", "pass", "raise", "return",
        "try", "while", "with", "yield",
    ];
    let mut characters = name.chars();
    characters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
        && !KEYWORDS.contains(&name)
}
