//! The work of compiling a module's start-up function.
//!
//! wasmtime compiles initializers that it cannot evaluate in advance into one function, which runs
//! before the module's own code: globals with more than a constant, active segments at a computed
//! offset, and passive element segments. Limits on function bodies do not apply to that function,
//! so its work is counted here, in the units of [`work`](crate::work).

mod first_look;

use std::ops::Range;

use callbox_core::policy::Limits;
use wasmparser::{
    ConstExpr, DataKind, DataSectionReader, ElementItems, ElementKind, ElementSectionReader,
    GlobalSectionReader, Operator, TableType,
};

use crate::failure::exhausted;
use crate::sections::ReadError;

/// The units of a global that is not a constant.
const GLOBAL: u64 = 16;

/// The units of an element that is written into a table.
const ELEMENT: u64 = 32;

/// The units of an element of a passive segment.
const PASSIVE_ELEMENT: u64 = 8;

/// The units of an element segment.
const ELEMENTS: u64 = 32;

/// The units of a data segment that is copied. Compiling one takes 96, but the start-up function
/// also copies it without a look: into a page of its own, in some 3 µs.
const DATA: u64 = 1024;

/// The units of each byte of such segments. Copying a megabyte takes most of a millisecond.
const DATA_BYTE: u64 = 1;

/// The most elements of a table that wasmtime fills in advance.
const MOST_EARLY: u64 = 1 << 20;

/// The work of the start-up function so far.
///
/// Each section is read before it is validated. [`StartUpWork::check`] comes first.
pub(crate) struct StartUpWork {
    units: u64,
    most: u64,
    /// The number of elements of all element segments.
    elements: usize,
    most_elements: usize,
    /// The number of entries of the table that wasmtime fills in advance.
    table: Option<u64>,
    /// The size of the first memory.
    memory: Option<u64>,
    /// Whether an active element segment needed the start-up function, which later ones then need
    /// as well.
    has_late_elements: bool,
}

impl StartUpWork {
    pub(crate) fn new(limits: &Limits) -> Self {
        Self {
            units: 0,
            most: limits.function_work,
            elements: 0,
            most_elements: limits.table_elements,
            table: None,
            memory: None,
            has_late_elements: false,
        }
    }

    /// Reads a table of the module's own.
    pub(crate) fn table(&mut self, ty: &TableType) {
        self.table.get_or_insert(ty.initial.min(MOST_EARLY));
    }

    /// Reads a memory of the module's own.
    pub(crate) fn memory(&mut self, bytes: u64) {
        self.memory.get_or_insert(bytes);
    }

    /// Counts the initializers of globals.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the guest, past the limit.
    pub(crate) fn globals(&mut self, globals: GlobalSectionReader<'_>) -> Result<(), ReadError> {
        for global in globals {
            let value = Expression::read(&global?.init_expr)?;
            if !value.is_constant {
                self.add(GLOBAL)?;
            }
        }
        Ok(())
    }

    /// Counts element segments.
    ///
    /// # Errors
    /// As for [`StartUpWork::globals`].
    pub(crate) fn elements(&mut self, segments: ElementSectionReader<'_>) -> Result<(), ReadError> {
        for segment in segments {
            let segment = segment?;
            let (elements, is_list) = match segment.items {
                ElementItems::Functions(functions) => (functions.count(), true),
                ElementItems::Expressions(_, expressions) => (expressions.count(), false),
            };
            let elements = u64::from(elements);
            match &segment.kind {
                ElementKind::Active { offset_expr, .. } => {
                    let start = Expression::read(offset_expr)?.constant;
                    let end = start.map(|start| start + elements);
                    let fits = end.zip(self.table).is_some_and(|(end, most)| end <= most);
                    self.has_late_elements |= !(is_list && fits);
                    if self.has_late_elements {
                        self.add(ELEMENTS + elements * ELEMENT)?;
                    }
                }
                ElementKind::Passive => self.add(ELEMENTS + elements * PASSIVE_ELEMENT)?,
                ElementKind::Declared => {}
            }
        }
        Ok(())
    }

    /// Counts data segments. If they are in bounds and dense, wasmtime makes an image of them,
    /// which start-up code copies as a whole: it is mapped only where no memory is imported, as
    /// the stop word's is.
    ///
    /// # Errors
    /// As for [`StartUpWork::globals`].
    pub(crate) fn data_segments(
        &mut self,
        segments: DataSectionReader<'_>,
    ) -> Result<(), ReadError> {
        let (mut active, mut bytes) = (0, 0);
        let mut range: Option<Range<u64>> = None;
        let mut is_image = true;
        for segment in segments {
            let segment = segment?;
            let DataKind::Active { offset_expr, .. } = segment.kind else {
                continue;
            };
            active += 1;
            bytes += segment.data.len() as u64;
            let start = Expression::read(&offset_expr)?.constant.unwrap_or(u64::MAX);
            let end = start.saturating_add(segment.data.len() as u64);
            is_image &= self.memory.is_some_and(|memory| end <= memory);
            if start < end {
                range = Some(match range {
                    None => start..end,
                    Some(known) => known.start.min(start)..known.end.max(end),
                });
            }
        }
        is_image &= range.is_none_or(|range| range.end - range.start < 2 * bytes);
        if is_image {
            return Ok(());
        }
        self.add(active * DATA + bytes * DATA_BYTE)
    }

    fn add_elements(&mut self, count: u32) -> Result<(), ReadError> {
        self.elements = self.elements.saturating_add(count as usize);
        let most = self.most_elements;
        if self.elements > most {
            return Err(exhausted(format!(
                "expected element segments of at most {most} elements in all (`table_elements`), found {}",
                self.elements
            ))
            .into());
        }
        Ok(())
    }

    fn add(&mut self, units: u64) -> Result<(), ReadError> {
        self.units = self.units.saturating_add(units);
        if self.units > self.most {
            return Err(exhausted(format!(
                "expected initializers of at most {} units of work (`function_work`), found more",
                self.most
            ))
            .into());
        }
        Ok(())
    }
}

/// A constant expression.
struct Expression {
    /// Whether it is one constant.
    is_constant: bool,
    /// Its value, if it is one `i32.const`.
    constant: Option<u64>,
}

impl Expression {
    fn read(expression: &ConstExpr<'_>) -> Result<Self, ReadError> {
        let mut reader = expression.get_operators_reader();
        let mut read = Self {
            is_constant: true,
            constant: None,
        };
        let mut operators = 0;
        while !reader.eof() {
            match reader.read()? {
                Operator::End => continue,
                Operator::I32Const { value } => read.constant = Some(u64::from(value as u32)),
                Operator::I64Const { .. }
                | Operator::F32Const { .. }
                | Operator::F64Const { .. }
                | Operator::V128Const { .. }
                | Operator::RefNull { .. } => {}
                _ => read.is_constant = false,
            }
            operators += 1;
        }
        read.is_constant &= operators == 1;
        read.constant = read.constant.filter(|_| read.is_constant);
        Ok(read)
    }
}
