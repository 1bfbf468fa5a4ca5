//! The repository's files, and Rust sources as tokens without comments and the contents of strings.

use std::fs;
use std::path::{Path, PathBuf};

use callbox_tests::module::repository;
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// A Rust source.
pub(crate) struct Source {
    /// The path relative to the repository's root, with `/`.
    pub(crate) path: String,
    /// The text.
    pub(crate) text: String,
    /// The tokens, with each bracket as a token.
    pub(crate) tokens: Vec<Token>,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// An identifier or a keyword.
    Word(String),
    /// A punctuation character or a bracket.
    Sign(char),
    /// A string, a number or a lifetime.
    Other,
}

impl Token {
    pub(crate) fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(found) if found == word)
    }
}

/// Lists the files below a folder of the repository, without build output.
pub(crate) fn files(folder: &str) -> Vec<String> {
    let root = repository();
    let mut files = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if name == "target" || name.starts_with('.') {
                continue;
            }
            if path.is_dir() {
                folders.push(path)
            } else {
                files.push(below(&root, &path))
            }
        }
    }
    files.sort();
    files
}

fn below(root: &Path, path: &Path) -> String {
    let path: PathBuf = path.strip_prefix(root).unwrap().to_owned();
    path.to_str()
        .unwrap()
        .replace(std::path::MAIN_SEPARATOR, "/")
}

/// Reads a file of the repository.
pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(repository().join(path))
        .unwrap_or_else(|error| panic!("cannot read {path}: {error}"))
}

/// Reads the Rust sources below a folder.
pub(crate) fn sources(folder: &str) -> Vec<Source> {
    let files = files(folder)
        .into_iter()
        .filter(|path| path.ends_with(".rs"));
    files
        .map(|path| Source::new(path.clone(), read(&path)))
        .collect()
}

impl Source {
    /// Tokenises a text.
    pub(crate) fn new(path: String, text: String) -> Self {
        let stream: TokenStream = text
            .parse()
            .unwrap_or_else(|error| panic!("{path}: {error}"));
        let mut tokens = Vec::new();
        flatten(stream, &mut tokens);
        Self { path, text, tokens }
    }
}

fn flatten(stream: TokenStream, tokens: &mut Vec<Token>) {
    for tree in stream {
        match tree {
            TokenTree::Ident(word) => tokens.push(Token::Word(word.to_string())),
            TokenTree::Punct(sign) => tokens.push(Token::Sign(sign.as_char())),
            TokenTree::Literal(_) => tokens.push(Token::Other),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ('(', ')'),
                    Delimiter::Brace => ('{', '}'),
                    Delimiter::Bracket => ('[', ']'),
                    Delimiter::None => (' ', ' '),
                };
                tokens.push(Token::Sign(open));
                flatten(group.stream(), tokens);
                tokens.push(Token::Sign(close));
            }
        }
    }
}
