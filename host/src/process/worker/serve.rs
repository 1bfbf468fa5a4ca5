//! What a worker does for the process that asks it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::buffers::Places;
use super::super::message::{Beginning, Reply, Request};
use super::link::{Link, RemoteFunctions};
use crate::call::{CallOptions, CallSite, Execution, Fuel, Functions, PreparedCalls, TargetModule};
use crate::values::{Result, Shape, Status};
use crate::wasm::{Engine, Module, PreparedCall};

/// What a worker was not told in the order that it knows.
fn out_of_turn(request: &Request) -> Status {
    Status::internal(format!("expected another request, found {request:.0?}"))
}

/// Loads the module that it is told to load, and serves it until the socket closes.
pub(super) fn module(link: &Arc<Link>, engine: &Engine) -> Result<()> {
    match link.receive()? {
        Request::Load(wasm) => match engine.load(&wasm) {
            Ok(module) => {
                link.send(&Reply::Done(None))?;
                // The bytes are needed no longer.
                drop(wasm);
                sites(link, module)
            }
            Err(status) => link.send(&Reply::Failed(status, None)),
        },
        other => Err(out_of_turn(&other)),
    }
}

fn sites(link: &Arc<Link>, module: Arc<Module>) -> Result<()> {
    let Request::Prepare(sites, is_alone) = link.receive()? else {
        return Err(Status::internal("expected call sites"));
    };
    let places = sites.iter().map(Places::of).collect();
    let results = results_of_functions(&sites);
    match prepare(module, sites, is_alone) {
        Ok(calls) => {
            link.send(&Reply::Done(None))?;
            let server = Server {
                link,
                calls,
                places,
                results: Arc::new(results),
            };
            server.run()
        }
        Err(status) => link.send(&Reply::Failed(status, None)),
    }
}

/// Call sites as the backend has them: its messages tell a program's from one alone.
enum Calls {
    Program(Box<dyn PreparedCalls>),
    One(PreparedCall),
}

fn prepare(module: Arc<Module>, mut sites: Vec<CallSite>, is_alone: bool) -> Result<Calls> {
    match (is_alone, sites.pop()) {
        (true, Some(site)) => module.prepare_call(site).map(Calls::One),
        (_, last) => {
            sites.extend(last);
            module.prepare(sites).map(Calls::Program)
        }
    }
}

fn results_of_functions(sites: &[CallSite]) -> BTreeMap<usize, Shape> {
    let functions = sites.iter().flat_map(|site| &site.functions);
    functions
        .map(|function| (function.id, function.result.clone()))
        .collect()
}

struct Server<'a> {
    link: &'a Arc<Link>,
    calls: Calls,
    places: Vec<Places>,
    results: Arc<BTreeMap<usize, Shape>>,
}

/// Operands and results of a call, in this process.
#[derive(Default)]
struct Room {
    operands: Vec<u8>,
    results: Vec<u8>,
}

