//! Manifests of CUDA kernels: an accepted manifest can be planned for call sites, and each plan is
//! valid for a device.

use callbox::call::{ApiVersion, CallSite};
use callbox::cuda::manifest::{KernelTarget, Manifest, PlannedCall, PlannedParameter};
use callbox::{Attribute, StatusCode};

use crate::Target;
use crate::outcome::Outcome;

/// The target.
pub const TARGET: Target = Target {
    name: "manifest",
    run,
    max_len: 4096,
    executions: 20_000,
    words: WORDS,
};

const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    "\"format\"",
    "\"images\"",
    "\"targets\"",
    "\"launches\"",
    "\"parameters\"",
    "\"checks\"",
    "\"scratch\"",
    "\"grid\"",
    "\"block\"",
    "\"when\"",
    "\"shared_memory\"",
    "\"recoverable\"",
    "\"remaining_operands\"",
    "operands[0]",
    "results[0]",
    ".elements",
    ".bytes",
    ".rank",
    ".dims[-1]",
    ".element_size",
    ".element_type",
    "operands.count",
    "attributes.n",
    "attributes.a[1]",
    "has(",
    "opaque.bytes",
    "opaque_u32(4)",
    "ceil_div(",
    "if(",
    "min(",
    "max(",
    " / ",
    " % ",
    " * ",
    " - ",
    " && ",
    " || ",
    " == ",
    "!",
    "170141183460469231731687303715884105727",
    "2147483647",
    "65536",
    "'f32'",
    "{operands[0].elements}",
    "../x.ptx",
    "\\u0000",
];

fn run(input: &[u8]) -> Outcome {
    let Ok(text) = std::str::from_utf8(input) else {
        return Outcome::of("not UTF-8");
    };
    let manifest = match Manifest::parse(text) {
        Ok(manifest) => manifest,
        Err(status) => {
            assert_eq!(status.code(), StatusCode::InvalidArgument, "{status}");
            assert!(!status.message().is_empty());
            return Outcome::failure(&status);
        }
    };
    assert_eq!(Manifest::parse(text).as_ref(), Ok(&manifest));
    let mut planned = Vec::new();
    for target in &manifest.targets {
        for site in sites(&target.signature.name) {
            planned.push(plan(&manifest, target, &site));
        }
    }
    Outcome::of((manifest.images.len(), planned))
}

/// Plans a call site. Returns the number of launches, if it can be planned.
fn plan(manifest: &Manifest, target: &KernelTarget, site: &CallSite) -> Option<usize> {
    let found = target.plan(site);
    assert_eq!(target.plan(site), found, "the same once more");
    match found {
        Ok(planned) => {
            check(manifest, site, &planned);
            Some(planned.launches.len())
        }
        Err(status) => {
            assert_ne!(status.code(), StatusCode::Ok);
            None
        }
    }
}

fn check(manifest: &Manifest, site: &CallSite, planned: &PlannedCall) {
    for launch in &planned.launches {
        assert!(launch.image < manifest.images.len());
        assert!(launch.grid.iter().chain(&launch.block).all(|&n| n > 0));
        assert!(launch.grid[0] < 1 << 31 && launch.grid[1..].iter().all(|&n| n < 1 << 16));
        assert!(launch.block.iter().product::<u32>() <= 1024);
        for parameter in &launch.parameters {
            match parameter {
                PlannedParameter::Operand(leaf) => assert!(*leaf < site.operands.len()),
                PlannedParameter::Result(leaf) => assert!(*leaf < site.result.leaves().len()),
                PlannedParameter::Scratch(number) => assert!(*number < planned.scratch.len()),
                PlannedParameter::Bytes(bytes) => assert!(matches!(bytes.len(), 1 | 2 | 4 | 8)),
            }
        }
    }
}

/// Returns call sites of several shapes, one of an older convention.
fn sites(target: &str) -> Vec<CallSite> {
    let site = |operands: &[&str], result: &str| {
        let operands = operands.iter().map(|shape| shape.parse().unwrap());
        CallSite::new(target, operands.collect(), result.parse().unwrap())
    };
    let inner = [("s".to_owned(), Attribute::String(b"text".to_vec()))].into();
    let attributes = [
        ("n".to_owned(), Attribute::scalar(4.0_f32)),
        ("k".to_owned(), Attribute::scalar(-7_i64)),
        ("d".to_owned(), Attribute::Dictionary(inner)),
    ];
    let old = CallSite {
        api_version: ApiVersion::Original,
        opaque: (0..16).collect(),
        ..site(&["u8[0]"], "(f16[3], s64[2,2])")
    };
    vec![
        site(&["f32[3,4]", "f32[12]"], "f32[3,4]").with_attributes(attributes.into()),
        site(&[], "f32[]"),
        old,
    ]
}
