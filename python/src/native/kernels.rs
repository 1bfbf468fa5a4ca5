//! The native kernels that a caller asks for when a module is loaded.

use std::path::{Path, PathBuf};

use callbox::policy::Gpu;
use pyo3::prelude::*;
use pyo3::types::PyString;

use super::{Native, grants};
use crate::exit::argument;

/// Where the native kernels of a module are.
#[derive(FromPyObject)]
pub(crate) enum NativeFrom {
    /// In the package itself, if true.
    Carried(bool),
    /// In the files that this manifest names.
    Manifest(#[pyo3(from_py_with = argument)] PathBuf),
}

/// The native kernels to load with a module, and the digests that the caller vouches for.
pub(crate) struct Kernels {
    from: Option<NativeFrom>,
    digests: Vec<String>,
}

impl Kernels {
    pub(crate) fn asked(
        native: Option<NativeFrom>,
        allow_native: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Self> {
        Ok(Self {
            from: native.filter(|from| !matches!(from, NativeFrom::Carried(false))),
            digests: digests(allow_native)?,
        })
    }

    /// The manifest, if the kernels are in files of their own.
    pub(crate) fn manifest(&self) -> Option<&Path> {
        match &self.from {
            Some(NativeFrom::Manifest(path)) => Some(path),
            _ => None,
        }
    }

    pub(crate) fn load(
        &self,
        module: &[u8],
        signed: Option<[u8; 32]>,
        gpu: &Gpu,
    ) -> callbox::Result<Option<Native>> {
        let Some(from) = &self.from else {
            return Ok(None);
        };
        let grants = grants(&self.digests, signed)?;
        let native = match from {
            NativeFrom::Manifest(path) => Native::load(path, grants, gpu)?,
            NativeFrom::Carried(_) => Native::carried(module, grants, gpu)?,
        };
        Ok(Some(native))
    }
}

fn digests(allow_native: Option<&Bound<'_, PyAny>>) -> PyResult<Vec<String>> {
    match allow_native {
        None => Ok(Vec::new()),
        Some(one) if one.is_instance_of::<PyString>() => Ok(vec![one.extract()?]),
        Some(several) => argument(several),
    }
}
