//! What a target is known to take and give before it runs.
//!
//! The attribute macro makes one [`Description`] for each target. The decoder counts by it, and it becomes the target's
//! line in the custom section `callbox.targets`.

mod count;

use core::fmt;

use crate::ElementType;

pub(crate) use count::Count;

/// When a function of a target runs. Every target has `execute`; the other stages are optional.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stage {
    /// Once for each call site, when an instance first serves it. There are attributes only.
    Instantiate = 0,
    /// Once for each execution of a program. Buffers have their shapes; what they hold is undefined.
    Prepare = 1,
    /// Once for each execution of a program, after every target's `prepare`.
    Initialize = 2,
    /// Each call.
    Execute = 3,
}

impl Stage {
    /// The stage with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Instantiate),
            1 => Some(Self::Prepare),
            2 => Some(Self::Initialize),
            3 => Some(Self::Execute),
            _ => None,
        }
    }

    /// The name in XLA's messages, and after the dot in an export's name: `instantiate`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Instantiate => "instantiate",
            Self::Prepare => "prepare",
            Self::Initialize => "initialize",
            Self::Execute => "execute",
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What one function of a target takes and gives.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The target's name.
    pub name: &'static str,
    /// The stage that the function is for.
    pub stage: Stage,
    /// The function's doc comment.
    pub documentation: &'static str,
    /// What the target promises, such as `pure`.
    pub traits: &'static [&'static str],
    /// The parameters that are neither attributes nor state, in order.
    pub parameters: &'static [ParameterDescription],
    /// The attributes, in order of the parameters.
    pub attributes: &'static [AttributeDescription],
    /// How many operands the parameters take.
    pub operands: Count,
    /// How many results the parameters take.
    pub results: Count,
    /// How many attributes every call must have.
    pub required_attribute_count: usize,
}

/// A parameter that is neither an attribute nor state.
#[derive(Clone, Copy, Debug)]
pub struct ParameterDescription {
    /// The parameter's name.
    pub name: &'static str,
    /// What the parameter stands for: one role for each type that a generic target is made for.
    pub roles: &'static [Role],
    /// The dimensions that it is declared with.
    pub dimensions: Option<&'static [Dimension]>,
}

/// One entry of declared dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Any number of dimensions, the same ones wherever the target says so. Only the first entry.
    Any,
    /// A dimension of this size.
    Size(usize),
    /// A dimension of any size, the same one wherever the target says this name.
    Symbol(&'static str),
}

impl ParameterDescription {
    /// The rank, if only one will do: by the type, or by the dimensions.
    ///
    /// # Panics
    /// While compiling, if the two differ, or if there are dimensions of what is no operand and no result.
    pub(crate) const fn rank(&self) -> Option<usize> {
        let signature = self.roles[0].signature();
        let by_type = match signature {
            Some(signature) => signature.rank,
            None => None,
        };
        let Some(dimensions) = self.dimensions else {
            return by_type;
        };
        assert!(
            signature.is_some(),
            "only an operand or a result has dimensions"
        );
        let takes_more = matches!(dimensions.first(), Some(Dimension::Any));
        let least = dimensions.len() - takes_more as usize;
        match by_type {
            None if takes_more => None,
            None => Some(least),
            Some(rank) => {
                assert!(
                    rank == least || takes_more && rank > least,
                    "the type's rank is that of the dimensions"
                );
                Some(rank)
            }
        }
    }
}

/// What a parameter stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The next operand.
    Operand(Signature),
    /// The next result.
    Result(Signature),
    /// The next operand and the next result, in one.
    InPlace(Signature),
    /// The next operand, if there is one more.
    OptionalOperand(Signature),
    /// The next result, if there is one more.
    OptionalResult(Signature),
    /// All operands that are left.
    RemainingOperands,
    /// All results that are left.
    RemainingResults,
    /// The call's context: no buffer.
    Context,
}

/// What a buffer must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The element type, if only one will do.
    pub element_type: Option<ElementType>,
    /// The rank, if only one will do.
    pub rank: Option<usize>,
}

/// What an attribute must be.
#[derive(Clone, Copy, Debug)]
pub struct AttributeDescription {
    /// The attribute's name.
    pub name: &'static str,
    /// What it must hold.
    pub kind: AttributeKind,
    /// The element type of a scalar or an array.
    pub element_type: Option<ElementType>,
    /// Whether a call may lack it.
    pub is_optional: bool,
}

/// What an attribute holds, with the numbers of `XLA_FFI_AttrType` (xla/ffi/api/c_api.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum AttributeKind {
    /// An array of elements.
    Array = 1,
    /// Further attributes.
    Dictionary = 2,
    /// One element.
    Scalar = 3,
    /// Text.
    String = 4,
    /// A reference to a function of the program. XLA's runtime had those; XLA FFI has not.
    Function = 5,
}

impl AttributeKind {
    /// The kind with this number, if there is one.
    #[must_use]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Array),
            2 => Some(Self::Dictionary),
            3 => Some(Self::Scalar),
            4 => Some(Self::String),
            5 => Some(Self::Function),
            _ => None,
        }
    }

    /// The name in XLA's messages: `scalar`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Array => "array",
            Self::Dictionary => "dictionary",
            Self::Scalar => "scalar",
            Self::String => "string",
            Self::Function => "function",
        }
    }
}

