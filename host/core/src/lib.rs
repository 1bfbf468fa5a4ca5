//! The core of callbox: values, calls, the registry, the policy, and attributes as text.
//!
//! Every other crate of callbox builds on this one, which knows neither backends nor programs. A
//! backend implements [`call::TargetModule`], and a program calls targets through that trait.
//! Programs that embed callbox use the crate `callbox`, which exports this one's items.
//!
//! # Example
//!
//! The values that a call takes:
//!
//! ```
//! use callbox_core::call::CallSite;
//! use callbox_core::{Literal, Shape, attributes_from_mlir};
//!
//! # fn main() -> callbox_core::Result<()> {
//! let x = Literal::array(&[2, 3], &[1.0_f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
//! assert_eq!(x.shape(), &"f32[2,3]".parse::<Shape>()?);
//!
//! let mut site = CallSite::new("scale", vec![x.shape().clone()], x.shape().clone());
//! site.attributes = attributes_from_mlir("{factor = 2.0 : f32}")?;
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! None.
//!
//! # Where to go next
//!
//! - [`values`]: shapes, literals, attributes and statuses.
//! - [`call`]: call sites, options, and the traits that connect a backend to programs.
//! - [`Registry`]: targets by name and platform.
//! - [`policy`]: the limits and grants of guests.
//! - [`text`]: XLA's notation for values.
//! - [`traced`]: calls that `callbox.jax` traced into programs.

#![warn(missing_debug_implementations)]

pub mod call;
#[doc(hidden)]
pub mod float_mode;
pub mod graph_launch;
#[doc(hidden)]
pub mod json;
#[doc(hidden)]
pub mod locks;
pub mod policy;
mod registry;
#[doc(hidden)]
pub mod regular_file;
pub mod text;
pub mod traced;
pub mod untrusted_text;
pub mod values;

pub use call::{CallOptions, CallSite, CancelToken, Deadline, Platform, StaticInfo, UserData};
pub use registry::{RegisteredTarget, Registry};
pub use text::{attributes_from_mlir, attributes_to_mlir};
pub use values::*;
