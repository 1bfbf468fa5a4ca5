//! The interface of the JAX FFI proposal ("JAX Foreign Function Interface", October 2022): named
//! calls, with a function for each platform.
//!
//! In the proposal the set of names is global. Here an embedder creates any number of sets, each an
//! [`FfiCalls`].
//!
//! ```
//! use callbox_tests::jax_ffi::{FfiCalls, Function};
//! use callbox::wasm::Engine;
//! use callbox::{Literal, StaticInfo};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let kernels = wat::parse_str(include_str!("../../host/callbox/examples/add_n_jax.wat"))?;
//! let module = Engine::new()?.load(&kernels)?; // the bytes of a .wasm file
//! let mut add_n = FfiCalls::new().call("add_n")?;
//! add_n.register_function(Function::new(module, "add_n")?, "cpu")?;
//!
//! let x = Literal::scalar(4.0_f32);
//! let info = StaticInfo::Value(4.0_f32.to_le_bytes().to_vec());
//! let y = add_n.invoke(&[x.clone()], Some(info), x.shape())?;
//! assert_eq!(y.to_vec::<f32>()?, [8.0]);
//! # Ok(())
//! # }
//! ```

mod compiled;
mod vmap;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use self::compiled::CompiledFfiCall;
pub use self::vmap::VmappedFfiCall;
use callbox::call::{ApiVersion, CallOptions, Platform, Signature, StaticInfo, TargetModule};
use callbox::values::{Blame, Literal, Result, Shape, Status, StatusCode};

/// The names of the calls.
#[derive(Debug, Default)]
pub struct FfiCalls {
    names: BTreeSet<String>,
}

impl FfiCalls {
    /// Makes an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a call of this name without functions: the proposal's `FFICall(name)`.
    ///
    /// # Errors
    /// - ALREADY_EXISTS if there is a call of this name.
    /// - INVALID_ARGUMENT if the name is empty or starts with `$`, which XLA reserves.
    pub fn call(&mut self, name: &str) -> Result<FfiCall> {
        if name.is_empty() || name.starts_with('$') {
            return Err(Status::invalid_argument(format!(
                "expected the name of an FFI call, not empty and without a leading '$', found {name:?}"
            )));
        }
        if !self.names.insert(name.to_owned()) {
            return Err(Status::new(
                StatusCode::AlreadyExists,
                Blame::Caller,
                format!("expected a name that no FFI call has, found {name:?} for the second time"),
            ));
        }
        Ok(FfiCall {
            name: name.to_owned(),
            functions: BTreeMap::new(),
            platform: Platform::Host,
        })
    }
}

/// The kind of a function, by the proposal's names of capsules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// `JAX_FFI_CALL_CPU`: `(api, status, static_info, outputs, inputs)`.
    Cpu,
    /// `JAX_FFI_CALL_CUDA`: the same with a stream.
    Cuda,
}

impl FunctionKind {
    /// Returns the name of the proposal's capsule.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "JAX_FFI_CALL_CPU",
            Self::Cuda => "JAX_FFI_CALL_CUDA",
        }
    }

    const fn of(platform: Platform) -> Self {
        match platform {
            Platform::Host => Self::Cpu,
            Platform::Cuda => Self::Cuda,
        }
    }
}

/// A function that can be registered for an FFI call: the proposal's capsule. It keeps its module
/// alive.
#[derive(Clone, Debug)]
pub struct Function {
    module: Arc<dyn TargetModule>,
    signature: Signature,
}

impl Function {
    /// Looks up a target of the module.
    ///
    /// # Errors
    /// - NOT_FOUND if the module has no such target.
    /// - INVALID_ARGUMENT if its function does not have the proposal's type.
    pub fn new(module: Arc<dyn TargetModule>, target: &str) -> Result<Self> {
        let targets = module.targets();
        let Some(signature) = targets.iter().find(|t| t.name == target).cloned() else {
            let names: Vec<_> = targets.iter().take(8).map(|t| t.name.as_str()).collect();
            return Err(Status::not_found(format!(
                "expected a target of the module ({}), found {target:?}",
                names.join(", ")
            )));
        };
        if !signature.api_versions.contains(&ApiVersion::JaxFfi) {
            let versions: Vec<_> = signature.api_versions.iter().map(|v| v.name()).collect();
            return Err(Status::invalid_argument(format!(
                "expected a function (api, status, static_info, outputs, inputs) for an FFI call, found {target:?} of {}",
                versions.join(", ")
            )));
        }
        Ok(Self { module, signature })
    }

