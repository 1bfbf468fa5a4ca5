//! Write callbox kernels in Rust: XLA-style custom calls that run sandboxed as WebAssembly.
//!
//! A *target* is the function that a program's custom call names. This one adds an attribute `n` to
//! an array:
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
//! # Build a kernel
//!
//! A kernel is a library crate that compiles to a WebAssembly module. `callbox new NAME --lang
//! rust` makes one, with a test and a copy of this crate in `callbox-sdk`, and `callbox build`
//! builds it.
//!
//! By hand: this crate is not on crates.io, so that a kernel depends on a checkout of the callbox
//! repository, or on such a copy. `Cargo.toml` of a crate beside the checkout:
//!
//! ```toml
//! [package]
//! name = "add_n"
//! version = "0.1.0"
//! edition = "2024"
//!
//! [lib]
//! crate-type = ["cdylib"]
//!
//! [dependencies]
//! callbox-guest = { path = "../callbox/guest-sdk" }
//!
//! [profile.release]
//! lto = true
//! ```
//!
//! `.cargo/config.toml`, which turns on vector instructions, and takes four vectors in each
//! iteration of a loop:
//!
//! ```toml
//! [target.wasm32-unknown-unknown]
//! rustflags = ["-Ctarget-feature=+simd128", "-Cllvm-args=-force-vector-interleave=4"]
//! ```
//!
//! Then build, and call the kernel with the command line:
//!
//! ```text
//! rustup target add wasm32-unknown-unknown
//! cargo build --release --target wasm32-unknown-unknown
//! callbox call target/wasm32-unknown-unknown/release/add_n.wasm add_n \
//!     --operand x.npy --result 'f32[128]' --attr n=4.0:f32
//! ```
//!
//! The module exports `add_n`, and a custom section has its signature. A kernel inside the checkout
//! needs an empty table `[workspace]` in its `Cargo.toml`, or a place in `guests/Cargo.toml`. From
//! a repository that is served by git, the dependency is `callbox-guest = { git = "URL" }`.
//!
//! # Parameters of a target
//!
//! The type of a parameter, or the marker before it, determines its value. Operands, results and
//! attributes may come in any order. Operands are numbered among themselves, and so are results.
//!
//! | parameter | receives |
//! | --- | --- |
//! | `x: &Operand<f32>` | the next operand: F32, any rank |
//! | `x: &Operand<f32, 2>` | the next operand: F32, rank 2 |
//! | `#[dimensions(.., n)] x: &Operand<f32>` | the next operand; its dimensions: [`macro@target`] |
//! | `x: &AnyOperand` | the next operand: any element type and rank |
//! | `x: Option<&Operand<f32>>` | the next operand, if there is one; after the others |
//! | `rest: RemainingOperands` | all further operands; after all others |
//! | `y: &mut ResultBuffer<f32>` | the next result; rank as for an operand |
//! | `y: &mut AnyResult` | the next result: any element type and rank |
//! | `y: Option<&mut ResultBuffer<f32>>` | the next result, if there is one; after the others |
//! | `rest: RemainingResults` | all further results |
//! | `x: &mut InPlace<f32>` | the next operand and the next result, in one slice |
//! | `#[attr] n: f32` | the attribute `n`: [`AttributeValue`] lists the types |
//! | `#[attr(name = "type")] kind: &str` | the attribute `type` |
//! | `#[attr] func: FunctionRef` | a function of the program, which the target may call |
//! | `context: &Context` | the rest of the call: [`Context`] lists it |
//! | `#[state] state: &S` | the state that the stage `instantiate` returned |
//! | `#[state(prepare)] state: &S` | the state of another stage |
//!
//! Element types are [`f32`], [`f64`], [`F16`], [`Bf16`], [`C64`], [`C128`], the integers and
//! [`Pred`]. Arrays of other types are passed as bytes, in [`AnyOperand`] and [`AnyResult`].
//!
//! Each call is checked against the parameters before the function runs: the numbers of operands,
//! results and attributes, and the type of each. A mismatch fails the call with INVALID_ARGUMENT
//! and XLA's message, such as `Wrong buffer dtype: expected F32 but got S32`.
//!
//! A function that binds attributes to parameters takes exactly those, as in XLA; a function that
//! binds none accepts any, and can read them through its [`Context`]. Each stage of a target is
//! checked by itself: where `instantiate` binds the attributes and keeps what it needs of them as
//! state, `execute` binds none. The metadata declares the attributes of all stages together. It
//! leaves them open if a function binds none but has a context.
//!
//! # Elements
//!
//! Operands and results are slices of their elements, with dimensions: `x.iter()`, `x[3]`,
//! `x.chunks_exact(columns)`; `let [rows, columns] = x.dims();` and `x[[i, j]]` ([`Position`]).
//!
//! # Failures
//!
//! A target returns a [`Failure`]: a status code, a message, and whether a later call may succeed.
//! `?` passes on the failure of a function that the target called ([`FunctionRef::call`]). A panic
//! fails the call with ABORTED and the panic's message and location. Its instance then serves no
//! other call.
//!
//! # Tests
//!
//! The function stays an ordinary function. Native tests call it with views from [`Operand::new`]
//! and [`ResultBuffer::new`], or make a whole call, checks included, with [`native::Call`]:
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
//! # Mathematics
//!
//! [`maths`] has exponentials, row-wise softmax, products of matrices and the like, computed by the
//! host at the speed of native code.
//!
//! # Versions
//!
//! A module runs on every host whose version of the FFI has what the module uses. Function
//! references, optional and remaining buffers, and user data need version 1.1. The metadata of a
//! target that uses them says so, and an older host refuses the module with that reason. On an
//! older host, a call has neither a literal nor called computations. [`Context::ffi_version`]
//! returns the host's version.
//!
//! # Features
//!
//! - `std` (default): the kernel uses the standard library.
//! - `runtime`: `callbox_guest::runtime!()` gives a `#![no_std]` kernel an allocator and a panic
//!   handler. Such a kernel turns `std` off, and its module is about half as large. Its allocator
//!   does not join freed blocks: one of another size takes new memory. A panic reports its
//!   location, and its message unless that contains values, as in `panic!("expected {n}")`.
//!
//! - `getrandom`: the module `random` serves crates that ask `getrandom` for random bytes, such as
//!   `rand`, from a seed; with `granted-randomness`, from the policy's grant.
//! - `num-complex`: [`C64`] and [`C128`] convert from and to the numbers of the crate
//!   `num-complex`.
//!
//! # Fast loops
//!
//! The function of a target is compiled apart from the code that decodes its call, unless it has an
//! `#[inline]` of its own. A loop in it then has all registers to itself. Where a function has
//! several loops, or calls between them, put each into a function with `#[inline(never)]`.
//!
//! # Where to go next
//!
//! - [`macro@target`]: stages, generic targets, declared dimensions, in-place results.
//! - [`native`]: tests and benchmarks without a host.
//! - The folder `guests` of the repository: kernels from `add_n` to `activation`, with their tests.
//! - `wit/callbox-ffi.wit`: the contract with the host.
#![no_std]
#![warn(missing_debug_implementations)]

