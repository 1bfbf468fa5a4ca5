//! callbox

pub mod values;

pub use values::*;
