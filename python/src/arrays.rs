//! Python's arrays: objects with the buffer protocol or DLPack, and everything that NumPy can
//! convert.
#![allow(
    unsafe_code,
    reason = "copies from memory that Python's buffer protocol hands out"
)]

use callbox::{ArrayShape, ElementType};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyException, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::buffers::{RawArray, RawArrays};
use crate::dlpack::Tensor;
use crate::element::{dtype_name, from_dtype, from_format};
use crate::error::or_raise;
use crate::once::Once;

/// An array of Python, kept alive and locked in place.
pub(crate) struct Array {
    memory: Memory,
    element_type: ElementType,
    /// Whether the array has rank 0. `memory` has one dimension then.
    is_scalar: bool,
}

/// The memory of an array.
enum Memory {
    View(PyUntypedBuffer),
    Tensor(Tensor),
    /// A NumPy array in another order than row-major, with its dimensions.
    Unordered(Py<PyAny>, Vec<usize>),
    /// The elements of a tensor, copied in row-major order.
    Copy(Vec<u8>, Vec<usize>),
}

impl Array {
    /// Takes an array to read.
    ///
    /// An object without a buffer is taken by DLPack, or else converted by NumPy. An array that is
    /// not in row-major order has no memory before [`Array::put_in_order`] has copied it: its shape
    /// is checked first, because a small array with strides of 0 may have any number of elements.
    pub(crate) fn operand(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(view) = PyUntypedBuffer::get(object) {
            return if view.is_c_contiguous() {
                Self::of(view, object)
            } else {
                Self::converted(object)
            };
        }
        if is_numpy(object)? || !object.hasattr("__dlpack__")? {
            return Self::converted(object);
        }
        match Tensor::of(object) {
            Ok(tensor) => Ok(Self::of_tensor(tensor)),
            // NumPy may gather an array of several devices, or copy it from one.
            Err(refused) if refused.is_instance_of::<PyException>(object.py()) => {
                Self::converted(object).map_err(|_| refused)
            }
            // KeyboardInterrupt and its like.
            Err(error) => Err(error),
        }
    }

    /// Copies an operand that is not in row-major order.
    ///
    /// # Errors
    /// MemoryError.
    pub(crate) fn put_in_order(&mut self, py: Python<'_>) -> PyResult<()> {
        match &self.memory {
            Memory::Unordered(array, dimensions) => {
                let ordered = numpy(py)?.getattr("ascontiguousarray")?.call1((array,))?;
                let ordered = Self::of_numpy(&ordered)?;
                if ordered.element_type != self.element_type
                    || ordered.dimensions() != dimensions.as_slice()
                {
                    return Err(PyBufferError::new_err(
                        "expected an array that keeps its shape during the call",
                    ));
                }
                *self = ordered;
            }
            Memory::Tensor(tensor) if !tensor.is_contiguous() => {
                let copy = Memory::Copy(tensor.to_bytes()?, tensor.dimensions().to_vec());
                self.memory = copy;
            }
            _ => {}
        }
        Ok(())
    }

    fn of_tensor(tensor: Tensor) -> Self {
        Self {
            element_type: tensor.element_type(),
            memory: Memory::Tensor(tensor),
            is_scalar: false,
        }
    }

    /// Converts an object to a NumPy array.
    fn converted(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let array = numpy(object.py())?.getattr("asarray")?.call1((object,))?;
        let flags = array.getattr("flags")?;
        if flags.getattr("c_contiguous")?.extract::<bool>()? {
            return Self::of_numpy(&array);
        }
        let dtype = array.getattr("dtype")?;
        let is_native = dtype.getattr("isnative")?.extract::<bool>()?;
        let element_type = from_dtype(&dtype)?.filter(|_| is_native);
        let element_type = element_type.ok_or_else(|| no_element_type(&dtype))?;
        // Nothing else can change the shape of this view.
        let array = array.call_method0("view")?;
        let dimensions = array.getattr("shape")?.extract()?;
        Ok(Self {
            memory: Memory::Unordered(array.unbind(), dimensions),
            element_type,
            is_scalar: false,
        })
    }

