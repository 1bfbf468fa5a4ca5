//! References to functions of the running program, which a target can call.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::marker::PhantomData;

use crate::attribute::{AnyAttribute, AttributeValue};
use crate::{AnyOperand, AnyResult, AttributeKind, ElementType, Failure, Shape, StatusCode, abi};

/// A function of the running program: an attribute of a call, or one of its called computations
/// ([`Context::called_functions`](crate::Context::called_functions)).
///
/// The example is the custom call `call_ref` from the XLA runtime's proposal for function
/// references:
///
/// ```
/// use callbox_guest::{Failure, FunctionRef, Operand, ResultBuffer, target};
///
/// /// Applies the function `func` to the two operands.
/// #[target]
/// fn call_ref(
///     a: &Operand<f32>,
///     b: &Operand<f32>,
///     y: &mut ResultBuffer<f32>,
///     #[attr] func: FunctionRef,
/// ) -> Result<(), Failure> {
///     func.call(&[a.into(), b.into()], &mut [y.into()])
/// }
/// # let mut call = callbox_guest::native::Call::new();
/// # call.operand(&[1.0_f32], &[1]).operand(&[2.0_f32], &[1]).result::<f32>(&[1]);
/// # call.function_attribute("func", |operands, results| {
/// #     let (a, b) = (operands[0].as_typed::<f32>()?, operands[1].as_typed::<f32>()?);
/// #     results[0].as_typed::<f32>()?[0] = a[0] + b[0];
/// #     Ok(())
/// # });
/// # assert_eq!(call.run::<call_ref>(), Ok(()));
/// # assert_eq!(call.result_elements::<f32>(0), [3.0]);
/// ```
#[derive(Clone, Copy)]
pub struct FunctionRef<'a> {
    number: u32,
    /// Ties the function to its call, after which the number means nothing.
    call: PhantomData<&'a ()>,
}

impl FunctionRef<'_> {
    pub(crate) const fn new(number: u32) -> Self {
        Self {
            number,
            call: PhantomData,
        }
    }

    /// Calls the function with these operands, and writes its results. Both are the function's
    /// leaves in preorder, of its element types and dimensions, in row-major order. They may be the
    /// call's own, or created from any memory by [`AnyOperand::new`] and [`AnyResult::new`].
    /// Results are written only if the function succeeds.
    ///
    /// If the function calls this same target again, another instance of the module serves that
    /// call. This instance does not change.
    ///
    /// # Errors
    /// The function's failure, which the target can return as it is, or INVALID_ARGUMENT if
    /// operands or results do not fit the function.
    ///
    /// ```
    /// use callbox_guest::{Failure, FunctionRef, Operand, ResultBuffer, native::Call, target};
    ///
    /// #[target]
    /// fn apply(
    ///     x: &Operand<f32>,
    ///     y: &mut ResultBuffer<f32>,
    ///     #[attr] function: FunctionRef,
    /// ) -> Result<(), Failure> {
    ///     function.call(&[x.into()], &mut [y.into()])
    /// }
    ///
    /// let mut call = Call::new();
    /// call.operand(&[1.0_f32], &[1]).result::<f32>(&[1]);
    /// call.function_attribute("function", |operands, results| {
    ///     results[0].as_typed::<f32>()?[0] = operands[0].as_typed::<f32>()?[0] + 1.0;
    ///     Ok(())
    /// });
    /// assert_eq!(call.run::<apply>(), Ok(()));
    /// assert_eq!(call.result_elements::<f32>(0), [2.0]);
    /// ```
    pub fn call(
        self,
        operands: &[AnyOperand<'_>],
        results: &mut [AnyResult<'_>],
    ) -> Result<(), Failure> {
        for (number, operand) in operands.iter().enumerate() {
            expect_row_major("operand", number, operand.shape())?;
        }
        for (number, result) in results.iter().enumerate() {
            expect_row_major("result", number, result.shape())?;
        }
        let call = abi::count_function_call();
        match abi::call_function(self.number, operands, results) {
            0 => Ok(()),
            code => Err(failure(code, call)),
        }
    }
}

impl fmt::Debug for FunctionRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FunctionRef").field(&self.number).finish()
    }
}

impl<'a> AttributeValue<'a> for FunctionRef<'a> {
    const KIND: AttributeKind = AttributeKind::Function;
    const ELEMENT_TYPE: Option<ElementType> = None;

    fn decode(attribute: AnyAttribute<'a>) -> Result<Self, String> {
        attribute.expect_kind(AttributeKind::Function)?;
        let number = abi::elements(attribute.bytes()).and_then(<[u32]>::first);
        number
            .map(|number| Self::new(*number))
            .ok_or_else(|| String::from("Wrong function reference: expected a number but got none"))
    }
}

fn expect_row_major(what: &str, number: usize, shape: Shape<'_>) -> Result<(), Failure> {
    if shape.is_row_major() {
        return Ok(());
    }
    Err(Failure::invalid_argument(format!(
        "{what} {number} of a function: expected row-major order, found {shape:?}"
    )))
}

#[cold]
fn failure(code: u32, call: u32) -> Failure {
    let message = crate::context::bytes(|into| Some(abi::function_message(into)));
    let message = message.unwrap_or_default();
    let code = StatusCode::from_number(code).unwrap_or(StatusCode::Unknown);
    Failure::of_function(code, String::from_utf8_lossy(&message).into_owned(), call)
}