extern crate alloc;
// Native builds have the standard library: for tests, and for the host's stand-in in `native`.
#[cfg(any(feature = "std", not(target_arch = "wasm32")))]
extern crate std;
// The macros refer to this crate by its name, and this crate's own tests use the macros.
extern crate self as callbox_guest;

mod abi;
mod attribute;
mod context;
mod decode;
mod description;
mod element;
mod function;
mod index;
pub mod maths;
mod metadata;
#[cfg(not(target_arch = "wasm32"))]
pub mod native;
mod number;
mod operand;
mod optional;
mod panics;
#[cfg(feature = "getrandom")]
pub mod random;
mod result;
mod shape;
mod status;
mod text;

#[doc(inline)]
pub use callbox_abi::{AttributeKind, ElementType, LogLevel, Stage, StatusCode};

pub use attribute::{AnyAttribute, ArrayAttribute, AttributeValue, Dictionary};
pub use context::Context;
pub use decode::{Target, TargetParameter};
pub use element::{Element, Pred};
pub use function::FunctionRef;
pub use index::Position;
pub use number::{Bf16, C64, C128, F16};
pub use operand::{ANY_RANK, AnyOperand, Operand};
pub use optional::{RemainingOperands, RemainingResults};
pub use result::{AnyResult, InPlace, ResultBuffer};
pub use shape::Shape;
pub use status::{Failure, Outcome};

#[doc = include_str!("attribute_enum.md")]
pub use callbox_guest_macros::AttributeEnum;
#[doc = include_str!("attribute_struct.md")]
pub use callbox_guest_macros::AttributeStruct;
#[doc = include_str!("target.md")]
pub use callbox_guest_macros::target;

/// Defines the allocator and the panic handler of a `no_std` guest. A guest calls the macro once,
/// at module level.
///
/// The macro expands to nothing where the standard library is present: in native builds, and where
/// another crate of the build turns on the feature `std`.
///
/// ```
/// use callbox_guest::{Operand, ResultBuffer, target};
///
/// callbox_guest::runtime!();
///
/// #[target(elementwise)]
/// fn double(x: &Operand<f32>, y: &mut ResultBuffer<f32>) {
///     y.iter_mut().zip(x.iter()).for_each(|(y, x)| *y = 2.0 * x);
/// }
/// ```
#[cfg(all(feature = "runtime", any(feature = "std", not(target_arch = "wasm32"))))]
#[macro_export]
macro_rules! runtime {
    () => {};
}

/// Defines the allocator and the panic handler of a `no_std` guest. A guest calls the macro once,
/// at module level.
///
/// The macro expands to nothing where the standard library is present: in native builds, and where
/// another crate of the build turns on the feature `std`.
///
/// ```
/// use callbox_guest::{Operand, ResultBuffer, target};
///
/// callbox_guest::runtime!();
///
/// #[target(elementwise)]
/// fn double(x: &Operand<f32>, y: &mut ResultBuffer<f32>) {
///     y.iter_mut().zip(x.iter()).for_each(|(y, x)| *y = 2.0 * x);
/// }
/// ```
#[cfg(all(feature = "runtime", not(feature = "std"), target_arch = "wasm32"))]
#[macro_export]
macro_rules! runtime {
    () => {
        #[global_allocator]
        static ALLOCATOR: $crate::__private::GuestAllocator =
            $crate::__private::GuestAllocator::new();

        #[panic_handler]
        fn panic(info: &::core::panic::PanicInfo<'_>) -> ! {
            $crate::__private::handle_panic(info)
        }
    };
}

/// Items that the macros' expansions refer to. Not part of the public interface.
#[doc(hidden)]
pub mod __private {
    pub use alloc::string::String;

    #[cfg(all(feature = "runtime", not(feature = "std"), target_arch = "wasm32"))]
    pub use crate::abi::GuestAllocator;
    pub use crate::abi::{FramePointer, State};
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
}
