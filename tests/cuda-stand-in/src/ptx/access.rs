//! What one instruction does with memory or with several slots.

use super::FaultKind;
use super::assertion;
use super::code::{Address, Atomic, Extension, Many, Operation, Slot};
use super::spaces::{MOST_BYTES, Reach, Trouble};
use super::types::{Space, low_bits, sign_extended};

/// Runs a function of several slots to several slots.
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

/// What an access was about, for the fault's text.
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

/// Operations on memory, and those that end a kernel.
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
