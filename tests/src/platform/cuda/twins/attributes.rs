//! Twins of `guests/typed_ffi/src/attributes.rs` whose attributes cannot be parameters of a kernel.

use callbox::cuda::{CudaCall, CudaTarget};
use callbox::{Attribute, Dictionary, Literal, Result};
use num_complex::{Complex32, Complex64};

use super::results::{give, give_one};
use super::twin;
use super::words::{
    Diagnostic, array, asked, attribute, bad_attributes, dictionary, find, invalid_argument,
    scalar, text, variant,
};

pub(super) fn twins() -> Vec<(&'static str, CudaTarget)> {
    vec![
        twin("complex_scalars", complex_scalars),
        twin("enums", enums),
        twin("arrays", arrays),
        twin("array_shape", array_shape),
        twin("text", |call| {
            let text = attribute("text", find(call.attributes(), "text").and_then(text))?;
            let bytes = text.as_bytes().to_vec();
            give(call, 0, &bytes)
        }),
        twin("dictionary_attr", |call| {
            let secret = asked(call.attributes(), "secret", scalar::<i64>)?;
            let count = call.attributes().len();
            give_one(call, 0, secret as i32)?;
            give_one(call, 1, count as i32)
        }),
        twin("depth", depth),
        twin("range", |call| {
            let found = find(call.attributes(), "range");
            let ends = attribute("range", found.and_then(dictionary).and_then(range))?;
            give(call, 0, &ends)
        }),
        twin("range_of_all", |call| {
            let ends = range(call.attributes()).map_err(invalid_argument)?;
            give(call, 0, &ends)
        }),
        twin("window", |call| {
            let found = find(call.attributes(), "window");
            let said = attribute("window", found.and_then(dictionary).and_then(window))?;
            give(call, 0, &said)
        }),
    ]
}

const ROUNDING: [(i64, &str); 3] = [(-1, "Down"), (0, "Nearest"), (1, "Up")];

fn enums(call: &mut CudaCall<'_>) -> Result<()> {
    let all = call.attributes();
    let rounding = find(all, "rounding").and_then(scalar::<i32>);
    let rounding = rounding.and_then(|number| variant(number.into(), &ROUNDING));
    let side = all.get("side").map_or(Ok(0), |side| {
        variant(scalar::<u8>(side)?.into(), &[(1, "Left"), (255, "Right")])
    });
    match (rounding, side) {
        (Ok(rounding), Ok(side)) => give(call, 0, &[rounding as i32, side as i32]),
        (rounding, side) => {
            let bad = [("rounding", rounding.err()), ("side", side.err())].into_iter();
            let bad: Vec<_> = bad.filter_map(|(n, text)| Some((n, text?))).collect();
            Err(bad_attributes(&bad))
        }
    }
}

fn complex_scalars(call: &mut CudaCall<'_>) -> Result<()> {
    let c64: Complex32 = asked(call.attributes(), "c64", scalar)?;
    let c128: Complex64 = asked(call.attributes(), "c128", scalar)?;
    let parts = [f64::from(c64.re), f64::from(c64.im), c128.re, c128.im];
    give(call, 0, &parts)
}

fn arrays(call: &mut CudaCall<'_>) -> Result<()> {
    let all = call.attributes();
    fn sum<T: callbox::NativeType>(
        all: &Dictionary,
        name: &str,
        convert: impl Fn(T) -> f64,
    ) -> Result<f64> {
        let elements = asked(all, name, array::<T>)?;
        Ok(elements.into_iter().fold(0.0, |sum, x| sum + convert(x)))
    }
    let sums = [
        sum(all, "pred", |x: bool| f64::from(u8::from(x)))?,
        sum(all, "s8", |x: i8| f64::from(x))?,
        sum(all, "s16", |x: i16| f64::from(x))?,
        sum(all, "s32", |x: i32| f64::from(x))?,
        sum(all, "s64", |x: i64| x as f64)?,
        sum(all, "u8", |x: u8| f64::from(x))?,
        sum(all, "u16", |x: u16| f64::from(x))?,
        sum(all, "u32", |x: u32| f64::from(x))?,
        sum(all, "u64", |x: u64| x as f64)?,
        sum(all, "f32", |x: f32| f64::from(x))?,
        sum(all, "f64", |x: f64| x)?,
    ];
    give(call, 0, &sums)
}

