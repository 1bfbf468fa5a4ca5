//! Kernels and functions up to their bodies: names, parameters, results.

use super::body;
use super::cursor::Cursor;
use super::lexer::Kind;
use super::module::{Entry, ParseError};
use super::parse::{Outline, Signature};

/// A parameter or result, by its name and place.
pub(super) struct Placed<'a> {
    pub(super) name: &'a str,
    pub(super) offset: usize,
    pub(super) size: usize,
}

/// Parameters in brackets, placed one behind the other from an offset on.
fn parameters<'a>(cursor: &mut Cursor<'a>, end: &mut usize) -> Result<Vec<Placed<'a>>, ParseError> {
    let mut placed = Vec::new();
    cursor.expect('(')?;
    while !cursor.takes(')') {
        if !cursor.takes_word(".param") {
            return cursor.error("`.param` (parameters in registers are not supported)");
        }
        let declared = cursor.declared_type()?;
        let parameter = cursor.declaration(declared)?;
        let Some(size) = parameter.size else {
            let message = format!("parameter `{}` has no size", parameter.name);
            return Err(ParseError {
                line: parameter.line,
                message,
            });
        };
        let offset = end.next_multiple_of(parameter.align);
        *end = offset + size;
        if *end > 1 << 16 {
            let message = format!("parameters of {end} bytes, more than any driver takes");
            return Err(ParseError {
                line: parameter.line,
                message,
            });
        }
        placed.push(Placed {
            name: parameter.name,
            offset,
            size,
        });
        if !cursor.takes(',') && cursor.peek() != Kind::Mark(')') {
            return cursor.error("`,` or `)`");
        }
    }
    Ok(placed)
}

fn places(placed: &[Placed<'_>]) -> Vec<(usize, usize)> {
    placed
        .iter()
        .map(|parameter| (parameter.offset, parameter.size))
        .collect()
}

/// `.maxntid 256, 1, 1` and its like, up to the body. The most threads that they allow.
fn tuning(cursor: &mut Cursor<'_>) -> Result<Option<u32>, ParseError> {
    let mut most = None;
    while let Kind::Word(word) = cursor.peek() {
        match word {
            ".maxntid" | ".reqntid" => {
                cursor.next();
                let mut threads = cursor.count("a number of threads")?;
                while cursor.takes(',') {
                    threads = threads.saturating_mul(cursor.count("a number of threads")?);
                }
                most = Some(u32::try_from(threads).unwrap_or(u32::MAX));
            }
            ".minnctapersm" | ".maxnctapersm" | ".maxnreg" => {
                cursor.next();
                cursor.count("a number")?;
            }
            ".pragma" => cursor.skip_behind(';')?,
            ".noreturn" => {
                cursor.next();
            }
            _ => return cursor.error("a body in braces"),
        }
    }
    Ok(most)
}

pub(super) fn entry<'a>(
    cursor: &mut Cursor<'a>,
    outline: &mut Outline<'a>,
) -> Result<(), ParseError> {
    let name = cursor.word("the name of a kernel")?;
    let mut end = 0;
    let placed = if cursor.peek() == Kind::Mark('(') {
        parameters(cursor, &mut end)?
    } else {
        Vec::new()
    };
    let most_threads = tuning(cursor)?;
    if cursor.takes(';') {
        return Ok(());
    }
    let place = outline.place();
    let header = body::Header {
        name,
        placed: &placed,
        bytes: end,
        entry: Some(place),
    };
    let function = body::read(cursor, outline, &header)?;
    outline.functions[place] = Some(function);
    outline.entries.push(Entry {
        name: name.to_owned(),
        parameters: places(&placed),
        function: place,
        most_threads,
    });
    Ok(())
}

pub(super) fn function<'a>(
    cursor: &mut Cursor<'a>,
    outline: &mut Outline<'a>,
) -> Result<(), ParseError> {
    let mut end = 0;
    let results = if cursor.peek() == Kind::Mark('(') {
        parameters(cursor, &mut end)?
    } else {
        Vec::new()
    };
    let name = cursor.word("the name of a function")?;
    let given = if cursor.peek() == Kind::Mark('(') {
        parameters(cursor, &mut end)?
    } else {
        Vec::new()
    };
    let function = match outline.signatures.get(name) {
        Some(known) => known.function,
        None => outline.place(),
    };
    let signature = Signature {
        parameters: places(&given),
        results: places(&results),
        function,
    };
    outline.signatures.insert(name, signature);
    tuning(cursor)?;
    if cursor.takes(';') {
        return Ok(());
    }
    let placed: Vec<Placed<'a>> = results.into_iter().chain(given).collect();
    let header = body::Header {
        name,
        placed: &placed,
        bytes: end,
        entry: None,
    };
    outline.functions[function] = Some(body::read(cursor, outline, &header)?);
    Ok(())
}
