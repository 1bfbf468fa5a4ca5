//! Checks that comments and documents are at most 100 columns wide and use no banned words.

use crate::sources::{files, read};

/// The maximum width of a line of prose.
const WIDTH: usize = 100;

/// Words that hide who or what a sentence is about.
const BANNED: [&str; 3] = ["nobody", "somebody", "whoever"];

/// The syntax of a file, which determines its prose.
enum Syntax {
    /// A source, whose comment lines begin with one of these.
    Comments(&'static [&'static str]),
    /// A Python source: comments and docstrings.
    Python,
    /// A document: everything except tables, code and link definitions.
    Markdown,
}

impl Syntax {
    fn of(path: &str) -> Option<Self> {
        match path.rsplit_once('.')?.1 {
            "rs" | "wit" => Some(Self::Comments(&["//"])),
            "c" | "cc" | "cu" | "h" => Some(Self::Comments(&["//", "/*", "* "])),
            "sh" | "toml" => Some(Self::Comments(&["#"])),
            "wat" => Some(Self::Comments(&[";;"])),
            "py" => Some(Self::Python),
            "md" => Some(Self::Markdown),
            _ => None,
        }
    }

    /// Returns the lines of prose with their numbers.
    fn prose(self, text: &str) -> Vec<(usize, &str)> {
        let lines = (1..).zip(text.lines());
        match self {
            Self::Comments(starts) => {
                let is_comment = |line: &str| starts.iter().any(|start| line.starts_with(start));
                lines
                    .filter(|(_, line)| is_comment(line.trim_start()))
                    .collect()
            }
            Self::Python => {
                let mut place = Place::Code;
                lines
                    .filter(|(_, line)| place.is_prose(line.trim_start()))
                    .collect()
            }
            Self::Markdown => {
                let mut is_code = false;
                lines
                    .filter(|(_, line)| is_paragraph(line, &mut is_code))
                    .collect()
            }
        }
    }
}

/// The place of a line in a Python source.
enum Place {
    Code,
    Docstring,
    OtherString,
}

impl Place {
    /// Returns whether a line is prose, and advances to the place of the next line.
    fn is_prose(&mut self, line: &str) -> bool {
        // A string that begins a statement is a docstring; others are data.
        let begins = line.starts_with("\"\"\"");
        let is_prose = match self {
            Self::Code => begins || line.starts_with('#'),
            Self::Docstring => true,
            Self::OtherString => false,
        };
        if line.matches("\"\"\"").count() % 2 == 1 {
            *self = match self {
                Self::Code if begins => Self::Docstring,
                Self::Code => Self::OtherString,
                Self::Docstring | Self::OtherString => Self::Code,
            };
        }
        is_prose
    }
}

/// Returns whether a line of a document is prose. `is_code` says whether it is in a code fence.
fn is_paragraph(line: &str, is_code: &mut bool) -> bool {
    let is_fence = line.trim_start().starts_with("```");
    *is_code ^= is_fence;
    let is_definition = line.starts_with('[') && line.contains("]: ");
    let is_other = line.starts_with('|') || line.starts_with("    ") || is_definition;
    !(*is_code || is_fence || is_other)
}

/// Describes what is wrong with a line of prose.
fn problem(line: &str) -> Option<String> {
    let width = line.chars().count();
    if width > WIDTH && !line.contains("://") {
        return Some(format!("{width} columns, expected at most {WIDTH}"));
    }
    let mut words = line.split(|c: char| !c.is_alphanumeric());
    let word = words.find(|word| {
        BANNED
            .iter()
            .any(|banned| word.eq_ignore_ascii_case(banned))
    })?;
    Some(format!("the word `{word}`: name the person or thing"))
}

#[test]
fn comments_and_documents_are_readable() {
    let mut problems = Vec::new();
    for path in files(".") {
        // Reports of GPUs are kept as `gpu-check` wrote them.
        if path.starts_with("benches/record/20") {
            continue;
        }
        let Some(syntax) = Syntax::of(&path) else {
            continue;
        };
        for (number, line) in syntax.prose(&read(&path)) {
            problems.extend(problem(line).map(|problem| format!("{path}:{number}: {problem}")));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn prose_is_found() {
    let numbers = |path: &str, text: &str| -> Vec<usize> {
        let prose = Syntax::of(path).unwrap().prose(text);
        prose.into_iter().map(|(number, _)| number).collect()
    };
    assert_eq!(
        numbers("a.rs", "//! a\nlet a = b / c; // d\n    // e"),
        [1, 3]
    );
    assert_eq!(numbers("a.h", "/* a\n * b\n */\nint c;"), [1, 2]);
    assert_eq!(numbers("a.toml", "# a\nb = 1 # c"), [1]);
    let python = "\"\"\"a\nb\"\"\"\nc = \"\"\"\n# d\n\"\"\"\n# e\n\"\"\"f\"\"\"\ng = 1";
    assert_eq!(numbers("a.py", python), [1, 2, 6, 7]);
    let markdown = "# a\n\n    b\n```\nc\n```\n| d |\n[e]: f\n- g";
    assert_eq!(numbers("a.md", markdown), [1, 2, 9]);
    assert!(Syntax::of("a.json").is_none());
}

#[test]
fn problems_are_found() {
    let wide = "é".repeat(WIDTH + 1);
    assert_eq!(problem(&wide[2..]), None);
    assert!(problem(&wide).unwrap().starts_with("101 columns"));
    assert_eq!(problem(&format!("https://{wide}")), None);
    assert!(problem("Nobody's").is_some() && problem("whoever").is_some());
    assert_eq!(problem("some body"), None);
}
