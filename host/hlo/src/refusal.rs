//! Macros for refusing a program: INVALID_ARGUMENT with a formatted message of bounded length.

/// The [`Status`](callbox_core::Status) INVALID_ARGUMENT with this message.
macro_rules! invalid {
    ($($message:tt)+) => {
        ::callbox_core::values::Status::invalid_argument(
            ::callbox_core::text::bounded_message(format_args!($($message)+)),
        )
    };
}

/// Returns INVALID_ARGUMENT with this message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(invalid!($($message)+));
        }
    };
}
