//! JSON that users and strangers write: objects are objects, and have each key once.
//!
//! The implementations that serde derives also take a list of the fields' values for an object, and
//! its maps keep the last of two values with the same key. A reader of such a file would take it to
//! mean something else.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// A value that is an object in JSON.
#[derive(Debug)]
pub struct Object<T>(pub T);

/// The entries of an object, in the order of the text. A key that occurs twice is an error.
#[derive(Debug)]
pub struct Entries<T>(pub Vec<(String, T)>);

/// The first `MOST` items of a list. The others are read, but not kept.
///
/// A list of many small items takes some ten times as much memory as its text, and is refused only
/// once it was read.
#[derive(Debug)]
pub struct Limited<T, const MOST: usize> {
    kept: Vec<T>,
    /// How many the list has.
    found: usize,
}

/// A value without what lists and objects have in them: as trees they take a hundred times as much
/// memory as their text.
#[derive(Debug)]
pub struct Flat(pub Value);

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

impl<T, const MOST: usize> Limited<T, MOST> {
    /// How many items were kept.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    /// The items that were kept.
    pub fn iter(&self) -> std::slice::Iter<'_, T> {
        self.kept.iter()
    }

    /// The items.
    ///
    /// # Errors
    /// How many the list has, if it has more than `MOST`.
    pub fn within(self) -> Result<Vec<T>, usize> {
        if self.found > MOST {
            Err(self.found)
        } else {
            Ok(self.kept)
        }
    }
}

impl<T, const MOST: usize> Default for Limited<T, MOST> {
    fn default() -> Self {
        Self::from(Vec::new())
    }
}

impl<T, const MOST: usize> From<Vec<T>> for Limited<T, MOST> {
    fn from(items: Vec<T>) -> Self {
        Self {
            found: items.len(),
            kept: items,
        }
    }
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

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Limited<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(LimitedVisitor(PhantomData))
    }
}

impl<'de> Deserialize<'de> for Flat {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FlatVisitor)
    }
}

struct LimitedVisitor<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for LimitedVisitor<T, MOST> {
    type Value = Limited<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut kept = Vec::new();
        while kept.len() < MOST {
            match list.next_element()? {
                Some(item) => kept.push(item),
                None => return Ok(Limited::from(kept)),
            }
        }
        let mut found = MOST;
        while list.next_element::<IgnoredAny>()?.is_some() {
            found += 1;
        }
        Ok(Limited { kept, found })
    }
}

struct FlatVisitor;

impl<'de> Visitor<'de> for FlatVisitor {
    type Value = Flat;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Flat, E> {
        Ok(Flat(Value::Null))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Flat, E> {
        Ok(Flat(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Flat, E> {
        Ok(Flat(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Flat, E> {
        Ok(Flat(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Flat, E> {
        Ok(Flat(value.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Flat, E> {
        Ok(Flat(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Flat, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Flat(Value::Array(Vec::new())))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Flat, A::Error> {
        while object.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Flat(Value::Object(Map::new())))
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

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use super::{Flat, Limited};

    #[test]
    fn the_items_past_a_limit_are_counted_and_checked() {
        let read = |text| serde_json::from_str::<Limited<u8, 2>>(text);
        for (text, expected) in [
            ("[]", Ok(vec![])),
            ("[1, 2]", Ok(vec![1, 2])),
            // Another type is not seen past the limit.
            ("[1, 2, {\"a\": []}]", Err(3)),
            ("[1, 2, 3, 4, 5]", Err(5)),
        ] {
            assert_eq!(read(text).unwrap().within(), expected, "{text}");
        }
        for text in [
            "[1, 300]",
            "[1, 2, 3",
            "[1, 2, nul]",
            "{}",
            "null",
            "[1, null]",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn flat_values_keep_nothing_of_lists_and_objects() {
        let text = r#"[null, true, -1, 18446744073709551615, 0.5, "a", [[1]], {"b": 1}]"#;
        let found: Vec<Flat> = serde_json::from_str(text).unwrap();
        let found: Vec<_> = found.into_iter().map(|flat| flat.0).collect();
        let expected = json!([null, true, -1, u64::MAX, 0.5, "a", [], {}]);
        assert_eq!(serde_json::Value::from(found), expected);
    }
}
