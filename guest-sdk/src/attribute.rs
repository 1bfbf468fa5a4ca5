//! Attributes: values that are fixed when a program is compiled.

mod fields;

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::ops::Deref;

use crate::abi::{self, AttributeParts, Attributes};
use crate::description::AttributeDescription;
use crate::text::{append, text};
use crate::{AttributeKind, Bf16, C64, C128, Element, ElementType, F16, Failure, Pred};

pub use fields::Fields;

/// A type that an attribute can be bound to:
///
/// | type | attribute |
/// | --- | --- |
/// | [`bool`], and every [`Element`] | a scalar of exactly this element type |
/// | an enum with `#[derive(AttributeEnum)]` | a scalar of the enum's `repr` |
/// | a slice of an [`Element`], or [`ArrayAttribute`], which has the shape | an array |
/// | [`&str`](str) | a string, which may contain NUL |
/// | [`Dictionary`], or a struct with `#[derive(AttributeStruct)]` | a dictionary |
/// | [`FunctionRef`](crate::FunctionRef) | a reference to a function of the program |
///
/// An [`Option`] of any of these is an attribute that a call may omit.
///
/// ```
/// use callbox_guest::{ResultBuffer, native::Call, target};
///
/// #[target]
/// fn fill(y: &mut ResultBuffer<f32>, #[attr] value: f32, #[attr] factor: Option<f32>) {
///     y.fill(value * factor.unwrap_or(1.0));
/// }
///
/// let mut call = Call::new();
/// call.result::<f32>(&[2]).attribute("value", 3.0_f32);
/// assert_eq!(call.run::<fill>(), Ok(()));
/// assert_eq!(call.result_elements::<f32>(0), [3.0, 3.0]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a type of attribute",
    label = "expected bool, f32, f64, an integer of 8 to 64 bits, &str, &[T], ArrayAttribute<T>, Dictionary, FunctionRef, a derived enum or struct, or an Option of one",
    note = "derive `AttributeEnum` for an enum, `AttributeStruct` for a struct",
    note = "a pointer cannot be an attribute: it is an address in the memory of another process"
)]
pub trait AttributeValue<'a>: Sized {
    /// The kind of attribute that the type takes.
    #[doc(hidden)]
    const KIND: AttributeKind;
    /// The element type of a scalar or an array.
    #[doc(hidden)]
    const ELEMENT_TYPE: Option<ElementType>;
    /// The fields of a dictionary that becomes a struct.
    #[doc(hidden)]
    const FIELDS: Option<&'static [AttributeDescription]> = None;
    /// The names and numbers of an enum's variants.
    #[doc(hidden)]
    const VARIANTS: Option<&'static [(&'static str, i128)]> = None;
    /// Whether a call may omit the attribute.
    #[doc(hidden)]
    const IS_OPTIONAL: bool = false;

    /// Decodes the value, or returns XLA's message for a mismatch.
    #[doc(hidden)]
    fn decode(attribute: AnyAttribute<'a>) -> Result<Self, String>;

    /// The value for a call that omits the attribute.
    #[doc(hidden)]
    fn absent() -> Option<Self> {
        None
    }
}

/// An attribute of any type, not decoded yet.
///
/// ```
/// use callbox_guest::{AttributeKind, Context, Failure, native::Call, target};
///
/// #[target]
/// fn check(context: &Context) -> Result<(), Failure> {
///     let axis = context.attributes().find("axis");
///     match axis.and_then(|axis| axis.kind()) {
///         Some(AttributeKind::Scalar) => Ok(()),
///         _ => Err(Failure::invalid_argument("expected `axis` to be a number")),
///     }
/// }
///
/// assert_eq!(Call::new().attribute("axis", 1_i64).run::<check>(), Ok(()));
/// assert!(Call::new().attribute("axis", "x").run::<check>().is_err());
/// ```
#[derive(Clone, Copy)]
pub struct AnyAttribute<'a>(AttributeParts<'a>);

