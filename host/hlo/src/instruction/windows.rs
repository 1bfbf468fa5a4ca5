//! The dimension numbers of instructions that work on windows of arrays.

/// The windows of an array that an array of indices names, for `gather` and `scatter`: XLA's
/// `GatherDimensionNumbers` and `ScatterDimensionNumbers`, which are the same relation.
///
/// The *windowed array* holds one window for each index vector. It is the result of a gather and
/// the updates of a scatter. The *operand* is the array that has the windows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IndexedWindows {
    /// The dimensions of the windowed array that are dimensions of a window, ascending:
    /// `offset_dims`, `update_window_dims`.
    pub window_dimensions: Vec<usize>,
    /// The operand's dimensions in which a window has one index, and which the windowed array
    /// lacks, ascending: `collapsed_slice_dims`, `inserted_window_dims`.
    pub collapsed: Vec<usize>,
    /// For each number of an index vector, the operand's dimension that it is a start in:
    /// `start_index_map`, `scatter_dims_to_operand_dims`.
    pub index_map: Vec<usize>,
    /// The operand's dimensions that are indexed by the position of the index vector, ascending:
    /// `operand_batching_dims`, `input_batching_dims`.
    pub operand_batch: Vec<usize>,
    /// For each of them, the dimension of the indices that gives the index:
    /// `start_indices_batching_dims`, `scatter_indices_batching_dims`.
    pub indices_batch: Vec<usize>,
    /// The dimension of the indices that holds an index vector. If it is the rank of the indices,
    /// each number is an index vector.
    pub index_vector: usize,
}

/// One dimension of a sliding window: XLA's `WindowDimension`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowDimension {
    /// The window's size.
    pub size: usize,
    /// The distance from one position of the window to the next.
    pub stride: usize,
    /// Elements that are added before the base area, or removed if it is negative.
    pub low: i64,
    /// Elements that are added behind the base area, or removed if it is negative.
    pub high: i64,
    /// The distance of neighbouring elements of the base area: `lhs_dilate`.
    pub base_dilation: usize,
    /// The distance of neighbouring elements of the window: `rhs_dilate`.
    pub window_dilation: usize,
    /// Whether the window is applied with its elements reversed: `rhs_reversal`.
    pub is_reversed: bool,
}

impl WindowDimension {
    /// A window of this size that moves by one, without padding or dilation.
    #[must_use]
    pub const fn of_size(size: usize) -> Self {
        Self {
            size,
            stride: 1,
            low: 0,
            high: 0,
            base_dilation: 1,
            window_dilation: 1,
            is_reversed: false,
        }
    }
}

/// The window of a convolution, and the meaning of each dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// The window, by spatial dimension.
    pub window: Vec<WindowDimension>,
    /// The input's batch dimension, its features, and its spatial dimensions.
    pub input: ConvolutionDimensions,
    /// The kernel's output features, its input features, and its spatial dimensions.
    pub kernel: ConvolutionDimensions,
    /// The result's batch dimension, its features, and its spatial dimensions.
    pub output: ConvolutionDimensions,
    /// The number of groups that the features are divided into.
    pub feature_groups: usize,
    /// The number of groups that the batch is divided into.
    pub batch_groups: usize,
}

/// The meaning of the dimensions of an array of a convolution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConvolutionDimensions {
    /// The batch dimension; of the kernel, the output features.
    pub outer: usize,
    /// The features; of the kernel, the input features.
    pub features: usize,
    /// The spatial dimensions, in the order of the window.
    pub spatial: Vec<usize>,
}
