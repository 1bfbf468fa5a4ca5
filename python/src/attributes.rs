//! Converts Python's values to attributes of the types that the target declares.

use callbox::call::{AttributeSignature, Signature};
use callbox::{ArrayShape, Attribute, Dictionary, ElementType, Literal};
use callbox_core::float_mode::FloatMode;
use callbox_core::text::{AttributeRoom, MAX_TEXT_BYTES, MOST_LISTED};
use half::{bf16, f16};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::arrays::{Array, dtype, numpy};
use crate::element::dtype_name;
use crate::error::or_raise;
use crate::listing::quoted;
use crate::stack::on_enough;

/// The maximum depth of nested dictionaries. Attributes are processed recursively.
const MAX_DEPTH: usize = 64;

/// The bytes of text that an element of an array takes for each byte of it: for one of a byte a
/// digit, a comma and a space.
const ELEMENT_TEXT: usize = 3;

/// What the attributes of a call may still take. A dictionary may be the value of many fields, and
/// counts for each of them.
struct Room {
    /// Those in dictionaries. The call's own are as many as the caller passes.
    attributes: AttributeRoom,
    /// The bytes of text for the elements of arrays, the strings and the names of fields.
    text: usize,
}

impl Room {
    fn of_a_call() -> Self {
        Self {
            attributes: AttributeRoom::of_a_text(),
            text: MAX_TEXT_BYTES,
        }
    }

    fn take_elements(&mut self, dimensions: &[usize], element_type: ElementType) -> PyResult<()> {
        let count = dimensions
            .iter()
            .fold(1, |count: usize, &n| count.saturating_mul(n));
        // More elements are written as two digits for each byte.
        let of_byte = if count > MOST_LISTED { 2 } else { ELEMENT_TEXT };
        let each = ELEMENT_TEXT.max(of_byte * element_type.byte_width());
        self.take_text(count, each, "arrays", "elements")
    }

    fn take_string(&mut self, string: &[u8]) -> PyResult<()> {
        self.take_text(string.len(), 1, "strings", "bytes")
    }

    fn take_text(&mut self, count: usize, each: usize, what: &str, unit: &str) -> PyResult<()> {
        let left = self.text / each;
        let text = count.checked_mul(each);
        self.text = text
            .and_then(|text| self.text.checked_sub(text))
            .ok_or_else(|| {
                PyValueError::new_err(format!(
                    "expected {what} of at most {} {unit} in all attributes together, found one of \
                     {count} where {left} are left: pass large ones as operands",
                    MAX_TEXT_BYTES / each
                ))
            })?;
        Ok(())
    }
}

/// Attributes by name, as the caller passed them.
pub(crate) type Given<'py> = Vec<(String, Bound<'py, PyAny>)>;

/// Converts the attributes of a call.
///
/// # Errors
/// TypeError for an attribute that is missing, undeclared or of the wrong type; OverflowError for a
/// number outside the range of its type; ValueError for more than a call may have.
pub(crate) fn dictionary(
    py: Python<'_>,
    signature: &Signature,
    given: &Given<'_>,
) -> PyResult<Dictionary> {
    check_names(signature, given)?;
    // XLA's threads flush small numbers, also those that call Python.
    let _mode = FloatMode::WASM.set();
    let mut room = Room::of_a_call();
    let mut attributes = Dictionary::new();
    for (name, value) in given {
        let declared = declared(signature, name);
        if value.is_none() && declared.is_some_and(|declared| declared.optional) {
            continue;
        }
        let attribute = on_enough(|| attribute(value, declared, MAX_DEPTH, &mut room))
            .map_err(|wrong| wrong.inside(name).named(py, &signature.label()))?;
        attributes.insert(name.clone(), attribute);
    }
    Ok(attributes)
}

/// An error, and the path of the field of a dictionary that it is about, such as `range.lo`.
struct Wrong {
    path: String,
    error: PyErr,
}

impl From<PyErr> for Wrong {
    fn from(error: PyErr) -> Self {
        Self {
            path: String::new(),
            error,
        }
    }
}

impl Wrong {
    /// The same error, seen from the attribute or dictionary field around it.
    fn inside(mut self, name: &str) -> Self {
        let separator = if self.path.is_empty() { "" } else { "." };
        self.path = format!("{name}{separator}{}", self.path);
        self
    }

    /// The error with the names of the target and the attribute. An exception that the value's own
    /// code raised stays as it is.
    fn named(self, py: Python<'_>, target: &str) -> PyErr {
        let Self { path, error } = self;
        let kind = error.get_type(py);
        let is_own = [
            py.get_type::<PyTypeError>(),
            py.get_type::<PyValueError>(),
            py.get_type::<PyOverflowError>(),
        ];
        if !is_own.iter().any(|own| kind.is(own)) {
            return error;
        }
        let message = error.value(py).to_string();
        let named = PyErr::from_type(kind, format!("{target}(): attribute {path:?}: {message}"));
        named.set_cause(py, error.cause(py));
        named
    }
}

