//! The kernels of `guests/others`, in languages whose compilers are not needed otherwise.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{command_line, debug_program, root, run, say, succeeds};
use crate::summary::Outcome;

/// The folder of the modules.
const BUILT: &str = "target/others";

/// The kernels' declaration, which their compilers cannot write into a module.
const DECLARED: &str = "guests/others/targets.json";

const ZIG: &[&str] = &[
    "build-exe",
    "guests/others/scale.zig",
    "-target",
    "wasm32-freestanding",
    "-mcpu=generic+simd128+bulk_memory",
    "-OReleaseFast",
    "-fno-entry",
    "-fstrip",
    "--export=scale",
    "--stack",
    "65536",
    "-femit-bin=target/others/zig.wasm",
];

const ASSEMBLYSCRIPT: &[&str] = &[
    "guests/others/scale.ts",
    "-O3",
    "--noAssert",
    "--runtime",
    "minimal",
    "--use",
    "abort=",
    "--enable",
    "simd",
    "-o",
    "target/others/assemblyscript.wasm",
];

/// A compiler: its name, the commands that may start it, with an argument that shows its version,
/// and how to get it.
struct Compiler {
    name: &'static str,
    commands: &'static [&'static [&'static str]],
    version: &'static str,
    source: &'static str,
    arguments: &'static [&'static str],
}

const COMPILERS: [Compiler; 2] = [
    Compiler {
        name: "zig",
        commands: &[&["zig"], &["python3", "-m", "ziglang"]],
        version: "version",
        source: "pip install ziglang",
        arguments: ZIG,
    },
    Compiler {
        name: "assemblyscript",
        commands: &[&["asc"], &["npx", "--no-install", "asc"]],
        version: "--version",
        source: "npm install --global assemblyscript",
        arguments: ASSEMBLYSCRIPT,
    },
];

/// Builds the kernels whose compilers are there, declares them, and calls them.
pub(crate) fn test() -> Result<Outcome> {
    std::fs::create_dir_all(root().join(BUILT)).with_context(|| format!("cannot make {BUILT}"))?;
    let mut missing = Vec::new();
    for compiler in &COMPILERS {
        match compiler.command() {
            Some(mut command) => {
                say(&format!(
                    "Building and calling a kernel with {}",
                    compiler.name
                ));
                run(command.args(compiler.arguments))?;
                check(&Path::new(BUILT).join(format!("{}.wasm", compiler.name)))?;
            }
            None => missing.push(format!(
                "{} is missing ({})",
                compiler.name, compiler.source
            )),
        }
    }
    if missing.is_empty() {
        Ok(Outcome::Ran)
    } else {
        Ok(Outcome::NotRun(missing.join("; ")))
    }
}

/// Runs `cargo xtask others`.
pub(crate) fn show() -> Result<()> {
    if let Outcome::NotRun(reason) = test()? {
        println!("not run: {reason}");
    }
    Ok(())
}

impl Compiler {
    /// The command that starts the compiler in the repository's root, if one does.
    fn command(&self) -> Option<Command> {
        let command = |words: &[&str]| {
            let mut command = Command::new(words.first()?);
            command.args(&words[1..]).current_dir(root());
            Some(command)
        };
        let mut commands = self.commands.iter();
        let found = commands.find(|words| {
            command(words).is_some_and(|mut command| succeeds(command.arg(self.version)))
        });
        command(found?)
    }
}

/// Declares the module's target, and checks its results and its failure.
fn check(module: &Path) -> Result<()> {
    run(debug_program("callbox")
        .arg("annotate")
        .arg(module)
        .arg(DECLARED))?;
    for (n, expected) in [
        ("2.0", "2.0, -4.0, 7.0, 8.0, 10.0"),
        ("-1.0", "INVALID_ARGUMENT"),
    ] {
        let mut call = debug_program("callbox");
        call.arg("call").arg(module).arg("scale");
        call.args([
            "--operand",
            "[1.0,-2.0,3.5,4.0,5.0]:f32",
            "--result",
            "f32[5]",
        ]);
        call.arg("--attr").arg(format!("n={n}:f32"));
        println!("   {}", command_line(&call));
        let output = call.output()?;
        let printed = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&printed);
        ensure!(
            printed.contains(expected),
            "expected {expected} of {} with n = {n}, found {printed}",
            module.display()
        );
    }
    Ok(())
}
