//! Instructions: an opcode with its attributes, operands by number, and a shape.

mod access;
mod names;

pub(crate) use access::parameters;

use crate::call::{Alias, ApiVersion, StaticInfo};
use crate::values::{Dictionary, Literal, Shape};

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
    /// Instructions that run before this one though it does not read them. They have smaller numbers.
    pub(crate) control_predecessors: Vec<InstructionId>,
}

/// A computation: instructions in an order in which operands come first.
#[derive(Clone, Debug, PartialEq)]
pub struct Computation {
    pub(crate) name: String,
    pub(crate) instructions: Vec<Instruction>,
    /// The parameters' instructions, by parameter number.
    pub(crate) parameters: Vec<InstructionId>,
    pub(crate) root: InstructionId,
}

/// A verified program. See [`crate::program`].
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub(crate) name: String,
    pub(crate) computations: Vec<Computation>,
    /// The exported functions, by ordinal.
    pub(crate) exports: Vec<ComputationId>,
}

/// What an instruction does, with what its text says besides operands.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Opcode {
    /// The parameter of this number.
    Parameter(usize),
    /// A constant.
    Constant(Literal),
    /// A tuple of the operands.
    Tuple,
    /// The element of this number of a tuple.
    GetTupleElement(usize),
    /// A token after all of the operands, which are tokens.
    AfterAll,
    /// The operands, as a tuple if there are more than one: a bound on reordering, which nothing here does.
    OptimizationBarrier,
    /// Calls a target.
    CustomCall(Box<CustomCall>),
    /// Calls a computation with the operands.
    Call(ComputationId),
    /// What XLA made of several instructions; run as a call.
    Fusion(FusionKind, ComputationId),
    /// Runs `body` on the operand as long as `condition` of it is true.
    While {
        /// From the state to PRED.
        condition: ComputationId,
        /// From the state to the state.
        body: ComputationId,
    },
    /// Runs one of these on its operand. The first operand says which: a PRED (true: the first), or an S32 index
    /// (the last, if it is out of range). Branch `i` gets operand `i + 1`.
    Conditional(Vec<ComputationId>),
    /// Element by element, of one operand.
    Unary(UnaryOperation),
    /// Element by element, of two operands of one shape.
    Binary(BinaryOperation),
    /// Element by element, PRED.
    Compare(Comparison, ComparisonOrder),
    /// Element by element, the second operand where the first is true and the third where not. A scalar PRED chooses the whole,
    /// which may then be a tuple.
    Select,
    /// Element by element, the second operand held between the first and the third, which may be scalars.
    Clamp,
    /// Element by element, rounded to this many bits of exponent and mantissa.
    ReducePrecision {
        /// Bits of exponent.
        exponent_bits: u32,
        /// Bits of mantissa.
        mantissa_bits: u32,
    },
    /// Converts values to the shape's element type.
    Convert,
    /// Reads the bytes of values as the shape's element type. A wider or narrower type takes or gives a last dimension.
    BitcastConvert,
    /// Reads the operand's memory, in its layout, as the shape, in its layout.
    Bitcast,
    /// Counts along this dimension.
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
    /// Part of the operand.
    Slice(Vec<SliceDimension>),
    /// Part of the first operand of these sizes, from starts that the others say. Starts are clamped so that it is inside.
    DynamicSlice(Vec<usize>),
    /// The first operand with the second in place of a part of it, at starts that the others say. Starts are clamped so that
    /// the part is inside.
    DynamicUpdateSlice,
    /// The operands, one behind the other along this dimension.
    Concatenate(usize),
    /// The first operand with the second, a scalar, before, between and behind its elements.
    Pad(Vec<PaddingDimension>),
    /// Reduces the first half of the operands along `dimensions` with `computation`, starting from the second half, which are scalars.
    Reduce {
        /// The dimensions that vanish.
        dimensions: Vec<usize>,
        /// From two sets of scalars to one.
        computation: ComputationId,
    },
    /// The computation of the operands' elements at each index.
    Map(ComputationId),
    /// Products of the operands' elements, summed over the contracted dimensions.
    Dot(DotDimensions),
}

/// What XLA fused for. It has no meaning here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FusionKind {
    /// `kLoop`.
    Loop,
    /// `kInput`.
    Input,
    /// `kOutput`.
    Output,
    /// `kCustom`.
    Custom,
}

/// An operation on one element. Names are HLO's; see XLA's operation semantics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnaryOperation {
    /// `abs`: of a complex number, its real magnitude.
    Abs,
    /// `cbrt`.
    Cbrt,
    /// `ceil`.
    Ceil,
    /// `count-leading-zeros`.
    CountLeadingZeros,
    /// `cosine`.
    Cosine,
    /// `erf`.
    Erf,
    /// `exponential`.
    Exponential,
    /// `exponential-minus-one`.
    ExponentialMinusOne,
    /// `floor`.
    Floor,
    /// `imag`.
    Imag,
    /// `is-finite`.
    IsFinite,
    /// `log`.
    Log,
    /// `log-plus-one`.
    LogPlusOne,
    /// `logistic`.
    Logistic,
    /// `negate`.
    Negate,
    /// `not`.
    Not,
    /// `popcnt`.
    PopulationCount,
    /// `real`.
    Real,
    /// `round-nearest-afz`: half away from zero.
    RoundNearestAfz,
    /// `round-nearest-even`: half to even.
    RoundNearestEven,
    /// `rsqrt`.
    Rsqrt,
    /// `sign`.
    Sign,
    /// `sine`.
    Sine,
    /// `sqrt`.
    Sqrt,
    /// `tan`.
    Tan,
    /// `tanh`.
    Tanh,
}

