//! Makes the PTX that is committed beside the guests' CUDA sources, or checks that it is what those make.

mod image;
pub(crate) mod libraries;
mod nvrtc;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use self::image::Image;
use self::nvrtc::Nvrtc;
use crate::process::{root, say};

/// Where what was compiled goes before it is compared or committed.
const OUT: &str = "target/ptx";

/// What to do.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Compares with what is committed, and writes nothing. It is skipped where NVRTC cannot be had.
    #[arg(long)]
    check: bool,
    /// Compiles the libraries of guests/cuda, which have PTX in them, to target/guests/NAME.so, and does nothing else.
    #[arg(long, conflicts_with = "check")]
    libraries: bool,
}

/// Checks that the PTX that is committed is what the sources make, where NVRTC can be had.
///
/// # Errors
/// As for [`ptx`].
pub(crate) fn check() -> Result<()> {
    say("Comparing the PTX of the guests with what their sources make");
    ptx(&Arguments {
        check: true,
        libraries: false,
    })
}

/// Compiles each CUDA source of the guests to PTX.
///
/// # Errors
/// A source that does not compile, a manifest without its image, and with `--check` the files that are not what their sources make.
pub(crate) fn ptx(arguments: &Arguments) -> Result<()> {
    if arguments.libraries {
        return libraries::build();
    }
    let nvrtc = match Nvrtc::find() {
        Ok(nvrtc) => nvrtc,
        Err(why) if arguments.check => {
            println!(
                "   skipped: the PTX was compared with nothing, because there is no NVRTC: {why:#}"
            );
            return Ok(());
        }
        Err(why) => return Err(why),
    };
    say("Compiling the guests' CUDA sources to PTX");
    let images = image::all()?;
    let compiled = compile(&nvrtc, &images)?;
    let mut changed = Vec::new();
    for (path, text) in compiled {
        let committed = fs::read_to_string(root().join(&path)).unwrap_or_default();
        if committed == text {
            continue;
        }
        if !arguments.check {
            fs::write(root().join(&path), text)
                .with_context(|| format!("expected to write {}", path.display()))?;
        }
        changed.push(path.display().to_string());
    }
    ensure!(
        !arguments.check || changed.is_empty(),
        "expected what the sources make, found something else in {}: run `cargo xtask ptx`",
        changed.join(", ")
    );
    let changed = match changed.is_empty() {
        true => "none".to_owned(),
        false => changed.join(", "),
    };
    println!("   {} images, changed: {changed}", images.len());
    Ok(())
}

/// What each file that is made of sources has to be: PTX, and manifests with the digests of their images.
fn compile(nvrtc: &Nvrtc, images: &[Image]) -> Result<Vec<(PathBuf, String)>> {
    let out = root().join(OUT);
    fs::create_dir_all(&out).with_context(|| format!("expected to make {}", out.display()))?;
    let sources: Vec<_> = images.iter().map(|image| image.source.clone()).collect();
    let digests = nvrtc.compile(&sources, &out)?;
    let mut files = Vec::new();
    for (image, digest) in images.iter().zip(&digests) {
        let ptx = out.join(image.ptx.file_name().unwrap_or_default());
        files.push((image.ptx.clone(), read(&ptx)?));
        if let Some(manifest) = &image.manifest {
            let text = match files.iter().position(|(path, _)| path == manifest) {
                Some(known) => files.swap_remove(known).1,
                None => read(&root().join(manifest))?,
            };
            files.push((manifest.clone(), image.with_digest(&text, digest)?));
        }
    }
    Ok(files)
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("expected to read {}", path.display()))
}
