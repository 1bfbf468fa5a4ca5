//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Runs the conformance suite, faults and measurements of callbox on this machine's GPU and writes
/// a report.
///
/// The exit code is 0 if nothing failed or there is no GPU, 1 if something failed, and 2 if the
/// program could not do its work.
#[derive(Clone, Debug, Parser)]
#[command(name = "gpu-check")]
pub(crate) struct Options {
    /// File for the report in JSON. A Markdown page is written beside it, with the extension .md.
    #[arg(long, value_name = "FILE", default_value = "gpu-report.json")]
    pub(crate) json: PathBuf,
    /// Measure less, and run each case once.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Use the stand-in for the driver: checks this program on machines without a GPU, with all
    /// sections and no times.
    #[arg(long)]
    pub(crate) stand_in: bool,
    /// Run the cases whose names contain this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) cases: String,
    /// Only record the cases' status codes on the stand-in, for comparison with a run on a GPU.
    #[arg(long, value_name = "FILE")]
    pub(crate) record_stand_in: Option<PathBuf>,
    /// Folder of cases and guests. Default: this program's folder if they are there, otherwise the
    /// repository that it was built in.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) root: Option<PathBuf>,
    /// Run one section in this process and print its result. For internal use.
    #[arg(long, value_name = "NAME", hide = true)]
    pub(crate) section: Option<String>,
}

/// The extent of the measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amount {
    /// Small enough for the stand-in.
    Tiny,
    /// For a quick look.
    Quick,
    /// For a report.
    Full,
}

impl Options {
    /// Returns the extent of the measurements on a device or on the stand-in.
    pub(crate) const fn amount(&self, is_stand_in: bool) -> Amount {
        match (is_stand_in, self.quick) {
            (true, _) => Amount::Tiny,
            (false, true) => Amount::Quick,
            (false, false) => Amount::Full,
        }
    }

    /// Returns the folder of cases and guests.
    pub(crate) fn root(&self) -> PathBuf {
        if let Some(root) = &self.root {
            return root.clone();
        }
        let program = std::env::current_exe().unwrap_or_default();
        let beside = program.parent().map(PathBuf::from).unwrap_or_default();
        if beside.join("tests/cases").is_dir() {
            beside
        } else {
            callbox_tests::root::root()
        }
    }
}
