//! Manifests that are refused, and their errors.

use super::super::Manifest;
use super::{EVERYTHING, LEAST};

fn message(text: &str) -> String {
    match Manifest::parse(text) {
        Ok(_) => String::new(),
        Err(status) => {
            assert_eq!(status.code().name(), "INVALID_ARGUMENT");
            status.message().to_owned()
        }
    }
}

/// Replaces a piece of the sample's text.
#[test]
fn each_failure_has_line_path_expected_and_found() {
    for (piece, other, expected) in [
        (
            "\"format\": 1",
            "\"format\": 2",
            "line 3: format: expected the format 1, found 2",
        ),
        (
            "\"format\": 1",
            "\"format\": \"1\"",
            "line 3: format: expected an integer of 0 or more, found \"1\"",
        ),
        (
            "\"format\": 1",
            "\"format\": 1.0",
            "line 3: format: expected an integer of 0 or more, found 1.0",
        ),
        (
            "\"format\": 1,",
            "",
            "line 1: expected the field format, found none",
        ),
        (
            "\"format\": 1",
            "\"formt\": 1",
            "line 3: formt: expected one of the fields $schema, format, images, targets, found \"formt\"; did you mean \"format\"?",
        ),
        (
            "\"file\": \"other.cu\"",
            "\"fil\": 3",
            "line 11: images[1].fil: expected one of the fields name, file, source, source_sha256, found \"fil\"; did you mean \"file\"?",
        ),
        (
            "\"other.cu\"",
            "\"other.so\"",
            "line 11: images[1].file: expected a file that ends in .ptx, .cubin, .fatbin or .cu, found \"other.so\"",
        ),
        (
            "\"other.cu\"",
            "\"other\"",
            "line 11: images[1].file: expected a file that ends in .ptx, .cubin, .fatbin or .cu, found \"other\"",
        ),
        (
            "\"name\": \"other\"",
            "\"name\": \"scale\"",
            "line 11: images[1]: expected each name once, found \"scale\" again",
        ),
        (
            "\"name\": \"other\"",
            "\"name\": 5",
            "line 11: images[1].name: expected a string, found 5",
        ),
        (
            "\"name\": \"other\"",
            "\"name\": \"o\", \"name\": \"p\"",
            "line 11: images[1]: expected each field once, found \"name\" again",
        ),
        (
            "\"source\": \"scale.cu\",",
            "",
            "line 5: images[0]: expected source with source_sha256, found none",
        ),
        (
            "abcdef0123456789abcdef\"",
            "ABCDEF0123456789ABCDEF\"",
            "line 9: images[0].source_sha256: expected 64 lower-case hexadecimal digits, found \"0123456789abcdef0123456789abcdef0123456789ABCDEF0123456789ABCDEF\"",
        ),
        (
            "\"file\": \"other.cu\"",
            "\"file\": \"other.cu\", \"source\": \"o.cu\"",
            "line 11: images[1]: expected no source of \"other.cu\", which is a source, found one",
        ),
        (
            "API_VERSION_STATUS_RETURNING_UNIFIED",
            "API_VERSION_JAX_FFI",
            "line 19: targets[0].api_versions[1]: expected one of API_VERSION_TYPED_FFI, API_VERSION_ORIGINAL, API_VERSION_STATUS_RETURNING, API_VERSION_STATUS_RETURNING_UNIFIED, found \"API_VERSION_JAX_FFI\"; did you mean \"API_VERSION_TYPED_FFI\"?",
        ),
        (
            "API_VERSION_STATUS_RETURNING_UNIFIED",
            "API_VERSION_TYPED_FFI",
            "line 19: targets[0].api_versions[1]: expected API_VERSION_TYPED_FFI once, found it again",
        ),
        (
            "\"rank\": 2, \"optional\": false},\n",
            "\"rank\": 256},\n",
            "line 22: targets[0].operands[0]: expected a rank of at most 255, found 256",
        ),
        (
            "\"rank\": 2, \"optional\": false},\n",
            "\"optional\": true},\n {},",
            "line 21: targets[0].operands: expected what is optional behind what is not, found it before",
        ),
        (
            "[\"..\", \"n\", 4]",
            "[\"n\", \"..\"]",
            "line 22: targets[0].operands[0]: expected \"..\" as the first of the dimensions alone, found it as number 1",
        ),
        (
            "[\"..\", \"n\", 4]",
            "[-1]",
            "line 22: targets[0].operands[0].dimensions[0]: expected a size of 0 or more, a symbol or \"..\", found -1",
        ),
        (
            "[\"..\", \"n\", 4]",
            "[\"n\"]",
            "line 22: targets[0].operands[0]: expected the rank that the dimensions [n] have, found 2",
        ),
        (
            "[\"pure\", ",
            "[\"elementwise\", ",
            "line 16: targets[0]: expected a target of the trait elementwise to be called by API_VERSION_TYPED_FFI alone, found API_VERSION_STATUS_RETURNING_UNIFIED",
        ),
        (
            "\"x\", \"element_types\": [\"f32\"",
            "\"x\", \"element_types\": [\"float\"",
            "line 22: targets[0].operands[0]: expected an element type such as f32, found \"float\"",
        ),
        (
            "\"kind\": \"scalar\"",
            "\"kind\": \"pointer\"",
            "line 28: targets[0].attributes[0]: attribute \"n\": expected the kind scalar, array, string, dictionary or function, found \"pointer\"",
        ),
        (
            "[{\"name\": \"n\",",
            "[{\"name\": \"n\", \"kind\": \"string\"}, {\"name\": \"n\",",
            "line 28: targets[0].attributes[1]: expected each name once, found \"n\" again",
        ),
        (
            "[{\"name\": \"n\",",
            "[{\"name\": \"n\", \"fields\": [],",
            "line 28: targets[0].attributes[0]: attribute \"n\": expected fields of the kind dictionary alone, found them beside \"scalar\"",
        ),
        (
            "[{\"name\": \"n\",",
            "[{\"name\": \"d\", \"kind\": \"dictionary\", \"fields\": [{\"name\": \"a\", \"kind\": \"real\"}]}, {\"name\": \"n\",",
            "line 28: targets[0].attributes[0].fields[0]: attribute \"a\": expected the kind scalar, array, string, dictionary or function, found \"real\"",
        ),
        (
            "\"kind\": \"scalar\"",
            "\"kind\": \"string\", \"variants\": {\"Up\": 1}",
            "line 28: targets[0].attributes[0]: attribute \"n\": expected variants of the kind scalar alone, found them beside \"string\"",
        ),
        (
            "\"kind\": \"scalar\"",
            "\"kind\": \"scalar\", \"variants\": {\"Up\": 0.5}",
            "line 28: targets[0].attributes[0].variants.Up: expected an integer of 64 bits, found 0.5",
        ),
        (
            "\"kind\": \"scalar\"",
            "\"kind\": \"scalar\", \"variants\": {\"Up\": 18446744073709551616}",
            "line 28: targets[0].attributes[0].variants.Up: expected an integer of 64 bits, found 1.8446744073709552e+19",
        ),
        (
            "\"kind\": \"scalar\"",
            "\"kind\": \"scalar\", \"variants\": {\"Up\": 1, \"Up\": 2}",
            "line 28: targets[0].attributes[0].variants: expected each field once, found \"Up\" again",
        ),
        (
            "\"kind\": \"scalar\"",
            "\"kind\": \"scalar\", \"variants\": {\"U\\\"\": 1}",
            "line 28: targets[0].attributes[0].variants: expected a name of 1 to 1024 bytes without quotation marks, backslashes, and control and invisible characters, found \"U\\\"\"",
        ),
        (
            "\"kind\": \"scalar\"",
            "\"kind\": \"scalar\", \"variants\": [\"Up\"]",
            "line 28: targets[0].attributes[0].variants: expected an object of at most 4096 fields, found a list of 1",
        ),
        (
            "\"code\": \"OUT_OF_RANGE\"",
            "\"code\": \"OUT_OF_RANG\"",
            "line 32: targets[0].checks[0].code: expected the name of a failure such as INVALID_ARGUMENT, found \"OUT_OF_RANG\"; did you mean \"OUT_OF_RANGE\"?",
        ),
        (
            "\"code\": \"OUT_OF_RANGE\"",
            "\"code\": \"OK\"",
            "line 32: targets[0].checks[0].code: expected the name of a failure such as INVALID_ARGUMENT, found \"OK\"",
        ),
        (
            "{{as many}}",
            "{as",
            "line 33: targets[0].checks[0].message: expression \"as elements, found {operands[0].elements\", column 20: expected a number, a name or an operator, found '{'",
        ),
        (
            "{{as many}}",
            "}",
            "line 33: targets[0].checks[0].message: expected braces in pairs, and {{ and }} for a brace, found one alone",
        ),
        (
            "by {attributes.n}",
            "by {attributes.n",
            "line 33: targets[0].checks[0].message: expected braces in pairs, and {{ and }} for a brace, found one alone",
        ),
        (
            "by {attributes.n}",
            "by {attributes.m}",
            "line 33: targets[0].checks[0].message: expression \"attributes.m\", column 1: expected an attribute that is declared, found attributes.m",
        ),
        (
            "== results[0].elements\"",
            "- results[0].elements\"",
            "line 31: targets[0].checks[0].require: expression \"operands[0].elements - results[0].elements\", column 1: expected a truth value, found an integer",
        ),
        (
            "\"0\"]",
            "\"0 +\"]",
            "line 36: targets[0].scratch[1]: expression \"0 +\", column 4: expected a value, found its end",
        ),
        (
            "\"image\": \"scale\"",
            "\"image\": \"scal\"",
            "line 39: targets[0].launches[0].image: expected the name of one of the 4 images, found \"scal\"; did you mean \"scale\"?",
        ),
        (
            "\"entry\": \"scale\"",
            "\"entry\": \"\"",
            "line 40: targets[0].launches[0].entry: expected a kernel's name, of at most 1024 letters, digits, _ and $, found \"\"",
        ),
        (
            "\"entry\": \"scale\"",
            "\"entry\": \"a\\u0000b\"",
            "line 40: targets[0].launches[0].entry: expected a kernel's name, of at most 1024 letters, digits, _ and $, found \"a\\0b\"",
        ),
        (
            "\"entry\": \"scale\"",
            "\"entry\": \"3d\"",
            "line 40: targets[0].launches[0].entry: expected a kernel's name, of at most 1024 letters, digits, _ and $, found \"3d\"",
        ),
        (
            "{\"scratch\": 0}",
            "{\"scratch\": 2}",
            "line 45: targets[0].launches[0].parameters[2].scratch: expected one of the 2 scratch buffers that are declared, found 2",
        ),
        (
            "{\"scratch\": 0}",
            "{\"scratch\": -1}",
            "line 45: targets[0].launches[0].parameters[2].scratch: expected an integer of 0 or more, found -1",
        ),
        (
            "{\"scratch\": 0}",
            "{\"scratch\": 0, \"result\": 0}",
            "line 45: targets[0].launches[0].parameters[2]: expected one of the fields operand, result and scratch, or value with type, found others",
        ),
        (
            "{\"scratch\": 0}",
            "{}",
            "line 45: targets[0].launches[0].parameters[2]: expected one of the fields operand, result and scratch, or value with type, found others",
        ),
        (
            "\"type\": \"u32\"",
            "\"type\": \"int\"",
            "line 46: targets[0].launches[0].parameters[3].type: expected one of s8, u8, s16, u16, s32, u32, s64, u64, f16, bf16, f32, f64, pred, found \"int\"",
        ),
        (
            "\"type\": \"u32\"",
            "\"type\": \"pred\"",
            "line 46: targets[0].launches[0].parameters[3].value: expression \"operands[0].dims[-1]\", column 1: expected a truth value, found an integer",
        ),
        (
            ", \"type\": \"u32\"",
            "",
            "line 46: targets[0].launches[0].parameters[3]: expected one of the fields operand, result and scratch, or value with type, found others",
        ),
        (
            "\"value\": \"attributes.n\", \"type\": \"f32\"",
            "\"value\": \"attributes.n\", \"type\": \"s32\"",
            "line 48: targets[0].launches[0].parameters[5].value: expression \"attributes.n\", column 1: expected an integer, found a floating-point number",
        ),
        (
            "\"16\", \"16\", \"1\"",
            "",
            "line 52: targets[0].launches[0].block: expected 1 to 3 sizes, found 0",
        ),
        (
            "\"16\", \"16\", \"1\"",
            "\"1\", \"1\", \"1\", \"1\"",
            "line 52: targets[0].launches[0].block: expected 1 to 3 sizes, found 4",
        ),
        (
            "\"16\", \"16\", \"1\"",
            "256",
            "line 52: targets[0].launches[0].block[0]: expected a string, found 256",
        ),
        (
            "\"remaining_operands\": true",
            "\"remaining_operands\": 1",
            "line 25: targets[0].remaining_operands: expected true or false, found 1",
        ),
        (
            "\"$schema\": \"../../../../callbox.schema.json\"",
            "\"$schema\": []",
            "line 2: $schema: expected a string, found a list of 0",
        ),
    ] {
        assert!(EVERYTHING.contains(piece), "{piece}");
        assert_eq!(
            message(&EVERYTHING.replacen(piece, other, 1)),
            expected,
            "{other}"
        );
    }
}

