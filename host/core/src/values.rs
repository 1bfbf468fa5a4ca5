//! The values of programs and of custom calls: shapes, literals, attributes and statuses.
//!
//! This module depends on no other: values know nothing of targets, platforms, guests or programs.
//! Names, numbers and notation are XLA's.

mod attribute;
mod float_format;
mod layout;
mod literal;
mod native;
mod room;
mod serial;
mod shape;
mod status;

#[doc(inline)]
pub use callbox_abi::{ElementType, StatusCode};

pub use attribute::{Attribute, Dictionary, bounded, check_depth};
pub use float_format::FloatFormat;
pub use layout::Layout;
pub use literal::Literal;
pub use native::NativeType;
pub use room::{collected, push, untouched, with_capacity, zeroed};
pub(crate) use shape::MAX_TUPLE_DEPTH;
pub use shape::{ArrayShape, Shape, ShapeIndex, TupleShape};
pub use status::{Backtrace, Blame, Status};

/// The result of an operation that fails with a [`Status`].
pub type Result<T, E = Status> = std::result::Result<T, E>;
