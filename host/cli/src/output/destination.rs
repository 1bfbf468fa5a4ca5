//! Where the results of a call or a program go.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use callbox::{ArrayShape, Literal, Status};

use super::OutputFolder;
use super::folder::npy_file;
use crate::failure::{Failure, Outcome};
use crate::write_file;

/// The flags about where results are written.
#[derive(Debug, clap::Args)]
pub(crate) struct OutputArguments {
    /// Write the results to this folder, which is created if it does not exist
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Write the only result to a .npy file, or to standard output (-) in place of its summary
    #[arg(long, value_name = "FILE.npy", conflicts_with = "output_dir")]
    output: Option<PathBuf>,
}

/// Where results are written.
#[derive(Debug)]
pub(crate) enum Destination {
    Nowhere,
    Folder(OutputFolder),
    File(PathBuf),
    StandardOutput,
}

impl OutputArguments {
    /// Opens the folder, if there is one. With `is_json` standard output is the object's.
    pub(crate) fn open(&self, is_json: bool) -> Outcome<Destination> {
        if let Some(folder) = &self.output_dir {
            return OutputFolder::open(folder).map(Destination::Folder);
        }
        match &self.output {
            None => Ok(Destination::Nowhere),
            Some(file) if file != Path::new("-") => Ok(Destination::File(file.clone())),
            Some(_) if is_json => Err(Failure::usage(Status::invalid_argument(
                "expected a file for --output with --json, whose object is standard output; found -",
            ))),
            Some(_) => Ok(Destination::StandardOutput),
        }
    }
}

/// Writes the only array of a result to a file in NumPy's format.
pub(super) fn write_array(path: &Path, result: &Literal) -> Outcome<()> {
    let (header, bytes) = array_file(result)?;
    write_file::write(path, &[&header, &bytes])
}

/// The only array of a result, in NumPy's format: the header and the elements.
pub(super) fn array_file(result: &Literal) -> Outcome<(Vec<u8>, Cow<'_, [u8]>)> {
    let leaves = Vec::from_iter(result.leaves());
    let wrong = |found: String| {
        let message = format!("expected one result for --output, found {found}: use --output-dir");
        Failure::from(Status::invalid_argument(message))
    };
    let &[(shape, bytes)] = leaves.as_slice() else {
        return Err(wrong(leaves.len().to_string()));
    };
    npy_file(shape, bytes).ok_or_else(|| wrong(lacked(shape)))
}

/// Says that .npy files lack an array's element type.
fn lacked(shape: &ArrayShape) -> String {
    format!("one of {}, which .npy files lack", shape.element_type())
}
