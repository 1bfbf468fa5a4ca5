//! Attributes of every type.

use callbox_guest::{
    ArrayAttribute, AttributeEnum, AttributeStruct, C64, C128, Context, Dictionary, Failure, Pred,
    ResultBuffer, target,
};

/// Returns the attributes as F64. Each is a scalar of the type that it is named after.
#[target(pure)]
#[allow(
    clippy::too_many_arguments,
    reason = "one for each type that a scalar can have"
)]
fn scalars(
    y: &mut ResultBuffer<f64, 1>,
    #[attr] pred: bool,
    #[attr] s8: i8,
    #[attr] s16: i16,
    #[attr] s32: i32,
    #[attr] s64: i64,
    #[attr] u8: u8,
    #[attr] u16: u16,
    #[attr] u32: u32,
    #[attr] u64: u64,
    #[attr] f32: f32,
    #[attr] f64: f64,
) -> Result<(), Failure> {
    y.expect_dimensions(&[11])?;
    y.copy_from_slice(&[
        f64::from(u8::from(pred)),
        f64::from(s8),
        f64::from(s16),
        f64::from(s32),
        s64 as f64,
        f64::from(u8),
        f64::from(u16),
        f64::from(u32),
        u64 as f64,
        f64::from(f32),
        f64,
    ]);
    Ok(())
}

/// Returns the real and imaginary parts of two complex scalars.
#[target(pure)]
fn complex_scalars(
    y: &mut ResultBuffer<f64, 1>,
    #[attr] c64: C64,
    #[attr] c128: C128,
) -> Result<(), Failure> {
    y.expect_dimensions(&[4])?;
    y.copy_from_slice(&[f64::from(c64.re), f64::from(c64.im), c128.re, c128.im]);
    Ok(())
}

/// Returns the sum of each attribute as F64. Each is an array of the type that it is named after.
#[target(pure)]
#[allow(
    clippy::too_many_arguments,
    reason = "one for each type that an array can have"
)]
fn arrays(
    y: &mut ResultBuffer<f64, 1>,
    #[attr] pred: &[Pred],
    #[attr] s8: &[i8],
    #[attr] s16: &[i16],
    #[attr] s32: &[i32],
    #[attr] s64: &[i64],
    #[attr] u8: &[u8],
    #[attr] u16: &[u16],
    #[attr] u32: &[u32],
    #[attr] u64: &[u64],
    #[attr] f32: &[f32],
    #[attr] f64: &[f64],
) -> Result<(), Failure> {
    fn sum<T: Copy>(array: &[T], convert: impl Fn(T) -> f64) -> f64 {
        array.iter().fold(0.0, |sum, x| sum + convert(*x))
    }
    y.expect_dimensions(&[11])?;
    y.copy_from_slice(&[
        sum(pred, |x| f64::from(u8::from(x.get()))),
        sum(s8, f64::from),
        sum(s16, f64::from),
        sum(s32, f64::from),
        sum(s64, |x| x as f64),
        sum(u8, f64::from),
        sum(u16, f64::from),
        sum(u32, f64::from),
        sum(u64, |x| x as f64),
        sum(f32, f64::from),
        sum(f64, f64::from),
    ]);
    Ok(())
}

/// Returns the shape of the array attribute `array`: its rank, its dimensions, and its first and
/// last element if it has any.
#[target(pure)]
fn array_shape(
    y: &mut ResultBuffer<i64, 1>,
    #[attr] array: ArrayAttribute<i32>,
) -> Result<(), Failure> {
    let mut fields = vec![array.dimensions().len() as i64];
    fields.extend(array.dimensions());
    fields.extend(array.first().map(|x| i64::from(*x)));
    fields.extend(array.last().map(|x| i64::from(*x)));
    y.expect_dimensions(&[fields.len() as i64])?;
    y.copy_from_slice(&fields);
    Ok(())
}

