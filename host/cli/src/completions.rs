//! `callbox completions`: the script with which a shell completes commands and flags.

use std::process::ExitCode;

use clap::{Command, CommandFactory};
use clap_complete::{Shell, generate};

use super::{CommandLine, output};

const EXAMPLES: &str = "\
Examples:
  callbox completions bash > ~/.local/share/bash-completion/completions/callbox
  callbox completions zsh > ~/.zfunc/_callbox
  callbox completions fish > ~/.config/fish/completions/callbox.fish";

/// Print the script with which a shell completes commands and flags
///
/// Save the script where the shell looks for completions, again after an update of callbox.
#[derive(Debug, clap::Args)]
#[command(after_long_help = format!("{EXAMPLES}\n\n{}", super::EXIT_CODES))]
pub(super) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(super) fn show(arguments: &Arguments) -> ExitCode {
    // Written to memory first, because `generate` panics if it cannot write.
    let mut text = Vec::new();
    generate(arguments.shell, &mut command(), "callbox", &mut text);
    output::emit(&String::from_utf8_lossy(&text), ExitCode::SUCCESS)
}

/// Returns callbox's command without hidden subcommands, which clap_complete would complete too.
fn command() -> Command {
    let whole = CommandLine::command();
    let shown: Vec<Command> = whole
        .get_subcommands()
        .filter(|subcommand| !subcommand.is_hide_set())
        .cloned()
        .collect();
    Command::new("callbox")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommands(shown)
}
