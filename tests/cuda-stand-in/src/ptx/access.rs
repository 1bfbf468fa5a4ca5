//! Executes instructions that access memory or several slots.

use super::FaultKind;
use super::assertion;
use super::code::{Address, Atomic, CopyAsync, Extension, Many, Operation, Slot};
use super::spaces::{MOST_BYTES, Reach, Trouble};
use super::types::{Space, low_bits, sign_extended};

/// Applies a function of several slots to several slots.
pub(super) fn many(slots: &mut [u64], to: &[Slot], from: &[Slot], function: &Many) {
    let mut sources = [0; 8];
    let mut targets = [0; 8];
    for (source, slot) in sources.iter_mut().zip(from) {
        *source = slots[*slot as usize];
    }
    function(&sources[..from.len()], &mut targets[..to.len()]);
    for (slot, target) in to.iter().zip(targets) {
        slots[*slot as usize] = target;
    }
}

/// Adds a description of the access to a fault.
fn described(trouble: Trouble, what: &str, count: usize, address: u64) -> Trouble {
    Trouble {
        kind: trouble.kind,
        text: format!("{what} of {count} bytes at {address:#x}\n{}", trouble.text),
    }
}

fn widened(value: u64, sign: Option<Extension>) -> u64 {
    match sign {
        None => value,
        Some(Extension { from_bits, to_bits }) => {
            low_bits(sign_extended(value, from_bits) as u64, to_bits)
        }
    }
}

fn from_bytes(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .rev()
        .fold(0, |value, &byte| (value << 8) | u64::from(byte))
}

/// Executes operations on memory, and those that end a kernel.
pub(super) fn access(
    operation: &Operation,
    slots: &mut [u64],
    reach: &mut Reach<'_>,
) -> Result<(), Trouble> {
    let of = |slots: &[u64], address: &Address| {
        slots[address.base as usize].wrapping_add(address.offset)
    };
    let mut buffer = [0; MOST_BYTES];
    match operation {
        Operation::Load {
            to,
            address,
            bytes,
            sign,
        } => {
            let (place, count) = (of(slots, address), *bytes as usize);
            let mut buffer = [0; 8];
            let loaded = reach.load(address.space, place, &mut buffer[..count]);
            loaded.map_err(|trouble| described(trouble, "a load", count, place))?;
            slots[*to as usize] = widened(u64::from_le_bytes(buffer), *sign);
        }
        Operation::Store {
            from,
            address,
            bytes,
        } => {
            let (place, count) = (of(slots, address), *bytes as usize);
            let value = slots[*from as usize].to_le_bytes();
            let stored = reach.store(address.space, place, &value[..count]);
            stored.map_err(|trouble| described(trouble, "a store", count, place))?;
        }
        Operation::LoadVector {
            to,
            address,
            bytes,
            sign,
        } => {
            let (place, each) = (of(slots, address), *bytes as usize);
            let count = each * to.len();
            let loaded = reach.load(address.space, place, &mut buffer[..count]);
            loaded.map_err(|trouble| described(trouble, "a load", count, place))?;
            for (slot, value) in to.iter().zip(buffer.chunks(each)) {
                slots[*slot as usize] = widened(from_bytes(value), *sign);
            }
        }
        Operation::StoreVector {
            from,
            address,
            bytes,
        } => {
            let (place, each) = (of(slots, address), *bytes as usize);
            let count = each * from.len();
            for (slot, value) in from.iter().zip(buffer.chunks_mut(each)) {
                value.copy_from_slice(&slots[*slot as usize].to_le_bytes()[..each]);
            }
            let stored = reach.store(address.space, place, &buffer[..count]);
            stored.map_err(|trouble| described(trouble, "a store", count, place))?;
        }
        Operation::Atomic(atomic) => {
            let Atomic {
                to,
                address,
                bytes,
                operands: [a, b],
                function,
            } = &**atomic;
            let (place, count) = (of(slots, address), *bytes as usize);
            let note = |trouble| described(trouble, "an atomic operation", count, place);
            let mut buffer = [0; 8];
            reach
                .load(address.space, place, &mut buffer[..count])
                .map_err(note)?;
            let old = u64::from_le_bytes(buffer);
            let new = function(old, slots[*a as usize], slots[*b as usize]);
            reach
                .store(address.space, place, &new.to_le_bytes()[..count])
                .map_err(note)?;
            if let Some(to) = to {
                slots[*to as usize] = old;
            }
        }
        Operation::CopyAsync(copy) => copy_async(copy, slots, reach)?,
        Operation::Print {
            result: Some(result),
        } => {
            let stored = reach.store(Space::Param, *result, &[0; 4]);
            stored.map_err(|trouble| described(trouble, "a store", 4, *result))?;
        }
        Operation::AssertFail { arguments } => {
            return Err(assertion::failed(arguments, reach));
        }
        Operation::Trap => {
            return Err(Trouble {
                kind: FaultKind::IllegalInstruction,
                text: "`trap`".to_owned(),
            });
        }
        _ => {}
    }
    Ok(())
}

fn copy_async(copy: &CopyAsync, slots: &[u64], reach: &mut Reach<'_>) -> Result<(), Trouble> {
    let of = |address: &Address| slots[address.base as usize].wrapping_add(address.offset);
    let count = copy.bytes as usize;
    let (to, from) = (of(&copy.to), of(&copy.from));
    let given = copy
        .source_bytes
        .map_or(count as u64, |slot| low_bits(slots[slot as usize], 32));
    let is_ignored = copy
        .ignores_source
        .is_some_and(|slot| slots[slot as usize] & 1 == 1);
    if given > count as u64 {
        let text = format!("a copy of {given} bytes to {count}");
        let kind = FaultKind::IllegalInstruction;
        return Err(Trouble { kind, text });
    }
    let mut bytes = [0; 16];
    if !is_ignored && given > 0 {
        if !from.is_multiple_of(count as u64) {
            let text = format!("a copy from {from:#x}\nthe address is no multiple of {count}");
            let kind = FaultKind::MisalignedAddress;
            return Err(Trouble { kind, text });
        }
        // Only the bytes that are given need exist.
        let each = if given == count as u64 { count } else { 1 };
        for (at, bytes) in bytes[..given as usize].chunks_mut(each).enumerate() {
            let loaded = reach.load(copy.from.space, from + (at * each) as u64, bytes);
            loaded.map_err(|trouble| described(trouble, "a copy", given as usize, from))?;
        }
    }
    let stored = reach.store(copy.to.space, to, &bytes[..count]);
    stored.map_err(|trouble| described(trouble, "a copy", count, to))
}
