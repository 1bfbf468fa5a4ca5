//! A manifest's JSON, with the path of each value, so that an error names line and path.

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;

use callbox_core::json;
use callbox_core::values::{Result, Status};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use super::locate;
use crate::expression::nearest;

/// The longest manifest, in bytes.
pub(crate) const MAX_LENGTH: usize = 4 << 20;

/// The memory of the smallest object.
const OBJECT: usize = 256;

/// The most memory of a manifest's values.
const MOST_MEMORY: usize = 64 << 20;

/// The most elements of a list.
const MAX_ELEMENTS: usize = 4096;

/// The most units of a manifest: the bytes of expressions and messages, and the elements of lists.
/// As parts of syntax trees they take hundreds of bytes each.
const MAX_UNITS: usize = 1 << 17;

/// The names that messages can quote.
const PLAIN_NAME: &str = "a name of 1 to 1024 bytes without quotation marks, backslashes, and control and invisible characters";

/// A JSON value. Unlike those of `serde_json`, its objects keep duplicate names.
#[derive(Debug)]
enum Json {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// A step of the path to a value.
#[derive(Clone, Debug)]
pub(super) enum PathStep {
    Field(String),
    Index(usize),
}

/// A JSON text, and its value.
#[derive(Debug)]
pub(super) struct Document<'a> {
    text: &'a str,
    root: Json,
    /// The units that further parts may have.
    units_left: Cell<usize>,
}

/// A value, with its path.
#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    document: &'a Document<'a>,
    json: &'a Json,
    path: Vec<PathStep>,
}

/// An object that has only known fields.
#[derive(Debug)]
pub(super) struct Object<'a> {
    place: Field<'a>,
    fields: &'a [(String, Json)],
}

impl<'a> Document<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self> {
        if text.len() > MAX_LENGTH {
            return Err(Status::invalid_argument(format!(
                "expected a manifest of at most {MAX_LENGTH} bytes, found {}",
                text.len()
            )));
        }
        json::check_memory(text.as_bytes(), OBJECT, MOST_MEMORY)
            .map_err(Status::invalid_argument)?;
        let root = serde_json::from_str(text)
            .map_err(|error| Status::invalid_argument(format!("expected JSON: {error}")))?;
        Ok(Self {
            text,
            root,
            units_left: Cell::new(MAX_UNITS),
        })
    }

    pub(super) fn root(&'a self) -> Field<'a> {
        Field {
            document: self,
            json: &self.root,
            path: Vec::new(),
        }
    }
}

impl<'a> Field<'a> {
    /// A failure at this value.
    pub(super) fn wrong(&self, message: impl fmt::Display) -> Status {
        let line = locate::line(self.document.text, &self.path);
        Status::invalid_argument(format!("line {line}: {}{message}", Shown(&self.path)))
    }

    /// The same failure, with this value's line and path.
    pub(super) fn blame(&self, status: &Status) -> Status {
        self.wrong(status.message())
    }

    /// A failure that shows the value.
    pub(super) fn unexpected(&self, expected: &str) -> Status {
        let found = match self.json {
            Json::Null => "null".to_owned(),
            Json::Bool(value) => value.to_string(),
            Json::Number(value) => value.to_string(),
            Json::String(text) => quoted(text),
            Json::List(list) => format!("a list of {}", list.len()),
            Json::Object(_) => "an object".to_owned(),
        };
        self.wrong(format!("expected {expected}, found {found}"))
    }

    /// Counts units of this value.
    pub(super) fn count(&self, units: usize) -> Result<()> {
        let left = &self.document.units_left;
        let Some(rest) = left.get().checked_sub(units) else {
            return Err(self.wrong(format!(
                "expected expressions, messages and lists of at most {MAX_UNITS} bytes and elements in all, found more"
            )));
        };
        left.set(rest);
        Ok(())
    }

