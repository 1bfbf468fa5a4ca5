//! Copies and fills.

use cudarc::driver::sys::CUresult;

use super::context::synchronise_default;
use super::foreign::Host;
use super::run::{drain, submit};
use super::{Guard, Needs, call};
use crate::state::memory::{Place, is_device_address};
use crate::state::stream::{Copy, NodeWork, Set, Source};

/// One end of a copy, as passed to the call.
#[derive(Clone, Copy)]
enum End {
    Device(u64),
    Host(Host),
    /// Determined by the address.
    Any(u64),
}

/// One end of a copy, after the lookup.
#[derive(Clone, Copy)]
enum Found {
    /// Memory that the driver allocated.
    Known(u64),
    Pageable(Host),
}

/// The properties of a copy that determine its rules.
#[derive(Clone, Copy)]
struct Manner {
    stream: usize,
    /// The call returns when the copy is done.
    waits: bool,
    peer: bool,
}

fn find(guard: &Guard, end: End, size: usize, device: Option<usize>) -> Result<Found, CUresult> {
    let bad = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    let host = match end {
        End::Any(address) if !is_device_address(address) => Host::at(address),
        End::Device(address) | End::Any(address) => {
            let Some(found) = guard.memory.find_range(address, size) else {
                return bad;
            };
            let elsewhere =
                found.place == Place::Device && device.is_some_and(|device| device != found.device);
            return if elsewhere {
                bad
            } else {
                Ok(Found::Known(address))
            };
        }
        End::Host(host) => host,
    };
    let address = host.address();
    if address == 0 || is_device_address(address) {
        return bad;
    }
    if guard.memory.find_range(address, size).is_some() {
        return Ok(Found::Known(address));
    }
    // The range begins in pinned memory and extends past it.
    if guard.memory.find(address).is_some() {
        bad
    } else {
        Ok(Found::Pageable(host))
    }
}

fn transfer(guard: Guard, to: End, from: End, size: usize, manner: Manner) -> Result<(), CUresult> {
    let stream = guard.stream(manner.stream)?;
    if size == 0 {
        return Ok(());
    }
    let context = guard.streams.get(stream)?.context;
    let device = (!manner.peer).then_some(guard.contexts.get(context)?.device);
    let (to, from) = (
        find(&guard, to, size, device)?,
        find(&guard, from, size, device)?,
    );
    let guard = match (to, from) {
        (Found::Known(to), from) => {
            let (guard, from) = source(guard, stream, from, size)?;
            submit(
                guard,
                stream,
                NodeWork::Copy(Copy {
                    to,
                    from,
                    size,
                    peer: manner.peer,
                }),
            )?
        }
        (Found::Pageable(to), from) => to_pageable(guard, stream, to, from, size)?,
    };
    if manner.waits {
        synchronise_default(guard).map(drop)
    } else {
        Ok(())
    }
}

/// Returns the source of a copy. Pageable memory is read now, other memory when the stream reaches
/// the copy.
fn source(
    mut guard: Guard,
    stream: usize,
    from: Found,
    size: usize,
) -> Result<(Guard, Source), CUresult> {
    match from {
        Found::Known(address) => Ok((guard, Source::Address(address))),
        Found::Pageable(host) => {
            guard.check_not_capturing(stream)?;
            // SAFETY: the call names this address and size as the source of its copy, and the
            // driver did not allocate this memory.
            let bytes = unsafe { host.read(size) }?;
            Ok((guard, Source::Bytes(bytes.into())))
        }
    }
}

/// Copies to pageable memory. The copy is done when the call returns.
fn to_pageable(
    mut guard: Guard,
    stream: usize,
    to: Host,
    from: Found,
    size: usize,
) -> Result<Guard, CUresult> {
    guard.check_not_capturing(stream)?;
    guard.check_implicit(stream)?;
    guard.push(stream, crate::state::stream::Work::Node(NodeWork::Empty))?;
    let context = guard.streams.get(stream)?.context;
    let mut guard = drain(guard, stream);
    guard.check(context)?;
    let bytes = match from {
        // SAFETY: the call names this address and size as the source of its copy, and the driver
        // did not allocate this memory.
        Found::Pageable(host) => unsafe { host.read(size) }?,
        Found::Known(address) => {
            let mut bytes = vec![0; size];
            if let Err(why) = guard.memory.view(None).load(address, &mut bytes) {
                guard.fail(context, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, why);
                return Err(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS);
            }
            bytes
        }
    };
    // SAFETY: the call names this address and size as the destination of its copy, and the driver
    // did not allocate this memory.
    unsafe { to.write(&bytes) }?;
    Ok(guard)
}

