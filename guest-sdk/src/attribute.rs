//! Attributes: values that are fixed when a program is compiled.

mod fields;

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::ops::Deref;

use crate::abi::{self, AttributeParts, Attributes};
use crate::description::AttributeKind;
use crate::{Bf16, C64, C128, Element, ElementType, F16, Failure, Pred};

pub use fields::Fields;

/// A type that an attribute can be bound as:
///
/// | type | attribute |
/// | --- | --- |
/// | [`bool`], and every [`Element`] | a scalar of this very element type: nothing is widened |
/// | an enum with `#[derive(AttributeEnum)]` | a scalar of the enum's `repr` |
/// | a slice of an [`Element`], or [`ArrayAttribute`], which has the shape | an array |
/// | [`&str`](str) | a string, which may contain NUL |
/// | [`Dictionary`], or a struct with `#[derive(AttributeStruct)]` | a dictionary |
/// | [`FunctionRef`](crate::FunctionRef) | a reference to a function of the program |
///
/// An [`Option`] of any of these is for an attribute that a call may lack.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type of attribute",
    label = "expected bool, f32, f64, an integer of 8 to 64 bits, &str, &[T], ArrayAttribute<T>, Dictionary, FunctionRef, a derived enum or struct, or an Option of one",
    note = "an enum is made one by `#[derive(AttributeEnum)]`, a struct by `#[derive(AttributeStruct)]`",
    note = "a pointer can be none: it is an address in the memory of the process that made the program, which a guest does not share"
)]
pub trait AttributeValue<'a>: Sized {
    /// What the attribute must hold.
    #[doc(hidden)]
    const KIND: AttributeKind;
    /// The element type of a scalar or an array.
    #[doc(hidden)]
    const ELEMENT_TYPE: Option<ElementType>;
    /// Whether a call may lack the attribute.
    #[doc(hidden)]
    const IS_OPTIONAL: bool = false;

    /// The value, or in XLA's words why it is not of this type.
    #[doc(hidden)]
    fn decode(attribute: AnyAttribute<'a>) -> Result<Self, String>;

    /// The value for a call that lacks the attribute.
    #[doc(hidden)]
    fn absent() -> Option<Self> {
        None
    }
}

/// An attribute that is not read yet.
#[derive(Clone, Copy)]
pub struct AnyAttribute<'a>(AttributeParts<'a>);

impl<'a> AnyAttribute<'a> {
    /// What the attribute holds, or `None` if this crate does not know it.
    #[must_use]
    pub const fn kind(self) -> Option<AttributeKind> {
        AttributeKind::from_number(self.0.kind)
    }

    /// The element type of a scalar or an array.
    #[must_use]
    pub const fn element_type(self) -> Option<ElementType> {
        ElementType::from_number(self.0.element_type)
    }

    /// The shape of an array; empty for any other.
    #[must_use]
    pub const fn dimensions(self) -> &'a [i64] {
        self.0.dimensions
    }

    /// The elements of a scalar or an array, little-endian, or the bytes of a string, whether they are UTF-8 or not; empty for a
    /// dictionary.
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0.bytes
    }

    /// The value.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with XLA's words for how it is not an `A`.
    pub fn get<A: AttributeValue<'a>>(self) -> Result<A, Failure> {
        A::decode(self).map_err(Failure::invalid_argument)
    }

    pub(crate) fn expect_kind(self, expected: AttributeKind) -> Result<(), String> {
        if self.0.kind == expected as u8 {
            return Ok(());
        }
        let found = self.kind().map_or("none", AttributeKind::name);
        Err(format!(
            "Wrong attribute type: expected {} but got {found}",
            expected.name()
        ))
    }

    fn expect_type(self, what: &str, expected: ElementType) -> Result<(), String> {
        if self.0.element_type == expected as u8 {
            return Ok(());
        }
        let found = self.element_type().map_or("INVALID", ElementType::name);
        Err(format!(
            "Wrong {what} data type: expected {expected} but got {found}"
        ))
    }

    fn elements<T: Element>(self) -> Result<&'a [T], String> {
        abi::elements(self.0.bytes).ok_or_else(|| String::from("Misaligned attribute"))
    }

    fn scalar<T: Element>(self) -> Result<T, String> {
        self.expect_kind(AttributeKind::Scalar)?;
        self.expect_type("scalar", T::TYPE)?;
        let missing = || String::from("Wrong scalar size: expected 1 element but got 0");
        self.elements::<T>()?.first().copied().ok_or_else(missing)
    }
}

/// What is wrong with a number that no variant of an enum has. XLA takes any number for an enum, Rust cannot.
#[cold]
#[must_use]
pub fn unknown_variant(variants: &[(&str, &dyn fmt::Display)], found: &dyn fmt::Display) -> String {
    let mut expected = String::new();
    for (i, (name, number)) in variants.iter().enumerate() {
        let separator = if i == 0 { "" } else { ", " };
        expected.push_str(&format!("{separator}{number} ({name})"));
    }
    format!("Wrong enum value: expected one of {expected} but got {found}")
}

impl fmt::Debug for AnyAttribute<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyAttribute")
            .field("kind", &self.kind())
            .field("element_type", &self.element_type())
            .finish_non_exhaustive()
    }
}

macro_rules! scalars {
    ($($type:ty),*) => {$(
        impl<'a> AttributeValue<'a> for $type {
            const KIND: AttributeKind = AttributeKind::Scalar;
            const ELEMENT_TYPE: Option<ElementType> = Some(<$type as Element>::TYPE);

            fn decode(attribute: AnyAttribute<'a>) -> Result<Self, String> {
                attribute.scalar()
            }
        }
    )*};
}

