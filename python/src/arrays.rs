//! Python's arrays: whatever has a buffer, and what NumPy makes an array of.
#![allow(
    unsafe_code,
    reason = "copies from memory that Python's buffer protocol hands out"
)]

use callbox::{ArrayShape, ElementType};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyTuple;

use crate::buffers::{Place, Places};
use crate::element::{dtype_name, from_dtype, from_format};
use crate::error::or_raise;

/// An array of Python's, held for as long as this is there.
pub(crate) struct Array {
    view: PyUntypedBuffer,
    element_type: ElementType,
    /// `view` has one dimension for an array of rank 0.
    is_scalar: bool,
}

impl Array {
    /// An operand: an array that is there to be read. What is not contiguous is copied; what has no buffer, NumPy makes an array of.
    pub(crate) fn operand(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(view) = PyUntypedBuffer::get(object) {
            return match view.is_c_contiguous() {
                true => Self::of(view, object),
                false => Self::in_order(object),
            };
        }
        Self::in_order(object)
    }

    /// A NumPy array of the same elements in row-major order.
    fn in_order(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let array = numpy(py)?.getattr("asarray")?.call1((object,))?;
        // It would make an array of rank 1 out of one of rank 0.
        let array = match array.getattr("ndim")?.extract::<usize>()? {
            0 => array,
            _ => numpy(py)?.getattr("ascontiguousarray")?.call1((array,))?,
        };
        Self::of_numpy(&array)
    }

    /// A NumPy array in row-major order.
    fn of_numpy(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let is_scalar = array.getattr("ndim")?.extract::<usize>()? == 0;
        let array = match is_scalar {
            true => &array.call_method1("reshape", (1,))?,
            false => array,
        };
        let dtype = array.getattr("dtype")?;
        let own = from_dtype(&dtype)?.filter(|t| is_foreign(*t));
        let view = match own {
            // NumPy hands no buffers of other people's dtypes out.
            Some(element_type) => {
                let bits = format!("uint{}", 8 * element_type.byte_width());
                PyUntypedBuffer::get(&array.call_method1("view", (bits,))?)?
            }
            None => PyUntypedBuffer::get(array).map_err(|_| no_element_type(&dtype))?,
        };
        let mut new = Self::of(view, array)?;
        new.is_scalar = is_scalar;
        if let Some(element_type) = own {
            new.element_type = element_type;
        }
        Ok(new)
    }

    fn of(view: PyUntypedBuffer, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let Some(element_type) = from_format(view.format(), view.item_size()) else {
            return Err(match object.getattr("dtype") {
                Ok(dtype) => no_element_type(&dtype),
                Err(_) => no_element_type(view.format().to_string_lossy()),
            });
        };
        Ok(Self {
            view,
            element_type,
            is_scalar: false,
        })
    }

    /// A result: an array that is there to be written, in row-major order. `what` says whose, for messages.
    pub(crate) fn result(object: &Bound<'_, PyAny>, what: &dyn Fn() -> String) -> PyResult<Self> {
        let not_contiguous = || {
            PyBufferError::new_err(format!(
                "{}: expected a contiguous array in row-major order, found one that is not",
                what()
            ))
        };
        let new = match PyUntypedBuffer::get(object) {
            Ok(view) if view.is_c_contiguous() => Self::of(view, object)?,
            Ok(_) => return Err(not_contiguous()),
            Err(_) if is_numpy(object)? => {
                let flags = object.getattr("flags")?;
                if !flags.getattr("c_contiguous")?.extract::<bool>()? {
                    return Err(not_contiguous());
                }
                Self::of_numpy(object)?
            }
            Err(_) => {
                return Err(PyTypeError::new_err(format!(
                    "{}: expected an array that can be written, found {}",
                    what(),
                    object.get_type().name()?
                )));
            }
        };
        match new.view.readonly() {
            true => Err(PyBufferError::new_err(format!(
                "{}: expected an array that can be written, found a read-only one",
                what()
            ))),
            false => Ok(new),
        }
    }

    /// Checks that a result has the shape that it has to have.
    pub(crate) fn expect(&self, expected: &ArrayShape, what: &dyn Fn() -> String) -> PyResult<()> {
        if self.element_type != expected.element_type() {
            return Err(PyTypeError::new_err(format!(
                "{}: expected dtype {}, found {}",
                what(),
                dtype_name(expected.element_type()).unwrap_or("token"),
                dtype_name(self.element_type).unwrap_or("token")
            )));
        }
        match self.dimensions() == expected.dimensions() {
            true => Ok(()),
            false => Err(PyValueError::new_err(format!(
                "{}: expected shape {}, found {}",
                what(),
                shape_text(expected.dimensions()),
                shape_text(self.dimensions())
            ))),
        }
    }

    /// The type of its elements.
    pub(crate) fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// Its dimensions.
    pub(crate) fn dimensions(&self) -> &[usize] {
        match self.is_scalar {
            true => &[],
            false => self.view.shape(),
        }
    }

