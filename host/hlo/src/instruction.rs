//! Instructions: an opcode with its attributes, operands by number, and a shape.

mod access;
mod domain;
mod operations;
mod windows;

pub(crate) use access::parameters;
pub(crate) use domain::Domain;
pub(crate) use operations::elementwise_operations;
pub use operations::{
    BinaryOperation, Comparison, FftKind, FusionKind, RandomAlgorithm, Schedule, Transposition,
    UnaryOperation,
};
pub use windows::{Convolution, ConvolutionDimensions, IndexedWindows, WindowDimension};

use std::sync::Arc;

use callbox_core::call::{Alias, ApiVersion, StaticInfo};
use callbox_core::values::{Dictionary, Literal, Shape};

/// An instruction's number in its computation. Operands have smaller numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstructionId(pub(crate) u32);

impl InstructionId {
    /// The number.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A computation's number in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ComputationId(pub(crate) u32);

impl ComputationId {
    /// The number.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// One instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    pub(crate) name: String,
    pub(crate) shape: Shape,
    pub(crate) opcode: Opcode,
    pub(crate) operands: Vec<InstructionId>,
    /// Instructions that run first although this one does not read their values. Their numbers
    /// are smaller.
    pub(crate) control_predecessors: Vec<InstructionId>,
}

/// A computation: instructions, each after its operands.
#[derive(Clone, Debug, PartialEq)]
pub struct Computation {
    pub(crate) name: String,
    pub(crate) instructions: Vec<Instruction>,
    /// The parameters' instructions, by parameter number.
    pub(crate) parameters: Vec<InstructionId>,
    pub(crate) root: InstructionId,
}

/// A verified program. See [`crate`].
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub(crate) name: String,
    /// Shared by clones of the program.
    pub(crate) computations: Arc<[Computation]>,
    /// The exported functions, by ordinal.
    pub(crate) exports: Vec<ComputationId>,
}

