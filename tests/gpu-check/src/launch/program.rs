//! The program with the measuring target.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use callbox::call::{CallSite, DeviceBuffer, DeviceQueue};
use callbox::cuda::{CudaCall, GraphLaunch};
use callbox::{ArrayShape, Attribute, CallOptions, Dictionary, ElementType};
use serde_json::{Value, json};

use super::{ELEMENTS, N, PREPARED, RAW, UNCHANGED, goals, rows};
use crate::guests;
use crate::raw::{AddN, Memory, Raw};
use crate::timing::{Way, in_turns};

/// The target that measures.
pub(super) const TARGET: &str = "measure";

/// The prefix of the variants that launch a graph through callbox with an operand at a different
/// address each time.
const CHANGED: &str = "callbox.graph.launch, arrays elsewhere each time: ";

/// The prefix of the variants that run custom calls of a program.
const CHAIN: &str = "callbox, custom calls in a program: ";

/// The approximate number of launches in a batch, below the number that the driver queues without
/// blocking.
const BATCH: usize = 256;

/// Returns the program. For each length it has a function with that many consecutive custom calls,
/// and two functions that launch such functions as graphs.
pub(super) fn text(lengths: &[usize]) -> String {
    let mut functions = String::new();
    let mut attributes = Vec::new();
    let array = format!("f32[{ELEMENTS}]");
    for length in lengths {
        for name in ["chain", "captured", "moved"] {
            // Writing to a `String` cannot fail.
            let _ = writeln!(functions, "{name}_{length} {{\n  x0 = {array} parameter(0)");
            for call in 1..=*length {
                let root = if call == *length { "ROOT " } else { "" };
                let _ = writeln!(
                    functions,
                    "  {root}x{call} = {array} custom-call(x{}), custom_call_target=\"add_n\", api_version=API_VERSION_TYPED_FFI, backend_config={{n = {N:?} : f32}}",
                    call - 1
                );
            }
            functions.push_str("}\n\n");
        }
        for (name, capture) in [("unchanged", "captured"), ("changed", "moved")] {
            let _ = writeln!(
                functions,
                "{name}_{length} {{\n  x = {array} parameter(0)\n  ROOT y = {array} custom-call(x), custom_call_target=\"{}\", api_version=API_VERSION_TYPED_FFI, backend_config={{capture = @{capture}_{length}}}\n}}\n",
                callbox::graph_launch::NAME
            );
        }
        for name in ["chain", "unchanged", "changed"] {
            attributes.push(format!("{name}_{length} = @{name}_{length}"));
        }
    }
    format!(
        "HloModule launch\n\n{functions}ENTRY main {{\n  x = {array} parameter(0)\n  ROOT y = {array} custom-call(x), custom_call_target=\"{TARGET}\", api_version=API_VERSION_TYPED_FFI, backend_config={{{}}}\n}}\n",
        attributes.join(", ")
    )
}

/// Measures from inside a call of [`TARGET`], which makes its context current on this thread.
pub(super) fn measure(
    call: &mut CudaCall<'_>,
    raw: &Arc<Raw>,
    root: &Path,
    graphs: &GraphLaunch,
    lengths: &[usize],
    rounds: usize,
) -> Result<Value> {
    let operand = Arc::clone(call.operands()[0].memory());
    let result = Arc::clone(call.results()[0].memory());
    call.queue().copy(&operand, &result)?;
    let input = download(call, &operand)?;
    // As a custom call receives it, at two addresses.
    let places: [DeviceBuffer; 2] = [operand, call.queue().upload(&input)?];
    let arrays: [Arc<Memory>; 2] = [raw.memory_with(&input)?, raw.memory(input.len())?];
    let add_n = AddN::new(raw, &root.join("guests/add_n/add_n.ptx"), arrays.clone(), N)?;
    let raw_graphs = lengths.iter().map(|&length| add_n.graph(length));
    let raw_graphs = raw_graphs.collect::<Result<Vec<_>>>()?;

    let device = Arc::clone(call.device());
    let prepared = guests::kernels(root, "add_n")?.prepare_call(&device, site()?)?;
    let [x, y] = arrays.each_ref().map(|array| array.buffer());
    let operands = [x];
    let results = [y];
    let options = CallOptions::default();
    let mut queue = raw.queue(&device)?;

    let call = RefCell::new(call);
    let mut ways = vec![
        way(RAW, RAW, 1, || add_n.launch()),
        way("cudarc's launch builder", RAW, 1, || add_n.launch_built()),
        way(PREPARED, RAW, 1, || {
            Ok(prepared.enqueue(&options, &mut queue.queue, &operands, &results)?)
        }),
    ];
    for (&length, graph) in std::iter::zip(lengths, &raw_graphs) {
        let raw_graph = format!("raw graph: {length}");
        ways.push(way(&raw_graph, &raw_graph, length, || graph.launch()));
        for (name, function, baseline, moves) in [
            (CHAIN, "chain", RAW, false),
            (UNCHANGED, "unchanged", &*raw_graph, false),
            (CHANGED, "changed", &*raw_graph, true),
        ] {
            let number = function_number(&call.borrow(), &format!("{function}_{length}"))?;
            let (call, places) = (&call, &places);
            let mut turn = 0;
            let act = move || {
                turn = (turn + usize::from(moves)) % 2;
                let operand = Arc::clone(&places[turn]);
                call.borrow_mut().call_function(number, &[operand])?;
                Ok(())
            };
            ways.push(way(&format!("{name}{length}"), baseline, length, act));
        }
    }
    let times = in_turns(&mut ways, rounds, || raw.wait())?;
    let found = json!({
        "kernel": format!("add_n on f32[{ELEMENTS}], one block"),
        "times": "of one launch, medians over the rounds: enqueue is the host's cost, whole lasts until the device is done",
        "rounds": rounds,
        "ways": rows(&ways, &times),
        "graphs": counted(&mut ways, graphs, || raw.wait())?,
        "goals": goals(&ways, &times),
    });
    drop(ways);

    // Check that the measured work computed the right result.
    let call = call.into_inner();
    let again = |what: &str, added: usize, to: usize, act: &mut dyn FnMut() -> Result<()>| {
        raw.copy_in(&input, &arrays[0])?;
        act()?;
        raw.wait()?;
        expect(what, &input, added, &raw.read(&arrays[to], 0, input.len())?)
    };
    again(RAW, 1, 1, &mut || add_n.launch())?;
    again("cudarc's launch builder", 1, 1, &mut || {
        add_n.launch_built()
    })?;
    again(PREPARED, 1, 1, &mut || {
        Ok(prepared.enqueue(&options, &mut queue.queue, &operands, &results)?)
    })?;
    for (&length, graph) in std::iter::zip(lengths, &raw_graphs) {
        again("raw graph", length, length % 2, &mut || graph.launch())?;
        for function in ["chain", "unchanged", "changed"] {
            let name = format!("{function}_{length}");
            let number = function_number(call, &name)?;
            let leaves = call.call_function(number, &[Arc::clone(&places[0])])?;
            let [leaf] = leaves.as_slice() else {
                bail!("expected one array of {name}, found {}", leaves.len());
            };
            expect(&name, &input, length, &download(call, leaf)?)?;
        }
    }
    raw.wait()?;
    Ok(found)
}

