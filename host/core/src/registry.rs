//! The registry: targets by name and platform.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::call::{Platform, Signature, TargetModule};
use crate::text::{nearest, shortened};
use crate::values::{Blame, Result, Status, StatusCode};

/// Targets by name and platform. There is no global registry; an embedder creates its own.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// Registered targets, and the errors of names that lookups refuse.
    entries: BTreeMap<(Platform, String), Result<RegisteredTarget>>,
}

/// A registered target of a module.
#[derive(Clone, Debug)]
pub struct RegisteredTarget {
    module: Arc<dyn TargetModule>,
    index: usize,
}

impl RegisteredTarget {
    /// The target's module.
    #[must_use]
    pub fn module(&self) -> &Arc<dyn TargetModule> {
        &self.module
    }

    /// The target's declaration. Its name there may differ from the registered name.
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

    /// Registers the module's target `export` as `name`, on the module's platform. Registering the
    /// same target again has no effect.
    ///
    /// # Errors
    /// - INVALID_ARGUMENT if `name` is empty or starts with `$`, which XLA reserves.
    /// - NOT_FOUND if the module has no such target.
    /// - ALREADY_EXISTS if another target has the name.
    pub fn register(
        &mut self,
        name: &str,
        module: Arc<dyn TargetModule>,
        export: &str,
    ) -> Result<()> {
        check_name(name)?;
        let targets = module.targets();
        let Some(index) = Signature::find(targets, export) else {
            let names = module.targets().iter().map(|t| t.name.as_str());
            return Err(Status::not_found(format!(
                "the module has no target {:?}; {}",
                shortened(export),
                suggest(export, names)
            )));
        };
        self.insert(name, module, index)
    }

    /// Registers all targets of the module under their own names.
    ///
    /// # Errors
    /// As for [`Registry::register`]; then no target is registered.
    pub fn register_module(&mut self, module: Arc<dyn TargetModule>) -> Result<()> {
        let mut registry = self.clone();
        for (index, target) in module.targets().iter().enumerate() {
            check_name(&target.name)?;
            registry.insert(&target.name, Arc::clone(&module), index)?;
        }
        *self = registry;
        Ok(())
    }

    /// Makes lookups of a name fail with this error, for example because several modules have a
    /// target with the name. Modules may share names that no program looks up.
    pub fn refuse(&mut self, name: &str, platform: Platform, error: Status) {
        self.entries.insert((platform, name.to_owned()), Err(error));
    }

    /// Whether a target has this name, or the name is refused.
    #[must_use]
    pub fn has(&self, name: &str, platform: Platform) -> bool {
        self.entries.contains_key(&(platform, name.to_owned()))
    }

    /// The target with this name.
    ///
    /// # Errors
    /// - NOT_FOUND, with the most similar names, if no target has the name.
    /// - The error with which the name is refused ([`Registry::refuse`]).
    pub fn lookup(&self, name: &str, platform: Platform) -> Result<&RegisteredTarget> {
        if let Some(target) = self.entries.get(&(platform, name.to_owned())) {
            return target.as_ref().map_err(Status::clone);
        }
        let names = self.names(platform);
        Err(Status::not_found(format!(
            "No FFI handler registered for {:?} on platform {platform}; {}",
            shortened(name),
            suggest(name, names)
        )))
    }

    /// The names on a platform, sorted. Refused names are among them.
    pub fn names(&self, platform: Platform) -> impl Iterator<Item = &str> {
        let entries = self.entries.keys().filter(move |(p, _)| *p == platform);
        entries.map(|(_, name)| name.as_str())
    }

    /// Registers the module's target with this index.
    fn insert(&mut self, name: &str, module: Arc<dyn TargetModule>, index: usize) -> Result<()> {
        let key = (module.platform(), name.to_owned());
        let target = RegisteredTarget { module, index };
        match self.entries.get(&key) {
            Some(Ok(known)) if known.is_same(&target) => Ok(()),
            Some(Ok(known)) => Err(Status::new(
                StatusCode::AlreadyExists,
                Blame::Caller,
                format!(
                    "the target {name:?} on platform {} is already registered: it is {:?} of the \
                     module {}, not {:?} of the module {}",
                    key.0,
                    known.signature().name,
                    known.module.identity(),
                    target.signature().name,
                    target.module.identity()
                ),
            )),
            Some(Err(refusal)) => Err(refusal.clone()),
            None => {
                self.entries.insert(key, Ok(target));
                Ok(())
            }
        }
    }
}

/// Checks that a target can have this name.
fn check_name(name: &str) -> Result<()> {
    if name.starts_with('$') {
        return Err(Status::invalid_argument(format!(
            "Call targets that start with '$' are reserved for internal use: {:?}",
            shortened(name)
        )));
    }
    if name.is_empty() {
        return Err(Status::invalid_argument(
            "expected a target's name, found an empty one",
        ));
    }
    Ok(())
}

/// A hint that lists the names most similar to `wanted`, or some of the names if none is similar.
fn suggest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> String {
    const MOST: usize = 3;
    const LISTED: usize = 8;
    let names = Vec::from_iter(names);
    let quoted = |name: &&str| format!("{:?}", shortened(name));
    let near = nearest(wanted, names.iter().copied());
    if !near.is_empty() {
        let near = Vec::from_iter(near.iter().take(MOST).map(quoted));
        return format!("did you mean {}?", near.join(" or "));
    }
    if names.is_empty() {
        return "there are none".to_owned();
    }
    let listed = Vec::from_iter(names.iter().take(LISTED).map(quoted));
    let more = if names.len() > LISTED { ", ..." } else { "" };
    format!("there are {}{more}", listed.join(", "))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::*;
    use crate::call::{ApiVersion, CallOptions, CallSite, PreparedCalls, Stage};

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
        fn prepare(
            self: Arc<Self>,
            _: Vec<CallSite>,
            _: &CallOptions,
        ) -> Result<Box<dyn PreparedCalls>> {
            Err(Status::unimplemented("a fake is not run"))
        }
    }

    fn module(identity: &'static str, names: &[&str]) -> Arc<dyn TargetModule> {
        let target = |name: &&str| Signature {
            name: (*name).to_owned(),
            api_versions: vec![ApiVersion::TypedFfi],
            stages: vec![Stage::Execute],
            ..Signature::default()
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
    fn a_refused_name_fails_only_when_it_is_looked_up() {
        let mut registry = Registry::new();
        registry.register_module(module("a", &["f", "g"])).unwrap();
        let error = registry
            .register("f", module("b", &["f"]), "f")
            .unwrap_err();
        registry.refuse("f", Platform::Host, error.clone());
        assert_eq!(registry.lookup("f", Platform::Host).unwrap_err(), error);
        assert!(registry.lookup("g", Platform::Host).is_ok());
        let again = registry.register("f", module("c", &["f"]), "f");
        assert_eq!(again, Err(error));
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
