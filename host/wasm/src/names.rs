//! Names of functions, for backtraces.
//!
//! wasmtime copies the name of each frame when a call traps, however long it is, and a mangled name
//! can expand to a thousand times its length. It keeps each name of a module, of which a section
//! can have millions, with fifty bytes beside it. So wasmtime gets the names of functions alone,
//! cut, and demangling stops at the length that is shown.

use callbox_core::untrusted_text::{formatted, sanitize};
use wasm_encoder::{NameMap, NameSection};
use wasmparser::{BinaryReaderError, CustomSectionReader, Name, NameSectionReader};

/// The bytes of a name that wasmtime gets.
const MAX_READ: usize = 4 << 10;

/// The bytes of a name in a backtrace.
const MAX_SHOWN: usize = 256;

/// The stack that demangling takes: it nests up to 500 deep, whatever the name's length.
const DEMANGLING: usize = 512 << 10;

/// A section of names that has only those of the first `count` functions, each once and cut.
pub(crate) fn function_names(section: NameSectionReader<'_>, count: u32) -> NameSection {
    let mut functions = NameMap::new();
    let mut next = 0;
    // wasmtime ignores what follows an error.
    let _ = for_each(section, |index, name| {
        if (next..count).contains(&index) {
            next = index + 1;
            functions.append(index, cut(name));
        }
    });
    let mut names = NameSection::new();
    names.functions(&functions);
    names
}

/// A function's name on one line: demangled, cut, and without quotation marks of its own.
pub(crate) fn shown(name: &str) -> String {
    let name = cut(name);
    let demangle = || match rustc_demangle::try_demangle(name) {
        Ok(demangled) => formatted(format_args!("{demangled:#}"), MAX_SHOWN + 1),
        Err(_) => name.to_owned(),
    };
    let text = stacker::maybe_grow(DEMANGLING, 2 * DEMANGLING, demangle);
    let text = sanitize(text.as_bytes(), text.len(), MAX_SHOWN);
    text.replace(['\n', '\t'], " ").replace('"', "'")
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

#[cfg(test)]
mod tests {
    use super::*;
    use wasm_encoder::Encode;

    /// The contents of a section, behind its name.
    fn contents(section: &NameSection) -> Vec<u8> {
        let mut bytes = Vec::new();
        section.encode(&mut bytes);
        let name = bytes.windows(5).position(|part| part == b"\x04name");
        bytes.split_off(name.map_or(0, |at| at + 5))
    }

    fn functions(names: &[(u32, &str)]) -> NameSection {
        let mut map = NameMap::new();
        names
            .iter()
            .for_each(|(index, name)| map.append(*index, name));
        let mut section = NameSection::new();
        section.functions(&map);
        section
    }

    /// A module of 16 MiB of its own names took 251 MiB: wasmtime keeps each.
    #[test]
    fn only_names_of_functions_are_left() {
        let mut module = NameSection::new();
        module.module("a");
        let long = "n".repeat(MAX_READ + 9);
        let found = functions(&[(0, "f"), (2, &long), (1, "late"), (2, "twice"), (4, "none")]);
        let all = [module.clone(), module, found].map(|section| contents(&section));
        let all = all.concat();
        let reader = NameSectionReader::new(wasmparser::BinaryReader::new(&all, 0));
        let kept = function_names(reader, 4);
        let expected = functions(&[(0, "f"), (2, &long[..MAX_READ])]);
        assert_eq!(contents(&kept), contents(&expected));
    }

    /// With a small limit on its own stack, a guest may run where little is left.
    #[test]
    fn nested_names_need_no_stack_of_the_thread() {
        let name = format!("_RIC0{}", "F".repeat(500));
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let shown = small
            .spawn(move || shown(&name))
            .map(|thread| thread.join());
        assert!(matches!(shown, Ok(Ok(_))), "{shown:?}");
    }
}