scalars!(i8, i16, i32, i64, u8, u16, u32, u64, f32, f64);
scalars!(Pred, F16, Bf16, C64, C128);

impl<'a> AttributeValue<'a> for bool {
    const KIND: AttributeKind = AttributeKind::Scalar;
    const ELEMENT_TYPE: Option<ElementType> = Some(ElementType::Pred);

    fn decode(attribute: AnyAttribute<'a>) -> Result<Self, String> {
        attribute.scalar::<Pred>().map(bool::from)
    }
}

impl<'a> AttributeValue<'a> for &'a str {
    const KIND: AttributeKind = AttributeKind::String;
    const ELEMENT_TYPE: Option<ElementType> = None;

    fn decode(attribute: AnyAttribute<'a>) -> Result<Self, String> {
        attribute.expect_kind(AttributeKind::String)?;
        str::from_utf8(attribute.0.bytes)
            .map_err(|error| format!("Wrong string encoding: expected UTF-8 but got {error}"))
    }
}

impl<'a, T: Element> AttributeValue<'a> for &'a [T] {
    const KIND: AttributeKind = AttributeKind::Array;
    const ELEMENT_TYPE: Option<ElementType> = Some(T::TYPE);

    fn decode(attribute: AnyAttribute<'a>) -> Result<Self, String> {
        attribute.expect_kind(AttributeKind::Array)?;
        attribute.expect_type("array", T::TYPE)?;
        attribute.elements()
    }
}

impl<'a, A: AttributeValue<'a>> AttributeValue<'a> for Option<A> {
    const KIND: AttributeKind = A::KIND;
    const ELEMENT_TYPE: Option<ElementType> = A::ELEMENT_TYPE;
    const IS_OPTIONAL: bool = true;

    fn decode(attribute: AnyAttribute<'a>) -> Result<Self, String> {
        A::decode(attribute).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

/// An array attribute with its dimensions: a slice of its elements in row-major order.
#[derive(Clone, Copy, Debug)]
pub struct ArrayAttribute<'a, T: Element> {
    elements: &'a [T],
    dimensions: &'a [i64],
}

impl<'a, T: Element> ArrayAttribute<'a, T> {
    /// The dimensions.
    #[must_use]
    pub const fn dimensions(&self) -> &'a [i64] {
        self.dimensions
    }
}

impl<T: Element> Deref for ArrayAttribute<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.elements
    }
}

impl<'a, T: Element> AttributeValue<'a> for ArrayAttribute<'a, T> {
    const KIND: AttributeKind = AttributeKind::Array;
    const ELEMENT_TYPE: Option<ElementType> = Some(T::TYPE);

    fn decode(attribute: AnyAttribute<'a>) -> Result<Self, String> {
        Ok(Self {
            elements: <&[T]>::decode(attribute)?,
            dimensions: attribute.0.dimensions,
        })
    }
}

/// Attributes by name: a dictionary attribute, or all attributes of a call
/// ([`Context::attributes`](crate::Context::attributes)).
#[derive(Clone, Copy)]
pub struct Dictionary<'a>(pub(crate) Attributes<'a>);

impl<'a> Dictionary<'a> {
    /// How many attributes there are.
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The names, sorted. A name that is not UTF-8 is left out.
    pub fn names(self) -> impl Iterator<Item = &'a str> {
        (0..self.len())
            .filter_map(move |index| self.0.name(index))
            .filter_map(|name| str::from_utf8(name).ok())
    }

    /// The attribute of this name, if there is one.
    #[must_use]
    pub fn find(self, name: &str) -> Option<AnyAttribute<'a>> {
        (0..self.len())
            .find(|&index| self.0.name(index) == Some(name.as_bytes()))
            .and_then(|index| self.0.get(index))
            .map(AnyAttribute)
    }

    /// The value of the attribute of this name. `Option<A>` is `None` where there is no such attribute.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with XLA's words: `Unexpected attribute: NAME` if the dictionary lacks it, or how it is not an `A`.
    pub fn get<A: AttributeValue<'a>>(self, name: &str) -> Result<A, Failure> {
        match self.find(name) {
            Some(attribute) => A::decode(attribute),
            None => A::absent().ok_or_else(|| format!("Unexpected attribute: {name}")),
        }
        .map_err(Failure::invalid_argument)
    }

    /// All the attributes as one value, such as a struct with `#[derive(AttributeStruct)]`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with XLA's words for how they are not an `A`.
    pub fn read<A: AttributeValue<'a>>(self) -> Result<A, Failure> {
        AnyAttribute(AttributeParts::of_dictionary(self.0)).get()
    }

    /// The attribute with this number.
    pub(crate) fn nth(self, index: usize) -> Option<AnyAttribute<'a>> {
        self.0.get(index).map(AnyAttribute)
    }
}

impl fmt::Debug for Dictionary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}

impl<'a> AttributeValue<'a> for Dictionary<'a> {
    const KIND: AttributeKind = AttributeKind::Dictionary;
    const ELEMENT_TYPE: Option<ElementType> = None;

    fn decode(attribute: AnyAttribute<'a>) -> Result<Self, String> {
        attribute.expect_kind(AttributeKind::Dictionary)?;
        Ok(Self(attribute.0.nested))
    }
}
