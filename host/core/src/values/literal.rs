//! Literals: values in the host's memory.

use std::fmt;
use std::sync::Arc;

use super::{ArrayShape, NativeType, Result, Shape, Status};

/// A value: an array, or a tuple of values. Cloning it copies no elements, however many arrays the
/// value has.
///
/// An array's elements are dense and in row-major order, whatever the layout in its shape. That
/// layout determines how the array is passed to a target and how `bitcast` reads it, and nothing
/// else.
///
/// ```
/// # fn main() -> callbox_core::Result<()> {
/// use callbox_core::Literal;
///
/// let x = Literal::array(&[2, 3], &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// assert_eq!(x.shape().to_string(), "f32[2,3]");
/// assert_eq!(x.to_vec::<f32>()?[4], 5.0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq)]
pub struct Literal {
    shape: Shape,
    leaves: Arc<[Arc<Vec<u8>>]>,
}

impl Literal {
    /// An array of rank 0.
    #[must_use]
    pub fn scalar<T: NativeType>(value: T) -> Self {
        Self::from_shape(ArrayShape::scalar(T::ELEMENT_TYPE), to_bytes(&[value]))
    }

    /// An array of these dimensions, from its elements in row-major order.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the dimensions' product is not the number of elements.
    pub fn array<T: NativeType>(dimensions: &[usize], elements: &[T]) -> Result<Self> {
        let shape = ArrayShape::new(T::ELEMENT_TYPE, dimensions)?;
        if shape.element_count() != elements.len() {
            return Err(Status::invalid_argument(format!(
                "expected {} elements for {shape}, found {}",
                shape.element_count(),
                elements.len()
            )));
        }
        Ok(Self::from_shape(shape, to_bytes(elements)))
    }

    /// An array, from the little-endian bytes of its elements in row-major order. An element of a
    /// type narrower than a byte takes one byte.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the number of bytes is not the shape's size.
    pub fn from_bytes(shape: ArrayShape, bytes: Vec<u8>) -> Result<Self> {
        if shape.byte_size() != bytes.len() {
            return Err(Status::invalid_argument(format!(
                "expected {} bytes for {shape}, found {}",
                shape.byte_size(),
                bytes.len()
            )));
        }
        Ok(Self::from_shape(shape, bytes))
    }

    /// A tuple with these elements.
    ///
    /// # Errors
    /// As for [`Shape::tuple`].
    pub fn tuple(elements: Vec<Literal>) -> Result<Self> {
        let shape = Shape::tuple(elements.iter().map(|e| e.shape.clone()).collect())?;
        let leaves = elements
            .iter()
            .flat_map(|e| e.leaves.iter().cloned())
            .collect();
        Ok(Self { shape, leaves })
    }

    /// A value of this shape, from its leaves in preorder.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the number of leaves, or of bytes in a leaf, is not that of the shape.
    pub fn from_leaves(shape: Shape, leaves: Vec<Vec<u8>>) -> Result<Self> {
        Self::from_shared_leaves(shape, leaves.into_iter().map(Arc::new).collect())
    }

    /// A value of this shape, from leaves that other literals may share.
    ///
    /// # Errors
    /// As for [`Literal::from_leaves`].
    pub fn from_shared_leaves(shape: Shape, leaves: Vec<Arc<Vec<u8>>>) -> Result<Self> {
        let shapes = shape.leaves();
        if shapes.len() != leaves.len() {
            return Err(Status::invalid_argument(format!(
                "expected {} arrays for {shape}, found {}",
                shapes.len(),
                leaves.len()
            )));
        }
        for (shape, leaf) in std::iter::zip(shapes, &leaves) {
            if shape.byte_size() != leaf.len() {
                return Err(Status::invalid_argument(format!(
                    "expected {} bytes for {shape}, found {}",
                    shape.byte_size(),
                    leaf.len()
                )));
            }
        }
        Ok(Self {
            shape,
            leaves: leaves.into(),
        })
    }

