//! Shapes: arrays of an element type, and nested tuples of them.

use std::fmt;
use std::sync::Arc;

use super::{Blame, ElementType, Layout, Result, Status, StatusCode};

/// The position of a shape in a nested tuple: one tuple index for each level. Empty for the whole.
pub type ShapeIndex = Vec<usize>;

/// The most dimensions of an array.
const MAX_RANK: usize = 255;

/// The depth to which tuples may nest.
pub(crate) const MAX_TUPLE_DEPTH: usize = 64;

/// The most shapes in a tuple's shape: the tuple, its elements, theirs, and so on. Tuples of tuples
/// share their elements, so that a few steps would otherwise make a tuple with more arrays than
/// memory has bytes.
const MAX_TUPLE_SHAPES: usize = 1 << 20;

/// The shape of a value: an array or a tuple of shapes. A token is an array of rank 0 and element
/// type TOKEN.
///
/// Cloning a shape copies neither dimensions nor the shapes of a tuple's elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// An array.
    Array(ArrayShape),
    /// A tuple.
    Tuple(TupleShape),
}

/// The shape of an array: an element type, dimensions, and optionally a layout.
///
/// Its size in bytes is at most `isize::MAX`, and it has at most 255 dimensions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArrayShape {
    element_type: ElementType,
    dimensions: Arc<[usize]>,
    layout: Option<Layout>,
}

/// The shape of a tuple: its elements' shapes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TupleShape {
    elements: Arc<[Shape]>,
    depth: usize,
    /// The number of shapes in it, itself included.
    size: usize,
    leaf_count: usize,
}

impl ArrayShape {
    /// The shape of an array, without a layout.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if its size in bytes is more than `isize::MAX`, or if it is a token that
    /// has dimensions. RESOURCE_EXHAUSTED for more than 255 dimensions.
    pub fn new(element_type: ElementType, dimensions: &[usize]) -> Result<Self> {
        if dimensions.len() > MAX_RANK {
            return Err(exhausted(format!(
                "expected an array of at most {MAX_RANK} dimensions, found {}",
                dimensions.len()
            )));
        }
        if element_type == ElementType::Token && !dimensions.is_empty() {
            return Err(Status::invalid_argument(format!(
                "expected a token without dimensions, found {}",
                dimensions.len()
            )));
        }
        let shape = Self {
            element_type,
            dimensions: dimensions.into(),
            layout: None,
        };
        // The product over the dimensions other than 0 bounds every stride, also that of an empty
        // array.
        let largest = dimensions
            .iter()
            .filter(|&&d| d != 0)
            .try_fold(element_type.byte_width(), |size, &d| size.checked_mul(d))
            .filter(|&size| isize::try_from(size).is_ok());
        match largest {
            Some(_) => Ok(shape),
            None => Err(Status::invalid_argument(format!(
                "expected a shape whose size in bytes is at most {}, found {shape}",
                isize::MAX
            ))),
        }
    }

    /// The shape of a single element.
    #[must_use]
    pub fn scalar(element_type: ElementType) -> Self {
        Self {
            element_type,
            dimensions: Arc::default(),
            layout: None,
        }
    }

    /// The same array in this layout.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if the layout has another rank.
    pub fn with_layout(mut self, layout: Layout) -> Result<Self> {
        if layout.rank() != self.rank() {
            return Err(Status::invalid_argument(format!(
                "expected a layout of {} dimensions for {self}, found {layout}",
                self.rank()
            )));
        }
        self.layout = Some(layout);
        Ok(self)
    }

    /// The same array without a layout.
    #[must_use]
    pub fn without_layout(mut self) -> Self {
        self.layout = None;
        self
    }

    /// The type of its elements.
    #[must_use]
    pub fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// The sizes of its dimensions.
    #[must_use]
    pub fn dimensions(&self) -> &[usize] {
        &self.dimensions
    }

    /// The number of dimensions.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.dimensions.len()
    }

    /// The explicit layout, if it has one.
    #[must_use]
    pub fn layout(&self) -> Option<&Layout> {
        self.layout.as_ref()
    }

    /// The explicit layout, or the default, row-major.
    #[must_use]
    pub fn layout_or_default(&self) -> Layout {
        self.layout
            .clone()
            .unwrap_or_else(|| Layout::row_major(self.rank()))
    }

    /// Whether its elements lie in row-major order.
    #[must_use]
    pub fn is_row_major(&self) -> bool {
        self.layout.as_ref().is_none_or(Layout::is_row_major)
    }

    /// The number of elements: 1 for a scalar and for a token.
    #[must_use]
    pub fn element_count(&self) -> usize {
        // Cannot overflow: `new` checked the product of the dimensions other than 0.
        if self.dimensions.contains(&0) {
            0
        } else {
            self.dimensions.iter().product()
        }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        self.element_count() * self.element_type.byte_width()
    }

    /// Whether both have the same element type and dimensions, whatever their layouts: XLA's
    /// "compatible".
    #[must_use]
    pub fn is_compatible(&self, other: &Self) -> bool {
        self.element_type == other.element_type && self.dimensions == other.dimensions
    }
}

impl TupleShape {
    /// The elements' shapes.
    #[must_use]
    pub fn elements(&self) -> &[Shape] {
        &self.elements
    }
}

impl Shape {
    /// The shape of an array, without a layout.
    ///
    /// # Errors
    /// As for [`ArrayShape::new`].
    pub fn array(element_type: ElementType, dimensions: &[usize]) -> Result<Self> {
        ArrayShape::new(element_type, dimensions).map(Self::Array)
    }

