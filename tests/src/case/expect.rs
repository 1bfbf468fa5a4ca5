//! The expected outcome of a step.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use callbox::{Blame, Literal, StatusCode};

use super::status_code;
use super::text::{ExpectText, LogText, StatusText, UlpsText};
use crate::literal;

/// The expected outcome of a step.
#[derive(Debug)]
pub enum Expect {
    /// Success with these results and, if given, exactly these log messages.
    Results(Vec<ExpectedResult>, Option<Vec<ExpectedLog>>),
    /// Failure with this status.
    Status(ExpectedStatus),
    /// A loaded module with these targets, sorted by name.
    Targets(Vec<String>),
}

/// An expected leaf of the result.
#[derive(Debug)]
pub struct ExpectedResult {
    /// Its value.
    pub literal: Literal,
    /// The tolerance in units in the last place.
    pub ulps: u64,
}

/// An expected failure. `None` and empty lists match anything.
#[derive(Debug)]
pub struct ExpectedStatus {
    /// The status code.
    pub code: StatusCode,
    /// The message.
    pub message: ExpectedMessage,
    /// Whether it is recoverable.
    pub recoverable: Option<bool>,
    /// The party at fault.
    pub blame: Option<Blame>,
    /// The phase in which it fails.
    pub phase: Option<Phase>,
    /// Function names that occur in the backtrace, in this order.
    pub backtrace: Vec<String>,
    /// The number of frames in the backtrace.
    pub frames: Option<usize>,
}

/// An expected status message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedMessage {
    /// Any message.
    Any,
    /// Exactly this message.
    Whole(String),
    /// A message with all of these parts, in any order.
    Contains(Vec<String>),
    /// A message made of these parts in this order, with any text between them.
    Pattern(Vec<String>),
    /// A message by which the host passes on exactly this text of the guest.
    Says(String),
}

impl ExpectedMessage {
    /// Returns whether `message` matches, in which the guest said `said`: `None` on a platform that
    /// does not mark a guest's text.
    #[must_use]
    pub fn accepts(&self, message: &str, said: Option<&str>) -> bool {
        match self {
            // What a manifest's check says is marked, and what native code says is not.
            Self::Says(text) => said.map_or_else(
                || {
                    let marked = format!("the guest says {text:?}");
                    message.ends_with(text.as_str()) || message.ends_with(&marked)
                },
                |said| said == text,
            ),
            Self::Any => true,
            Self::Whole(whole) => whole == message,
            Self::Contains(parts) => parts.iter().all(|part| message.contains(part.as_str())),
            Self::Pattern(parts) => follows(message, parts),
        }
    }
}

/// An expected log message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedLog {
    /// The level's name.
    pub level: String,
    /// The text.
    pub message: String,
}

/// The phase in which a step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Loading a module.
    Load,
    /// Reading program text.
    Parse,
    /// Registering a target.
    Register,
    /// Binding a program to its targets, or preparing a call site.
    Prepare,
    /// Running.
    Execute,
}

const PHASES: [(&str, Phase); 5] = [
    ("load", Phase::Load),
    ("parse", Phase::Parse),
    ("register", Phase::Register),
    ("prepare", Phase::Prepare),
    ("execute", Phase::Execute),
];

pub(super) fn read(text: ExpectText, folder: &Path) -> Result<Expect> {
    ensure!(
        text.results.is_some() || (text.ulps.is_none() && text.log.is_none()),
        "expected ulps and log with results only"
    );
    match (text.results, text.status, text.targets) {
        (Some(results), None, None) => {
            let results = results
                .into_iter()
                .enumerate()
                .map(|(i, result)| {
                    literal::read(result, folder).with_context(|| format!("result {i}"))
                })
                .collect::<Result<Vec<_>>>()?;
            let log = text.log.map(|log| log.into_iter().map(read_log).collect());
            Ok(Expect::Results(with_ulps(results, text.ulps)?, log))
        }
        (None, Some(status), None) => read_status(status).map(Expect::Status),
        (None, None, Some(targets)) => Ok(Expect::Targets(targets)),
        _ => bail!("expected exactly one of results, status and targets"),
    }
}

/// Flattens tuples into leaves and gives each leaf its tolerance.
fn with_ulps(results: Vec<Literal>, ulps: Option<UlpsText>) -> Result<Vec<ExpectedResult>> {
    let leaves: Vec<Literal> = results
        .iter()
        .flat_map(Literal::leaves)
        .map(|(shape, bytes)| Literal::from_bytes(shape.clone(), bytes.to_vec()))
        .collect::<callbox::Result<_>>()?;
    let ulps = match ulps {
        None => vec![0; leaves.len()],
        Some(UlpsText::All(ulps)) => vec![ulps; leaves.len()],
        Some(UlpsText::Each(ulps)) => ulps,
        Some(UlpsText::ByType(ulps)) => ulps_by_type(&leaves, &ulps)?,
    };
    ensure!(
        ulps.len() == leaves.len(),
        "expected ulps for each of {} results, found {}",
        leaves.len(),
        ulps.len()
    );
    let pairs = std::iter::zip(leaves, ulps);
    Ok(pairs
        .map(|(literal, ulps)| ExpectedResult { literal, ulps })
        .collect())
}

