//! A stand-in for the host in native builds, for tests and benchmarks.
//!
//! ```
//! use callbox_guest::native::Call;
//! use callbox_guest::{Operand, ResultBuffer, target};
//!
//! #[target]
//! fn double(x: &Operand<f32>, y: &mut ResultBuffer<f32>) {
//!     for (y, x) in y.iter_mut().zip(x.iter()) {
//!         *y = 2.0 * x;
//!     }
//! }
//!
//! let mut call = Call::new();
//! call.operand(&[1.0_f32, 2.0, 3.0], &[3]);
//! call.result::<f32>(&[3]);
//! assert_eq!(call.run::<double>(), Ok(()));
//! assert_eq!(call.result_elements::<f32>(0), [2.0, 4.0, 6.0]);
//! ```
//!
//! A call is decoded and checked by the same code as a call from a host. The sandbox is missing: a
//! panic is the test's panic, and an infinite loop never ends.

mod value;

use alloc::rc::Rc;
use alloc::string::String;
use alloc::vec::Vec;

pub use self::value::Value;
use self::value::dictionary;
use crate::abi;
use crate::abi::native::{Block, FrameLists, Function, List, Record, replace_record};
use crate::decode::{Target, run};
use crate::{AnyOperand, AnyResult, Element, ElementType, Failure, LogLevel, Stage, StatusCode};

/// The minor version of the emulated host, unless a test sets an older one.
const MINOR_VERSION: u16 = 1;

/// A call of a target: its operands, results and attributes, and the outcome of the last run.
///
/// ```
/// use callbox_guest::{Failure, Operand, ResultBuffer, native::Call, target};
///
/// #[target]
/// fn divide(x: &Operand<f32>, y: &mut ResultBuffer<f32>, #[attr] by: f32) -> Result<(), Failure> {
///     if by == 0.0 {
///         return Err(Failure::invalid_argument("expected `by` not to be 0"));
///     }
///     for (y, x) in y.iter_mut().zip(x.iter()) {
///         *y = x / by;
///     }
///     Ok(())
/// }
///
/// let mut call = Call::new();
/// call.operand(&[1.0_f32], &[1]).result::<f32>(&[1]).attribute("by", 0.0_f32);
/// let failure = call.run::<divide>().expect_err("it fails");
/// assert_eq!(failure.message(), "expected `by` not to be 0");
/// ```
pub struct Call {
    minor_version: u16,
    block: Block,
    operands: Vec<BufferParts>,
    results: Vec<BufferParts>,
    literal: Vec<BufferParts>,
    functions: Vec<Function>,
    called_functions: Vec<u32>,
    user_data: Vec<(String, Vec<u8>)>,
    attributes: Vec<(String, Value)>,
    opaque: Vec<u8>,
    log: Vec<(LogLevel, String)>,
}

/// A buffer of a call.
#[derive(Clone)]
struct BufferParts {
    element_type: u8,
    data: List,
    dimensions: Vec<i64>,
    minor_to_major: Vec<i64>,
    aliased_operand: Option<u32>,
}

impl Default for Call {
    fn default() -> Self {
        Self {
            minor_version: MINOR_VERSION,
            block: Block::default(),
            operands: Vec::new(),
            results: Vec::new(),
            literal: Vec::new(),
            functions: Vec::new(),
            called_functions: Vec::new(),
            user_data: Vec::new(),
            attributes: Vec::new(),
            opaque: Vec::new(),
            log: Vec::new(),
        }
    }
}

impl Call {
    /// Returns a call without operands, results and attributes.
    ///
    /// ```
    /// use callbox_guest::{native::Call, target};
    ///
    /// #[target]
    /// fn nothing() {}
    ///
    /// assert_eq!(Call::new().run::<nothing>(), Ok(()));
    /// ```
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an operand in row-major order. The dimensions are not checked.
    ///
    /// ```
    /// use callbox_guest::{Operand, ResultBuffer, native::Call, target};
    ///
    /// #[target]
    /// fn double(x: &Operand<f32>, y: &mut ResultBuffer<f32>) {
    ///     y.iter_mut().zip(x.iter()).for_each(|(y, x)| *y = 2.0 * x);
    /// }
    ///
    /// let mut call = Call::new();
    /// call.operand(&[1.0_f32, 2.0], &[2]).result::<f32>(&[2]);
    /// assert_eq!(call.run::<double>(), Ok(()));
    /// assert_eq!(call.result_elements::<f32>(0), [2.0, 4.0]);
    /// ```
    pub fn operand<T: Element>(&mut self, elements: &[T], dimensions: &[i64]) -> &mut Self {
        let data = self.block.list(abi::bytes(elements));
        let operand = BufferParts::new(T::TYPE, data, dimensions);
        self.operands.push(operand);
        self
    }