    /// The text of an expression, or one with expressions.
    pub(super) fn expressions(&self) -> Result<&'a str> {
        let text = self.string()?;
        self.count(text.len())?;
        Ok(text)
    }

    fn enter(&self, step: PathStep, json: &'a Json) -> Self {
        let mut path = self.path.clone();
        path.push(step);
        Self {
            document: self.document,
            json,
            path,
        }
    }

    /// The value as an object with these fields only.
    pub(super) fn object(&self, known: &[&str]) -> Result<Object<'a>> {
        let Json::Object(fields) = self.json else {
            return Err(self.unexpected("an object"));
        };
        for (i, (name, json)) in fields.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let suggestion = nearest(name, known.iter().copied());
                return Err(self
                    .enter(PathStep::Field(name.clone()), json)
                    .wrong(format!(
                        "expected one of the fields {}, found {}{suggestion}",
                        known.join(", "),
                        quoted(name)
                    )));
            }
            // Quadratic in the number of known fields, which is small.
            if fields[..i].iter().any(|(other, _)| other == name) {
                return Err(self.wrong(format!("expected each field once, found {name:?} again")));
            }
        }
        Ok(Object {
            place: self.clone(),
            fields,
        })
    }

    /// The value as an object whose fields have any names, which messages can quote.
    pub(super) fn entries(&self) -> Result<Vec<(&'a str, Self)>> {
        let fields = match self.json {
            Json::Object(fields) if fields.len() <= MAX_ELEMENTS => fields,
            _ => {
                let expected = format!("an object of at most {MAX_ELEMENTS} fields");
                return Err(self.unexpected(&expected));
            }
        };
        let mut names = HashSet::new();
        let mut entries = Vec::new();
        for (name, json) in fields {
            if name.is_empty() || !is_plain(name) {
                let expected = format!("{PLAIN_NAME}, found {}", quoted(name));
                return Err(self.wrong(format!("expected {expected}")));
            }
            if !names.insert(name) {
                return Err(self.wrong(format!("expected each field once, found {name:?} again")));
            }
            entries.push((
                name.as_str(),
                self.enter(PathStep::Field(name.clone()), json),
            ));
        }
        Ok(entries)
    }

    /// The value as a list.
    pub(super) fn list(&self) -> Result<Vec<Self>> {
        match self.json {
            Json::List(list) if list.len() <= MAX_ELEMENTS => {
                self.count(list.len())?;
                let element = |(i, json)| self.enter(PathStep::Index(i), json);
                Ok(list.iter().enumerate().map(element).collect())
            }
            _ => Err(self.unexpected(&format!("a list of at most {MAX_ELEMENTS}"))),
        }
    }

    pub(super) fn string(&self) -> Result<&'a str> {
        match self.json {
            Json::String(text) => Ok(text),
            _ => Err(self.unexpected("a string")),
        }
    }

    pub(super) fn boolean(&self) -> Result<bool> {
        match self.json {
            Json::Bool(value) => Ok(*value),
            _ => Err(self.unexpected("true or false")),
        }
    }

    pub(super) fn number(&self) -> Result<u64> {
        let number = match self.json {
            Json::Number(number) => number.as_u64(),
            _ => None,
        };
        number.ok_or_else(|| self.unexpected("an integer of 0 or more"))
    }

    /// The value as an integer of 64 bits, with or without a sign.
    pub(super) fn integer(&self) -> Result<Number> {
        match self.json {
            Json::Number(number) if !number.is_f64() => Ok(number.clone()),
            _ => Err(self.unexpected("an integer of 64 bits")),
        }
    }

    /// The value as an index.
    pub(super) fn index(&self) -> Result<usize> {
        usize::try_from(self.number()?).map_err(|_| self.unexpected("a smaller integer"))
    }

    /// The value as a name that messages can quote.
    pub(super) fn name(&self) -> Result<&'a str> {
        let name = self.string()?;
        if !name.is_empty() && is_plain(name) {
            Ok(name)
        } else {
            Err(self.unexpected(PLAIN_NAME))
        }
    }
}

impl<'a> Object<'a> {
    /// The object as a value.
    pub(super) fn place(&self) -> &Field<'a> {
        &self.place
    }

    /// A field's value, if the object has the field.
    pub(super) fn find(&self, name: &str) -> Option<Field<'a>> {
        let (_, json) = self.fields.iter().find(|(field, _)| field == name)?;
        Some(self.place.enter(PathStep::Field(name.to_owned()), json))
    }

    /// A field's value.
    pub(super) fn field(&self, name: &str) -> Result<Field<'a>> {
        self.find(name).ok_or_else(|| {
            self.place
                .wrong(format!("expected the field {name}, found none"))
        })
    }

    /// The elements of a list. A missing field has none.
    pub(super) fn elements(&self, name: &str) -> Result<Vec<Field<'a>>> {
        match self.find(name) {
            Some(list) => list.list(),
            None => Ok(Vec::new()),
        }
    }

    /// A truth value. A missing field is false.
    pub(super) fn flag(&self, name: &str) -> Result<bool> {
        self.find(name).map_or(Ok(false), |field| field.boolean())
    }
}

/// Whether a name can be shown without quotation marks.
pub(super) fn is_plain(name: &str) -> bool {
    const MAX_NAME: usize = 1024;
    name.len() <= MAX_NAME
        && !name.contains(['"', '\\', '\n', '\t'])
        && callbox_core::untrusted_text::sanitize(name.as_bytes(), name.len(), MAX_NAME) == name
}

/// A text in quotation marks, cut and escaped.
pub(super) fn quoted(text: &str) -> String {
    const MAX_SHOWN: usize = 64;
    let shown: String = text.chars().take(MAX_SHOWN).collect();
    if shown.len() == text.len() {
        format!("{shown:?}")
    } else {
        format!("{shown:?}... ({} bytes)", text.len())
    }
}

/// Shows a path: `targets[0].launches[1].grid: `.
struct Shown<'a>(&'a [PathStep]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                PathStep::Index(index) => write!(f, "[{index}]")?,
                PathStep::Field(name) => {
                    let point = if i == 0 { "" } else { "." };
                    if is_plain(name) && name.len() <= 64 {
                        write!(f, "{point}{name}")?
                    } else {
                        write!(f, "{point}{}", quoted(name))?
                    }
                }
            }
        }
        f.write_str(if self.0.is_empty() { "" } else { ": " })
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(JsonVisitor)
    }
}

struct JsonVisitor;

impl<'de> Visitor<'de> for JsonVisitor {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Number::from_f64(value).map_or(Json::Null, Json::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Json, E> {
        Ok(Json::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Json, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element()? {
            values.push(value);
        }
        Ok(Json::List(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Json, A::Error> {
        let mut fields = Vec::new();
        while let Some(field) = object.next_entry()? {
            fields.push(field);
        }
        Ok(Json::Object(fields))
    }
}
