//! The registry: which module's target a name stands for on a platform.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::call::{Platform, Signature, TargetModule};
use crate::values::{Blame, Result, Status, StatusCode};

/// Targets by name and platform. There is no global registry: an embedder has as many as it likes.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    entries: BTreeMap<(Platform, String), RegisteredTarget>,
}

/// A target of a module, as a registry has it.
#[derive(Clone, Debug)]
pub struct RegisteredTarget {
    module: Arc<dyn TargetModule>,
    index: usize,
}

impl RegisteredTarget {
    /// The module that has the target.
    #[must_use]
    pub fn module(&self) -> &Arc<dyn TargetModule> {
        &self.module
    }

    /// What the target declares. Its name is the module's, which need not be the one that it is registered by.
    #[must_use]
    pub fn signature(&self) -> &Signature {
        &self.module.targets()[self.index]
    }

    fn is_same(&self, other: &Self) -> bool {
        self.module.identity() == other.module.identity()
            && self.signature().name == other.signature().name
    }
}

impl Registry {
    /// A registry without targets.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the module's target `export` by `name`, on the module's platform. Registering the same target by the same name again
    /// changes nothing.
    ///
    /// # Errors
    /// - INVALID_ARGUMENT if `name` is empty or starts with `$`, which XLA reserves.
    /// - NOT_FOUND if the module has no such target.
    /// - ALREADY_EXISTS if the name stands for another target.
    pub fn register(
        &mut self,
        name: &str,
        module: Arc<dyn TargetModule>,
        export: &str,
    ) -> Result<()> {
        check_name(name)?;
        let Some(index) = module.targets().iter().position(|t| t.name == export) else {
            let names = module.targets().iter().map(|t| t.name.as_str());
            return Err(Status::not_found(format!(
                "the module has no target {export:?}; {}",
                suggest(export, names)
            )));
        };
        self.insert(name, module, index)
    }

    /// Registers each target of the module by its own name.
    ///
    /// # Errors
    /// As for [`Registry::register`]; then none of them is registered.
    pub fn register_module(&mut self, module: Arc<dyn TargetModule>) -> Result<()> {
        let mut registry = self.clone();
        for (index, target) in module.targets().iter().enumerate() {
            check_name(&target.name)?;
            registry.insert(&target.name, Arc::clone(&module), index)?;
        }
        *self = registry;
        Ok(())
    }

    /// The target of this name.
    ///
    /// # Errors
    /// NOT_FOUND, with the names that are nearest to it.
    pub fn lookup(&self, name: &str, platform: Platform) -> Result<&RegisteredTarget> {
        if let Some(target) = self.entries.get(&(platform, name.to_owned())) {
            return Ok(target);
        }
        let names = self.names(platform);
        Err(Status::not_found(format!(
            "No FFI handler registered for {name:?} on platform {platform}; {}",
            suggest(name, names)
        )))
    }

    /// The names on a platform, in order.
    pub fn names(&self, platform: Platform) -> impl Iterator<Item = &str> {
        let entries = self.entries.keys().filter(move |(p, _)| *p == platform);
        entries.map(|(_, name)| name.as_str())
    }

    /// Registers the module's target with this number.
    fn insert(&mut self, name: &str, module: Arc<dyn TargetModule>, index: usize) -> Result<()> {
        let key = (module.platform(), name.to_owned());
        let target = RegisteredTarget { module, index };
        match self.entries.get(&key) {
            Some(known) if known.is_same(&target) => Ok(()),
            Some(known) => Err(Status::new(
                StatusCode::AlreadyExists,
                Blame::Caller,
                format!(
                    "the target {name:?} on platform {} is {:?} of the module {}, expected the same and found {:?} of the module {}",
                    key.0,
                    known.signature().name,
                    known.module.identity(),
                    target.signature().name,
                    target.module.identity()
                ),
            )),
            None => {
                self.entries.insert(key, target);
                Ok(())
            }
        }
    }
}

/// Checks that a target can be registered by this name.
fn check_name(name: &str) -> Result<()> {
    if name.starts_with('$') {
        return Err(Status::invalid_argument(format!(
            "Call targets that start with '$' are reserved for internal use: {name:?}"
        )));
    }
    if name.is_empty() {
        return Err(Status::invalid_argument(
            "expected a target's name, found an empty one",
        ));
    }
    Ok(())
}

