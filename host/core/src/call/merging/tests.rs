#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use crate::call::signature::json;
use crate::call::{ApiVersion, Stage};

/// `f(x[batch, n], w[n]) -> y[batch, n]`.
fn target(traits: &[&str]) -> Signature {
    let buffers = |list: &str| json::buffers(serde_json::from_str(list).unwrap()).unwrap();
    let x = r#"{"name": "x", "dimensions": ["batch", "n"]}"#;
    let w = r#"{"name": "w", "dimensions": ["n"]}"#;
    Signature {
        name: "f".to_owned(),
        api_versions: vec![ApiVersion::TypedFfi],
        stages: vec![Stage::Execute],
        operands: Some(buffers(&format!("[{x}, {w}]"))),
        results: Some(buffers(&format!("[{x}]"))),
        traits: traits.iter().map(|&name| name.to_owned()).collect(),
        ..Signature::default()
    }
}

/// The call site for a whole batch of so many dimensions as text, and the number of elements.
fn merge(
    target: &Signature,
    operands: [&str; 2],
    result: &str,
    dimensions: usize,
) -> Option<(String, usize)> {
    let operands = operands.map(|text| text.parse().unwrap()).to_vec();
    let site = CallSite::new("f", operands, result.parse().unwrap());
    let (element, batch) = Batch::split(&site, dimensions).unwrap();
    let (site, count) = merged(std::slice::from_ref(target), &element, &batch)?;
    let operands: Vec<_> = site.operands.iter().map(ToString::to_string).collect();
    Some((format!("{} -> {}", operands.join(" "), site.result), count))
}

#[test]
fn a_whole_batch_is_one_call() {
    let target = target(&["batched"]);
    assert_eq!(
        merge(&target, ["f32[7,2,3]", "f32[1,3]"], "f32[7,2,3]", 1),
        Some(("f32[14,3] f32[3] -> f32[14,3]".to_owned(), 7))
    );
    assert_eq!(
        merge(&target, ["f32[5,7,2,3]", "f32[1,1,3]"], "f32[5,7,2,3]", 2),
        Some(("f32[70,3] f32[3] -> f32[70,3]".to_owned(), 35))
    );
    assert_eq!(
        merge(&target, ["f32[1,2,3]", "f32[1,3]"], "f32[1,2,3]", 1),
        Some(("f32[2,3] f32[3] -> f32[2,3]".to_owned(), 1))
    );
    // Operands and a result without elements.
    assert_eq!(
        merge(&target, ["f32[7,0,3]", "f32[1,3]"], "f32[7,0,3]", 1),
        Some(("f32[0,3] f32[3] -> f32[0,3]".to_owned(), 7))
    );
}

#[test]
fn arrays_that_do_not_fit_one_call_are_called_one_by_one() {
    let batched = target(&["batched"]);
    for (operands, result, dimensions) in [
        // Each element has a weight of its own.
        (["f32[7,2,3]", "f32[7,3]"], "f32[7,2,3]", 1),
        // All elements share x.
        (["f32[1,2,3]", "f32[1,3]"], "f32[7,2,3]", 1),
        (["f32[5,1,2,3]", "f32[1,1,3]"], "f32[5,7,2,3]", 2),
        (["f32[0,2,3]", "f32[1,3]"], "f32[0,2,3]", 1),
        (["f32[2,3]", "f32[3]"], "f32[2,3]", 0),
        // The merged call does not fit the declaration.
        (["f32[7,2,3]", "f32[1,4]"], "f32[7,2,3]", 1),
    ] {
        assert_eq!(
            merge(&batched, operands, result, dimensions),
            None,
            "{operands:?}"
        );
    }
    let fitting = ["f32[7,2,3]", "f32[1,3]"];
    assert_eq!(merge(&target(&["pure"]), fitting, "f32[7,2,3]", 1), None);
}
