//! The requirements for loading a module.

use callbox_core::policy::{Grants, Limits};
use callbox_core::untrusted_text::clean_line;
use callbox_core::values::{Result, Status};

use crate::failure::{exhausted, invalid, status};
use crate::features::MAX_TABLES;
use crate::frame::abi;
use crate::info::ModuleInfo;
use crate::sections::ImportedItem;
use crate::version::FfiVersion;
use crate::{api, capabilities, maths};

/// The type of `cabi_realloc`.
const REALLOC_TYPE: &str = "(i32, i32, i32, i32) -> i32";

impl ModuleInfo {
    /// Checks that the module imports only what is granted, and that its memory and tables are
    /// within the limits.
    ///
    /// # Errors
    /// PERMISSION_DENIED, INVALID_ARGUMENT or RESOURCE_EXHAUSTED, as for
    /// [`Engine::load`](crate::Engine::load).
    pub fn check(&self, limits: &Limits, grants: &Grants) -> Result<()> {
        self.check_all(limits, grants)
            .map_err(|status| clean_line(status, limits.message_bytes))
    }

    fn check_all(&self, limits: &Limits, grants: &Grants) -> Result<()> {
        for import in &self.imports {
            check_import(import, grants)?;
        }
        self.check_export("_initialize", "()")?;
        self.check_export(abi::REALLOC, REALLOC_TYPE)?;
        self.check_export(abi::JAX_FFI_API, "() -> i32")?;
        self.check_tables(limits.table_elements)?;
        let most = limits.memory_bytes;
        match self.memory {
            None => Err(invalid(
                "expected an exported memory named \"memory\", found none",
            )),
            Some(memory) if memory.initial > most as u64 => Err(exhausted(format!(
                "expected a memory of at most {most} bytes, found one of {}",
                memory.initial
            ))),
            Some(_) => Ok(()),
        }
    }

    fn check_tables(&self, most: usize) -> Result<()> {
        if self.tables.len() > MAX_TABLES {
            return Err(exhausted(format!(
                "expected at most {MAX_TABLES} table, found {}",
                self.tables.len()
            )));
        }
        match self.tables.iter().find(|&&elements| elements > most as u64) {
            Some(elements) => Err(exhausted(format!(
                "expected a table of at most {most} elements, found one of {elements}"
            ))),
            None => Ok(()),
        }
    }

    /// Checks the type of a function that the host calls, if the module exports it.
    fn check_export(&self, name: &str, ty: &str) -> Result<()> {
        match self.exports.iter().find(|export| export.name == name) {
            Some(export) if export.ty != ty => Err(invalid(format!(
                "expected the export {name:?} to be a function {ty}, found {}",
                export.ty
            ))),
            _ => Ok(()),
        }
    }
}

/// Checks that an import is granted, or a function of the FFI API table or of mathematics in a
/// version that this host has.
fn check_import(import: &ImportedItem, grants: &Grants) -> Result<()> {
    let name = format!("\"{}\" \"{}\"", import.module, import.name);
    if let Some(outcome) = capabilities::check_import(import, &name, grants) {
        return outcome;
    }
    if let Some(outcome) = maths::check_import(import, &name, grants) {
        return outcome;
    }
    let Some(version) = import.module.strip_prefix(abi::API_MODULE) else {
        return Err(not_granted(&name));
    };
    let mut minors = 0..=abi::MINOR;
    let Some(minor) = minors.find(|&minor| api::module_name(minor) == import.module) else {
        return Err(match FfiVersion::parse(version) {
            Some(found) if found > FfiVersion::HOST => found.too_new(&format!("the import {name}")),
            _ => not_granted(&name),
        });
    };
    api::FUNCTIONS
        .iter()
        .find(|function| function.name == import.name && function.since <= minor)
        .ok_or_else(|| not_granted(&name))
        .and_then(|function| import.check_type(&name, function.ty))
}

fn not_granted(name: &str) -> Status {
    let names: Vec<_> = api::FUNCTIONS
        .iter()
        .map(|function| function.name)
        .collect();
    status!(
        PermissionDenied,
        Guest,
        "the import {name} is not granted; granted are the functions of \"{}\": {}",
        api::module_name(abi::MINOR),
        names.join(", ")
    )
}