/// An operation on two elements. Names are HLO's; see XLA's operation semantics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BinaryOperation {
    /// `add`: of PRED, or.
    Add,
    /// `and`.
    And,
    /// `atan2`.
    Atan2,
    /// `complex`: from the real and the imaginary part.
    Complex,
    /// `divide`: an integer by 0 is -1 (all ones), the smallest by -1 is itself.
    Divide,
    /// `maximum`: NaN if either is NaN.
    Maximum,
    /// `minimum`: NaN if either is NaN.
    Minimum,
    /// `multiply`: of PRED, and.
    Multiply,
    /// `or`.
    Or,
    /// `power`.
    Power,
    /// `remainder`: with the sign of the dividend; an integer by 0 is the dividend, the smallest by -1 is 0.
    Remainder,
    /// `shift-left`: 0 for as many bits as there are, or more.
    ShiftLeft,
    /// `shift-right-arithmetic`: the sign for as many bits as there are, or more.
    ShiftRightArithmetic,
    /// `shift-right-logical`: 0 for as many bits as there are, or more.
    ShiftRightLogical,
    /// `subtract`.
    Subtract,
    /// `xor`.
    Xor,
}

/// How two elements are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `EQ`.
    Eq,
    /// `NE`.
    Ne,
    /// `GE`.
    Ge,
    /// `GT`.
    Gt,
    /// `LE`.
    Le,
    /// `LT`.
    Lt,
}

/// The order in which floating-point numbers are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComparisonOrder {
    /// IEEE 754's: NaN is unordered, zeros are equal. For integers, their own.
    Partial,
    /// `type=TOTALORDER`: -NaN < -inf < ... < -0 < +0 < ... < inf < NaN.
    Total,
}

/// Which elements of a dimension a slice takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SliceDimension {
    /// The first.
    pub start: usize,
    /// The first that it does not reach.
    pub limit: usize,
    /// From one to the next; at least 1.
    pub stride: usize,
}

/// How many elements a pad puts in along a dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaddingDimension {
    /// Before the first; negative: takes elements away.
    pub low: i64,
    /// Behind the last; negative: takes elements away.
    pub high: i64,
    /// Between each two; not negative.
    pub interior: i64,
}

/// Which dimensions of a dot's operands belong together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DotDimensions {
    /// Of the left operand: dimensions that also the result has.
    pub lhs_batch: Vec<usize>,
    /// Of the right operand, in the same order.
    pub rhs_batch: Vec<usize>,
    /// Of the left operand: dimensions that are summed over.
    pub lhs_contracting: Vec<usize>,
    /// Of the right operand, in the same order.
    pub rhs_contracting: Vec<usize>,
}

/// When a custom call is to run, as far as its operands leave a choice: XLA's `CustomCallSchedule`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// Anywhere.
    #[default]
    None,
    /// As late as possible.
    Latest,
    /// As early as possible.
    Earliest,
}

/// What a custom-call instruction says besides operands and shape.
#[derive(Clone, Debug, PartialEq)]
pub struct CustomCall {
    /// `custom_call_target`.
    pub target: String,
    /// `api_version`.
    pub api_version: ApiVersion,
    /// `backend_config` as typed FFI reads it.
    pub attributes: Dictionary,
    /// `backend_config` as the older conventions get it: bytes.
    pub opaque: Vec<u8>,
    /// `backend_config` as the JAX FFI proposal's convention gets it, if there is one.
    pub static_info: Option<StaticInfo>,
    /// `custom_call_has_side_effect`.
    pub has_side_effect: bool,
    /// `output_to_operand_aliasing`.
    pub aliasing: Vec<Alias>,
    /// `operand_layout_constraints`: the operands' shapes with the layouts in which data is handed over.
    pub operand_layouts: Option<Vec<Shape>>,
    /// `called_computations` and `to_apply`.
    pub called_computations: Vec<ComputationId>,
    /// `schedule`.
    pub schedule: Schedule,
    /// `literal`.
    pub literal: Option<Literal>,
}

impl CustomCall {
    /// A typed-FFI call of this target, with nothing else said.
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

impl Opcode {
    /// The computations that it names, in the order of its text.
    #[must_use]
    pub fn called_computations(&self) -> Vec<ComputationId> {
        match self {
            Self::Call(callee) | Self::Fusion(_, callee) | Self::Map(callee) => vec![*callee],
            Self::While { condition, body } => vec![*condition, *body],
            Self::Conditional(branches) => branches.clone(),
            Self::Reduce { computation, .. } => vec![*computation],
            Self::CustomCall(call) => call.called_computations.clone(),
            _ => Vec::new(),
        }
    }
}
