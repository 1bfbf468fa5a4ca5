//! A worker's end of the socket, and its buffers.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use super::cannot;
use crate::buffers::Buffers;
use crate::message::{FunctionCall, LENGTH, Reply, Request, decode, encode};
use callbox_core::call::{Bounds, Functions};
use callbox_core::locks::locked;
use callbox_core::values::{Literal, Result, Shape, Status};
use serde_bytes::ByteBuf;

/// The socket and the buffers that a worker shares with the process that started it.
#[derive(Debug)]
pub(super) struct Link {
    socket: Mutex<UnixStream>,
    pub(super) buffers: Buffers,
    descriptors: [i32; 2],
}

impl Link {
    /// Takes the socket from standard input and the memory of the buffers from standard output.
    pub(super) fn new() -> Result<Self> {
        let socket = own(io::stdin().as_fd()).map_err(cannot)?;
        let buffers = own(io::stdout().as_fd()).map_err(cannot)?;
        Ok(Self {
            descriptors: [socket.as_raw_fd(), buffers.as_raw_fd()],
            socket: Mutex::new(socket.into()),
            buffers: Buffers::from_shared(buffers),
        })
    }

    /// The descriptors of the socket and of the buffers.
    pub(super) fn descriptors(&self) -> [i32; 2] {
        self.descriptors
    }

    pub(super) fn send(&self, reply: &Reply) -> Result<()> {
        let bytes = encode(reply)?;
        let mut socket = locked(&self.socket);
        socket.write_all(&bytes).map_err(cannot)
    }

    /// Sends bytes that a message has announced.
    pub(super) fn send_bytes(&self, bytes: &[u8]) -> Result<()> {
        let mut socket = locked(&self.socket);
        socket.write_all(bytes).map_err(cannot)
    }

    /// Receives bytes that a message has announced.
    pub(super) fn receive_bytes(&self, length: usize) -> Result<Vec<u8>> {
        let mut socket = locked(&self.socket);
        let mut bytes = callbox_core::values::zeroed(length)?;
        socket.read_exact(&mut bytes).map_err(cannot)?;
        Ok(bytes)
    }

    pub(super) fn receive(&self) -> Result<Request> {
        let mut socket = locked(&self.socket);
        let mut length = [0; LENGTH];
        socket.read_exact(&mut length).map_err(cannot)?;
        let mut bytes = callbox_core::values::zeroed(u32::from_le_bytes(length) as usize)?;
        socket.read_exact(&mut bytes).map_err(cannot)?;
        decode(&bytes)
    }
}

fn own(descriptor: std::os::fd::BorrowedFd<'_>) -> io::Result<OwnedFd> {
    descriptor.try_clone_to_owned()
}

/// The functions of the program, which runs in the trusted process.
#[derive(Debug)]
pub(super) struct RemoteFunctions {
    pub(super) link: std::sync::Arc<Link>,
    pub(super) depth: usize,
    /// The result shape of each function, by its number.
    pub(super) results: std::sync::Arc<std::collections::BTreeMap<usize, Shape>>,
}

impl Functions for RemoteFunctions {
    fn depth(&self) -> usize {
        self.depth
    }

    fn call(&self, id: usize, operands: &[Literal], bounds: &Bounds) -> Result<Literal> {
        let shape = self
            .results
            .get(&id)
            .ok_or_else(|| Status::internal(format!("no call site names function {id}")))?;
        let leaves = operands.iter().flat_map(Literal::leaves);
        let leaves = leaves.map(|(_, bytes)| ByteBuf::from(bytes)).collect();
        let call = FunctionCall::new(id, leaves, bounds);
        self.link.send(&Reply::Function(call))?;
        let Request::Returned { outcome, fuel } = self.link.receive()? else {
            return Err(Status::internal(
                "the reply to a call of a function was not its result",
            ));
        };
        if let (Some(own), Some(left)) = (&bounds.fuel, fuel) {
            left.charge(own);
        }
        let leaves = outcome?.into_iter().map(ByteBuf::into_vec);
        Literal::from_leaves(shape.clone(), leaves.collect())
    }
}
