//! The work of compiling the functions that a module puts into tables, globals and exports.
//!
//! wasmtime compiles a second function for each of them, through which the host calls it: it takes
//! the parameters from memory, one by one, and stores the results there. Limits on function bodies
//! do not apply to it, so its work is counted here, in the units of [`work`](crate::work). An
//! instance's record has a reference to each of them, and the elements of passive segments.

use callbox_core::policy::Limits;
use wasmparser::{
    ConstExpr, ElementItems, ElementKind, ElementSectionReader, GlobalSectionReader, Operator,
    SubType,
};

use crate::failure::exhausted;
use crate::sections::{ReadError, function};

/// The units of a function.
const FUNCTION: u64 = 32;

/// The units of a parameter or result.
const VALUE: u64 = 16;

/// The bytes of a reference to a function in an instance's record: four pointers.
const REFERENCE: u64 = 32;

/// The bytes of a passive element segment in an instance's record, and of each of its elements.
const SEGMENT: u64 = 48;
const ELEMENT: u64 = 16;

/// The work of the functions so far.
pub(crate) struct EscapingWork {
    units: u64,
    most: u64,
    /// Which functions were counted.
    escape: Vec<bool>,
    /// The bytes of passive segments in an instance's record.
    passive_bytes: u64,
}

impl EscapingWork {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            units: 0,
            most: limits.module_work,
            escape: Vec::new(),
            passive_bytes: 0,
        }
    }

    /// What the functions and passive segments take in each instance's record.
    pub(crate) fn record_bytes(&self) -> u64 {
        let escaping = self.escape.iter().filter(|&&escapes| escapes).count();
        escaping as u64 * REFERENCE + self.passive_bytes
    }

    /// Counts the functions of element segments, whose number is within its limit. `functions` has
    /// the type of each function.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the guest, past the limit.
    pub(crate) fn segments(
        &mut self,
        segments: ElementSectionReader<'_>,
        functions: &[u32],
        types: &[SubType],
    ) -> Result<(), ReadError> {
        for segment in segments {
            let segment = segment?;
            if matches!(segment.kind, ElementKind::Passive) {
                let elements = match &segment.items {
                    ElementItems::Functions(items) => items.count(),
                    ElementItems::Expressions(_, items) => items.count(),
                };
                self.passive_bytes += SEGMENT + ELEMENT * u64::from(elements);
            }
            match segment.items {
                ElementItems::Functions(items) => {
                    for item in items {
                        self.add(item?, functions, types)?;
                    }
                }
                ElementItems::Expressions(_, items) => {
                    for item in items {
                        self.expression(&item?, functions, types)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Counts the functions that globals begin with.
    ///
    /// # Errors
    /// As for [`EscapingWork::segments`].
    pub(crate) fn globals(
        &mut self,
        globals: GlobalSectionReader<'_>,
        functions: &[u32],
        types: &[SubType],
    ) -> Result<(), ReadError> {
        for global in globals {
            self.expression(&global?.init_expr, functions, types)?;
        }
        Ok(())
    }

    fn expression(
        &mut self,
        expression: &ConstExpr<'_>,
        functions: &[u32],
        types: &[SubType],
    ) -> Result<(), ReadError> {
        for operator in expression.get_operators_reader() {
            if let Operator::RefFunc { function_index } = operator? {
                self.add(function_index, functions, types)?;
            }
        }
        Ok(())
    }

    /// Counts a function.
    ///
    /// # Errors
    /// As for [`EscapingWork::segments`].
    pub(crate) fn add(
        &mut self,
        index: u32,
        functions: &[u32],
        types: &[SubType],
    ) -> Result<(), ReadError> {
        let at = index as usize;
        let ty = functions.get(at);
        if ty.is_some() {
            self.escape.resize(functions.len(), false);
            self.escape[at] = true;
        }
        let ty = ty.and_then(|&ty| types.get(ty as usize));
        let values = ty
            .and_then(function)
            .map_or(0, |ty| ty.params().len() as u64 + ty.results().len() as u64);
        self.units += FUNCTION + VALUE * values;
        if self.units > self.most {
            return Err(exhausted(format!(
                "expected functions in tables, globals and exports of at most {} units of work (`module_work`), found more",
                self.most
            ))
            .into());
        }
        Ok(())
    }
}