    /// Adds a result in row-major order, with every byte 0xAA.
    ///
    /// ```
    /// use callbox_guest::native::Call;
    ///
    /// let mut call = Call::new();
    /// call.result::<u8>(&[2]);
    /// assert_eq!(call.result_elements::<u8>(0), [0xAA; 2]);
    /// ```
    pub fn result<T: Element>(&mut self, dimensions: &[i64]) -> &mut Self {
        let count: i64 = dimensions.iter().product();
        let bytes =
            alloc::vec![0xAA_u8; size_of::<T>() * usize::try_from(count).unwrap_or_default()];
        let data = self.block.list(&bytes);
        let result = BufferParts::new(T::TYPE, data, dimensions);
        self.results.push(result);
        self
    }

    /// Adds a result that shares the memory, type and dimensions of the operand at this index. Does
    /// nothing if there is no such operand.
    ///
    /// ```
    /// use callbox_guest::{InPlace, native::Call, target};
    ///
    /// #[target]
    /// fn double(x: &mut InPlace<f32>) {
    ///     x.iter_mut().for_each(|x| *x *= 2.0);
    /// }
    ///
    /// let mut call = Call::new();
    /// call.operand(&[1.0_f32], &[1]).aliased_result(0);
    /// assert_eq!(call.run::<double>(), Ok(()));
    /// assert_eq!(call.result_elements::<f32>(0), [2.0]);
    /// ```
    pub fn aliased_result(&mut self, operand: usize) -> &mut Self {
        if let Some(shared) = self.operands.get(operand) {
            let mut result = shared.clone();
            result.aliased_operand = u32::try_from(operand).ok();
            self.results.push(result);
        }
        self
    }

    /// Sets the layout of every operand and result that was added so far.
    ///
    /// ```
    /// use callbox_guest::{Operand, ResultBuffer, native::Call, target};
    ///
    /// #[target]
    /// fn corner(x: &Operand<f32, 2>, y: &mut ResultBuffer<f32, 0>) {
    ///     y.set(x[[0, 1]]);
    /// }
    ///
    /// // [[1, 3], [2, 4]] in column-major order.
    /// let mut call = Call::new();
    /// call.operand(&[1.0_f32, 2.0, 3.0, 4.0], &[2, 2]).minor_to_major(&[0, 1]);
    /// call.result::<f32>(&[]);
    /// assert_eq!(call.run::<corner>(), Ok(()));
    /// assert_eq!(call.result_elements::<f32>(0), [3.0]);
    /// ```
    pub fn minor_to_major(&mut self, minor_to_major: &[i64]) -> &mut Self {
        for buffer in self.operands.iter_mut().chain(&mut self.results) {
            buffer.minor_to_major = minor_to_major.to_vec();
        }
        self
    }

    /// Adds an attribute.
    ///
    /// ```
    /// use callbox_guest::{native::Call, target};
    ///
    /// #[target]
    /// fn check(#[attr] axis: i64, #[attr] mode: &str) {
    ///     assert_eq!((axis, mode), (1, "exact"));
    /// }
    ///
    /// let mut call = Call::new();
    /// call.attribute("axis", 1_i64).attribute("mode", "exact");
    /// assert_eq!(call.run::<check>(), Ok(()));
    /// ```
    pub fn attribute(&mut self, name: &str, value: impl Into<Value>) -> &mut Self {
        self.attributes.push((String::from(name), value.into()));
        self
    }

    /// Sets the opaque bytes.
    ///
    /// ```
    /// use callbox_guest::{Context, ResultBuffer, native::Call, target};
    ///
    /// #[target]
    /// fn first(context: &Context, y: &mut ResultBuffer<u8>) {
    ///     y.fill(context.opaque()[0]);
    /// }
    ///
    /// let mut call = Call::new();
    /// call.opaque(b"ab").result::<u8>(&[1]);
    /// assert_eq!(call.run::<first>(), Ok(()));
    /// assert_eq!(call.result_elements::<u8>(0), *b"a");
    /// ```
    pub fn opaque(&mut self, bytes: &[u8]) -> &mut Self {
        self.opaque = bytes.to_vec();
        self
    }

