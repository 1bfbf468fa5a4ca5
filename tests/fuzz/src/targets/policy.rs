//! Policies as JSON: an accepted policy survives writing and reading again.

use callbox::StatusCode;
use callbox::policy::Policy;

use crate::Target;
use crate::outcome::Outcome;

/// The target.
pub const TARGET: Target = Target {
    name: "policy",
    run,
    max_len: 2048,
    executions: 50_000,
    words: WORDS,
};

const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"limits\"",
    "\"memory_bytes\"",
    "\"table_elements\"",
    "\"stack_bytes\"",
    "\"deadline_ms\"",
    "\"fuel\"",
    "\"module_bytes\"",
    "\"functions\"",
    "\"function_bytes\"",
    "\"function_work\"",
    "\"globals\"",
    "\"compile_time_ms\"",
    "\"metadata_bytes\"",
    "\"metadata_depth\"",
    "\"message_bytes\"",
    "\"log_bytes\"",
    "\"backtrace_frames\"",
    "\"callback_depth\"",
    "\"instances\"",
    "\"isolation\"",
    "\"fresh\"",
    "\"executable\"",
    "\"traps\"",
    "\"signals\"",
    "\"explicit\"",
    "\"deterministic\"",
    "\"check_pure\"",
    "\"shadow\"",
    "{\"share\": 0.5}",
    "\"share\"",
    "\"grants\"",
    "\"targets\"",
    "\"f\"",
    "\"directories\"",
    "\"path\"",
    "\"name\"",
    "\"access\"",
    "\"read\"",
    "\"read_write\"",
    "\"clock\"",
    "\"randomness\"",
    "\"system\"",
    "{\"seed\": 3}",
    "\"log\"",
    "\"warn\"",
    "\"sha256\"",
    "true",
    "false",
    "null",
    "1.5",
    "-1",
    "18446744073709551615",
    "18446744073709551616",
    "\\u0000",
    "\\ud800",
];

fn run(input: &[u8]) -> Outcome {
    match Policy::from_json(input) {
        Ok(policy) => {
            let written = policy.to_json().unwrap();
            assert_eq!(
                Policy::from_json(written.as_bytes()).as_ref(),
                Ok(&policy),
                "{written}"
            );
            let grants = (
                &policy.grants.log,
                policy.grants.any_wasi(),
                policy.targets.len(),
            );
            Outcome::of((
                policy.isolation,
                policy.traps,
                policy.deterministic,
                policy.check_pure,
                grants,
            ))
        }
        Err(status) => {
            assert_eq!(status.code(), StatusCode::InvalidArgument, "{status}");
            assert!(!status.message().is_empty());
            Outcome::failure(&status)
        }
    }
}