    /// The value's shape.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The array's bytes, little-endian and in row-major order: `None` for a tuple.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        self.shape.as_array()?;
        self.leaves.first().map(|leaf| leaf.as_slice())
    }

    /// The arrays in it, in preorder, each with its shape.
    pub fn leaves(&self) -> impl ExactSizeIterator<Item = (&ArrayShape, &[u8])> {
        std::iter::zip(
            self.shape.leaves(),
            self.leaves.iter().map(|leaf| leaf.as_slice()),
        )
    }

    /// The bytes of the leaves in preorder, which other literals may share.
    pub fn shared_leaves(&self) -> &[Arc<Vec<u8>>] {
        &self.leaves
    }

    /// The array's elements in row-major order.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if it is a tuple or has another element type.
    pub fn to_vec<T: NativeType>(&self) -> Result<Vec<T>> {
        match (&self.shape, self.bytes()) {
            (Shape::Array(shape), Some(bytes)) if shape.element_type() == T::ELEMENT_TYPE => {
                let width = T::ELEMENT_TYPE.byte_width();
                Ok(bytes.chunks_exact(width).map(T::read).collect())
            }
            _ => Err(Status::invalid_argument(format!(
                "expected an array of {}, found {}",
                T::ELEMENT_TYPE,
                self.shape
            ))),
        }
    }

    /// The tuple's elements, or the array itself.
    #[must_use]
    pub fn into_elements(self) -> Vec<Literal> {
        let Shape::Tuple(tuple) = &self.shape else {
            return vec![self];
        };
        let mut leaves = self.leaves.iter();
        let elements = tuple.elements().iter().map(|shape| Self {
            shape: shape.clone(),
            leaves: leaves.by_ref().take(shape.leaf_count()).cloned().collect(),
        });
        elements.collect()
    }

    /// The same value with a shape that differs in layouts only.
    pub fn with_compatible_shape(mut self, shape: &Shape) -> Self {
        debug_assert!(
            self.shape.is_compatible(shape),
            "{} and {shape}",
            self.shape
        );
        if self.shape != *shape {
            self.shape.clone_from(shape);
        }
        self
    }

    /// An array whose number of bytes is that of the shape.
    fn from_shape(shape: ArrayShape, bytes: Vec<u8>) -> Self {
        debug_assert_eq!(shape.byte_size(), bytes.len());
        Self {
            shape: Shape::Array(shape),
            leaves: Arc::new([Arc::new(bytes)]),
        }
    }
}

impl fmt::Debug for Literal {
    /// Shows the shape and the first bytes of each leaf: a literal may be large.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let heads = self.leaves.iter().map(|leaf| &leaf[..leaf.len().min(32)]);
        write!(f, "Literal({} ", self.shape)?;
        f.debug_list().entries(heads).finish()?;
        f.write_str(")")
    }
}

fn to_bytes<T: NativeType>(elements: &[T]) -> Vec<u8> {
    let width = T::ELEMENT_TYPE.byte_width();
    let mut bytes = vec![0; width * elements.len()];
    for (chunk, &element) in std::iter::zip(bytes.chunks_exact_mut(width), elements) {
        element.write(chunk);
    }
    bytes
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use num_complex::Complex;

    #[test]
    fn elements_survive_in_row_major_order() {
        let x = Literal::array(&[2, 2], &[1i16, -2, 3, i16::MIN]).unwrap();
        assert_eq!(x.bytes().unwrap(), [1, 0, 254, 255, 3, 0, 0, 128]);
        assert_eq!(x.to_vec::<i16>().unwrap(), [1, -2, 3, i16::MIN]);
        let err = x.to_vec::<u16>().unwrap_err();
        assert_eq!(err.message(), "expected an array of u16, found s16[2,2]");
        let z = Literal::scalar(Complex::new(1.0f32, -0.0));
        assert_eq!(z.bytes().unwrap(), [0, 0, 128, 63, 0, 0, 0, 128]);
    }

    #[test]
    fn sizes_must_agree() {
        let err = Literal::array(&[3], &[1.0f32]).unwrap_err();
        assert_eq!(err.message(), "expected 3 elements for f32[3], found 1");
        let shape: ArrayShape = "f32[3]".parse().unwrap();
        let err = Literal::from_bytes(shape, vec![0; 13]).unwrap_err();
        assert_eq!(err.message(), "expected 12 bytes for f32[3], found 13");
    }

    #[test]
    fn tuples_share_their_leaves() {
        let x = Literal::scalar(true);
        let inner = Literal::tuple(vec![x.clone(), Literal::tuple(vec![]).unwrap()]).unwrap();
        let outer = Literal::tuple(vec![Literal::scalar(7u8), inner.clone()]).unwrap();
        assert_eq!(outer.shape().to_string(), "(u8[], (pred[], ()))");
        assert_eq!(outer.leaves().len(), 2);
        let elements = outer.into_elements();
        assert_eq!(elements[1], inner);
        assert_eq!(elements[1].clone().into_elements()[0], x);
        assert!(Arc::ptr_eq(&elements[1].leaves[0], &x.leaves[0]));
    }
}
