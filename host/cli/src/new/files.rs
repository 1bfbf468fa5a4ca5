//! The files of a new kernel: templates, and a copy of the SDK.

use super::Form;
use crate::build::{Language, SDK};

/// The files of the SDK, with their paths in the repository.
const SDK_FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/sdk_files.rs"));

/// The template of this name.
macro_rules! template {
    ($name:literal) => {
        include_str!(concat!($name, ".in"))
    };
}

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
    let ignored = "/target/\n/*.wasm\n__pycache__/\n";
    let case = choose(
        template!("rows_case.json"),
        template!("elementwise_case.json"),
    );
    let bench = choose(
        template!("rows_bench.json"),
        template!("elementwise_bench.json"),
    );
    let mut files = vec![
        ("callbox-package.json", template!("package.json")),
        ("README.md", template!("README.md")),
        (".gitignore", ignored),
        (".github/workflows/ci.yml", template!("ci.yml")),
        ("cases/NAME.json", case),
        ("benches/NAME.json", bench),
    ];
    files.extend(match language {
        Language::Rust => vec![
            ("Cargo.toml", template!("rust/Cargo.toml")),
            (".cargo/config.toml", template!("rust/config.toml")),
            (
                "src/lib.rs",
                choose(template!("rust/rows.rs"), template!("rust/elementwise.rs")),
            ),
            ("benches/native.rs", template!("rust/native.rs")),
        ],
        Language::C => vec![
            (
                "src/NAME.c",
                choose(template!("c/rows.c"), template!("c/elementwise.c")),
            ),
            (
                "src/NAME.h",
                choose(template!("c/rows.h"), template!("c/elementwise.h")),
            ),
            (
                "tests/NAME.c",
                choose(
                    template!("c/rows_test.c"),
                    template!("c/elementwise_test.c"),
                ),
            ),
            ("benches/native.c", template!("c/native.c")),
        ],
        Language::Python => vec![
            (
                "NAME.py",
                choose(
                    template!("python/rows.py"),
                    template!("python/elementwise.py"),
                ),
            ),
            (
                "tests/test_NAME.py",
                choose(
                    template!("python/rows_test.py"),
                    template!("python/elementwise_test.py"),
                ),
            ),
        ],
    });
    let elements = match language {
        Language::C => "1000000",
        Language::Rust | Language::Python => "1_000_000",
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
                choose("", "    call.attribute(\"factor\", 2.0_f32);\n"),
            )
            .replace(
                "COMPUTE",
                choose("compute(x, 1000, 1000, y)", "compute(x, COUNT, 2.0f, y)"),
            )
    };
    let files = files.into_iter();
    let mut files: Vec<_> = files
        .map(|(path, text)| (path.replace("NAME", name), fill(text)))
        .collect();
    files.extend(sdk(language));
    files
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
