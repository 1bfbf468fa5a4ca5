//! The places where NVIDIA's compilers may be installed.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

/// What is searched for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sought {
    /// The environment variable that names the file or its folder.
    pub(super) variable: &'static str,
    /// Where the system searches for it.
    pub(super) system: SystemSearch,
    /// The folders that have it in Python packages: for CUDA 13, and for older versions.
    pub(super) packages: &'static [&'static str],
    /// The folder that has it in a CUDA toolkit.
    pub(super) toolkit: &'static str,
    /// The folder that has it in a conda environment.
    pub(super) conda: &'static str,
}

/// Where the system searches.
#[derive(Clone, Copy, Debug)]
pub(super) enum SystemSearch {
    /// The loader, for libraries.
    Loader,
    /// The folders of `PATH`, for programs.
    Path,
}

/// A place to search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SearchPlace {
    /// The loader's path.
    Loader,
    /// A folder.
    Folder(PathBuf),
    /// A file.
    File(PathBuf),
}

impl fmt::Display for SearchPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loader => f.write_str("the loader's path"),
            Self::Folder(path) | Self::File(path) => path.display().fmt(f),
        }
    }
}

/// The machine that is searched, which tests replace.
pub(super) struct Machine<'a> {
    /// The value of an environment variable.
    pub(super) variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The paths of a folder's entries; none if it cannot be read.
    pub(super) list: &'a dyn Fn(&Path) -> Vec<PathBuf>,
    /// Whether a path is a folder.
    pub(super) is_folder: &'a dyn Fn(&Path) -> bool,
}

/// The places of this machine, in the order of the search.
#[expect(
    clippy::disallowed_methods,
    reason = "the search for an installed library reads the environment"
)]
pub(super) fn ambient(sought: &Sought) -> Vec<SearchPlace> {
    places(
        sought,
        &Machine {
            variable: &|name| std::env::var_os(name).filter(|value| !value.is_empty()),
            list: &contents,
            is_folder: &Path::is_dir,
        },
    )
}

/// The paths of a folder's entries; none if it cannot be read.
#[expect(
    clippy::disallowed_methods,
    reason = "only names are read, in folders that libraries are installed in"
)]
pub(super) fn contents(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect()
}

/// The places of a machine, in the order of the search.
pub(super) fn places(sought: &Sought, machine: &Machine<'_>) -> Vec<SearchPlace> {
    let variable = |name: &str| (machine.variable)(name).map(PathBuf::from);
    if let Some(named) = variable(sought.variable) {
        // A library that the user names is the only candidate.
        return vec![if (machine.is_folder)(&named) {
            SearchPlace::Folder(named)
        } else {
            SearchPlace::File(named)
        }];
    }
    let environments = [variable("VIRTUAL_ENV"), variable("CONDA_PREFIX")];
    let local = variable("HOME").map(|home| home.join(".local"));
    let prefixes = environments.into_iter().chain([local]).flatten();
    let prefixes = prefixes.chain(["/usr/local".into(), "/usr".into()]);
    let packages = prefixes.flat_map(|prefix| packages(&prefix, machine));
    let mut places = match sought.system {
        SystemSearch::Loader => vec![SearchPlace::Loader],
        SystemSearch::Path => {
            let path = (machine.variable)("PATH").unwrap_or_default();
            let folders = std::env::split_paths(&path).filter(|folder| folder.is_absolute());
            folders.map(SearchPlace::Folder).collect()
        }
    };
    places.extend(packages.flat_map(|folder| {
        let inner = sought.packages.iter();
        inner.map(move |inner| SearchPlace::Folder(folder.join(inner)))
    }));
    let conda = variable("CONDA_PREFIX").map(|conda| conda.join(sought.conda));
    places.extend(conda.map(SearchPlace::Folder));
    let toolkits = [variable("CUDA_HOME"), variable("CUDA_PATH")];
    let toolkits = toolkits.into_iter().flatten();
    let toolkits = toolkits.chain(["/usr/local/cuda".into()]);
    let toolkits = toolkits.chain(numbered(Path::new("/usr/local"), "cuda-", machine));
    places.extend(toolkits.map(|toolkit| SearchPlace::Folder(toolkit.join(sought.toolkit))));
    let mut seen = Vec::new();
    places.retain(|place| {
        let is_new = !seen.contains(place);
        seen.push(place.clone());
        is_new
    });
    places
}

/// The folders of Python packages under a prefix, newest Python first. Debian's are
/// `dist-packages`.
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

/// The entries of a folder with this prefix, highest version first: 3.13 is above 3.9.
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
