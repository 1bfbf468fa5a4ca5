//! What each instruction does.

use crate::ast::{Function, Instruction, Module, Operand};
use crate::special::{Special, Told};

use super::{Control, Form, Meeting, Opcode, Refusal, Role, matrices, memory};

/// Returns the reason why no tree has this opcode.
pub(crate) fn refused(opcode: Opcode) -> Option<&'static str> {
    use Opcode as O;
    Some(match opcode {
        O::Tex | O::Tld4 | O::Txq | O::Suld | O::Sust | O::Sured | O::Suq | O::Istypep => {
            "textures and surfaces are accessed by handles, which any integer can forge; load from \
             global memory instead"
        }
        O::Tcgen05 => {
            "tensor memory is shared by all blocks of a multiprocessor; compile for sm_90 or older"
        }
        O::Tensormap => "it makes a tensor map that can point anywhere",
        O::Multimem => "it accesses the memory of several devices",
        O::Clusterlaunchcontrol => "it takes over blocks that were launched",
        O::Alloca | O::Stacksave | O::Stackrestore => {
            "it moves the thread's stack; use variables of a fixed size"
        }
        _ => return None,
    })
}

/// Returns what an instruction of a function does.
///
/// # Errors
/// The number of operands is wrong, or kernels without a grant must not have the instruction.
pub fn form(
    module: &Module,
    function: &Function,
    instruction: &Instruction,
) -> Result<Form, Refusal> {
    if let Some(reason) = refused(instruction.opcode).or_else(|| unsupported(instruction)) {
        return Err(Refusal::new(reason));
    }
    let mut form = Form {
        roles: Vec::new(),
        control: control(instruction.opcode),
        meeting: Meeting::Nothing,
        reads_clock: instruction.opcode == Opcode::Nanosleep,
    };
    if let Some(pattern) = plain(instruction) {
        form.roles = roles(instruction, pattern)?;
    } else if !memory::fill(module, function, instruction, &mut form)?
        && !matrices::fill(module, function, instruction, &mut form)?
    {
        meet(instruction, &mut form)?;
    }
    for special in specials(&instruction.operands) {
        match special.told() {
            Told::Shape => {}
            Told::Clock => form.reads_clock = true,
            Told::Refused => {
                return Err(Refusal::new(&format!(
                    "`{}` is not supported",
                    special.name()
                )));
            }
        }
    }
    Ok(form)
}

impl Refusal {
    pub(super) fn new(reason: &str) -> Self {
        Self {
            reason: reason.to_owned(),
        }
    }
}

/// Returns why a form of an instruction is refused although others of its opcode are not.
fn unsupported(instruction: &Instruction) -> Option<&'static str> {
    use Opcode as O;
    let has = |name| instruction.has(name);
    match instruction.opcode {
        O::Wgmma => Some("it reads shared memory at an encoded address; compile for sm_80"),
        O::Cp if has("bulk") => {
            Some("bulk copies and tensor maps are not supported; compile for sm_80")
        }
        O::Mapa | O::Getctarank => Some("it reaches the shared memory of other blocks"),
        O::Griddepcontrol => Some("it waits for other grids"),
        O::Setmaxnreg => Some("it takes registers from other warps"),
        O::Pmevent => Some("it triggers events of a profiler"),
        O::Applypriority => Some("it changes the cache lines of others"),
        O::Discard => Some("it destroys data without writing it"),
        O::Createpolicy if has("range") => Some("it names a range of addresses"),
        O::Bar | O::Barrier if has("cluster") => Some("it waits for other blocks"),
        O::Fence if has("tensormap::generic") => Some("tensor maps are not supported"),
        O::Ld | O::St | O::Atom | O::Red | O::Mbarrier | O::Cvta | O::Isspacep
            if has("shared::cluster") =>
        {
            Some("it reaches the shared memory of other blocks")
        }
        O::Red if has("async") => Some("it updates the shared memory of other blocks"),
        O::Shfl | O::Vote | O::Match if !has("sync") => {
            Some("without `.sync`, which lanes take part is not defined")
        }
        _ => None,
    }
}

fn control(opcode: Opcode) -> Control {
    match opcode {
        Opcode::Bra => Control::Branch,
        Opcode::Brx => Control::BranchTable,
        Opcode::Call => Control::Call,
        Opcode::Ret => Control::Return,
        Opcode::Exit => Control::Exit,
        Opcode::Trap | Opcode::Brkpt => Control::Trap,
        _ => Control::Next,
    }
}

