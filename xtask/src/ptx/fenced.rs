//! Assembles the kernels of `tests/ptx/kernels.json` with and without their fence: what the fence
//! costs in registers, spills and instructions, and whether the assembler keeps it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use callbox_ptx::verify::{self, Launch, Param, verify};
use callbox_ptx::{Limits, fence::fence, print, read};
use serde_json::Value;

use super::machine_code::{self, Kernel};
use crate::process::{root, say};

/// The launches of the repository's kernels.
const KERNELS: &str = "tests/ptx/kernels.json";

/// The table of what the fence costs.
const TABLE: &str = "tests/ptx/costs.tsv";

/// How many registers the fence may take. Registers decide how many threads run at once.
const MORE_REGISTERS: u32 = 8;

const HEADING: &str = "file\tkernel\tregisters\tfenced\tspills\tfenced\tinstructions\tfenced\n";

/// What a kernel takes.
#[derive(Clone, Copy)]
struct Cost {
    registers: u32,
    /// Bytes that are stored and loaded because registers do not suffice.
    spills: u32,
    instructions: usize,
}

/// NVIDIA's assembler and disassembler.
pub(super) struct Tools<'t> {
    pub(super) ptxas: &'t Path,
    pub(super) nvdisasm: &'t Path,
}

/// Measures all kernels, and writes the table or compares it.
///
/// # Errors
/// A kernel is refused or does not assemble, the assembler has removed a check, or a fence costs
/// other than the table says, or more than its limit.
pub(super) fn check(tools: &Tools<'_>, is_check: bool) -> Result<()> {
    say("Assembling fenced kernels");
    let folder = root().join("target/ptx");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let text = fs::read_to_string(root().join(KERNELS)).context(KERNELS)?;
    let kernels: Vec<Value> = serde_json::from_str(&text).context(KERNELS)?;
    let mut table = HEADING.to_owned();
    let mut excesses = Vec::new();
    let mut growth: BTreeMap<bool, Vec<f64>> = BTreeMap::new();
    for kernel in &kernels {
        let [file, entry] = ["file", "entry"].map(|key| kernel[key].as_str().unwrap_or_default());
        let [plain, fenced] = costs(tools, &folder, file, entry, kernel)
            .with_context(|| format!("{entry} of {file}"))?;
        if fenced.registers > plain.registers + MORE_REGISTERS || fenced.spills > plain.spills {
            excesses.push(format!(
                "{entry} of {file}: {} registers instead of {}, {} spilled bytes instead of {}",
                fenced.registers, plain.registers, fenced.spills, plain.spills
            ));
        }
        growth
            .entry(file.contains("triton"))
            .or_default()
            .push((fenced.instructions as f64 / plain.instructions as f64).ln());
        writeln!(
            table,
            "{file}\t{entry}\t{}\t{}\t{}\t{}\t{}\t{}",
            plain.registers,
            fenced.registers,
            plain.spills,
            fenced.spills,
            plain.instructions,
            fenced.instructions
        )?;
    }
    for (is_triton, logs) in growth {
        let mean = (logs.iter().sum::<f64>() / logs.len() as f64).exp();
        let whose = if is_triton { "Triton's" } else { "NVRTC's" };
        println!(
            "   {whose} {} kernels: {mean:.3} times the instructions",
            logs.len()
        );
    }
    let path = root().join(TABLE);
    if is_check {
        compare(&fs::read_to_string(&path).context(TABLE)?, &table)?;
    } else {
        fs::write(&path, table).with_context(|| format!("cannot write {TABLE}"))?;
    }
    ensure!(
        excesses.is_empty(),
        "at most {MORE_REGISTERS} more registers and no more spills are accepted: {}",
        excesses.join("; ")
    );
    Ok(())
}

/// # Errors
/// A row differs. The message says which.
fn compare(recorded: &str, found: &str) -> Result<()> {
    if let Some(row) = found
        .lines()
        .find(|row| !recorded.lines().any(|one| one == *row))
    {
        let same_kernel = |one: &&str| {
            let name = |row: &str| row.split('\t').take(2).collect::<Vec<_>>().join(" ");
            name(one) == name(row)
        };
        let before = recorded.lines().find(same_kernel).unwrap_or("nothing");
        bail!(
            "{TABLE} has `{before}`, found `{row}`: if the change is wanted, run `cargo xtask ptx`"
        );
    }
    let rows = found.lines().count();
    ensure!(
        recorded.lines().count() == rows,
        "{TABLE} has kernels that {KERNELS} has not: run `cargo xtask ptx`"
    );
    println!(
        "   {} kernels cost what {TABLE} says, and keep their fence",
        rows - 1
    );
    Ok(())
}

