//! A manifest's JSON with the place of each value, so that a failure names line and path.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

use super::locate;
use crate::cuda::expression::nearest;
use crate::values::{Result, Status};

/// The longest manifest, in bytes.
const MAX_LENGTH: usize = 4 << 20;

/// The most elements of a list.
const MAX_ELEMENTS: usize = 4096;

/// A JSON value. Unlike serde_json's, its objects keep names that come twice.
#[derive(Debug)]
enum Json {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

/// A step from a value into it.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Field(String),
    Index(usize),
}

/// A text and the value in it.
#[derive(Debug)]
pub(super) struct Document<'a> {
    text: &'a str,
    root: Json,
}

/// A value, and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Place<'a> {
    document: &'a Document<'a>,
    json: &'a Json,
    path: Vec<Step>,
}

/// An object whose fields are all known.
#[derive(Debug)]
pub(super) struct Object<'a> {
    place: Place<'a>,
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
        let root = serde_json::from_str(text)
            .map_err(|error| Status::invalid_argument(format!("expected JSON: {error}")))?;
        Ok(Self { text, root })
    }

    pub(super) fn root(&'a self) -> Place<'a> {
        Place {
            document: self,
            json: &self.root,
            path: Vec::new(),
        }
    }
}

impl<'a> Place<'a> {
    /// A failure at this place.
    pub(super) fn wrong(&self, message: impl fmt::Display) -> Status {
        let line = locate::line(self.document.text, &self.path);
        Status::invalid_argument(format!("line {line}: {}{message}", Shown(&self.path)))
    }

    /// The same failure with this place before it.
    pub(super) fn blame(&self, status: &Status) -> Status {
        self.wrong(status.message())
    }

    /// A failure that says what stands here.
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

    fn enter(&self, step: Step, json: &'a Json) -> Self {
        let mut path = self.path.clone();
        path.push(step);
        Self {
            document: self.document,
            json,
            path,
        }
    }

    /// The object that stands here, each of whose fields is one of these.
    pub(super) fn object(&self, known: &[&str]) -> Result<Object<'a>> {
        let Json::Object(fields) = self.json else {
            return Err(self.unexpected("an object"));
        };
        for (i, (name, json)) in fields.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let suggestion = nearest(name, known.iter().copied());
                return Err(self.enter(Step::Field(name.clone()), json).wrong(format!(
                    "expected one of the fields {}, found {}{suggestion}",
                    known.join(", "),
                    quoted(name)
                )));
            }
            // There are few: each is known.
            if fields[..i].iter().any(|(other, _)| other == name) {
                return Err(self.wrong(format!("expected each field once, found {name:?} again")));
            }
        }
        Ok(Object {
            place: self.clone(),
            fields,
        })
    }

    /// The list that stands here.
    pub(super) fn list(&self) -> Result<Vec<Self>> {
        match self.json {
            Json::List(list) if list.len() <= MAX_ELEMENTS => {
                let element = |(i, json)| self.enter(Step::Index(i), json);
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

    /// A number of something that is counted from 0.
    pub(super) fn index(&self) -> Result<usize> {
        usize::try_from(self.number()?).map_err(|_| self.unexpected("a smaller integer"))
    }

    /// A name that can stand in a line and between quotation marks: it is part of many messages.
    pub(super) fn name(&self) -> Result<&'a str> {
        let name = self.string()?;
        match !name.is_empty() && is_plain(name) {
            true => Ok(name),
            false => Err(self.unexpected(
                "a name of 1 to 1024 bytes without quotation marks, backslashes, and control and invisible characters",
            )),
        }
    }
}

impl<'a> Object<'a> {
    /// Where the object stands.
    pub(super) fn place(&self) -> &Place<'a> {
        &self.place
    }

    /// A field's value, if it is there.
    pub(super) fn find(&self, name: &str) -> Option<Place<'a>> {
        let (_, json) = self.fields.iter().find(|(field, _)| field == name)?;
        Some(self.place.enter(Step::Field(name.to_owned()), json))
    }

    /// A field's value.
    pub(super) fn field(&self, name: &str) -> Result<Place<'a>> {
        self.find(name).ok_or_else(|| {
            self.place
                .wrong(format!("expected the field {name}, found none"))
        })
    }

    /// The elements of a field that is a list, or none if it is not there.
    pub(super) fn elements(&self, name: &str) -> Result<Vec<Place<'a>>> {
        match self.find(name) {
            Some(list) => list.list(),
            None => Ok(Vec::new()),
        }
    }

    /// A field that is true or false; false if it is not there.
    pub(super) fn flag(&self, name: &str) -> Result<bool> {
        self.find(name).map_or(Ok(false), |field| field.boolean())
    }
}

/// Whether a name can be used as it is.
pub(super) fn is_plain(name: &str) -> bool {
    const MAX_NAME: usize = 1024;
    name.len() <= MAX_NAME
        && !name.contains(['"', '\\', '\n', '\t'])
        && crate::wasm::sanitize(name.as_bytes(), name.len(), MAX_NAME) == name
}

/// A text between quotation marks, cut and escaped.
pub(super) fn quoted(text: &str) -> String {
    const MAX_SHOWN: usize = 64;
    let shown: String = text.chars().take(MAX_SHOWN).collect();
    match shown.len() == text.len() {
        true => format!("{shown:?}"),
        false => format!("{shown:?}... ({} bytes)", text.len()),
    }
}

/// A path: `targets[0].launches[1].grid: `.
struct Shown<'a>(&'a [Step]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Field(name) => {
                    let point = if i == 0 { "" } else { "." };
                    match is_plain(name) && name.len() <= 64 {
                        true => write!(f, "{point}{name}")?,
                        false => write!(f, "{point}{}", quoted(name))?,
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
