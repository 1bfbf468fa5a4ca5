//! The description of a target, known at compile time.
//!
//! The attribute macro creates a [`Description`] for each function. The decoder checks counts by
//! it, and it becomes the target's line in the custom section `callbox.targets`.

mod count;

use crate::{AttributeKind, ElementType, Stage};

pub(crate) use count::Count;

/// The parameters of one function of a target.
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// The target's name.
    pub name: &'static str,
    /// The stage that the function implements.
    pub stage: Stage,
    /// The function's doc comment.
    pub documentation: &'static str,
    /// The traits that the target promises, such as `pure`.
    pub traits: &'static [&'static str],
    /// The target whose derivatives the function computes, and which: `vjp` or `jvp`.
    pub derivative_of: Option<(&'static str, &'static str)>,
    /// The parameters that are neither attributes nor state, in order.
    pub parameters: &'static [ParameterDescription],
    /// The attributes, in the order of their parameters.
    pub attributes: &'static [AttributeDescription],
    /// The number of operands that the parameters take.
    pub operands: Count,
    /// The number of results that the parameters take.
    pub results: Count,
    /// The number of attributes that every call must have.
    pub required_attribute_count: usize,
}

/// A parameter that is neither an attribute nor state.
#[derive(Clone, Copy, Debug)]
pub struct ParameterDescription {
    /// The parameter's name.
    pub name: &'static str,
    /// The parameter's role, once for each element type of a generic target.
    pub roles: &'static [Role],
    /// The declared dimensions.
    pub dimensions: Option<&'static [Dimension]>,
}

/// One entry of declared dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Any number of dimensions, the same ones throughout the target. Only as the first entry.
    Any,
    /// A dimension of this size.
    Size(usize),
    /// A dimension of any size, which is the same wherever the target uses this name.
    Symbol(&'static str),
    /// A size that is computed from symbols: `n/2`.
    Expression(&'static str),
}

impl ParameterDescription {
    /// Returns whether dimensions are computed from others.
    pub(crate) const fn has_expressions(&self) -> bool {
        let Some(dimensions) = self.dimensions else {
            return false;
        };
        let mut i = 0;
        while i < dimensions.len() {
            if matches!(dimensions[i], Dimension::Expression(_)) {
                return true;
            }
            i += 1;
        }
        false
    }

    /// Returns the rank, if the type or the dimensions fix it.
    ///
    /// # Panics
    /// At compile time, if the two differ, or if a parameter without a buffer has dimensions.
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
                    "the type's rank must equal the number of dimensions"
                );
                Some(rank)
            }
        }
    }
}

/// The kind of value that a parameter receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The next operand.
    Operand(Signature),
    /// The next result.
    Result(Signature),
    /// The next operand and the next result, in one slice.
    InPlace(Signature),
    /// The next operand, if the call has one more.
    OptionalOperand(Signature),
    /// The next result, if the call has one more.
    OptionalResult(Signature),
    /// All further operands.
    RemainingOperands,
    /// All further results.
    RemainingResults,
    /// The call's context, which has no buffer.
    Context,
}

/// The type of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The element type, or `None` for any.
    pub element_type: Option<ElementType>,
    /// The rank, or `None` for any.
    pub rank: Option<usize>,
}

/// The type of an attribute.
#[derive(Clone, Copy, Debug)]
pub struct AttributeDescription {
    /// The attribute's name.
    pub name: &'static str,
    /// The attribute's kind.
    pub kind: AttributeKind,
    /// The element type of a scalar or an array.
    pub element_type: Option<ElementType>,
    /// The fields of a dictionary that becomes a struct.
    pub fields: Option<&'static [Self]>,
    /// The names and numbers of an enum's variants.
    pub variants: Option<&'static [(&'static str, i128)]>,
    /// Whether a call may omit the attribute.
    pub is_optional: bool,
}

