//! Write callbox targets in Rust: XLA-style custom calls that run sandboxed as WebAssembly.
//!
//! A *target* is a function that a program's custom call names. This one adds an attribute `n` to an array:
//!
//! ```
//! use callbox_guest::{Failure, Operand, ResultBuffer, target};
//!
//! /// Adds the attribute `n`, which must not be negative, to every element of `x`.
//! #[target(pure)]
//! fn add_n(x: &Operand<f32>, y: &mut ResultBuffer<f32>, #[attr] n: f32) -> Result<(), Failure> {
//!     if n < 0.0 {
//!         return Err(Failure::invalid_argument("Info must be >= 0").recoverable());
//!     }
//!     y.expect_dimensions(x.dimensions())?;
//!     for (y, x) in y.iter_mut().zip(x.iter()) {
//!         *y = x + n;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! It lives in a crate that becomes a WebAssembly module:
//!
//! ```toml
//! [lib]
//! crate-type = ["cdylib"]
//!
//! [dependencies]
//! callbox-guest = "0.1"
//!
//! [profile.release]
//! lto = true
//! ```
//!
//! `cargo build --release --target wasm32-unknown-unknown` makes it, with `RUSTFLAGS=-Ctarget-feature=+simd128` if its loops are
//! worth vector instructions. The module exports `add_n`, and says in a custom section what `add_n` takes and gives.
//!
//! # What a target takes
//!
//! A parameter's type, or the marker before it, says what it stands for. Operands, results and attributes may come in any
//! order; operands are numbered among themselves, and so are results.
//!
//! | parameter | stands for |
//! | --- | --- |
//! | `x: &Operand<f32>` | the next operand: F32, any rank |
//! | `x: &Operand<f32, 2>` | the next operand: F32, rank 2 |
//! | `#[dimensions(.., n)] x: &Operand<f32>` | the next operand, and what its dimensions are: see [`macro@target`] |
//! | `x: &AnyOperand` | the next operand: any element type and rank |
//! | `x: Option<&Operand<f32>>` | the next operand, if the call has one more: behind those that every call has |
//! | `rest: RemainingOperands` | all operands that are left: behind all others |
//! | `y: &mut ResultBuffer<f32>` | the next result; rank as for an operand |
//! | `y: &mut AnyResult` | the next result: any element type and rank |
//! | `y: Option<&mut ResultBuffer<f32>>` | the next result, if the call has one more |
//! | `rest: RemainingResults` | all results that are left |
//! | `x: &mut InPlace<f32>` | the next operand and the next result, in one slice |
//! | `#[attr] n: f32` | the attribute `n`: see [`AttributeValue`] for the types |
//! | `#[attr(name = "type")] kind: &str` | the attribute `type` |
//! | `#[attr] func: FunctionRef` | the function of the program that the attribute `func` names, which the target may call |
//! | `context: &Context` | the call: its log, its opaque bytes, all its attributes, its literal, its called computations, user data, scratch memory |
//! | `#[state] state: &S` | what the target's stage `instantiate` returned; `#[state(prepare)]` and `#[state(initialize)]` likewise |
//!
//! The types of elements are [`f32`], [`f64`], [`F16`], [`Bf16`], [`C64`], [`C128`], the integers and [`Pred`]; an array of
//! any other comes as bytes, in [`AnyOperand`] and [`AnyResult`].
//!
//! Before the function runs, the call is checked against its parameters: how many operands, results and attributes
//! there are, and each one's type. What does not fit fails with INVALID_ARGUMENT and XLA's words, such as `Wrong buffer
//! dtype: expected F32 but got S32`. A target that binds an attribute gets exactly those that it binds, as in XLA; one that
//! binds none ignores all, or reads those that it wants from its [`Context`]. The module's metadata says the difference: of a
//! target with a context that binds none it says nothing of attributes, which means any, and of other targets that bind none
//! that there are none.
//!
//! # How a target fails
//!
//! It returns a [`Failure`]: a status code, a message, and whether a later call may succeed. That of a function that it called
//! ([`FunctionRef::call`]) is handed on as it is if it is returned, so that `?` will do. A panic fails the call too,
//! with code ABORTED and the panic's text and place; its instance then serves no other call.
//!
//! # Tests
//!
//! The function stays an ordinary function. Natively, a test calls it with views made by [`Operand::new`] and
//! [`ResultBuffer::new`], or makes the whole call, checks included, with [`native::Call`]:
//!
//! ```
//! # use callbox_guest::{Failure, Operand, ResultBuffer, target};
//! # #[target(pure)]
//! # fn add_n(x: &Operand<f32>, y: &mut ResultBuffer<f32>, #[attr] n: f32) -> Result<(), Failure> {
//! #     if n < 0.0 {
//! #         return Err(Failure::invalid_argument("Info must be >= 0").recoverable());
//! #     }
//! #     y.iter_mut().zip(x.iter()).for_each(|(y, x)| *y = x + n);
//! #     Ok(())
//! # }
//! use callbox_guest::native::Call;
//!
//! let mut call = Call::new();
//! call.operand(&[4.0_f32], &[1]).result::<f32>(&[1]).attribute("n", 4.0_f32);
//! assert_eq!(call.run::<add_n>(), Ok(()));
//! assert_eq!(call.result_elements::<f32>(0), [8.0]);
//! ```
//!
//! # Versions
//!
//! A module runs on every host whose version of the FFI has what the module uses. Function references, optional and remaining
//! buffers, and user data need version 1.1; a target that needs it says so in the module's metadata, and an older host refuses the
//! module by name. On an older host a call has neither literal nor called computations. [`Context::ffi_version`] is the host's version.
//!
//! # Without the standard library
//!
//! The default feature `std` may be turned off. A guest that is `#![no_std]` then turns on the feature `runtime` and writes
//! `callbox_guest::runtime!()` once, which gives it an allocator and a panic handler.
#![no_std]
#![warn(missing_debug_implementations)]