fn declared<'s>(signature: &'s Signature, name: &str) -> Option<&'s AttributeSignature> {
    let declared = signature.attributes.as_deref()?;
    declared.iter().find(|attribute| attribute.name == name)
}

/// Checks the names. A target that declares no attributes accepts all.
fn check_names(signature: &Signature, given: &Given<'_>) -> PyResult<()> {
    let Some(declared) = signature.attributes.as_deref() else {
        return Ok(());
    };
    let target = signature.label();
    let is_given = |name: &str| given.iter().any(|(known, _)| known == name);
    let missing: Vec<_> = declared
        .iter()
        .filter(|attribute| !attribute.optional && !is_given(&attribute.name))
        .map(|attribute| attribute.name.as_str())
        .collect();
    let known = |name: &str| declared.iter().any(|attribute| attribute.name == name);
    let unknown = given.iter().find(|(name, _)| !known(name));
    if !missing.is_empty() {
        let other = unknown.map_or_else(String::new, |(name, _)| format!("another {name:?} and "));
        return Err(PyTypeError::new_err(format!(
            "{target}(): expected the attributes {}, found {other}no {}",
            names(declared),
            quoted(missing)
        )));
    }
    let is_operand = |name: &str| signature.operands.iter().flatten().any(|o| o.name == name);
    match unknown {
        Some((name, _)) if is_operand(name) => Err(PyTypeError::new_err(format!(
            "{target}(): expected the operand {name:?} once, found it by position and by name"
        ))),
        Some((name, _)) if declared.is_empty() => Err(PyTypeError::new_err(format!(
            "{target}(): expected no attributes, found {name:?}"
        ))),
        Some((name, _)) => Err(PyTypeError::new_err(format!(
            "{target}(): expected the attributes {}, found another {name:?}",
            names(declared)
        ))),
        None => Ok(()),
    }
}

fn names(declared: &[AttributeSignature]) -> String {
    quoted(declared.iter().map(|attribute| attribute.name.as_str()))
}

fn attribute(
    value: &Bound<'_, PyAny>,
    declared: Option<&AttributeSignature>,
    depth: usize,
    room: &mut Room,
) -> Result<Attribute, Wrong> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Wrong::from(PyValueError::new_err(format!(
            "expected dictionaries that nest at most {MAX_DEPTH} deep, found more"
        ))));
    };
    let attribute = match value.cast::<PyDict>() {
        Ok(dict) => {
            if !dict.is_empty() {
                let has_room = room.attributes.take_dictionary();
                has_room.map_err(PyValueError::new_err)?;
            }
            let fields = declared.and_then(|declared| declared.fields.as_deref());
            Attribute::Dictionary(fields_of(dict, fields, depth, room)?)
        }
        Err(_) => convert(value, declared, room)?,
    };
    if let Some(declared) = declared {
        check_declared(&attribute, declared)?;
    }
    Ok(attribute)
}

/// Converts the fields of a dictionary to the declared types.
fn fields_of(
    dict: &Bound<'_, PyDict>,
    declared: Option<&[AttributeSignature]>,
    depth: usize,
    room: &mut Room,
) -> Result<Dictionary, Wrong> {
    let mut fields = Dictionary::new();
    // Reading a value may run code that changes the dict.
    let items: Vec<_> = dict.iter().collect();
    for (name, value) in items {
        let Ok(name) = name.extract::<String>() else {
            return Err(Wrong::from(PyTypeError::new_err(format!(
                "expected names as the keys of a dictionary, found {name}"
            ))));
        };
        let field = declared.map(|fields| fields.iter().find(|field| field.name == name));
        if let (Some(None), Some(declared)) = (field, declared) {
            return Err(Wrong::from(unlike(declared, &format!("another {name:?}"))));
        }
        let field = field.flatten();
        if value.is_none() && field.is_some_and(|field| field.optional) {
            continue;
        }
        let has_room = room.attributes.take_attribute();
        has_room.map_err(PyValueError::new_err)?;
        room.take_string(name.as_bytes())?;
        let converted =
            attribute(&value, field, depth, room).map_err(|wrong| wrong.inside(&name))?;
        fields.insert(name, converted);
    }
    let mut required = declared.unwrap_or_default().iter().filter(|f| !f.optional);
    match required.find(|field| !fields.contains_key(&field.name)) {
        Some(missing) => {
            let found = format!("no {:?}", missing.name);
            Err(Wrong::from(unlike(declared.unwrap_or_default(), &found)))
        }
        None => Ok(fields),
    }
}

