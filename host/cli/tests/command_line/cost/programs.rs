//! Programs: texts that would cost many times their size.

use super::{MEMORY, limited, list, module, shown};
use crate::guests::NEGATE;
use crate::support::Folder;

/// Runs a program without inputs, and expects this status. Messages are short.
#[track_caller]
fn check(text: &str, status: &str, contains: &str) {
    check_with(text, &[], status, contains);
}

#[track_caller]
pub(super) fn check_with(text: &str, flags: &[&str], status: &str, contains: &str) {
    let folder = Folder::new();
    folder.write("p.hlo", text).module("negate.wasm", NEGATE);
    let ran = limited(
        &folder,
        MEMORY,
        &[&["run", "p.hlo", "--json"], flags].concat(),
    );
    let object = ran.object();
    assert_eq!(object["status"]["code"], status, "{}", shown(&ran));
    let message = object["status"]["message"].as_str().unwrap();
    assert!(message.contains(contains), "{}", shown(&ran));
    assert!(
        message.len() < 10_000,
        "a message of {} bytes",
        message.len()
    );
}

/// Each call had as many attributes as one text may have: 268 bytes for each of the program's.
#[test]
fn dictionaries_of_many_calls() {
    let deep = format!("{}a=1{}", "a={".repeat(60), "}".repeat(60));
    let dictionaries: Vec<String> = (0..400).map(|i| format!("b{i}={{{deep}}}")).collect();
    let dictionaries = dictionaries.join(",");
    let calls: String = (0..24)
        .map(|i| {
            format!(
                "c{i} = f32[] custom-call(z), custom_call_target=\"f\", \
                 api_version=API_VERSION_TYPED_FFI, backend_config={{{dictionaries}}}\n"
            )
        })
        .collect();
    let body = format!("z = f32[] constant(0)\n{calls}ROOT r = f32[] negate(z)");
    let contains = "expected at most 301190 attributes";
    check_with(&module("", &body), &[], "RESOURCE_EXHAUSTED", contains);
}

/// The shape of a tuple of scalars.
fn scalars(count: usize) -> String {
    format!("({})", list("f32[]", count))
}

#[test]
fn one_tuple_as_many_operands() {
    let shape = scalars(10_000);
    let operands = list("t", 20_000);
    let parameter = format!("t = {shape} parameter(0)");
    let body = format!("{parameter}\nROOT r = () tuple({operands})");
    check(&module("", &body), "RESOURCE_EXHAUSTED", "arrays in all");
    let call = "custom_call_target=\"f\"";
    let body = format!("{parameter}\nROOT r = f32[] custom-call({operands}), {call}");
    check(&module("", &body), "RESOURCE_EXHAUSTED", "arrays in all");
    // Fewer operands, so that the limit of a tuple is met.
    let body = format!("{parameter}\nROOT r = () tuple({})", list("t", 200));
    check(
        &module("", &body),
        "RESOURCE_EXHAUSTED",
        "at most 1048576 shapes",
    );
    // Fewer still, which the wrong shape of the result alone is the error of.
    let body = format!("{parameter}\nROOT r = () tuple({})", list("t", 50));
    check(
        &module("", &body),
        "INVALID_ARGUMENT",
        "expected the shape ((f32[]",
    );
}

#[test]
fn one_tuple_as_the_operand_of_many_calls() {
    let shape = scalars(5_000);
    let before = format!("f {{\np = {shape} parameter(0)\nROOT r = f32[] constant(0)\n}}\n");
    let calls = |count: usize| {
        let calls = (0..count).map(|i| format!("c{i} = f32[] call(t), to_apply=f\n"));
        let calls: String = calls.collect();
        format!(
            "z = f32[] constant(1)\nt = {shape} tuple({})\n{calls}ROOT r = f32[] negate(z)",
            list("z", 5_000)
        )
    };
    check(&module(&before, &calls(2_000)), "OK", "");
    check(
        &module(&before, &calls(4_000)),
        "RESOURCE_EXHAUSTED",
        "arrays in all",
    );
}

