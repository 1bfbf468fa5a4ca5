//! Enumerations with the numbers and names that XLA gives them.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

/// Declares an enumeration from one table of numbers and names.
///
/// `from_number` takes the type before the table, and the method that returns the name is called as
/// the table says.
macro_rules! numbered {
    (
        $(#[$outer:meta])*
        pub enum $enum:ident from $number_type:ty, named by $name:ident {
            $($(#[$inner:meta])* $variant:ident = $number:literal, $text:literal;)*
        }
    ) => {
        $(#[$outer])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[cfg_attr(
            feature = "serde",
            derive(serde::Serialize, serde::Deserialize),
            serde(rename_all = "snake_case")
        )]
        #[repr(u8)]
        pub enum $enum { $($(#[$inner])* $variant = $number,)* }

        impl $enum {
            /// All values, in ascending order of their numbers.
            pub const ALL: [Self; [$($number),*].len()] = [$(Self::$variant),*];

            /// The number in XLA and in the contract.
            #[must_use]
            pub const fn number(self) -> u8 {
                self as u8
            }

            /// The value with this number, or `None` if no value has it.
            #[must_use]
            pub const fn from_number(number: $number_type) -> Option<Self> {
                match number { $($number => Some(Self::$variant),)* _ => None }
            }

            #[doc = concat!("The name, such as `", $crate::numbers::first!($($text)*), "`.")]
            #[must_use]
            pub const fn $name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        impl fmt::Display for $enum {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.$name())
            }
        }
    };
}

/// The first of some literals.
macro_rules! first {
    ($first:literal $($rest:literal)*) => {
        $first
    };
}

/// Adds `from_name` to enumerations whose names are case-sensitive.
macro_rules! from_name {
    ($($enum:ident),*) => {$(
        impl $enum {
            /// The value with this name, or `None` if no value has it.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.name() == name)
            }
        }
    )*};
}

pub(crate) use {first, numbered};

numbered! {
    /// The outcome of a call: `absl::StatusCode`.
    pub enum StatusCode from u32, named by name {
        /// The call succeeded.
        Ok = 0, "OK";
        /// The caller cancelled the call.
        Cancelled = 1, "CANCELLED";
        /// The failure has no better code.
        Unknown = 2, "UNKNOWN";
        /// The request is wrong, whatever the state of the system.
        InvalidArgument = 3, "INVALID_ARGUMENT";
        /// The call ran past its deadline.
        DeadlineExceeded = 4, "DEADLINE_EXCEEDED";
        /// The request names something that does not exist.
        NotFound = 5, "NOT_FOUND";
        /// The request creates something that exists already.
        AlreadyExists = 6, "ALREADY_EXISTS";
        /// The policy does not grant the request.
        PermissionDenied = 7, "PERMISSION_DENIED";
        /// A limit was reached: memory, stack, instances, sizes.
        ResourceExhausted = 8, "RESOURCE_EXHAUSTED";
        /// The system is not in the state that the request needs.
        FailedPrecondition = 9, "FAILED_PRECONDITION";
        /// The call was aborted: the guest trapped or panicked.
        Aborted = 10, "ABORTED";
        /// An access or an index is out of bounds.
        OutOfRange = 11, "OUT_OF_RANGE";
        /// The request is not supported.
        Unimplemented = 12, "UNIMPLEMENTED";
        /// An invariant does not hold.
        Internal = 13, "INTERNAL";
        /// A resource is temporarily unavailable.
        Unavailable = 14, "UNAVAILABLE";
        /// Data is lost or corrupt.
        DataLoss = 15, "DATA_LOSS";
        /// The caller is not authenticated.
        Unauthenticated = 16, "UNAUTHENTICATED";
    }
}

numbered! {
    /// The stage of a call, with the numbers of `XLA_FFI_ExecutionStage` (xla/ffi/api/c_api.h).
    ///
    /// Every target has `execute`; the other stages are optional.
    pub enum Stage from u8, named by name {
        /// Runs once per call site, when an instance first serves it. The frame has attributes, but
        /// neither operands nor results.
        Instantiate = 0, "instantiate";
        /// Runs once per execution of a program. Buffers have shapes; their contents are undefined.
        Prepare = 1, "prepare";
        /// Runs once per execution of a program, after every target's `prepare`.
        Initialize = 2, "initialize";
        /// Runs on each call.
        Execute = 3, "execute";
    }
}

numbered! {
    /// The kind of an attribute's value, with the numbers of `XLA_FFI_AttrType`
    /// (xla/ffi/api/c_api.h).
    pub enum AttributeKind from u8, named by name {
        /// An array of elements.
        Array = 1, "array";
        /// A dictionary of attributes.
        Dictionary = 2, "dictionary";
        /// One element.
        Scalar = 3, "scalar";
        /// A string of bytes, UTF-8 by convention.
        String = 4, "string";
        /// A reference to a function of the program. XLA's runtime had these; XLA FFI does not.
        Function = 5, "function";
    }
}

numbered! {
    /// The severity of a log message.
    pub enum LogLevel from u32, named by name {
        /// Something failed.
        Error = 0, "error";
        /// Something may be wrong.
        Warn = 1, "warn";
        /// Progress that users of a kernel want to see.
        Info = 2, "info";
        /// Details that the kernel's author wants to see.
        Debug = 3, "debug";
        /// Every step.
        Trace = 4, "trace";
    }
}

numbered! {
    /// The calling convention of a target: XLA's `CustomCallApiVersion`, and the convention of the
    /// JAX FFI proposal.
    pub enum ApiVersion from u8, named by name {
        /// The function takes `(out, ins)`.
        Original = 1, "API_VERSION_ORIGINAL";
        /// The function takes `(out, ins, status)`.
        StatusReturning = 2, "API_VERSION_STATUS_RETURNING";
        /// The function takes `(out, ins, opaque, opaque_len, status)`.
        StatusReturningUnified = 3, "API_VERSION_STATUS_RETURNING_UNIFIED";
        /// The function takes `(call_frame)` and returns a status.
        TypedFfi = 4, "API_VERSION_TYPED_FFI";
        /// The function takes `(api, status, static_info, outputs, inputs)`. XLA has no number for
        /// this convention.
        JaxFfi = 255, "API_VERSION_JAX_FFI";
    }
}

from_name!(StatusCode, LogLevel, ApiVersion);

impl FromStr for ApiVersion {
    type Err = UnknownName;

    fn from_str(name: &str) -> Result<Self, UnknownName> {
        Self::from_name(name)
            .ok_or_else(|| UnknownName::new("an api_version such as API_VERSION_TYPED_FFI", name))
    }
}

/// The error of parsing a name that no value has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownName(String);

impl UnknownName {
    /// No name has more bytes. The rest of a stranger's is not quoted.
    const MAX_SHOWN: usize = 64;

    pub(crate) fn new(expected: &str, found: &str) -> Self {
        let shown = &found[..found.floor_char_boundary(Self::MAX_SHOWN)];
        let rest = if shown.len() < found.len() { "..." } else { "" };
        Self(format!("expected {expected}, found {shown:?}{rest}"))
    }
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for UnknownName {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_strangers_are_cut() {
        let long = "é".repeat(1000);
        let shown = "é".repeat(32);
        let message =
            format!("expected an api_version such as API_VERSION_TYPED_FFI, found {shown:?}...");
        assert_eq!(long.parse::<ApiVersion>(), Err(UnknownName(message)));
    }

    #[test]
    fn numbers_and_names_read_back() {
        for code in StatusCode::ALL {
            assert_eq!(StatusCode::from_number(code.number().into()), Some(code));
            assert_eq!(StatusCode::from_name(code.name()), Some(code));
        }
        for version in ApiVersion::ALL {
            assert_eq!(ApiVersion::from_number(version.number()), Some(version));
            assert_eq!(ApiVersion::from_name(version.name()), Some(version));
        }
        assert_eq!(StatusCode::from_number(17), None);
        assert_eq!(StatusCode::from_number(u32::MAX), None);
        assert_eq!(StatusCode::from_name("invalid_argument"), None);
        assert_eq!(AttributeKind::from_number(0), None);
    }
}
