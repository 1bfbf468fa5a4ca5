//! Values in serialized data: a shape is its text, a literal its shape and bytes, a status its
//! parts.
//!
//! Reading goes through the checked constructors, so that no invalid value can be read.

use serde::de::{Deserialize, Deserializer, Error};
use serde::ser::{Serialize, Serializer};

use super::{Backtrace, Blame, Literal, Shape, Status, StatusCode};

impl Serialize for Shape {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

impl Serialize for Literal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let leaves: Vec<&[u8]> = self.leaves().map(|(_, bytes)| bytes).collect();
        (self.shape(), leaves).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Literal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (shape, leaves) = Deserialize::deserialize(deserializer)?;
        Self::from_leaves(shape, leaves).map_err(D::Error::custom)
    }
}

/// The parts of a [`Status`]: code, blame, whether it is recoverable, message and backtrace.
type StatusParts = (u8, Blame, bool, String, Option<Backtrace>);

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let parts: StatusParts = (
            self.code().number(),
            self.blame(),
            self.recoverable(),
            self.message().to_owned(),
            self.backtrace().cloned(),
        );
        parts.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (number, blame, recoverable, message, backtrace) =
            StatusParts::deserialize(deserializer)?;
        let code = StatusCode::from_number(number.into()).filter(|&code| code != StatusCode::Ok);
        let code = code.ok_or_else(|| D::Error::custom("expected the code of a failure"))?;
        let status = Self::new(code, blame, message).with_recoverable(recoverable);
        Ok(match backtrace {
            Some(backtrace) => status.with_backtrace(backtrace),
            None => status,
        })
    }
}