impl<'a> AnyAttribute<'a> {
    /// Returns the kind of the attribute, or `None` if this crate does not know it.
    ///
    /// ```
    /// use callbox_guest::{AttributeKind, Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     let axes = context.attributes().find("axes").ok_or(Failure::not_found("axes"))?;
    ///     assert_eq!(axes.kind(), Some(AttributeKind::Array));
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().attribute("axes", &[0_i64, 2][..]).run::<check>(), Ok(()));
    /// ```
    #[must_use]
    pub const fn kind(self) -> Option<AttributeKind> {
        AttributeKind::from_number(self.0.kind)
    }

    /// Returns the element type of a scalar or an array.
    ///
    /// ```
    /// use callbox_guest::{Context, ElementType, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     let axes = context.attributes().find("axes").ok_or(Failure::not_found("axes"))?;
    ///     assert_eq!(axes.element_type(), Some(ElementType::S64));
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().attribute("axes", &[0_i64, 2][..]).run::<check>(), Ok(()));
    /// ```
    #[must_use]
    pub const fn element_type(self) -> Option<ElementType> {
        ElementType::from_number(self.0.element_type)
    }

    /// Returns the dimensions of an array; empty for other kinds.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     let axes = context.attributes().find("axes").ok_or(Failure::not_found("axes"))?;
    ///     assert_eq!(axes.dimensions(), [2]);
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().attribute("axes", &[0_i64, 2][..]).run::<check>(), Ok(()));
    /// ```
    #[must_use]
    pub const fn dimensions(self) -> &'a [i64] {
        self.0.dimensions
    }

    /// Returns the bytes of the value: a scalar's or an array's elements, little-endian, or a
    /// string's bytes, whether they are UTF-8 or not. Empty for a dictionary.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     let axes = context.attributes().find("axes").ok_or(Failure::not_found("axes"))?;
    ///     assert_eq!(axes.bytes(), b"xy");
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().attribute("axes", "xy").run::<check>(), Ok(()));
    /// ```
    #[must_use]
    pub const fn bytes(self) -> &'a [u8] {
        self.0.bytes
    }

    /// Decodes the value as an `A`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with XLA's message if the attribute does not have the type of an `A`.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     let axes = context.attributes().find("axes").ok_or(Failure::not_found("axes"))?;
    ///     assert_eq!(axes.get::<&[i64]>()?, [0, 2]);
    ///     assert!(axes.get::<f32>().is_err());
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().attribute("axes", &[0_i64, 2][..]).run::<check>(), Ok(()));
    /// ```
    pub fn get<A: AttributeValue<'a>>(self) -> Result<A, Failure> {
        A::decode(self).map_err(Failure::invalid_argument)
    }

    pub(crate) fn expect_kind(self, expected: AttributeKind) -> Result<(), String> {
        if self.0.kind == expected as u8 {
            return Ok(());
        }
        let found = self.kind().map_or("none", AttributeKind::name);
        Err(text![
            "Wrong attribute type: expected ",
            expected.name(),
            " but got ",
            found
        ])
    }

    fn expect_type(self, what: &str, expected: ElementType) -> Result<(), String> {
        if self.0.element_type == expected as u8 {
            return Ok(());
        }
        let found = self
            .element_type()
            .map_or("INVALID", ElementType::upper_name);
        Err(text![
            "Wrong ",
            what,
            " data type: expected ",
            expected.upper_name(),
            " but got ",
            found
        ])
    }

    fn elements<T: Element>(self) -> Result<&'a [T], String> {
        abi::elements(self.0.bytes).ok_or_else(|| text!["Misaligned attribute"])
    }

    fn scalar<T: Element>(self) -> Result<T, String> {
        self.expect_kind(AttributeKind::Scalar)?;
        self.expect_type("scalar", T::TYPE)?;
        let missing = || text!["Wrong scalar size: expected 1 element but got 0"];
        self.elements::<T>()?.first().copied().ok_or_else(missing)
    }
}

/// Returns the message for a number that no variant of an enum has. XLA accepts any number for an
/// enum; Rust cannot.
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

/// Returns the message for an attribute that none of these names is.
#[cold]
pub(crate) fn unknown_name<'a>(names: impl Iterator<Item = &'a str>, found: &str) -> String {
    let expected = list(names);
    text![
        "Unknown attribute: expected one of ",
        &expected,
        " but got ",
        found
    ]
}

/// Returns the names, separated by commas.
pub(crate) fn list<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let mut list = String::new();
    for (i, name) in names.enumerate() {
        append(&mut list, if i == 0 { "" } else { ", " }.into());
        append(&mut list, name.into());
    }
    list
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
    const FIELDS: Option<&'static [AttributeDescription]> = A::FIELDS;
    const VARIANTS: Option<&'static [(&'static str, i128)]> = A::VARIANTS;
    const IS_OPTIONAL: bool = true;

    fn decode(attribute: AnyAttribute<'a>) -> Result<Self, String> {
        A::decode(attribute).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

/// An array attribute with its dimensions: a slice of its elements in row-major order.
///
/// ```
/// use callbox_guest::{ArrayAttribute, ResultBuffer, native::Call, target};
///
/// #[target]
/// fn constant(y: &mut ResultBuffer<f32>, #[attr] values: ArrayAttribute<f32>) {
///     assert_eq!(y.dimensions(), values.dimensions());
///     y.copy_from_slice(&values);
/// }
///
/// let mut call = Call::new();
/// call.result::<f32>(&[2]).attribute("values", &[1.0_f32, 2.0][..]);
/// assert_eq!(call.run::<constant>(), Ok(()));
/// assert_eq!(call.result_elements::<f32>(0), [1.0, 2.0]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ArrayAttribute<'a, T: Element> {
    elements: &'a [T],
    dimensions: &'a [i64],
}

