//! `callbox diff`.

use serde_json::Value;

use crate::guests::NEGATE;
use crate::packages::{CASE, HEADER, folder, refuse};

#[test]
fn a_difference_is_what_a_user_should_care_about() {
    let folder = folder();
    folder.run(&["pack", "k", "-o", "old.wasm"]).done();
    let same = folder.run(&["diff", "old.wasm", "old.wasm"]).done();
    assert!(same.ends_with("\nnothing changed\n"), "{same}");
    folder
        .module(
            "k/negate.wasm",
            &NEGATE.replace(
                "(module",
                "(module\n  (func (export \"more\") (param i32) (result i32) (i32.const 0))",
            ),
        )
        .write("k/callbox-package.json", HEADER.replace("1.0.0", "1.1.0"))
        .write("k/LICENSE", "MIT")
        .write(
            "k/cases/three.json",
            CASE.replace("IEEE 754", "IEEE 754-2019"),
        );
    folder.run(&["pack", "k", "-o", "new.wasm"]).done();
    let shown = folder.run(&["diff", "old.wasm", "new.wasm"]).done();
    for part in [
        "\n  ~ package version\n      - 1.0.0\n      + 1.1.0\n",
        "\n  + target more\n      + more\n",
        "\n  ~ code module\n",
        "\n  ~ case cases/three.json\n",
        "\n  + file LICENSE\n      + 3 bytes, ",
    ] {
        assert!(shown.contains(part), "expected {part:?} in {shown}");
    }
    assert!(
        !shown.contains("README.md") && !shown.contains("loads"),
        "{shown}"
    );
    let object = folder
        .run(&["diff", "new.wasm", "old.wasm", "--json"])
        .object();
    let changes = object["diff"]["changes"].as_array().unwrap();
    let kinds: Vec<_> = changes
        .iter()
        .map(|change| change["kind"].clone())
        .collect();
    assert_eq!(kinds, ["package", "target", "code", "case", "file"]);
    assert_eq!(changes[0]["old"], "1.1.0");
    assert_eq!(changes[4]["new"], Value::Null);

    // A module that asks for more than the default policy grants.
    folder.module(
        "greedy.wasm",
        &NEGATE.replace(
            "(module",
            "(module\n  (import \"env\" \"system\" (func (param i32)))",
        ),
    );
    let shown = folder.run(&["diff", "k/negate.wasm", "greedy.wasm"]).done();
    for part in [
        "\n  ~ loads with the default policy\n      - yes\n      + no: PERMISSION_DENIED: ",
        "\n  + import env system\n      + (i32)\n",
    ] {
        assert!(shown.contains(part), "expected {part:?} in {shown}");
    }
    refuse(
        &folder,
        &["diff", "none.wasm", "new.wasm"],
        2,
        "NOT_FOUND",
        "none.wasm",
    );
}
