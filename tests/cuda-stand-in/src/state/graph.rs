//! Graphs, executable graphs, and their comparison.

use cudarc::driver::sys::{CUgraphExecUpdateResult, CUgraphNodeType};

use super::handle::{Kind, fresh};
use super::stream::NodeWork;

/// A graph: nodes in topological order.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) context: usize,
    pub(crate) nodes: Vec<Node>,
}

/// A node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) handle: usize,
    pub(crate) work: NodeWork,
    /// The indices of its direct predecessors.
    pub(crate) after: Vec<usize>,
    /// Pointers to a kernel node's parameters, once queried. They live as long as the node.
    pub(crate) pointers: Vec<usize>,
}

/// An executable graph.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) context: usize,
    /// A copy of the graph's nodes, with their handles.
    pub(crate) nodes: Vec<Node>,
    /// The stream of the last launch, and the position of its end.
    pub(crate) last: Option<(usize, u64)>,
}

impl Graph {
    /// Adds a node and returns its index.
    pub(crate) fn add(&mut self, work: NodeWork, after: Vec<usize>) -> usize {
        self.nodes.push(Node {
            handle: fresh(Kind::Node),
            work,
            after,
            pointers: Vec::new(),
        });
        self.nodes.len() - 1
    }

    /// Returns whether every node is one of these or precedes one of them.
    pub(crate) fn is_joined(&self, ends: &[usize]) -> bool {
        let mut reached = vec![false; self.nodes.len()];
        for end in ends {
            if let Some(reached) = reached.get_mut(*end) {
                *reached = true;
            }
        }
        // Predecessors have smaller indices, so one pass from the end is enough.
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if reached.get(index).is_some_and(|reached| *reached) {
                for before in &node.after {
                    if let Some(reached) = reached.get_mut(*before) {
                        *reached = true;
                    }
                }
            }
        }
        reached.iter().all(|reached| *reached)
    }
}

impl NodeWork {
    /// Returns the node's type, as `cuGraphNodeGetType` reports it.
    pub(crate) const fn node_type(&self) -> CUgraphNodeType {
        match self {
            NodeWork::Kernel(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_KERNEL,
            NodeWork::Copy(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMCPY,
            NodeWork::Set(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_MEMSET,
            NodeWork::Host(_) => CUgraphNodeType::CU_GRAPH_NODE_TYPE_HOST,
            NodeWork::Empty => CUgraphNodeType::CU_GRAPH_NODE_TYPE_EMPTY,
        }
    }
}

/// The reason why an executable graph cannot be updated to a graph, and the node that shows it.
pub(crate) type Difference = (CUgraphExecUpdateResult, Option<usize>);

impl Exec {
    /// Checks that a graph's nodes can replace these: same types, edges and kernels.
    pub(crate) fn compare(&self, graph: &Graph) -> Result<(), Difference> {
        if self.nodes.len() != graph.nodes.len() {
            return Err((
                CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
                None,
            ));
        }
        for (have, want) in self.nodes.iter().zip(&graph.nodes) {
            let at = Some(want.handle);
            if have.work.node_type() != want.work.node_type() {
                return Err((
                    CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED,
                    at,
                ));
            }
            if have.after != want.after {
                return Err((
                    CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED,
                    at,
                ));
            }
            if let (NodeWork::Kernel(have), NodeWork::Kernel(want)) = (&have.work, &want.work)
                && have.function != want.function
            {
                return Err((
                    CUgraphExecUpdateResult::CU_GRAPH_EXEC_UPDATE_ERROR_FUNCTION_CHANGED,
                    at,
                ));
            }
        }
        Ok(())
    }
}