/// The roles of operands of instructions that access no memory and wait for no thread: `W` for
/// written registers, `R` for values, `C` for immediates, `T` for labels. Alternatives are
/// separated by `|`.
fn plain(instruction: &Instruction) -> Option<&'static str> {
    use Opcode as O;
    Some(match instruction.opcode {
        O::Abs
        | O::Neg
        | O::Rcp
        | O::Sqrt
        | O::Rsqrt
        | O::Sin
        | O::Cos
        | O::Lg2
        | O::Ex2
        | O::Tanh
        | O::Testp
        | O::Not
        | O::Cnot
        | O::Bfind
        | O::Brev
        | O::Clz
        | O::Popc
        | O::Mov
        | O::Cvta
        | O::Isspacep => "WR",
        O::Add
        | O::Sub
        | O::Mul
        | O::Div
        | O::Rem
        | O::Addc
        | O::Subc
        | O::Mul24
        | O::And
        | O::Or
        | O::Xor
        | O::Shl
        | O::Shr
        | O::Copysign
        | O::Bmsk
        | O::Szext => "WRR",
        O::Mad
        | O::Madc
        | O::Mad24
        | O::Fma
        | O::Sad
        | O::Selp
        | O::Slct
        | O::Bfe
        | O::Prmt
        | O::Shf
        | O::Dp2a
        | O::Dp4a
        | O::Fns => "WRRR",
        O::Min | O::Max | O::Setp | O::Set => "WRR|WRRR",
        // Two values make a pair; a fourth operand has random bits.
        O::Cvt => "WR|WRR|WRRR",
        O::Bfi => "WRRRR",
        O::Lop3 => "WRRRC|WRRRCR",
        O::Createpolicy => "WR|WRR",
        O::Bra => "T",
        O::Brx => "RT",
        O::Call => "ofa",
        O::Ret | O::Exit | O::Trap | O::Brkpt | O::Membar | O::Fence => "",
        O::Nanosleep => "R",
        _ => return None,
    })
}

/// Returns the roles of the alternative that has as many operands as the instruction.
pub(super) fn roles(instruction: &Instruction, pattern: &str) -> Result<Vec<Role>, Refusal> {
    let found = instruction.operands.len();
    let mut alternatives = pattern.split('|');
    let Some(letters) = alternatives.find(|letters| letters.len() == found) else {
        let counts: Vec<String> = pattern
            .split('|')
            .map(|one| one.len().to_string())
            .collect();
        return Err(Refusal::new(&format!(
            "{} operands were expected, and {found} found",
            counts.join(" or ")
        )));
    };
    let mut roles = Vec::with_capacity(found);
    for (letter, operand) in letters.chars().zip(&instruction.operands) {
        let (role, fits) = match letter {
            'W' => (Role::Write, is_destination(operand)),
            'C' => (Role::Constant, matches!(operand, Operand::Immediate(_))),
            'T' => (
                Role::Target,
                matches!(operand, Operand::Label(_) | Operand::Labels(_)),
            ),
            'f' => (Role::Function, true),
            'o' => (Role::Results, true),
            'a' => (Role::Arguments, true),
            _ => (Role::Read, is_value(operand)),
        };
        if !fits {
            let number = roles.len() + 1;
            return Err(Refusal::new(&format!(
                "operand {number} is of the wrong kind"
            )));
        }
        roles.push(role);
    }
    Ok(roles)
}

/// Whether registers can be written through an operand.
fn is_destination(operand: &Operand) -> bool {
    let is_one = |part: &Operand| matches!(part, Operand::Register(_) | Operand::Discard);
    operand.parts().iter().all(is_one)
}

/// Whether an operand has a value.
fn is_value(operand: &Operand) -> bool {
    match operand {
        Operand::Register(_) | Operand::Not(_) | Operand::Special(_) | Operand::Immediate(_) => {
            true
        }
        Operand::Variable(..) => true,
        Operand::Vector(elements) => elements.iter().all(is_value),
        _ => false,
    }
}

/// Fills in the form of instructions by which threads meet.
fn meet(instruction: &Instruction, form: &mut Form) -> Result<(), Refusal> {
    use Opcode as O;
    let (pattern, mask) = match instruction.opcode {
        O::Bar | O::Barrier if !instruction.has("warp") => return meet_block(instruction, form),
        O::Bar | O::Barrier => ("R", 0),
        O::Shfl => ("WRRRR", 4),
        O::Vote | O::Match | O::Redux => ("WRR", 2),
        O::Elect => ("WR", 1),
        // It does not wait: the lanes that are there are its result.
        O::Activemask => {
            form.roles = roles(instruction, "W")?;
            return Ok(());
        }
        opcode => {
            let reason = format!("`{}` is not supported in this form", opcode.name());
            return Err(Refusal::new(&reason));
        }
    };
    form.roles = roles(instruction, pattern)?;
    form.meeting = Meeting::Lanes { mask };
    Ok(())
}

fn meet_block(instruction: &Instruction, form: &mut Form) -> Result<(), Refusal> {
    let count = instruction.operands.len();
    let is_reduction = instruction.has("red");
    form.roles = roles(instruction, if is_reduction { "WRR|WRRR" } else { "R|RR" })?;
    let barrier = usize::from(is_reduction);
    let has_count = count == if is_reduction { 4 } else { 2 };
    form.meeting = Meeting::Block {
        barrier: Some(barrier),
        count: has_count.then_some(barrier + 1),
        is_arrival: instruction.has("arrive"),
    };
    Ok(())
}

/// The special registers among operands.
fn specials(operands: &[Operand]) -> impl Iterator<Item = Special> {
    let parts = operands.iter().flat_map(Operand::parts);
    parts.filter_map(|part| match part {
        Operand::Special(special) => Some(*special),
        _ => None,
    })
}
