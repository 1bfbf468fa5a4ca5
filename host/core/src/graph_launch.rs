//! `callbox.graph.launch`: a custom call that runs a function of the program as a graph.
//!
//! The target follows `xla.graph.launch` of "RFC: Cuda Graphs support in XLA": it takes any
//! operands, and the attribute `capture` names a function. On CUDA, the function's work is captured
//! into a graph, which later calls launch (`cuda::GraphLaunch`). On the Host, the target calls the
//! function, so that one program runs on both platforms.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use crate::call::{
    ApiVersion, AttributeSignature, Bounds, CallOptions, CallSite, Deadline, Execution, Functions,
    Platform, PreparedCalls, Signature, Stage, TargetModule,
};
use crate::text::shortened;
use crate::untrusted_text::shown_name;
use crate::values::{Attribute, Blame, Literal, Result, Shape, Status, StatusCode, with_capacity};

/// The target's name.
pub const NAME: &str = "callbox.graph.launch";

/// The attribute that names the function.
pub const CAPTURE: &str = "capture";

/// The deepest nesting of functions that targets without a policy call: this one, and those on a
/// device.
pub const MAX_DEPTH: usize = 8;

/// The target on the Host. Part of callbox, not a guest: it only passes operands on.
#[derive(Debug)]
pub struct GraphLaunch {
    targets: [Signature; 1],
}

/// The target's declaration, on each platform.
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
            fields: None,
            variants: None,
            optional: false,
        }]),
        documentation: "Runs the function `capture` of the program on the operands: on CUDA as a graph, which is captured once and launched from then on."
            .to_owned(),
        traits: Vec::new(),
        derivative_of: None,
    }
}

/// The number of the function that a call site runs, among its functions.
///
/// # Errors
/// INVALID_ARGUMENT if the call site names no function, or one whose parameters or result differ
/// from its own.
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
            "expected a function of the program, found \"{}\"",
            shown_name(name)
        )));
    };
    let reference = &site.functions[number];
    let all = site.operands.iter().chain([&site.result]);
    if let Some(leaf) = all
        .flat_map(Shape::leaves)
        .find(|leaf| !leaf.is_row_major())
    {
        return Err(wrong(format!(
            "expected operands and results in row-major order, found {leaf}"
        )));
    }
    let shapes = |shapes: &[Shape]| -> Vec<String> {
        let leaves = shapes.iter().flat_map(Shape::leaves);
        leaves
            .map(|leaf| leaf.clone().without_layout().to_string())
            .collect()
    };
    let (result, expected_result) = ([site.result.clone()], [reference.result.clone()]);
    for (what, found, expected) in [
        ("operands", &site.operands[..], &reference.parameters[..]),
        ("results", &result, &expected_result),
    ] {
        let (found, expected) = (shapes(found), shapes(expected));
        if found != expected {
            return Err(wrong(format!(
                "expected {what} ({}) as the function \"{}\" has them, found ({})",
                first(&expected),
                shown_name(name),
                first(&found)
            )));
        }
    }
    Ok(number)
}

/// The first texts, and the count if there are more.
fn first(texts: &[String]) -> String {
    const MOST: usize = 16;
    let first = texts[..texts.len().min(MOST)].join(", ");
    match texts.len() {
        count if count > MOST => format!("{first}, ... ({count} in all)"),
        _ => first,
    }
}

impl GraphLaunch {
    /// The target, for registering it by its name.
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

    fn prepare(
        self: Arc<Self>,
        sites: Vec<CallSite>,
        options: &CallOptions,
    ) -> Result<Box<dyn PreparedCalls>> {
        let prepared = sites.into_iter().enumerate().map(|(number, site)| {
            if number > 0 {
                options.check()?;
            }
            let checked = self.targets[0].check(&site).and_then(|()| function(&site));
            let number = checked.map_err(|status| status.context(site.label()))?;
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
    options: CallOptions,
}

/// The operands that are passed on between two looks at the deadline.
const BETWEEN_LOOKS: usize = 1024;

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
            options: options.from_now_on(),
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
        if functions.depth() >= MAX_DEPTH {
            let message = format!(
                "expected functions that launch others at most {MAX_DEPTH} deep, found more"
            );
            return Err(Status::new(
                StatusCode::ResourceExhausted,
                Blame::Caller,
                message,
            ));
        }
        let mut leaves = operands.iter().enumerate();
        // An array that is passed several times is copied once.
        let mut copies: HashMap<(*const u8, usize), Arc<Vec<u8>>> = HashMap::new();
        let arguments = reference.parameters.iter().map(|shape| {
            let leaves = leaves.by_ref().take(shape.leaf_count());
            let leaves = leaves.map(|(number, bytes)| {
                if number % BETWEEN_LOOKS == 0 {
                    self.options.check()?;
                }
                let copy = match copies.entry((bytes.as_ptr(), bytes.len())) {
                    Entry::Occupied(known) => known.into_mut(),
                    Entry::Vacant(place) => {
                        let mut copy = with_capacity(bytes.len())?;
                        copy.extend_from_slice(bytes);
                        place.insert(Arc::new(copy))
                    }
                };
                Ok(Arc::clone(copy))
            });
            Literal::from_shared_leaves(shape.clone(), leaves.collect::<Result<_>>()?)
        });
        let arguments = arguments.collect::<Result<Vec<_>>>()?;
        let bounds = Bounds {
            deadline: self.options.deadline.and_then(Deadline::end),
            fuel: self.options.fuel.clone(),
        };
        let result = functions
            .call(reference.id, &arguments, &bounds)
            .map_err(|status| {
                status.context(format_args!("function {:?}", shortened(&reference.name)))
            })?;
        for (number, (to, (_, from))) in std::iter::zip(results, result.leaves()).enumerate() {
            if !site.is_scratch(number) {
                to.copy_from_slice(from);
            }
        }
        Ok(())
    }
}