fn array_shape(call: &mut CudaCall<'_>) -> Result<()> {
    let attribute = call.attribute("array")?;
    let elements = array::<i32>(attribute).map_err(invalid_argument)?;
    let dimensions = match attribute {
        Attribute::Array(literal) => dimensions(literal),
        _ => Vec::new(),
    };
    let mut said = vec![dimensions.len() as i64];
    said.extend(dimensions);
    said.extend(elements.first().map(|&x| i64::from(x)));
    said.extend(elements.last().map(|&x| i64::from(x)));
    give(call, 0, &said)
}

fn dimensions(literal: &Literal) -> Vec<i64> {
    let shape = literal.shape();
    let dimensions = shape.as_array().map(|shape| shape.dimensions());
    dimensions
        .into_iter()
        .flatten()
        .map(|&size| size as i64)
        .collect()
}

fn depth(call: &mut CudaCall<'_>) -> Result<()> {
    let nested = find(call.attributes(), "nested").and_then(dictionary);
    let mut last = attribute("nested", nested)?;
    let mut depth = 1;
    while let Some(deeper) = last.get("deeper") {
        depth += 1;
        last = dictionary(deeper).map_err(invalid_argument)?;
    }
    let leaf = last.get("leaf").map(scalar::<i32>).transpose();
    let leaf = leaf.map_err(invalid_argument)?.unwrap_or(-1);
    give(call, 0, &[depth, leaf])
}

/// The fields of a struct, and their errors.
struct Fields<'a> {
    dictionary: &'a Dictionary,
    diagnostics: Vec<String>,
}

impl<'a> Fields<'a> {
    /// # Errors
    /// XLA's message for a wrong number of fields or an unknown field.
    fn of(dictionary: &'a Dictionary, names: &[&str], required: usize) -> Diagnostic<Self> {
        let count = dictionary.len();
        if count < required || count > names.len() {
            let expected = if required == names.len() {
                required.to_string()
            } else {
                format!("{required} to {}", names.len())
            };
            return Err(format!(
                "Wrong number of attributes: expected {expected} attributes but got {count}"
            ));
        }
        let unknown = dictionary
            .keys()
            .find(|name| !names.contains(&name.as_str()));
        match unknown {
            Some(unknown) if required < names.len() => Err(format!(
                "Unknown attribute: expected one of {} but got {unknown}",
                names.join(", ")
            )),
            _ => Ok(Self {
                dictionary,
                diagnostics: Vec::new(),
            }),
        }
    }

    fn get<T>(
        &mut self,
        name: &str,
        decode: impl FnOnce(&'a Attribute) -> Diagnostic<T>,
    ) -> Option<T> {
        let decoded = find(self.dictionary, name).and_then(decode);
        decoded.map_err(|text| self.diagnostics.push(text)).ok()
    }

    fn get_optional<T>(
        &mut self,
        name: &str,
        decode: impl FnOnce(&'a Attribute) -> Diagnostic<T>,
    ) -> Option<T> {
        self.dictionary.get(name)?;
        self.get(name, decode)
    }
}

fn range(dictionary: &Dictionary) -> Diagnostic<[i64; 2]> {
    let mut fields = Fields::of(dictionary, &["lo", "hi"], 2)?;
    let ends = (fields.get("lo", scalar), fields.get("hi", scalar));
    match ends {
        (Some(lo), Some(hi)) => Ok([lo, hi]),
        _ => Err(fields.diagnostics.join("\n")),
    }
}

fn window(all: &Dictionary) -> Diagnostic<[i64; 5]> {
    let mut fields = Fields::of(all, &["range", "rounding", "type", "weights"], 2)?;
    let range = fields.get("range", |range_of| dictionary(range_of).and_then(range));
    let rounding = fields.get("rounding", |rounding| {
        variant(i64::from(scalar::<i32>(rounding)?), &ROUNDING)
    });
    let kind = fields.get_optional("type", text);
    let weights = fields.get_optional("weights", array::<f32>);
    let length = |length: Option<usize>| length.map_or(-1, |length| length as i64);
    match (range, rounding, fields.diagnostics.is_empty()) {
        (Some([lo, hi]), Some(rounding), true) => Ok([
            lo,
            hi,
            rounding,
            length(kind.map(str::len)),
            length(weights.map(|weights| weights.len())),
        ]),
        _ => Err(fields.diagnostics.join("\n")),
    }
}