impl Role {
    /// Returns the role of an optional parameter.
    ///
    /// # Panics
    /// At compile time, if the role is neither one operand nor one result.
    #[must_use]
    #[allow(
        clippy::panic,
        reason = "the panic is a compile error: every use is in a constant"
    )]
    pub const fn optional(self) -> Self {
        match self {
            Self::Operand(signature) => Self::OptionalOperand(signature),
            Self::Result(signature) => Self::OptionalResult(signature),
            _ => panic!("only an operand or a result can be optional"),
        }
    }

    /// Returns the role of a parameter that is a shared reference.
    ///
    /// # Panics
    /// At compile time, if the role is a result: the target could not write to it.
    #[must_use]
    #[allow(
        clippy::panic,
        reason = "the panic is a compile error: every use is in a constant"
    )]
    pub const fn shared(self) -> Self {
        match self {
            Self::Operand(_)
            | Self::OptionalOperand(_)
            | Self::RemainingOperands
            | Self::Context => self,
            Self::Result(_) | Self::OptionalResult(_) | Self::RemainingResults => {
                panic!("a result is written through `&mut`")
            }
            Self::InPlace(_) => panic!("what is changed in place is written through `&mut`"),
        }
    }

    /// Returns whether the parameter takes an operand.
    #[must_use]
    pub const fn takes_operand(self) -> bool {
        matches!(
            self,
            Self::Operand(_) | Self::OptionalOperand(_) | Self::InPlace(_)
        )
    }

    /// Returns whether the parameter takes a result.
    #[must_use]
    pub const fn takes_result(self) -> bool {
        matches!(
            self,
            Self::Result(_) | Self::OptionalResult(_) | Self::InPlace(_)
        )
    }

    /// Returns whether a call may omit the parameter's buffer.
    #[must_use]
    pub const fn is_optional(self) -> bool {
        matches!(self, Self::OptionalOperand(_) | Self::OptionalResult(_))
    }

    /// Returns whether the parameter can read all attributes of the call.
    #[must_use]
    pub const fn reads_attributes(self) -> bool {
        matches!(self, Self::Context)
    }

    /// Returns the type of the parameter's buffer.
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
    /// Returns a description without parameters.
    #[must_use]
    pub const fn new(name: &'static str, stage: Stage) -> Self {
        Self {
            name,
            stage,
            documentation: "",
            traits: &[],
            derivative_of: None,
            parameters: &[],
            attributes: &[],
            operands: Count::ANY,
            results: Count::ANY,
            required_attribute_count: 0,
        }
    }

    /// Adds the doc comment and the traits.
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

    /// Adds the target whose derivatives the function computes, and which.
    #[must_use]
    pub const fn with_derivative_of(mut self, target: &'static str, mode: &'static str) -> Self {
        self.derivative_of = Some((target, mode));
        self
    }

    /// Adds the parameters and attributes.
    ///
    /// # Panics
    /// At compile time, with XLA's message, if a required operand or result follows an optional
    /// one, and if a parameter cannot have the declared dimensions.
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

    /// Returns the number of operands that the parameters before this one take.
    #[must_use]
    pub const fn operands_before(&self, parameter: usize) -> usize {
        let (mut i, mut count) = (0, 0);
        while i < parameter {
            count += self.parameters[i].roles[0].takes_operand() as usize;
            i += 1;
        }
        count
    }

    /// Returns the number of results that the parameters before this one take.
    #[must_use]
    pub const fn results_before(&self, parameter: usize) -> usize {
        let (mut i, mut count) = (0, 0);
        while i < parameter {
            count += self.parameters[i].roles[0].takes_result() as usize;
            i += 1;
        }
        count
    }

    /// Returns whether the target has operands or results.
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

    /// Returns whether a parameter takes all further operands or results.
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

    /// Returns whether the function may read attributes that the description does not list: no
    /// attribute is bound to a parameter, and the function has a context.
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

    /// Returns whether one in-place parameter takes this operand and this result.
    pub(crate) fn pairs_in_place(&self, operand: usize, result: usize) -> bool {
        let (mut operands, mut results) = (0, 0);
        let roles = self.parameters.iter().filter_map(|p| p.roles.first());
        for role in roles {
            if matches!(role, Role::InPlace(_)) && (operands, results) == (operand, result) {
                return true;
            }
            operands += usize::from(role.takes_operand());
            results += usize::from(role.takes_result());
        }
        false
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
