//! Bodies: scopes, declarations, labels and instructions.

use crate::ast::{
    Function, Guard, Instruction, Label, LabelId, Line, Opcode, Operand, Register, RegisterId,
    Statement, Variable, VariableId,
};
use crate::error::Found;
use crate::lexer::{Kind, Place, quoted};
use crate::table;
use crate::types::{Space, Type};

use super::module::Reader;
use super::scope::Scope;

/// The most scopes of a function. The tables of each are kept until the function ends, because a
/// branch may go out of it.
const MOST_SCOPES: usize = 10_000;

/// A body under construction.
pub(super) struct Body<'r, 't, 'a> {
    pub(super) reader: &'r mut Reader<'t, 'a>,
    pub(super) function: Function,
    statements: Vec<Statement>,
    scopes: Vec<Scope<'a>>,
    /// The open scopes, outermost first.
    open: Vec<usize>,
    branches: Vec<Branch<'a>>,
    /// The labels of all `brx.idx`.
    listed_labels: usize,
}

/// A branch whose labels may follow later.
struct Branch<'a> {
    /// The index of its statement.
    statement: usize,
    place: Place,
    scope: usize,
    target: Target<'a>,
}

/// The target of a branch.
pub(super) enum Target<'a> {
    /// A label.
    Label(&'a str),
    /// The name of a `.branchtargets`.
    Table(&'a str),
}

/// Reads a body in braces. `names` are those of the results and parameters.
pub(super) fn read<'a>(
    reader: &mut Reader<'_, 'a>,
    function: Function,
    names: &[&'a str],
) -> Result<Function, Found> {
    let mut outermost = Scope::default();
    for (index, name) in (0..).zip(names) {
        outermost.variables.insert(name, index);
    }
    let mut body = Body {
        reader,
        function,
        statements: Vec::new(),
        scopes: vec![outermost],
        open: vec![0],
        branches: Vec::new(),
        listed_labels: 0,
    };
    body.reader.cursor.expect('{')?;
    while !body.open.is_empty() {
        body.statement()?;
    }
    body.resolve()?;
    body.drop_unused_labels();
    Ok(Function {
        body: Some(body.statements),
        ..body.function
    })
}

impl<'a> Body<'_, '_, 'a> {
    fn statement(&mut self) -> Result<(), Found> {
        let cursor = &mut self.reader.cursor;
        if cursor.takes(';') {
            return Ok(());
        }
        if cursor.peek() == Kind::Mark('{') {
            return self.open_scope();
        }
        if cursor.takes('}') {
            self.open.pop();
            return Ok(());
        }
        let guard = self.guard()?;
        let cursor = &mut self.reader.cursor;
        let place = cursor.place();
        let word = cursor.word("an instruction, directive or label")?;
        if guard.is_none() && self.reader.cursor.takes(':') {
            return self.label(word, place);
        }
        if word.starts_with('.') {
            return self.directive(word, place);
        }
        self.instruction(guard, word, place)
    }

    fn open_scope(&mut self) -> Result<(), Found> {
        let most = self.reader.limits.scopes;
        if self.open.len() >= most {
            let message = format!("more than {most} scopes are open here (`scopes`)");
            return Err(Found::new(self.reader.cursor.place(), message));
        }
        if self.scopes.len() > MOST_SCOPES {
            let message = format!("the function has more than {MOST_SCOPES} scopes");
            return Err(Found::new(self.reader.cursor.place(), message));
        }
        self.reader.cursor.advance();
        self.scopes.push(Scope {
            parent: self.open.last().copied(),
            ..Scope::default()
        });
        self.open.push(self.scopes.len() - 1);
        Ok(())
    }

    fn guard(&mut self) -> Result<Option<Guard>, Found> {
        if !self.reader.cursor.takes('@') {
            return Ok(None);
        }
        let is_negated = self.reader.cursor.takes('!');
        let predicate = self.predicate()?;
        Ok(Some(Guard {
            predicate,
            is_negated,
        }))
    }

    pub(super) fn predicate(&mut self) -> Result<RegisterId, Found> {
        let place = self.reader.cursor.place();
        let name = self.reader.cursor.word("a predicate")?;
        match self.register(name) {
            Some((id, Type::Pred)) => Ok(id),
            _ => {
                let message = format!("`{}` is not a predicate that is declared", quoted(name));
                Err(Found::new(place, message))
            }
        }
    }

    fn scope(&mut self) -> Option<&mut Scope<'a>> {
        let innermost = self.open.last()?;
        self.scopes.get_mut(*innermost)
    }

    fn label(&mut self, name: &'a str, place: Place) -> Result<(), Found> {
        if self.reader.cursor.takes_word(".branchtargets") {
            let mut labels = vec![self.reader.cursor.word("a label")?];
            while self.reader.cursor.takes(',') {
                labels.push(self.reader.cursor.word("a label")?);
            }
            if let Some(scope) = self.scope() {
                scope.tables.insert(name, labels);
            }
            return self.reader.cursor.expect(';');
        }
        let id = LabelId(number(self.function.labels.len()));
        let known = self.scope().and_then(|scope| scope.labels.insert(name, id));
        if known.is_some() {
            let message = format!("label `{}` stands here a second time", quoted(name));
            return Err(Found::new(place, message));
        }
        let line = Line(place.line);
        self.function.labels.push(Label { line });
        self.statements.push(Statement::Label(id));
        Ok(())
    }

    fn directive(&mut self, word: &'a str, place: Place) -> Result<(), Found> {
        if self.reader.cursor.skips_debug(word)? {
            return Ok(());
        }
        let space = match word {
            ".reg" => None,
            ".param" => Some(Space::Param),
            ".local" => Some(Space::Local),
            ".shared" => Some(Space::Shared),
            _ => {
                let message = format!("`{}` is not supported in a body", quoted(word));
                return Err(Found::new(place, message));
            }
        };
        let declared_type = self.reader.cursor.declared_type()?;
        loop {
            let declared = self.reader.cursor.declared()?;
            let name = declared.name;
            match space {
                None => {
                    let kind = declared_type.element;
                    let count = declared.count;
                    if let Some(scope) = self.scope() {
                        match count {
                            Some(count) => drop(scope.ranges.insert(name, (kind, count))),
                            None => drop(scope.registers.insert(name, kind)),
                        }
                    }
                }
                Some(space) => {
                    let index = number(self.function.variables.len());
                    let variable: Variable = declared.variable(declared_type, space);
                    self.function.variables.push(variable);
                    if let Some(scope) = self.scope() {
                        scope.variables.insert(name, index);
                    }
                }
            }
            if !self.reader.cursor.takes(',') {
                return self.reader.cursor.expect(';');
            }
        }
    }

    fn instruction(
        &mut self,
        guard: Option<Guard>,
        text: &'a str,
        place: Place,
    ) -> Result<(), Found> {
        let mut parts = text.split('.');
        let Some(opcode) = parts.next().and_then(Opcode::from_name) else {
            let message = format!("`{}`: this instruction is not supported", quoted(text));
            return Err(Found::new(place, message));
        };
        if let Some(reason) = table::refused(opcode) {
            return Err(Found::new(place, format!("`{}`: {reason}", quoted(text))));
        }
        let mut modifiers = Vec::new();
        for part in parts {
            let Some(modifier) = table::modifier(opcode, part) else {
                let message = format!(
                    "`{}`: `.{}` is not supported here",
                    quoted(text),
                    quoted(part)
                );
                return Err(Found::new(place, message));
            };
            modifiers.push(modifier);
        }
        let operands = match opcode {
            Opcode::Bra | Opcode::Brx => self.branch_operands(opcode)?,
            Opcode::Call => self.call_operands()?,
            Opcode::Ld | Opcode::Ldu | Opcode::St => self.memory_operands()?,
            _ => self.operands()?,
        };
        self.statements.push(Statement::Instruction(Instruction {
            line: Line(place.line),
            guard,
            opcode,
            modifiers,
            operands,
        }));
        Ok(())
    }

    /// Notes the target of the instruction that follows.
    pub(super) fn note_target(&mut self, place: Place, target: Target<'a>) {
        self.branches.push(Branch {
            statement: self.statements.len(),
            place,
            scope: self.open.last().copied().unwrap_or(0),
            target,
        });
    }

    /// Searches the open scopes, the innermost first.
    fn lookup<T>(&self, find: impl Fn(&Scope<'a>) -> Option<T>) -> Option<T> {
        let scopes = self.open.iter().rev();
        scopes
            .filter_map(|&index| self.scopes.get(index))
            .find_map(find)
    }

    /// Returns a declared register, and its type.
    pub(super) fn register(&mut self, name: &'a str) -> Option<(RegisterId, Type)> {
        let prefix = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let digits = name.get(prefix.len()..)?;
        // `%r01` is not in the range `%r<2>`.
        let is_canonical = digits == "0" || !digits.starts_with('0');
        let index = digits.parse::<u32>().ok().filter(|_| is_canonical);
        let declared = |scope: &Scope<'a>| {
            scope.registers.get(name).copied().or_else(|| {
                let (kind, count) = scope.ranges.get(prefix)?;
                (index? < *count).then_some(*kind)
            })
        };
        let (at, kind) = self.open.iter().rev().find_map(|&at| {
            let kind = declared(self.scopes.get(at)?)?;
            Some((at, kind))
        })?;
        let next = RegisterId(number(self.function.registers.len()));
        let id = *self.scopes.get_mut(at)?.used.entry(name).or_insert(next);
        if id == next {
            self.function.registers.push(Register { kind });
        }
        Some((id, kind))
    }

    /// Returns a declared variable, of the body or of the module.
    pub(super) fn variable(&self, name: &str) -> Option<VariableId> {
        if let Some(local) = self.lookup(|scope| scope.variables.get(name).copied()) {
            return Some(VariableId::Function(local));
        }
        let index = *self.reader.variables.get(name)?;
        Some(VariableId::Module(number(index)))
    }

    fn resolve(&mut self) -> Result<(), Found> {
        for branch in std::mem::take(&mut self.branches) {
            let operand = match branch.target {
                Target::Label(name) => Operand::Label(self.find_label(&branch, name)?),
                Target::Table(name) => {
                    let Some(names) =
                        self.find_above(branch.scope, |scope| scope.tables.get(name).cloned())
                    else {
                        let message = format!(
                            "there is no `.branchtargets` of the name `{}`",
                            quoted(name)
                        );
                        return Err(Found::new(branch.place, message));
                    };
                    self.listed_labels += names.len();
                    if self.listed_labels > self.reader.limits.tokens {
                        let message =
                            "the branches to tables of labels have too many labels (`tokens`)"
                                .to_owned();
                        return Err(Found::new(branch.place, message));
                    }
                    let labels = names.into_iter().map(|name| self.find_label(&branch, name));
                    Operand::Labels(labels.collect::<Result<_, _>>()?)
                }
            };
            if let Some(Statement::Instruction(instruction)) =
                self.statements.get_mut(branch.statement)
            {
                instruction.operands.push(operand);
            }
        }
        Ok(())
    }

    fn find_above<T>(&self, scope: usize, find: impl Fn(&Scope<'a>) -> Option<T>) -> Option<T> {
        let mut next = Some(scope);
        while let Some(scope) = next.and_then(|index| self.scopes.get(index)) {
            if let Some(found) = find(scope) {
                return Some(found);
            }
            next = scope.parent;
        }
        None
    }

    fn find_label(&self, branch: &Branch<'a>, name: &str) -> Result<LabelId, Found> {
        let found = self.find_above(branch.scope, |scope| scope.labels.get(name).copied());
        found.ok_or_else(|| {
            Found::new(
                branch.place,
                format!("there is no label `{}`", quoted(name)),
            )
        })
    }

    /// Drops labels that no branch names: those of debug sections.
    fn drop_unused_labels(&mut self) {
        let mut used = vec![None; self.function.labels.len()];
        self.for_each_target(|id| {
            if let Some(used) = used.get_mut(id.0 as usize) {
                *used = Some(LabelId(0));
            }
        });
        let mut kept = Vec::new();
        for (id, &label) in used.iter_mut().zip(&self.function.labels) {
            if let Some(id) = id {
                *id = LabelId(number(kept.len()));
                kept.push(label);
            }
        }
        self.function.labels = kept;
        let new_id = |id: LabelId| used.get(id.0 as usize).copied().flatten();
        self.statements.retain_mut(|statement| match statement {
            Statement::Label(id) => match new_id(*id) {
                Some(new) => {
                    *id = new;
                    true
                }
                None => false,
            },
            Statement::Instruction(_) => true,
        });
        self.for_each_target(|id| *id = new_id(*id).unwrap_or(*id));
    }

    fn for_each_target(&mut self, mut visit: impl FnMut(&mut LabelId)) {
        for statement in &mut self.statements {
            let Statement::Instruction(instruction) = statement else {
                continue;
            };
            if !matches!(instruction.opcode, Opcode::Bra | Opcode::Brx) {
                continue;
            }
            for operand in &mut instruction.operands {
                match operand {
                    Operand::Label(id) => visit(id),
                    Operand::Labels(ids) => ids.iter_mut().for_each(&mut visit),
                    _ => {}
                }
            }
        }
    }
}

/// An index of the tree. A text has fewer tokens than a u32 counts.
fn number(index: usize) -> u32 {
    u32::try_from(index).unwrap_or(u32::MAX)
}
