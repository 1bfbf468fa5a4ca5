//! The syntax tree of an expression.

use std::fmt;

/// A part of an expression. The parser bounds how deep parts nest, so that recursion takes little
/// stack.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// The column in characters, from 1.
    pub(super) column: usize,
    pub(super) part: Part,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Integer(i128),
    Float(f64),
    Boolean(bool),
    Text(String),
    /// The number of operands or results: leaves in preorder.
    Count(Side),
    Shape {
        side: Side,
        leaf: usize,
        fact: Fact,
    },
    Attribute(AttributeReference),
    /// Whether the call site has an attribute.
    Has(String),
    /// The number of opaque bytes.
    OpaqueBytes,
    /// The little-endian number of four opaque bytes from an offset.
    OpaqueU32(Box<Node>),
    Negate(Box<Node>),
    Not(Box<Node>),
    /// Operators of one precedence, from left to right. A chain is only as deep as its deepest
    /// part.
    Chain(Box<Node>, Vec<Link>),
    Compare(Box<Node>, Comparison, Box<Node>),
    /// A condition, and two alternatives, of which only the chosen one is evaluated.
    If(Box<[Node; 3]>),
    Call(Function, Vec<Node>),
}

/// An operator, and the operand to its right.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Link {
    pub(super) operator: Operator,
    /// The operator's column.
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

/// A property of a leaf's shape.
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

/// An attribute's value, or a part of an array.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct AttributeReference {
    pub(super) name: String,
    pub(super) of: AttributePart,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum AttributePart {
    /// A scalar or a string.
    Value,
    /// The number of elements of an array.
    Count,
    /// An element of an array, by its place in row-major order.
    Element(Box<Node>),
}

impl fmt::Display for AttributeReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = match self.of {
            AttributePart::Value => "",
            AttributePart::Count => ".count",
            AttributePart::Element(_) => "[...]",
        };
        write!(f, "attributes.{}{part}", self.name)
    }
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
    /// Whether it asks for an order, rather than for equality.
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
}

impl Function {
    pub(super) const ALL: [Self; 3] = [Self::Min, Self::Max, Self::CeilDiv];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::CeilDiv => "ceil_div",
        }
    }

    /// The most arguments that it takes. Each function takes at least two.
    pub(super) fn most_arguments(self) -> usize {
        match self {
            Self::Min | Self::Max => usize::MAX,
            Self::CeilDiv => 2,
        }
    }
}
