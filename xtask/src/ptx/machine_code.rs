//! Reads `nvdisasm`'s text: which instructions a kernel has, and what guards its accesses.

use std::collections::BTreeMap;

use anyhow::{Result, bail};

/// Instructions that access memory of the device or of the block. Threads cannot reach one
/// another through `LDL`, `STL` and `LDC`, which the compiler's own spills and constants use.
const ACCESSES: [&str; 11] = [
    "LDG", "STG", "LDGSTS", "ATOMG", "ATOM", "RED", "LD", "ST", "LDS", "STS", "ATOMS",
];

/// The machine code of one kernel.
#[derive(Default)]
pub(super) struct Kernel {
    instructions: Vec<Instruction>,
    /// The index of the instruction behind each label.
    labels: BTreeMap<String, usize>,
}

struct Instruction {
    /// The line of the PTX text that it comes from.
    line: Option<usize>,
    is_predicated: bool,
    opcode: String,
    operands: String,
}

/// Reads the kernels of a text that `nvdisasm -c -gp` printed, by name.
pub(super) fn kernels(text: &str) -> BTreeMap<String, Kernel> {
    let mut found: BTreeMap<String, Kernel> = BTreeMap::new();
    let (mut current, mut line) = (None, None);
    for row in text.lines().map(str::trim) {
        if let Some(name) = row
            .strip_prefix(".text.")
            .and_then(|row| row.strip_suffix(':'))
        {
            current = Some(found.entry(name.to_owned()).or_default());
            line = None;
        } else if row.starts_with(".section") {
            current = None;
        }
        let Some(kernel) = &mut current else { continue };
        if let Some((_, number)) = row
            .strip_prefix("//##")
            .and_then(|row| row.rsplit_once(' '))
        {
            line = number.parse().ok();
        } else if let Some(label) = row.strip_suffix(':') {
            let next = kernel.instructions.len();
            kernel.labels.insert(label.to_owned(), next);
        } else if let Some((_, code)) = row.strip_prefix("/*").and_then(|row| row.split_once("*/"))
        {
            kernel.instructions.extend(instruction(code, line));
        }
    }
    found
}

fn instruction(code: &str, line: Option<usize>) -> Option<Instruction> {
    let code = code.split(';').next()?.trim();
    let (guard, code) = match code.strip_prefix('@') {
        Some(guarded) => guarded.split_once(char::is_whitespace)?,
        None => ("", code),
    };
    let code = code.trim();
    let (opcode, operands) = code.split_once(char::is_whitespace).unwrap_or((code, ""));
    Some(Instruction {
        line,
        is_predicated: !matches!(guard, "" | "PT" | "UPT"),
        opcode: opcode.to_owned(),
        operands: operands.to_owned(),
    })
    .filter(|found| !found.opcode.is_empty())
}

impl Instruction {
    /// The name without modifiers: `LDG` of `LDG.E.128`.
    fn stem(&self) -> &str {
        self.opcode.split('.').next().unwrap_or(&self.opcode)
    }

    /// The label in `BRA `(.L_x_1)`.
    fn label(&self) -> Option<&str> {
        let (_, label) = self.operands.rsplit_once("`(")?;
        label.strip_suffix(')')
    }
}

impl Kernel {
    /// How many instructions the kernel has, without what fills its end.
    pub(super) fn count(&self) -> usize {
        let instructions = self.instructions.iter();
        instructions.filter(|one| one.stem() != "NOP").count()
    }

    /// The lines of the PTX text whose accesses nothing guards in the machine code: they are not
    /// predicated, and threads reach them whatever the branches before them decide.
    ///
    /// # Errors
    /// An access comes from no line, or an instruction could branch to anywhere.
    pub(super) fn unguarded(&self) -> Result<Vec<usize>> {
        let accesses = self
            .instructions
            .iter()
            .enumerate()
            .filter(|(_, one)| ACCESSES.contains(&one.stem()) && !one.is_predicated);
        let mut open: BTreeMap<usize, Option<usize>> =
            accesses.map(|(at, one)| (at, one.line)).collect();
        let edges = self.edges()?;
        for (from, next) in edges.iter().enumerate() {
            if open.is_empty() {
                break;
            }
            let is_choice = self.instructions.get(from).is_some_and(|one| {
                one.is_predicated && matches!(one.stem(), "BRA" | "EXIT" | "RET")
            });
            for &to in next.iter().filter(|_| is_choice) {
                let reached = reached(&edges, (from, to));
                open.retain(|access, _| reached.get(*access) == Some(&true));
            }
        }
        open.into_iter()
            .map(|(at, line)| match line {
                Some(line) => Ok(line),
                None => bail!("instruction {at} of the machine code comes from no line"),
            })
            .collect()
    }

