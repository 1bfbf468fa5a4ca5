//! Programs that would take much more time or memory while they run than their arrays say.

use super::programs::check_with;
use super::{MEMORY, limited, module, shown};
use crate::support::Folder;

const ADD: &str =
    "add {\na = f32[] parameter(0)\nb = f32[] parameter(1)\nROOT s = f32[] add(a, b)\n}\n";

/// Runs the body of an entry computation, in which `z` is a scalar.
#[track_caller]
fn check_body(body: &str, status: &str, contains: &str) {
    let text = module(ADD, &format!("z = f32[] constant(0)\n{body}"));
    check_with(&text, &["--deadline", "10s"], status, contains);
}

#[test]
fn arrays_without_elements() {
    for body in [
        "ROOT r = f32[500000000,0] iota(), iota_dimension=0",
        "x = f32[20000,20000,0] broadcast(z), dimensions={}\n\
         u = f32[1,20000,20000,0] broadcast(z), dimensions={}\n\
         i = s32[1,1] constant({{0}})\n\
         ROOT r = f32[20000,20000,0] scatter(x, i, u), update_window_dims={1,2,3}, \
         inserted_window_dims={}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, \
         to_apply=add",
        "x = f32[3] broadcast(z), dimensions={}\n\
         u = f32[1000000000000,0] broadcast(z), dimensions={}\n\
         y = s32[] constant(0)\n\
         i = s32[1000000000000,0] broadcast(y), dimensions={}\n\
         ROOT r = f32[3] scatter(x, i, u), update_window_dims={1}, inserted_window_dims={}, \
         scatter_dims_to_operand_dims={}, index_vector_dim=1, to_apply=add",
        "x = f32[1] broadcast(z), dimensions={}\n\
         ROOT r = f32[0] reduce-window(x, z), window={size=1099511627776 pad=0_1000000000}, \
         to_apply=add",
    ] {
        check_body(body, "OK", "");
    }
}

/// The size of its indices overflowed.
#[test]
fn indices_along_a_giant_dimension() {
    let body = "ROOT r = u8[4611686018427387904] iota(), iota_dimension=0";
    check_body(body, "RESOURCE_EXHAUSTED", "4611686018427387904");
}

#[test]
fn windows_of_much_padding() {
    check_body(
        "x = f32[1] broadcast(z), dimensions={}\n\
         ROOT r = f32[1] reduce-window(x, z), window={size=1000000000 pad=0_999999999}, \
         to_apply=add",
        "RESOURCE_EXHAUSTED",
        "expected a window for which f32[1] is padded and dilated to at most 4194368 elements",
    );
}

/// The padding of each operand was kept: 64 MiB for two characters.
#[test]
fn windows_of_many_padded_arrays() {
    const COUNT: usize = 60;
    let types = |one: &str| vec![one; COUNT].join(", ");
    let mut add = "add {\n".to_owned();
    for i in 0..2 * COUNT {
        add += &format!("p{i} = c128[] parameter({i})\n");
    }
    let first: Vec<String> = (0..COUNT).map(|i| format!("p{i}")).collect();
    add += &format!(
        "ROOT t = ({}) tuple({})\n}}\n",
        types("c128[]"),
        first.join(", ")
    );
    // An array that is named several times is padded once.
    let arrays: String = (0..COUNT)
        .map(|i| format!("x{i} = c128[0] broadcast(z), dimensions={{}}\n"))
        .collect();
    let names: Vec<String> = (0..COUNT).map(|i| format!("x{i}")).collect();
    let body = format!(
        "z = c128[] constant((0, 0))\n{arrays}\
         ROOT r = ({}) reduce-window({}, {}), window={{size=4194304 pad=0_4194304}}, to_apply=add",
        types("c128[1]"),
        names.join(", "),
        types("z")
    );
    let contains = "expected a window for which c128[0] is padded and dilated to at most";
    check_with(&module(&add, &body), &[], "RESOURCE_EXHAUSTED", contains);
}

/// An array was padded for each initial value: 1 GB.
#[test]
fn one_array_as_many_operands_of_a_window() {
    const COUNT: usize = 60;
    let list = |one: &str| vec![one; COUNT].join(", ");
    let parameters: String = (0..2 * COUNT)
        .map(|i| format!("p{i} = f32[] parameter({i})\n"))
        .collect();
    let first: Vec<String> = (0..COUNT).map(|i| format!("p{i}")).collect();
    let all = format!(
        "all {{\n{parameters}ROOT t = ({}) tuple({})\n}}\n",
        list("f32[]"),
        first.join(", ")
    );
    let constants: String = (1..COUNT)
        .map(|i| format!("z{i} = f32[] constant({i})\n"))
        .collect();
    let initial: Vec<String> = (1..COUNT).map(|i| format!("z{i}")).collect();
    let body = format!(
        "z = f32[] constant(0)\n{constants}\
         x = f32[65536] broadcast(z), dimensions={{}}\n\
         w = ({}) reduce-window({}, z, {}), \
         window={{size=1 stride=4194304 pad=0_4128768}}, to_apply=all\n\
         ROOT r = f32[1] get-tuple-element(w), index=0",
        list("f32[1]"),
        list("x"),
        initial.join(", ")
    );
    check_with(&module(&all, &body), &[], "OK", "");
}

