//! The launches of a manifest as the verifier of PTX takes them, for reports.

use callbox_core::call::{CallSite, resolve_aliases};
use callbox_core::policy::Gpu;
use callbox_core::values::Result;
use callbox_ptx::verify;

use super::{Launch, Manifest, Parameter, PlannedLaunch, PlannedParameter};
use crate::expression::Expression;
use crate::fenced::{Arrays, USUAL_ALIGN, check_limits, check_scratch, verifier_launch};

/// A launch of a kernel that is not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FencedLaunch {
    /// The number of the image with the kernel.
    pub image: usize,
    /// The kernel's name in the image.
    pub entry: String,
    /// The parameters in order, without values where those are not known.
    pub parameters: Vec<PlannedParameter>,
    /// The launch, as far as it is known.
    pub launch: verify::Launch,
    /// The numbers of the launch that are not known.
    pub open: verify::Open,
}

impl Manifest {
    /// The launches of the target with this number, for one call site.
    ///
    /// # Errors
    /// As for the plan of a call, and RESOURCE_EXHAUSTED past a limit of `gpu`.
    pub fn fenced_launches(
        &self,
        target: usize,
        site: &CallSite,
        gpu: &Gpu,
    ) -> Result<Vec<FencedLaunch>> {
        let target = &self.targets[target];
        target.signature.check(site)?;
        let aliases = resolve_aliases(site, site.result.leaf_count())?;
        let planned = target.plan(site)?;
        check_scratch(&planned, gpu)?;
        let arrays = Arrays::of(site, &aliases);
        let launches = planned.launches.iter().map(|launch| {
            check_limits(launch, &self.images[launch.image].file, gpu)?;
            Ok(FencedLaunch {
                image: launch.image,
                entry: launch.entry.clone(),
                parameters: launch.parameters.clone(),
                launch: verifier_launch(launch, &planned.scratch, &arrays, gpu, USUAL_ALIGN),
                open: verify::Open::default(),
            })
        });
        launches.collect()
    }

    /// The launches of the target with this number, of which only constants are known.
    #[must_use]
    pub fn open_launches(&self, target: usize, gpu: &Gpu) -> Vec<FencedLaunch> {
        let launches = self.targets[target].launches.iter();
        launches.map(|launch| launch.open(gpu)).collect()
    }
}

impl Launch {
    fn open(&self, gpu: &Gpu) -> FencedLaunch {
        let extent = |sizes: &[Expression], most: [u64; 3]| {
            let known: Option<Vec<u32>> = sizes.iter().map(constant).collect();
            let is_open = known.is_none();
            let mut extent = [1; 3];
            for (i, most) in most.into_iter().enumerate().take(sizes.len()) {
                let known = known.as_ref().map(|known| known[i]);
                extent[i] = known.unwrap_or_else(|| u32::try_from(most).unwrap_or(u32::MAX));
            }
            (extent, is_open)
        };
        let (grid, is_grid_open) = extent(&self.grid, super::plan::MAX_GRID);
        let (block, is_block_open) = extent(&self.block, super::plan::MAX_BLOCK);
        let shared = self.shared_memory.as_ref().map(constant);
        let planned = PlannedLaunch {
            image: self.image,
            entry: self.entry.clone(),
            grid,
            block,
            shared_bytes: shared.flatten().unwrap_or(0),
            parameters: self.parameters.iter().map(Parameter::open).collect(),
        };
        FencedLaunch {
            launch: verifier_launch(&planned, &[], &Arrays::default(), gpu, USUAL_ALIGN),
            image: planned.image,
            entry: planned.entry,
            parameters: planned.parameters,
            open: verify::Open {
                grid: is_grid_open,
                block: is_block_open,
                shared_bytes: shared == Some(None),
                params: true,
            },
        }
    }
}

impl Parameter {
    /// The parameter for any call site. The bytes of a value have no meaning.
    fn open(&self) -> PlannedParameter {
        match self {
            Self::Operand(leaf) => PlannedParameter::Operand(*leaf),
            Self::Result(leaf) => PlannedParameter::Result(*leaf),
            Self::Scratch(number) => PlannedParameter::Scratch(*number),
            Self::Value(_, ty) => PlannedParameter::Bytes(vec![0; ty.byte_width()]),
        }
    }
}

/// The value of an expression that is a number.
fn constant(expression: &Expression) -> Option<u32> {
    expression.to_string().trim().parse().ok()
}
