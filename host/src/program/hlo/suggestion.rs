//! Near names: what may have been meant by a name that nothing has.

/// Names longer than this are not compared, and no more of them than this: a suggestion is not worth much time.
const LONGEST: usize = 64;
const MOST: usize = 10_000;

/// `; did you mean PREFIXname?` for the nearest of these names, or nothing if none is near.
pub(super) fn suggestion<'a>(
    name: &str,
    candidates: impl IntoIterator<Item = &'a str>,
    prefix: &str,
) -> String {
    let allowed = match name.len() {
        0..=2 => 1,
        3..=5 => 2,
        6..=LONGEST => 3,
        _ => return String::new(),
    };
    let near = |other: &&str| other.len().abs_diff(name.len()) <= allowed;
    let nearest = candidates
        .into_iter()
        .filter(near)
        .take(MOST)
        .map(|other| (strsim::damerau_levenshtein(name, other), other))
        .filter(|(distance, _)| *distance <= allowed && *distance < name.len())
        .min();
    match nearest {
        Some((_, other)) => format!("; did you mean {prefix}{other}?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_near_names_are_suggested() {
        let candidates = ["add.1", "multiply.2", "x"];
        assert_eq!(
            suggestion("add.2", candidates, "%"),
            "; did you mean %add.1?"
        );
        assert_eq!(
            suggestion("mutliply.2", candidates, ""),
            "; did you mean multiply.2?"
        );
        assert_eq!(suggestion("constant", candidates, "%"), "");
        assert_eq!(suggestion("y", candidates, "%"), "");
        let long = "a".repeat(LONGEST + 1);
        assert_eq!(suggestion(&long, [long.as_str()], "%"), "");
    }
}
