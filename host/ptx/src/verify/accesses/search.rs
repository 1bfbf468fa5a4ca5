//! The memory that an access may reach, and what is proved of its address.

use super::{Reason, contents, fits, prove, size_conditions};
use crate::ast::Address;
use crate::table::{Access, Action};
use crate::types::Space;
use crate::verify::solve::Solution;
use crate::verify::values::{Contents, Origin, Subject};
use crate::verify::{Param, Rule, variable_align};

/// The most operands that an address is compared with if nothing says where it came from.
const MOST_CANDIDATES: usize = 16;

/// The bytes that an access reaches for.
pub(super) struct Target<'a> {
    pub(super) address: &'a Address,
    /// The width of the address.
    pub(super) bits: u32,
    pub(super) access: Access,
    pub(super) bytes: u64,
}

/// What is known of an access's address.
pub(super) struct Found {
    pub(super) origin: Option<Origin>,
    /// The memory that it may reach.
    pub(super) within: Vec<Origin>,
    /// Whether it is proved to be in range, and to be aligned.
    pub(super) proofs: (bool, bool),
    /// Whether no thread executes the instruction.
    pub(super) is_impossible: bool,
}

/// Finds the memory that an access may reach, and proves what it can: first from what is known of
/// values everywhere, and then from what is known at the instruction.
pub(super) fn find(
    solution: &Solution<'_>,
    block: usize,
    step: usize,
    target: &Target<'_>,
) -> Result<Found, Reason> {
    let Target {
        address,
        bits,
        access,
        bytes,
    } = *target;
    let subject = solution.subject;
    let proved = |contents: &Contents, origin: Option<Origin>, within: &[Origin]| match origin {
        Some(origin) if within.contains(&origin) && contents.origin == Some(origin) => {
            let (range, offset) = (contents.range, address.offset);
            prove(subject, origin, range, offset, access, bytes)
        }
        _ => (false, false),
    };
    let fitting = |contents: &Contents| {
        let origin = contents.origin;
        origin.filter(|origin| fits(subject, *origin, access.space))
    };
    let general = contents(solution, step, address, bits, |value| {
        solution.contents(value)
    });
    let mut found = Found {
        origin: fitting(&general),
        within: Vec::new(),
        proofs: (false, false),
        is_impossible: false,
    };
    if found.origin.is_some() {
        found.within = candidates(subject, found.origin, access, bytes)?;
        found.proofs = proved(&general, found.origin, &found.within);
    }
    if found.proofs == (true, true) {
        return Ok(found);
    }
    let more = size_conditions(subject, step, access);
    let mut place = solution.place_of_step(block, step, &more);
    let precise = contents(solution, step, address, bits, |value| place.contents(value));
    if place.is_impossible {
        found.is_impossible = true;
        return Ok(found);
    }
    if found.origin.is_none() {
        found.origin = fitting(&precise);
        found.within = candidates(subject, found.origin, access, bytes)?;
    }
    let again = proved(&precise, found.origin, &found.within);
    found.proofs = (found.proofs.0 || again.0, found.proofs.1 || again.1);
    Ok(found)
}

/// Whether a buffer or variable has room for an access, and may be read or written by it.
fn may_reach(subject: &Subject<'_>, origin: Origin, access: Access, bytes: u64) -> bool {
    let writes = access.action != Action::Load;
    match origin {
        Origin::Buffer(index) => match subject.launch.params.get(index) {
            Some(Param::Buffer {
                writable,
                bytes: length,
                align,
            }) => {
                let has_room = subject.open.params || *length >= bytes;
                (*writable || !writes) && has_room && *align >= access.align
            }
            _ => false,
        },
        Origin::Variable(variable) => {
            let is_constant = subject
                .variable(variable)
                .is_none_or(|variable| matches!(variable.space, Space::Global | Space::Const));
            // A collective access that fails goes to the variable's first byte.
            let align = subject.variable(variable).map_or(1, variable_align);
            let is_wrong = access.is_collective && align < access.align;
            let has_room = subject.may_have(variable, bytes);
            !(is_wrong || is_constant && writes) && has_room
        }
    }
}

/// The memory that an access may reach: the origin of its address, or all memory of the launch if
/// the origin is unknown.
fn candidates(
    subject: &Subject<'_>,
    origin: Option<Origin>,
    access: Access,
    bytes: u64,
) -> Result<Vec<Origin>, Reason> {
    let is_allowed = |origin: &Origin| may_reach(subject, *origin, access, bytes);
    if let Some(origin) = origin {
        return Ok(Some(origin).filter(is_allowed).into_iter().collect());
    }
    let count = subject.launch.params.len() + subject.named.len();
    subject.work.spend(count).ok_or_else(|| {
        let reason = "there are too many buffers and variables to compare its address with";
        let cure = "compute the address from one parameter or variable";
        (Rule::Size, reason.to_owned(), cure)
    })?;
    let buffers = (0..subject.launch.params.len()).map(Origin::Buffer);
    let variables = subject.named.iter().copied();
    let all: Vec<Origin> = match access.space {
        Space::Global | Space::Generic => buffers.filter(is_allowed).collect(),
        _ => variables
            .map(Origin::Variable)
            .filter(|origin| fits(subject, *origin, access.space) && is_allowed(origin))
            .collect(),
    };
    if all.len() > MOST_CANDIDATES {
        let reason = format!(
            "nothing says which of {} buffers or variables its address is in",
            all.len()
        );
        return Err((
            Rule::Address,
            reason,
            "compute the address from one parameter or variable",
        ));
    }
    Ok(all)
}
