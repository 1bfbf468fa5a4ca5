//! Writes the section with the declarations of a module's targets.

use callbox_core::values::{Result, Status};
use wasm_encoder::{CustomSection, Module, RawSection};
use wasmparser::{Parser, Payload};

use crate::sections::HEADER;

/// The custom section with the declarations.
const TARGETS: &str = "callbox.targets";

/// Returns the module with these declarations, consecutive JSON objects, in place of those that it
/// has. The other sections stay as they are.
///
/// # Errors
/// INVALID_ARGUMENT if the bytes are no module, or if they are a package, whose digest the change
/// would break.
pub fn with_targets(module: &[u8], declarations: &str) -> Result<Vec<u8>> {
    let wrong = |error: wasmparser::BinaryReaderError| {
        Status::invalid_argument(format!("expected a WebAssembly module: {error}"))
    };
    let mut annotated = Module::new();
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.map_err(wrong)?;
        if let Payload::CustomSection(section) = &payload {
            match section.name() {
                TARGETS => continue,
                HEADER => {
                    return Err(Status::invalid_argument(
                        "expected a module, found a package: annotate its module, and pack it again",
                    ));
                }
                _ => {}
            }
        }
        if let Some((id, range)) = payload.as_section() {
            let data = &module[range];
            annotated.section(&RawSection { id, data });
        }
    }
    annotated.section(&CustomSection {
        name: TARGETS.into(),
        data: declarations.as_bytes().into(),
    });
    Ok(annotated.finish())
}

#[cfg(test)]
mod tests {
    use super::with_targets;

    /// A module with a memory, and with a custom section before and after it.
    fn module() -> Vec<u8> {
        let mut bytes = b"\0asm\x01\0\0\0".to_vec();
        bytes.extend(b"\x00\x03\x01ab");
        bytes.extend(b"\x05\x03\x01\x00\x01");
        bytes
    }

    #[test]
    fn declarations_come_last_and_replace_earlier_ones() {
        let mut expected = module();
        expected.extend(b"\x00\x12\x0fcallbox.targets{}");
        let once = with_targets(&module(), "{}");
        assert_eq!(once, Ok(expected.clone()));
        let other = with_targets(&expected, "{\"name\":\"f\"}");
        let back = other.and_then(|other| with_targets(&other, "{}"));
        assert_eq!(back, Ok(expected));
    }

    #[test]
    fn bytes_that_are_no_module_and_packages_are_refused() {
        let message = |bytes: &[u8]| match with_targets(bytes, "{}") {
            Ok(_) => String::new(),
            Err(status) => status.message().to_owned(),
        };
        assert!(message(b"\0asm").starts_with("expected a WebAssembly module: "));
        let mut package = module();
        package.extend(b"\x00\x12\x0fcallbox.package{}");
        assert!(message(&package).starts_with("expected a module, found a package"));
    }
}
