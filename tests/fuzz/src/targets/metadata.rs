//! The section `callbox.targets` of a module with functions of every convention: accepted metadata
//! agrees with the functions, and rejections blame the module.

use std::collections::HashSet;
use std::sync::OnceLock;

use callbox::call::{ApiVersion, BufferSignature, Dimension, Signature};
use callbox::policy::Limits;
use callbox::wasm::{ModuleInfo, inspect};
use callbox::{ArrayShape, Blame, CallSite, ElementType, Shape, Status, StatusCode};
use callbox_abi::METADATA_SECTION;

use crate::Target;
use crate::outcome::Outcome;

/// The target.
pub const TARGET: Target = Target {
    name: "metadata",
    run,
    max_len: 2048,
    executions: 20_000,
    words: WORDS,
};

const WORDS: &[&str] = &[
    "{\"name\": \"f\"",
    "\"name\"",
    "\"api_version\"",
    "\"API_VERSION_TYPED_FFI\"",
    "\"API_VERSION_ORIGINAL\"",
    "\"API_VERSION_STATUS_RETURNING\"",
    "\"API_VERSION_STATUS_RETURNING_UNIFIED\"",
    "\"API_VERSION_JAX_FFI\"",
    "\"ffi_version\"",
    "\"1.0\"",
    "\"1.1\"",
    "\"2.0\"",
    "\"stages\"",
    "[\"instantiate\", \"prepare\"]",
    "\"initialize\"",
    "\"operands\"",
    "\"results\"",
    "\"attributes\"",
    "\"remaining_operands\"",
    "\"remaining_results\"",
    "\"element_types\"",
    "[\"F32\", \"S32\"]",
    "\"f32\"",
    "\"rank\"",
    "\"dimensions\"",
    "[\"..\", \"n\", 4]",
    "[\"n/2\", \"2*(n-m)+1\", \"m\"]",
    "\"/(\"",
    "\"18446744073709551615*n\"",
    "\"elementwise\"",
    "\"rows\"",
    "\"optional\"",
    "true",
    "false",
    "null",
    "\"kind\"",
    "\"scalar\"",
    "\"array\"",
    "\"dictionary\"",
    "\"string\"",
    "\"function\"",
    "\"element_type\"",
    "\"doc\"",
    "\"traits\"",
    "[\"pure\"]",
    "\"f\"",
    "\"original\"",
    "\"returning\"",
    "\"unified\"",
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\n",
    "\\u001b",
    "\\u0000",
    "\"\"",
    "-1",
    "1e9",
    "[[[[[[[[[[[[[[[[",
];

const MODULE: &str = r#"(module
    (memory (export "memory") 1)
    (func (export "f") (param i32) (result i32) (i32.const 0))
    (func (export "f.instantiate") (param i32) (result i32) (i32.const 0))
    (func (export "f.instantiate.drop") (param i32))
    (func (export "f.prepare") (param i32) (result i32) (i32.const 0))
    (func (export "g") (param i32) (result i32) (i32.const 0))
    (func (export "original") (param i32 i32))
    (func (export "returning") (param i32 i32 i32))
    (func (export "unified") (param i32 i32 i32 i32 i32)))"#;

fn run(input: &[u8]) -> Outcome {
    let limits = Limits {
        metadata_bytes: 1800,
        ..Limits::default()
    };
    let module = module(input);
    match inspect(&module, &limits) {
        Ok(info) => {
            check(&info);
            let says = |target: &Signature| {
                let counts = [&target.operands, &target.results].map(|b| b.as_ref().map(Vec::len));
                (target.name.clone(), target.stages.len(), counts)
            };
            Outcome::of(info.targets.iter().map(says).collect::<Vec<_>>())
        }
        Err(status) => {
            check_refusal(&status, &limits);
            Outcome::failure(&status)
        }
    }
}