/// What to say of names that are like `wanted`.
fn suggest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    const MOST: usize = 3;
    let mut ranked: Vec<_> = names
        .map(|name| (strsim::damerau_levenshtein(wanted, name), name))
        .collect();
    ranked.sort_unstable();
    let near: Vec<_> = ranked
        .iter()
        .filter(|(distance, name)| distance * 2 <= name.len().max(wanted.len()))
        .map(|(_, name)| format!("{name:?}"))
        .take(MOST)
        .collect();
    match (near.is_empty(), ranked.is_empty()) {
        (false, _) => format!("did you mean {}?", near.join(" or ")),
        (true, false) => {
            let all: Vec<_> = ranked
                .iter()
                .map(|(_, n)| format!("{n:?}"))
                .take(8)
                .collect();
            format!(
                "there are {}{}",
                all.join(", "),
                if ranked.len() > 8 { ", ..." } else { "" }
            )
        }
        (true, true) => "there are none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::call::{ApiVersion, CallSite, PreparedCalls, Stage};

    #[derive(Debug)]
    struct Fake {
        identity: &'static str,
        targets: Vec<Signature>,
    }

    impl TargetModule for Fake {
        fn identity(&self) -> &str {
            self.identity
        }
        fn platform(&self) -> Platform {
            Platform::Host
        }
        fn targets(&self) -> &[Signature] {
            &self.targets
        }
        fn prepare(self: Arc<Self>, _: Vec<CallSite>) -> Result<Box<dyn PreparedCalls>> {
            Err(Status::unimplemented("a fake is not run"))
        }
    }

    fn module(identity: &'static str, names: &[&str]) -> Arc<dyn TargetModule> {
        let target = |name: &&str| Signature {
            name: (*name).to_owned(),
            api_versions: vec![ApiVersion::TypedFfi],
            stages: vec![Stage::Execute],
            operands: None,
            remaining_operands: false,
            results: None,
            remaining_results: false,
            attributes: None,
            documentation: String::new(),
            traits: Vec::new(),
        };
        Arc::new(Fake {
            identity,
            targets: names.iter().map(target).collect(),
        })
    }

    #[test]
    fn the_same_target_again_is_fine_and_another_is_not() {
        let mut registry = Registry::new();
        registry
            .register("f", module("a", &["f", "g"]), "f")
            .unwrap();
        registry
            .register("f", module("a", &["f", "g"]), "f")
            .unwrap();
        for (other, export) in [("a", "g"), ("b", "f")] {
            let err = registry
                .register("f", module(other, &["f", "g"]), export)
                .unwrap_err();
            assert_eq!(err.code(), StatusCode::AlreadyExists);
        }
        assert_eq!(
            registry
                .lookup("f", Platform::Host)
                .unwrap()
                .signature()
                .name,
            "f"
        );
    }

    #[test]
    fn reserved_and_empty_names_are_refused() {
        let mut registry = Registry::new();
        for name in ["$f", ""] {
            let err = registry
                .register(name, module("a", &["f"]), "f")
                .unwrap_err();
            assert_eq!(err.code(), StatusCode::InvalidArgument);
        }
    }

    #[test]
    fn a_module_is_registered_whole_or_not_at_all() {
        let mut registry = Registry::new();
        registry.register_module(module("a", &["g"])).unwrap();
        assert!(registry.register_module(module("b", &["f", "g"])).is_err());
        assert_eq!(registry.names(Platform::Host).collect::<Vec<_>>(), ["g"]);
    }

    #[test]
    fn unknown_names_get_near_ones() {
        let mut registry = Registry::new();
        registry
            .register_module(module("a", &["softmax", "add_n", "rms_norm"]))
            .unwrap();
        let err = registry.lookup("sofmax", Platform::Host).unwrap_err();
        assert_eq!(err.code(), StatusCode::NotFound);
        assert_eq!(
            err.message(),
            "No FFI handler registered for \"sofmax\" on platform Host; did you mean \"softmax\"?"
        );
        let err = registry.lookup("softmax", Platform::Cuda).unwrap_err();
        assert!(err.message().ends_with("there are none"), "{err}");
        let err = registry
            .register("x", module("a", &["f"]), "ff")
            .unwrap_err();
        assert_eq!(
            err.message(),
            "the module has no target \"ff\"; did you mean \"f\"?"
        );
    }

    #[test]
    fn host_and_cpu_are_the_same_platform() {
        assert_eq!("Cpu".parse::<Platform>(), "HOST".parse());
        assert!("TPU".parse::<Platform>().is_err());
    }
}
