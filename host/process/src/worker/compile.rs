//! Serving as a compiler: the requests to compile modules, one at a time.

use std::sync::Arc;

use super::link::Link;
use super::{cannot, confinement, failed};
use crate::message::{Reply, Request};
use callbox_core::values::{Blame, Result, Status, StatusCode};
use callbox_wasm::{CodeCompiler, CompilerSettings};

/// Makes the compiler, gives up every privilege, and serves until the socket closes.
pub(super) fn serve(
    link: &Arc<Link>,
    settings: &CompilerSettings,
    memory_bytes: u64,
) -> Result<()> {
    let ready = CodeCompiler::new(settings).and_then(|compiler| {
        confinement::end_compiler(memory_bytes, link.descriptors())?;
        Ok(compiler)
    });
    let compiler = match ready {
        Ok(compiler) => compiler,
        Err(status) => return link.send(&failed(status)),
    };
    let fingerprint = compiler.fingerprint();
    link.send(&Reply::Ready { fingerprint })?;
    loop {
        let Request::Compile {
            wasm_bytes,
            most_bytes,
            message_bytes,
        } = link.receive()?
        else {
            return Err(Status::internal("the request was not to compile a module"));
        };
        let wasm = link.receive_bytes(usize::try_from(wasm_bytes).map_err(cannot)?)?;
        let compiled = compiler.compile(&wasm, message_bytes);
        drop(wasm);
        match compiled.and_then(|code| within(code, most_bytes)) {
            Ok(code) => {
                let bytes = code.len() as u64;
                link.send(&Reply::Compiled { bytes })?;
                link.send_bytes(&code)?;
            }
            Err(status) => {
                let is_panic = status.code() == StatusCode::Internal;
                link.send(&failed(status))?;
                if is_panic {
                    return Ok(());
                }
            }
        }
    }
}

fn within(code: Vec<u8>, most: u64) -> Result<Vec<u8>> {
    let bytes = code.len() as u64;
    if bytes <= most {
        return Ok(code);
    }
    Err(Status::new(
        StatusCode::ResourceExhausted,
        Blame::Guest,
        format!("expected at most {most} bytes of compiled code, found {bytes}"),
    ))
}
