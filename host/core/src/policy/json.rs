//! Policies as JSON.

use super::Policy;
use crate::json::Object;
use crate::untrusted_text::clean_line;
use crate::values::{Result, Status};

/// The longest message about a policy, in bytes.
const MAX_MESSAGE: usize = 4096;

impl Policy {
    /// Reads a policy.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, with the position, for malformed JSON, an unknown field, or a value that
    /// does not fit its field.
    pub fn from_json(text: &[u8]) -> Result<Self> {
        let read = serde_json::from_slice::<Object<Self>>(text);
        read.map(|policy| policy.0).map_err(|error| {
            let status = Status::invalid_argument(format!("expected a policy: {error}"));
            // The error quotes keys, which may be of any length.
            clean_line(status, MAX_MESSAGE)
        })
    }

    /// The policy as JSON, with all fields.
    ///
    /// # Errors
    /// INVALID_ARGUMENT if a directory's path is not UTF-8.
    pub fn to_json(&self) -> Result<String> {
        serde_json::to_string_pretty(self)
            .map_err(|error| Status::invalid_argument(format!("expected paths of UTF-8: {error}")))
    }
}

/// An optional duration, as milliseconds or `null`.
pub(super) mod milliseconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::policy) fn serialize<S: Serializer>(
        time: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let milliseconds = time.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        milliseconds.serialize(serializer)
    }

    pub(in crate::policy) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let milliseconds = Option::<u64>::deserialize(deserializer)?;
        Ok(milliseconds.map(Duration::from_millis))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::time::Duration;

    use crate::policy::{
        Access, CompileIn, Gpu, Isolation, Limits, LogLevel, Policy, Randomness, Traps,
    };

    #[test]
    fn what_is_left_out_has_its_default() {
        assert_eq!(Policy::from_json(b"{}").unwrap(), Policy::default());
        let policy = Policy::from_json(
            br#"{
                "limits": {"deadline_ms": null, "compile_time_ms": 1500, "functions": 7},
                "isolation": "fresh", "traps": "explicit", "compile": "this_process", "deterministic": true,
                "grants": {"log": "warn"},
                "targets": {"f": {
                    "directories": [{"path": "/a", "name": "/b"}, {"path": "c", "name": "d", "access": "read_write"}],
                    "clock": true, "randomness": {"seed": 3}
                }, "g": {"randomness": "system"}},
                "gpu": {"fenced": false, "deadline_ms": null, "grid_blocks": 9},
                "shadow": {"share": 0.25, "atol": 1e-3}
            }"#,
        )
        .unwrap();
        let limits = Limits {
            deadline: None,
            compile_time: Some(Duration::from_millis(1500)),
            functions: 7,
            ..Limits::default()
        };
        assert_eq!(policy.limits, limits);
        assert_eq!(
            (policy.isolation, policy.traps, policy.compile),
            (Isolation::Fresh, Traps::Explicit, CompileIn::ThisProcess)
        );
        assert_eq!(policy.grants.log, Some(LogLevel::Warn));
        let f = &policy.targets["f"];
        let access: Vec<_> = f.directories.iter().map(|d| d.access).collect();
        assert_eq!(access, [Access::Read, Access::ReadWrite]);
        assert_eq!(f.randomness, Some(Randomness::Seed(3)));
        assert_eq!(policy.targets["g"].randomness, Some(Randomness::System));
        let gpu = Gpu {
            fenced: false,
            deadline: None,
            grid_blocks: 9,
            ..Gpu::default()
        };
        assert_eq!(policy.gpu, gpu);
        let shadow = policy.shadow.unwrap();
        assert_eq!((shadow.share(), shadow.fails()), (0.25, false));
        assert_eq!(shadow.tolerance(), Some((0.0, 1e-3)));
        let exact = Policy::from_json(br#"{"shadow": {"share": 1, "fails": true}}"#).unwrap();
        let exact = exact.shadow.unwrap();
        assert_eq!((exact.fails(), exact.tolerance()), (true, None));
        let none = Policy::from_json(br#"{"shadow": null}"#).unwrap();
        assert_eq!(none, Policy::default());
        assert!(!none.to_json().unwrap().contains("shadow"));
        assert_eq!(
            Policy::from_json(policy.to_json().unwrap().as_bytes()).unwrap(),
            policy
        );
    }

    #[test]
    fn what_is_not_known_is_named() {
        for (text, named) in [
            ("", "EOF"),
            ("[{}]", "expected an object"),
            (r#"{"limits": [1, 2]}"#, "expected an object"),
            (r#"{"grants": []}"#, "expected an object"),
            (r#"{"gpu": [true]}"#, "expected an object"),
            (r#"{"shadow": [0.5]}"#, "expected an object"),
            (r#"{"shadow": {}}"#, "`share`"),
            (r#"{"shadow": {"share": 1.5}}"#, "`share` from 0 to 1"),
            (r#"{"shadow": {"share": 1, "rtol": -1}}"#, "`rtol`"),
            (r#"{"shadow": {"share": 1, "fail": true}}"#, "`fail`"),
            (
                r#"{"shadow": {"share": 1, "share": 0}}"#,
                "duplicate field `share`",
            ),
            (r#"{"targets": [["f", {}]]}"#, "expected an object"),
            (r#"{"targets": {"f": []}}"#, "expected an object"),
            (
                r#"{"targets": {"f": {"directories": [["/a", "/b"]]}}}"#,
                "expected an object",
            ),
            (
                r#"{"targets": {"f": {"clock": true}, "g": {}, "f": {}}}"#,
                "`f` occurs twice",
            ),
            (
                r#"{"limits": {"functions": 1, "functions": 2}}"#,
                "duplicate field `functions`",
            ),
            (r#"{"limit": {}}"#, "`limit`"),
            (r#"{"limits": {"memory": 1}}"#, "`memory`"),
            (r#"{"limits": {"memory_bytes": -1}}"#, "-1"),
            (r#"{"limits": {"deadline_ms": 1.5}}"#, "1.5"),
            (r#"{"traps": "signal"}"#, "`signal`"),
            (r#"{"gpu": {"grid": 1}}"#, "`grid`"),
            (r#"{"compile": "thread"}"#, "`thread`"),
            (r#"{"grants": {"log": "all"}}"#, "`all`"),
            (r#"{"targets": {"f": {"network": true}}}"#, "`network`"),
            (
                r#"{"targets": {"f": {"directories": [{"path": "/"}]}}}"#,
                "`name`",
            ),
            (
                r#"{"targets": {"f": {"randomness": "seed"}}}"#,
                "newtype variant",
            ),
            (r#"{"targets": {"f": {"randomness": "dice"}}}"#, "`dice`"),
        ] {
            let message = Policy::from_json(text.as_bytes()).unwrap_err();
            assert!(message.message().contains(named), "{text}: {message}");
        }
    }

    #[test]
    fn a_digest_that_differs_is_refused() {
        let policy = Policy::from_json(br#"{"targets": {"f": {"sha256": "AB"}}}"#).unwrap();
        assert!(policy.grants_for("f", "ab").is_ok());
        assert!(policy.grants_for("g", "cd").is_ok());
        let status = policy.grants_for("f", "cd").unwrap_err();
        assert_eq!(status.code().name(), "PERMISSION_DENIED");
    }
}
