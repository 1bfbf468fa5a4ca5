//! Prints the attributes of instructions that work on windows of arrays.

use super::numbers;
use crate::hlo::attributes::windows::Names;
use crate::instruction::{Convolution, ConvolutionDimensions, IndexedWindows, WindowDimension};

/// The attributes of a gather or a scatter but the windows' sizes. Batch dimensions are printed if
/// there are any, as XLA does.
pub(super) fn indexed_windows(windows: &IndexedWindows, names: Names) -> String {
    let [window, collapsed, map, operand_batch, indices_batch] = names;
    let mut text = format!(
        ", {window}={}, {collapsed}={}, {map}={}",
        numbers(&windows.window_dimensions),
        numbers(&windows.collapsed),
        numbers(&windows.index_map)
    );
    if !windows.operand_batch.is_empty() {
        text += &format!(
            ", {operand_batch}={}, {indices_batch}={}",
            numbers(&windows.operand_batch),
            numbers(&windows.indices_batch)
        );
    }
    text + &format!(", index_vector_dim={}", windows.index_vector)
}

/// The attribute `window`, with the fields that differ from their defaults.
pub(super) fn window(window: &[WindowDimension]) -> String {
    if window.is_empty() {
        return String::new();
    }
    let mut text = String::from(", window={size=");
    text += &joined(window, |dimension| dimension.size.to_string());
    let mut field = |name: &str, default: &str, value: fn(&WindowDimension) -> String| {
        if window.iter().any(|dimension| value(dimension) != default) {
            text += &format!(" {name}={}", joined(window, value));
        }
    };
    field("stride", "1", |dimension| dimension.stride.to_string());
    field("pad", "0_0", |dimension| {
        format!("{}_{}", dimension.low, dimension.high)
    });
    field("lhs_dilate", "1", |dimension| {
        dimension.base_dilation.to_string()
    });
    field("rhs_dilate", "1", |dimension| {
        dimension.window_dilation.to_string()
    });
    field("rhs_reversal", "0", |dimension| {
        u8::from(dimension.is_reversed).to_string()
    });
    text + "}"
}

fn joined(window: &[WindowDimension], value: impl Fn(&WindowDimension) -> String) -> String {
    Vec::from_iter(window.iter().map(value)).join("x")
}

/// The attributes of a convolution.
pub(super) fn convolution(convolution: &Convolution) -> String {
    let mut text = format!(
        "{}, dim_labels={}_{}->{}",
        window(&convolution.window),
        labels(&convolution.input, 'b', 'f'),
        labels(&convolution.kernel, 'o', 'i'),
        labels(&convolution.output, 'b', 'f')
    );
    for (name, groups) in [
        ("feature_group_count", convolution.feature_groups),
        ("batch_group_count", convolution.batch_groups),
    ] {
        if groups != 1 {
            text += &format!(", {name}={groups}");
        }
    }
    text
}

fn labels(dimensions: &ConvolutionDimensions, outer: char, features: char) -> String {
    let label = |at: usize| {
        let spatial = dimensions.spatial.iter().position(|&other| other == at);
        match spatial.and_then(|number| char::from_digit(number as u32, 10)) {
            Some(digit) => digit,
            None if at == dimensions.outer => outer,
            None => features,
        }
    };
    (0..dimensions.spatial.len() + 2).map(label).collect()
}
