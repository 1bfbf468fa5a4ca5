//! Which CUDA sources there are: the images of the guests' manifests, and what the libraries of `guests/cuda` have in them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::process::root;

const GUESTS: &str = "guests";

const MANIFEST: &str = "callbox.json";

/// The folder whose sources are in no manifest.
const LIBRARIES: &str = "guests/cuda";

/// A source and the PTX beside it. Paths begin at the repository's root.
#[derive(Debug)]
pub(super) struct Image {
    /// The CUDA source.
    pub(super) source: PathBuf,
    /// What is made of it.
    pub(super) ptx: PathBuf,
    /// The manifest that has its digest, if it is in one.
    pub(super) manifest: Option<PathBuf>,
}

impl Image {
    /// The manifest's text with this digest of the source. All else stays as it was written.
    pub(super) fn with_digest(&self, manifest: &str, digest: &str) -> Result<String> {
        const KEY: &str = "\"source_sha256\": \"";
        let name = self.source.file_name().unwrap_or_default();
        let source = format!("\"source\": \"{}\"", name.to_string_lossy());
        let parts = manifest.split_once(&source).and_then(|(before, behind)| {
            let (between, behind) = behind.split_once(KEY)?;
            let (_, after) = behind.split_once('"')?;
            // The digest of the same image, and not that of the next.
            (!between.contains('}')).then_some((before, between, after))
        });
        let (before, between, after) = parts.with_context(|| {
            format!(
                "expected {source} and then {KEY}...\" in the image of {}",
                self.source.display()
            )
        })?;
        Ok([before, &source, between, KEY, digest, "\"", after].concat())
    }
}

/// All images, in the order of their sources' names.
///
/// # Errors
/// A manifest that is no JSON, an image whose names are missing, and two sources of one file name.
pub(super) fn all() -> Result<Vec<Image>> {
    let mut images = of_libraries()?;
    for folder in entries(Path::new(GUESTS))? {
        let manifest = folder.join(MANIFEST);
        if root().join(&manifest).is_file() {
            images.extend(of_manifest(&manifest)?);
        }
    }
    images.sort_by(|a, b| a.source.cmp(&b.source));
    let mut names = BTreeSet::new();
    for image in &images {
        ensure!(
            names.insert(image.source.file_name()),
            "expected CUDA sources of different file names, found another {}",
            image.source.display()
        );
    }
    Ok(images)
}

fn of_libraries() -> Result<Vec<Image>> {
    let sources = entries(Path::new(LIBRARIES))?;
    let sources = sources
        .into_iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "cu"));
    Ok(sources
        .map(|source| Image {
            ptx: source.with_extension("ptx"),
            source,
            manifest: None,
        })
        .collect())
}

fn of_manifest(manifest: &Path) -> Result<Vec<Image>> {
    let text = fs::read_to_string(root().join(manifest))
        .with_context(|| format!("expected to read {}", manifest.display()))?;
    let value: Value = serde_json::from_str(&text)
        .with_context(|| format!("expected JSON in {}", manifest.display()))?;
    let images = value["images"]
        .as_array()
        .with_context(|| format!("expected a list \"images\" in {}", manifest.display()))?;
    let folder = manifest.parent().unwrap_or(Path::new(""));
    let path = |image: &Value, key: &str| {
        let name = image[key].as_str().with_context(|| {
            format!(
                "expected a text {key:?} in each image of {}",
                manifest.display()
            )
        })?;
        anyhow::Ok(folder.join(name))
    };
    let images = images.iter().map(|image| {
        let (source, ptx) = (path(image, "source")?, path(image, "file")?);
        ensure!(
            ptx == source.with_extension("ptx"),
            "expected the PTX of {} beside it and named as it is, found {}",
            source.display(),
            ptx.display()
        );
        Ok(Image {
            source,
            ptx,
            manifest: Some(manifest.to_owned()),
        })
    });
    images.collect()
}

/// What a folder has, by name. Paths begin at the repository's root.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    let entries = fs::read_dir(root().join(folder))
        .with_context(|| format!("expected to read {}", folder.display()))?;
    for entry in entries {
        paths.push(folder.join(entry?.file_name()));
    }
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Image {
        Image {
            source: "guests/a/a.cu".into(),
            ptx: "guests/a/a.ptx".into(),
            manifest: Some("guests/a/callbox.json".into()),
        }
    }

    #[test]
    fn a_digest_takes_the_place_of_its_own_images_and_of_no_other() -> Result<()> {
        let manifest = r#"{"images": [{"source": "b.cu", "source_sha256": "1"}, {"source": "a.cu", "source_sha256": ""}]}"#;
        assert_eq!(
            image().with_digest(manifest, "22")?,
            r#"{"images": [{"source": "b.cu", "source_sha256": "1"}, {"source": "a.cu", "source_sha256": "22"}]}"#
        );
        Ok(())
    }

    #[test]
    fn an_image_without_a_digest_is_named() {
        let manifest =
            r#"{"images": [{"source": "a.cu"}, {"source": "b.cu", "source_sha256": "1"}]}"#;
        let error = image()
            .with_digest(manifest, "22")
            .map_err(|error| error.to_string());
        assert_eq!(
            error,
            Err(r#"expected "source": "a.cu" and then "source_sha256": "..." in the image of guests/a/a.cu"#.to_owned())
        );
    }
}