fn asynchronous(name: &'static str, to: End, from: End, size: usize, stream: usize) -> CUresult {
    call(name, Needs::Context, |guard| {
        transfer(
            guard,
            to,
            from,
            size,
            Manner {
                stream,
                waits: false,
                peer: false,
            },
        )
    })
}

fn synchronous(name: &'static str, to: End, from: End, size: usize) -> CUresult {
    call(name, Needs::Context, |guard| {
        transfer(
            guard,
            to,
            from,
            size,
            Manner {
                stream: 0,
                waits: true,
                peer: false,
            },
        )
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: Host,
    size: usize,
    stream: usize,
) -> CUresult {
    asynchronous(
        "cuMemcpyHtoDAsync_v2",
        End::Device(to),
        End::Host(from),
        size,
        stream,
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(
    to: Host,
    from: u64,
    size: usize,
    stream: usize,
) -> CUresult {
    asynchronous(
        "cuMemcpyDtoHAsync_v2",
        End::Host(to),
        End::Device(from),
        size,
        stream,
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoDAsync_v2(
    to: u64,
    from: u64,
    size: usize,
    stream: usize,
) -> CUresult {
    asynchronous(
        "cuMemcpyDtoDAsync_v2",
        End::Device(to),
        End::Device(from),
        size,
        stream,
    )
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyAsync(to: u64, from: u64, size: usize, stream: usize) -> CUresult {
    asynchronous("cuMemcpyAsync", End::Any(to), End::Any(from), size, stream)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: Host, size: usize) -> CUresult {
    synchronous("cuMemcpyHtoD_v2", End::Device(to), End::Host(from), size)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoH_v2(to: Host, from: u64, size: usize) -> CUresult {
    synchronous("cuMemcpyDtoH_v2", End::Host(to), End::Device(from), size)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoD_v2(to: u64, from: u64, size: usize) -> CUresult {
    synchronous("cuMemcpyDtoD_v2", End::Device(to), End::Device(from), size)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpy(to: u64, from: u64, size: usize) -> CUresult {
    synchronous("cuMemcpy", End::Any(to), End::Any(from), size)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: usize,
    from: u64,
    from_context: usize,
    size: usize,
    stream: usize,
) -> CUresult {
    call("cuMemcpyPeerAsync", Needs::Context, |guard| {
        for context in [to_context, from_context] {
            guard
                .contexts
                .get(context)
                .map_err(|_| CUresult::CUDA_ERROR_INVALID_CONTEXT)?;
        }
        transfer(
            guard,
            End::Device(to),
            End::Device(from),
            size,
            Manner {
                stream,
                waits: false,
                peer: true,
            },
        )
    })
}

/// Fills `count` times `width` bytes.
fn fill(guard: Guard, stream: usize, work: Set) -> Result<Guard, CUresult> {
    let stream = guard.stream(stream)?;
    if work.count == 0 {
        return Ok(guard);
    }
    let size = work
        .count
        .checked_mul(work.width)
        .ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
    if !work.to.is_multiple_of(work.width as u64) {
        return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
    }
    let context = guard.streams.get(stream)?.context;
    let device = guard.contexts.get(context)?.device;
    find(&guard, End::Device(work.to), size, Some(device))?;
    submit(guard, stream, NodeWork::Set(work))
}

fn byte(to: u64, value: u8, count: usize) -> Set {
    Set {
        to,
        pattern: [value; 4],
        width: 1,
        count,
    }
}

fn word(to: u64, value: u32, count: usize) -> Set {
    Set {
        to,
        pattern: value.to_le_bytes(),
        width: 4,
        count,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD8Async(to: u64, value: u8, count: usize, stream: usize) -> CUresult {
    call("cuMemsetD8Async", Needs::Context, |guard| {
        fill(guard, stream, byte(to, value, count)).map(drop)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD32Async(
    to: u64,
    value: u32,
    count: usize,
    stream: usize,
) -> CUresult {
    call("cuMemsetD32Async", Needs::Context, |guard| {
        fill(guard, stream, word(to, value, count)).map(drop)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD8_v2(to: u64, value: u8, count: usize) -> CUresult {
    call("cuMemsetD8_v2", Needs::Context, |guard| {
        synchronise_default(fill(guard, 0, byte(to, value, count))?).map(drop)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemsetD32_v2(to: u64, value: u32, count: usize) -> CUresult {
    call("cuMemsetD32_v2", Needs::Context, |guard| {
        synchronise_default(fill(guard, 0, word(to, value, count))?).map(drop)
    })
}