    /// Returns the kind of the function.
    #[must_use]
    pub fn kind(&self) -> FunctionKind {
        FunctionKind::of(self.module.platform())
    }

    fn is_same(&self, other: &Self) -> bool {
        self.module.identity() == other.module.identity()
            && self.signature.name == other.signature.name
    }
}

/// A foreign function by its name, with an implementation for each platform: the proposal's
/// `FFICall`.
#[derive(Debug)]
pub struct FfiCall {
    name: String,
    functions: BTreeMap<Platform, Function>,
    /// The platform whose function is called.
    platform: Platform,
}

impl FfiCall {
    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Registers the function for a platform, by the platform's name: `cpu`, `cuda`. Registering
    /// the same function again changes nothing.
    ///
    /// # Errors
    /// - INVALID_ARGUMENT for an unknown platform, and for a function of another kind than the
    ///   platform's.
    /// - ALREADY_EXISTS if the platform has another function.
    pub fn register_function(&mut self, function: Function, platform: &str) -> Result<()> {
        let wrong = |status: Status| status.context(format_args!("FFI call {:?}", self.name));
        let on: Platform = platform.parse().map_err(wrong)?;
        let (expected, found) = (FunctionKind::of(on), function.kind());
        if expected != found {
            return Err(wrong(Status::invalid_argument(format!(
                "expected a function of the kind {} for the platform {platform:?}, found {}",
                expected.name(),
                found.name()
            ))));
        }
        match self.functions.get(&on) {
            Some(known) if known.is_same(&function) => Ok(()),
            Some(known) => Err(wrong(Status::new(
                StatusCode::AlreadyExists,
                Blame::Caller,
                format!(
                    "expected one function for the platform {on}, which has {:?}, found {:?}",
                    known.signature.name, function.signature.name
                ),
            ))),
            None => {
                self.functions.insert(on, function);
                Ok(())
            }
        }
    }

    /// Selects the platform whose function is called, initially the CPU. Operands and results are
    /// in host memory, so a function for CUDA must come from a module with a device
    /// (`CudaModule::on_device`).
    pub fn set_platform(&mut self, platform: Platform) {
        self.platform = platform;
    }

    /// Calls the platform's function once: the proposal's `__call__`. The result's shape is
    /// `return_shape_dtype` and is not inferred.
    ///
    /// # Errors
    /// As for [`FfiCall::compile`] and [`CompiledFfiCall::call`].
    pub fn invoke(
        &self,
        operands: &[Literal],
        static_info: Option<StaticInfo>,
        return_shape_dtype: &Shape,
    ) -> Result<Literal> {
        let shapes = operands.iter().map(|o| o.shape().clone()).collect();
        self.compile(shapes, static_info, return_shape_dtype.clone())?
            .call(operands, &CallOptions::default())
    }

    /// Prepares calls of the platform's function on operands of these shapes.
    ///
    /// Static information by reference is constructed here, and destroyed when the returned value
    /// is dropped.
    ///
    /// # Errors
    /// - NOT_FOUND if no function is registered for the platform.
    /// - Shapes that the function's module rejects, or a failure to construct the static
    ///   information.
    pub fn compile(
        &self,
        operands: Vec<Shape>,
        static_info: Option<StaticInfo>,
        return_shape_dtype: Shape,
    ) -> Result<CompiledFfiCall> {
        let function = self.function(self.platform)?;
        CompiledFfiCall::new(self, function, operands, static_info, return_shape_dtype)
    }

    /// Maps the call over a batch, one element after the other.
    ///
    /// `in_axes` gives for each operand the dimension that is the batch, if it has one; the batch
    /// is the first dimension of the results. Only a function that its module declares `pure` can
    /// be mapped, because its calls must be equivalent to the single call in the program.
    ///
    /// # Errors
    /// - FAILED_PRECONDITION if the function is not declared pure.
    /// - INVALID_ARGUMENT if no operand has the batch.
    /// - NOT_FOUND if no function is registered for the platform.
    pub fn vmap<'a>(&'a self, in_axes: &[Option<usize>]) -> Result<VmappedFfiCall<'a>> {
        VmappedFfiCall::new(self, self.function(self.platform)?, in_axes)
    }

    fn function(&self, platform: Platform) -> Result<&Function> {
        self.functions.get(&platform).ok_or_else(|| {
            let known: Vec<_> = self.functions.keys().map(|p| p.name()).collect();
            let known = if known.is_empty() {
                "none".to_owned()
            } else {
                known.join(", ")
            };
            Status::not_found(format!(
                "FFI call {:?}: expected a function for the platform {platform}, found {known}",
                self.name
            ))
        })
    }
}
