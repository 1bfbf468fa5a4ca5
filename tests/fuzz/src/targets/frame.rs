//! Call sites with arbitrary shapes: buffers are aligned, disjoint and inside the arena, the frame
//! matches the call site, and a guest that copies operands to results returns them.

use std::sync::{Arc, OnceLock};

use arbitrary::Unstructured;
use callbox::call::{Alias, ApiVersion};
use callbox::frame::ArenaLayout;
use callbox::policy::{Limits, Policy};
use callbox::wasm::{Config, Engine, Module};
use callbox::{CallSite, Shape, StatusCode};

use crate::outcome::Outcome;
use crate::{Target, generate, records};

/// The target.
pub const TARGET: Target = Target {
    name: "frame",
    run,
    max_len: 1024,
    executions: 4_000,
    words: &[],
};

/// The arena limit in bytes, above what these call sites need unless forced.
const ROOM: usize = 1 << 20;

fn run(input: &[u8]) -> Outcome {
    let mut u = Unstructured::new(input);
    let Ok(mut site) = generate::call_site(&mut u) else {
        return Outcome::of("too few bytes");
    };
    match u.int_in_range(0..=15).unwrap_or(15) {
        0 => with_wrong_aliasing(&mut u, site),
        1 => with_little_room(&mut u, &site),
        2..6 if is_flat(&site) => {
            to_unified(&mut site);
            echo(&mut u, site)
        }
        _ => {
            let layout = ArenaLayout::new(&site, ROOM).unwrap();
            records::check_places(&site, &layout);
            records::check_frames(&site, &layout);
            echo(&mut u, site)
        }
    }
}

/// Adds arbitrary aliasing, which is either rejected or consistent.
fn with_wrong_aliasing(u: &mut Unstructured<'_>, mut site: CallSite) -> Outcome {
    let number = |u: &mut Unstructured<'_>| u.int_in_range(0..=5).unwrap_or(0);
    let index = |u: &mut Unstructured<'_>| (0..number(u) % 4).map(|_| number(u)).collect();
    site.aliasing.push(Alias {
        result_index: index(u),
        operand: number(u),
        operand_index: index(u),
    });
    match ArenaLayout::new(&site, ROOM) {
        Ok(layout) => {
            let alias = &site.aliasing[site.aliasing.len() - 1];
            let result = site.result.at(&alias.result_index).unwrap();
            let operand = site.operands[alias.operand]
                .at(&alias.operand_index)
                .unwrap();
            assert!(result.is_compatible(operand), "{result} and {operand}");
            assert!(layout.size() <= ROOM);
            Outcome::of("aliasing")
        }
        Err(status) => {
            assert_eq!(status.code(), StatusCode::InvalidArgument, "{status}");
            Outcome::failure(&status)
        }
    }
}

/// Checks that an arena's size does not depend on the limit, and that a smaller limit is rejected.
fn with_little_room(u: &mut Unstructured<'_>, site: &CallSite) -> Outcome {
    let size = ArenaLayout::new(site, ROOM).unwrap().size();
    let limit = u.int_in_range(0..=2 * size).unwrap_or(size);
    match ArenaLayout::new(site, limit) {
        Ok(layout) => {
            assert!(layout.size() == size && size <= limit);
            Outcome::of("enough room")
        }
        Err(status) => {
            assert!(size > limit, "{size} bytes, and {status}");
            assert_eq!(status.code(), StatusCode::ResourceExhausted);
            Outcome::of("too little room")
        }
    }
}

fn is_flat(site: &CallSite) -> bool {
    site.operands.iter().all(|shape| shape.as_array().is_some())
}

/// Converts the call site to the convention with opaque bytes, which hold the leaves' sizes.
fn to_unified(site: &mut CallSite) {
    let sizes = site.operands.iter().flat_map(Shape::leaves);
    let sizes = sizes.flat_map(|leaf| (leaf.byte_size() as u32).to_le_bytes());
    site.opaque = sizes.collect();
    site.attributes.clear();
    site.api_version = ApiVersion::StatusReturningUnified;
    site.target = "unified".to_owned();
}

/// Calls the guest twice and compares its results with the operands.
fn echo(u: &mut Unstructured<'_>, site: CallSite) -> Outcome {
    let leaves = site.operands.iter().flat_map(Shape::leaves);
    let operands = leaves.map(|leaf| {
        let mut bytes = u.bytes(u.len().min(leaf.byte_size())).unwrap().to_vec();
        bytes.resize(leaf.byte_size(), 0xa5);
        bytes
    });
    let operands: Vec<Vec<u8>> = operands.collect();
    let sizes = site
        .result
        .leaves()
        .into_iter()
        .map(|leaf| leaf.byte_size());
    let sizes: Vec<usize> = sizes.collect();
    let told = (
        site.api_version,
        operands.len(),
        site.aliasing.len(),
        site.attributes.len(),
    );
    let prepared = module().prepare_call(site).unwrap();
    for _ in 0..2 {
        let mut results: Vec<Vec<u8>> = sizes.iter().map(|&size| vec![0x5a; size]).collect();
        let inputs: Vec<&[u8]> = operands.iter().map(Vec::as_slice).collect();
        let mut outputs: Vec<&mut [u8]> = results.iter_mut().map(Vec::as_mut_slice).collect();
        prepared.call(&inputs, &mut outputs).unwrap();
        assert_eq!(results[..operands.len()], operands);
    }
    Outcome::of(told)
}

/// Returns the guest that copies operands to results.
fn module() -> &'static Arc<Module> {
    static MODULE: OnceLock<Arc<Module>> = OnceLock::new();
    MODULE.get_or_init(|| {
        let policy = Policy {
            limits: Limits {
                memory_bytes: 4 << 20,
                instances: 16,
                ..Limits::default()
            },
            ..Policy::default()
        };
        let engine = Engine::with_config(Config {
            policy,
            ..Config::default()
        });
        let wasm = wat::parse_str(include_str!("echo.wat")).unwrap();
        engine.unwrap().load(&wasm).unwrap()
    })
}
