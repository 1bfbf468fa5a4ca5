//! Names of functions, for backtraces.
//!
//! wasmtime copies the name of each frame when a call traps, however long it is, and a mangled name
//! can expand to a thousand times its length. So names are cut before wasmtime reads them, and
//! demangling stops at the length that is shown.

use callbox_core::untrusted_text::{formatted, sanitize};
use wasm_encoder::{NameMap, NameSection};
use wasmparser::{BinaryReaderError, CustomSectionReader, Name, NameSectionReader, Payload};

/// The bytes of a name that wasmtime gets.
const MAX_READ: usize = 4 << 10;

/// The bytes of a name in a backtrace.
const MAX_SHOWN: usize = 256;

/// Whether a custom section contains a function name that is too long.
pub(crate) fn has_long_names(payload: &Payload<'_>) -> bool {
    let mut is_long = false;
    if let Some(section) = name_section(payload) {
        // wasmtime ignores what follows an error.
        let _ = for_each(section, |_, name| is_long |= name.len() > MAX_READ);
    }
    is_long
}

/// A section of names that has only those of functions, cut.
pub(crate) fn cut_names(payload: &Payload<'_>) -> NameSection {
    let mut functions = NameMap::new();
    if let Some(section) = name_section(payload) {
        let _ = for_each(section, |index, name| functions.append(index, cut(name)));
    }
    let mut names = NameSection::new();
    names.functions(&functions);
    names
}

/// A function's name on one line: demangled, and cut.
pub(crate) fn shown(name: &str) -> String {
    let name = cut(name);
    let text = match rustc_demangle::try_demangle(name) {
        Ok(demangled) => formatted(format_args!("{demangled:#}"), MAX_SHOWN + 1),
        Err(_) => name.to_owned(),
    };
    sanitize(text.as_bytes(), text.len(), MAX_SHOWN).replace(['\n', '\t'], " ")
}

fn name_section<'a>(payload: &Payload<'a>) -> Option<NameSectionReader<'a>> {
    match payload {
        Payload::CustomSection(section) => names_in(section),
        _ => None,
    }
}

/// The names in a custom section, if it has names.
///
/// [`CustomSectionReader::as_known`] would read the sections of core dumps at once, with 16 bytes
/// of memory for each byte.
pub(crate) fn names_in<'a>(section: &CustomSectionReader<'a>) -> Option<NameSectionReader<'a>> {
    (section.name() == "name").then(|| NameSectionReader::new(section.data_reader()))
}

fn for_each(
    section: NameSectionReader<'_>,
    mut visit: impl FnMut(u32, &str),
) -> Result<(), BinaryReaderError> {
    for subsection in section {
        if let Name::Function(names) = subsection? {
            for naming in names {
                let naming = naming?;
                visit(naming.index, naming.name);
            }
        }
    }
    Ok(())
}

fn cut(name: &str) -> &str {
    &name[..name.floor_char_boundary(MAX_READ)]
}
