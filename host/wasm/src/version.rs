//! Versions of the guest ABI.

use callbox_core::values::Status;

use crate::failure::status;
use crate::frame::abi;

/// A version of `callbox:ffi` without the patch number, which does not affect guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FfiVersion {
    major: u32,
    minor: u32,
}

impl FfiVersion {
    /// This host's version.
    pub(crate) const HOST: Self = Self {
        major: abi::MAJOR,
        minor: abi::MINOR,
    };

    /// Reads `1.1` or `1.1.0`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.');
        let mut next = || number(numbers.next()?);
        let version = Self {
            major: next()?,
            minor: next()?,
        };
        let _patch = match numbers.next() {
            Some(patch) => number(patch)?,
            None => 0,
        };
        numbers.next().is_none().then_some(version)
    }

    /// Whether a guest that needs this version runs on this host: the major version is the same,
    /// the minor not newer.
    pub(crate) fn is_supported(self) -> bool {
        self.major == Self::HOST.major && self <= Self::HOST
    }

    /// The status of a guest that needs this version, as XLA has it when a handler is registered.
    pub(crate) fn too_new(self, what: &str) -> Status {
        status!(
            Unimplemented,
            Guest,
            "{what} needs callbox:ffi {}.{}, this host has {}.{}",
            self.major,
            self.minor,
            Self::HOST.major,
            Self::HOST.minor
        )
    }
}

/// Reads a number without a sign.
fn number(text: &str) -> Option<u32> {
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::FfiVersion;

    #[test]
    fn versions_are_two_or_three_numbers() {
        let parse = |text: &str| FfiVersion::parse(text).map(|v| (v.major, v.minor));
        assert_eq!(parse("1.1"), Some((1, 1)));
        assert_eq!(parse("1.20.3"), Some((1, 20)));
        for text in [
            "", "1", "1.", "1.1.", "1.1.1.1", "1.x", "-1.0", "1.0-rc1", "+1.+1",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn older_minors_run_and_others_do_not() {
        let supported = |text: &str| FfiVersion::parse(text).map(FfiVersion::is_supported);
        assert_eq!(supported("1.0"), Some(true));
        assert_eq!(supported("1.1.7"), Some(true));
        assert_eq!(supported("1.2"), Some(false));
        assert_eq!(supported("2.0"), Some(false));
        assert_eq!(supported("0.9"), Some(false));
    }
}
