//! A worker's end of its socket, and its buffers.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, PoisonError};

use super::super::buffers::Buffers;
use super::super::message::{FunctionCall, LENGTH, Reply, Request};
use super::cannot;
use crate::call::{Bounds, Functions};
use crate::values::{Literal, Result, Shape, Status};

/// What a worker has of the process that started it. It waits there for as long as it is not asked anything.
#[derive(Debug)]
pub(super) struct Link {
    socket: Mutex<UnixStream>,
    pub(super) buffers: Buffers,
    descriptors: [i32; 2],
}

impl Link {
    /// Standard input is the socket, standard output the buffers' memory.
    pub(super) fn new() -> Result<Self> {
        let socket = own(io::stdin().as_fd()).map_err(cannot)?;
        let buffers = own(io::stdout().as_fd()).map_err(cannot)?;
        Ok(Self {
            descriptors: [socket.as_raw_fd(), buffers.as_raw_fd()],
            socket: Mutex::new(socket.into()),
            buffers: Buffers::from_shared(buffers),
        })
    }

    /// The descriptors that are read from.
    pub(super) fn descriptors(&self) -> [i32; 2] {
        self.descriptors
    }

    pub(super) fn send(&self, reply: &Reply) -> Result<()> {
        let bytes = reply.encode()?;
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        socket.write_all(&bytes).map_err(cannot)
    }

    pub(super) fn receive(&self) -> Result<Request> {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        let mut length = [0; LENGTH];
        socket.read_exact(&mut length).map_err(cannot)?;
        let mut bytes = crate::values::zeroed(u32::from_le_bytes(length) as usize)?;
        socket.read_exact(&mut bytes).map_err(cannot)?;
        Request::decode(&bytes)
    }
}

fn own(descriptor: std::os::fd::BorrowedFd<'_>) -> io::Result<OwnedFd> {
    descriptor.try_clone_to_owned()
}

/// The functions of the program, which runs in the other process.
#[derive(Debug)]
pub(super) struct RemoteFunctions {
    pub(super) link: std::sync::Arc<Link>,
    pub(super) depth: usize,
    /// The shapes of each function's result, by its id.
    pub(super) results: std::sync::Arc<std::collections::BTreeMap<usize, Shape>>,
}

impl Functions for RemoteFunctions {
    fn depth(&self) -> usize {
        self.depth
    }

    fn call(&self, id: usize, operands: &[Literal], bounds: &Bounds) -> Result<Literal> {
        let shape = self.results.get(&id).ok_or_else(|| {
            Status::internal(format!("expected a function of a call site, found {id}"))
        })?;
        let leaves = operands.iter().flat_map(Literal::leaves);
        let leaves = leaves.map(|(_, bytes)| bytes.to_vec()).collect();
        let call = FunctionCall::new(id, leaves, bounds);
        self.link.send(&Reply::Function(call))?;
        let Request::Returned(outcome, fuel) = self.link.receive()? else {
            return Err(Status::internal("expected what a function returned"));
        };
        if let (Some(own), Some(left)) = (&bounds.fuel, fuel) {
            own.take(own.left().saturating_sub(left));
        }
        Literal::from_leaves(shape.clone(), outcome?)
    }
}
