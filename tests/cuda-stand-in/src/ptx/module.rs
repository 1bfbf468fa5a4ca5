//! What a PTX text says: its entries, its variables, and for what it was written.

use std::fmt;

use super::code::Function;

/// A PTX module, read and checked. It does not change any more and may be shared.
pub struct Module {
    pub(super) version: (u32, u32),
    pub(super) target: (u32, u32),
    pub(super) entries: Vec<Entry>,
    pub(super) globals: Vec<Global>,
    /// Entries' bodies and device functions.
    pub(super) functions: Vec<Function>,
    /// Variables in shared memory, by their offset in a block's shared memory. Dynamic ones come last and have no size.
    pub(super) shared: Vec<SharedVariable>,
}

/// A kernel of a module.
pub struct Entry {
    pub(super) name: String,
    pub(super) parameters: Vec<(usize, usize)>,
    /// Its body in [`Module::functions`].
    pub(super) function: usize,
    /// The most threads that a block may have, from `.maxntid` and `.reqntid`.
    pub(super) most_threads: Option<u32>,
}

/// A variable of a module in global or constant memory. The driver places it when it loads the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// Its name in the PTX text.
    pub name: String,
    /// In bytes.
    pub size: usize,
    /// The power of two that its address is a multiple of, in bytes.
    pub align: usize,
    /// Its first `size` bytes of content: what the text says, and zeros.
    pub initial: Vec<u8>,
    /// The eight bytes at `offset` of `initial` are to be filled in with a variable's address when it is known.
    pub addresses: Vec<Relocation>,
    /// Whether it lies in constant memory.
    pub is_constant: bool,
}

/// An address in a variable's initial content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// Where the eight bytes of the address go.
    pub offset: usize,
    /// The variable whose address it is.
    pub name: String,
    /// What is added to the address.
    pub addend: i64,
}

/// Why a PTX text was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line of the text, from 1.
    pub line: usize,
    /// What was expected and what was found.
    pub message: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PTX line {}: {}", self.line, self.message)
    }
}

impl std::error::Error for ParseError {}

/// A variable in shared memory.
#[derive(Clone, Debug)]
pub(super) struct SharedVariable {
    pub(super) size: usize,
    pub(super) align: usize,
    /// `.extern .shared`: its size is the launch's.
    pub(super) is_dynamic: bool,
    /// The entry's body that it is declared in, by its place in [`Module::functions`]. Without one it is every entry's.
    pub(super) owner: Option<usize>,
}

impl Module {
    /// Reads a PTX text.
    ///
    /// # Errors
    /// The first line that is not PTX, or that this interpreter does not know.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        super::parse::module(text)
    }

    /// The kernel of this name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// All kernels, in the order of the text.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The variables that the driver places.
    pub fn globals(&self) -> &[Global] {
        &self.globals
    }

    /// The compute capability that the text is written for: `sm_75` is (7, 5).
    pub fn target(&self) -> (u32, u32) {
        self.target
    }

    /// The version of PTX that the text is written in.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }
}

impl Entry {
    /// Its name in the PTX text.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The offset and size of each parameter in the parameter block, in bytes.
    pub fn parameters(&self) -> &[(usize, usize)] {
        &self.parameters
    }

    /// The most threads that a block of it may have, if the text says so (`.maxntid`, `.reqntid`).
    pub fn most_threads(&self) -> Option<u32> {
        self.most_threads
    }
}

impl fmt::Debug for Module {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.entries.iter().map(Entry::name).collect();
        write!(
            f,
            "Module {{ target: {:?}, entries: {names:?} }}",
            self.target
        )
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Entry {{ name: {:?}, parameters: {:?} }}",
            self.name, self.parameters
        )
    }
}
