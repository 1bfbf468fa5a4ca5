//! The driver's error codes, as statuses.

use std::fmt;

use callbox_core::values::{Blame, Status, StatusCode};

/// A driver call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriverFailure {
    /// The call's name, such as `cuLaunchKernel`.
    pub(crate) call: &'static str,
    /// Its CUresult.
    pub(crate) code: u32,
}

/// Names of the more likely codes: CUDA driver API, "Data types used by CUDA driver".
const NAMES: [(u32, &str); 38] = [
    (1, "CUDA_ERROR_INVALID_VALUE"),
    (2, "CUDA_ERROR_OUT_OF_MEMORY"),
    (3, "CUDA_ERROR_NOT_INITIALIZED"),
    (4, "CUDA_ERROR_DEINITIALIZED"),
    (34, "CUDA_ERROR_STUB_LIBRARY"),
    (46, "CUDA_ERROR_DEVICE_UNAVAILABLE"),
    (100, "CUDA_ERROR_NO_DEVICE"),
    (101, "CUDA_ERROR_INVALID_DEVICE"),
    (200, "CUDA_ERROR_INVALID_IMAGE"),
    (201, "CUDA_ERROR_INVALID_CONTEXT"),
    (209, "CUDA_ERROR_NO_BINARY_FOR_GPU"),
    (214, "CUDA_ERROR_ECC_UNCORRECTABLE"),
    (218, "CUDA_ERROR_INVALID_PTX"),
    (220, "CUDA_ERROR_NVLINK_UNCORRECTABLE"),
    (222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"),
    (400, "CUDA_ERROR_INVALID_HANDLE"),
    (500, "CUDA_ERROR_NOT_FOUND"),
    (600, "CUDA_ERROR_NOT_READY"),
    (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
    (701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"),
    (702, "CUDA_ERROR_LAUNCH_TIMEOUT"),
    (709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"),
    (710, "CUDA_ERROR_ASSERT"),
    (714, "CUDA_ERROR_HARDWARE_STACK_ERROR"),
    (715, "CUDA_ERROR_ILLEGAL_INSTRUCTION"),
    (716, "CUDA_ERROR_MISALIGNED_ADDRESS"),
    (717, "CUDA_ERROR_INVALID_ADDRESS_SPACE"),
    (718, "CUDA_ERROR_INVALID_PC"),
    (719, "CUDA_ERROR_LAUNCH_FAILED"),
    (801, "CUDA_ERROR_NOT_SUPPORTED"),
    (803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"),
    (900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
    (901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"),
    (904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"),
    (905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"),
    (906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"),
    (910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE"),
    (999, "CUDA_ERROR_UNKNOWN"),
];

impl DriverFailure {
    /// Whether the context is lost: every later call in it fails in the same way.
    pub(crate) const fn is_sticky(self) -> bool {
        matches!(
            self.code,
            46 | 214 | 220 | 700 | 702 | 709 | 710 | 714..=719 | 999
        )
    }

    /// Whether the driver does not take the code of a module.
    pub(crate) const fn is_refused_image(self) -> bool {
        matches!(self.code, 200 | 209 | 218 | 222)
    }

    /// The failure as a status. `doing` names what callbox was doing.
    pub(crate) fn status(self, doing: &str) -> Status {
        let (code, blame) = match self.code {
            1 | 101 | 201 | 400 => (StatusCode::InvalidArgument, Blame::Caller),
            2 | 701 => (StatusCode::ResourceExhausted, Blame::Caller),
            3 | 4 | 34 | 46 | 100 | 709 | 803 => (StatusCode::Unavailable, Blame::Host),
            200 | 209 | 218 | 222 => (StatusCode::InvalidArgument, Blame::Guest),
            500 => (StatusCode::NotFound, Blame::Guest),
            801 => (StatusCode::Unimplemented, Blame::Host),
            900..=907 | 910 => (StatusCode::FailedPrecondition, Blame::Guest),
            // Faults of a kernel.
            700 | 702 | 710 | 714..=719 => (StatusCode::Internal, Blame::Guest),
            _ => (StatusCode::Internal, Blame::Host),
        };
        Status::new(code, blame, format!("{doing}: {self}"))
    }
}

impl fmt::Display for DriverFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = NAMES.iter().find(|(code, _)| *code == self.code);
        match known {
            Some((code, name)) => write!(f, "{} failed with {name} ({code})", self.call),
            None => write!(f, "{} failed with error {}", self.call, self.code),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_names_and_statuses() {
        let failure = DriverFailure {
            call: "cuLaunchKernel",
            code: 700,
        };
        assert!(failure.is_sticky());
        let status = failure.status("launching \"f\"");
        assert_eq!(status.code(), StatusCode::Internal);
        assert_eq!(
            status.message(),
            "launching \"f\": cuLaunchKernel failed with CUDA_ERROR_ILLEGAL_ADDRESS (700)"
        );
        let unknown = DriverFailure {
            call: "cuInit",
            code: 12345,
        };
        assert!(!unknown.is_sticky());
        assert_eq!(unknown.to_string(), "cuInit failed with error 12345");
    }

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        assert!(NAMES.is_sorted());
    }
}