/// The error for a dictionary with other fields than the declared ones.
fn unlike(declared: &[AttributeSignature], found: &str) -> PyErr {
    let expected = if declared.is_empty() {
        "no fields".to_owned()
    } else {
        format!("the fields {}", names(declared))
    };
    PyTypeError::new_err(format!("expected {expected}, found {found}"))
}

/// Converts a value that is no dictionary.
fn convert(
    value: &Bound<'_, PyAny>,
    declared: Option<&AttributeSignature>,
    room: &mut Room,
) -> PyResult<Attribute> {
    let py = value.py();
    let wanted = declared.and_then(|declared| declared.element_type);
    let kind = declared.map(|declared| declared.kind.as_str());
    if let Ok(text) = value.cast::<PyString>() {
        return string(text.to_str()?.as_bytes(), room);
    }
    if let Ok(bytes) = value.cast::<PyBytes>() {
        return string(bytes.as_bytes(), room);
    }
    // Python's own numbers have no width: they take the declared type.
    if value.is_instance_of::<PyBool>()
        || value.is_exact_instance_of::<PyInt>()
        || value.is_exact_instance_of::<PyFloat>()
        || value.is_exact_instance_of::<PyComplex>()
    {
        return number(value, wanted).map(Attribute::Scalar);
    }
    // numpy.float64 is a subclass of `float`, and most of NumPy's functions return it.
    if value.is_instance_of::<PyFloat>() && wanted.is_some_and(is_floating) {
        return number(value, wanted).map(Attribute::Scalar);
    }
    if value.hasattr("dtype")? && value.hasattr("shape")? {
        let array = Array::operand(value)?;
        let is_generic = value.is_instance(&numpy(py)?.getattr("generic")?)?;
        let is_scalar = array.dimensions().is_empty() && (is_generic || kind == Some("scalar"));
        // Before the elements are copied: there may be any number of them.
        if let Some(declared) = declared {
            let found = if is_scalar { "scalar" } else { "array" };
            check_type(found, Some(array.element_type()), declared)?;
        }
        room.take_elements(array.dimensions(), array.element_type())?;
        let literal = literal(py, array)?;
        return if is_scalar {
            Ok(Attribute::Scalar(literal))
        } else {
            or_raise(py, Attribute::array(literal))
        };
    }
    let is_list = value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
    match (is_list, kind, wanted) {
        (true, Some("array"), Some(element_type)) => {
            let array = list(value, element_type)?;
            let dimensions: Vec<_> = array.getattr("shape")?.extract()?;
            room.take_elements(&dimensions, element_type)?;
            or_raise(py, Attribute::array(literal_of(&array)?))
        }
        _ => {
            let hint = if is_list {
                ", such as numpy.array(...) of it"
            } else {
                ""
            };
            Err(PyTypeError::new_err(format!(
                "expected a number, a string, bytes, a NumPy array or a dict of these{hint}, found {}",
                value.get_type().name()?
            )))
        }
    }
}

fn string(bytes: &[u8], room: &mut Room) -> PyResult<Attribute> {
    room.take_string(bytes)?;
    Ok(Attribute::String(bytes.to_vec()))
}

fn check_declared(attribute: &Attribute, declared: &AttributeSignature) -> PyResult<()> {
    let element_type = match attribute {
        Attribute::Scalar(value) | Attribute::Array(value) => {
            value.shape().as_array().map(ArrayShape::element_type)
        }
        _ => None,
    };
    check_type(attribute.kind(), element_type, declared)
}

fn check_type(
    kind: &str,
    element_type: Option<ElementType>,
    declared: &AttributeSignature,
) -> PyResult<()> {
    let expected_type = declared.element_type;
    if kind == declared.kind && (expected_type.is_none() || expected_type == element_type) {
        return Ok(());
    }
    let text =
        |kind: &str, element_type: Option<ElementType>| match element_type.and_then(dtype_name) {
            Some(dtype) => format!("{} of {dtype}", with_article(kind)),
            None => with_article(kind),
        };
    let expected = text(&declared.kind, expected_type);
    let found = text(kind, element_type);
    Err(PyTypeError::new_err(format!(
        "expected {expected}, found {found}"
    )))
}

fn with_article(kind: &str) -> String {
    match kind {
        "array" => "an array".to_owned(),
        kind => format!("a {kind}"),
    }
}

fn is_floating(element_type: ElementType) -> bool {
    matches!(
        element_type,
        ElementType::F16 | ElementType::Bf16 | ElementType::F32 | ElementType::F64
    )
}