impl<'a, T: Element> ArrayAttribute<'a, T> {
    /// Returns the dimensions.
    ///
    /// ```
    /// use callbox_guest::{ArrayAttribute, native::Call, target};
    ///
    /// #[target]
    /// fn check(#[attr] axes: ArrayAttribute<i64>) {
    ///     assert_eq!(axes.dimensions(), [2]);
    /// }
    ///
    /// assert_eq!(Call::new().attribute("axes", &[0_i64, 2][..]).run::<check>(), Ok(()));
    /// ```
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
///
/// ```
/// use callbox_guest::native::{Call, Value};
/// use callbox_guest::{Dictionary, Failure, ResultBuffer, target};
///
/// #[target]
/// fn middle(y: &mut ResultBuffer<f32>, #[attr] range: Dictionary) -> Result<(), Failure> {
///     let (lo, hi): (f32, f32) = (range.get("lo")?, range.get("hi")?);
///     y.fill((lo + hi) / 2.0);
///     Ok(())
/// }
///
/// let ends = [("lo", 1.0_f32), ("hi", 2.0)].map(|(name, end)| (name.to_owned(), end.into()));
/// let mut call = Call::new();
/// call.result::<f32>(&[1]).attribute("range", Value::Dictionary(ends.to_vec()));
/// assert_eq!(call.run::<middle>(), Ok(()));
/// assert_eq!(call.result_elements::<f32>(0), [1.5]);
/// ```
#[derive(Clone, Copy)]
pub struct Dictionary<'a>(pub(crate) Attributes<'a>);

impl<'a> Dictionary<'a> {
    /// Returns the number of attributes.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     let all = context.attributes();
    ///     assert_eq!(all.len(), 1);
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().attribute("axes", 1_i64).run::<check>(), Ok(()));
    /// ```
    #[must_use]
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Returns whether the dictionary is empty.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     let all = context.attributes();
    ///     assert!(!all.is_empty());
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().attribute("axes", 1_i64).run::<check>(), Ok(()));
    /// ```
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the names in ascending order, without those that are not UTF-8.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     let all = context.attributes();
    ///     assert!(all.names().eq(["axes"]));
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().attribute("axes", 1_i64).run::<check>(), Ok(()));
    /// ```
    pub fn names(self) -> impl Iterator<Item = &'a str> {
        (0..self.len())
            .filter_map(move |index| self.0.name(index))
            .filter_map(|name| str::from_utf8(name).ok())
    }

    /// Returns the attribute with this name.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     let all = context.attributes();
    ///     assert!(all.find("axes").is_some());
    ///     assert!(all.find("axis").is_none());
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().attribute("axes", 1_i64).run::<check>(), Ok(()));
    /// ```
    #[must_use]
    pub fn find(self, name: &str) -> Option<AnyAttribute<'a>> {
        (0..self.len())
            .find(|&index| self.0.name(index) == Some(name.as_bytes()))
            .and_then(|index| self.0.get(index))
            .map(AnyAttribute)
    }

    /// Decodes the attribute with this name. If there is none, `Option<A>` is `None`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with XLA's message: `Unexpected attribute: NAME` if there is no such
    /// attribute, or a mismatch of its type.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     let all = context.attributes();
    ///     assert_eq!(all.get::<i64>("axes")?, 1);
    ///     assert_eq!(all.get::<Option<i64>>("axis")?, None);
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().attribute("axes", 1_i64).run::<check>(), Ok(()));
    /// ```
    pub fn get<A: AttributeValue<'a>>(self, name: &str) -> Result<A, Failure> {
        match self.find(name) {
            Some(attribute) => A::decode(attribute),
            None => A::absent().ok_or_else(|| text!["Unexpected attribute: ", name]),
        }
        .map_err(Failure::invalid_argument)
    }

    /// Decodes the whole dictionary, for example as a struct with `#[derive(AttributeStruct)]`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with XLA's message for a mismatch.
    ///
    /// ```
    /// use callbox_guest::{AttributeStruct, Context, Failure, native::Call, target};
    ///
    /// #[derive(AttributeStruct)]
    /// struct Options {
    ///     axes: i64,
    /// }
    ///
    /// #[target]
    /// fn check(context: &Context) -> Result<(), Failure> {
    ///     let options: Options = context.attributes().read()?;
    ///     assert_eq!(options.axes, 1);
    ///     Ok(())
    /// }
    ///
    /// assert_eq!(Call::new().attribute("axes", 1_i64).run::<check>(), Ok(()));
    /// ```
    pub fn read<A: AttributeValue<'a>>(self) -> Result<A, Failure> {
        AnyAttribute(AttributeParts::of_dictionary(self.0)).get()
    }

    /// Returns the attribute at this index.
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
