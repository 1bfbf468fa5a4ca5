//! Attributes of instructions that work on windows of arrays.

use super::{Attributes, flag, numbers};
use crate::instruction::{Convolution, ConvolutionDimensions, IndexedWindows, WindowDimension};
use callbox_core::text::{Cursor, Diagnostic, Name, Parsed, shortened};

/// The names of the attributes that describe indexed windows, in the order of the fields of
/// [`IndexedWindows`].
pub(in crate::hlo) type Names = [&'static str; 5];

pub(in crate::hlo) const GATHER: Names = [
    "offset_dims",
    "collapsed_slice_dims",
    "start_index_map",
    "operand_batching_dims",
    "start_indices_batching_dims",
];

pub(in crate::hlo) const SCATTER: Names = [
    "update_window_dims",
    "inserted_window_dims",
    "scatter_dims_to_operand_dims",
    "input_batching_dims",
    "scatter_indices_batching_dims",
];

/// Takes the attributes of a gather or a scatter.
pub(in crate::hlo) fn indexed_windows(
    attributes: &mut Attributes<'_>,
    names: Names,
) -> Parsed<IndexedWindows> {
    let [window, collapsed, index_map, operand_batch, indices_batch] = names;
    Ok(IndexedWindows {
        window_dimensions: attributes.require(window, numbers)?.value,
        collapsed: attributes.require(collapsed, numbers)?.value,
        index_map: attributes.require(index_map, numbers)?.value,
        operand_batch: attributes.numbers(operand_batch)?,
        indices_batch: attributes.numbers(indices_batch)?,
        index_vector: attributes
            .require("index_vector_dim", Cursor::number)?
            .value,
    })
}

/// Takes the dimension of a sort, and whether it is stable.
pub(in crate::hlo) fn is_stable(attributes: &mut Attributes<'_>) -> Parsed<bool> {
    let is_stable = attributes.take("is_stable", flag)?;
    Ok(is_stable.is_some_and(|is_stable| is_stable.value))
}

/// Takes a window. A window of no dimensions may be left out.
pub(in crate::hlo) fn window(attributes: &mut Attributes<'_>) -> Parsed<Vec<WindowDimension>> {
    let window = attributes.take("window", read_window)?;
    Ok(window.map_or_else(Vec::new, |window| window.value))
}

/// Reads a window: `{size=3x3 stride=2x2 pad=0_1x0_1 lhs_dilate=1x1 rhs_dilate=1x1
/// rhs_reversal=0x0}`. All fields but `size` may be left out.
fn read_window(cursor: &mut Cursor<'_>) -> Parsed<Vec<WindowDimension>> {
    cursor.expect("{", "'{' of a window")?;
    let mut window: Option<Vec<WindowDimension>> = None;
    let mut seen = Vec::new();
    while !cursor.take("}") {
        let name = cursor.attribute_name()?;
        super::refuse_repetition(&mut seen, name)?;
        let value = cursor.value();
        let fields = value.text.split('x');
        if name.text == "size" {
            let sizes = fields.map(|size| size.parse().ok().map(WindowDimension::of_size));
            let sizes = sizes.collect::<Option<Vec<_>>>();
            window = Some(sizes.ok_or_else(|| bad(value, "sizes of a window such as 3x3"))?);
            continue;
        }
        let Some(window) = &mut window else {
            return Err(Diagnostic::invalid(
                name.at,
                "expected the window's size first, found another field".to_owned(),
            ));
        };
        let fields = Vec::from_iter(fields);
        let count = window.len();
        if fields.len() != count {
            let found = fields.len();
            let message = format!("expected {count} values, as size has, found {found}");
            return Err(Diagnostic::invalid(value.at, message));
        }
        for (dimension, field) in std::iter::zip(window, fields) {
            set(dimension, name, field).map_err(|expected| bad(value, expected))?;
        }
    }
    Ok(window.unwrap_or_default())
}

/// Sets a field of a window's dimension. The error says what was expected.
fn set(dimension: &mut WindowDimension, name: Name<'_>, field: &str) -> Result<(), &'static str> {
    let number = || field.parse().map_err(|_| "numbers such as 2x2");
    match name.text {
        "stride" => dimension.stride = number()?,
        "lhs_dilate" => dimension.base_dilation = number()?,
        "rhs_dilate" => dimension.window_dilation = number()?,
        "rhs_reversal" => dimension.is_reversed = number()? != 0,
        "pad" => {
            let pair = field.split_once('_').and_then(|(low, high)| {
                let (low, high) = (low.parse().ok()?, high.parse().ok()?);
                Some((low, high))
            });
            (dimension.low, dimension.high) = pair.ok_or("a padding such as 0_1x2_3")?;
        }
        _ => return Err("fields named size, stride, pad, lhs_dilate, rhs_dilate, rhs_reversal"),
    }
    Ok(())
}

fn bad(value: Name<'_>, expected: &str) -> Diagnostic {
    let found = shortened(value.text);
    Diagnostic::invalid(value.at, format!("expected {expected}, found {found:?}"))
}

/// Takes the attributes of a convolution.
pub(in crate::hlo) fn convolution(attributes: &mut Attributes<'_>) -> Parsed<Convolution> {
    let window = window(attributes)?;
    let labels = attributes.require("dim_labels", read_labels)?;
    let expected = "labels of dimensions such as b01f_01io->b01f, with spatial dimensions as in \
                    the window";
    let [input, kernel, output] = labels.value.map(|text| dimensions(text, window.len()));
    let wrong = || Diagnostic::invalid(labels.at, format!("expected {expected}, found others"));
    let groups = |attributes: &mut Attributes<'_>, name| {
        let groups = attributes.take(name, Cursor::number)?;
        Ok(groups.map_or(1, |groups| groups.value))
    };
    Ok(Convolution {
        window,
        input: input.ok_or_else(wrong)?,
        kernel: kernel.ok_or_else(wrong)?,
        output: output.ok_or_else(wrong)?,
        feature_groups: groups(attributes, "feature_group_count")?,
        batch_groups: groups(attributes, "batch_group_count")?,
    })
}

/// Skips labels of dimensions, which are no value of the usual characters.
pub(super) fn skip_labels(cursor: &mut Cursor<'_>) {
    cursor.value();
    if cursor.take(">") {
        cursor.value();
    }
}

/// Reads the labels of the input's, the kernel's and the output's dimensions.
fn read_labels<'a>(cursor: &mut Cursor<'a>) -> Parsed<[&'a str; 3]> {
    let operands = cursor.value();
    cursor.expect(">", "the labels of the result behind '->'")?;
    let output = cursor.value().text;
    let operands = operands.text.strip_suffix('-').unwrap_or(operands.text);
    let (input, kernel) = operands.split_once('_').unwrap_or((operands, ""));
    Ok([input, kernel, output])
}

/// The dimensions that labels name: one of `b` and `o`, one of `f` and `i`, and a digit for each
/// spatial dimension.
fn dimensions(labels: &str, spatial: usize) -> Option<ConvolutionDimensions> {
    let at = |names: [char; 2]| labels.find(names);
    let digit = |number: usize| labels.find(char::from_digit(number as u32, 10)?);
    let dimensions = ConvolutionDimensions {
        outer: at(['b', 'o'])?,
        features: at(['f', 'i'])?,
        spatial: (0..spatial).map(digit).collect::<Option<_>>()?,
    };
    (labels.len() == spatial + 2).then_some(dimensions)
}