    /// Takes a NumPy array that is in row-major order.
    fn of_numpy(array: &Bound<'_, PyAny>) -> PyResult<Self> {
        let is_scalar = array.getattr("ndim")?.extract::<usize>()? == 0;
        let array = if is_scalar {
            &array.call_method1("reshape", (1,))?
        } else {
            array
        };
        let dtype = array.getattr("dtype")?;
        let own = from_dtype(&dtype)?.filter(|t| is_foreign(*t));
        let view = match own {
            // NumPy exports no buffers of ml_dtypes' dtypes: view them as integers.
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
            memory: Memory::View(view),
            element_type,
            is_scalar: false,
        })
    }

    /// Takes an array to write, in row-major order. Messages begin with `what`.
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
            Err(_) if object.hasattr("__dlpack__")? => match Tensor::of(object)? {
                tensor if tensor.is_contiguous() => Self::of_tensor(tensor),
                _ => return Err(not_contiguous()),
            },
            Err(_) => {
                return Err(PyTypeError::new_err(format!(
                    "{}: expected an array that can be written, found {}",
                    what(),
                    object.get_type().name()?
                )));
            }
        };
        if new.is_read_only() {
            Err(PyBufferError::new_err(format!(
                "{}: expected an array that can be written, found a read-only one",
                what()
            )))
        } else {
            Ok(new)
        }
    }

    /// Checks the element type and the dimensions of a result.
    pub(crate) fn expect(&self, expected: &ArrayShape, what: &dyn Fn() -> String) -> PyResult<()> {
        if self.element_type != expected.element_type() {
            return Err(PyTypeError::new_err(format!(
                "{}: expected dtype {}, found {}",
                what(),
                dtype_name(expected.element_type()).unwrap_or("token"),
                dtype_name(self.element_type).unwrap_or("token")
            )));
        }
        if self.dimensions() == expected.dimensions() {
            Ok(())
        } else {
            Err(PyValueError::new_err(format!(
                "{}: expected shape {}, found {}",
                what(),
                shape_text(expected.dimensions()),
                shape_text(self.dimensions())
            )))
        }
    }

    fn is_read_only(&self) -> bool {
        match &self.memory {
            Memory::View(view) => view.readonly(),
            Memory::Tensor(tensor) => tensor.is_read_only(),
            Memory::Unordered(..) | Memory::Copy(..) => true,
        }
    }

    /// The type of the elements.
    pub(crate) fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// The dimensions.
    pub(crate) fn dimensions(&self) -> &[usize] {
        match &self.memory {
            _ if self.is_scalar => &[],
            Memory::View(view) => view.shape(),
            Memory::Tensor(tensor) => tensor.dimensions(),
            Memory::Unordered(_, dimensions) | Memory::Copy(_, dimensions) => dimensions,
        }
    }

    /// The shape.
    pub(crate) fn shape(&self, py: Python<'_>) -> PyResult<ArrayShape> {
        or_raise(py, ArrayShape::new(self.element_type, self.dimensions()))
    }

    /// The memory of the elements in row-major order. An operand without it shares memory with no
    /// other array of the call.
    pub(crate) fn raw(&self) -> RawArray {
        match &self.memory {
            Memory::Unordered(..) => RawArray::EMPTY,
            Memory::Tensor(tensor) if !tensor.is_contiguous() => RawArray::EMPTY,
            Memory::View(view) => RawArray::new(view.buf_ptr().cast(), view.len_bytes()),
            Memory::Tensor(tensor) => tensor.raw(),
            // Nothing writes to an operand's memory.
            Memory::Copy(bytes, _) => RawArray::new(bytes.as_ptr().cast_mut(), bytes.len()),
        }
    }

    /// Copies the elements.
    pub(crate) fn to_bytes(&self) -> callbox::Result<Vec<u8>> {
        // SAFETY: the view keeps the array's memory alive, and this function holds no reference to
        // it.
        unsafe { RawArrays::bytes(self.raw()) }
    }

    /// Releases the memory.
    pub(crate) fn release(self, py: Python<'_>) {
        if let Memory::View(view) = self.memory {
            view.release(py);
        }
    }
}

/// Returns whether NumPy knows the type only through ml_dtypes.
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

/// Imports NumPy once.
pub(crate) fn numpy(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static NUMPY: Once<PyModule> = Once::new();
    let numpy = NUMPY.get_or_make(py, || py.import("numpy").map(Bound::unbind))?;
    Ok(numpy.bind(py))
}

/// The dtype of an element type, from NumPy or from ml_dtypes.
pub(crate) fn dtype(py: Python<'_>, element_type: ElementType) -> PyResult<Bound<'_, PyAny>> {
    let Some(name) = dtype_name(element_type) else {
        return Err(PyTypeError::new_err("a token is not an array"));
    };
    let class = if is_foreign(element_type) {
        let own = py.import("ml_dtypes").and_then(|m| m.getattr(name));
        own.map_err(|_| {
            PyTypeError::new_err(format!(
                "arrays of {name} need a version of the package ml_dtypes that has this dtype"
            ))
        })?
    } else {
        numpy(py)?.getattr(if name == "bool" { "bool_" } else { name })?
    };
    numpy(py)?.getattr("dtype")?.call1((class,))
}

/// Formats a shape as Python does: `(2, 3)`.
pub(crate) fn shape_text(dimensions: &[usize]) -> String {
    match dimensions {
        [one] => format!("({one},)"),
        several => {
            let texts: Vec<_> = several.iter().map(ToString::to_string).collect();
            format!("({})", texts.join(", "))
        }
    }
}

/// Allocates arrays of one shape.
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

    /// Allocates an array with undefined contents.
    pub(crate) fn make<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        static EMPTY: Once<PyAny> = Once::new();
        let empty = EMPTY.get_or_make(py, || Ok(numpy(py)?.getattr("empty")?.unbind()))?;
        empty
            .bind(py)
            .call1((self.shape.bind(py), self.dtype.bind(py)))
    }
}

/// Reads a shape from a pair `(dtype, shape)` or from an object with `dtype` and `shape`.
pub(crate) fn declared_shape(object: &Bound<'_, PyAny>) -> PyResult<ArrayShape> {
    let py = object.py();
    let wrong = || -> PyErr {
        PyTypeError::new_err(
            "expected something with shape and dtype, such as jax.ShapeDtypeStruct or a NumPy \
             array, found something else",
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
    let dtype = if dtype.is_instance(&class)? {
        dtype
    } else {
        class.call1((&dtype,))?
    };
    let element_type = from_dtype(&dtype)?.ok_or_else(|| no_element_type(&dtype))?;
    let dimensions: Vec<usize> = shape
        .extract()
        .map_err(|_| PyValueError::new_err(format!("expected a shape of sizes, found {shape}")))?;
    or_raise(py, ArrayShape::new(element_type, &dimensions))
}
