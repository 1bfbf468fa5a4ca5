//! Texts and array files of cases, and what is done with them.

use std::io::Cursor;
use std::time::Duration;

use callbox::call::{CallSite, Platform};
use callbox::cuda::manifest::Manifest;
use callbox::policy::Policy;
use callbox::program::{Executable, ExecuteOptions, Program, attributes_from_mlir};
use callbox::{ArrayShape, CallOptions, Deadline, Literal, Registry, Result, Shape};
use callbox_cli::files::{ReadError, npy, tensors};
use serde::Deserialize;

use crate::pieces::{Piece, join};

/// A text or an array file, in pieces.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum File {
    /// The HLO text of a program.
    Hlo(Vec<Piece>),
    /// The manifest of a CUDA module.
    Manifest(Vec<Piece>),
    Policy(Vec<Piece>),
    /// Attributes, as MLIR prints them.
    Attributes(Vec<Piece>),
    Shape(Vec<Piece>),
    Npy(Vec<Piece>),
    /// A .safetensors file, of which the tensor `x` is read.
    Safetensors(Vec<Piece>),
}

impl File {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Hlo(pieces)
            | Self::Manifest(pieces)
            | Self::Policy(pieces)
            | Self::Attributes(pieces)
            | Self::Shape(pieces)
            | Self::Npy(pieces)
            | Self::Safetensors(pieces) => join(pieces),
        }
    }

    /// Reads the file. With a deadline it is also used: a program is executed until then, and a
    /// manifest planned for a call.
    pub(crate) fn read(&self, bytes: &[u8], deadline: Option<Duration>) -> Result<()> {
        let text = || std::str::from_utf8(bytes).unwrap();
        match self {
            Self::Hlo(_) => {
                let program = Program::from_hlo_text(text())?;
                if let Some(deadline) = deadline {
                    return execute(&program, deadline);
                }
            }
            Self::Manifest(_) => {
                let manifest = Manifest::parse(text())?;
                if deadline.is_some() {
                    return plan(&manifest);
                }
            }
            Self::Policy(_) => drop(Policy::from_json(bytes)?),
            Self::Attributes(_) => drop(attributes_from_mlir(text())?),
            Self::Shape(_) => drop(text().parse::<Shape>()?),
            Self::Npy(_) => return outcome(npy::read(bytes, None)),
            Self::Safetensors(_) => return outcome(tensors::read(Cursor::new(bytes), "x", None)),
        }
        Ok(())
    }
}

fn outcome(read: Result<Literal, ReadError>) -> Result<()> {
    match read {
        Ok(_) => Ok(()),
        Err(ReadError::Status(status)) => Err(status),
        Err(ReadError::Io(error)) => panic!("{error}"),
    }
}

/// Executes a program for zeros, until the deadline.
fn execute(program: &Program, deadline: Duration) -> Result<()> {
    let executable = Executable::compile(program, &Registry::new(), Platform::Host)?;
    let zeros = |array: &ArrayShape| {
        Literal::from_bytes(array.clone(), vec![0; array.byte_size()]).unwrap()
    };
    let parameters = executable.functions()[0].parameters.iter();
    let arguments = parameters.map(|shape| zeros(shape.as_array().unwrap()));
    let options = ExecuteOptions {
        call: CallOptions {
            deadline: Some(Deadline::After(deadline)),
            ..CallOptions::default()
        },
        ..ExecuteOptions::default()
    };
    executable
        .execute(0, &arguments.collect::<Vec<_>>(), &options)
        .map(drop)
}

/// Plans a call of one vector of each target.
fn plan(manifest: &Manifest) -> Result<()> {
    let vector: Shape = "f32[1024]".parse()?;
    for target in &manifest.targets {
        let name = target.signature.name.as_str();
        target.plan(&CallSite::new(name, vec![vector.clone()], vector.clone()))?;
    }
    Ok(())
}
