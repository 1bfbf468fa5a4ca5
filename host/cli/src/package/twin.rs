//! The native twin of a package: the manifest `callbox.json` and its images.

use std::collections::BTreeMap;
use std::sync::Arc;

use callbox::call::{AttributeSignature, BufferSignature, Signature};
use callbox::cuda::manifest::{self, Manifest};
use callbox::cuda::{CudaModule, NativeGrants};
use callbox::policy::Gpu;
use callbox::{Blame, ElementType, Result, Status, StatusCode};
use callbox_package::{Limits, MANIFEST, Package};

use super::{known, wrong};
use crate::text::name;

/// A native twin that agrees with its module.
pub(crate) struct Twin {
    manifest: Manifest,
    /// Why the twin does not load without a grant, if so.
    needs_grant: Option<String>,
}

impl Twin {
    /// The targets of the twin, with the kernels that each launches.
    pub(crate) fn targets(&self) -> impl Iterator<Item = (String, String)> {
        self.manifest.targets.iter().map(|target| {
            let launches = target.launches.iter().map(|launch| {
                let image = &self.manifest.images[launch.image];
                format!("launches {} of {}", launch.entry, image.file)
            });
            let launches: Vec<_> = launches.collect();
            (target.signature.name.clone(), launches.join("\n"))
        })
    }

    /// How the twin can be loaded, for a person.
    pub(crate) fn grade(&self) -> String {
        match &self.needs_grant {
            None => "fenced PTX, which needs no grant".to_owned(),
            Some(reason) => format!("needs a grant: {}", name(reason)),
        }
    }
}

/// Reads the twin and checks it against the targets of the module. No driver is needed.
///
/// # Errors
/// INVALID_ARGUMENT, blamed on the guest, if the manifest is wrong, lacks a file, or has a target
/// that the module lacks or declares otherwise.
pub(crate) fn read(package: &Package<'_>, targets: &[Signature]) -> Result<Option<Twin>> {
    let Some(Parts {
        text,
        manifest,
        images,
    }) = parts(package)?
    else {
        return Ok(None);
    };
    let agree = manifest.targets.iter().try_for_each(|twin| {
        let twin = &twin.signature;
        let target = targets.iter().find(|target| target.name == twin.name);
        let target = target.ok_or_else(|| {
            format!(
                "the twin of another module: \"{}\" is not a target of the module; {}",
                name(&twin.name),
                known(targets)
            )
        })?;
        agree(target, twin).map_err(|reason| {
            format!(
                "the twin of another module: target \"{}\": {reason}",
                name(&twin.name)
            )
        })
    });
    agree.map_err(|message| wrong(message).context(MANIFEST))?;
    let loaded = CudaModule::from_manifest(text, images, &NativeGrants::none(), &Gpu::default());
    Ok(Some(Twin {
        manifest,
        needs_grant: loaded.err().map(|status| status.message().to_owned()),
    }))
}

/// Loads the twin.
///
/// # Errors
/// NOT_FOUND if the package has none, and those of [`CudaModule::from_manifest`].
pub(crate) fn load(
    package: &Package<'_>,
    grants: &NativeGrants,
    gpu: &Gpu,
) -> Result<Arc<CudaModule>> {
    let twin = parts(package)?.ok_or_else(|| {
        Status::not_found(format!(
            "the package has no native twin: it has no file {MANIFEST}"
        ))
    })?;
    CudaModule::from_manifest(twin.text, twin.images, grants, gpu)
}

/// The digest of the twin, as grants name it. `None` if the package has no twin.
pub(crate) fn digest(package: &Package<'_>) -> Result<Option<[u8; 32]>> {
    let digest = parts(package)?.map(|twin| {
        let images: Vec<_> = twin.images.iter().map(Vec::as_slice).collect();
        manifest::digest(twin.text.as_bytes(), &images)
    });
    Ok(digest)
}

/// The files of a twin.
struct Parts<'a> {
    /// The text of the manifest.
    text: &'a str,
    manifest: Manifest,
    /// The images, in the manifest's order.
    images: Vec<Vec<u8>>,
}

/// Reads the files of the package's twin.
fn parts<'a>(package: &Package<'a>) -> Result<Option<Parts<'a>>> {
    let Some(bytes) = package.file(MANIFEST) else {
        return Ok(None);
    };
    let text = str::from_utf8(bytes)
        .map_err(|_| wrong("expected UTF-8, found other bytes".to_owned()).context(MANIFEST))?;
    let manifest = Manifest::parse(text).map_err(|status| {
        let message = status.message().to_owned();
        Status::new(status.code(), Blame::Guest, message).context(MANIFEST)
    })?;
    // Several images can name one file, so that the package's size is no bound.
    let mut left = Limits::default().package_bytes;
    let images = manifest.images.iter().map(|image| {
        let bytes = package.file(&image.file).ok_or_else(|| {
            let message = format!("the package lacks the image \"{}\"", name(&image.file));
            wrong(message).context(MANIFEST)
        })?;
        left = left.checked_sub(bytes.len()).ok_or_else(|| {
            let limit = Limits::default().package_bytes;
            let message = format!("expected images of at most {limit} bytes in all, found more");
            Status::new(StatusCode::ResourceExhausted, Blame::Guest, message).context(MANIFEST)
        })?;
        Ok(bytes.to_vec())
    });
    let images = images.collect::<Result<_>>()?;
    Ok(Some(Parts {
        text,
        manifest,
        images,
    }))
}

