//! Random changes of the text of kernels.

use super::{Random, number};

/// Changes a few words of a text.
pub fn mutated(text: &str, random: &mut Random) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let code: Vec<usize> = (0..lines.len())
        .filter(|&at| lines[at].contains(';') && !lines[at].contains(".reg"))
        .collect();
    if code.is_empty() {
        return text.to_owned();
    }
    for _ in 0..1 + random.below(3) {
        let at = code[random.below(code.len())];
        let other = code[random.below(code.len())];
        match random.below(8) {
            0 => lines[at].clear(),
            1 => {
                let line = lines[other].clone();
                lines[at] = line;
            }
            2 => lines.swap(at, other),
            3 | 4 => lines[at] = with_number(&lines[at], random),
            5 => lines[at] = with_register(&lines[at], &lines[other], random),
            6 => {
                let pairs = [
                    ("lt", "gt"),
                    ("s32", "u32"),
                    ("ge", "lt"),
                    ("@!%", "@%"),
                    ("add", "sub"),
                    ("eq", "ne"),
                    ("and", "or"),
                    ("wide", "lo"),
                    ("shl", "shr"),
                ];
                let (from, to) = pairs[random.below(pairs.len())];
                lines[at] = lines[at].replacen(from, to, 1);
            }
            _ => lines[at] = lines[at].replacen("@%", "@!%", 1),
        }
    }
    lines.join("\n")
}

fn with_number(line: &str, random: &mut Random) -> String {
    let words: Vec<&str> = line
        .split_inclusive([' ', ',', '+', ']', ';', '\t'])
        .collect();
    let places: Vec<usize> = (0..words.len())
        .filter(|&at| words[at].starts_with(|c: char| c.is_ascii_digit() || c == '-'))
        .collect();
    if places.is_empty() {
        return line.to_owned();
    }
    let place = places[random.below(places.len())];
    let end = words[place].chars().last().filter(|c| !c.is_ascii_digit());
    let mut changed = words
        .iter()
        .map(|&word| word.to_owned())
        .collect::<Vec<_>>();
    changed[place] = format!(
        "{}{}",
        number(random),
        end.map_or(String::new(), String::from)
    );
    changed.concat()
}

fn registers(line: &str) -> Vec<&str> {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '%' || c == '_'))
        .filter(|word| word.starts_with('%') && word.ends_with(|c: char| c.is_ascii_digit()))
        .collect()
}

fn with_register(line: &str, other: &str, random: &mut Random) -> String {
    let (own, others) = (registers(line), registers(other));
    if own.is_empty() || others.is_empty() {
        return line.to_owned();
    }
    let (from, to) = (
        own[random.below(own.len())],
        others[random.below(others.len())],
    );
    line.replacen(from, to, 1)
}

/// The text of one kernel: its module's head, and its own lines.
pub fn alone(text: &str, entry: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let is_entry = |line: &&str| line.contains(".entry ");
    let Some(first) = lines.iter().position(&is_entry) else {
        return text.to_owned();
    };
    let Some(start) = lines
        .iter()
        .position(|line| line.contains(&format!(".entry {entry}(")))
    else {
        return text.to_owned();
    };
    let end = lines[start + 1..].iter().position(is_entry);
    let end = end.map_or(lines.len(), |end| start + 1 + end);
    [&lines[..first], &lines[start..end]].concat().join("\n")
}
