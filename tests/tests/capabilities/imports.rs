//! Every function of WASI preview 1: which grant allows it, and how it handles invalid arguments.
//! `imports.json` lists the functions of the specification.

use callbox::policy::{Access, Grants, Policy, Randomness};
use callbox::{Blame, CallSite, Shape, StatusCode};
use serde::Deserialize;

use crate::engine;
use crate::tree::Tree;

/// A function and its grant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Function {
    name: String,
    parameters: Vec<String>,
    returns: bool,
    grant: String,
}

fn functions() -> Vec<Function> {
    serde_json::from_str(include_str!("imports.json")).unwrap()
}

impl Function {
    fn ty(&self) -> String {
        let result = if self.returns { "(result i32)" } else { "" };
        format!("(param {}) {result}", self.parameters.join(" "))
    }

    /// Builds a module that imports the function with this type, and whose target calls it with
    /// these arguments.
    fn guest(&self, ty: &str, call: &str) -> Vec<u8> {
        wat::parse_str(format!(
            "(module (import \"wasi_snapshot_preview1\" \"{}\" (func $function {ty}))
               (memory (export \"memory\") 1)
               (func (export \"f\") (param i32) (result i32) {call} (i32.const 0)))",
            self.name
        ))
        .unwrap()
    }

    fn call(&self, argument: impl Fn(usize) -> u64) -> String {
        let arguments = self
            .parameters
            .iter()
            .enumerate()
            .map(|(i, ty)| match ty.as_str() {
                "i32" => format!("(i32.const {})", (argument(i) as u32).cast_signed()),
                _ => format!("(i64.const {})", argument(i).cast_signed()),
            });
        let arguments: Vec<_> = arguments.collect();
        let drop = if self.returns { "(drop)" } else { "" };
        format!("(call $function {}) {drop}", arguments.join(" "))
    }
}

/// Returns each grant on its own, with its name.
fn each_grant(tree: &Tree) -> [(&'static str, Grants); 5] {
    let clock = Grants {
        clock: true,
        ..Grants::default()
    };
    let randomness = |randomness| Grants {
        randomness: Some(randomness),
        ..Grants::default()
    };
    [
        ("directories", tree.grants(Access::Read)),
        ("directories", tree.grants(Access::ReadWrite)),
        ("clock", clock),
        ("randomness", randomness(Randomness::System)),
        ("randomness", randomness(Randomness::Seed(1))),
    ]
}

#[test]
fn each_function_is_granted_by_its_grant_alone() {
    let tree = Tree::new();
    let engine = engine(Policy::default());
    assert_eq!(functions().len(), 46);
    for function in functions() {
        let wasm = function.guest(&function.ty(), "");
        let none = [("nothing", Grants::default())];
        for (name, grants) in each_grant(&tree).into_iter().chain(none) {
            let granted = function.grant == name || (function.grant == "any" && name != "nothing");
            let loaded = engine.load_with(&wasm, &grants);
            assert_eq!(loaded.is_ok(), granted, "{} with {name}", function.name);
            let Err(status) = loaded else { continue };
            assert_eq!(
                (status.code(), status.blame()),
                (StatusCode::PermissionDenied, Blame::Guest)
            );
            let import = format!(
                "the import \"wasi_snapshot_preview1\" \"{}\"",
                function.name
            );
            let why = match function.grant.as_str() {
                "any" => "it takes a grant of directories, clock or randomness",
                "directories" => "it takes a grant of directories",
                "clock" => "it takes the grant clock",
                "randomness" => "it takes the grant randomness",
                _ => "nothing grants it, for ",
            };
            let message = format!("{import} is not granted: {why}");
            assert!(status.message().starts_with(&message), "{status}");
        }
    }
}

#[test]
fn another_type_is_refused() {
    let tree = Tree::new();
    let engine = engine(Policy::default());
    let grants = Grants {
        clock: true,
        randomness: Some(Randomness::System),
        ..tree.grants(Access::Read)
    };
    for function in functions().iter().filter(|f| f.grant != "never") {
        for ty in ["", "(param f64)", "(param i32 i32) (result i64)"] {
            let wasm = function.guest(ty, "");
            let status = engine.load_with(&wasm, &grants).unwrap_err();
            assert_eq!(
                (status.code(), status.blame()),
                (StatusCode::InvalidArgument, Blame::Guest),
                "{} {ty}",
                function.name
            );
        }
    }
    for item in ["(memory 1)", "(table 1 funcref)", "(global i32)"] {
        let wasm = wat::parse_str(format!(
            "(module (import \"wasi_snapshot_preview1\" \"fd_read\" {item}) (memory (export \"m\") 1))"
        ));
        // The host rejects modules with two memories.
        let status = engine.load_with(&wasm.unwrap(), &grants).unwrap_err();
        assert_eq!(
            (status.code(), status.blame()),
            (StatusCode::InvalidArgument, Blame::Guest)
        );
    }
}

#[test]
fn what_is_no_function_of_preview_1_is_refused() {
    let tree = Tree::new();
    let engine = engine(Policy::default());
    for (module, name) in [
        ("wasi_snapshot_preview1", "path_mount"),
        ("wasi_snapshot_preview1", ""),
        ("wasi_snapshot_preview1", "fd_read2"),
        ("wasi_unstable", "fd_read"),
        ("wasi_snapshot_preview2", "fd_read"),
        ("wasi:filesystem/types@0.2.0", "read"),
        ("wasi", "thread-spawn"),
    ] {
        let wasm = wat::parse_str(format!(
            "(module (import \"{module}\" \"{name}\" (func (param i32 i32 i32 i32) (result i32))) (memory (export \"memory\") 1))"
        ));
        let status = engine
            .load_with(&wasm.unwrap(), &tree.grants(Access::ReadWrite))
            .unwrap_err();
        assert_eq!(
            (status.code(), status.blame()),
            (StatusCode::PermissionDenied, Blame::Guest),
            "{module} {name}"
        );
    }
}

/// Boundary values of addresses, descriptors and types.
const EDGES: [u64; 16] = [
    0,
    1,
    3,
    4,
    7,
    64,
    0xfff8,
    0xffff,
    0x10000,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_fff0,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    0xffff_ffff_ffff_ffff,
];

/// The number of calls per function.
const CALLS: usize = 40;

/// Any argument leads to an error number or to a status that blames the guest.
#[test]
fn no_argument_is_the_hosts_failure() {
    let engine = engine(Policy::default());
    let mut random = fastrand::Rng::with_seed(5);
    let nothing = Shape::tuple(Vec::new()).unwrap();
    for function in functions().iter().filter(|f| f.grant != "never") {
        let tree = Tree::new();
        let before = tree.everything_in("out");
        let grants = Grants {
            clock: true,
            randomness: Some(Randomness::Seed(1)),
            ..tree.grants(Access::ReadWrite)
        };
        // One target per call.
        let calls: String = (0..CALLS)
            .map(|n| {
                let arguments: Vec<_> = (0..9).map(|_| random.choice(EDGES).unwrap()).collect();
                let call = function.call(|i| arguments[i]);
                format!("(func (export \"f{n}\") (param i32) (result i32) {call} (i32.const 0))")
            })
            .collect();
        let wasm = wat::parse_str(format!(
            "(module (import \"wasi_snapshot_preview1\" \"{}\" (func $function {}))
               (memory (export \"memory\") 1) {calls})",
            function.name,
            function.ty()
        ));
        let module = engine.load_with(&wasm.unwrap(), &grants).unwrap();
        for n in 0..CALLS {
            let site = CallSite::new(format!("f{n}"), Vec::new(), nothing.clone());
            let outcome = module.prepare_call(site).unwrap().call(&[], &mut []);
            let Err(status) = outcome else { continue };
            assert_eq!(status.blame(), Blame::Guest, "{}: {status}", function.name);
            assert!(
                matches!(
                    status.code(),
                    StatusCode::OutOfRange | StatusCode::InvalidArgument | StatusCode::Aborted
                ),
                "{}: {status}",
                function.name
            );
        }
        assert_eq!(tree.everything_in("out"), before, "{}", function.name);
    }
}
