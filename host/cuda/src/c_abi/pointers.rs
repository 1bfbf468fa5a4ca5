//! The array of device pointers that a C function is passed, and the tuples that it points to.

use std::ffi::c_void;

use callbox_core::call::{CallSite, DeviceBuffer, DeviceLeaf, DeviceQueue};
use callbox_core::values::{Blame, Result, Shape, Status, StatusCode, TupleShape};

use crate::module::Conventions;
use crate::queue::CudaQueue;

/// The pointers of a call, and the memory of the tuples among them.
#[derive(Default)]
pub(super) struct PointerArray {
    addresses: Vec<u64>,
    /// The result's tuples, each with the addresses that the target has to write there.
    roots: Vec<(DeviceBuffer, Vec<u64>)>,
    /// The operands' tuples, kept until the call's work is in the stream.
    tables: Vec<DeviceBuffer>,
}

/// A node of an operand.
struct OperandNode {
    address: u64,
    /// Whether the address was known before the call.
    is_known: bool,
}

impl PointerArray {
    /// The array for [`Buffers::Leaves`](super::Buffers::Leaves).
    pub(super) fn of_leaves(operands: &[DeviceLeaf], results: &[DeviceBuffer]) -> Self {
        let operands = operands.iter().map(|leaf| leaf.buffer.address());
        let results = results.iter().map(|buffer| buffer.address());
        Self {
            addresses: operands.chain(results).collect(),
            ..Self::default()
        }
    }

    /// The array for [`Buffers::Preorder`](super::Buffers::Preorder).
    pub(super) fn of_nodes(
        site: &CallSite,
        queue: &mut CudaQueue,
        operands: &[DeviceLeaf],
        results: &[DeviceBuffer],
        conventions: Conventions,
    ) -> Result<Self> {
        let mut array = Self::default();
        let mut leaves = operands.iter();
        for shape in &site.operands {
            let root = array.addresses.len();
            let node = array.add_operand(queue, shape, &mut leaves, conventions)?;
            // The root's address is always passed.
            array.addresses[root] = node.address;
        }
        array.add_result(queue, &site.result, &mut results.iter())?;
        Ok(array)
    }

    /// The array as the function is passed it.
    pub(super) fn pointers(&self) -> Vec<*mut c_void> {
        let addresses = self.addresses.iter();
        addresses
            .map(|&address| std::ptr::without_provenance_mut(address as usize))
            .collect()
    }

    /// Adds the nodes of an operand in preorder. An unknown address is null.
    fn add_operand<'l>(
        &mut self,
        queue: &mut CudaQueue,
        shape: &Shape,
        leaves: &mut impl Iterator<Item = &'l DeviceLeaf>,
        conventions: Conventions,
    ) -> Result<OperandNode> {
        let position = self.addresses.len();
        self.addresses.push(0);
        let node = match shape {
            Shape::Array(_) => {
                let leaf = leaves.next().ok_or_else(missing_leaf)?;
                OperandNode {
                    address: leaf.buffer.address(),
                    is_known: leaf.is_known,
                }
            }
            Shape::Tuple(tuple) => {
                let mut addresses = Vec::new();
                let mut is_known = true;
                for element in tuple.elements() {
                    let node = self.add_operand(queue, element, leaves, conventions)?;
                    addresses.push(node.address);
                    is_known &= node.is_known;
                }
                let mut bytes = to_bytes(&addresses);
                bytes.resize(table_size(tuple), 0);
                let table = queue.upload(&bytes)?;
                let address = table.address();
                self.tables.push(table);
                OperandNode { address, is_known }
            }
        };
        if node.is_known && !conventions.null_sub_buffers {
            self.addresses[position] = node.address;
        }
        Ok(node)
    }

    /// Adds the nodes of the result in preorder. The target fills their tuples.
    fn add_result<'l>(
        &mut self,
        queue: &mut CudaQueue,
        shape: &Shape,
        leaves: &mut impl Iterator<Item = &'l DeviceBuffer>,
    ) -> Result<u64> {
        let position = self.addresses.len();
        self.addresses.push(0);
        let address = match shape {
            Shape::Array(_) => leaves.next().ok_or_else(missing_leaf)?.address(),
            Shape::Tuple(tuple) => {
                let table = queue.allocate(table_size(tuple))?;
                let elements = tuple.elements().iter();
                let addresses = elements.map(|element| self.add_result(queue, element, leaves));
                let addresses = addresses.collect::<Result<_>>()?;
                let address = table.address();
                self.roots.push((table, addresses));
                address
            }
        };
        self.addresses[position] = address;
        Ok(address)
    }

    /// Waits for the stream, and checks that the target filled the result's tuples.
    pub(super) fn check_roots(&self, queue: &mut CudaQueue) -> Result<()> {
        for (table, expected) in &self.roots {
            let found = queue.download(std::slice::from_ref(table))?;
            let is_filled = |bytes: &Vec<u8>| bytes.starts_with(&to_bytes(expected));
            if !found.first().is_some_and(is_filled) {
                return Err(Status::new(
                    StatusCode::Internal,
                    Blame::Guest,
                    "the target did not fill the result's root tuple with the addresses of its \
                     sub-buffers",
                ));
            }
        }
        Ok(())
    }
}

/// The size of a tuple's array of pointers, in bytes. An empty tuple has an address, too.
fn table_size(tuple: &TupleShape) -> usize {
    tuple.elements().len().max(1) * size_of::<u64>()
}

fn to_bytes(addresses: &[u64]) -> Vec<u8> {
    addresses.iter().flat_map(|a| a.to_le_bytes()).collect()
}

fn missing_leaf() -> Status {
    Status::internal("fewer leaves than the shape has")
}
