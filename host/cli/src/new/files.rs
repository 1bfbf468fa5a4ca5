//! The files of a new kernel: templates, and a copy of the SDK.

use super::Form;
use crate::build::{Language, SDK};

/// The files of the SDK, with their paths in the repository.
const SDK_FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sdk_files.rs"));

/// A file of a new kernel.
struct Template {
    path: &'static str,
    elementwise: &'static str,
    rows: &'static str,
}

/// The template of a path: one for both forms, or one for each.
macro_rules! template {
    ($path:literal, $text:literal) => {
        template!($path, $text, $text)
    };
    ($path:literal, $elementwise:literal, $rows:literal) => {
        Template {
            path: $path,
            elementwise: include_str!(concat!($elementwise, ".in")),
            rows: include_str!(concat!($rows, ".in")),
        }
    };
}

const SHARED: &[Template] = &[
    template!("callbox-package.json", "package.json"),
    template!("README.md", "README.md"),
    template!(".gitignore", "gitignore"),
    template!(".github/workflows/ci.yml", "ci.yml"),
    template!("cases/NAME.json", "elementwise_case.json", "rows_case.json"),
    template!(
        "benches/NAME.json",
        "elementwise_bench.json",
        "rows_bench.json"
    ),
];

const RUST: &[Template] = &[
    template!("Cargo.toml", "rust/Cargo.toml"),
    template!(".cargo/config.toml", "rust/config.toml"),
    template!("src/lib.rs", "rust/elementwise.rs", "rust/rows.rs"),
    template!("benches/native.rs", "rust/native.rs"),
];

const C: &[Template] = &[
    template!("src/NAME.c", "c/elementwise.c", "c/rows.c"),
    template!("src/NAME.h", "c/elementwise.h", "c/rows.h"),
    template!("tests/NAME.c", "c/elementwise_test.c", "c/rows_test.c"),
    template!("benches/native.c", "c/native.c"),
];

const PYTHON: &[Template] = &[
    template!("NAME.py", "python/elementwise.py", "python/rows.py"),
    template!(
        "tests/test_NAME.py",
        "python/elementwise_test.py",
        "python/rows_test.py"
    ),
    template!("benches/native.py", "python/native.py"),
];

/// What the CI file installs besides callbox.
const CI_TOOLS: [(Language, &str); 3] = [
    (
        Language::Rust,
        "      - run: rustup target add wasm32-unknown-unknown",
    ),
    (
        Language::C,
        "      - run: sudo apt-get update && sudo apt-get install --yes clang-19 lld-19",
    ),
    (
        Language::Python,
        "      - run: rustup target add wasm32-unknown-unknown\n      \
         - run: cd \"$RUNNER_TEMP/callbox\" && cargo xtask guests && pip install './python[jit]'",
    ),
];

/// Returns the files of a kernel: paths in its folder, and texts.
pub(super) fn files(name: &str, language: Language, form: Form) -> Vec<(String, String)> {
    let is_rows = form == Form::Rows;
    let choose = |rows: &'static str, elementwise| if is_rows { rows } else { elementwise };
    let description = choose(
        "Subtracts the mean of each row of x from the row.",
        "Multiplies each element of x by factor.",
    );
    let tools = CI_TOOLS.iter().find(|(of, _)| *of == language);
    let tools = tools.map_or("", |(_, tools)| tools);
    let (own, elements) = match language {
        Language::Rust => (RUST, "1_000_000"),
        Language::C => (C, "1000000"),
        Language::Python => (PYTHON, "1_000_000"),
    };
    let fill = |text: &str| {
        text.replace("NAME", name)
            .replace("DESCRIPTION", description)
            .replace("VERSION", env!("CARGO_PKG_VERSION"))
            .replace("TOOLS", tools)
            .replace("ELEMENTS", elements)
            .replace("DIMENSIONS", choose("1000, 1000", "1_000_000"))
            .replace(
                "ATTRIBUTE",
                choose(
                    "",
                    match language {
                        Language::Python => ", factor=2.0",
                        Language::Rust | Language::C => {
                            "    call.attribute(\"factor\", 2.0_f32);\n"
                        }
                    },
                ),
            )
            .replace(
                "COMPUTE",
                choose("compute(x, 1000, 1000, y)", "compute(x, COUNT, 2.0f, y)"),
            )
    };
    let templates = SHARED.iter().chain(own);
    let files = templates.map(|template| {
        let text = choose(template.rows, template.elementwise);
        (template.path.replace("NAME", name), fill(text))
    });
    files.chain(sdk(language)).collect()
}

/// The copy of the SDK that a kernel in this language needs.
fn sdk(language: Language) -> impl Iterator<Item = (String, String)> {
    let is_needed = move |path: &str| {
        let is_for_c = path.starts_with("guest-sdk/include/") || path.ends_with(".cfg");
        match language {
            Language::Rust => !is_for_c,
            Language::C => is_for_c || path.starts_with("LICENSE"),
            Language::Python => false,
        }
    };
    let files = SDK_FILES.iter().filter(move |(path, _)| is_needed(path));
    files.map(|(path, text)| (format!("{SDK}/{path}"), (*text).to_owned()))
}