/// Builds the module with these bytes in its section.
pub(super) fn module(section: &[u8]) -> Vec<u8> {
    static MODULE_BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let mut bytes = MODULE_BYTES
        .get_or_init(|| wat::parse_str(MODULE).unwrap())
        .clone();
    let mut content = leb128(METADATA_SECTION.len());
    content.extend_from_slice(METADATA_SECTION.as_bytes());
    content.extend_from_slice(section);
    bytes.push(0);
    bytes.extend(leb128(content.len()));
    bytes.extend(content);
    bytes
}

fn leb128(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
    bytes
}

fn check(info: &ModuleInfo) {
    assert!(info.has_metadata);
    let mut names = HashSet::new();
    for target in &info.targets {
        assert!(names.insert(&target.name), "two targets {:?}", target.name);
        let export = info
            .exports
            .iter()
            .find(|export| export.name == target.name);
        let export = export.unwrap_or_else(|| panic!("no export {:?}", target.name));
        assert!(!target.api_versions.is_empty());
        for version in &target.api_versions {
            let ty = match version {
                ApiVersion::Original => "(i32, i32)",
                ApiVersion::StatusReturning => "(i32, i32, i32)",
                ApiVersion::StatusReturningUnified | ApiVersion::JaxFfi => {
                    "(i32, i32, i32, i32, i32)"
                }
                ApiVersion::TypedFfi => "(i32) -> i32",
            };
            assert_eq!(export.ty, ty, "{target:?}");
        }
        for stage in &target.stages {
            let name = format!("{}.{}", target.name, stage.name());
            let is_there = *stage == callbox::call::Stage::Execute
                || info.exports.iter().any(|export| export.name == name);
            assert!(is_there, "no export {name:?}");
        }
        check_inference(target);
    }
}

/// Checks that results inferred for operands as declared are accepted together with them.
fn check_inference(target: &Signature) {
    let declared = target.operands.as_deref().unwrap_or_default().iter();
    let operands: Option<Vec<_>> = declared.filter(|b| !b.optional).map(array).collect();
    let Some(operands) = operands else {
        return;
    };
    let Ok(results) = target.infer_results(&operands) else {
        return;
    };
    let of_arrays = |arrays: Vec<ArrayShape>| arrays.into_iter().map(Shape::Array).collect();
    let result = Shape::tuple(of_arrays(results)).unwrap();
    let mut site = CallSite::new(target.name.as_str(), of_arrays(operands), result);
    site.api_version = target.api_versions[0];
    // Attributes are left out.
    let target = Signature {
        attributes: None,
        ..target.clone()
    };
    assert_eq!(target.check(&site), Ok(()), "{target:?}");
}

/// Returns an array that matches the declared operand, if there is one.
fn array(declared: &BufferSignature) -> Option<ArrayShape> {
    let size = |dimension: &Dimension| match dimension {
        Dimension::Any => None,
        Dimension::Size(size) => Some(*size),
        Dimension::Symbol(_) => Some(2),
        // An expression without a size is that of a mismatch.
        Dimension::Expression(expression) => Some(expression.evaluate(|_| Some(2)).unwrap_or(2)),
    };
    let sizes: Vec<_> = match &declared.dimensions {
        Some(dimensions) => dimensions.iter().filter_map(size).collect(),
        None => vec![2; declared.rank.unwrap_or(1)],
    };
    let element_type = declared.element_types.first();
    ArrayShape::new(*element_type.unwrap_or(&ElementType::F32), &sizes).ok()
}

/// Checks that a rejection blames the module, reports no host bug, and contains no control
/// characters.
pub(crate) fn check_refusal(status: &Status, limits: &Limits) {
    assert_eq!(status.blame(), Blame::Guest, "{status}");
    assert_ne!(status.code(), StatusCode::Internal, "{status}");
    assert!(!status.message().is_empty());
    let steers = |c: char| {
        c.is_control() && c != '\n' && c != '\t' || ('\u{202a}'..='\u{202e}').contains(&c)
    };
    assert!(
        !status.message().chars().any(steers),
        "{:?}",
        status.message()
    );
    assert!(
        status.message().len() <= limits.message_bytes + 64,
        "a message of {} bytes",
        status.message().len()
    );
}