/// The operands of a graph were copied one by one: 1.2 GB.
#[test]
fn one_array_as_many_operands_of_a_graph() {
    const COUNT: usize = 300;
    let parameters: String = (1..COUNT)
        .map(|i| format!("p{i} = f32[1048576] parameter({i})\n"))
        .collect();
    let graph = format!("g {{\nROOT p0 = f32[1048576] parameter(0)\n{parameters}}}\n");
    let body = format!(
        "z = f32[] constant(0)\nx = f32[1048576] broadcast(z), dimensions={{}}\n\
         y = f32[1048576] custom-call({}), custom_call_target=\"callbox.graph.launch\", \
         api_version=API_VERSION_TYPED_FFI, called_computations={{g}}, \
         backend_config=\"{{capture = @g}}\"\n\
         ROOT r = f32[1] slice(y), slice={{[0:1]}}",
        vec!["x"; COUNT].join(", ")
    );
    check_with(&module(&graph, &body), &[], "OK", "");
}

/// Each function had a list of the custom calls that all share.
#[test]
fn functions_that_share_many_custom_calls() {
    let launch = |name: &str, operand: &str, function: &str| {
        format!(
            "{name} = f32[] custom-call({operand}), custom_call_target=\"callbox.graph.launch\", \
             api_version=API_VERSION_TYPED_FFI, called_computations={{{function}}}, \
             backend_config=\"{{capture = @{function}}}\"\n"
        )
    };
    let mut before = "id {\nROOT p = f32[] parameter(0)\n}\n\
                      shared {\nx0 = f32[] parameter(0)\n"
        .to_owned();
    for i in 1..2048 {
        before += &launch(&format!("x{i}"), &format!("x{}", i - 1), "id");
    }
    before += "ROOT r = f32[] negate(x2047)\n}\n";
    let mut body = "x0 = f32[] constant(1)\n".to_owned();
    for i in 1..1100 {
        before += &format!(
            "f{i} {{\np = f32[] parameter(0)\nno = pred[] constant(false)\n\
             ROOT r = f32[] conditional(no, p, p), true_computation=shared, \
             false_computation=id\n}}\n"
        );
        body += &launch(&format!("x{i}"), &format!("x{}", i - 1), &format!("f{i}"));
    }
    body += "ROOT r = f32[] negate(x1099)";
    let contains = "expected functions that use at most 2097152 custom calls";
    check_with(&module(&before, &body), &[], "RESOURCE_EXHAUSTED", contains);
}

/// All values of a computation were kept for all elements: four gigabytes.
#[test]
fn computations_of_many_values() {
    let mut many = "many {\nx0 = f64[] parameter(0)\n".to_owned();
    for i in 1..120 {
        many += &format!("x{i} = f64[] add(x{}, x0)\n", i - 1);
    }
    many += "y0 = f64[] add(x0, x1)\n";
    for i in 2..120 {
        many += &format!("y{} = f64[] add(y{}, x{i})\n", i - 1, i - 2);
    }
    many += "ROOT r = f64[] negate(y118)\n}\n";
    let body = "z = f64[] constant(1)\nx = f64[4000000] broadcast(z), dimensions={}\n\
                ROOT r = f64[4000000] map(x), dimensions={0}, to_apply=many";
    let folder = Folder::new();
    folder.write("p.hlo", module(&many, body));
    let ran = limited(&folder, 400, &["run", "p.hlo", "--output", "y.npy"]);
    assert_eq!(ran.code, 0, "{}", shown(&ran));
}

/// All windows together have two gigabytes, and those along one dimension one.
#[test]
fn convolutions_of_large_kernels() {
    for body in [
        "x = f32[1,1,600,600] broadcast(z), dimensions={}\n\
         k = f32[1,1,40,40] broadcast(z), dimensions={}\n\
         ROOT r = f32[1,1,561,561] convolution(x, k), window={size=40x40}, \
         dim_labels=bf01_oi01->bf01",
        "x = f32[1,1,600,600] broadcast(z), dimensions={}\n\
         k = f32[1,1,600,600] broadcast(z), dimensions={}\n\
         ROOT r = f32[1,1,1,601] convolution(x, k), window={size=600x600 pad=0_0x300_300}, \
         dim_labels=bf01_oi01->bf01",
    ] {
        let folder = Folder::new();
        folder.write(
            "p.hlo",
            module("", &format!("z = f32[] constant(0)\n{body}")),
        );
        let ran = limited(&folder, 400, &["run", "p.hlo", "--output", "y.npy"]);
        assert_eq!(ran.code, 0, "{}", shown(&ran));
    }
}

