//! Plans: the launches of a call site, as numbers.

use callbox_core::call::CallSite;
use callbox_core::untrusted_text::quoted;
use callbox_core::values::{Blame, Result, Status};

use super::{KernelTarget, Launch, PlannedParameter};
use crate::expression::{Expression, Facts};

/// The most blocks in each direction of a grid, on every device.
pub(super) const MAX_GRID: [u64; 3] = [0x7fff_ffff, 0xffff, 0xffff];

/// The most threads in each direction of a block.
pub(super) const MAX_BLOCK: [u64; 3] = [1024, 1024, 64];

/// The most threads in a block.
const MAX_THREADS: u64 = 1024;

/// The most bytes of parameters that a kernel takes since CUDA 12.1.
const MAX_PARAMETER_BYTES: usize = 32_764;

/// The launches of a call, for the shapes and attributes of its call site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCall {
    /// The sizes of the scratch buffers, in bytes. A buffer of size 0 has no address.
    pub scratch: Vec<usize>,
    /// The launches, in order. A call without any does nothing.
    pub launches: Vec<PlannedLaunch>,
}

/// One launch of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedLaunch {
    /// The number of the image with the kernel.
    pub image: usize,
    /// The kernel's name in the image.
    pub entry: String,
    /// The number of blocks in x, y and z, each at least 1.
    pub grid: [u32; 3],
    /// The number of threads of a block in x, y and z, each at least 1, and at most 1024 together.
    pub block: [u32; 3],
    /// The dynamic shared memory of a block, in bytes. The driver checks that the device has as
    /// much.
    pub shared_bytes: u32,
    /// The parameters, in order.
    pub parameters: Vec<PlannedParameter>,
}

impl KernelTarget {
    /// Evaluates the checks for one call site.
    ///
    /// # Errors
    /// The code and message of the first check that does not hold, the message marked as the
    /// guest's; INVALID_ARGUMENT for one without a value.
    pub fn check(&self, site: &CallSite) -> Result<()> {
        let facts = Facts::new(site);
        for (i, check) in self.checks.iter().enumerate() {
            let holds = check.require.truth(&facts);
            if !holds.map_err(|status| at(status, format_args!("checks[{i}].require")))? {
                // As modules' own failures are marked.
                let message = format!("the guest says {}", quoted(&check.message.write(&facts)));
                let status = Status::new(check.code, Blame::Guest, message);
                return Err(status.with_recoverable(check.recoverable));
            }
        }
        Ok(())
    }

    /// Plans the launches of one call site, which must fit the declaration
    /// ([`Signature::check`](callbox_core::call::Signature::check)).
    ///
    /// # Errors
    /// As for [`KernelTarget::check`]. INVALID_ARGUMENT for an expression without a value or with
    /// one out of range, and for a parameter that the call site lacks. The message begins with the
    /// field.
    pub fn plan(&self, site: &CallSite) -> Result<PlannedCall> {
        self.check(site)?;
        let facts = Facts::new(site);
        let scratch = self.scratch.iter().enumerate().map(|(i, expression)| {
            let size = expression.size(&facts, "a size in bytes", 0, isize::MAX as u64);
            let size = size.map_err(|status| at(status, format_args!("scratch[{i}]")))?;
            // At most isize::MAX.
            Ok(usize::try_from(size).unwrap_or(usize::MAX))
        });
        let scratch = scratch.collect::<Result<_>>()?;
        let mut launches = Vec::new();
        for (i, launch) in self.launches.iter().enumerate() {
            let planned = launch.plan(&facts);
            let planned = planned.map_err(|status| at(status, format_args!("launches[{i}]")))?;
            launches.extend(planned);
        }
        Ok(PlannedCall { scratch, launches })
    }
}

/// A failure in a field. The message may begin with a field of that field.
fn at(status: Status, field: std::fmt::Arguments<'_>) -> Status {
    status.map_message(|message| {
        if message.starts_with('.') {
            format!("{field}{message}")
        } else {
            format!("{field}: {message}")
        }
    })
}

impl Launch {
    /// The launch for a call site. `None` if its condition is false.
    fn plan(&self, facts: &Facts<'_>) -> Result<Option<PlannedLaunch>> {
        if let Some(when) = &self.when
            && !when
                .truth(facts)
                .map_err(|status| at(status, format_args!(".when")))?
        {
            return Ok(None);
        }
        let grid = extent(&self.grid, facts, "grid", MAX_GRID)?;
        let block = extent(&self.block, facts, "block", MAX_BLOCK)?;
        let threads: u64 = block.into_iter().map(u64::from).product();
        if threads > MAX_THREADS {
            let [x, y, z] = block;
            return Err(Status::invalid_argument(format!(
                ".block: expected at most {MAX_THREADS} threads, found {x} * {y} * {z} = {threads}"
            )));
        }
        Ok(Some(PlannedLaunch {
            image: self.image,
            entry: self.entry.clone(),
            grid,
            block,
            shared_bytes: self.shared_bytes(facts)?,
            parameters: self.parameters(facts)?,
        }))
    }

    fn shared_bytes(&self, facts: &Facts<'_>) -> Result<u32> {
        let Some(expression) = &self.shared_memory else {
            return Ok(0);
        };
        let size = expression.size(facts, "a size in bytes", 0, u32::MAX.into());
        let size = size.map_err(|status| at(status, format_args!(".shared_memory")))?;
        // At most u32::MAX.
        Ok(u32::try_from(size).unwrap_or(u32::MAX))
    }

    fn parameters(&self, facts: &Facts<'_>) -> Result<Vec<PlannedParameter>> {
        let parameters = self.parameters.iter().enumerate().map(|(i, parameter)| {
            let planned = parameter.plan(facts);
            planned.map_err(|status| at(status, format_args!(".parameters[{i}]")))
        });
        let parameters: Vec<_> = parameters.collect::<Result<_>>()?;
        let bytes: usize = parameters.iter().fold(0, |end: usize, parameter| {
            end.next_multiple_of(parameter.size().max(1)) + parameter.size()
        });
        if bytes <= MAX_PARAMETER_BYTES {
            Ok(parameters)
        } else {
            Err(Status::invalid_argument(format!(
                ".parameters: expected at most {MAX_PARAMETER_BYTES} bytes, found {bytes}"
            )))
        }
    }
}

/// The sizes in x, y and z. Those that the manifest leaves out are 1.
fn extent(sizes: &[Expression], facts: &Facts<'_>, what: &str, most: [u64; 3]) -> Result<[u32; 3]> {
    let mut extent = [1; 3];
    for (i, (expression, most)) in std::iter::zip(sizes, most).enumerate() {
        let size = expression.size(facts, &format!("a {what} size"), 1, most);
        let size = size.map_err(|status| at(status, format_args!(".{what}[{i}]")))?;
        // At most 2^31 - 1.
        extent[i] = u32::try_from(size).unwrap_or(u32::MAX);
    }
    Ok(extent)
}