#[test]
fn files_stay_in_the_manifests_folder() {
    for (file, is_read) in [
        ("a.ptx", true),
        ("folder/a.b.ptx", true),
        ("..a/b...ptx", true),
        ("/etc/a.ptx", false),
        ("../a.ptx", false),
        ("a/../../b.ptx", false),
        ("a/./b.ptx", false),
        ("a//b.ptx", false),
        ("./a.ptx", false),
        ("..", false),
        ("a.ptx/", false),
        ("C:/a.ptx", false),
        ("file:a.ptx", false),
        ("a\\\\b.ptx", false),
        ("..\\\\a.ptx", false),
        ("a\\u0000.ptx", false),
        ("a\\n.ptx", false),
        ("a\\u202e.ptx", false),
        ("", false),
    ] {
        for object in [
            format!(r#"{{"name": "i", "file": "{file}"}}"#),
            format!(
                r#"{{"name": "i", "file": "i.ptx", "source": "{file}", "source_sha256": "{}"}}"#,
                "0".repeat(64)
            ),
        ] {
            let text = LEAST.replace("\"images\": []", &format!("\"images\": [{object}]"));
            assert_eq!(
                message(&text).is_empty(),
                is_read,
                "{file}: {}",
                message(&text)
            );
        }
    }
}

#[test]
fn hostile_texts_are_refused() {
    let nul = |name: &str| LEAST.replace("nothing", name);
    let wide = format!("{{\"format\": [{}]}}", vec!["0"; 5000].join(","));
    let target = r#"{"name": "f", "launches": []}"#;
    let many = format!(
        r#"{{"format": 1, "images": [], "targets": [{}]}}"#,
        vec![target; 5000].join(",")
    );
    for (text, expected) in [
        (
            String::new(),
            "expected JSON: EOF while parsing a value at line 1 column 0",
        ),
        (
            "[".repeat(10_000),
            "expected JSON: recursion limit exceeded at line 1 column 128",
        ),
        (
            "{\"a\":".repeat(10_000),
            "expected JSON: recursion limit exceeded at line 1 column 636",
        ),
        (
            "[]".to_owned(),
            "line 1: expected an object, found a list of 0",
        ),
        ("null".to_owned(), "line 1: expected an object, found null"),
        (LEAST.to_owned() + "x", "expected JSON: trailing characters"),
        (
            LEAST.replace("[]", "[1e400]"),
            "expected JSON: number out of range",
        ),
        (
            " ".repeat(5 << 20),
            "expected a manifest of at most 4194304 bytes, found 5242880",
        ),
        (
            wide,
            "line 1: format: expected an integer of 0 or more, found a list of 5000",
        ),
        (
            many,
            "line 1: targets: expected a list of at most 4096, found a list of 5000",
        ),
        (
            nul("a\\u0000b"),
            "line 1: targets[0].name: expected a name of 1 to 1024 bytes",
        ),
        (
            nul(""),
            "line 1: targets[0].name: expected a name of 1 to 1024 bytes",
        ),
        (
            nul(&"n".repeat(1025)),
            "line 1: targets[0].name: expected a name of 1 to 1024 bytes",
        ),
        (
            nul("a\\u200bb"),
            "line 1: targets[0].name: expected a name of 1 to 1024 bytes",
        ),
        (
            nul("a\\ud800"),
            "expected JSON: unexpected end of hex escape",
        ),
        (
            LEAST.replace("]}]}", "]}, {\"name\": \"nothing\", \"launches\": []}]}"),
            "line 1: targets[1]: expected each name once, found \"nothing\" again",
        ),
        (
            LEAST.replace(", \"launches\": []", ""),
            "line 1: targets[0]: expected the field launches, found none",
        ),
        (
            r#"{"format": 1, "images": [], "targets": []}"#.to_owned(),
            "line 1: targets: expected at least one target, found none",
        ),
    ] {
        let found = message(&text);
        assert!(found.starts_with(expected), "{expected}, found {found}");
        assert!(found.len() < 1000, "{}", found.len());
    }
    let field = format!("{{\"{}\": 1}}", "\\n\\u001b".repeat(50_000));
    let found = message(&field);
    assert!(found.len() < 1000 && !found.contains('\u{1b}'), "{found}");
}

/// Every prefix of a manifest is refused, whatever its last byte is.
#[test]
fn beginnings_of_a_manifest_are_refused() {
    let end = EVERYTHING.trim_end().len();
    for end in 0..end {
        assert!(!message(&EVERYTHING[..end]).is_empty(), "{end}");
    }
}
