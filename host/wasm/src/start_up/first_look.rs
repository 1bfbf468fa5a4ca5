//! The first reading of a section with initializers, up to the limits and with looks at the clock.
//!
//! wasmparser reads the whole of a segment, or of a constant expression, before it returns it: one
//! of 64 MiB took seconds. What reads the section later stays within the limits.

use wasmparser::{
    BinaryReader, ExternalKind, GlobalType, Operator, OperatorsReader, Payload, RefType, TableType,
};

use super::StartUpWork;
use crate::budget::Budget;
use crate::failure::invalid;
use crate::features;
use crate::sections::ReadError;

/// The first byte of a table with an initializer.
const WITH_INITIALIZER: u8 = 0x40;

/// The longest instruction of a constant expression: a constant of 128 bits has 18 bytes. Others,
/// such as `br_table`, can have megabytes.
const LONGEST: usize = 32;

// The flags of an element segment.
const NOT_ACTIVE: u32 = 1;
const WITH_INDEX: u32 = 2;
const OF_EXPRESSIONS: u32 = 4;

impl StartUpWork {
    /// Checks a section of tables, globals, elements or data, whose number is within its limit.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED, blamed on the guest, past a limit; DEADLINE_EXCEEDED past that on time.
    pub(crate) fn check(
        &mut self,
        section: &Payload<'_>,
        wasm: &[u8],
        budget: &mut Budget,
    ) -> Result<(), ReadError> {
        let range = match section {
            Payload::TableSection(tables) => tables.range(),
            Payload::GlobalSection(globals) => globals.range(),
            Payload::ElementSection(segments) => segments.range(),
            Payload::DataSection(segments) => segments.range(),
            _ => return Ok(()),
        };
        let mut reader = BinaryReader::new(&wasm[range.clone()], range.start);
        reader.set_features(features::allowed());
        let count = reader.read_var_u32()?;
        let mut look = FirstLook {
            reader,
            work: self,
            budget,
        };
        for _ in 0..count {
            look.budget.look(look.reader.original_position())?;
            let goes_on = match section {
                Payload::TableSection(_) => look.table()?,
                Payload::GlobalSection(_) => look.global()?,
                Payload::ElementSection(_) => look.elements()?,
                _ => look.data()?,
            };
            if !goes_on {
                break;
            }
        }
        Ok(())
    }
}

struct FirstLook<'a, 'b> {
    reader: BinaryReader<'a>,
    work: &'b mut StartUpWork,
    budget: &'b mut Budget,
}

/// The items return whether the rest of the section is to be read. wasmparser's readers stop at the
/// same place.
impl FirstLook<'_, '_> {
    fn table(&mut self) -> Result<bool, ReadError> {
        let has_initializer = self.reader.clone().read_u8()? == WITH_INITIALIZER;
        if has_initializer {
            self.reader.read_u8()?;
            self.reader.read_u8()?;
        }
        self.reader.read::<TableType>()?;
        if has_initializer {
            self.expression()?;
        }
        Ok(true)
    }

    fn global(&mut self) -> Result<bool, ReadError> {
        self.reader.read::<GlobalType>()?;
        self.expression()?;
        Ok(true)
    }

    fn elements(&mut self) -> Result<bool, ReadError> {
        let flags = self.reader.read_var_u32()?;
        if flags & !(NOT_ACTIVE | WITH_INDEX | OF_EXPRESSIONS) != 0 {
            return Ok(false);
        }
        let are_expressions = flags & OF_EXPRESSIONS != 0;
        if flags & NOT_ACTIVE == 0 {
            if flags & WITH_INDEX != 0 {
                self.reader.read_var_u32()?;
            }
            self.expression()?;
        }
        if flags & (NOT_ACTIVE | WITH_INDEX) != 0 {
            if are_expressions {
                self.reader.read::<RefType>()?;
            } else {
                self.reader.read::<ExternalKind>()?;
            }
        }
        let count = self.reader.read_var_u32()?;
        self.work.add_elements(count)?;
        for _ in 0..count {
            if are_expressions {
                self.expression()?;
            } else {
                self.reader.read_var_u32()?;
            }
        }
        Ok(true)
    }

    fn data(&mut self) -> Result<bool, ReadError> {
        match self.reader.read_var_u32()? {
            0 => self.expression()?,
            1 => {}
            2 => {
                self.reader.read_var_u32()?;
                self.expression()?;
            }
            _ => return Ok(false),
        }
        let length = self.reader.read_var_u32()?;
        self.reader.read_bytes(length as usize)?;
        Ok(true)
    }

    /// Reads a constant expression, of which each operator counts.
    fn expression(&mut self) -> Result<(), ReadError> {
        let mut operators = OperatorsReader::new(self.reader.clone());
        let mut is_first = true;
        loop {
            let before = operators.original_position();
            if matches!(operators.read()?, Operator::End) {
                break;
            }
            let length = operators.original_position() - before;
            if length > LONGEST {
                return Err(invalid(format!(
                    "expected a valid WebAssembly module: expected instructions of at most {LONGEST} bytes in a constant expression, found one of {length} at byte {before}"
                ))
                .into());
            }
            // The limits on globals, segments and elements count the first.
            if !std::mem::take(&mut is_first) {
                self.work.add(1)?;
            }
            self.budget.look(operators.original_position())?;
        }
        self.reader = operators.get_binary_reader();
        Ok(())
    }
}