    /// Where control can go from each instruction.
    fn edges(&self) -> Result<Vec<Vec<usize>>> {
        let mut joins: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for one in self.instructions.iter().filter(|one| one.stem() == "BSSY") {
            let register = one.operands.split(',').next().unwrap_or_default();
            let to = one.label().and_then(|label| self.labels.get(label));
            joins.entry(register).or_default().extend(to);
        }
        let mut edges = Vec::with_capacity(self.instructions.len());
        for (at, one) in self.instructions.iter().enumerate() {
            let mut next = Vec::new();
            let ends = match one.stem() {
                "BRA" | "CALL" | "BREAK" => {
                    let to = one.label().and_then(|label| self.labels.get(label));
                    next.extend(to);
                    one.opcode == "BRA"
                }
                "BSYNC" => {
                    next.extend(joins.get(one.operands.as_str()).into_iter().flatten());
                    false
                }
                "EXIT" | "RET" => true,
                "BRX" | "BRXU" | "JMX" | "JMP" => {
                    bail!("`{}` in the machine code", one.opcode)
                }
                _ => false,
            };
            if !ends || one.is_predicated || one.operands.contains('P') && one.stem() == "BRA" {
                next.push(at + 1);
            }
            edges.push(next);
        }
        Ok(edges)
    }
}

/// Which instructions control reaches from the first one without this edge.
fn reached(edges: &[Vec<usize>], without: (usize, usize)) -> Vec<bool> {
    let mut found = vec![false; edges.len()];
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        let Some(seen) = found.get_mut(at).filter(|seen| !**seen) else {
            continue;
        };
        *seen = true;
        let next = edges.get(at).into_iter().flatten();
        open.extend(next.filter(|&&to| (at, to) != without));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::kernels;

    /// The form of `nvdisasm -c -gp`.
    fn text(rows: &[&str]) -> String {
        let mut text = "\t.section\t.text.k,\"ax\",@progbits\n.text.k:\n".to_owned();
        for (index, row) in rows.iter().enumerate() {
            if row.ends_with(':') {
                text.push_str(row);
            } else {
                text.push_str(&format!(
                    "\t//## File \".nv_debug_ptx_txt\", line {}\n        /*{:04x}*/  {row} ;",
                    index + 1,
                    index * 16
                ));
            }
            text.push('\n');
        }
        text
    }

    fn unguarded(rows: &[&str]) -> Vec<usize> {
        kernels(&text(rows))["k"].unguarded().unwrap_or_default()
    }

    #[test]
    fn an_access_is_guarded_by_its_predicate() {
        let rows = ["@!P0 LDG.E R2, [R4.64]", "STG.E [R4.64], R2", "EXIT"];
        assert_eq!(unguarded(&rows), [2]);
    }

    #[test]
    fn an_access_is_guarded_by_a_branch_that_dominates_it() {
        let rows = [
            "@P0 BRA `(.L_x_0)",
            "ATOMG.E.ADD R2, [R4.64], R3",
            ".L_x_0:",
            "STG.E [R4.64], R2",
            "@P1 EXIT",
            "STS [R0], R2",
            "EXIT",
        ];
        assert_eq!(unguarded(&rows), [4]);
    }

    #[test]
    fn an_access_behind_a_join_is_not_guarded() {
        let rows = [
            "BSSY B0, `(.L_x_1)",
            "@P0 BRA `(.L_x_0)",
            "BSYNC B0",
            ".L_x_0:",
            "BSYNC B0",
            ".L_x_1:",
            "STG.E [R4.64], R2",
            "BRA `(.L_x_1)",
        ];
        assert_eq!(unguarded(&rows), [7]);
    }

    #[test]
    fn what_fills_the_end_is_not_counted() {
        assert_eq!(kernels(&text(&["EXIT", "NOP", "NOP"]))["k"].count(), 1);
    }
}
