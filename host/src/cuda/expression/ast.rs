//! What an expression is made of.

use std::fmt;

/// A part of an expression. Parts nest at most as deep as the parser lets them, so that going through them takes little stack.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// Where it stands, in characters, from 1.
    pub(super) column: usize,
    pub(super) part: Part,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Integer(i128),
    Float(f64),
    Boolean(bool),
    Text(String),
    /// How many operands or results there are: leaves in preorder.
    Count(Side),
    Shape {
        side: Side,
        leaf: usize,
        fact: Fact,
    },
    Attribute(Path),
    Has(Path),
    OpaqueBytes,
    OpaqueByte(Box<Node>),
    Opaque(OpaqueType, Box<Node>),
    Negate(Box<Node>),
    Not(Box<Node>),
    /// Operators of one precedence, from left to right: a chain, and not a tree, is as deep as its deepest part.
    Chain(Box<Node>, Vec<Link>),
    Compare(Box<Node>, Comparison, Box<Node>),
    /// A condition, and what it chooses from. Only what is chosen is evaluated.
    If(Box<[Node; 3]>),
    Call(Function, Vec<Node>),
}

/// An operator and what stands to its right.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Link {
    pub(super) operator: Operator,
    /// Where the operator stands.
    pub(super) column: usize,
    pub(super) right: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Operands,
    Results,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Operands => "operands",
            Self::Results => "results",
        })
    }
}

/// What is asked of a leaf's shape.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fact {
    Elements,
    Bytes,
    Rank,
    ElementSize,
    ElementType,
    /// The size of a dimension. A negative number counts from the end.
    Dimension(Box<Node>),
}

/// The way to an attribute: a name, and steps into a dictionary or an array.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Path {
    pub(super) name: String,
    pub(super) steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    /// An attribute of a dictionary; `count` of an array is how many elements it has.
    Name(String),
    /// An element of an array, by its place in row-major order.
    Index(Node),
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attributes.{}", self.name)?;
        self.steps.iter().try_for_each(|step| match step {
            Step::Name(name) => write!(f, ".{name}"),
            Step::Index(_) => f.write_str("[...]"),
        })
    }
}

/// A number in the opaque bytes, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpaqueType {
    U32,
    U64,
    F32,
    F64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    Or,
    And,
    Add,
    Subtract,
    Multiply,
    Divide,
    Remainder,
}

impl Operator {
    pub(super) fn is_logical(self) -> bool {
        matches!(self, Self::Or | Self::And)
    }

    pub(super) fn symbol(self) -> &'static str {
        match self {
            Self::Or => "||",
            Self::And => "&&",
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::Divide => "/",
            Self::Remainder => "%",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    /// Whether it asks for an order, and not for equality alone.
    pub(super) fn is_order(self) -> bool {
        !matches!(self, Self::Equal | Self::NotEqual)
    }
}

/// A function of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Min,
    Max,
    CeilDiv,
    RoundUp,
    Pow2AtLeast,
    Clamp,
}

impl Function {
    pub(super) const ALL: [Self; 6] = [
        Self::Min,
        Self::Max,
        Self::CeilDiv,
        Self::RoundUp,
        Self::Pow2AtLeast,
        Self::Clamp,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::CeilDiv => "ceil_div",
            Self::RoundUp => "round_up",
            Self::Pow2AtLeast => "pow2_at_least",
            Self::Clamp => "clamp",
        }
    }

    /// How many arguments it takes, at least and at most.
    pub(super) fn arity(self) -> (usize, usize) {
        match self {
            Self::Min | Self::Max => (2, usize::MAX),
            Self::CeilDiv | Self::RoundUp => (2, 2),
            Self::Pow2AtLeast => (1, 1),
            Self::Clamp => (3, 3),
        }
    }
}
