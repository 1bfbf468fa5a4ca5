//! Operations that slide a window over arrays.

use super::calls::{check_reducer, check_takes, element, is_scalar, joined, with_initial};
use super::contraction::result_type;
use super::{all_arrays, arrays, bare, count, distinct_dimensions};
use crate::Computation;
use crate::instruction::{Convolution, ConvolutionDimensions, WindowDimension};
use callbox_core::values::{ArrayShape, ElementType, Result, Shape, Status};

/// XLA's `InferReduceWindowShape`.
pub(super) fn reduce_window(
    window: &[WindowDimension],
    operands: &[&Shape],
    callee: &Computation,
) -> Result<Shape> {
    let operands = all_arrays(operands)?;
    let (arrays, elements) = with_initial(&operands)?;
    check_reducer(callee, &elements)?;
    check_is_not_reversed(window)?;
    joined(callee, arrays, |array| {
        super::dimensions::check_entries(window.len(), array)?;
        positions(window, array.dimensions())
    })
}

/// XLA's `InferSelectAndScatterShape`.
pub(super) fn select_and_scatter(
    window: &[WindowDimension],
    operands: &[&Shape],
    select: &Computation,
    scatter: &Computation,
) -> Result<Shape> {
    let [operand, source, initial] = arrays(operands)?;
    let scalar = element(operand);
    ensure!(
        bare(initial) == scalar,
        "expected the initial value {scalar}, found {initial}"
    );
    check_takes("the selection", select, &[&scalar, &scalar])?;
    ensure!(
        is_scalar(select.result_shape(), ElementType::Pred),
        "expected a selection that gives pred[], found {}",
        select.result_shape()
    );
    check_reducer(scatter, std::slice::from_ref(&scalar))?;
    super::dimensions::check_entries(window.len(), operand)?;
    check_is_not_reversed(window)?;
    if window
        .iter()
        .any(|d| d.base_dilation != 1 || d.window_dilation != 1)
    {
        let message = "select-and-scatter with dilation is not supported";
        return Err(Status::unimplemented(message));
    }
    let positions = positions(window, operand.dimensions())?;
    ensure!(
        source.dimensions() == positions && source.element_type() == operand.element_type(),
        "expected a source with an element for each position of the window, {positions:?}, found \
         {source}"
    );
    Ok(bare(operand))
}

/// Checks that the groups of a convolution divide its batch, its features and those of its result.
fn check_groups(convolution: &Convolution, [batch, features, outputs]: [usize; 3]) -> Result<()> {
    let (feature_groups, batch_groups) = (convolution.feature_groups, convolution.batch_groups);
    let divides = |groups: usize, size: usize| groups > 0 && size.is_multiple_of(groups);
    ensure!(
        divides(feature_groups, features) && divides(feature_groups, outputs),
        "expected feature groups that divide {features} and {outputs} features, found \
         {feature_groups}"
    );
    ensure!(
        divides(batch_groups, batch) && divides(batch_groups, outputs),
        "expected batch groups that divide a batch of {batch} and {outputs} features, found \
         {batch_groups}"
    );
    ensure!(
        feature_groups == 1 || batch_groups == 1,
        "expected groups of features or of the batch, found {feature_groups} and {batch_groups}"
    );
    Ok(())
}

/// XLA's `InferConvolveShape`.
pub(super) fn convolution(
    convolution: &Convolution,
    operands: &[&Shape],
    declared: Option<&Shape>,
) -> Result<Shape> {
    let [input, kernel] = arrays(operands)?;
    if input.element_type() != kernel.element_type() {
        return Err(Status::unimplemented(format!(
            "convolution of different element types is not supported: {input} and {kernel}"
        )));
    }
    let Convolution {
        window,
        feature_groups,
        batch_groups,
        ..
    } = convolution;
    check_labels(&convolution.input, input, window.len())?;
    check_labels(&convolution.kernel, kernel, window.len())?;
    let size = |shape: &ArrayShape, i: usize| shape.dimensions()[i];
    let (batch, features) = (
        size(input, convolution.input.outer),
        size(input, convolution.input.features),
    );
    let outputs = size(kernel, convolution.kernel.outer);
    for (i, (dimension, &at)) in std::iter::zip(window, &convolution.kernel.spatial).enumerate() {
        ensure!(
            size(kernel, at) == dimension.size,
            "expected a window of the kernel's size {} in spatial dimension {i}, found {}",
            size(kernel, at),
            dimension.size
        );
    }
    check_groups(convolution, [batch, features, outputs])?;
    let taken = size(kernel, convolution.kernel.features);
    ensure!(
        taken == features / feature_groups,
        "expected a kernel that takes {} features, found {taken}",
        features / feature_groups
    );
    let area = convolution.input.spatial.iter().map(|&i| size(input, i));
    let spatial = positions(window, &Vec::from_iter(area))?;
    let output = &convolution.output;
    let result = labelled(output, [batch / batch_groups, outputs], &spatial)?;
    let result = Shape::array(result_type(input.element_type(), declared)?, &result)?;
    if let Some(array) = result.as_array() {
        check_labels(output, array, window.len())?;
    }
    Ok(result)
}