/// They run together, tile by tile: the deadline was looked at between tiles alone.
#[test]
fn very_many_elementwise_instructions() {
    let mut body =
        "z = c128[] constant((0.5, 0.25))\na0 = c128[8192] broadcast(z), dimensions={}\n"
            .to_owned();
    for i in 1..20_000 {
        body += &format!("a{i} = c128[8192] power(a{0}, a{0})\n", i - 1);
    }
    body += "ROOT r = c128[8192] negate(a19999)";
    let flags = ["--deadline", "100ms"];
    check_with(&module("", &body), &flags, "DEADLINE_EXCEEDED", "deadline");
}

/// Each input was compared with each instruction.
#[test]
fn elementwise_instructions_of_very_many_inputs() {
    let mut body = "p = f32[8192] iota(), iota_dimension=0\na0 = f32[8192] add(p, p)\n".to_owned();
    for i in 1..200_000 {
        let before = i - 1;
        body += &format!("r{i} = f32[8192] reshape(p)\na{i} = f32[8192] add(a{before}, r{i})\n");
    }
    body += "s = f32[1] slice(a199999), slice={[0:1]}\nROOT r = f32[1] negate(s)";
    let folder = Folder::new();
    folder.write("p.hlo", module("", &body));
    let ran = limited(&folder, 1024, &["run", "p.hlo"]);
    assert_eq!(ran.code, 0, "{}", shown(&ran));
}

/// The array of each instruction was kept to the end.
#[test]
fn computations_of_many_instructions_on_whole_arrays() {
    let mut of_scalars = "f {\na0 = c128[] parameter(0)\n".to_owned();
    for i in 1..200 {
        of_scalars += &format!("a{i} = c128[] negate(a{})\n", i - 1);
    }
    of_scalars += "ROOT r = c128[] negate(a199)\n}\n";
    let body = "z = c128[] constant((0.5, 0.25))\n\
                x = c128[1048576] broadcast(z), dimensions={}\n\
                y = c128[1048576] map(x), dimensions={0}, to_apply=f\n\
                s = c128[1] slice(y), slice={[0:1]}\n\
                ROOT r = c128[1] negate(s)";
    let folder = Folder::new();
    folder.write("p.hlo", module(&of_scalars, body));
    let ran = limited(&folder, MEMORY, &["run", "p.hlo"]);
    assert_eq!(ran.code, 0, "{}", shown(&ran));
}

/// Each attribute was looked for among all functions.
#[test]
fn attributes_that_name_very_many_functions() {
    const COUNT: usize = 150_000;
    let names = (0..COUNT).map(|i| format!("f{i} {{\np = f32[] parameter(0)\n}}\n"));
    let functions: String = names.collect();
    let attributes: Vec<_> = (0..COUNT).map(|i| format!("a{i} = @f{i}")).collect();
    let body = format!(
        "z = f32[2] constant({{1,2}})\nROOT r = f32[2] custom-call(z), \
         custom_call_target=\"negate\", api_version=API_VERSION_TYPED_FFI, \
         backend_config={{{}}}",
        attributes.join(", ")
    );
    let folder = Folder::new();
    folder.write("p.hlo", module(&functions, &body));
    folder.module("negate.wasm", crate::guests::NEGATE);
    let ran = limited(
        &folder,
        1024,
        &["run", "p.hlo", "--target", "negate=negate.wasm"],
    );
    assert_eq!(ran.code, 0, "{}", shown(&ran));
}

/// What they keep for each element is many times its size.
#[test]
fn instructions_without_memory_fail() {
    let x = "x = u8[60000000] iota(), iota_dimension=0";
    let less = "f {\na = u8[] parameter(0)\nb = u8[] parameter(1)\n\
                ROOT s = pred[] compare(a, b), direction=LT\n}\n";
    let second = "f {\na = u8[] parameter(0)\nROOT b = u8[] parameter(1)\n}\n";
    for (before, instruction) in [
        (less, "sort(x), dimensions={0}, to_apply=f"),
        (
            second,
            "scatter(x, i, x), update_window_dims={}, inserted_window_dims={0}, \
             scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f",
        ),
        (
            "",
            "gather(x, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, \
             index_vector_dim=1, slice_sizes={1}",
        ),
    ] {
        let body = format!(
            "{x}\ni = u8[60000000,1] reshape(x)\ny = u8[60000000] {instruction}\n\
             s = u8[1] slice(y), slice={{[0:1]}}\nROOT r = u8[1] negate(s)"
        );
        let folder = Folder::new();
        folder.write("p.hlo", module(before, &body));
        let ran = limited(&folder, 1024, &["run", "p.hlo"]);
        assert_eq!(ran.code, 1, "{}", shown(&ran));
        let message = "out of memory while trying to allocate";
        assert!(ran.stderr.contains(message), "{}", shown(&ran));
    }
}
