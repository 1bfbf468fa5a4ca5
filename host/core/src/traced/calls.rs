//! The target [`TARGET`](super::TARGET) for programs that callbox runs.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::text::{CallText, Shapes};
use super::{TARGET, TARGET_COMMAND_BUFFER};
use crate::call::{
    ApiVersion, AttributeSignature, CallOptions, CallSite, Deadline, DirectModule, Execution,
    Functions, Mapping, Platform, PreparedCall, PreparedCalls, Signature, Slices, Stage,
    TargetModule,
};
use crate::text::{AttributeRoom, attributes_within};
use crate::untrusted_text::shown_name;
use crate::values::{ArrayShape, Attribute, Dictionary, ElementType, Result, Shape, Status};

/// The size of the pieces in which large arrays of an elementwise target are passed, in bytes.
const PIECE_BYTES: usize = 64 << 10;

/// The bytes that fill the results of a failed call: NaN for floating point, or true.
const fn poison(is_pred: bool) -> u8 {
    if is_pred { 1 } else { 0xFF }
}

/// Finds the modules that traced calls name.
pub trait TracedModules: fmt::Debug + Send + Sync {
    /// The module with this key, loaded for its target of this name.
    ///
    /// # Errors
    /// NOT_FOUND if there is none; the failure to load it.
    fn find(&self, key: &str, target: &str) -> Result<Arc<dyn AnyModule>>;
}

/// A module of any backend whose targets can be called outside a program.
pub trait AnyModule: TargetModule {
    /// [`PreparedCall::new_within`].
    ///
    /// # Errors
    /// As for [`PreparedCall::new_within`].
    fn prepare_any(
        self: Arc<Self>,
        site: CallSite,
        mapping: &Mapping,
        options: &CallOptions,
    ) -> Result<Box<dyn AnyCall>>;
}

impl<M: DirectModule<Calls: 'static>> AnyModule for M {
    fn prepare_any(
        self: Arc<Self>,
        site: CallSite,
        mapping: &Mapping,
        options: &CallOptions,
    ) -> Result<Box<dyn AnyCall>> {
        Ok(Box::new(PreparedCall::new_within(
            &self, site, mapping, options,
        )?))
    }
}

/// Fills the results of the elements that failed. Takes the results, the elements and the failure.
type FailedElements<'a> = dyn FnMut(&mut [&mut [u8]], Range<usize>, &Status) + 'a;

/// A prepared call of any backend.
pub trait AnyCall: fmt::Debug + Send + Sync {
    /// [`PreparedCall::call_with`].
    ///
    /// # Errors
    /// As for [`PreparedCall::call_with`].
    fn call(
        &self,
        options: &CallOptions,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> Result<()>;

    /// [`PreparedCall::call_each`], which goes on after elements that fail.
    ///
    /// # Errors
    /// As for [`PreparedCall::call_each`].
    fn call_each(
        &self,
        options: &CallOptions,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
        failed: &mut FailedElements<'_>,
    ) -> Result<()>;
}

impl<C: crate::call::DirectCalls> AnyCall for PreparedCall<C> {
    fn call(
        &self,
        options: &CallOptions,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        self.call_with(options, operands, results)
    }

    fn call_each(
        &self,
        options: &CallOptions,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
        failed: &mut FailedElements<'_>,
    ) -> Result<()> {
        let mut buffers = Slices { operands, results };
        PreparedCall::call_each(
            self,
            options,
            &mut buffers,
            &mut |buffers, elements, status| {
                failed(buffers.results, elements, &status);
                Ok(())
            },
        )
    }
}

/// The target of traced programs.
#[derive(Debug)]
pub struct TracedCalls {
    modules: Arc<dyn TracedModules>,
    longest: Option<Duration>,
    targets: [Signature; 2],
}

impl TracedCalls {
    /// The target for programs whose modules these are. If the caller of a program gives no
    /// deadline, none of its calls may have a later one than after the `longest` time.
    #[must_use]
    pub fn new(modules: Arc<dyn TracedModules>, longest: Option<Duration>) -> Self {
        Self {
            modules,
            longest,
            targets: [TARGET, TARGET_COMMAND_BUFFER].map(signature),
        }
    }

    /// The module of a traced call, and the name of its target.
    fn module<'a>(&self, site: &'a CallSite) -> Result<(Arc<dyn AnyModule>, &'a str)> {
        let target = self.targets.iter().find(|known| known.name == site.target);
        let target = target.ok_or_else(|| Status::internal("no target of this name"))?;
        target.check(site)?;
        let name = string(&site.attributes, "target")?;
        let key = string(&site.attributes, "module")?;
        Ok((self.modules.find(key, name)?, name))
    }

