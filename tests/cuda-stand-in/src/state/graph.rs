//! Graphs, what is made of them to be launched, and how the one is held against the other.

use cudarc::driver::sys::{CUgraphExecUpdateResult, CUgraphNodeType};

use super::handle::{Kind, fresh};
use super::stream::NodeWork;

/// A graph: nodes, each behind those that it comes after.
#[derive(Debug)]
pub(crate) struct Graph {
    pub(crate) context: usize,
    pub(crate) nodes: Vec<Node>,
}

/// One node.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) handle: usize,
    pub(crate) work: NodeWork,
    /// The nodes, by index, that it comes directly after.
    pub(crate) after: Vec<usize>,
    /// Pointers to a kernel node's parameters, once somebody has asked for them: they live as long as the node.
    pub(crate) pointers: Vec<usize>,
}

/// A graph that can be launched.
#[derive(Debug)]
pub(crate) struct Exec {
    pub(crate) context: usize,
    /// The graph's nodes as they were, with their handles.
    pub(crate) nodes: Vec<Node>,
    /// The stream of its last launch, and where that ends in it.
    pub(crate) last: Option<(usize, u64)>,
}

impl Graph {
    /// Adds a node and gives its index.
    pub(crate) fn add(&mut self, work: NodeWork, after: Vec<usize>) -> usize {
        self.nodes.push(Node {
            handle: fresh(Kind::Node),
            work,
            after,
            pointers: Vec::new(),
        });
        self.nodes.len() - 1
    }

    /// Whether every node is one of these, or comes before one of them.
    pub(crate) fn is_joined(&self, ends: &[usize]) -> bool {
        let mut reached = vec![false; self.nodes.len()];
        for end in ends {
            if let Some(reached) = reached.get_mut(*end) {
                *reached = true;
            }
        }
        // Nodes come after earlier ones only, so that one pass from the end is enough.
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
    /// As `cuGraphNodeGetType` names it.
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

/// What keeps an executable graph from becoming like a graph, and the graph's node where it shows.
pub(crate) type Difference = (CUgraphExecUpdateResult, Option<usize>);

impl Exec {
    /// Whether the nodes of a graph can take these nodes' places: the same types, edges and kernels.
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