impl Server<'_> {
    fn run(&self) -> Result<()> {
        let mut room = Room::default();
        loop {
            match self.link.receive()? {
                Request::Alone(beginning, site) => self.alone(&beginning, site, &mut room)?,
                Request::Begin(beginning, sites) => {
                    self.execution(&beginning, &sites, &mut room)?
                }
                other => return Err(out_of_turn(&other)),
            }
        }
    }

    fn functions(&self, beginning: &Beginning) -> Option<Arc<dyn Functions>> {
        let depth = beginning.depth?;
        Some(Arc::new(RemoteFunctions {
            link: Arc::clone(self.link),
            depth,
            results: Arc::clone(&self.results),
        }))
    }

    fn answer(&self, outcome: Result<()>, fuel: Option<&Fuel>) -> Result<()> {
        let left = fuel.map(Fuel::left);
        self.link.send(&match outcome {
            Ok(()) => Reply::Done(left),
            Err(status) => Reply::Failed(status, left),
        })
    }

    /// One call as an execution of its own.
    fn alone(&self, beginning: &Beginning, site: usize, room: &mut Room) -> Result<()> {
        let options = beginning.options();
        let functions = self.functions(beginning);
        let outcome =
            match &self.calls {
                Calls::One(call) => self.with_buffers(site, room, |operands, results| {
                    call.call_with(&options, operands, results)
                }),
                Calls::Program(calls) => calls
                    .begin(&options, functions.as_ref(), &[site])
                    .and_then(|mut execution| {
                        execution.initialize()?;
                        self.call(&mut *execution, site, room)
                    }),
            };
        self.answer(outcome, options.fuel.as_ref())
    }

    /// An execution, until it is ended.
    fn execution(&self, beginning: &Beginning, sites: &[usize], room: &mut Room) -> Result<()> {
        let options = beginning.options();
        let functions = self.functions(beginning);
        let Calls::Program(calls) = &self.calls else {
            return Err(Status::internal("expected no execution of a call alone"));
        };
        let begun = calls.begin(&options, functions.as_ref(), sites);
        let mut execution = match begun {
            Ok(execution) => execution,
            Err(status) => return self.answer(Err(status), options.fuel.as_ref()),
        };
        self.answer(Ok(()), options.fuel.as_ref())?;
        let ended = self.serve(&mut *execution, &options, room);
        drop(execution);
        ended?;
        self.answer(Ok(()), None)
    }

    fn serve(
        &self,
        execution: &mut dyn Execution,
        options: &CallOptions,
        room: &mut Room,
    ) -> Result<()> {
        loop {
            let outcome = match self.link.receive()? {
                Request::Initialize => execution.initialize(),
                Request::Call(site) => self.call(execution, site, room),
                Request::End => return Ok(()),
                other => return Err(out_of_turn(&other)),
            };
            self.answer(outcome, options.fuel.as_ref())?;
        }
    }

    fn call(&self, execution: &mut dyn Execution, site: usize, room: &mut Room) -> Result<()> {
        self.with_buffers(site, room, |operands, results| {
            execution.call(site, operands, results)
        })
    }

    /// Takes the operands from the shared memory, calls, and puts the results there.
    fn with_buffers(
        &self,
        site: usize,
        room: &mut Room,
        call: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> Result<()>,
    ) -> Result<()> {
        let places = self
            .places
            .get(site)
            .ok_or_else(|| Status::internal("expected a call site that was prepared"))?;
        let buffers = &self.link.buffers;
        let cannot = |error| Status::internal(format!("expected the shared memory: {error}"));
        size(&mut room.operands, places.operand_bytes())?;
        size(&mut room.results, places.result_bytes())?;
        buffers
            .read_exact(0, [&mut *room.operands])
            .map_err(cannot)?;
        let operands = split(&room.operands, &places.operands);
        let mut results = split_mut(&mut room.results, &places.results);
        call(&operands, &mut results)?;
        buffers
            .write_all(places.operand_bytes(), [&*room.results])
            .map_err(cannot)
    }
}

/// Makes room of this size, what there was staying where it can.
fn size(room: &mut Vec<u8>, bytes: usize) -> Result<()> {
    if bytes > room.capacity() {
        *room = crate::values::zeroed(bytes)?;
    }
    room.resize(bytes, 0);
    Ok(())
}

fn split<'a>(mut bytes: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut parts = Vec::with_capacity(sizes.len());
    for &size in sizes {
        let (part, rest) = bytes.split_at(size);
        parts.push(part);
        bytes = rest;
    }
    parts
}

fn split_mut<'a>(mut bytes: &'a mut [u8], sizes: &[usize]) -> Vec<&'a mut [u8]> {
    let mut parts = Vec::with_capacity(sizes.len());
    for &size in sizes {
        let (part, rest) = bytes.split_at_mut(size);
        parts.push(part);
        bytes = rest;
    }
    parts
}