/// The dimensions of a result with these labels.
fn labelled(
    labels: &ConvolutionDimensions,
    [outer, features]: [usize; 2],
    spatial: &[usize],
) -> Result<Vec<usize>> {
    let mut result = vec![0; spatial.len() + 2];
    let spatial = std::iter::zip(&labels.spatial, spatial);
    let sized = [(&labels.outer, &outer), (&labels.features, &features)];
    for (&at, &size) in sized.into_iter().chain(spatial) {
        let to = result.get_mut(at);
        *to.ok_or_else(|| invalid!("expected a dimension of the result, found {at}"))? = size;
    }
    Ok(result)
}

/// Checks that labels name each dimension of an array once.
fn check_labels(labels: &ConvolutionDimensions, array: &ArrayShape, spatial: usize) -> Result<()> {
    ensure!(
        array.rank() == spatial + 2 && labels.spatial.len() == spatial,
        "expected an array of {}, found {array}",
        count(spatial + 2, "dimension")
    );
    let all = [&[labels.outer, labels.features], &*labels.spatial].concat();
    distinct_dimensions(&all, array).map(drop)
}

/// The number of positions of a window in each dimension of a base area: XLA's
/// `InferWindowOutputShape`.
fn positions(window: &[WindowDimension], area: &[usize]) -> Result<Vec<usize>> {
    let dimensions = std::iter::zip(window, area).enumerate();
    let positions = dimensions.map(|(i, (dimension, &size))| {
        let WindowDimension {
            stride,
            base_dilation,
            window_dilation,
            ..
        } = *dimension;
        ensure!(
            dimension.size > 0 && stride > 0 && base_dilation > 0 && window_dilation > 0,
            "expected a size, a stride and dilations of at least 1 in dimension {i} of the \
             window, found {}, {stride}, {base_dilation} and {window_dilation}",
            dimension.size
        );
        let dilated = |size: usize, dilation: usize| match size.checked_sub(1) {
            Some(between) => between as u128 * dilation as u128 + 1,
            None => 0,
        };
        let base = dilated(size, base_dilation);
        let base = i64::try_from(base)
            .map_err(|_| invalid!("expected a dilated size below 2^63, found {base}"))?;
        // A window that is too large for a number is too large for the area.
        let Ok(window) = i64::try_from(dilated(dimension.size, window_dilation)) else {
            return Ok(0);
        };
        let padding = i128::from(dimension.low) + i128::from(dimension.high);
        let room = i128::from(base) + padding - i128::from(window);
        if room < 0 {
            return Ok(0);
        }
        usize::try_from(room / stride as i128 + 1)
            .map_err(|_| invalid!("expected fewer positions of the window, found {room}"))
    });
    positions.collect()
}

