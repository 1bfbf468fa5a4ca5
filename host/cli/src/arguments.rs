//! Arguments that consist of several parts.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use callbox::Shape;

use super::arrays::ArrayFile;
use super::attribute::ListArgument;

/// `NAME=FILE.wasm[#EXPORT]`.
#[derive(Clone, Debug)]
pub(super) struct TargetArgument {
    pub(super) name: String,
    pub(super) file: PathBuf,
    /// The module's name of the target.
    pub(super) export: String,
}

/// `N=FILE`, or `N.I=FILE` for an array in a parameter that is a tuple.
#[derive(Clone, Debug)]
pub(super) struct InputArgument {
    pub(super) place: InputPlace,
    pub(super) file: ArrayFile,
}

/// An array among a function's parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct InputPlace {
    pub(super) parameter: usize,
    /// Where in the parameter, if that is a tuple.
    pub(super) index: Vec<usize>,
}

impl fmt::Display for InputPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.parameter)?;
        self.index.iter().try_for_each(|i| write!(f, ".{i}"))
    }
}

/// Reads `NAME=FILE.wasm[#EXPORT]`.
pub(super) fn target(text: &str) -> Result<TargetArgument, String> {
    let expected = || format!("expected NAME=FILE.wasm or NAME=FILE.wasm#EXPORT, found {text:?}");
    let (name, file) = text.split_once('=').ok_or_else(expected)?;
    // A `#` in any other file's name is part of the name.
    let (file, export) = match file.find(".wasm#") {
        Some(at) => file.split_at(at + ".wasm".len()),
        None => (file, ""),
    };
    let export = export.strip_prefix('#').unwrap_or(name);
    if name.is_empty() || file.is_empty() || export.is_empty() {
        return Err(expected());
    }
    Ok(TargetArgument {
        name: name.to_owned(),
        file: file.into(),
        export: export.to_owned(),
    })
}

/// Reads `N=FILE`.
pub(super) fn input(text: &str) -> Result<InputArgument, String> {
    let expected = || {
        format!(
            "expected N=FILE with a parameter's number N, or N.I=FILE for array I of a tuple, \
             found {text:?}"
        )
    };
    let (place, file) = text.split_once('=').ok_or_else(expected)?;
    let numbers = place.split('.').map(|number| {
        let is_number = number.bytes().all(|b| b.is_ascii_digit());
        number.parse::<usize>().ok().filter(|_| is_number)
    });
    let numbers: Vec<usize> = numbers.collect::<Option<_>>().ok_or_else(expected)?;
    let (&parameter, index) = numbers.split_first().ok_or_else(expected)?;
    let place = InputPlace {
        parameter,
        index: index.to_vec(),
    };
    Ok(InputArgument {
        place,
        file: array_file(file)?,
    })
}

/// Reads `FILE.npy`, `FILE.safetensors#TENSOR`, `-`, a list such as `[1,2,3]:f32`, or an array of
/// rank 0 such as `1.5:f32`.
pub(super) fn array_file(text: &str) -> Result<ArrayFile, String> {
    const ENDING: &str = ".safetensors";
    if text.is_empty() {
        return Err("expected a file, found nothing".to_owned());
    }
    if text == "-" {
        return Ok(ArrayFile::StandardInput);
    }
    if text.starts_with('[') {
        return Ok(ArrayFile::List {
            text: text.to_owned(),
            list: ListArgument::parse(text)?,
        });
    }
    if let Some(list) = ListArgument::scalar(text) {
        let text = text.to_owned();
        return Ok(ArrayFile::List { text, list });
    }
    if let Some(at) = text.find(&format!("{ENDING}#")) {
        let (path, tensor) = text.split_at(at + ENDING.len());
        return Ok(ArrayFile::Tensor {
            path: path.into(),
            name: tensor[1..].to_owned(),
        });
    }
    if text.ends_with(ENDING) {
        return Err(format!("expected a tensor of the file: {text}#TENSOR"));
    }
    Ok(ArrayFile::Npy(text.into()))
}

/// Reads a shape in XLA's notation.
pub(super) fn shape(text: &str) -> Result<Shape, String> {
    let parsed = text.parse();
    parsed.map_err(|status: callbox::Status| status.message().to_owned())
}