/// Assembles a kernel as its author wrote it, and with its fence.
fn costs(
    tools: &Tools<'_>,
    folder: &Path,
    file: &str,
    entry: &str,
    kernel: &Value,
) -> Result<[Cost; 2]> {
    let text = fs::read_to_string(root().join(file))?;
    let module = read(&text, file, &Limits::default())?;
    let launch = launch(kernel).with_context(|| format!("its launch in {KERNELS}"))?;
    let proof = verify(&module, entry, &launch, &verify::Limits::default());
    let proof = match proof {
        Ok(proof) => proof,
        Err(refusals) => bail!(
            "{}",
            refusals
                .first()
                .map(ToString::to_string)
                .unwrap_or_default()
        ),
    };
    let fenced = fence(&module, &proof).module;
    let architecture = format!("sm_{}", module.target.architecture);
    let path = folder.join(format!("{entry}.ptx"));
    let (plain, _) = assembled(tools, &architecture, &path, entry, &print(&module))?;
    let path = folder.join(format!("{entry}.fenced.ptx"));
    let printed = print(&fenced);
    let (cost, code) = assembled(tools, &architecture, &path, entry, &printed)?;
    for line in code.unguarded()? {
        let source = printed.lines().nth(line - 1).unwrap_or_default().trim();
        ensure!(
            !source.starts_with('@'),
            "the assembler removed the check of `{source}`, line {line} of {}",
            path.display()
        );
    }
    Ok([plain, cost])
}

fn assembled(
    tools: &Tools<'_>,
    architecture: &str,
    path: &Path,
    entry: &str,
    text: &str,
) -> Result<(Cost, Kernel)> {
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    let binary = path.with_extension("cubin");
    let mut ptxas = Command::new(tools.ptxas);
    ptxas.args([
        "-v",
        "-lineinfo",
        "--gpu-name",
        architecture,
        "--output-file",
    ]);
    let report = output(ptxas.arg(&binary).arg(path))?;
    let mut nvdisasm = Command::new(tools.nvdisasm);
    let code = output(nvdisasm.args(["-c", "-gp"]).arg(&binary))?;
    let Some(kernel) = machine_code::kernels(&code).remove(entry) else {
        bail!("nvdisasm shows no `{entry}`");
    };
    let (registers, spills) =
        resources(&report, entry).with_context(|| format!("ptxas said: {report}"))?;
    let instructions = kernel.count();
    Ok((
        Cost {
            registers,
            spills,
            instructions,
        },
        kernel,
    ))
}

/// The output of a program that must succeed, of both streams.
fn output(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    ensure!(
        output.status.success(),
        "{}: {text}",
        command.get_program().display()
    );
    Ok(text)
}

/// The registers and spilled bytes of a kernel in what `ptxas -v` prints.
fn resources(report: &str, entry: &str) -> Option<(u32, u32)> {
    let start = report.find(&format!("entry function '{entry}'"))?;
    let own = report.get(start..)?.split("Compiling entry").next()?;
    let number_before = |word: &str| {
        let (before, _) = own.split_once(word)?;
        before.split_whitespace().next_back()?.parse::<u32>().ok()
    };
    let spills = number_before("bytes spill stores")? + number_before("bytes spill loads")?;
    Some((number_before("registers")?, spills))
}

/// A launch in `tests/ptx/kernels.json`. `tests/ptx/src/launch.rs` documents the fields.
fn launch(kernel: &Value) -> Option<Launch> {
    let number = |value: &Value| u32::try_from(value.as_u64()?).ok();
    let three = |key: &str| {
        let list = kernel.get(key)?.as_array()?;
        Some([
            number(list.first()?)?,
            number(list.get(1)?)?,
            number(list.get(2)?)?,
        ])
    };
    let params = kernel.get("params")?.as_array()?.iter().map(|param| {
        let fields = param.as_object()?;
        let (kind, value) = fields.iter().next()?;
        let buffer = |writable| {
            Some(Param::Buffer {
                bytes: value.as_u64()?,
                writable,
                align: fields.get("align").map_or(Some(256), number)?,
            })
        };
        let bytes = match kind.as_str() {
            "read" => return buffer(false),
            "write" => return buffer(true),
            "u64" => value.as_u64()?.to_le_bytes().to_vec(),
            "u32" => number(value)?.to_le_bytes().to_vec(),
            "f32" => (value.as_f64()? as f32).to_le_bytes().to_vec(),
            _ => return None,
        };
        Some(Param::Value(bytes))
    });
    Some(Launch {
        grid: three("grid")?,
        block: three("block")?,
        shared_bytes: number(kernel.get("shared_bytes")?)?,
        params: params.collect::<Option<_>>()?,
        has_clock: false,
    })
}

#[cfg(test)]
mod tests {
    use super::{HEADING, compare, resources};

    #[test]
    fn resources_are_those_of_the_kernel() {
        let report = "ptxas info    : Compiling entry function 'a' for 'sm_80'\n\
            ptxas info    : Function properties for a\n\
            \x20   0 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n\
            ptxas info    : Used 26 registers, used 0 barriers, 400 bytes cmem[0]\n\
            ptxas info    : Compiling entry function 'b' for 'sm_80'\n\
            ptxas info    : Function properties for b\n\
            \x20   0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
            ptxas info    : Used 9 registers\n";
        assert_eq!(resources(report, "a"), Some((26, 12)));
        assert_eq!(resources(report, "b"), Some((9, 0)));
        assert_eq!(resources(report, "c"), None);
    }

    #[test]
    fn growth_fails() {
        let table = |registers: u32| format!("{HEADING}a.ptx\tk\t8\t{registers}\t0\t0\t10\t11\n");
        assert!(compare(&table(10), &table(10)).is_ok());
        assert!(compare(&table(10), &table(11)).is_err());
        assert!(compare(&table(10), HEADING).is_err());
    }
}
