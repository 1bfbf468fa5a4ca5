//! Parses a manifest, and its images.

use callbox_core::values::Result;

use super::document::{Document, Field};
use super::{FORMAT, Image, ImageKind, Manifest, target};

impl Manifest {
    /// Parses a manifest, without opening the files that it names.
    ///
    /// # Errors
    /// INVALID_ARGUMENT, with the line and the path in the JSON.
    pub fn parse(text: &str) -> Result<Self> {
        let document = Document::parse(text)?;
        let root = document.root();
        let object = root.object(&["$schema", "format", "images", "targets"])?;
        if let Some(schema) = object.find("$schema") {
            schema.string()?;
        }
        let format = object.field("format")?;
        let found = format.number()?;
        if found != FORMAT {
            return Err(format.wrong(format!("expected the format {FORMAT}, found {found}")));
        }
        let mut images: Vec<Image> = Vec::new();
        for place in object.field("images")?.list()? {
            let read = image(&place)?;
            check_unique(&place, images.iter().map(|image| &image.name), &read.name)?;
            images.push(read);
        }
        let mut targets: Vec<super::KernelTarget> = Vec::new();
        let places = object.field("targets")?;
        for place in places.list()? {
            let read = target::read(&place, &images)?;
            let names = targets.iter().map(|target| &target.signature.name);
            check_unique(&place, names, &read.signature.name)?;
            targets.push(read);
        }
        if targets.is_empty() {
            Err(places.wrong("expected at least one target, found none"))
        } else {
            Ok(Self { images, targets })
        }
    }
}

/// Checks that a name is unique.
fn check_unique<'a>(
    place: &Field<'_>,
    mut names: impl Iterator<Item = &'a String>,
    name: &str,
) -> Result<()> {
    if names.any(|other| other == name) {
        Err(place.wrong(format!("expected each name once, found {name:?} again")))
    } else {
        Ok(())
    }
}

fn image(place: &Field<'_>) -> Result<Image> {
    let object = place.object(&["name", "file", "source", "source_sha256"])?;
    let name = object.field("name")?.name()?.to_owned();
    let place = object.field("file")?;
    let file = file(&place)?;
    let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
    let kind = ImageKind::ALL
        .into_iter()
        .find(|kind| kind.extension() == extension)
        .ok_or_else(|| {
            place.wrong(format!(
                "expected a file that ends in .ptx, .cubin, .fatbin or .cu, found {file:?}"
            ))
        })?;
    let source = object.find("source").map(|place| self::file(&place));
    let source_sha256 = object.find("source_sha256").map(|place| sha256(&place));
    let (source, source_sha256) = (source.transpose()?, source_sha256.transpose()?);
    let wrong = |message: &str| Err(object.place().wrong(message));
    match (&source, &source_sha256) {
        (None, None) => {}
        _ if kind == ImageKind::Source => {
            return wrong(&format!(
                "expected no source of {file:?}, which is a source, found one"
            ));
        }
        (Some(_), Some(_)) => {}
        (Some(_), None) => return wrong("expected source_sha256 with source, found none"),
        (None, Some(_)) => return wrong("expected source with source_sha256, found none"),
    }
    Ok(Image {
        name,
        file: file.to_owned(),
        kind,
        source: source.map(str::to_owned),
        source_sha256,
    })
}

/// Parses a path that stays in the manifest's folder, on every system.
fn file<'a>(place: &Field<'a>) -> Result<&'a str> {
    let path = place.name()?;
    let is_inside = |name: &str| !matches!(name, "" | "." | "..");
    if path.split('/').all(is_inside) && !path.contains(':') {
        Ok(path)
    } else {
        Err(place.wrong(format!(
            "expected a path inside the manifest's folder, without empty names, . and .. and :, found {path:?}"
        )))
    }
}

fn sha256(place: &Field<'_>) -> Result<String> {
    let text = place.string()?;
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() == 64 && text.bytes().all(is_digit) {
        Ok(text.to_owned())
    } else {
        Err(place.wrong(format!(
            "expected 64 lower-case hexadecimal digits, found {}",
            super::document::quoted(text)
        )))
    }
}
