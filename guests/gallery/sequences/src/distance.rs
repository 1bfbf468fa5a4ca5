//! The edit distance, and the similarity of names, which the crate `strsim` computes.

use callbox_guest::{Failure, Operand, ResultBuffer, target};
use gallery::{invalid, last, row_major};

/// Computes the least number of insertions, deletions and substitutions that turn the first
/// `a_count` symbols of a row of `a` into the first `b_count` symbols of the row of `b`
/// (Levenshtein, 1965).
#[target(rows)]
fn levenshtein(
    #[dimensions(.., n)] a: &Operand<i32>,
    #[dimensions(..)] a_count: &Operand<i32>,
    #[dimensions(.., m)] b: &Operand<i32>,
    #[dimensions(..)] b_count: &Operand<i32>,
    #[dimensions(..)] distance: &mut ResultBuffer<i32>,
) -> Result<(), Failure> {
    row_major(&[("a", a.shape()), ("b", b.shape())])?;
    let [n] = last("a", a.dimensions())?;
    let [m] = last("b", b.dimensions())?;
    for i in 0..distance.len() {
        let a = prefix("a_count", &a[i * n..][..n], a_count[i])?;
        let b = prefix("b_count", &b[i * m..][..m], b_count[i])?;
        distance[i] = edits(a, b) as i32;
    }
    Ok(())
}

/// Symbols as `strsim` reads them.
struct Symbols<'a>(&'a [i32]);

impl<'a> IntoIterator for &Symbols<'a> {
    type Item = &'a i32;
    type IntoIter = std::slice::Iter<'a, i32>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

/// Computes how similar the first `a_count` symbols of a row of `a` and the first `b_count` symbols
/// of the row of `b` are, from 0 to 1: more so if they begin alike (Jaro, 1989, and Winkler, 1990).
#[target(rows)]
fn jaro_winkler(
    #[dimensions(.., n)] a: &Operand<i32>,
    #[dimensions(..)] a_count: &Operand<i32>,
    #[dimensions(.., m)] b: &Operand<i32>,
    #[dimensions(..)] b_count: &Operand<i32>,
    #[dimensions(..)] similarity: &mut ResultBuffer<f64>,
) -> Result<(), Failure> {
    row_major(&[("a", a.shape()), ("b", b.shape())])?;
    let [n] = last("a", a.dimensions())?;
    let [m] = last("b", b.dimensions())?;
    for i in 0..similarity.len() {
        let a = Symbols(prefix("a_count", &a[i * n..][..n], a_count[i])?);
        let b = Symbols(prefix("b_count", &b[i * m..][..m], b_count[i])?);
        similarity[i] = strsim::generic_jaro_winkler(&a, &b);
    }
    Ok(())
}

fn prefix<'a>(name: &str, symbols: &'a [i32], count: i32) -> Result<&'a [i32], Failure> {
    let prefix = usize::try_from(count)
        .ok()
        .and_then(|count| symbols.get(..count));
    prefix.ok_or_else(|| {
        invalid(format!(
            "expected {name} from 0 to {}, found {count}",
            symbols.len()
        ))
    })
}

/// Returns the distance. `row` has the distances of prefixes of `b` from one prefix of `a`.
fn edits(a: &[i32], b: &[i32]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