/// Checks that both declare the same, as far as both declare anything.
fn agree(module: &Signature, twin: &Signature) -> Result<(), String> {
    for (kind, module, twin) in [
        ("operands", &module.operands, &twin.operands),
        ("results", &module.results, &twin.results),
    ] {
        if let (Some(module), Some(twin)) = (module, twin) {
            buffers_agree(kind, module, twin)?;
        }
    }
    if let (Some(module), Some(twin)) = (&module.attributes, &twin.attributes) {
        attributes_agree(module, twin)?;
    }
    Ok(())
}

fn buffers_agree(
    kind: &str,
    module: &[BufferSignature],
    twin: &[BufferSignature],
) -> Result<(), String> {
    if module.len() != twin.len() {
        return Err(format!(
            "the module declares {} {kind}, the twin {}",
            module.len(),
            twin.len()
        ));
    }
    for (number, (module, twin)) in std::iter::zip(module, twin).enumerate() {
        // A name is documentation.
        let twin = BufferSignature {
            name: module.name.clone(),
            ..twin.clone()
        };
        let dimensions_agree = module.dimensions.is_none()
            || twin.dimensions.is_none()
            || module.dimensions == twin.dimensions;
        let ranks_agree = module.rank.is_none() || twin.rank.is_none() || module.rank == twin.rank;
        // A twin may take fewer element types than its module. An empty list allows all.
        let is_known = |t: &ElementType| module.element_types.contains(t);
        let types_agree = module.element_types.is_empty()
            || !twin.element_types.is_empty() && twin.element_types.iter().all(is_known);
        if !types_agree || module.optional != twin.optional || !dimensions_agree || !ranks_agree {
            return Err(format!(
                "{kind} {number}: the module declares {}, the twin {}",
                name(&module.to_string()),
                name(&twin.to_string())
            ));
        }
    }
    Ok(())
}

fn attributes_agree(
    module: &[AttributeSignature],
    twin: &[AttributeSignature],
) -> Result<(), String> {
    let by_name = |declared: &[AttributeSignature]| -> BTreeMap<String, AttributeSignature> {
        let attributes = declared.iter();
        attributes.map(|a| (a.name.clone(), a.clone())).collect()
    };
    let (module, twin) = (by_name(module), by_name(twin));
    let names = module.keys().chain(twin.keys());
    let differs = names
        .into_iter()
        .find(|name| !attribute_agrees(module.get(*name), twin.get(*name)));
    match differs {
        None => Ok(()),
        Some(attribute) => Err(format!(
            "module and twin declare the attribute \"{}\" differently",
            name(attribute)
        )),
    }
}

/// Whether an attribute is declared alike. One of the two may leave out the fields of a dictionary,
/// or the variants of an enum.
fn attribute_agrees(
    module: Option<&AttributeSignature>,
    twin: Option<&AttributeSignature>,
) -> bool {
    let (Some(module), Some(twin)) = (module, twin) else {
        return module == twin;
    };
    let fields_agree = match (&module.fields, &twin.fields) {
        (Some(module), Some(twin)) => attributes_agree(module, twin).is_ok(),
        _ => true,
    };
    let variants_agree = match (&module.variants, &twin.variants) {
        (Some(module), Some(twin)) => {
            let sorted =
                |variants: &[(String, i128)]| variants.iter().cloned().collect::<BTreeMap<_, _>>();
            sorted(module) == sorted(twin)
        }
        _ => true,
    };
    let twin = AttributeSignature {
        fields: module.fields.clone(),
        variants: module.variants.clone(),
        ..twin.clone()
    };
    fields_agree && variants_agree && *module == twin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_twin_may_leave_out_fields_and_variants_and_declares_no_others() {
        let attribute = |name: &str, fields: Option<Vec<AttributeSignature>>| AttributeSignature {
            name: name.to_owned(),
            kind: if fields.is_some() {
                "dictionary"
            } else {
                "scalar"
            }
            .to_owned(),
            element_type: None,
            fields,
            variants: None,
            optional: false,
        };
        let module = attribute("range", Some(vec![attribute("lo", None)]));
        let same = [module.clone()];
        let without = AttributeSignature {
            fields: None,
            ..module.clone()
        };
        let other = attribute("range", Some(vec![attribute("hi", None)]));
        assert_eq!(attributes_agree(&same, &same), Ok(()));
        assert_eq!(
            attributes_agree(&same, std::slice::from_ref(&without)),
            Ok(())
        );
        assert_eq!(attributes_agree(&[without], &same), Ok(()));
        let variants = |numbers: &[i128]| {
            let named = numbers.iter().map(|number| (format!("V{number}"), *number));
            [AttributeSignature {
                variants: Some(named.collect()),
                ..attribute("mode", None)
            }]
        };
        let none = [attribute("mode", None)];
        for twin in [&none, &variants(&[2, 1])] {
            assert_eq!(attributes_agree(&variants(&[1, 2]), twin), Ok(()));
            assert_eq!(attributes_agree(twin, &variants(&[1, 2])), Ok(()));
        }
        let message = "module and twin declare the attribute \"mode\" differently";
        let others = variants(&[1, 3]);
        assert_eq!(
            attributes_agree(&variants(&[1, 2]), &others),
            Err(message.to_owned())
        );
        let message = "module and twin declare the attribute \"range\" differently";
        for twin in [&[other][..], &[attribute("range", None)], &[]] {
            assert_eq!(attributes_agree(&same, twin), Err(message.to_owned()));
        }
    }
}
