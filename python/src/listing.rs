//! Lists of a module's names in messages.

/// The most names that a message lists. A module can have thousands.
const MOST: usize = 16;

/// The most bytes of a name that are shown. A module's names have up to 1 KiB.
const NAME_BYTES: usize = 100;

/// The first names, and how many more there are.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    list(names, |name| name.to_owned())
}

/// [`listed`], with each name in quotation marks.
pub(crate) fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    list(names, |name| format!("{name:?}"))
}

fn list<'a>(names: impl IntoIterator<Item = &'a str>, show: impl Fn(&str) -> String) -> String {
    let mut names = names.into_iter();
    let shown = |name: &str| match name.floor_char_boundary(NAME_BYTES) {
        end if end < name.len() => show(&format!("{}...", &name[..end])),
        _ => show(name),
    };
    let first: Vec<_> = names.by_ref().take(MOST).map(shown).collect();
    let first = first.join(", ");
    match names.count() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}