/// Returns the bytes of the string attribute `text`.
#[target(pure)]
fn text(y: &mut ResultBuffer<u8, 1>, #[attr] text: &str) -> Result<(), Failure> {
    y.expect_dimensions(&[text.len() as i64])?;
    y.copy_from_slice(text.as_bytes());
    Ok(())
}

/// Returns the attribute `secret`, S64, and the number of attributes: JAX's example of a dictionary
/// of all attributes.
#[target(pure)]
fn dictionary_attr(
    context: &Context,
    secret: &mut ResultBuffer<i32, 0>,
    count: &mut ResultBuffer<i32, 0>,
) -> Result<(), Failure> {
    let attributes = context.attributes();
    secret.set(attributes.get::<i64>("secret")? as i32);
    count.set(attributes.len() as i32);
    Ok(())
}

/// Returns the depth of the dictionaries `deeper` in the attribute `nested`, and the S32 `leaf` of
/// the innermost one, or -1.
#[target(pure)]
fn depth(y: &mut ResultBuffer<i32, 1>, #[attr] nested: Dictionary) -> Result<(), Failure> {
    y.expect_dimensions(&[2])?;
    let (mut depth, mut last) = (1, nested);
    while let Some(deeper) = last.get::<Option<Dictionary>>("deeper")? {
        depth += 1;
        last = deeper;
    }
    let leaf = last.get::<Option<i32>>("leaf")?;
    y.copy_from_slice(&[depth, leaf.unwrap_or(-1)]);
    Ok(())
}

/// A 32-bit enum.
#[derive(AttributeEnum, Clone, Copy)]
#[repr(i32)]
enum Rounding {
    Down = -1,
    Nearest = 0,
    Up = 1,
}

/// An unsigned 8-bit enum.
#[derive(AttributeEnum, Clone, Copy)]
#[repr(u8)]
enum Side {
    Left = 1,
    Right = 255,
}

/// Returns the numbers of the enums `rounding` (S32) and, if there is one, `side` (U8), or 0.
#[target(pure)]
fn enums(
    y: &mut ResultBuffer<i32, 1>,
    #[attr] rounding: Rounding,
    #[attr] side: Option<Side>,
) -> Result<(), Failure> {
    y.expect_dimensions(&[2])?;
    y.copy_from_slice(&[rounding as i32, side.map_or(0, |side| side as i32)]);
    Ok(())
}

/// XLA's example of a struct.
#[derive(AttributeStruct)]
struct Range {
    lo: i64,
    hi: i64,
}

/// A struct that contains structs, enums and optional fields.
#[derive(AttributeStruct)]
struct Window<'a> {
    range: Range,
    rounding: Rounding,
    #[attr(name = "type")]
    kind: Option<&'a str>,
    weights: Option<&'a [f32]>,
}

/// Returns the ends of the struct `range`.
#[target(pure)]
fn range(y: &mut ResultBuffer<i64, 1>, #[attr] range: Range) -> Result<(), Failure> {
    y.expect_dimensions(&[2])?;
    y.copy_from_slice(&[range.lo, range.hi]);
    Ok(())
}

/// Returns the fields of the struct `window`: the ends of its range, the number of its rounding,
/// the length of its type or -1, and the number of its weights or -1.
#[target(pure)]
fn window(y: &mut ResultBuffer<i64, 1>, #[attr] window: Window) -> Result<(), Failure> {
    let length = |length: Option<usize>| length.map_or(-1, |length| length as i64);
    y.expect_dimensions(&[5])?;
    y.copy_from_slice(&[
        window.range.lo,
        window.range.hi,
        window.rounding as i64,
        length(window.kind.map(str::len)),
        length(window.weights.map(<[f32]>::len)),
    ]);
    Ok(())
}

/// All attributes of the call as one struct.
#[target(pure)]
fn range_of_all(context: &Context, y: &mut ResultBuffer<i64, 1>) -> Result<(), Failure> {
    range(y, context.attributes().read()?)
}
