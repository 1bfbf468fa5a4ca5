//! The nearest of some known names, for a name that is not known.

/// Longer names are not compared, nor are more candidates than this: the time for an error message
/// is bounded.
const LONGEST_NAME: usize = 64;
const MOST_CANDIDATES: usize = 10_000;

/// The candidates that a mistyped `name` may stand for, the nearest first. Two in five of the
/// longer name's characters may differ, but never all of them.
#[must_use]
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    if name.len() > LONGEST_NAME {
        return Vec::new();
    }
    let is_short = |other: &&str| other.len() <= LONGEST_NAME;
    let mut near: Vec<_> = candidates
        .into_iter()
        .filter(is_short)
        .take(MOST_CANDIDATES)
        .map(|other| (strsim::damerau_levenshtein(name, other), other))
        .filter(|(distance, other)| {
            let longer = name.len().max(other.len()).max(3);
            distance * 5 <= longer * 2 && *distance < name.len()
        })
        .collect();
    near.sort_unstable();
    near.into_iter().map(|(_, name)| name).collect()
}

/// `; did you mean NAME?` for the nearest candidate, to be appended to a message. Empty if no
/// candidate is near. `show` formats the candidate: with quotes, or with a `%`.
#[must_use]
pub fn suggestion<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    show: impl Fn(&str) -> String,
) -> String {
    match nearest(name, candidates).first() {
        Some(nearest) => format!("; did you mean {}?", show(nearest)),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_names_are_suggested() {
        let candidates = ["add.1", "multiply.2", "x"];
        for (name, expected) in [
            ("add.2", "; did you mean %add.1?"),
            ("mutliply.2", "; did you mean %multiply.2?"),
            ("constant", ""),
            ("y", ""),
        ] {
            assert_eq!(
                suggestion(name, candidates, |name| format!("%{name}")),
                expected
            );
        }
        let long = "a".repeat(LONGEST_NAME + 1);
        assert!(nearest(&long, [long.as_str()]).is_empty());
        assert_eq!(nearest("add", ["ad", "sub", "adds"]), ["ad", "adds"]);
    }
}