#[test]
fn many_branches_with_large_results() {
    let shape = scalars(5_000);
    let branch = |name: &str| {
        format!(
            "{name} {{\nx = f32[] parameter(0)\nROOT r = {shape} tuple({})\n}}\n",
            list("x", 5_000)
        )
    };
    let count = 20_000;
    let names = vec!["a,b"; count / 2].join(",");
    let body = format!(
        "i = s32[] constant(0)\nx = f32[] constant(0)\n\
         c = {shape} conditional(i,{}), branch_computations={{{names}}}\n\
         ROOT g = f32[] get-tuple-element(c), index=0",
        list("x", count)
    );
    let before = branch("a") + &branch("b");
    check(
        &module(&before, &body),
        "RESOURCE_EXHAUSTED",
        "arrays in all",
    );
}

/// Each computation calls the one before it twice.
fn doubling(depth: usize) -> String {
    let mut text = "f0 {\nROOT x = f32[] parameter(0)\n}\n".to_owned();
    for i in 1..depth {
        let callee = i - 1;
        text += &format!(
            "f{i} {{\nx = f32[] parameter(0)\na = f32[] call(x), to_apply=f{callee}\n\
             ROOT b = f32[] call(a), to_apply=f{callee}\n}}\n"
        );
    }
    text
}

#[test]
fn calls_that_double() {
    let body =
        |last: usize| format!("x = f32[] constant(1)\nROOT r = f32[] call(x), to_apply=f{last}");
    let run = module(&doubling(100), &body(99));
    check_with(
        &run,
        &["--deadline", "300ms"],
        "DEADLINE_EXCEEDED",
        "deadline",
    );
    let mapped = "x = f32[4] constant({1,2,3,4})\n\
                  ROOT r = f32[4] map(x), dimensions={0}, to_apply=f99";
    let run = module(&doubling(100), mapped);
    check_with(
        &run,
        &["--deadline", "300ms"],
        "DEADLINE_EXCEEDED",
        "deadline",
    );
    check(
        &module(&doubling(1_000), &body(999)),
        "RESOURCE_EXHAUSTED",
        "at most 128 deep",
    );
}

/// Many computations call one that has many call sites.
#[test]
fn many_computations_that_share_call_sites() {
    let call = "custom-call(x), custom_call_target=\"negate\", api_version=API_VERSION_TYPED_FFI";
    let side_effect = "custom_call_has_side_effect=true";
    let calls = (0..1_000).map(|i| format!("c{i} = f32[2] {call}, {side_effect}\n"));
    let calls: String = calls.collect();
    let mut before =
        format!("s {{\nx = f32[2] parameter(0)\n{calls}ROOT r = f32[2] negate(x)\n}}\n");
    let mut body = "x = f32[2] constant({1,2})\n".to_owned();
    for i in 0..2_000 {
        before +=
            &format!("f{i} {{\ny = f32[2] parameter(0)\nROOT z = f32[2] call(y), to_apply=s\n}}\n");
        body += &format!("b{i} = f32[2] call(x), to_apply=f{i}\n");
    }
    let text = module(&before, &(body + "ROOT r = f32[2] negate(x)"));
    let flags = ["--target", "negate=negate.wasm", "--deadline", "100ms"];
    check_with(&text, &flags, "DEADLINE_EXCEEDED", "deadline");
}

/// Each call had a record of the dimensions of each of its operands: 8 KB for two bytes of text.
#[test]
fn custom_calls_of_many_dimensions() {
    let shape = format!("f32[{}]", list("1", 255));
    let call = |i| {
        format!(
            "c{i} = f32[2] custom-call({}), custom_call_target=\"negate\", \
             api_version=API_VERSION_TYPED_FFI, custom_call_has_side_effect=true\n",
            list("x", 1_000)
        )
    };
    let calls: String = (0..20).map(call).collect();
    let body = format!("x = {shape} iota(), iota_dimension=0\n{calls}ROOT r = f32[2] negate(c0)");
    check_with(
        &module("", &body),
        &["--target", "negate=negate.wasm"],
        "RESOURCE_EXHAUSTED",
        "expected at most 4194304 dimensions of operands and results of custom calls, found more",
    );
}

