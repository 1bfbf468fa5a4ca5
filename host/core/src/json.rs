//! JSON that users and strangers write: objects are objects, and have each key once.
//!
//! The implementations that serde derives also take a list of the fields' values for an object, and
//! its maps keep the last of two values with the same key. A reader of such a file would take it to
//! mean something else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A value that is an object in JSON.
#[derive(Debug)]
pub struct Object<T>(pub T);

/// The entries of an object, in the order of the text. A key that occurs twice is an error.
#[derive(Debug)]
pub struct Entries<T>(pub Vec<(String, T)>);

/// Reads a field whose value is an object: `#[serde(deserialize_with = "object")]`.
///
/// # Errors
/// Those of the deserializer, also for a list.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Object::deserialize(deserializer).map(|object| object.0)
}

/// Reads a field whose value is a list of objects.
///
/// # Errors
/// Those of the deserializer.
pub fn objects<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let objects = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(objects.into_iter().map(|object| object.0).collect())
}

/// Reads a field whose value is an object of objects.
///
/// # Errors
/// Those of the deserializer, also for a key that occurs twice.
pub fn objects_by_name<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, T>, D::Error> {
    let entries = Entries::<Object<T>>::deserialize(deserializer)?;
    let entries = entries.0.into_iter();
    Ok(entries.map(|(name, object)| (name, object.0)).collect())
}

/// The memory of a small object in a tree of values, whatever kind of map holds its members.
pub const MAP: usize = 704;

/// Checks that the values in a JSON text, read as trees, take at most some `most` bytes: each
/// object `object` bytes, and lists and items what their smallest allocations take. Texts, and the
/// keys of large objects, are not counted.
///
/// A tree takes up to a hundred times as much memory as its text, and readers keep what stands in
/// the place of a number, or in a field that they do not know, until they refuse it. This reads the
/// text once, and allocates nothing.
///
/// # Errors
/// A message with the limit.
pub fn check_memory(text: &[u8], object: usize, most: usize) -> Result<(), String> {
    const LIST: usize = 160;
    const ITEM: usize = 64;
    let mut bytes: usize = 0;
    let mut in_text = false;
    let mut characters = text.iter();
    while let Some(character) = characters.next() {
        bytes += match character {
            b'\\' if in_text => {
                characters.next();
                0
            }
            b'"' => {
                in_text = !in_text;
                0
            }
            _ if in_text => 0,
            b'{' => object,
            b'[' => LIST,
            b',' => ITEM,
            _ => 0,
        };
        if bytes > most {
            return Err(format!(
                "expected JSON whose values take at most {most} bytes of memory, found more"
            ));
        }
    }
    Ok(())
}

impl<T> Default for Entries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

struct EntriesVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for EntriesVisitor<T> {
    type Value = Entries<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut known = BTreeSet::new();
        let mut entries: Vec<(String, T)> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if !known.insert(key.clone()) {
                return Err(A::Error::custom(format_args!("`{key}` occurs twice")));
            }
            entries.push((key, map.next_value()?));
        }
        Ok(Entries(entries))
    }
}
