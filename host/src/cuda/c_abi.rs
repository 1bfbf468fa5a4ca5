//! Targets of the seeds' C calling convention: `(stream, buffers, opaque, opaque_len)`, and the same with a status.
//!
//! `buffers` is an array of device pointers in the host's memory: the operands', then the result's. There are two ways to lay it out, by [`Buffers`].
#![allow(unsafe_code, reason = "calls functions of the C calling convention")]

mod library;
mod status;

use std::ffi::{c_char, c_void};
use std::sync::Arc;

use cudarc::driver::sys::CUstream;

pub use self::library::LibraryTarget;
use self::library::NativeLibrary;
use self::status::CStatus;
use super::module::{Code, Conventions, CudaModule};
use super::queue::CudaQueue;
use crate::call::{ApiVersion, CallSite, DeviceBuffer, DeviceLeaf, DeviceQueue, Signature, Stage};
use crate::values::{Blame, Result, Shape, Status, StatusCode, TupleShape};

/// `API_VERSION_ORIGINAL` on CUDA.
pub type OriginalTarget = unsafe extern "C" fn(CUstream, *mut *mut c_void, *const c_char, usize);

/// `API_VERSION_STATUS_RETURNING`, and the unified one, on CUDA. The status is XLA's opaque `XlaCustomCallStatus`.
pub type StatusTarget =
    unsafe extern "C" fn(CUstream, *mut *mut c_void, *const c_char, usize, *mut c_void);

/// Which pointers are in the array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Buffers {
    /// The leaves' alone, in preorder: six in the documents' example.
    #[default]
    Leaves,
    /// Those of all nodes in preorder, tuples too: nine. A tuple is an array of pointers in the device's memory. Sub-buffers of operands are null where their
    /// address was not known before, and have to be read from the operand's root; the result's root has to be filled by the target.
    Preorder,
}

/// A function of the C calling convention.
#[derive(Clone, Debug)]
pub(super) struct CFunction {
    entry: Entry,
    buffers: Buffers,
    /// Where it is from, which must stay loaded.
    _library: Option<Arc<NativeLibrary>>,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Original(OriginalTarget),
    Status(StatusTarget),
}

impl Entry {
    fn api_versions(self) -> Vec<ApiVersion> {
        match self {
            Self::Original(_) => vec![ApiVersion::Original],
            Self::Status(_) => vec![
                ApiVersion::StatusReturning,
                ApiVersion::StatusReturningUnified,
            ],
        }
    }
}

impl CudaModule {
    /// A target from a function of `API_VERSION_ORIGINAL`.
    ///
    /// # Errors
    /// None that depend on the arguments.
    ///
    /// # Safety
    /// The function must do what its convention says, for every call site that it is bound to: it is native code, which nothing checks.
    pub unsafe fn from_original(
        name: &str,
        function: OriginalTarget,
        buffers: Buffers,
    ) -> Result<Arc<Self>> {
        Self::from_c(
            vec![(name.to_owned(), Entry::Original(function), buffers)],
            None,
        )
    }

    /// A target from a function that returns a status.
    ///
    /// # Errors
    /// None that depend on the arguments.
    ///
    /// # Safety
    /// As for [`CudaModule::from_original`].
    pub unsafe fn from_status_returning(
        name: &str,
        function: StatusTarget,
        buffers: Buffers,
    ) -> Result<Arc<Self>> {
        Self::from_c(
            vec![(name.to_owned(), Entry::Status(function), buffers)],
            None,
        )
    }

    fn from_c(
        targets: Vec<(String, Entry, Buffers)>,
        library: Option<Arc<NativeLibrary>>,
    ) -> Result<Arc<Self>> {
        let identity = match &library {
            Some(library) => library.identity(&targets),
            None => {
                let addresses = targets.iter().map(|(_, entry, buffers)| match entry {
                    Entry::Original(function) => format!("{:p} {buffers:?}", *function),
                    Entry::Status(function) => format!("{:p} {buffers:?}", *function),
                });
                addresses.collect::<Vec<_>>().join(", ")
            }
        };
        let targets = targets.into_iter().map(|(name, entry, buffers)| {
            let signature = Signature {
                name,
                api_versions: entry.api_versions(),
                stages: vec![Stage::Execute],
                operands: None,
                remaining_operands: false,
                results: None,
                remaining_results: false,
                attributes: None,
                documentation: String::new(),
                traits: Vec::new(),
            };
            let function = CFunction {
                entry,
                buffers,
                _library: library.clone(),
            };
            (signature, Code::C(function))
        });
        Self::new(identity, targets.collect())
    }
}

impl CFunction {
    /// Checks what its convention cannot say.
    pub(super) fn check(&self, site: &CallSite) -> Result<()> {
        match site.attributes.is_empty() {
            true => Ok(()),
            false => Err(Status::invalid_argument(
                "expected no attributes, for which this convention has no place, found some",
            )),
        }
    }

