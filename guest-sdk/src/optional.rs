//! Optional operands and results, and those that remain after all others.

use alloc::string::String;
use alloc::vec::Vec;

use crate::decode::{Decoder, TargetParameter};
use crate::description::Role;
use crate::{AnyOperand, AnyResult, Element, Failure, Operand, ResultBuffer};

impl<'a, P: TargetParameter<'a>> TargetParameter<'a> for Option<P> {
    const ROLE: Role = P::ROLE.optional();

    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, String> {
        let left = if Self::ROLE.takes_operand() {
            decoder.buffers.remaining_operand_count()
        } else {
            decoder.buffers.remaining_result_count()
        };
        if left == 0 {
            return Ok(None);
        }
        P::decode(decoder).map(Some)
    }
}

/// The operands that no other parameter takes, each of any type and rank.
///
/// ```
/// use callbox_guest::{Failure, RemainingOperands, ResultBuffer, target};
///
/// /// Sums the first element of each operand.
/// #[target(pure)]
/// fn total(terms: RemainingOperands, sum: &mut ResultBuffer<f32, 0>) -> Result<(), Failure> {
///     sum.set(0.0);
///     for i in 0..terms.len() {
///         sum[0] += terms.get::<f32>(i)?.first().copied().unwrap_or(0.0);
///     }
///     Ok(())
/// }
/// # let mut call = callbox_guest::native::Call::new();
/// # call.operand(&[1.0_f32], &[1]).operand(&[2.0_f32], &[]).result::<f32>(&[]);
/// # assert_eq!(call.run::<total>(), Ok(()));
/// # assert_eq!(call.result_elements::<f32>(0), [3.0]);
/// ```
#[derive(Clone, Debug)]
pub struct RemainingOperands<'a>(Vec<AnyOperand<'a>>);

impl<'a> RemainingOperands<'a> {
    /// Returns the number of remaining operands.
    ///
    /// ```
    /// use callbox_guest::{Failure, RemainingOperands, native::Call, target};
    ///
    /// #[target]
    /// fn check(rest: RemainingOperands) -> Result<(), Failure> {
    ///     assert_eq!(rest.len(), 2);
    ///     Ok(())
    /// }
    ///
    /// let mut call = Call::new();
    /// call.operand(&[1.0_f32], &[1]).operand(&[2_i32], &[1]);
    /// assert_eq!(call.run::<check>(), Ok(()));
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no operands remain.
    ///
    /// ```
    /// use callbox_guest::{Failure, RemainingOperands, native::Call, target};
    ///
    /// #[target]
    /// fn check(rest: RemainingOperands) -> Result<(), Failure> {
    ///     assert!(!rest.is_empty());
    ///     Ok(())
    /// }
    ///
    /// let mut call = Call::new();
    /// call.operand(&[1.0_f32], &[1]).operand(&[2_i32], &[1]);
    /// assert_eq!(call.run::<check>(), Ok(()));
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the remaining operand at this index, with elements of type `T`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with XLA's message: `Index out of range`, or a mismatch of the type.
    ///
    /// ```
    /// use callbox_guest::{Failure, RemainingOperands, native::Call, target};
    ///
    /// #[target]
    /// fn check(rest: RemainingOperands) -> Result<(), Failure> {
    ///     assert_eq!(*rest.get::<f32>(0)?, [1.0]);
    ///     assert!(rest.get::<f32>(1).is_err());
    ///     Ok(())
    /// }
    ///
    /// let mut call = Call::new();
    /// call.operand(&[1.0_f32], &[1]).operand(&[2_i32], &[1]);
    /// assert_eq!(call.run::<check>(), Ok(()));
    /// ```
    pub fn get<T: Element>(&self, index: usize) -> Result<Operand<'a, T>, Failure> {
        self.any(index)?.as_typed()
    }

    /// Returns the remaining operand at this index.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with XLA's message: `Index out of range`.
    ///
    /// ```
    /// use callbox_guest::{ElementType, Failure, RemainingOperands, native::Call, target};
    ///
    /// #[target]
    /// fn check(rest: RemainingOperands) -> Result<(), Failure> {
    ///     assert_eq!(rest.any(1)?.element_type(), ElementType::S32);
    ///     assert!(rest.any(2).is_err());
    ///     Ok(())
    /// }
    ///
    /// let mut call = Call::new();
    /// call.operand(&[1.0_f32], &[1]).operand(&[2_i32], &[1]);
    /// assert_eq!(call.run::<check>(), Ok(()));
    /// ```
    pub fn any(&self, index: usize) -> Result<AnyOperand<'a>, Failure> {
        self.0.get(index).copied().ok_or_else(out_of_range)
    }

    /// Returns all remaining operands.
    ///
    /// ```
    /// use callbox_guest::{Failure, RemainingOperands, native::Call, target};
    ///
    /// #[target]
    /// fn check(rest: RemainingOperands) -> Result<(), Failure> {
    ///     for operand in rest.as_slice() {
    ///         assert_eq!(operand.dimensions(), [1]);
    ///     }
    ///     Ok(())
    /// }
    ///
    /// let mut call = Call::new();
    /// call.operand(&[1.0_f32], &[1]).operand(&[2_i32], &[1]);
    /// assert_eq!(call.run::<check>(), Ok(()));
    /// ```
    #[must_use]
    pub fn as_slice(&self) -> &[AnyOperand<'a>] {
        &self.0
    }
}

