//! `callbox replay`: repeats the call of a capsule.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use callbox::call::TargetModule;
use callbox::policy::{Grants, Policy, Traps};
use callbox::{Blame, CallOptions, Deadline, Status, StatusCode};
use callbox_core::text::shortened;
use serde::Serialize;
use serde_json::Value;

use super::capsule::{self, Capsule, StatusRecord, check_grants};
use super::failure::{Failure, Outcome};
use super::inspect::field;
use super::policy::PolicyArguments;
use super::text::{name, printable};
use super::{call, json, output, progress, signing};

/// The most bytes of a recorded message that are shown.
const MOST_SHOWN: usize = 8192;

/// The most bytes of a recorded name, and the most names of a recorded backtrace.
const MOST_NAME: usize = 1024;
const MOST_FRAMES: usize = 64;

const EXAMPLES: &str = "\
Examples:
  callbox call k.wasm f --operand x.npy --result 'f32[2]' --deterministic --record capsules
  callbox replay capsules/f-0123456789ab.capsule

The call runs under the limits that it had, as long as they are not above yours, and without other
grants than log messages and mathematics. A call that was recorded with --deterministic ends with
the same status and bits on every machine. The exit code is 0 if it does.

With --json, standard output is one object, of failures too (replay is null if there was no call):
  {\"status\":{...},\"replay\":{\"target\":...,\"module\":...,\"callbox\":...,\"deterministic\":...,
    \"recorded\":null,\"found\":{\"code\":...,\"message\":...,\"recoverable\":...,\"blame\":...,
    \"backtrace\":[...]},\"reproduced\":...}}
  recorded and found are null for calls that succeeded.";

/// Repeat the call of a capsule, and compare its status and bits
///
/// `callbox call --record`, `callbox run --record` and `callbox.record` of the Python package write
/// capsules.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The capsule
    #[arg(value_name = "FILE.capsule")]
    file: PathBuf,

    #[command(flatten)]
    policy: PolicyArguments,

    /// Print one JSON object instead of text
    #[arg(long)]
    json: bool,
}

/// How the recorded call and its repetition ended.
#[derive(Debug, Serialize)]
struct Replay {
    target: String,
    module: String,
    callbox: String,
    deterministic: bool,
    recorded: Option<StatusRecord>,
    found: Option<StatusRecord>,
    reproduced: bool,
}

impl Replay {
    /// Cuts the texts of the capsule, which a stranger wrote.
    fn cut(&mut self) {
        for text in [&mut self.target, &mut self.module, &mut self.callbox] {
            *text = cut(text, MOST_NAME);
        }
        if let Some(recorded) = &mut self.recorded {
            recorded.code = cut(&recorded.code, MOST_NAME);
            recorded.blame = cut(&recorded.blame, MOST_NAME);
            recorded.message = cut(&recorded.message, MOST_SHOWN);
            recorded.backtrace.truncate(MOST_FRAMES);
            for frame in &mut recorded.backtrace {
                *frame = cut(frame, MOST_NAME);
            }
        }
    }
}

/// The beginning of a text.
fn cut(text: &str, most: usize) -> String {
    let kept = &text[..text.floor_char_boundary(most)];
    let end = if kept.len() < text.len() { "..." } else { "" };
    format!("{kept}{end}")
}

pub(super) fn replay(arguments: &Arguments) -> ExitCode {
    let mut report = None;
    let outcome = run(arguments, &mut report);
    if let Err(failure) = &outcome {
        output::complain(failure);
    }
    let failure = outcome.as_ref().err();
    let code = failure.map_or(ExitCode::SUCCESS, Failure::exit_code);
    report.iter_mut().for_each(Replay::cut);
    match (arguments.json, report) {
        (true, report) => output::emit(&json::checked("replay", &report, failure), code),
        (false, Some(report)) => output::emit(&report.describe(), code),
        (false, None) => code,
    }
}

fn run(arguments: &Arguments, report: &mut Option<Replay>) -> Outcome<()> {
    let capsule = capsule::read(&arguments.file)?;
    let in_file = |status: Status| status.context(arguments.file.display());
    if let Some(lock) = arguments.policy.lock()? {
        lock.check_digest(&arguments.file, "")?;
    }
    let trust = arguments.policy.trust()?;
    signing::check_module(trust.as_ref(), &arguments.file, &capsule.module)?;
    let policy = arguments.policy.read()?;
    // Fuel takes the place of a policy's deadline, and lasts for hours where memory is slow: the
    // user's deadline is the caller's then.
    let own = if capsule.policy.deterministic {
        policy.limits.deadline
    } else {
        None
    };
    let policy = adopted(policy, &capsule).map_err(in_file)?;
    let grants = policy.grants.clone();
    let backend = arguments.policy.backend_for(policy.clone())?;
    let file = backend.read(capsule.module).map_err(in_file)?;
    let file = file.named(&capsule.file);
    let module = progress::show(
        || "compiling the module".to_owned(),
        || backend.load(&file, &grants),
    );
    let module: Arc<dyn TargetModule> = module.map_err(in_file)?;
    let deadline = capsule.deadline_ms.map(Duration::from_millis);
    let given = arguments.policy.call_options();
    let options = CallOptions {
        deadline: deadline
            .map(Deadline::After)
            .or(given.deadline)
            .or(own.map(Deadline::After)),
        ..given
    };
    let target = capsule.site.target.clone();
    let text = || format!("calling {target}");
    let options = arguments.policy.begun(&options, &policy);
    let found = progress::show(text, || {
        call::execute_leaves(&module, capsule.site, &capsule.operands, &options)
    });
    let found = found.as_ref().map_err(StatusRecord::from);
    let reproduced = match (&found, &capsule.outcome) {
        (Ok(found), Ok(recorded)) => *found == recorded,
        (Err(found), Err(recorded)) => found == recorded,
        _ => false,
    };
    let report = report.insert(Replay {
        target,
        module: capsule.file,
        callbox: capsule.version,
        deterministic: capsule.policy.deterministic,
        reproduced,
        recorded: capsule.outcome.err(),
        found: found.err(),
    });
    Ok(report.check().map_err(in_file)?)
}

