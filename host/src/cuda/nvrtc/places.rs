//! Where NVRTC may be.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// The environment variable that names the library's file or folder.
pub(super) const VARIABLE: &str = "CALLBOX_NVRTC";

/// The library's names, newest first.
pub(super) const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// Where NVIDIA's packages have their libraries, in a folder of Python packages: those for CUDA 13, and those before.
const PACKAGES: [&str; 2] = ["nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"];

/// A place to look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Where the loader looks.
    Loader,
    /// A folder.
    Folder(PathBuf),
    /// A file.
    File(PathBuf),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loader => f.write_str("the loader's path"),
            Self::Folder(path) | Self::File(path) => path.display().fmt(f),
        }
    }
}

/// What the search asks of the machine.
pub(super) struct Machine<'a> {
    /// An environment variable's value.
    pub(super) variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The paths of what is in a folder; none if it cannot be read.
    pub(super) list: &'a dyn Fn(&Path) -> Vec<PathBuf>,
    /// Whether a path is a folder.
    pub(super) is_folder: &'a dyn Fn(&Path) -> bool,
}

/// The places of this machine.
#[expect(
    clippy::disallowed_methods,
    reason = "whoever asks for a compiler has it looked for where it is installed; this is the one place that does"
)]
pub(super) fn ambient() -> Vec<Place> {
    places(&Machine {
        variable: &|name| std::env::var_os(name).filter(|value| !value.is_empty()),
        list: &contents,
        is_folder: &Path::is_dir,
    })
}

/// What is in a folder; nothing if it cannot be read.
#[expect(
    clippy::disallowed_methods,
    reason = "names alone are read, of folders that libraries are installed in"
)]
pub(super) fn contents(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

/// The places to look at, in order.
pub(super) fn places(machine: &Machine<'_>) -> Vec<Place> {
    let variable = |name: &str| (machine.variable)(name).map(PathBuf::from);
    if let Some(named) = variable(VARIABLE) {
        // Who names one wants that one and no other.
        return vec![match (machine.is_folder)(&named) {
            true => Place::Folder(named),
            false => Place::File(named),
        }];
    }
    let environments = [variable("VIRTUAL_ENV"), variable("CONDA_PREFIX")];
    let local = variable("HOME").map(|home| home.join(".local"));
    let prefixes = environments.into_iter().chain([local]).flatten();
    let prefixes = prefixes.chain(["/usr/local".into(), "/usr".into()]);
    let packages = prefixes.flat_map(|prefix| packages(&prefix, machine));
    let mut places = vec![Place::Loader];
    places.extend(
        packages.flat_map(|folder| PACKAGES.map(|inner| Place::Folder(folder.join(inner)))),
    );
    places.extend(variable("CONDA_PREFIX").map(|conda| Place::Folder(conda.join("lib"))));
    let toolkits = [variable("CUDA_HOME"), variable("CUDA_PATH")];
    let toolkits = toolkits.into_iter().flatten();
    let toolkits = toolkits.chain(["/usr/local/cuda".into()]);
    let toolkits = toolkits.chain(numbered(Path::new("/usr/local"), "cuda-", machine));
    places.extend(toolkits.map(|toolkit| Place::Folder(toolkit.join("lib64"))));
    let mut seen = Vec::new();
    places.retain(|place| {
        let is_new = !seen.contains(place);
        seen.push(place.clone());
        is_new
    });
    places
}

/// The folders of Python packages under a prefix, newest Python first. Debian's Python has them under another name.
fn packages(prefix: &Path, machine: &Machine<'_>) -> Vec<PathBuf> {
    let pythons = numbered(&prefix.join("lib"), "python3", machine);
    let names = ["site-packages", "dist-packages"];
    let folders = pythons
        .iter()
        .flat_map(|python| names.map(|name| python.join(name)));
    folders
        .filter(|folder| (machine.is_folder)(folder))
        .collect()
}

/// What is in a folder under names that begin so, highest version first: 3.13 is above 3.9.
fn numbered(folder: &Path, prefix: &str, machine: &Machine<'_>) -> Vec<PathBuf> {
    let version = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?.strip_prefix(prefix)?.to_owned();
        let numbers = name.split('.').map(|number| number.parse().unwrap_or(0));
        Some(numbers.collect::<Vec<u32>>())
    };
    let mut found: Vec<_> = (machine.list)(folder)
        .into_iter()
        .filter_map(|path| Some((version(&path)?, path)))
        .collect();
    found.sort_unstable();
    found.into_iter().rev().map(|(_, path)| path).collect()
}