/// The operation of an instruction, with its attributes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Opcode {
    /// The parameter with this number.
    Parameter(usize),
    /// A constant.
    Constant(Literal),
    /// A tuple of the operands.
    Tuple,
    /// The element of a tuple with this number.
    GetTupleElement(usize),
    /// A token after all operands, which are tokens.
    AfterAll,
    /// The operand, or a tuple of several operands. Limits reordering, which callbox does not do.
    OptimizationBarrier,
    /// Calls a target.
    CustomCall(Box<CustomCall>),
    /// Calls a computation with the operands.
    Call(ComputationId),
    /// Several instructions that XLA fused. Runs as a call.
    Fusion(FusionKind, ComputationId),
    /// Runs `body` on the state as long as `condition` holds for it. The operand is the first
    /// state.
    While {
        /// From the state to PRED.
        condition: ComputationId,
        /// From the state to the state.
        body: ComputationId,
    },
    /// Runs one branch. The first operand selects it: a PRED (true: the first branch), or an S32
    /// index (out of range: the last branch). Branch `i` gets operand `i + 1`.
    Conditional(Vec<ComputationId>),
    /// An elementwise operation on one operand.
    Unary(UnaryOperation),
    /// An elementwise operation on two operands of the same shape.
    Binary(BinaryOperation),
    /// Compares elementwise; gives PRED.
    Compare(Comparison, ComparisonOrder),
    /// Elementwise: the second operand where the first is true, the third elsewhere. A scalar
    /// PRED selects one operand as a whole, which may then be a tuple.
    Select,
    /// Elementwise: the second operand, limited to the range from the first to the third, which
    /// may be scalars.
    Clamp,
    /// Rounds elementwise to these numbers of bits.
    ReducePrecision {
        /// Bits of exponent.
        exponent_bits: u32,
        /// Bits of mantissa.
        mantissa_bits: u32,
    },
    /// Converts values to the element type of the instruction's shape.
    Convert,
    /// Reinterprets the elements' bytes as the element type of the instruction's shape. A
    /// narrower type adds a last dimension, a wider one removes it.
    BitcastConvert,
    /// Reinterprets the operand's memory, in its layout, as the instruction's shape and layout.
    Bitcast,
    /// The index along this dimension.
    Iota(usize),
    /// Operand dimension `i` becomes dimension `self[i]`; the others repeat.
    Broadcast(Vec<usize>),
    /// The same elements in row-major order, with other dimensions.
    Reshape,
    /// Dimension `i` is the operand's dimension `self[i]`.
    Transpose(Vec<usize>),
    /// Reverses these dimensions.
    Reverse(Vec<usize>),
    /// The operand.
    Copy,
    /// A part of the operand.
    Slice(Vec<SliceDimension>),
    /// A part of these sizes of the first operand. The other operands are the start indices,
    /// clamped so that the part is in bounds.
    DynamicSlice(Vec<usize>),
    /// The first operand, with a part replaced by the second. The other operands are the start
    /// indices, clamped so that the part is in bounds.
    DynamicUpdateSlice,
    /// The operands, joined along this dimension.
    Concatenate(usize),
    /// The first operand, with the second, a scalar, before, between and after its elements.
    Pad(Vec<PaddingDimension>),
    /// Reduces the first half of the operands along `dimensions`. The second half are the initial
    /// values, which are scalars.
    Reduce {
        /// The dimensions that are removed.
        dimensions: Vec<usize>,
        /// From two sets of scalars to one.
        computation: ComputationId,
    },
    /// Applies the computation to the operands' elements at each index.
    Map(ComputationId),
    /// Sums of products over the contracted dimensions.
    Dot(DotDimensions),
    /// Sums of products over the positions of a window, for each group of features.
    Convolution(Box<Convolution>),
    /// The windows of the first operand that begin at the index vectors in the second.
    Gather {
        /// The windows.
        windows: IndexedWindows,
        /// The size of a window, by dimension of the operand.
        sizes: Vec<usize>,
    },
    /// The first arrays, with the windows in the last ones combined into them where the index
    /// vectors in the operand between them say.
    Scatter {
        /// The windows.
        windows: IndexedWindows,
        /// From an element of each array and one of each update to an element of each.
        computation: ComputationId,
    },
    /// The operands, sorted together along a dimension.
    Sort {
        /// The dimension.
        dimension: usize,
        /// Whether equal elements keep their order. callbox always sorts stably.
        is_stable: bool,
        /// Whether the first of two elements of each operand comes before the second.
        computation: ComputationId,
    },
    /// Reduces each position of a window over the first half of the operands. The second half are
    /// the initial values. Padding is left out.
    ReduceWindow {
        /// The window, by dimension.
        window: Vec<WindowDimension>,
        /// From two sets of scalars to one.
        computation: ComputationId,
    },
    /// An array of the third operand, a scalar, into which each element of the second is combined
    /// where the window at its position selects an element of the first.
    SelectAndScatter {
        /// The window, by dimension.
        window: Vec<WindowDimension>,
        /// Whether the element selected so far stays selected beside another one.
        select: ComputationId,
        /// Combines two elements.
        scatter: ComputationId,
    },
    /// The largest or smallest elements of each row, in order, and their indices as S32.
    TopK {
        /// The number of elements.
        k: usize,
        /// Whether the largest ones are taken. Numbers are in their total order.
        largest: bool,
    },
    /// The Fourier transforms of the last dimensions.
    Fft {
        /// The kind.
        kind: FftKind,
        /// The sizes of the transformed dimensions, as real or complex numbers in time.
        length: Vec<usize>,
    },
    /// The triangular factor of each symmetric or Hermitian matrix in the last two dimensions.
    Cholesky {
        /// Whether the lower triangle is read and written, or the upper one.
        lower: bool,
    },
    /// Solves systems of equations with triangular matrices.
    TriangularSolve(TriangularSolve),
    /// A new state and random bits from a state.
    RngBitGenerator(RandomAlgorithm),
}

impl Opcode {
    /// The opcode in HLO text: `custom-call`, `add`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Parameter(_) => "parameter",
            Self::Constant(_) => "constant",
            Self::Tuple => "tuple",
            Self::GetTupleElement(_) => "get-tuple-element",
            Self::AfterAll => "after-all",
            Self::OptimizationBarrier => "opt-barrier",
            Self::CustomCall(_) => "custom-call",
            Self::Call(_) => "call",
            Self::Fusion(..) => "fusion",
            Self::While { .. } => "while",
            Self::Conditional(_) => "conditional",
            Self::Unary(operation) => operation.name(),
            Self::Binary(operation) => operation.name(),
            Self::Compare(..) => "compare",
            Self::Select => "select",
            Self::Clamp => "clamp",
            Self::ReducePrecision { .. } => "reduce-precision",
            Self::Convert => "convert",
            Self::BitcastConvert => "bitcast-convert",
            Self::Bitcast => "bitcast",
            Self::Iota(_) => "iota",
            Self::Broadcast(_) => "broadcast",
            Self::Reshape => "reshape",
            Self::Transpose(_) => "transpose",
            Self::Reverse(_) => "reverse",
            Self::Copy => "copy",
            Self::Slice(_) => "slice",
            Self::DynamicSlice(_) => "dynamic-slice",
            Self::DynamicUpdateSlice => "dynamic-update-slice",
            Self::Concatenate(_) => "concatenate",
            Self::Pad(_) => "pad",
            Self::Reduce { .. } => "reduce",
            Self::Map(_) => "map",
            Self::Dot(_) => "dot",
            Self::Convolution(_) => "convolution",
            Self::Gather { .. } => "gather",
            Self::Scatter { .. } => "scatter",
            Self::Sort { .. } => "sort",
            Self::ReduceWindow { .. } => "reduce-window",
            Self::SelectAndScatter { .. } => "select-and-scatter",
            Self::TopK { .. } => "topk",
            Self::Fft { .. } => "fft",
            Self::Cholesky { .. } => "cholesky",
            Self::TriangularSolve(_) => "triangular-solve",
            Self::RngBitGenerator(_) => "rng-bit-generator",
        }
    }

    /// The computations that the opcode names, in the order of its text.
    #[must_use]
    pub fn called_computations(&self) -> Vec<ComputationId> {
        match self {
            Self::Call(callee) | Self::Fusion(_, callee) | Self::Map(callee) => vec![*callee],
            Self::While { condition, body } => vec![*condition, *body],
            Self::Conditional(branches) => branches.clone(),
            Self::Reduce { computation, .. }
            | Self::Scatter { computation, .. }
            | Self::Sort { computation, .. }
            | Self::ReduceWindow { computation, .. } => vec![*computation],
            Self::SelectAndScatter {
                select, scatter, ..
            } => vec![*select, *scatter],
            Self::CustomCall(call) => call.called_computations.clone(),
            _ => Vec::new(),
        }
    }
}