/// Converts a list of Python's numbers to an array of the declared type, which must hold them all.
fn list<'py>(value: &Bound<'py, PyAny>, element_type: ElementType) -> PyResult<Bound<'py, PyAny>> {
    let numpy = numpy(value.py())?;
    let found = numpy.getattr("asarray")?.call1((value,))?;
    let name = dtype_name(element_type).unwrap_or("token");
    let kind: String = found.getattr("dtype")?.getattr("kind")?.extract()?;
    let is_empty = found.getattr("size")?.extract::<usize>()? == 0;
    let kinds = match element_type {
        ElementType::Pred => "b",
        ElementType::C64 | ElementType::C128 => "iufc",
        other if is_floating(other) || dtype_is_float(name) => "iuf",
        _ => "iu",
    };
    if !is_empty && !kinds.contains(&kind) {
        return Err(PyTypeError::new_err(format!(
            "expected numbers of {name}, found {}",
            found.getattr("dtype")?
        )));
    }
    let array = found.call_method1("astype", (dtype(value.py(), element_type)?,))?;
    // `astype` wraps integers that do not fit.
    if kinds == "iu" {
        let same = numpy.getattr("array_equal")?.call1((&array, &found))?;
        if !is_empty && !same.is_truthy()? {
            return Err(PyOverflowError::new_err(format!(
                "expected numbers that {name} holds, found others"
            )));
        }
    }
    Ok(array)
}

fn dtype_is_float(name: &str) -> bool {
    name.starts_with("float")
}

/// Copies a NumPy array, or an object that NumPy converts, into a literal.
fn literal_of(value: &Bound<'_, PyAny>) -> PyResult<Literal> {
    literal(value.py(), Array::operand(value)?)
}

/// Copies an array into a literal.
fn literal(py: Python<'_>, mut array: Array) -> PyResult<Literal> {
    let shape = array.shape(py)?;
    array.put_in_order(py)?;
    let bytes = array.to_bytes();
    array.release(py);
    or_raise(
        py,
        bytes.and_then(|bytes| Literal::from_bytes(shape, bytes)),
    )
}

/// Converts a number to the declared type, or as JAX does: to S64, F64, C128 or PRED.
fn number(value: &Bound<'_, PyAny>, wanted: Option<ElementType>) -> PyResult<Literal> {
    use ElementType as T;
    let overflow = |element_type: ElementType| {
        PyOverflowError::new_err(format!(
            "expected a number that {} holds, found {value}",
            dtype_name(element_type).unwrap_or("token")
        ))
    };
    if let Ok(flag) = value.cast::<PyBool>() {
        return Ok(Literal::scalar(flag.is_true()));
    }
    if value.is_instance_of::<PyInt>() {
        let element_type = wanted.unwrap_or(T::S64);
        macro_rules! integer {
            ($type:ty) => {
                value
                    .extract::<$type>()
                    .map(Literal::scalar)
                    .map_err(|_| overflow(element_type))
            };
        }
        return match element_type {
            T::S8 => integer!(i8),
            T::S16 => integer!(i16),
            T::S32 => integer!(i32),
            T::S64 => integer!(i64),
            T::U8 => integer!(u8),
            T::U16 => integer!(u16),
            T::U32 => integer!(u32),
            T::U64 => integer!(u64),
            T::F16 | T::Bf16 | T::F32 | T::F64 => {
                let float: f64 = value.extract().map_err(|_| overflow(element_type))?;
                finite(float, element_type).ok_or_else(|| overflow(element_type))
            }
            _ => value
                .extract::<i64>()
                .map(Literal::scalar)
                .map_err(|_| overflow(T::S64)),
        };
    }
    if let Ok(float) = value.extract::<f64>() {
        let element_type = match wanted {
            Some(wanted @ (T::F16 | T::Bf16 | T::F32)) => wanted,
            _ => T::F64,
        };
        return finite(float, element_type).ok_or_else(|| overflow(element_type));
    }
    let array = numpy(value.py())?.getattr("asarray")?;
    let as_type = match wanted {
        Some(T::C64) => "complex64",
        _ => "complex128",
    };
    literal_of(&array.call1((value, as_type))?)
}

/// Rounds a number to a type. Returns `None` if that makes it infinite.
fn finite(value: f64, element_type: ElementType) -> Option<Literal> {
    let is_finite = match element_type {
        ElementType::F16 => f16::from_f64(value).is_finite(),
        ElementType::Bf16 => bf16::from_f64(value).is_finite(),
        ElementType::F32 => (value as f32).is_finite(),
        _ => true,
    };
    (is_finite || !value.is_finite()).then(|| floating(value, element_type))
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a Python number is rounded to the declared type, as in NumPy"
)]
fn floating(value: f64, element_type: ElementType) -> Literal {
    match element_type {
        ElementType::F16 => Literal::scalar(f16::from_f64(value)),
        ElementType::Bf16 => Literal::scalar(bf16::from_f64(value)),
        ElementType::F32 => Literal::scalar(value as f32),
        _ => Literal::scalar(value),
    }
}
