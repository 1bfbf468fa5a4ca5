//! The names of modules, and the patterns of rules that match them.

use std::path::Path;

/// Stands for the name of a file whose links cannot be followed, for example because a folder above
/// it cannot be searched: each rule could be for it. No path has it.
pub(super) const UNRESOLVED: &str = "\0";

/// The names of a file for rules, all of which hold: its path as it was asked for, with the links
/// of its folder resolved, and with all links resolved. `/` is between names.
///
/// A link under a name with a rule thus leads to nothing that the rule does not allow, and a link
/// by another name to a file with a rule does not evade it.
#[must_use]
pub fn names_of_file(path: &Path) -> Vec<String> {
    let asked = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let folder = asked.parent().map(Path::canonicalize);
    let in_folder = folder.zip(asked.file_name());
    let in_folder = in_folder.map(|(at, name)| at.map(|at| at.join(name)));
    let real = asked.canonicalize();
    let mut names = vec![with_slashes(&asked.to_string_lossy())];
    for resolved in in_folder.into_iter().chain([real]) {
        let text = resolved.map(|path| with_slashes(&path.to_string_lossy()));
        names.push(text.unwrap_or_else(|_| UNRESOLVED.to_owned()));
    }
    names.dedup();
    names
}

/// The text with `/` for each backslash, which patterns and names may have.
pub(super) fn with_slashes(text: &str) -> String {
    text.replace('\\', "/")
}

/// How absolute paths and references of hosts begin, but for the letters of drives.
const BEGINNINGS: [&str; 5] = ["/", "hf:", "oci:", "http://", "https://"];

/// Whether a rule with this pattern is for a name, both with [`with_slashes`].
pub(super) fn is_for(pattern: &str, name: &str) -> bool {
    let is_alike = |alike: fn(&str) -> String| matches(&alike(pattern), &alike(name));
    name.starts_with(UNRESOLVED) || matches(pattern, name) || alike(name).is_some_and(is_alike)
}

/// Whether a pattern can match an absolute path or a reference of a host.
pub(super) fn is_absolute(pattern: &str) -> bool {
    let (begin, is_whole) = match pattern.split_once('*') {
        Some((begin, _)) => (begin, false),
        None => (pattern, true),
    };
    let is_drive = begin.get(1..2) == Some(":");
    let mut known = BEGINNINGS.iter();
    is_drive || known.any(|known| begin.starts_with(known) || !is_whole && known.starts_with(begin))
}

/// What makes names of the same thing equal, where hosts take several.
fn alike(name: &str) -> Option<fn(&str) -> String> {
    if name.starts_with("hf:") {
        // Small and capital letters.
        return Some(str::to_ascii_lowercase);
    }
    name.starts_with("http").then_some(unescaped)
}

/// An address in small letters, with all characters that a path can have as they are. Some hosts
/// take capital letters for small ones.
fn unescaped(address: &str) -> String {
    let mut parts = address.split('%');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let byte = part
            .get(..2)
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match byte.filter(|byte| b"!$&'()*+,;=:@".contains(byte)) {
            Some(byte) => {
                text.push(char::from(byte));
                text.push_str(&part[2..]);
            }
            None => text.extend(["%", part]),
        }
    }
    text.make_ascii_lowercase();
    text
}

/// Whether a name matches a pattern, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == name;
    };
    let Some(mut left) = name.strip_prefix(start) else {
        return false;
    };
    let mut parts: Vec<_> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    // The earliest place of each part leaves the most for the parts after it.
    for part in parts {
        match left.find(part) {
            Some(at) => left = &left[at + part.len()..],
            None => return false,
        }
    }
    left.ends_with(end)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{UNRESOLVED, is_absolute, is_for, matches, names_of_file};

    /// Whatever the links lead to can have a name that a rule is for.
    #[test]
    fn a_file_whose_links_cannot_be_followed_has_every_rule() {
        // A file is no folder.
        for path in ["Cargo.toml/k.wasm", "nowhere/k.wasm"] {
            let names = names_of_file(Path::new(path));
            assert!(names.iter().any(|name| name == UNRESOLVED), "{names:?}");
        }
        let names = names_of_file(Path::new("Cargo.toml"));
        assert!(names.iter().all(|name| name != UNRESOLVED), "{names:?}");
        assert!(is_for("*/vendor/*", UNRESOLVED));
        assert!(!is_for("*/vendor/*", "/k.wasm"));
    }

    /// Hosts take other spellings of these names.
    #[test]
    fn rules_hold_for_names_that_are_alike() {
        for (pattern, name, expected) in [
            ("hf:Org/*", "hf:org/k@main", true),
            ("hf:org/*", "hf:ORG/k@main", true),
            ("hf:org/*", "hf:other/k@main", false),
            ("oci:h.example/a:V*", "oci:h.example/a:v1", false),
            (
                "https://h.example/@org/*",
                "https://h.example/%40org/k.wasm",
                true,
            ),
            (
                "https://h.example/%40org/*",
                "https://h.example/@org/k.wasm",
                true,
            ),
            ("https://h.example/a+b", "https://h.example/a%2Bb", true),
            ("https://h.example/a%20b", "https://h.example/a%20b", true),
            ("https://h.example/a b", "https://h.example/a%20b", false),
            ("https://h.example/%", "https://h.example/%e9", false),
            ("https://h.example/Org/*", "https://h.example/org/k", true),
        ] {
            assert_eq!(is_for(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_that_match_no_path_are_known() {
        for (pattern, expected) in [
            ("*", true),
            ("*.wasm", true),
            ("/k/*", true),
            ("C:/k/*", true),
            ("hf:org/*", true),
            ("h*", true),
            ("https://*", true),
            ("oci:host/*", true),
            ("kernels/*.wasm", false),
            ("./kernels/*.wasm", false),
            ("k.wasm", false),
            ("h", false),
            ("", false),
            ("org/*", false),
        ] {
            assert_eq!(is_absolute(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "/a/b.wasm", true),
            ("a", "a", true),
            ("a", "ab", false),
            ("", "", true),
            ("", "a", false),
            ("hf:org/*", "hf:org/k@v1", true),
            ("hf:org/*", "hf:organ/k@v1", false),
            ("hf:org/*", "x/hf:org/k", false),
            ("*.wasm", "/k/a.wasm", true),
            ("*.wasm", "/k/a.wasm.", false),
            ("*a*b", "ab", true),
            ("*a*b", "ba", false),
            ("a*a", "a", false),
            ("*/k/*.wasm", "/srv/k/x/y.wasm", true),
            ("*aab", "aaab", true),
            ("*a*ab*", "aab", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