    /// Reads the call site that a traced call describes, and finds its module. All calls of a
    /// program share `room`.
    fn read(&self, site: &CallSite, room: &mut AttributeRoom) -> Result<Described> {
        let (module, name) = self.module(site)?;
        let text: CallText =
            serde_json::from_str(string(&site.attributes, "call")?).map_err(|error| {
                let error = shown_name(&error.to_string());
                Status::invalid_argument(format!("the attribute `call`: {error}"))
            })?;
        let mut shapes = Shapes {
            operands: arrays(&site.operands)?,
            results: arrays(std::slice::from_ref(&site.result))?,
        };
        let has_status = text.status;
        if has_status {
            let status = shapes.results.pop();
            if status.is_none_or(|status| status.element_type() != ElementType::S32) {
                let message = "expected the last result to be the status, an s32";
                return Err(Status::invalid_argument(message));
            }
        }
        let batch = text.batch_dimensions(&shapes)?;
        let attributes = attributes_within(string(&site.attributes, "attributes")?, room)?;
        let known = site
            .scratch
            .partition_point(|&leaf| leaf < shapes.results.len());
        let known = &site.scratch[..known];
        let own = CallSite {
            name: site.name.clone(),
            // Not the status, which the target does not know.
            scratch: known.to_vec(),
            ..text.site(name, attributes, &shapes)?
        };
        let arrays = shapes.operands.iter().chain(&shapes.results);
        let is_large = arrays.map(ArrayShape::byte_size).max() > Some(4 * PIECE_BYTES);
        let element = |shape: &ArrayShape| {
            let elements: usize = shape.dimensions()[batch..].iter().product();
            let width = shape.element_type().byte_width();
            (elements * width, poison(shape.element_type().is_pred()))
        };
        Ok(Described {
            module,
            site: own,
            mapping: Mapping {
                batch_dimensions: batch,
                piece_bytes: is_large.then_some(PIECE_BYTES),
            },
            results: shapes.results.iter().map(element).collect(),
            options: text.options(),
            has_status,
        })
    }
}

/// A call site that a traced call describes.
struct Described {
    module: Arc<dyn AnyModule>,
    site: CallSite,
    mapping: Mapping,
    options: CallOptions,
    has_status: bool,
    results: Vec<(usize, u8)>,
}

impl Described {
    /// Prepares the call site. The message of a failure begins with its name, as the module's
    /// [`TargetModule::prepare`] promises.
    fn prepare(self, options: &CallOptions) -> Result<Call> {
        Ok(Call {
            call: self.module.prepare_any(self.site, &self.mapping, options)?,
            options: self.options,
            has_status: self.has_status,
            results: self.results,
        })
    }
}

fn signature(name: &str) -> Signature {
    let attribute = |name: &str| AttributeSignature {
        name: name.to_owned(),
        kind: "string".to_owned(),
        element_type: None,
        fields: None,
        variants: None,
        optional: false,
    };
    Signature {
        name: name.to_owned(),
        api_versions: vec![ApiVersion::TypedFfi],
        stages: vec![Stage::Execute],
        attributes: Some(
            ["attributes", "call", "module", "target"]
                .map(attribute)
                .into(),
        ),
        documentation: "Calls a target of the module that a program was traced with.".to_owned(),
        ..Signature::default()
    }
}

/// The arrays of shapes, which are row-major.
fn arrays(shapes: &[Shape]) -> Result<Vec<ArrayShape>> {
    let leaves = shapes.iter().flat_map(Shape::leaves);
    let row_major = leaves.map(|leaf| {
        if leaf.is_row_major() {
            Ok(leaf.clone().without_layout())
        } else {
            let message = format!("expected the row-major layout of a traced call, found {leaf}");
            Err(Status::invalid_argument(message))
        }
    });
    row_major.collect()
}

fn string<'a>(attributes: &'a Dictionary, name: &str) -> Result<&'a str> {
    let text = match attributes.get(name) {
        Some(Attribute::String(bytes)) => str::from_utf8(bytes).ok(),
        _ => None,
    };
    text.ok_or_else(|| {
        Status::invalid_argument(format!(
            "expected the attribute `{name}` to be text of UTF-8"
        ))
    })
}

impl TargetModule for TracedCalls {
    fn identity(&self) -> &str {
        TARGET
    }