impl<'a> TargetParameter<'a> for RemainingOperands<'a> {
    const ROLE: Role = Role::RemainingOperands;

    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, String> {
        let count = decoder.buffers.remaining_operand_count();
        let operands = (0..count).map(|_| AnyOperand::decode(decoder));
        operands.collect::<Result<_, _>>().map(Self)
    }
}

/// The results that no other parameter takes, each of any type and rank.
///
/// ```
/// use callbox_guest::{Failure, RemainingResults, native::Call, target};
///
/// #[target]
/// fn fill(mut rest: RemainingResults) -> Result<(), Failure> {
///     rest.get::<f32>(0)?.fill(1.5);
///     rest.get::<u8>(1)?.fill(2);
///     Ok(())
/// }
///
/// let mut call = Call::new();
/// call.result::<f32>(&[2]).result::<u8>(&[1]);
/// assert_eq!(call.run::<fill>(), Ok(()));
/// assert_eq!(call.result_elements::<f32>(0), [1.5, 1.5]);
/// assert_eq!(call.result_elements::<u8>(1), [2]);
/// ```
#[derive(Debug)]
pub struct RemainingResults<'a>(Vec<AnyResult<'a>>);

impl<'a> RemainingResults<'a> {
    /// Returns the number of remaining results.
    ///
    /// ```
    /// use callbox_guest::{Failure, RemainingResults, native::Call, target};
    ///
    /// #[target]
    /// fn fill(rest: RemainingResults) -> Result<(), Failure> {
    ///     assert_eq!(rest.len(), 2);
    ///     Ok(())
    /// }
    ///
    /// let mut call = Call::new();
    /// call.result::<f32>(&[2]).result::<u8>(&[1]);
    /// assert_eq!(call.run::<fill>(), Ok(()));
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether no results remain.
    ///
    /// ```
    /// use callbox_guest::{Failure, RemainingResults, native::Call, target};
    ///
    /// #[target]
    /// fn fill(rest: RemainingResults) -> Result<(), Failure> {
    ///     assert!(!rest.is_empty());
    ///     Ok(())
    /// }
    ///
    /// let mut call = Call::new();
    /// call.result::<f32>(&[2]).result::<u8>(&[1]);
    /// assert_eq!(call.run::<fill>(), Ok(()));
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the remaining result at this index, with elements of type `T`.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with XLA's message: `Index out of range`, or a mismatch of the type.
    ///
    /// ```
    /// use callbox_guest::{Failure, RemainingResults, native::Call, target};
    ///
    /// #[target]
    /// fn fill(mut rest: RemainingResults) -> Result<(), Failure> {
    ///     rest.get::<f32>(0)?.fill(1.5);
    ///     assert!(rest.get::<f32>(1).is_err());
    ///     Ok(())
    /// }
    ///
    /// let mut call = Call::new();
    /// call.result::<f32>(&[2]).result::<u8>(&[1]);
    /// assert_eq!(call.run::<fill>(), Ok(()));
    /// assert_eq!(call.result_elements::<f32>(0), [1.5, 1.5]);
    /// ```
    pub fn get<T: Element>(&mut self, index: usize) -> Result<ResultBuffer<'_, T>, Failure> {
        self.any(index)?.as_typed()
    }

    /// Returns the remaining result at this index.
    ///
    /// # Errors
    /// INVALID_ARGUMENT with XLA's message: `Index out of range`.
    ///
    /// ```
    /// use callbox_guest::{Failure, RemainingResults, native::Call, target};
    ///
    /// #[target]
    /// fn fill(mut rest: RemainingResults) -> Result<(), Failure> {
    ///     rest.any(1)?.bytes_mut().fill(2);
    ///     assert!(rest.any(2).is_err());
    ///     Ok(())
    /// }
    ///
    /// let mut call = Call::new();
    /// call.result::<f32>(&[2]).result::<u8>(&[1]);
    /// assert_eq!(call.run::<fill>(), Ok(()));
    /// assert_eq!(call.result_elements::<u8>(1), [2]);
    /// ```
    pub fn any(&mut self, index: usize) -> Result<&mut AnyResult<'a>, Failure> {
        self.0.get_mut(index).ok_or_else(out_of_range)
    }

    /// Returns all remaining results.
    ///
    /// ```
    /// use callbox_guest::{Failure, RemainingResults, native::Call, target};
    ///
    /// #[target]
    /// fn fill(mut rest: RemainingResults) -> Result<(), Failure> {
    ///     for result in rest.as_mut_slice() {
    ///         result.bytes_mut().fill(0);
    ///     }
    ///     Ok(())
    /// }
    ///
    /// let mut call = Call::new();
    /// call.result::<f32>(&[2]).result::<u8>(&[1]);
    /// assert_eq!(call.run::<fill>(), Ok(()));
    /// assert_eq!(call.result_elements::<f32>(0), [0.0, 0.0]);
    /// ```
    pub fn as_mut_slice(&mut self) -> &mut [AnyResult<'a>] {
        &mut self.0
    }
}

impl<'a> TargetParameter<'a> for RemainingResults<'a> {
    const ROLE: Role = Role::RemainingResults;

    fn decode(decoder: &mut Decoder<'a>) -> Result<Self, String> {
        let count = decoder.buffers.remaining_result_count();
        let results = (0..count).map(|_| AnyResult::decode(decoder));
        results.collect::<Result<_, _>>().map(Self)
    }
}

#[cold]
fn out_of_range() -> Failure {
    Failure::invalid_argument("Index out of range")
}