    /// The shape of a single element.
    #[must_use]
    pub fn scalar(element_type: ElementType) -> Self {
        Self::Array(ArrayShape::scalar(element_type))
    }

    /// The shape of a tuple with these elements.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if tuples nest more than 64 deep, or if the tuple consists of more than
    /// 1,048,576 shapes, nested ones included.
    pub fn tuple(elements: Vec<Shape>) -> Result<Self> {
        let depth = 1 + elements.iter().map(Self::depth).max().unwrap_or(0);
        if depth > MAX_TUPLE_DEPTH {
            return Err(exhausted(format!(
                "expected tuples that nest at most {MAX_TUPLE_DEPTH} deep, found {depth}"
            )));
        }
        // Every size is below the limit, and the number of elements is that of a vector in memory,
        // so that the sum does not overflow.
        let size = 1 + elements.iter().map(Self::size).sum::<usize>();
        if size > MAX_TUPLE_SHAPES {
            return Err(exhausted(format!(
                "expected a tuple of at most {MAX_TUPLE_SHAPES} shapes, found {size}"
            )));
        }
        Ok(Self::Tuple(TupleShape {
            depth,
            size,
            leaf_count: elements.iter().map(Self::leaf_count).sum(),
            elements: elements.into(),
        }))
    }

    /// The array's shape, if it is an array.
    #[must_use]
    pub fn as_array(&self) -> Option<&ArrayShape> {
        match self {
            Self::Array(shape) => Some(shape),
            Self::Tuple(_) => None,
        }
    }

    /// The elements' shapes, if it is a tuple.
    #[must_use]
    pub fn as_tuple(&self) -> Option<&[Shape]> {
        match self {
            Self::Array(_) => None,
            Self::Tuple(shape) => Some(shape.elements()),
        }
    }

    /// The shape at this index, if there is one.
    #[must_use]
    pub fn at(&self, index: &[usize]) -> Option<&Shape> {
        index
            .iter()
            .try_fold(self, |shape, &i| shape.as_tuple()?.get(i))
    }

    /// The arrays in it, in preorder: one for an array, none for an empty tuple.
    #[must_use]
    pub fn leaves(&self) -> Vec<&ArrayShape> {
        fn collect<'a>(shape: &'a Shape, leaves: &mut Vec<&'a ArrayShape>) {
            match shape {
                Shape::Array(array) => leaves.push(array),
                Shape::Tuple(tuple) => tuple.elements.iter().for_each(|s| collect(s, leaves)),
            }
        }
        let mut leaves = Vec::with_capacity(self.leaf_count());
        collect(self, &mut leaves);
        leaves
    }

    /// The number of arrays in it.
    #[must_use]
    pub fn leaf_count(&self) -> usize {
        match self {
            Self::Array(_) => 1,
            Self::Tuple(tuple) => tuple.leaf_count,
        }
    }

    /// The same tuples with other arrays. `map` visits the arrays in preorder.
    ///
    /// # Errors
    /// The first error of `map`.
    pub fn map_arrays(
        &self,
        map: &mut dyn FnMut(&ArrayShape) -> Result<ArrayShape>,
    ) -> Result<Self> {
        match self {
            Self::Array(array) => map(array).map(Self::Array),
            Self::Tuple(tuple) => {
                let elements = tuple.elements.iter();
                let elements = elements.map(|element| element.map_arrays(map));
                Self::tuple(elements.collect::<Result<_>>()?)
            }
        }
    }

    /// Whether both have the same structure, element types and dimensions, whatever their layouts.
    #[must_use]
    pub fn is_compatible(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Array(a), Self::Array(b)) => a.is_compatible(b),
            (Self::Tuple(a), Self::Tuple(b)) => {
                Arc::ptr_eq(&a.elements, &b.elements)
                    || a.size == b.size
                        && a.elements.len() == b.elements.len()
                        && std::iter::zip(a.elements(), b.elements())
                            .all(|(a, b)| a.is_compatible(b))
            }
            _ => false,
        }
    }

    fn depth(&self) -> usize {
        match self {
            Self::Array(_) => 0,
            Self::Tuple(tuple) => tuple.depth,
        }
    }

    /// The number of shapes in it: itself, and the elements of tuples, nested ones included.
    #[must_use]
    pub fn size(&self) -> usize {
        match self {
            Self::Array(_) => 1,
            Self::Tuple(tuple) => tuple.size,
        }
    }
}

fn exhausted(message: String) -> Status {
    Status::new(StatusCode::ResourceExhausted, Blame::Caller, message)
}

impl From<ArrayShape> for Shape {
    fn from(shape: ArrayShape) -> Self {
        Self::Array(shape)
    }
}

impl fmt::Display for ArrayShape {
    /// Prints it as XLA does, with its layout if it has one: `f32[8,128]{1,0}`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.element_type)?;
        for (i, dimension) in self.dimensions.iter().enumerate() {
            write!(f, "{}{dimension}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("]")?;
        match &self.layout {
            Some(layout) if self.rank() > 0 => layout.fmt(f),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Shape {
    /// Prints it as XLA does: `(f32[], (s32[3]{0}, pred[]))`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array(shape) => shape.fmt(f),
            Self::Tuple(tuple) => {
                f.write_str("(")?;
                for (i, element) in tuple.elements.iter().enumerate() {
                    write!(f, "{}{element}", if i == 0 { "" } else { ", " })?;
                }
                f.write_str(")")
            }
        }
    }
}

#[cfg(test)]
mod tests;