fn check_is_not_reversed(window: &[WindowDimension]) -> Result<()> {
    ensure!(
        !window.iter().any(|dimension| dimension.is_reversed),
        "expected a window that is not reversed, found rhs_reversal"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::super::testing::{check, infer_text, refused, refused_as};
    use super::positions;
    use crate::{ComputationId, Convolution, ConvolutionDimensions, Opcode, WindowDimension};
    use callbox_core::StatusCode;

    /// Numbers of positions by the formula of XLA's documentation of windows
    /// (openxla.org/xla/operation_semantics#reducewindow): the padded, dilated area less the
    /// dilated window, divided by the stride, and one.
    #[test]
    fn positions_are_counted() {
        let plain = WindowDimension::of_size(3);
        for (dimension, area, expected) in [
            (plain, 7, 5),
            (plain, 2, 0),
            (WindowDimension { stride: 2, ..plain }, 7, 3),
            (
                WindowDimension {
                    low: 1,
                    high: 1,
                    ..plain
                },
                7,
                7,
            ),
            (WindowDimension { low: -3, ..plain }, 7, 2),
            (
                WindowDimension {
                    window_dilation: 2,
                    ..plain
                },
                7,
                3,
            ),
            (
                WindowDimension {
                    base_dilation: 3,
                    ..plain
                },
                4,
                8,
            ),
            (
                WindowDimension {
                    base_dilation: 3,
                    ..plain
                },
                0,
                0,
            ),
            (
                WindowDimension {
                    window_dilation: usize::MAX,
                    ..plain
                },
                7,
                0,
            ),
        ] {
            assert_eq!(
                positions(&[dimension], &[area]),
                Ok(vec![expected]),
                "{dimension:?}"
            );
        }
        let largest = WindowDimension {
            window_dilation: usize::MAX,
            ..WindowDimension::of_size(usize::MAX)
        };
        assert_eq!(positions(&[largest], &[7]), Ok(vec![0]));
        let status = positions(
            &[WindowDimension {
                base_dilation: usize::MAX,
                ..plain
            }],
            &[7],
        );
        assert_eq!(
            status.unwrap_err().message(),
            format!(
                "expected a dilated size below 2^63, found {}",
                6 * u128::from(u64::MAX) + 1
            )
        );
        let status = positions(&[WindowDimension { stride: 0, ..plain }], &[7]).unwrap_err();
        assert_eq!(
            status.message(),
            "expected a size, a stride and dilations of at least 1 in dimension 0 of the window, \
             found 3, 0, 1 and 1"
        );
    }

    fn labels(outer: usize, features: usize) -> ConvolutionDimensions {
        ConvolutionDimensions {
            outer,
            features,
            spatial: vec![2],
        }
    }

    fn convolution() -> Convolution {
        Convolution {
            window: vec![WindowDimension::of_size(3)],
            input: labels(0, 1),
            kernel: labels(0, 1),
            output: labels(0, 1),
            feature_groups: 1,
            batch_groups: 1,
        }
    }

    #[test]
    fn convolutions_have_windows_of_their_kernels() {
        let of = |convolution| Opcode::Convolution(Box::new(convolution));
        let operands = &["f32[2,4,7]", "f32[6,4,3]"];
        check(&of(convolution()), operands, "f32[2,6,5]");
        let grouped = Convolution {
            feature_groups: 2,
            ..convolution()
        };
        check(
            &of(grouped.clone()),
            &["f32[2,4,7]", "f32[6,2,3]"],
            "f32[2,6,5]",
        );
        refused(
            &of(grouped),
            operands,
            "expected a kernel that takes 2 features, found 4",
        );
        let message = "expected a window of the kernel's size 2 in spatial dimension 0, found 3";
        refused(&of(convolution()), &["f32[2,4,7]", "f32[6,4,2]"], message);
        let message = "expected each dimension once, found 1 twice";
        let twice = Convolution {
            input: labels(1, 1),
            ..convolution()
        };
        refused(&of(twice), operands, message);
        refused_as(
            StatusCode::Unimplemented,
            &of(convolution()),
            &["f32[2,4,7]", "f16[6,4,3]"],
            "convolution of different element types is not supported: f32[2,4,7] and f16[6,4,3]",
        );
    }

    #[test]
    fn reductions_of_windows_have_an_entry_for_each_dimension() {
        let reduce = |window: &[usize], operands: &[&str]| {
            let opcode = Opcode::ReduceWindow {
                window: window
                    .iter()
                    .map(|&size| WindowDimension::of_size(size))
                    .collect(),
                computation: ComputationId(0),
            };
            let callees = [(&["f32[]", "f32[]"][..], "f32[]")];
            let shape = infer_text(&opcode, operands, None, &callees);
            shape.map_or_else(
                |status| status.message().to_owned(),
                |shape| shape.to_string(),
            )
        };
        assert_eq!(reduce(&[2, 3], &["f32[4,5]", "f32[]"]), "f32[3,3]");
        let message = "expected 2 dimensions for f32[4,5], found 1";
        assert_eq!(reduce(&[2], &["f32[4,5]", "f32[]"]), message);
        let message = "expected the initial value f32[], found s32[]";
        assert_eq!(reduce(&[2, 3], &["f32[4,5]", "s32[]"]), message);
    }
}
