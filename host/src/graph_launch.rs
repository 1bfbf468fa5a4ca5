//! `callbox.graph.launch`: a custom call that runs a function of the program as one piece of work.
//!
//! "RFC: Cuda Graphs support in XLA" has it as `xla.graph.launch`: it takes any operands and an attribute `capture` that names a function. On CUDA the
//! function's work is captured into a graph, which is launched from then on (`cuda::GraphLaunch`). On the Host, here, the function is called: the same
//! program runs on both.

use std::sync::Arc;

use crate::call::{
    ApiVersion, AttributeSignature, Bounds, CallOptions, CallSite, Deadline, Execution, Functions,
    Platform, PreparedCalls, Signature, Stage, TargetModule,
};
use crate::values::{Attribute, Literal, Result, Shape, Status};

/// The target's name.
pub const NAME: &str = "callbox.graph.launch";

/// The attribute that names the function.
pub const CAPTURE: &str = "capture";

/// The target on the Host. It is no guest: it only hands its operands on.
#[derive(Debug)]
pub struct GraphLaunch {
    targets: [Signature; 1],
}

/// What the target declares, on each platform.
#[must_use]
pub fn signature() -> Signature {
    Signature {
        name: NAME.to_owned(),
        api_versions: vec![ApiVersion::TypedFfi],
        stages: vec![Stage::Execute],
        operands: Some(Vec::new()),
        remaining_operands: true,
        results: Some(Vec::new()),
        remaining_results: true,
        attributes: Some(vec![AttributeSignature {
            name: CAPTURE.to_owned(),
            kind: "function".to_owned(),
            element_type: None,
            optional: false,
        }]),
        documentation: "Runs the function `capture` of the program on the operands: on CUDA as a graph, which is captured once and launched from then on."
            .to_owned(),
        traits: Vec::new(),
    }
}

/// Which of a call site's functions it runs.
///
/// # Errors
/// INVALID_ARGUMENT if it names none, or one that does not take the operands' leaves or give the result's.
pub fn function(site: &CallSite) -> Result<usize> {
    let wrong = |message: String| Status::invalid_argument(format!("{NAME}: {message}"));
    let name = match site.attributes.get(CAPTURE) {
        Some(Attribute::Function(name)) => name,
        Some(other) => {
            return Err(wrong(format!(
                "expected the attribute {CAPTURE:?} to be a function, found {other:?}"
            )));
        }
        None => {
            return Err(wrong(format!(
                "expected an attribute {CAPTURE:?} that names a function, found none"
            )));
        }
    };
    let number = site.functions.iter().position(|f| f.name == *name);
    let Some(number) = number else {
        return Err(wrong(format!(
            "expected a function of the program, found {name:?}"
        )));
    };
    let reference = &site.functions[number];
    let shapes = |shapes: &[Shape]| -> Vec<String> {
        let leaves = shapes.iter().flat_map(Shape::leaves);
        leaves
            .map(|leaf| leaf.clone().without_layout().to_string())
            .collect()
    };
    let pairs = [
        (
            "operands",
            shapes(&site.operands),
            shapes(&reference.parameters),
        ),
        (
            "results",
            shapes(std::slice::from_ref(&site.result)),
            shapes(std::slice::from_ref(&reference.result)),
        ),
    ];
    for (what, found, expected) in pairs {
        if found != expected {
            return Err(wrong(format!(
                "expected {what} ({}) as the function {name:?} has them, found ({})",
                expected.join(", "),
                found.join(", ")
            )));
        }
    }
    Ok(number)
}

impl GraphLaunch {
    /// The target, to be registered by its name.
    #[must_use]
    pub fn on_host() -> Arc<Self> {
        Arc::new(Self {
            targets: [signature()],
        })
    }
}

impl TargetModule for GraphLaunch {
    fn identity(&self) -> &str {
        NAME
    }

    fn platform(&self) -> Platform {
        Platform::Host
    }

    fn targets(&self) -> &[Signature] {
        &self.targets
    }

    fn prepare(self: Arc<Self>, sites: Vec<CallSite>) -> Result<Box<dyn PreparedCalls>> {
        let prepared = sites.into_iter().map(|site| {
            let checked = self.targets[0].check(&site).and_then(|()| function(&site));
            let number = checked.map_err(|status| status.context(&site.name))?;
            Ok((site, number))
        });
        Ok(Box::new(Calls(prepared.collect::<Result<_>>()?)))
    }
}

/// Call sites, each with the number of its function.
#[derive(Debug)]
struct Calls(Vec<(CallSite, usize)>);

struct Running<'c> {
    calls: &'c Calls,
    functions: Option<Arc<dyn Functions>>,
    bounds: Bounds,
}

impl PreparedCalls for Calls {
    fn begin(
        &self,
        options: &CallOptions,
        functions: Option<&Arc<dyn Functions>>,
        _: &[usize],
    ) -> Result<Box<dyn Execution + '_>> {
        Ok(Box::new(Running {
            calls: self,
            functions: functions.cloned(),
            bounds: Bounds {
                deadline: options.deadline.map(Deadline::instant),
                fuel: options.fuel.clone(),
            },
        }))
    }
}

impl Execution for Running<'_> {
    fn initialize(&mut self) -> Result<()> {
        Ok(())
    }

    fn call(&mut self, site: usize, operands: &[&[u8]], results: &mut [&mut [u8]]) -> Result<()> {
        let (site, number) = &self.calls.0[site];
        let reference = &site.functions[*number];
        let Some(functions) = &self.functions else {
            return Err(Status::internal("a function without a program"));
        };
        let mut leaves = operands.iter();
        let arguments = reference.parameters.iter().map(|shape| {
            let bytes = leaves.by_ref().take(shape.leaves().len());
            Literal::from_leaves(shape.clone(), bytes.map(|b| b.to_vec()).collect())
        });
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        let result = functions
            .call(reference.id, &arguments, &self.bounds)
            .map_err(|status| status.context(format_args!("function {:?}", reference.name)))?;
        for (number, (to, (_, from))) in std::iter::zip(results, result.leaves()).enumerate() {
            if !site.scratch.contains(&number) {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }
}
