//! How many operands or results a target takes, and in which order its parameters take them.

use super::{ParameterDescription, Role};

/// How many operands or results a target takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The fewest.
    pub least: usize,
    /// The most, if there is a limit: a target that takes none of a kind takes any number, as in XLA.
    pub most: Option<usize>,
}

impl Count {
    pub(super) const ANY: Self = Self {
        least: 0,
        most: None,
    };

    /// Whether it may be this many.
    #[inline]
    pub(crate) fn allows(self, count: usize) -> bool {
        count >= self.least && self.most.is_none_or(|most| count <= most)
    }

    /// How many operands, or else results, the parameters take. Their order is that of `Binding` in xla/ffi/api/api.h: what a call
    /// must have, what it may have, and what else it has.
    pub(super) const fn of(parameters: &[ParameterDescription], operands: bool) -> Self {
        let (mut required, mut optional, mut has_rest, mut i) = (0, 0, false, 0);
        while i < parameters.len() {
            let role = parameters[i].roles[0];
            i += 1;
            if operands && role.takes_operand() || !operands && role.takes_result() {
                check_order(operands, role.is_optional(), optional > 0, has_rest);
                match role.is_optional() {
                    true => optional += 1,
                    false => required += 1,
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

/// Refuses an operand or result after others that a call may lack, in the words of xla/ffi/api/api.h.
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
