//! What this program is asked to do.

use std::path::PathBuf;

use clap::Parser;

/// Runs the conformance suite, faults and measurements of callbox on this machine's GPU, and writes what it found.
///
/// The exit code is 0 if nothing failed, or if there is no GPU; 1 if something failed on one; and 2 if this program cannot do its work.
#[derive(Clone, Debug, Parser)]
#[command(name = "gpu-check")]
pub(crate) struct Options {
    /// Where the report goes. A page to read goes beside it, with the ending .md.
    #[arg(long, value_name = "FILE", default_value = "gpu-report.json")]
    pub(crate) json: PathBuf,
    /// Measures less, and runs each case once.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Takes the stand-in for the driver: a check of this program on machines without a GPU, with all its sections and no times.
    #[arg(long)]
    pub(crate) stand_in: bool,
    /// Runs the cases whose names contain this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) cases: String,
    /// Writes the codes that cases end with on the stand-in, for a run on a GPU to be held against, and does nothing else.
    #[arg(long, value_name = "FILE")]
    pub(crate) record_stand_in: Option<PathBuf>,
    /// Where cases and guests lie. The folder of this program if they are there, else the repository that it was built in.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) root: Option<PathBuf>,
    /// Runs one section in this very process and says what it found: how this program calls itself.
    #[arg(long, value_name = "NAME", hide = true)]
    pub(crate) section: Option<String>,
}

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// So little that it runs on the stand-in.
    Tiny,
    /// For a look.
    Quick,
    /// For a report.
    Full,
}

impl Options {
    /// How much is measured on a device, or on what stands in for one.
    pub(crate) const fn amount(&self, is_stand_in: bool) -> Amount {
        match (is_stand_in, self.quick) {
            (true, _) => Amount::Tiny,
            (false, true) => Amount::Quick,
            (false, false) => Amount::Full,
        }
    }

    /// The folder with cases and guests.
    pub(crate) fn root(&self) -> PathBuf {
        if let Some(root) = &self.root {
            return root.clone();
        }
        let program = std::env::current_exe().unwrap_or_default();
        let beside = program.parent().map(PathBuf::from).unwrap_or_default();
        match beside.join("tests/cases").is_dir() {
            true => beside,
            false => callbox_tests::root::root(),
        }
    }
}
