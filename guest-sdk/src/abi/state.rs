//! The state that a stage leaves for later stages.

use alloc::boxed::Box;
use core::any::{Any, type_name};
use core::fmt;

/// The value that a stage returned, with the name of its type for messages.
pub struct State {
    value: Box<dyn Any>,
    type_name: &'static str,
}

impl State {
    /// Wraps a value of any type.
    pub fn new<T: 'static>(value: T) -> Self {
        Self {
            value: Box::new(value),
            type_name: type_name::<T>(),
        }
    }

    /// Returns the value if it is of this type.
    pub(crate) fn get<T: 'static>(&self) -> Option<&T> {
        self.value.downcast_ref()
    }

    /// Returns the name of the value's type.
    pub(crate) const fn type_name(&self) -> &'static str {
        self.type_name
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("State").field(&self.type_name).finish()
    }
}