impl Role {
    /// The role of a parameter that may lack what `self` stands for.
    ///
    /// # Panics
    /// While compiling, if only one operand or one result can be optional and it is neither.
    #[must_use]
    #[allow(
        clippy::panic,
        reason = "it is an error of the compiler's: every use is in a constant"
    )]
    pub const fn optional(self) -> Self {
        match self {
            Self::Operand(signature) => Self::OptionalOperand(signature),
            Self::Result(signature) => Self::OptionalResult(signature),
            _ => panic!("only an operand or a result can be optional"),
        }
    }

    /// Whether it takes an operand.
    #[must_use]
    pub const fn takes_operand(self) -> bool {
        matches!(
            self,
            Self::Operand(_) | Self::OptionalOperand(_) | Self::InPlace(_)
        )
    }

    /// Whether it takes a result.
    #[must_use]
    pub const fn takes_result(self) -> bool {
        matches!(
            self,
            Self::Result(_) | Self::OptionalResult(_) | Self::InPlace(_)
        )
    }

    /// Whether a call may lack what it stands for.
    #[must_use]
    pub const fn is_optional(self) -> bool {
        matches!(self, Self::OptionalOperand(_) | Self::OptionalResult(_))
    }

    /// Whether it can read every attribute of the call, bound to a parameter or not.
    #[must_use]
    pub const fn reads_attributes(self) -> bool {
        matches!(self, Self::Context)
    }

    /// What its buffer must be, if it has one.
    #[must_use]
    pub const fn signature(self) -> Option<Signature> {
        match self {
            Self::Operand(s)
            | Self::Result(s)
            | Self::InPlace(s)
            | Self::OptionalOperand(s)
            | Self::OptionalResult(s) => Some(s),
            Self::RemainingOperands | Self::RemainingResults | Self::Context => None,
        }
    }
}

impl Description {
    /// A description without parameters.
    #[must_use]
    pub const fn new(name: &'static str, stage: Stage) -> Self {
        Self {
            name,
            stage,
            documentation: "",
            traits: &[],
            parameters: &[],
            attributes: &[],
            operands: Count::ANY,
            results: Count::ANY,
            required_attribute_count: 0,
        }
    }

    /// With this doc comment and these traits.
    #[must_use]
    pub const fn with_words(
        mut self,
        documentation: &'static str,
        traits: &'static [&'static str],
    ) -> Self {
        self.documentation = documentation;
        self.traits = traits;
        self
    }

    /// With these parameters and attributes.
    ///
    /// # Panics
    /// While compiling, in XLA's words, if an operand or result comes after one that a call may lack, and if dimensions are declared that a
    /// parameter cannot have.
    #[must_use]
    pub const fn with_parameters(
        mut self,
        parameters: &'static [ParameterDescription],
        attributes: &'static [AttributeDescription],
    ) -> Self {
        self.parameters = parameters;
        self.attributes = attributes;
        self.operands = Count::of(parameters, true);
        self.results = Count::of(parameters, false);
        self.required_attribute_count = count_required(attributes);
        let mut i = 0;
        while i < parameters.len() {
            parameters[i].rank();
            i += 1;
        }
        self
    }

    /// How many operands the parameters before this one take.
    #[must_use]
    pub const fn operands_before(&self, parameter: usize) -> usize {
        let (mut i, mut count) = (0, 0);
        while i < parameter {
            count += self.parameters[i].roles[0].takes_operand() as usize;
            i += 1;
        }
        count
    }

    /// How many results the parameters before this one take.
    #[must_use]
    pub const fn results_before(&self, parameter: usize) -> usize {
        let (mut i, mut count) = (0, 0);
        while i < parameter {
            count += self.parameters[i].roles[0].takes_result() as usize;
            i += 1;
        }
        count
    }

    /// Whether the target has operands or results.
    #[must_use]
    pub const fn has_buffers(&self) -> bool {
        let mut i = 0;
        while i < self.parameters.len() {
            if !matches!(self.parameters[i].roles[0], Role::Context) {
                return true;
            }
            i += 1;
        }
        false
    }

    /// Whether some parameter has this role.
    #[must_use]
    pub(crate) const fn takes_remaining(&self, operands: bool) -> bool {
        let mut i = 0;
        while i < self.parameters.len() {
            match self.parameters[i].roles[0] {
                Role::RemainingOperands if operands => return true,
                Role::RemainingResults if !operands => return true,
                _ => {}
            }
            i += 1;
        }
        false
    }

    /// Whether it is not known which attributes the function reads: none is bound to a parameter, and a parameter can read whichever
    /// there are.
    #[must_use]
    pub(crate) const fn takes_any_attributes(&self) -> bool {
        let mut i = 0;
        while i < self.parameters.len() {
            if self.parameters[i].roles[0].reads_attributes() {
                return self.attributes.is_empty();
            }
            i += 1;
        }
        false
    }

    /// Whether one parameter takes this operand and this result in one.
    pub(crate) fn pairs_in_place(&self, operand: usize, result: usize) -> bool {
        (0..self.parameters.len()).any(|i| {
            matches!(self.parameters[i].roles[0], Role::InPlace(_))
                && self.operands_before(i) == operand
                && self.results_before(i) == result
        })
    }
}

const fn count_required(attributes: &[AttributeDescription]) -> usize {
    let (mut i, mut count) = (0, 0);
    while i < attributes.len() {
        count += !attributes[i].is_optional as usize;
        i += 1;
    }
    count
}