fn way<'w>(
    name: &str,
    baseline: &str,
    launches: usize,
    act: impl FnMut() -> Result<()> + 'w,
) -> Way<'w> {
    Way {
        name: name.to_owned(),
        baseline: baseline.to_owned(),
        launches,
        batch: (BATCH / launches).max(1),
        act: Box::new(act),
    }
}

/// Returns the call site of one `add_n`.
fn site() -> Result<CallSite> {
    let shape = ArrayShape::new(ElementType::F32, &[ELEMENTS])?;
    let site = CallSite::new("add_n", vec![shape.clone().into()], shape.into());
    Ok(site.with_attributes(Dictionary::from([("n".to_owned(), Attribute::scalar(N))])))
}

fn function_number(call: &CudaCall<'_>, name: &str) -> Result<usize> {
    let functions = &call.site().functions;
    let number = functions.iter().position(|function| function.name == name);
    number.with_context(|| format!("expected a function {name:?} of the program"))
}

fn download(call: &mut CudaCall<'_>, buffer: &DeviceBuffer) -> Result<Vec<u8>> {
    let mut arrays = call.queue().download(std::slice::from_ref(buffer))?;
    arrays.pop().context("expected one array, found none")
}

/// Counts, over a few operations of each variant, how many graph launches were unchanged, updated
/// and captured.
fn counted(
    ways: &mut [Way<'_>],
    graphs: &GraphLaunch,
    wait: impl Fn() -> Result<()>,
) -> Result<Vec<Value>> {
    const OPERATIONS: usize = 8;
    let ways = ways
        .iter_mut()
        .filter(|way| way.name.starts_with(UNCHANGED) || way.name.starts_with(CHANGED));
    let count = |way: &mut Way<'_>| {
        // The measurement before may have left the graph with another address.
        (way.act)()?;
        let before = graphs.counts();
        for _ in 0..OPERATIONS {
            (way.act)()?;
        }
        wait()?;
        let after = graphs.counts();
        Ok(json!({
            "way": way.name,
            "operations": OPERATIONS,
            "unchanged": after.unchanged - before.unchanged,
            "updated": after.updated - before.updated,
            "captured": after.captured - before.captured + after.recaptured - before.recaptured,
            "eager": after.eager - before.eager,
        }))
    };
    ways.map(count).collect()
}

/// Checks a result.
///
/// # Errors
/// Numbers other than the input plus `added` times [`N`].
fn expect(what: &str, input: &[u8], added: usize, found: &[u8]) -> Result<()> {
    let floats = |bytes: &[u8]| -> Vec<f32> {
        let words = bytes.as_chunks::<4>().0.iter();
        words.map(|word| f32::from_le_bytes(*word)).collect()
    };
    let expected: Vec<f32> = floats(input)
        .into_iter()
        .map(|x| x + added as f32 * N)
        .collect();
    let found = floats(found);
    ensure!(
        found == expected,
        "{what}: expected {:?} and so on, found {:?}",
        expected.get(..4),
        found.get(..4)
    );
    Ok(())
}