/// The policy of a replay: the recorded one, with no grants but log messages and mathematics, to
/// modules with the user's digests. A limit above the user's, and mathematics that the user
/// withholds, are refused.
fn adopted(user: Policy, capsule: &Capsule) -> callbox::Result<Policy> {
    let recorded = &capsule.policy;
    check_grants(recorded, &capsule.site.target)?;
    let fields = |policy: &Policy| {
        serde_json::to_value(&policy.limits).map_err(|error| Status::internal(error.to_string()))
    };
    let (allowed, mut wanted) = (fields(&user)?, fields(recorded)?);
    // The call's own deadline takes the place of the policy's.
    if let Some(milliseconds) = capsule.deadline_ms {
        wanted["deadline_ms"] = milliseconds.into();
    }
    let target = &capsule.site.target;
    let grants = |policy: &Policy| {
        let grants = policy.targets.get(target);
        grants.unwrap_or(&policy.grants).clone()
    };
    let (users, maths) = (grants(&user), grants(recorded).maths);
    if maths && !users.maths {
        return Err(Status::new(
            StatusCode::FailedPrecondition,
            Blame::Caller,
            "the call was recorded with lent mathematics, which the policy here withholds",
        ));
    }
    for (limit, wanted) in wanted.as_object().into_iter().flatten() {
        // A limit that is null does not exist.
        let exceeds = match (allowed[limit].as_u64(), wanted.as_u64()) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(allowed), Some(wanted)) => wanted > allowed,
        };
        if exceeds {
            return Err(Status::new(
                StatusCode::FailedPrecondition,
                Blame::Caller,
                format!(
                    "the call was recorded with {} for `{limit}`, above {} here: allow it with \
                     --policy",
                    described(wanted),
                    described(&allowed[limit])
                ),
            ));
        }
    }
    let mut policy = user;
    policy.limits = recorded.limits.clone();
    policy.isolation = recorded.isolation;
    if policy.traps != Traps::Explicit {
        policy.traps = recorded.traps;
    }
    policy.deterministic = recorded.deterministic;
    policy.check_pure = recorded.check_pure;
    policy.grants = Grants {
        sha256: users.sha256,
        log: users.log,
        maths,
        ..Grants::default()
    };
    policy.targets.clear();
    Ok(policy)
}

fn described(limit: &Value) -> String {
    limit
        .as_u64()
        .map_or_else(|| "no limit".to_owned(), |limit| limit.to_string())
}

impl Replay {
    fn check(&self) -> callbox::Result<()> {
        if self.reproduced {
            return Ok(());
        }
        let message = match (&self.recorded, &self.found) {
            (None, None) => "the call gave other results than when it was recorded".to_owned(),
            (recorded, found) => format!(
                "the call ended with {}, and with {} when it was recorded",
                ending(found.as_ref()),
                ending(recorded.as_ref())
            ),
        };
        let note = if self.deterministic {
            ""
        } else {
            "; it was recorded without --deterministic"
        };
        let message = message + note;
        Err(Status::new(
            StatusCode::FailedPrecondition,
            Blame::Guest,
            message,
        ))
    }

    fn describe(&self) -> String {
        let lines = [
            name(&shortened(&self.target)),
            field("module", &name(&shortened(&self.module))),
            field("callbox", &name(&shortened(&self.callbox))),
            field("recorded", &ending(self.recorded.as_ref())),
            field("found", &ending(self.found.as_ref())),
        ];
        let verdict = if self.reproduced {
            "the same status and bits"
        } else {
            "not reproduced"
        };
        printable(&format!("{}\n{verdict}\n", lines.join("\n")))
    }
}

/// A status on one line, cut if a stranger recorded a long one.
fn ending(status: Option<&StatusRecord>) -> String {
    let Some(status) = status else {
        return "OK".to_owned();
    };
    let (code, message) = (shortened(&status.code), cut(&status.message, MOST_SHOWN));
    name(&format!("{code}: {message}"))
}