    /// Calls it.
    pub(super) fn call(
        &self,
        site: &CallSite,
        queue: &mut CudaQueue,
        operands: &[DeviceLeaf],
        results: &[DeviceBuffer],
        conventions: Conventions,
    ) -> Result<()> {
        let mut array = Array::default();
        match self.buffers {
            Buffers::Leaves => {
                let operands = operands.iter().map(|leaf| leaf.buffer.address());
                let results = results.iter().map(|buffer| buffer.address());
                array.pointers = operands.chain(results).collect();
            }
            Buffers::Preorder => {
                let mut leaves = operands.iter();
                for shape in &site.operands {
                    array.operand(queue, shape, &mut leaves, (true, conventions))?;
                }
                array.result(queue, &site.result, &mut results.iter())?;
            }
        }
        let mut pointers: Vec<*mut c_void> = array
            .pointers
            .iter()
            .map(|&address| std::ptr::without_provenance_mut(address as usize))
            .collect();
        let context = queue.stream().context().bind();
        queue
            .device()
            .clone()
            .check("making its context current", context)?;
        let stream = queue.stream().raw();
        let opaque = Opaque::new(&site.opaque);
        let mut status = CStatus::default();
        // SAFETY: stream, pointers, opaque bytes and status are what the convention says, and stay for the call; that the function keeps to it
        // was promised when it was registered, or granted when its library was loaded.
        unsafe {
            match self.entry {
                Entry::Original(function) => {
                    function(
                        stream,
                        pointers.as_mut_ptr(),
                        opaque.pointer(),
                        site.opaque.len(),
                    );
                }
                Entry::Status(function) => function(
                    stream,
                    pointers.as_mut_ptr(),
                    opaque.pointer(),
                    site.opaque.len(),
                    (&raw mut status).cast(),
                ),
            }
        }
        status.into_result()?;
        match conventions.check_roots && !queue.is_capturing() {
            true => array.check_roots(queue),
            false => Ok(()),
        }
    }
}

/// Opaque bytes as targets find them, on either platform: at a multiple of 16, with a NUL behind.
struct Opaque(Vec<u128>);

impl Opaque {
    fn new(bytes: &[u8]) -> Self {
        let mut padded = bytes.to_vec();
        padded.resize((bytes.len() / 16 + 1) * 16, 0);
        let words = padded.chunks_exact(16).map(|chunk| {
            let mut word = [0; 16];
            word.copy_from_slice(chunk);
            u128::from_ne_bytes(word)
        });
        Self(words.collect())
    }

    fn pointer(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }
}

/// The pointers of a call, and the tables that some of them point to.
#[derive(Default)]
struct Array {
    pointers: Vec<u64>,
    /// The result's tables, with what the target has to write there.
    roots: Vec<(DeviceBuffer, Vec<u64>)>,
    /// Tables of operands, which have to stay until the call's work is in the stream.
    tables: Vec<DeviceBuffer>,
}

impl Array {
    /// An operand's nodes in preorder. Gives the node's own address, and whether it was known.
    fn operand<'l>(
        &mut self,
        queue: &mut CudaQueue,
        shape: &Shape,
        leaves: &mut impl Iterator<Item = &'l DeviceLeaf>,
        (is_root, conventions): (bool, Conventions),
    ) -> Result<(u64, bool)> {
        let place = self.pointers.len();
        self.pointers.push(0);
        let (address, is_known) = match shape {
            Shape::Array(_) => {
                let leaf = leaves.next().ok_or_else(missing_leaf)?;
                (leaf.buffer.address(), leaf.is_known)
            }
            Shape::Tuple(tuple) => {
                let mut addresses = Vec::new();
                let mut is_known = true;
                for element in tuple.elements() {
                    let node = self.operand(queue, element, leaves, (false, conventions))?;
                    addresses.push(node.0);
                    is_known &= node.1;
                }
                let mut bytes = to_bytes(&addresses);
                bytes.resize(table_size(tuple), 0);
                let table = queue.upload(&bytes)?;
                let address = table.address();
                self.tables.push(table);
                (address, is_known)
            }
        };
        if is_root || (is_known && !conventions.null_sub_buffers) {
            self.pointers[place] = address;
        }
        Ok((address, is_known))
    }

    /// The result's nodes in preorder: all known, with tables that the target fills.
    fn result<'l>(
        &mut self,
        queue: &mut CudaQueue,
        shape: &Shape,
        leaves: &mut impl Iterator<Item = &'l DeviceBuffer>,
    ) -> Result<u64> {
        let place = self.pointers.len();
        self.pointers.push(0);
        let address = match shape {
            Shape::Array(_) => leaves.next().ok_or_else(missing_leaf)?.address(),
            Shape::Tuple(tuple) => {
                let table = queue.allocate(table_size(tuple))?;
                let mut addresses = Vec::new();
                for element in tuple.elements() {
                    addresses.push(self.result(queue, element, leaves)?);
                }
                let address = table.address();
                self.roots.push((table, addresses));
                address
            }
        };
        self.pointers[place] = address;
        Ok(address)
    }

    /// Waits, and looks whether the result's tables were filled.
    fn check_roots(&self, queue: &mut CudaQueue) -> Result<()> {
        for (table, expected) in &self.roots {
            let found = queue.download(std::slice::from_ref(table))?;
            let is_filled = |bytes: &Vec<u8>| bytes.starts_with(&to_bytes(expected));
            if !found.first().is_some_and(is_filled) {
                return Err(Status::new(
                    StatusCode::Internal,
                    Blame::Guest,
                    "expected the target to fill the result's root tuple with the addresses of its sub-buffers, found something else there",
                ));
            }
        }
        Ok(())
    }
}

/// The bytes of a tuple's table. An empty tuple has an address as well, at which there is nothing to read.
fn table_size(tuple: &TupleShape) -> usize {
    tuple.elements().len().max(1) * size_of::<u64>()
}

fn to_bytes(addresses: &[u64]) -> Vec<u8> {
    addresses.iter().flat_map(|a| a.to_le_bytes()).collect()
}

fn missing_leaf() -> Status {
    Status::internal("fewer leaves than the shape has")
}
