//! Values: what programs compute with and what crosses the boundary of a custom call.
//!
//! Nothing here knows of targets, platforms, guests or programs. Names, numbers and texts are XLA's.

mod attribute;
mod element_type;
mod float_format;
mod layout;
mod literal;
mod native;
mod room;
mod shape;
mod shape_text;
mod status;

pub(crate) use attribute::bounded;
pub use attribute::{Attribute, Dictionary};
pub use element_type::ElementType;
pub(crate) use float_format::FloatFormat;
pub use layout::Layout;
pub use literal::Literal;
pub use native::NativeType;
pub(crate) use room::zeroed;
pub use shape::{ArrayShape, Shape, ShapeIndex, TupleShape};
pub use status::{Backtrace, Blame, Status, StatusCode};

/// The result of an operation that fails with a [`Status`].
pub type Result<T, E = Status> = std::result::Result<T, E>;
