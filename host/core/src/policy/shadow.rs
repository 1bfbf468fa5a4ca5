//! Calls of native targets that also run as wasm.

use serde::{Deserialize, Deserializer, Serialize};

use crate::json::Object;
use crate::values::{Result, Status};

/// The share of the calls of pure native targets that also run as wasm, to compare the results.
///
/// In JSON: `{"share": 0.01, "rtol": 1e-6, "atol": 1e-6, "fails": true}`, where `share` alone must
/// be given.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, try_from = "ShadowText")]
pub struct Shadow {
    share: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rtol: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    atol: Option<f64>,
    fails: bool,
}

// No value is NaN.
impl Eq for Shadow {}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ShadowText {
    share: f64,
    rtol: Option<f64>,
    atol: Option<f64>,
    #[serde(default)]
    fails: bool,
}

impl TryFrom<ShadowText> for Shadow {
    type Error = Status;

    fn try_from(text: ShadowText) -> Result<Self> {
        let ShadowText {
            share,
            rtol,
            atol,
            fails,
        } = text;
        if !(0.0..=1.0).contains(&share) {
            return Err(Status::invalid_argument(format!(
                "expected `share` from 0 to 1, found {share}"
            )));
        }
        for (key, value) in [("rtol", rtol), ("atol", atol)] {
            if let Some(value) = value.filter(|value| !(value.is_finite() && *value >= 0.0)) {
                return Err(Status::invalid_argument(format!(
                    "expected `{key}` of at least 0, found {value}"
                )));
            }
        }
        Ok(Self {
            share,
            rtol,
            atol,
            fails,
        })
    }
}

impl Shadow {
    /// The share of the calls, from 0 to 1. They are chosen at random.
    #[must_use]
    pub fn share(&self) -> f64 {
        self.share
    }

    /// How far floating-point elements may be apart, as `rtol` and `atol` of NumPy's `allclose`.
    /// `None`: as the cases of the package declare.
    #[must_use]
    pub fn tolerance(&self) -> Option<(f64, f64)> {
        let is_given = self.rtol.is_some() || self.atol.is_some();
        is_given.then(|| (self.rtol.unwrap_or(0.0), self.atol.unwrap_or(0.0)))
    }

    /// Whether a call whose results differ fails with INTERNAL, blamed on the guest. If not, the
    /// difference is told and counted.
    #[must_use]
    pub fn fails(&self) -> bool {
        self.fails
    }
}

/// Reads an object or `null`.
pub(super) fn optional<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> std::result::Result<Option<Shadow>, D::Error> {
    let shadow = Option::<Object<Shadow>>::deserialize(deserializer)?;
    Ok(shadow.map(|shadow| shadow.0))
}