/// Each call was compared with all parameters of the function: 50 s for 21 MB of text.
#[test]
fn graphs_of_many_parameters_without_arrays() {
    let parameters: String = (0..20_000)
        .map(|i| format!("p{i} = () parameter({i})\n"))
        .collect();
    let function = format!("f {{\n{parameters}ROOT r = s32[] constant(7)\n}}\n");
    let call = |i| {
        format!(
            "c{i} = s32[] custom-call(), custom_call_target=\"callbox.graph.launch\", \
             api_version=API_VERSION_TYPED_FFI, backend_config={{capture=@f}}, \
             custom_call_has_side_effect=true\n"
        )
    };
    let calls: String = (0..2_000).map(call).collect();
    let body = format!("{calls}ROOT r = s32[] negate(c0)");
    check_with(
        &module(&function, &body),
        &[],
        "RESOURCE_EXHAUSTED",
        "expected at most 1048576 arrays as operands and results of custom calls",
    );
}

/// callbox runs these functions. Each was compared with all names of a module's targets, for a
/// message that was thrown away.
#[test]
fn functions_of_lapack_beside_many_targets() {
    let exports = (0..10_000).map(|i| format!(r#"(export "lapack_spotrf_ffi_{i:040}" (func $f))"#));
    let wasm = format!(
        r#"(module (memory (export "memory") 1) (func $f (param i32) (result i32) i32.const 0) {})"#,
        exports.collect::<String>()
    );
    let call = |i| {
        format!(
            "c{i} = (f32[1,1]{{0,1}}, s32[]) custom-call(x), \
             custom_call_target=\"lapack_spotrf_ffi\", api_version=API_VERSION_TYPED_FFI, \
             operand_layout_constraints={{f32[1,1]{{0,1}}}}, backend_config={{uplo = 76 : ui8}}\n"
        )
    };
    let calls: String = (0..4_000).map(call).collect();
    let body = format!("x = f32[1,1] constant({{{{1}}}})\n{calls}ROOT r = f32[1,1] negate(x)");
    let folder = Folder::new();
    folder.write("p.hlo", module("", &body));
    folder.write("k/many.wasm", wat::parse_str(wasm).unwrap());
    let ran = limited(&folder, 256, &["run", "p.hlo", "--targets", "k"]);
    assert_eq!(ran.code, 0, "{}", shown(&ran));
}

/// 3,400 functions that launch each other overflowed the stack.
#[test]
fn functions_that_launch_each_other() {
    let shape = "f32[]";
    let launch = |i| {
        format!(
            "{shape} custom-call(x), custom_call_target=\"callbox.graph.launch\", \
             api_version=API_VERSION_TYPED_FFI, called_computations={{c{i}}}, \
             backend_config={{capture = @c{i}}}"
        )
    };
    let program = |count| {
        let mut before =
            format!("c0 {{\nx = {shape} parameter(0)\nROOT y = {shape} negate(x)\n}}\n");
        for i in 1..count {
            let body = launch(i - 1);
            before += &format!("c{i} {{\nx = {shape} parameter(0)\nROOT y = {body}\n}}\n");
        }
        let last = launch(count - 1);
        module(
            &before,
            &format!("x = {shape} constant(1)\nROOT r = {last}"),
        )
    };
    check(&program(8), "OK", "");
    let message = "expected functions that launch others at most 8 deep, found more";
    for count in [9, 5_000] {
        check(&program(count), "RESOURCE_EXHAUSTED", message);
    }
}

#[test]
fn arrays_of_many_dimensions() {
    for (dimensions, status) in [
        (255, "OK"),
        (256, "RESOURCE_EXHAUSTED"),
        (100_000, "RESOURCE_EXHAUSTED"),
    ] {
        let body = format!(
            "ROOT c = f32[{}] iota(), iota_dimension=0",
            list("1", dimensions)
        );
        let ones = if status == "OK" {
            ""
        } else {
            "at most 255 dimensions"
        };
        check(&module("", &body), status, ones);
    }
}

#[test]
fn long_chains() {
    let mut body = "a0 = f32[] constant(1)\n".to_owned();
    for i in 0..10_000 {
        body += &format!("a{} = f32[] negate(a{i})\n", i + 1);
    }
    check(
        &module("", &(body + "ROOT r = f32[] copy(a10000)")),
        "OK",
        "",
    );
}

/// Operands and shapes take many times the memory of their text.
#[test]
fn many_operands_and_shapes() {
    let operands = list("t", (1 << 20) + 1);
    let body = format!("t = token[] after-all()\nROOT r = token[] after-all({operands})");
    check(
        &module("", &body),
        "RESOURCE_EXHAUSTED",
        "at most 1048576 operands",
    );
    let shape = format!("({})", list("()", 1 << 19));
    let body: String = (0..17)
        .map(|i| format!("p{i} = {shape} parameter({i})\n"))
        .collect();
    let text = module("", &(body + "ROOT r = f32[] constant(1)"));
    let folder = Folder::new();
    folder.write("p.hlo", text);
    let ran = limited(&folder, 2048, &["run", "p.hlo"]);
    assert_eq!(ran.code, 1, "{}", shown(&ran));
    assert!(
        ran.stderr.contains("8388608 operands and shapes"),
        "{}",
        shown(&ran)
    );
}

#[test]
fn constants_that_are_large() {
    let count = 1_000_000;
    let body = format!(
        "c = u8[{count}] constant({{{}}})\nROOT s = u8[1] slice(c), slice={{[0:1]}}",
        list("1", count)
    );
    check(&module("", &body), "OK", "");
    let wrong = format!(
        "ROOT c = u8[{}] constant({{{}}})",
        count + 1,
        list("1", count)
    );
    check(&module("", &wrong), "INVALID_ARGUMENT", "elements");
}

#[test]
fn messages_that_quote_the_text() {
    let long = "n".repeat(5_000_000);
    for (body, status) in [
        (
            format!("ROOT {long} = f32[] add({long}, {long})"),
            "INVALID_ARGUMENT",
        ),
        (
            format!("c = f32[] constant(1)\nROOT {long} = f32[2] negate(c)"),
            "INVALID_ARGUMENT",
        ),
        (
            format!("ROOT c = f32[] constant({long})"),
            "INVALID_ARGUMENT",
        ),
        (
            format!("ROOT c = f32[] constant(1), {long}=1"),
            "INVALID_ARGUMENT",
        ),
        (format!("ROOT c = f32[] {long}(c)"), "INVALID_ARGUMENT"),
        (
            format!("ROOT c = f32[] custom-call(), custom_call_target=\"{long}\""),
            "NOT_FOUND",
        ),
        (
            format!("ROOT c = f32[] custom-call(), custom_call_target=\"${long}\""),
            "INVALID_ARGUMENT",
        ),
        (
            format!("ROOT {long} = f32[] custom-call(), custom_call_target=\"f\""),
            "NOT_FOUND",
        ),
        (
            format!("ROOT p = {} parameter(0)", scalars(100_000)),
            "INVALID_ARGUMENT",
        ),
        (
            format!(
                "p = {} parameter(0)\nROOT r = f32[] negate(p)",
                scalars(100_000)
            ),
            "INVALID_ARGUMENT",
        ),
    ] {
        check(&module("", &body), status, "");
    }
    let named = format!("HloModule m\nENTRY {long} {{\nROOT p = f32[] parameter(0)\n}}\n");
    check(
        &named,
        "INVALID_ARGUMENT",
        "expected an input for each parameter",
    );
    check_with(
        &named,
        &["--function", "f"],
        "NOT_FOUND",
        "expected an exported function",
    );
}