    /// Adds a leaf of the call's literal, in row-major order. The dimensions are not checked.
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, ResultBuffer, native::Call, target};
    ///
    /// #[target]
    /// fn constant(context: &Context, y: &mut ResultBuffer<f32>) -> Result<(), Failure> {
    ///     y.copy_from_slice(&context.literal()?[0].as_typed()?);
    ///     Ok(())
    /// }
    ///
    /// let mut call = Call::new();
    /// call.literal(&[1.0_f32, 2.0], &[2]).result::<f32>(&[2]);
    /// assert_eq!(call.run::<constant>(), Ok(()));
    /// assert_eq!(call.result_elements::<f32>(0), [1.0, 2.0]);
    /// ```
    pub fn literal<T: Element>(&mut self, elements: &[T], dimensions: &[i64]) -> &mut Self {
        let data = self.block.list(abi::bytes(elements));
        let leaf = BufferParts::new(T::TYPE, data, dimensions);
        self.literal.push(leaf);
        self
    }

    /// Adds an attribute that refers to a function of the program, which `function` implements.
    /// `function` receives the operands and results of the target's call. If it fails, the results
    /// keep their contents.
    ///
    /// ```
    /// use callbox_guest::{Failure, FunctionRef, native::Call, target};
    ///
    /// #[target]
    /// fn ask(#[attr] function: FunctionRef) -> Result<(), Failure> {
    ///     function.call(&[], &mut [])
    /// }
    ///
    /// let mut call = Call::new();
    /// call.function_attribute("function", |_, _| Err(Failure::unavailable("not now")));
    /// assert_eq!(call.run::<ask>(), Err(Failure::unavailable("not now")));
    /// ```
    pub fn function_attribute(
        &mut self,
        name: &str,
        function: impl Fn(&[AnyOperand<'_>], &mut [AnyResult<'_>]) -> Result<(), Failure> + 'static,
    ) -> &mut Self {
        let number = self.function(function);
        self.attribute(name, Value::Function(number))
    }

    /// Adds a called computation, which `function` implements as in
    /// [`function_attribute`](Self::function_attribute).
    ///
    /// ```
    /// use callbox_guest::{Context, Failure, Operand, ResultBuffer, native::Call, target};
    ///
    /// #[target]
    /// fn apply(
    ///     context: &Context,
    ///     x: &Operand<f32>,
    ///     y: &mut ResultBuffer<f32>,
    /// ) -> Result<(), Failure> {
    ///     for function in context.called_functions() {
    ///         function.call(&[x.into()], &mut [(&mut *y).into()])?;
    ///     }
    ///     Ok(())
    /// }
    ///
    /// let mut call = Call::new();
    /// call.operand(&[1.0_f32], &[1]).result::<f32>(&[1]);
    /// call.called_function(|operands, results| {
    ///     results[0].as_typed::<f32>()?[0] = operands[0].as_typed::<f32>()?[0] + 1.0;
    ///     Ok(())
    /// });
    /// assert_eq!(call.run::<apply>(), Ok(()));
    /// assert_eq!(call.result_elements::<f32>(0), [2.0]);
    /// ```
    pub fn called_function(
        &mut self,
        function: impl Fn(&[AnyOperand<'_>], &mut [AnyResult<'_>]) -> Result<(), Failure> + 'static,
    ) -> &mut Self {
        let number = self.function(function);
        self.called_functions.push(number);
        self
    }

    fn function(
        &mut self,
        function: impl Fn(&[AnyOperand<'_>], &mut [AnyResult<'_>]) -> Result<(), Failure> + 'static,
    ) -> u32 {
        self.functions.push(Rc::new(function));
        self.functions.len() as u32 - 1
    }

    /// Attaches bytes to the call, as an embedder attaches user data to an execution.
    ///
    /// ```
    /// use callbox_guest::{Context, ResultBuffer, native::Call, target};
    ///
    /// #[target]
    /// fn user(context: &Context, y: &mut ResultBuffer<u8>) {
    ///     y.fill(context.user_data("user").unwrap_or_default().len() as u8);
    /// }
    ///
    /// let mut call = Call::new();
    /// call.user_data("user", b"ada").result::<u8>(&[1]);
    /// assert_eq!(call.run::<user>(), Ok(()));
    /// assert_eq!(call.result_elements::<u8>(0), [3]);
    /// ```
    pub fn user_data(&mut self, name: &str, bytes: &[u8]) -> &mut Self {
        self.user_data.push((String::from(name), bytes.to_vec()));
        self
    }

    /// Emulates a host of version `1.minor`, whose frames may be shorter. The default is the
    /// newest.
    ///
    /// ```
    /// use callbox_guest::{Context, native::Call, target};
    ///
    /// #[target]
    /// fn check(context: &Context) {
    ///     assert_eq!(context.ffi_version(), (1, 0));
    /// }
    ///
    /// assert_eq!(Call::new().minor_version(0).run::<check>(), Ok(()));
    /// ```
    pub fn minor_version(&mut self, minor: u16) -> &mut Self {
        self.minor_version = minor;
        self
    }

    /// Calls one function of a target, and keeps the state that it leaves for later stages.
    ///
    /// # Errors
    /// The failure that a host would report.
    ///
    /// ```
    /// use callbox_guest::{Operand, ResultBuffer, native::Call, target};
    ///
    /// #[target]
    /// fn double(x: &Operand<f32>, y: &mut ResultBuffer<f32>) {
    ///     y.iter_mut().zip(x.iter()).for_each(|(y, x)| *y = 2.0 * x);
    /// }
    ///
    /// let mut call = Call::new();
    /// call.operand(&[1_i32], &[1]).result::<f32>(&[1]);
    /// let failure = call.run::<double>().expect_err("the operand is S32");
    /// assert!(failure.message().contains("expected F32 but got S32"));
    /// ```
    pub fn run<T: Target>(&mut self) -> Result<(), Failure> {
        let stage = T::DESCRIPTION.stage as u8;
        let lists = FrameLists {
            stage,
            operands: buffers(&mut self.block, &self.operands),
            results: buffers(&mut self.block, &self.results),
            attributes: dictionary(&mut self.block, &self.attributes),
            opaque: self.block.list(&self.opaque),
            literal: buffers(&mut self.block, &self.literal),
            functions: self.block.list(&self.called_functions),
        };
        // A called function may make a call of its own, with its own record.
        let outer = replace_record(self.record(T::DESCRIPTION.stage));
        let frame = |frame: abi::FramePointer<'_>| run::<T>(frame);
        let code = self.block.call(self.minor_version, &lists, frame);
        let record = replace_record(outer);
        self.log = record.log;
        match (record.failure, StatusCode::from_number(code)) {
            (None, Some(StatusCode::Ok)) => Ok(()),
            (Some(failure), _) => Err(failure),
            (None, Some(code)) => Err(record
                .function_failure
                .filter(|failure| failure.code() == code)
                .unwrap_or_else(|| Failure::new(code, ""))),
            (None, None) => Err(Failure::unknown("status code out of range")),
        }
    }

    /// Returns the input of the API table's functions in this stage. `instantiate` belongs to no
    /// execution, and so has no execution's data.
    fn record(&self, stage: Stage) -> Record {
        let mut record = Record {
            minor_version: self.minor_version,
            ..Record::default()
        };
        if stage != Stage::Instantiate {
            record.functions = self.functions.clone();
            record.user_data = self.user_data.clone();
        }
        record
    }

    /// Returns the elements of the result at this index. Empty if there is no such result, or if it
    /// has another element type.
    ///
    /// ```
    /// use callbox_guest::{ResultBuffer, native::Call, target};
    ///
    /// #[target]
    /// fn ones(y: &mut ResultBuffer<f32>) {
    ///     y.fill(1.0);
    /// }
    ///
    /// let mut call = Call::new();
    /// assert_eq!(call.result::<f32>(&[2]).run::<ones>(), Ok(()));
    /// assert_eq!(call.result_elements::<f32>(0), [1.0, 1.0]);
    /// assert!(call.result_elements::<i32>(0).is_empty());
    /// ```
    #[must_use]
    pub fn result_elements<T: Element>(&self, index: usize) -> Vec<T> {
        self.results
            .get(index)
            .filter(|result| result.element_type == T::TYPE as u8)
            .and_then(|result| abi::elements(self.block.bytes(result.data)))
            .unwrap_or_default()
            .to_vec()
    }

    /// Returns the messages that the last run logged.
    ///
    /// ```
    /// use callbox_guest::{Context, LogLevel, native::Call, target};
    ///
    /// #[target]
    /// fn greet(context: &Context) {
    ///     context.log(LogLevel::Info, "hello");
    /// }
    ///
    /// let mut call = Call::new();
    /// assert_eq!(call.run::<greet>(), Ok(()));
    /// assert_eq!(call.log(), [(LogLevel::Info, "hello".to_owned())]);
    /// ```
    #[must_use]
    pub fn log(&self) -> &[(LogLevel, String)] {
        &self.log
    }
}

impl core::fmt::Debug for Call {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Call")
            .field("operands", &self.operands.len())
            .field("results", &self.results.len())
            .field("attributes", &self.attributes)
            .finish_non_exhaustive()
    }
}

impl BufferParts {
    fn new(element_type: ElementType, data: List, dimensions: &[i64]) -> Self {
        Self {
            element_type: element_type as u8,
            data,
            dimensions: dimensions.to_vec(),
            minor_to_major: (0..dimensions.len() as i64).rev().collect(),
            aliased_operand: None,
        }
    }
}

fn buffers(block: &mut Block, parts: &[BufferParts]) -> List {
    let records: Vec<_> = parts
        .iter()
        .map(|part| {
            block.buffer(
                part.element_type,
                part.data,
                &part.dimensions,
                &part.minor_to_major,
                part.aliased_operand,
            )
        })
        .collect();
    block.list(&records)
}