    /// Its shape.
    pub(crate) fn shape(&self, py: Python<'_>) -> PyResult<ArrayShape> {
        or_raise(py, ArrayShape::new(self.element_type, self.dimensions()))
    }

    /// Where its elements lie.
    pub(crate) fn place(&self) -> Place {
        Place::new(self.view.buf_ptr().cast(), self.view.len_bytes())
    }

    /// A copy of its elements.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        // SAFETY: the view keeps the array's memory, and nothing here holds a reference to it.
        unsafe { Places::bytes(self.place()) }
    }

    /// Gives the array back.
    pub(crate) fn release(self, py: Python<'_>) {
        self.view.release(py);
    }
}

/// Whether it is a dtype that NumPy knows only by way of ml_dtypes.
fn is_foreign(element_type: ElementType) -> bool {
    use ElementType as T;
    !matches!(
        element_type,
        T::Pred
            | T::S8
            | T::S16
            | T::S32
            | T::S64
            | T::U8
            | T::U16
            | T::U32
            | T::U64
            | T::F16
            | T::F32
            | T::F64
            | T::C64
            | T::C128
    )
}

fn no_element_type(found: impl std::fmt::Display) -> PyErr {
    PyTypeError::new_err(format!(
        "expected an array of numbers or booleans in this machine's byte order, found the dtype {found}"
    ))
}

fn is_numpy(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    object.is_instance(&numpy(object.py())?.getattr("ndarray")?)
}

/// NumPy.
pub(crate) fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let numpy = NUMPY.get_or_try_init(py, || py.import("numpy").map(Bound::unbind))?;
    Ok(numpy.bind(py))
}

/// NumPy's dtype of an element type; ml_dtypes' where NumPy has none.
pub(crate) fn dtype(py: Python<'_>, element_type: ElementType) -> PyResult<Bound<'_, PyAny>> {
    let Some(name) = dtype_name(element_type) else {
        return Err(PyTypeError::new_err("a token is no array"));
    };
    let class = match is_foreign(element_type) {
        false => numpy(py)?.getattr(if name == "bool" { "bool_" } else { name })?,
        true => {
            let own = py.import("ml_dtypes").and_then(|m| m.getattr(name));
            own.map_err(|_| {
                PyTypeError::new_err(format!(
                    "expected the package ml_dtypes for arrays of {name}, found none that has it"
                ))
            })?
        }
    };
    numpy(py)?.getattr("dtype")?.call1((class,))
}

/// `(2, 3)`.
pub(crate) fn shape_text(dimensions: &[usize]) -> String {
    match dimensions {
        [one] => format!("({one},)"),
        several => {
            let texts: Vec<_> = several.iter().map(ToString::to_string).collect();
            format!("({})", texts.join(", "))
        }
    }
}

/// How arrays of a shape are made.
pub(crate) struct Maker {
    shape: Py<PyTuple>,
    dtype: Py<PyAny>,
}

impl Maker {
    pub(crate) fn new(py: Python<'_>, shape: &ArrayShape) -> PyResult<Self> {
        Ok(Self {
            shape: PyTuple::new(py, shape.dimensions())?.unbind(),
            dtype: dtype(py, shape.element_type())?.unbind(),
        })
    }

    /// An array with anything in it.
    pub(crate) fn make<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let empty =
            EMPTY.get_or_try_init(py, || Ok::<_, PyErr>(numpy(py)?.getattr("empty")?.unbind()))?;
        empty
            .bind(py)
            .call1((self.shape.bind(py), self.dtype.bind(py)))
    }
}

/// A shape and a dtype as a pair `(dtype, shape)`, or as anything that has `dtype` and `shape`.
pub(crate) fn declared_shape(object: &Bound<'_, PyAny>) -> PyResult<ArrayShape> {
    let py = object.py();
    let wrong = || -> PyErr {
        PyTypeError::new_err(
            "expected something with shape and dtype, such as jax.ShapeDtypeStruct or a NumPy array, found something else",
        )
    };
    let (dtype, shape) = match object.cast::<PyTuple>() {
        Ok(pair) if pair.len() == 2 => (pair.get_item(0)?, pair.get_item(1)?),
        _ => (
            object.getattr("dtype").map_err(|_| wrong())?,
            object.getattr("shape").map_err(|_| wrong())?,
        ),
    };
    let class = numpy(py)?.getattr("dtype")?;
    let dtype = match dtype.is_instance(&class)? {
        true => dtype,
        false => class.call1((&dtype,))?,
    };
    let element_type = from_dtype(&dtype)?.ok_or_else(|| no_element_type(&dtype))?;
    let dimensions: Vec<usize> = shape
        .extract()
        .map_err(|_| PyValueError::new_err(format!("expected a shape of sizes, found {shape}")))?;
    or_raise(py, ArrayShape::new(element_type, &dimensions))
}
