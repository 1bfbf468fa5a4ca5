//! The numbers of operands and results that a target takes, and the order of its parameters.

use super::{ParameterDescription, Role};

/// The number of operands or results that a target takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The minimum.
    pub least: usize,
    /// The maximum, if there is one. As in XLA, a target with no parameter of a kind takes any
    /// number.
    pub most: Option<usize>,
}

impl Count {
    pub(super) const ANY: Self = Self {
        least: 0,
        most: None,
    };

    /// Returns whether the target takes this number.
    #[inline]
    pub(crate) fn allows(self, count: usize) -> bool {
        count >= self.least && self.most.is_none_or(|most| count <= most)
    }

    /// Counts the operands, or else the results, of the parameters. They come in the order of
    /// `Binding` in xla/ffi/api/api.h: required, optional, remaining.
    pub(super) const fn of(parameters: &[ParameterDescription], operands: bool) -> Self {
        let (mut required, mut optional, mut has_rest, mut i) = (0, 0, false, 0);
        while i < parameters.len() {
            let role = parameters[i].roles[0];
            i += 1;
            if operands && role.takes_operand() || !operands && role.takes_result() {
                check_order(operands, role.is_optional(), optional > 0, has_rest);
                if role.is_optional() {
                    optional += 1;
                } else {
                    required += 1;
                }
            }
            if operands && matches!(role, Role::RemainingOperands)
                || !operands && matches!(role, Role::RemainingResults)
            {
                assert!(
                    !has_rest,
                    "remaining arguments or results can be passed just once"
                );
                has_rest = true;
            }
        }
        Self {
            least: required,
            most: match required + optional {
                0 => None,
                _ if has_rest => None,
                all => Some(all),
            },
        }
    }
}

/// Refuses an operand or result after optional ones, with the message of xla/ffi/api/api.h.
const fn check_order(operands: bool, is_optional: bool, after_optional: bool, after_rest: bool) {
    match (operands, is_optional) {
        (true, true) => assert!(
            !after_rest,
            "optional argument can't be passed after remaining arguments"
        ),
        (false, true) => assert!(
            !after_rest,
            "optional result can't be passed after remaining results"
        ),
        (true, false) => {
            assert!(
                !after_optional,
                "argument can't be passed after optional argument"
            );
            assert!(
                !after_rest,
                "argument can't be passed after remaining arguments"
            );
        }
        (false, false) => {
            assert!(
                !after_optional,
                "result can't be passed after optional result"
            );
            assert!(
                !after_rest,
                "result can't be passed after remaining results"
            );
        }
    }
}
