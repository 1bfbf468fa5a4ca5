//! Checks that failures on Host name their module, and tells a guest's text from the host's.

use anyhow::{Result, ensure};
use callbox::Blame;

use crate::case::{Phase, Step};
use crate::platform::{Failure, Outcome, Prepared};

/// The name of each case's modules in messages. Expectations leave it out.
pub(super) const MODULE: &str = "case.wasm";

/// What a guest's text follows.
const MARK: &str = "the guest says \"";

/// A subject whose failures are checked.
pub(super) struct Marked<'c>(pub(super) Box<dyn Prepared + 'c>);

impl Prepared for Marked<'_> {
    fn run(&self, step: &Step) -> Result<Outcome> {
        match self.0.run(step)? {
            Err(failure) => read(failure).map(Err),
            found => Ok(found),
        }
    }
}

fn read(mut failure: Failure) -> Result<Failure> {
    let name = format!("{MODULE}: ");
    let status = &failure.status;
    let is_of_a_call = failure.phase == Phase::Execute && status.blame() == Blame::Guest;
    ensure!(
        !is_of_a_call || status.message().contains(&name),
        "expected a failure that names its module, found {status}"
    );
    failure.said = Some(said(status.message())?);
    failure.status = failure
        .status
        .map_message(|message| message.replacen(&name, "", 1));
    Ok(failure)
}

/// What the guest said, without the quotation marks. Nothing may follow it.
fn said(message: &str) -> Result<String> {
    let Some((_, quoted)) = message.split_once(MARK) else {
        return Ok(String::new());
    };
    let mut said = String::new();
    let mut rest = quoted.chars();
    while let Some(c) = rest.next() {
        match c {
            '"' => break,
            '\\' => said.extend(rest.next()),
            '\n' => {
                let indented = rest.as_str().strip_prefix("  | ");
                ensure!(
                    indented.is_some(),
                    "expected each line of the guest's to be marked, found {message:?}"
                );
                rest = indented.unwrap_or_default().chars();
                said.push(c);
            }
            c => said.push(c),
        }
    }
    ensure!(
        rest.as_str().is_empty(),
        "expected nothing behind the guest's text, found {message:?}"
    );
    Ok(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guests_text_is_found() {
        for (message, expected) in [
            ("target \"f\" trapped: unreachable", ""),
            (r#"target "f" failed: the guest says """#, ""),
            (
                r#"target "f" failed: the guest says "a \"b\" \\c""#,
                r#"a "b" \c"#,
            ),
            ("the guest says \"a\n  | b\"", "a\nb"),
        ] {
            assert_eq!(said(message).unwrap(), expected);
        }
        for message in ["the guest says \"a\nb\"", "the guest says \"a\" and more"] {
            said(message).unwrap_err();
        }
    }
}
