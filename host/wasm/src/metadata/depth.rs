//! The depth of a JSON value, measured without keeping the value: an object of 5 bytes would take
//! some 380 bytes of memory.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// The nesting depth of lists and objects, of which the JSON reader accepts 128 at most.
#[derive(Debug)]
pub(super) struct Depth(pub(super) usize);

impl<'de> Deserialize<'de> for Depth {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(DepthVisitor)
    }
}

struct DepthVisitor;

impl<'de> Visitor<'de> for DepthVisitor {
    type Value = Depth;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Depth, E> {
        Ok(Depth(0))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Depth, E> {
        Ok(Depth(0))
    }

    fn visit_i64<E>(self, _: i64) -> Result<Depth, E> {
        Ok(Depth(0))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Depth, E> {
        Ok(Depth(0))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Depth, E> {
        Ok(Depth(0))
    }

    fn visit_str<E>(self, _: &str) -> Result<Depth, E> {
        Ok(Depth(0))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Depth, A::Error> {
        let mut most = 0;
        while let Some(Depth(depth)) = list.next_element()? {
            most = most.max(depth);
        }
        Ok(Depth(1 + most))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Depth, A::Error> {
        let mut most = 0;
        // Names are texts, which have no depth.
        while let Some((_, Depth(depth))) = object.next_entry::<Depth, Depth>()? {
            most = most.max(depth);
        }
        Ok(Depth(1 + most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_objects_nest() {
        for (text, expected) in [
            ("null", Some(0)),
            (r#"["a", true, -1, 2.5e3, 18446744073709551615]"#, Some(1)),
            (r#"{"a": {"b": [[], {}]}, "c": []}"#, Some(4)),
            (r#"{"a\n\u00e9": "\u00e9"}"#, Some(1)),
            ("[1e999]", None),
            (r#"["\ud800"]"#, None),
            ("{1: 2}", None),
            ("[", None),
        ] {
            let found = serde_json::from_str(text).ok().map(|Depth(depth)| depth);
            assert_eq!(found, expected, "{text}");
        }
    }
}
