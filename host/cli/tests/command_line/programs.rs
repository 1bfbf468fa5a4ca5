//! `callbox run`: inputs without files, and targets that callbox itself has or tells apart.

use crate::run::folder;
use crate::support::{Folder, Ran};

#[test]
fn lists_and_standard_input_are_inputs() {
    let folder = folder();
    let expected = "result 0: f32[3]{0}\n  1.5, 2.25, -3.0\n  min -3.0, max 2.25, mean 0.25\n";
    let lists = [
        "run",
        "add.hlo",
        "--input",
        "0=[1,2,-3.5]",
        "--input",
        "1=[0.5,0.25,0.5]:f32",
    ];
    assert_eq!(folder.run(&lists).done(), expected);
    let piped = |arguments: &[&str], file: &str| {
        let mut command = folder.command(arguments);
        let file = std::fs::File::open(folder.path(file)).unwrap();
        Ran::new(&command.stdin(file).output().unwrap())
    };
    let x = ["run", "add.hlo", "--input", "0=-", "--input", "1=y.npy"];
    assert_eq!(piped(&x, "x.npy").done(), expected);
    let program = ["run", "-", "--input", "0=x.npy", "--input", "1=y.npy"];
    assert_eq!(piped(&program, "add.hlo").done(), expected);
    for (list, message) in [
        ("0=[1,2]", "--input 0: [1,2]: expected f32[3], found f32[2]"),
        ("0=1.5", "--input 0: 1.5: expected f32[3], found f32[]"),
        (
            "0=[1,2,3]:s32",
            "--input 0: [1,2,3]:s32: expected f32[3], found s32[3]",
        ),
        (
            "0=[1,2,true]",
            "--input 0: [1,2,true]: expected a value of f32, found true",
        ),
    ] {
        let arguments = ["run", "add.hlo", "--input", list, "--input", "1=y.npy"];
        folder.refuse(&arguments, 1, "INVALID_ARGUMENT", message);
    }
}

#[test]
fn one_result_goes_to_standard_output_or_a_file() {
    let folder = folder();
    let run = [
        "run", "add.hlo", "--input", "0=x.npy", "--input", "1=y.npy", "--output",
    ];
    let output = |arguments: &[&str]| folder.command(arguments).output().unwrap();
    let piped = output(&[&run[..], &["-"]].concat());
    assert!(piped.status.success() && piped.stderr.is_empty());
    folder.write("piped.npy", &piped.stdout);
    let expected = (vec![3], vec![1.5_f32, 2.25, -3.0]);
    assert_eq!(folder.read_npy("piped.npy"), expected);

    // The output of one command is the input of another.
    let mut next = folder.command(&[
        "call",
        "negate.wasm",
        "negate",
        "--operand",
        "-",
        "--result",
        "f32[3]",
        "--output",
        "-",
    ]);
    let file = std::fs::File::open(folder.path("piped.npy")).unwrap();
    folder.write("next.npy", next.stdin(file).output().unwrap().stdout);
    assert_eq!(
        folder.read_npy("next.npy"),
        (vec![3], vec![-1.5_f32, -2.25, 3.0])
    );

    let text = folder.run(&[&run[..], &["z.npy"]].concat()).done();
    assert!(text.ends_with("  written to z.npy\n"), "{text}");
    assert_eq!(folder.read_npy("z.npy"), expected);
    folder.refuse(
        &[&run[..], &["-"]].concat(),
        2,
        "INVALID_ARGUMENT",
        "expected a file for --output with --json",
    );
    for (shape, message) in [
        (
            "(f32[3], f32[3]) tuple(x, x)",
            "expected one result for --output, found 2",
        ),
        (
            "bf16[3] convert(x)",
            "expected one result for --output, found one of bf16",
        ),
    ] {
        let program = format!(
            "HloModule m\nENTRY main {{\n  x = f32[3] parameter(0)\n  ROOT y = {shape}\n}}\n"
        );
        folder.write("p.hlo", program);
        let run = ["run", "p.hlo", "--input", "0=x.npy", "--output", "w.npy"];
        folder.refuse(&run, 1, "INVALID_ARGUMENT", message);
        assert!(!folder.path("w.npy").exists());
    }
}

#[test]
fn graphs_have_the_name_of_xlas_proposal() {
    let folder = folder();
    folder.write(
        "graph.hlo",
        "HloModule m\nf {\n  x = f32[3] parameter(0)\n  ROOT y = f32[3] negate(x)\n}\nENTRY main {\n  \
         x = f32[3] parameter(0)\n  ROOT y = f32[3] custom-call(x), \
         custom_call_target=\"xla.graph.launch\", api_version=API_VERSION_TYPED_FFI, \
         backend_config={capture = @f}\n}\n",
    );
    let run = ["run", "graph.hlo", "--input", "0=x.npy"];
    assert!(folder.run(&run).done().contains("-1.0, -2.0, 3.5"));
    // A module's own target goes first.
    let own = [&run[..], &["--target", "xla.graph.launch=faults.wasm#fail"]].concat();
    assert!(folder.run(&own).code != 0);
}

#[test]
fn functions_that_belong_to_others_are_told_apart() {
    let folder = Folder::new();
    for (target, reason) in [
        ("lapack_ssyevd_ffi", "it is LAPACK's, which jaxlib links"),
        (
            "xla_ffi_python_cpu_callback",
            "it calls back into the Python process",
        ),
        (
            "__cublas$gemm",
            "it is XLA's own, from text after optimisation",
        ),
    ] {
        folder.write(
            "p.hlo",
            format!(
                "HloModule m\nENTRY main {{\n  ROOT y = f32[] custom-call(), \
                 custom_call_target=\"{target}\"\n}}\n"
            ),
        );
        folder.refuse(&["run", "p.hlo"], 1, "NOT_FOUND", reason);
    }
}

/// Arrays without elements can have dimensions beyond any memory.
#[test]
fn rows_that_are_longer_than_any_memory_are_not_allocated() {
    let folder = folder();
    folder.write(
        "top.hlo",
        "HloModule m\nENTRY main {\n  c = u8[] constant(7)\n  \
         x = u8[0,1152921504606846976] broadcast(c), dimensions={}\n  \
         ROOT t = (u8[0,1], s32[0,1]) topk(x), k=1, largest=true\n}\n",
    );
    let text = folder.run(&["run", "top.hlo"]).done();
    assert!(
        text.contains("u8[0,1]") && text.contains("s32[0,1]"),
        "{text}"
    );
}
