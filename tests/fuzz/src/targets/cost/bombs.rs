//! Modules in which something is repeated, nested or long.

use arbitrary::{Result, Unstructured};

use super::texts::size;
use crate::generators::Generator;
use crate::wide::Place;

/// Generates a module of at most some hundred kilobytes.
pub(super) fn module(u: &mut Unstructured<'_>) -> Result<Generator> {
    Ok(match u.int_in_range(0..=16)? {
        0 => Generator::Blocks {
            depth: size(u, 4_000)?,
            values: size(u, 1_200)?,
        },
        1 => Generator::BranchTables {
            functions: size(u, 64)?,
            targets: size(u, 4_000)?,
            values: size(u, 1_200)?,
        },
        2 => Generator::Loops {
            depth: size(u, 8_000)?,
            locals: size(u, 4_000)?,
        },
        3 => Generator::Branches {
            count: size(u, 10_000)?,
            locals: 1 + size(u, 4_000)?,
        },
        4 => Generator::Stack {
            count: size(u, 10_000)?,
            height: 1 + size(u, 8_000)?,
        },
        5 => Generator::Calls {
            functions: size(u, 64)?,
            count: size(u, 4_000)?,
            values: size(u, 1_200)?,
        },
        6 => Generator::Locals {
            functions: size(u, 2_000)?,
            locals: size(u, 60_000)?,
        },
        7 => Generator::Types {
            count: size(u, 20_000)?,
            values: size(u, 300)?,
            distinct: u.arbitrary()?,
        },
        8 => Generator::Escaping {
            functions: size(u, 2_000)?,
            values: size(u, 200)?,
            place: *u.choose(&[Place::Exports, Place::Globals, Place::Table])?,
        },
        9 => Generator::Globals {
            count: size(u, 2_000)?,
            operators: size(u, 100)?,
        },
        10 => Generator::Elements {
            count: size(u, 200)?,
            elements: size(u, 500)?,
            operators: size(u, 500)?,
        },
        11 => Generator::PassiveElements {
            count: size(u, 200)?,
            elements: size(u, 1_000)?,
        },
        12 => Generator::Data {
            count: size(u, 20_000)?,
            operators: size(u, 10)?,
        },
        13 => Generator::Exports {
            count: size(u, 2_000)?,
            bytes: size(u, 200)?,
        },
        14 => Generator::Imports {
            count: size(u, 2_000)?,
            bytes: size(u, 200)?,
        },
        15 => Generator::Names {
            depth: 1 + size(u, 800)?,
            bytes: size(u, 600)?,
            mangled: u.arbitrary()?,
        },
        _ => Generator::CustomSections {
            count: size(u, 20_000)?,
            bytes: size(u, 20)?,
            name: size(u, 20)?,
        },
    })
}
