//! The binary interface between a callbox host and its WebAssembly guests.
//!
//! A host and its guests agree on four things, and this crate is where both take them from:
//!
//! - the **records** of a call frame as they lie in the guest's memory: [`CallFrame`], [`Buffer`]
//!   and [`Attribute`];
//! - the **numbers** and names that XLA gives to element types, status codes, stages and the like:
//!   [`ElementType`], [`StatusCode`], [`Stage`], [`AttributeKind`], [`ApiVersion`] and
//!   [`LogLevel`];
//! - the records and numbers of the mathematics that a host lends: [`Product`], [`Elementwise`] and
//!   [`Reduction`];
//! - the **names** of imports, exports and sections, and the version of the contract.
//!
//! The contract itself is `wit/callbox-ffi.wit`. A test derives every layout and number from that
//! file and compares it with this crate.
//!
//! # Example
//!
//! A host writes a call frame into the guest's memory field by field:
//!
//! ```
//! use callbox_abi::{CallFrame, Stage, StatusCode};
//! use core::mem::offset_of;
//!
//! let mut frame = [0; size_of::<CallFrame>()];
//! frame[..4].copy_from_slice(&(size_of::<CallFrame>() as u32).to_le_bytes());
//! frame[offset_of!(CallFrame, base.stage)] = Stage::Execute.number();
//!
//! // The target returns a number.
//! assert_eq!(StatusCode::from_number(3), Some(StatusCode::InvalidArgument));
//! ```
//!
//! # Features
//!
//! `serde` derives `Serialize` and `Deserialize` for the enumerations. It is off by default, and
//! without it the crate has no dependencies. The crate never needs the standard library.
//!
//! # Where to go next
//!
//! Kernels are written with `callbox-guest`, in Rust, or with `guest-sdk/include/callbox.h`, in C.
//! Programs embed the host through the crate `callbox`. Both re-export the types here that their
//! users need.
#![no_std]
#![warn(missing_debug_implementations)]

extern crate alloc;

mod element_type;
mod maths;
mod numbers;
mod record;

pub use element_type::ElementType;
pub use maths::{
    Convertible, Elementwise, MATHS_MODULE, MATHS_VERSION, Matrices, Number, Order, Product,
    Reduction, Transform,
};
pub use numbers::{ApiVersion, AttributeKind, LogLevel, Stage, StatusCode, UnknownName};
pub use record::{Attribute, BaseCallFrame, Buffer, CallFrame, List, OptionU32};

/// The contract's major version.
pub const MAJOR: u32 = 1;

/// The newest minor version of the contract.
pub const MINOR: u32 = 1;

/// The contract's version as the import `version` returns it: the major version in the upper
/// 16 bits, the minor version in the lower 16.
pub const VERSION: u32 = MAJOR << 16 | MINOR;

/// The name of the module that guests import the FFI API from, up to the version number.
pub const API_MODULE: &str = "callbox:ffi/api@";

/// The export through which a guest allocates memory for the host: the canonical ABI's
/// `cabi_realloc`.
pub const REALLOC: &str = "cabi_realloc";

/// The export that returns the API table of the JAX FFI proposal.
pub const JAX_FFI_API: &str = "jax-ffi-api";

/// The export by which a module says that each of its targets of the JAX FFI proposal records the
/// order that its author wrote `inputs` and `outputs` in: see [`JAX_FFI_ORDERS`].
pub const JAX_FFI_RECORDS_ORDERS: &str = "jax-ffi-orders";

/// The endings of the exports `TARGET.ENDING`, one of which records the order of a target of the
/// JAX FFI proposal. The exported target takes outputs first in any case.
pub const JAX_FFI_ORDERS: [&str; 2] = ["outputs-first", "inputs-first"];

/// The custom section that describes the module's targets, one JSON object per line.
pub const METADATA_SECTION: &str = "callbox.targets";

/// The alignment in bytes of the arena and of every operand and result in it.
pub const ARENA_ALIGNMENT: usize = 64;