/// Reads a number of `us`, `ms`, `s`, `m` or `h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split_unit(text);
    let unit_seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => f64::NAN,
    };
    let seconds = number.parse::<f64>().ok().map(|n| n * unit_seconds);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| format!("expected a duration such as 500ms, 10s or 2m, found {text:?}"))
}

/// Reads a number of bytes, or of a unit of them.
pub(super) fn size(text: &str) -> Result<usize, String> {
    let (number, unit) = split_unit(text);
    let unit_bytes = match unit {
        "" | "B" => Some(1),
        "KiB" => Some(1 << 10),
        "MiB" => Some(1 << 20),
        "GiB" => Some(1 << 30),
        "KB" | "kB" => Some(1_000),
        "MB" => Some(1_000_000),
        "GB" => Some(1_000_000_000),
        _ => None,
    };
    let bytes = number.parse::<usize>().ok().zip(unit_bytes);
    bytes
        .and_then(|(number, unit)| number.checked_mul(unit))
        .ok_or_else(|| format!("expected a size such as 65536, 256MiB or 1GiB, found {text:?}"))
}

/// The digits at the start of a text, and the rest.
fn split_unit(text: &str) -> (&str, &str) {
    let is_unit = |c: char| !(c.is_ascii_digit() || c == '.');
    text.split_at(text.find(is_unit).unwrap_or(text.len()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;

    #[test]
    fn targets_name_a_file_and_an_export() {
        for (text, name, file, export) in [
            ("f=a.wasm", "f", "a.wasm", "f"),
            ("f=a.wasm#g", "f", "a.wasm", "g"),
            ("f=dir#1/a.wasm#g#h", "f", "dir#1/a.wasm", "g#h"),
            ("f=a=b#c", "f", "a=b#c", "f"),
        ] {
            let target = target(text).unwrap();
            assert_eq!((&*target.name, &*target.export), (name, export));
            assert_eq!(target.file, PathBuf::from(file));
        }
        for wrong in ["", "f", "=a.wasm", "f=", "f=a.wasm#"] {
            assert!(target(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn inputs_name_a_place_and_a_file() {
        let read = |text: &str| input(text).map(|i| (i.place.to_string(), i.file.to_string()));
        let pair = |place: &str, file: &str| Ok((place.to_owned(), file.to_owned()));
        assert_eq!(read("0=x.npy"), pair("0", "x.npy"));
        assert_eq!(read("2.0.11=a=b.npy"), pair("2.0.11", "a=b.npy"));
        assert_eq!(read("1=w.safetensors#a#b"), pair("1", "w.safetensors#a#b"));
        assert_eq!(read("0=-"), pair("0", "standard input"));
        assert_eq!(read("0=[1,[2]]:f32"), pair("0", "[1,[2]]:f32"));
        assert_eq!(read("0=./[1]"), pair("0", "./[1]"));
        assert_eq!(read("1=-1.5:f32"), pair("1", "-1.5:f32"));
        assert_eq!(read("1=true"), pair("1", "true"));
        assert_eq!(read("1=1.npy"), pair("1", "1.npy"));
        assert!(read("0=[1,2").unwrap_err().contains("expected JSON"));
        assert_eq!(
            read("1=w.safetensors").unwrap_err(),
            "expected a tensor of the file: w.safetensors#TENSOR"
        );
        for wrong in [
            "", "0", "x.npy", "=x", "0=", "-1=x", "+1=x", "0.=x", "1e3=x",
        ] {
            assert!(input(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn durations_and_sizes_have_units() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("1.5s", 1500),
            ("2m", 120_000),
            ("1h", 3_600_000),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)));
        }
        for wrong in [
            "",
            "10",
            "s",
            "-1s",
            "1 s",
            "1d",
            "1e3s",
            "nans",
            "9999999999999999999999h",
        ] {
            assert!(duration(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(size("65536"), Ok(65_536));
        assert_eq!(size("1GiB"), Ok(1 << 30));
        assert_eq!(size("2MB"), Ok(2_000_000));
        for wrong in [
            "",
            "GiB",
            "1.5GiB",
            "-1",
            "1 GiB",
            "1gib",
            "99999999999999999999",
            "99999999999GiB",
        ] {
            assert!(size(wrong).is_err(), "{wrong:?}");
        }
    }
}