/// Returns each leaf's tolerance by its element type, 0 for types that are not listed.
fn ulps_by_type(leaves: &[Literal], ulps: &BTreeMap<String, u64>) -> Result<Vec<u64>> {
    let types: Vec<String> = leaves
        .iter()
        .filter_map(|leaf| Some(leaf.leaves().next()?.0.element_type().to_string()))
        .collect();
    for name in ulps.keys() {
        ensure!(
            types.contains(name),
            "expected ulps for types that results have ({}), found {name:?}",
            types.join(", ")
        );
    }
    Ok(types
        .iter()
        .map(|name| ulps.get(name).copied().unwrap_or(0))
        .collect())
}

fn read_status(text: StatusText) -> Result<ExpectedStatus> {
    let message = match (text.message, text.contains, text.pattern, text.says) {
        (None, None, None, None) => ExpectedMessage::Any,
        (Some(whole), None, None, None) => ExpectedMessage::Whole(whole),
        (None, None, None, Some(said)) => ExpectedMessage::Says(said),
        (None, Some(parts), None, None) => {
            let parts: Vec<String> = parts.into();
            ensure!(
                !parts.is_empty() && parts.iter().all(|part| !part.is_empty()),
                "expected contains to name a part of the message, found none, which any message has"
            );
            ExpectedMessage::Contains(parts)
        }
        (None, None, Some(pattern), None) => {
            ExpectedMessage::Pattern(pattern.split('*').map(str::to_owned).collect())
        }
        _ => bail!("expected at most one of message, contains, pattern and says"),
    };
    let code = status_code(&text.code)?;
    ensure!(
        code != StatusCode::Ok,
        "expected a failure's code, found OK"
    );
    Ok(ExpectedStatus {
        code,
        message,
        recoverable: text.recoverable,
        blame: text.blame.as_deref().map(blame).transpose()?,
        phase: text.phase.as_deref().map(phase).transpose()?,
        backtrace: text.backtrace.map(Vec::from).unwrap_or_default(),
        frames: text.frames,
    })
}

fn read_log(text: LogText) -> ExpectedLog {
    ExpectedLog {
        level: text.level,
        message: text.message,
    }
}

fn blame(name: &str) -> Result<Blame> {
    [Blame::Guest, Blame::Caller, Blame::Host]
        .into_iter()
        .find(|blame| blame.name() == name)
        .with_context(|| format!("expected the blame guest, caller or host, found {name:?}"))
}

fn phase(name: &str) -> Result<Phase> {
    let phase = PHASES.iter().find(|(known, _)| *known == name);
    let names: Vec<_> = PHASES.iter().map(|(name, _)| *name).collect();
    phase
        .map(|(_, phase)| *phase)
        .with_context(|| format!("expected a phase ({}), found {name:?}", names.join(", ")))
}

/// Returns whether `text` consists of these parts in order, with any text between them.
fn follows(text: &str, parts: &[String]) -> bool {
    let [first, between @ .., last] = parts else {
        return parts.iter().all(|part| part == text);
    };
    let inside = text
        .strip_prefix(first.as_str())
        .and_then(|rest| rest.strip_suffix(last.as_str()));
    let Some(mut rest) = inside else {
        return false;
    };
    between
        .iter()
        .all(|part| match rest.split_once(part.as_str()) {
            Some((_, behind)) => {
                rest = behind;
                true
            }
            None => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_leave_gaps_and_nothing_else() {
        let accepts = |pattern: &str, text: &str| {
            let parts = pattern.split('*').map(str::to_owned).collect();
            ExpectedMessage::Pattern(parts).accepts(text, None)
        };
        for (pattern, text) in [
            ("expected *, found *", "expected 1, found 2"),
            ("*found 2", "expected 1, found 2"),
            ("a*b*c", "abbc"),
            ("a*", "a"),
            ("**", ""),
            ("a", "a"),
        ] {
            assert!(accepts(pattern, text), "{pattern:?} {text:?}");
        }
        for (pattern, text) in [
            ("expected *, found *", "Expected 1, found 2"),
            ("expected *, found ", "expected 1, found 2"),
            ("a*b*c", "acb"),
            ("ab*ba", "aba"),
            ("a*b*b", "ab"),
            ("a", "ab"),
            ("", "a"),
        ] {
            assert!(!accepts(pattern, text), "{pattern:?} {text:?}");
        }
    }
}
