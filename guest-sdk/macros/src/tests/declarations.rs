//! Tests of the traits of targets, and of derivatives.

use super::{expand, refusal};

#[test]
fn elementwise_targets_have_one_list_of_dimensions() {
    let function = |x: &str, y: &str| {
        format!(
            "fn f(#[dimensions({x})] x: &Operand<f32>, #[dimensions()] k: &Operand<f32>, \
             #[dimensions({y})] y: &mut ResultBuffer<f32>) {{}}"
        )
    };
    for any in ["4", "n, n", ".., n, 1"] {
        assert_eq!(
            refusal("elementwise", &function(any, any)),
            "an elementwise target takes arrays of any size: expected `..` and names, each at most once"
        );
        assert!(expand("pure", &function(any, any)).is_ok());
    }
    assert_eq!(
        refusal("elementwise", &function("..", "n")),
        "the operands and results of an elementwise target have the same dimensions, except operands of rank 0"
    );
    let code = expand("elementwise", &function(".., n", ".., n")).unwrap();
    let code = code.replace(' ', "");
    assert!(code.contains("&[\"pure\",\"elementwise\"]"), "{code}");
    let both = expand("pure, elementwise", &function("..", "..")).unwrap();
    assert!(
        both.replace(' ', "")
            .contains("&[\"pure\",\"elementwise\"]")
    );
    let list = "dimensions:::core::option::Option::Some(&[__callbox::Dimension::Any,__callbox::Dimension::Symbol(\"n\")])";
    assert_eq!(code.matches(list).count(), 2, "{code}");
}

#[test]
fn results_of_targets_with_rows_have_rows() {
    let function = |x: &str, w: &str, y: &str| {
        format!(
            "fn f(#[dimensions({x})] x: &Operand<f32>, #[dimensions({w})] w: &Operand<f32>, \
             #[dimensions({y})] y: &mut ResultBuffer<f32>) {{}}"
        )
    };
    for y in ["n", "", "4, n"] {
        assert_eq!(
            refusal("rows", &function(".., n", "n", y)),
            "a target with rows has them in each result: expected dimensions that begin with `..`"
        );
        assert!(expand("pure", &function(".., n", "n", y)).is_ok());
    }
    assert_eq!(
        refusal(
            "rows",
            "fn f(x: &Operand<f32>, y: &mut ResultBuffer<f32>) {}"
        ),
        "a target with rows declares them: expected dimensions that begin with `..`"
    );
    assert_eq!(
        refusal("name = \"f\", stage = prepare, rows", "fn f() {}"),
        "rows are declared in stage execute, for all stages"
    );
    let code = expand("rows", &function(".., n", "n", ".., n, 2")).unwrap();
    let code = code.replace(' ', "");
    assert!(code.contains("&[\"pure\",\"rows\"]"), "{code}");
}

#[test]
fn targets_that_take_batches_declare_them() {
    let function = |x: &str, w: &str, y: &str| {
        format!(
            "fn f(#[dimensions({x})] x: &Operand<f32>, #[dimensions({w})] w: &Operand<f32>, \
             #[dimensions({y})] y: &mut ResultBuffer<f32>) {{}}"
        )
    };
    for (x, w, y, message) in [
        (
            "batch, n",
            "n",
            "n",
            "a target that takes batches has one in each result: expected dimensions that begin with `batch`",
        ),
        (
            "batch, n",
            "n, batch",
            "batch",
            "`batch` is the first dimension alone",
        ),
        (
            "n",
            "n",
            "batch",
            "a target that takes batches declares them: expected dimensions that begin with `batch`",
        ),
    ] {
        assert_eq!(refusal("batched", &function(x, w, y)), message);
        assert!(expand("pure", &function(x, w, y)).is_ok());
    }
    assert_eq!(
        refusal("rows, batched", &function("batch, n", "n", ".., n")),
        "a target has one of the traits `elementwise`, `rows` and `batched`, found two"
    );
    assert_eq!(
        refusal("name = \"f\", stage = prepare, batched", "fn f() {}"),
        "a batch is declared in stage execute, for all stages"
    );
    let code = expand("batched", &function("batch, n", "n", "batch")).unwrap();
    let code = code.replace(' ', "");
    assert!(code.contains("&[\"pure\",\"batched\"]"), "{code}");
}

#[test]
fn derivatives_name_their_targets() {
    let function = |marker: &str| format!("#[derivative_of{marker}] fn f() {{}}");
    for (marker, expected) in [
        ("(softmax)", "(\"softmax\",\"vjp\")"),
        ("(softmax, vjp)", "(\"softmax\",\"vjp\")"),
        ("(\"a.b\", jvp)", "(\"a.b\",\"jvp\")"),
        ("(r#type)", "(\"type\",\"vjp\")"),
    ] {
        let code = expand("", &function(marker)).unwrap().replace(' ', "");
        assert!(
            code.contains(&format!(".with_derivative_of{expected}")),
            "{code}"
        );
    }
    assert!(!expand("", "fn f() {}").unwrap().contains("derivative"));
    for (marker, message) in [
        (
            "()",
            "expected the name of a target, such as `#[derivative_of(softmax)]`",
        ),
        (
            "(4)",
            "expected the name of a target, such as `#[derivative_of(softmax)]`",
        ),
        ("(softmax, grad)", "expected `vjp` or `jvp`, found `grad`"),
        ("(softmax jvp)", "expected `,`"),
        (
            "(memory)",
            "`memory` is reserved for the WebAssembly module",
        ),
    ] {
        assert_eq!(refusal("", &function(marker)), message, "{marker}");
    }
    assert_eq!(
        refusal("", "#[derivative_of(g)] #[derivative_of(h)] fn f() {}"),
        "a target takes `#[derivative_of(...)]` once"
    );
    let staged = "#[derivative_of(g)] fn f() -> Result<(), Failure> { Ok(()) }";
    assert_eq!(
        refusal("name = \"f\", stage = prepare", staged),
        "a derivative is declared in stage execute, for all stages"
    );
}
