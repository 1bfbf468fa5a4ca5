//! A parsed PTX module: its entries, its variables, and its target architecture.

use std::fmt;

use super::code::Function;

/// A parsed and validated PTX module. It is immutable.
pub struct Module {
    pub(super) version: (u32, u32),
    pub(super) target: (u32, u32),
    pub(super) entries: Vec<Entry>,
    pub(super) globals: Vec<Global>,
    /// Entries' bodies and device functions.
    pub(super) functions: Vec<Function>,
    /// Variables in shared memory, by their offset. Dynamic ones come last and have no size.
    pub(super) shared: Vec<SharedVariable>,
}

/// A kernel of a module.
pub struct Entry {
    pub(super) name: String,
    pub(super) parameters: Vec<(usize, usize)>,
    /// The index of its body in [`Module::functions`].
    pub(super) function: usize,
    /// The maximum number of threads per block, from `.maxntid` and `.reqntid`.
    pub(super) most_threads: Option<u32>,
}

/// A variable in global or constant memory. The driver places it when it loads the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Global {
    /// The name in the PTX text.
    pub name: String,
    /// The size in bytes.
    pub size: usize,
    /// The alignment in bytes, a power of two.
    pub align: usize,
    /// The initial contents, padded with zeros to `size` bytes.
    pub initial: Vec<u8>,
    /// The places in `initial` that receive a variable's address, eight bytes each.
    pub addresses: Vec<Relocation>,
    /// Whether the variable is in constant memory.
    pub is_constant: bool,
}

/// An address in a variable's initial contents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relocation {
    /// The offset of the address.
    pub offset: usize,
    /// The variable whose address it is.
    pub name: String,
    /// A number added to the address.
    pub addend: i64,
}

/// The reason why a PTX text was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// The expected and the actual text.
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
    /// `.extern .shared`: the launch determines its size.
    pub(super) is_dynamic: bool,
    /// The index in [`Module::functions`] of the entry that declares it. `None` for a variable of
    /// the module.
    pub(super) owner: Option<usize>,
}

impl Module {
    /// Parses a PTX text.
    ///
    /// # Errors
    /// The first line that is malformed or not supported.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        super::outline::module(text)
    }

    /// Returns the kernel of this name.
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Returns all kernels, in the order of the text.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the variables that the driver places.
    pub fn globals(&self) -> &[Global] {
        &self.globals
    }

    /// Returns the compute capability of the target: `sm_75` is (7, 5).
    pub fn target(&self) -> (u32, u32) {
        self.target
    }

    /// Returns the PTX version of the text.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }
}

impl Entry {
    /// Returns the name in the PTX text.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns each parameter's offset and size in the parameter block, in bytes.
    pub fn parameters(&self) -> &[(usize, usize)] {
        &self.parameters
    }

    /// Returns the maximum number of threads per block, if the text gives one (`.maxntid`,
    /// `.reqntid`).
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