/// The order in which floating-point numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComparisonOrder {
    /// IEEE 754's order: NaN is unordered, zeros are equal. For integers, their own order.
    Partial,
    /// `type=TOTALORDER`: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
    Total,
}

/// The elements of one dimension that a slice takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceDimension {
    /// The first index.
    pub start: usize,
    /// The end of the range, exclusive.
    pub limit: usize,
    /// The distance between indices; at least 1.
    pub stride: usize,
}

/// The number of elements that a pad inserts along one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaddingDimension {
    /// Before the first element. A negative number removes elements.
    pub low: i64,
    /// After the last element. A negative number removes elements.
    pub high: i64,
    /// Between two elements; not negative.
    pub interior: i64,
}

/// How the dimensions of a dot's operands correspond.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DotDimensions {
    /// Dimensions of the left operand that the result has, too.
    pub lhs_batch: Vec<usize>,
    /// Their counterparts in the right operand.
    pub rhs_batch: Vec<usize>,
    /// Dimensions of the left operand that are summed over.
    pub lhs_contracting: Vec<usize>,
    /// Their counterparts in the right operand.
    pub rhs_contracting: Vec<usize>,
}

/// The attributes of a triangular solve: XLA's `TriangularSolveOptions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TriangularSolve {
    /// Whether the matrix is left of the unknowns: `op(A) X = B`, or `X op(A) = B`.
    pub left_side: bool,
    /// Whether the lower triangle is read, or the upper one.
    pub lower: bool,
    /// Whether the diagonal is taken for ones, and not read.
    pub unit_diagonal: bool,
    /// What happens to the matrix first.
    pub transpose: Transposition,
}

/// The attributes of a custom-call instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomCall {
    /// `custom_call_target`.
    pub target: String,
    /// `api_version`: the convention by which the target is called.
    pub api_version: ApiVersion,
    /// `backend_config` for typed FFI. Attributes that are functions name computations of the
    /// program, exported or not.
    pub attributes: Dictionary,
    /// `backend_config` for the conventions before typed FFI: bytes.
    pub opaque: Vec<u8>,
    /// `backend_config` for the convention of the JAX FFI proposal.
    pub static_info: Option<StaticInfo>,
    /// `custom_call_has_side_effect`: the call runs even if nothing reads its result.
    pub has_side_effect: bool,
    /// `output_to_operand_aliasing`: the result's arrays that share memory with operands.
    pub aliasing: Vec<Alias>,
    /// `operand_layout_constraints`: the operands' shapes with the layouts that the target gets.
    /// The result's layouts then count as well; without constraints all arrays are row-major.
    pub operand_layouts: Option<Vec<Shape>>,
    /// `called_computations` and `to_apply`: functions of any signature that the target can call.
    pub called_computations: Vec<ComputationId>,
    /// `schedule`.
    pub schedule: Schedule,
    /// `literal`, which typed FFI targets get.
    pub literal: Option<Literal>,
}

impl CustomCall {
    /// A typed-FFI call of this target, without other attributes.
    #[must_use]
    pub fn new(target: impl Into<String>) -> Self {
        Self {
            target: target.into(),
            api_version: ApiVersion::TypedFfi,
            attributes: Dictionary::new(),
            opaque: Vec::new(),
            static_info: None,
            has_side_effect: false,
            aliasing: Vec::new(),
            operand_layouts: None,
            called_computations: Vec::new(),
            schedule: Schedule::None,
            literal: None,
        }
    }
}
