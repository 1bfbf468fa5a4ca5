#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod plans;
mod refusals;
mod schema;

use super::{ImageKind, Manifest};
use callbox_core::call::{ApiVersion, Stage};
use callbox_core::values::ElementType;

/// A manifest with every field of every object.
const EVERYTHING: &str = include_str!("tests/everything.json");

/// The smallest manifest.
const LEAST: &str =
    r#"{"format": 1, "images": [], "targets": [{"name": "nothing", "launches": []}]}"#;

#[test]
fn every_field_is_parsed() {
    let manifest = Manifest::parse(EVERYTHING).unwrap();
    let kinds: Vec<_> = manifest.images.iter().map(|image| image.kind).collect();
    assert_eq!(
        kinds,
        [
            ImageKind::Ptx,
            ImageKind::Source,
            ImageKind::Cubin,
            ImageKind::Fatbin
        ]
    );
    let image = &manifest.images[0];
    assert_eq!(
        (image.name.as_str(), image.file.as_str()),
        ("scale", "ptx/scale.ptx")
    );
    assert_eq!(image.source.as_deref(), Some("scale.cu"));
    assert_eq!(
        image.source_sha256.as_deref(),
        Some("0123456789abcdef".repeat(4).as_str())
    );

    assert_eq!(manifest.targets.len(), 1);
    let target = &manifest.targets[0];
    let signature = &target.signature;
    assert_eq!(signature.name, "scale");
    assert_eq!(signature.documentation, "Multiplies by a number.");
    assert_eq!(
        signature.api_versions,
        [ApiVersion::TypedFfi, ApiVersion::StatusReturningUnified]
    );
    assert_eq!(signature.stages, [Stage::Execute]);
    assert!(signature.has_trait("command_buffer_compatible"));
    let operands = signature.operands.as_ref().unwrap();
    assert_eq!(operands[0].to_string(), "x: f32|f64[.., n, 4]");
    assert_eq!(operands[1].to_string(), "bias: any type[...], optional");
    assert!(signature.remaining_operands && signature.remaining_results);
    assert_eq!(signature.results.as_ref().unwrap().len(), 1);
    let attribute = &signature.attributes.as_ref().unwrap()[0];
    assert_eq!(
        (attribute.name.as_str(), attribute.kind.as_str()),
        ("n", "scalar")
    );
    assert_eq!(attribute.element_type, Some(ElementType::F32));
    assert_eq!(
        (target.launches[0].image, target.launches[0].entry.as_str()),
        (0, "scale")
    );
}

#[test]
fn missing_fields_have_defaults() {
    let manifest = Manifest::parse(LEAST).unwrap();
    let signature = &manifest.targets[0].signature;
    assert_eq!(signature.api_versions, [ApiVersion::TypedFfi]);
    assert_eq!(
        (
            &signature.operands,
            &signature.results,
            &signature.attributes
        ),
        (&None, &None, &None)
    );
}

#[test]
fn the_guides_example_is_a_manifest() {
    let guide = include_str!("../../../../guests/MANIFEST.md");
    let (_, example) = guide.split_once("```json\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let example = example.replace("<64 hexadecimal digits>", &"0".repeat(64));
    let manifest = Manifest::parse(&example).unwrap();
    assert_eq!(manifest.targets[0].signature.name, "scale");
}

/// `printf '\2\0\0\0\0\0\0\0{}\3\0\0\0\0\0\0\0abc\0\0\0\0\0\0\0\0' | sha256sum`
#[test]
fn a_digest_is_of_all_files() {
    assert_eq!(
        hex::encode(super::digest(b"{}", &[b"abc", b""])),
        "726a89a8285a2ecbf4a79ef0b5a5347bdd4a8a918175e0a8e8cbc3bd6a1e3b81"
    );
    assert_ne!(
        super::digest(b"{}", &[b"abc"]),
        super::digest(b"{}", &[b"abc", b""])
    );
    assert_ne!(
        super::digest(b"{}", &[b"a", b"b"]),
        super::digest(b"{}", &[b"b", b"a"])
    );
}
