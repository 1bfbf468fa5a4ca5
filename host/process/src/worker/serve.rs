//! Serving the requests of the trusted process.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::link::{Link, RemoteFunctions};
use super::{cannot, failed};
use crate::buffers::BufferLayout;
use crate::message::{Beginning, FuelLeft, Reply, Request};
use callbox_core::call::{
    CallOptions, CallSite, Execution, Fuel, Functions, PreparedCalls, TargetModule,
};
use callbox_core::values::{Result, Shape, Status};
use callbox_wasm::{Engine, Module, ModuleFile, PreparedCall};

/// The status for a request out of order.
fn out_of_turn(request: &Request) -> Status {
    Status::internal(format!("the request {request:.0?} is out of order"))
}

/// Loads the requested module, and serves it until the socket closes.
pub(super) fn module(link: &Arc<Link>, engine: &Engine) -> Result<()> {
    match link.receive()? {
        Request::Load { wasm_bytes, label } => {
            let wasm = link.receive_bytes(usize::try_from(wasm_bytes).map_err(cannot)?)?;
            match load(engine, wasm, &label) {
                Ok(module) => {
                    link.send(&Reply::Done { fuel: None })?;
                    sites(link, module)
                }
                Err(status) => link.send(&failed(status)),
            }
        }
        other => Err(out_of_turn(&other)),
    }
}

fn load(engine: &Engine, wasm: Vec<u8>, label: &str) -> Result<Arc<Module>> {
    let policy = engine.policy();
    let file = ModuleFile::read(wasm, &policy.limits)?.named(label);
    engine.load_file(&file, &policy.grants)
}

fn sites(link: &Arc<Link>, module: Arc<Module>) -> Result<()> {
    let Request::Prepare { sites, is_alone } = link.receive()? else {
        return Err(Status::internal("expected call sites"));
    };
    let layouts = sites.iter().map(BufferLayout::of).collect();
    let results = results_of_functions(&sites);
    match prepare(module, sites, is_alone) {
        Ok(calls) => {
            link.send(&Reply::Done { fuel: None })?;
            let server = Server {
                link,
                calls,
                layouts,
                results: Arc::new(results),
            };
            server.run()
        }
        Err(status) => link.send(&failed(status)),
    }
}

/// Prepared call sites. The backend's messages differ between those of a program and a single one.
enum Calls {
    Program(Box<dyn PreparedCalls>),
    One(Box<PreparedCall>),
}

fn prepare(module: Arc<Module>, mut sites: Vec<CallSite>, is_alone: bool) -> Result<Calls> {
    match (is_alone, sites.pop()) {
        (true, Some(site)) => module
            .prepare_call(site)
            .map(|call| Calls::One(Box::new(call))),
        (_, last) => {
            sites.extend(last);
            module
                .prepare(sites, &CallOptions::default())
                .map(Calls::Program)
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
    layouts: Vec<BufferLayout>,
    results: Arc<BTreeMap<usize, Shape>>,
}

/// This process's copy of a call's operands and results, reused by the next call.
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
                Request::Alone { beginning, site } => self.alone(&beginning, site, &mut room)?,
                Request::Begin { beginning, sites } => {
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
        let fuel = fuel.map(FuelLeft::of);
        self.link.send(&match outcome {
            Ok(()) => Reply::Done { fuel },
            Err(status) => Reply::Failed { status, fuel },
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

    /// One execution, until the request to end it.
    fn execution(&self, beginning: &Beginning, sites: &[usize], room: &mut Room) -> Result<()> {
        let options = beginning.options();
        let functions = self.functions(beginning);
        let Calls::Program(calls) = &self.calls else {
            return Err(Status::internal(
                "a single call is not a part of an execution",
            ));
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
        self.answer(Ok(()), options.fuel.as_ref())
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
                Request::Call { site } => self.call(execution, site, room),
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

    /// Copies the operands out of the shared memory, calls, and copies the results into it.
    fn with_buffers(
        &self,
        site: usize,
        room: &mut Room,
        call: impl FnOnce(&[&[u8]], &mut [&mut [u8]]) -> Result<()>,
    ) -> Result<()> {
        let layout = self.layouts.get(site).ok_or_else(|| {
            Status::internal("the request names a call site that was not prepared")
        })?;
        let buffers = &self.link.buffers;
        let cannot = |error| Status::internal(format!("cannot access the shared memory: {error}"));
        size(&mut room.operands, layout.operand_bytes())?;
        size(&mut room.results, layout.result_bytes())?;
        buffers
            .read_exact(0, [&mut *room.operands])
            .map_err(cannot)?;
        let operands = split(&room.operands, &layout.operands);
        let mut results = split_mut(&mut room.results, &layout.results);
        call(&operands, &mut results)?;
        buffers
            .write_all(layout.operand_bytes(), [&*room.results])
            .map_err(cannot)
    }
}

/// Resizes a buffer, which keeps its allocation if that is large enough.
fn size(room: &mut Vec<u8>, bytes: usize) -> Result<()> {
    if bytes > room.capacity() {
        *room = callbox_core::values::zeroed(bytes)?;
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