    fn platform(&self) -> Platform {
        Platform::Host
    }

    fn targets(&self) -> &[Signature] {
        &self.targets
    }

    fn load(&self, sites: &[CallSite]) -> Result<()> {
        sites.iter().try_for_each(|site| {
            let found = self.module(site).map(drop);
            found.map_err(|status| status.context(site.label()))
        })
    }

    fn prepare(
        self: Arc<Self>,
        sites: Vec<CallSite>,
        options: &CallOptions,
    ) -> Result<Box<dyn PreparedCalls>> {
        let texts = sites
            .iter()
            .map(|site| string(&site.attributes, "attributes"));
        let length = texts.flatten().map(str::len).sum();
        let mut room = AttributeRoom::of_a_program(length);
        let described = sites.iter().enumerate().map(|(number, site)| {
            if number > 0 {
                options.check()?;
            }
            let described = self.read(site, &mut room);
            described.map_err(|status| status.context(site.label()))
        });
        let described = described.collect::<Result<Vec<_>>>()?;
        // One deadline is for the stages `instantiate` of all calls, as for those of a module.
        let longest = self.longest.map(Deadline::After);
        let options = CallOptions {
            deadline: options.deadline.or(longest).map(Deadline::begin),
            ..options.clone()
        };
        let prepared = described.into_iter();
        let prepared = prepared.map(|described| described.prepare(&options));
        Ok(Box::new(Calls {
            calls: prepared.collect::<Result<_>>()?,
            longest: self.longest,
        }))
    }
}

#[derive(Debug)]
struct Calls {
    calls: Vec<Call>,
    longest: Option<Duration>,
}

/// A traced call, ready to be called.
#[derive(Debug)]
struct Call {
    call: Box<dyn AnyCall>,
    /// The limits of the call itself.
    options: CallOptions,
    /// Whether the last result is the status of each element of the batch.
    has_status: bool,
    /// For each other result the bytes of one element of the batch, and the byte that fills it.
    results: Vec<(usize, u8)>,
}

struct Running<'c> {
    calls: &'c Calls,
    options: CallOptions,
}

impl PreparedCalls for Calls {
    fn begin(
        &self,
        options: &CallOptions,
        _: Option<&Arc<dyn Functions>>,
        _: &[usize],
    ) -> Result<Box<dyn Execution + '_>> {
        Ok(Box::new(Running {
            calls: self,
            options: options.clone(),
        }))
    }
}

impl Execution for Running<'_> {
    fn initialize(&mut self) -> Result<()> {
        Ok(())
    }

    fn call(&mut self, site: usize, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()> {
        let call = &self.calls.calls[site];
        // A call without a deadline of its own has the policy's.
        let own = call.options.deadline;
        let longest = own.and(self.calls.longest).map(Deadline::After);
        let given = self.options.deadline.or(longest);
        let deadlines = [given, own].into_iter().flatten();
        let options = CallOptions {
            deadline: deadlines.map(Deadline::instant).min().map(Deadline::At),
            threads: call.options.threads.or(self.options.threads),
            ..self.options.clone()
        };
        if call.has_status {
            call.with_status(&options, operands, results)
        } else {
            call.call.call(&options, operands, results)
        }
    }
}

impl Call {
    /// Calls the target, and writes the status of each element of the batch to the last result.
    fn with_status(
        &self,
        options: &CallOptions,
        operands: &[&[u8]],
        results: &mut [&mut [u8]],
    ) -> Result<()> {
        let (codes, results) = results
            .split_last_mut()
            .ok_or_else(|| Status::internal("a call with a status has no result"))?;
        codes.fill(0);
        let mut fill = |results: &mut [&mut [u8]], elements: Range<usize>, status: &Status| {
            for (result, &(bytes, poison)) in std::iter::zip(results, &self.results) {
                // A result that nothing reads has no memory.
                let failed = result.get_mut(elements.start * bytes..elements.end * bytes);
                failed.unwrap_or_default().fill(poison);
            }
            let code = i32::from(status.code().number()).to_le_bytes();
            let codes = codes.as_chunks_mut().0.get_mut(elements);
            codes.unwrap_or_default().fill(code);
        };
        let called = self.call.call_each(options, operands, results, &mut fill);
        if let Err(status) = called {
            for (result, (_, poison)) in std::iter::zip(&mut *results, &self.results) {
                result.fill(*poison);
            }
            let code = i32::from(status.code().number()).to_le_bytes();
            codes.as_chunks_mut().0.fill(code);
        }
        Ok(())
    }
}
