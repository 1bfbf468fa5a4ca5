//! callbox

pub mod call;
pub mod frame;
pub mod program;
mod registry;
pub mod values;
pub mod wasm;

pub use call::{CallOptions, CallSite, CancelToken, Deadline, Platform};
pub use registry::{RegisteredTarget, Registry};
pub use values::*;