extern crate alloc;
// Tests, and the stand-in for the host outside WebAssembly, use the standard library whether or not the guest does.
#[cfg(any(feature = "std", not(target_arch = "wasm32")))]
extern crate std;
// The attribute macro names this crate from outside, also in this crate's own examples and tests.
extern crate self as callbox_guest;

mod abi;
mod attribute;
mod context;
mod decode;
mod description;
mod element;
mod function;
mod metadata;
#[cfg(not(target_arch = "wasm32"))]
pub mod native;
mod number;
mod operand;
mod optional;
mod panics;
mod result;
mod shape;
mod status;

pub use attribute::{AnyAttribute, ArrayAttribute, AttributeValue, Dictionary};
pub use context::{Context, LogLevel};
pub use decode::{Target, TargetParameter};
pub use description::{AttributeKind, Stage};
pub use element::{Element, ElementType, Pred};
pub use function::FunctionRef;
pub use number::{Bf16, C64, C128, F16};
pub use operand::{ANY_RANK, AnyOperand, Operand};
pub use optional::{RemainingOperands, RemainingResults};
pub use result::{AnyResult, InPlace, ResultBuffer};
pub use shape::Shape;
pub use status::{Failure, Outcome, StatusCode};

#[doc = include_str!("attribute_enum.md")]
pub use callbox_guest_macros::AttributeEnum;
#[doc = include_str!("attribute_struct.md")]
pub use callbox_guest_macros::AttributeStruct;
#[doc = include_str!("target.md")]
pub use callbox_guest_macros::target;

/// Gives a `no_std` guest its allocator and its panic handler. A guest writes it once, outside of any function.
///
/// Where there is the standard library, because another crate of the same build uses it or because the build is native,
/// it does nothing.
#[cfg(all(feature = "runtime", any(feature = "std", not(target_arch = "wasm32"))))]
#[macro_export]
macro_rules! runtime {
    () => {};
}

/// Gives a `no_std` guest its allocator and its panic handler. A guest writes it once, outside of any function.
///
/// Where there is the standard library, because another crate of the same build uses it or because the build is native,
/// it does nothing.
#[cfg(all(feature = "runtime", not(feature = "std"), target_arch = "wasm32"))]
#[macro_export]
macro_rules! runtime {
    () => {
        #[global_allocator]
        static ALLOCATOR: $crate::__private::Allocator = $crate::__private::Allocator;

        #[panic_handler]
        fn panic(info: &::core::panic::PanicInfo<'_>) -> ! {
            $crate::__private::handle_panic(info)
        }
    };
}

/// What the attribute macro's code names, and what tests of the layout read. No part of the crate's interface.
#[doc(hidden)]
pub mod __private {
    pub use alloc::string::String;

    pub use crate::abi::{FramePointer, LAYOUT, OPTION_PAYLOAD, RECORDS, State};
    #[cfg(target_arch = "wasm32")]
    pub use crate::abi::{StateWord, take_back_state};
    pub use crate::attribute::{Fields, unknown_variant};
    pub use crate::decode::{Decoder, Target, TargetParameter, finish, keep, run};
    pub use crate::description::{
        AttributeDescription, Description, Dimension, ParameterDescription, Role,
    };
    pub use crate::metadata::{json, json_len};
    #[cfg(all(feature = "runtime", not(feature = "std"), target_arch = "wasm32"))]
    pub use crate::panics::handle as handle_panic;
    pub use crate::{
        AnyAttribute, AttributeKind, AttributeValue, Element, ElementType, Failure, Stage,
    };
    #[cfg(all(feature = "runtime", not(feature = "std"), target_arch = "wasm32"))]
    pub use dlmalloc::GlobalDlmalloc as Allocator;
}
