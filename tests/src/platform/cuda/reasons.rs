//! The reasons why a case is not run on CUDA: it tests the sandbox, or its target has no twin.

use callbox::StaticInfo;
use callbox::policy::Policy;

use super::named;
use crate::case::{Case, FfiCall, Subject};

/// A separate test runs kernels that fault, because the device is lost then.
const TAKES_THE_DEVICE: &str = "a kernel that faults takes the device with it: a test of its own runs it (tests/tests/conformance_cuda)";

const NO_TWIN: &str = "the target has no twin: a device divides by zero without a fault, and has neither the stack nor the memory of a module";

const NO_KERNELS: &str = "the guest has no twins: it is an example for the Host platform, of dimensions that are declared";

const DECLARED: &str =
    "the target has no twin: it is an example of the guest SDK and of what it declares";

const GALLERY: &str = "the gallery's kernels have no twins yet";

const PANICS: &str = "the case is about a module's panic, with its backtrace: a native handler's is in a test of its own (tests/tests/conformance_cuda)";

const SANDBOX: &str = "what the target attacks is the sandbox, in which native targets are not";

const INSTANCES: &str =
    "the case is about instances of a module, of which native targets have none";

/// Targets whose cases observe what an instance keeps between calls.
const KEEP_SOMETHING: [(&str, &str); 3] = [
    ("typed_ffi", "counts"),
    ("c_typed", "c_stages"),
    ("jax_misc", "read_counter"),
];

/// Targets that have no twin, or whose cases need more than the twin can do, each with the reason.
const TARGETS: [(&str, &str, &str); 33] = [
    ("faults", "divide_by_zero", NO_TWIN),
    ("faults", "infinite_recursion", NO_TWIN),
    ("faults", "grow_memory", NO_TWIN),
    ("faults", "unreachable", TAKES_THE_DEVICE),
    ("faults", "read_out_of_bounds", TAKES_THE_DEVICE),
    ("faults", "write_out_of_bounds", TAKES_THE_DEVICE),
    (
        "faults",
        "infinite_loop",
        "a kernel cannot be stopped: a deadline is looked at before each call, and not within one",
    ),
    ("faults", "panic", PANICS),
    ("faults", "index_out_of_bounds", PANICS),
    (
        "faults",
        "huge_message",
        "how much of a message is kept is the sandbox's policy, which native handlers are not under",
    ),
    (
        "faults",
        "wrong_status_code",
        "the target has no twin: a native handler returns a status, which has no wrong code",
    ),
    (
        "c_typed",
        "c_scribble",
        "the target has no twin: it writes over its module's memory",
    ),
    (
        "jax_misc",
        "version",
        "the target has no twin: the JAX FFI proposal's table of functions is handed to modules alone",
    ),
    (
        "jax_inputs_first",
        "",
        "the case is about a macro of the header for modules",
    ),
    (
        "jax_misc",
        "empty_tuple_and_token_jax",
        "the target has no twin: native handlers get the leaves of their operands, and an empty tuple is none",
    ),
    ("conventions_hostile", "", SANDBOX),
    ("functions", "depth", INSTANCES),
    (
        "maths",
        "",
        "the guest has no twins: the host computes for modules alone",
    ),
    ("typed_ffi", "every_other", DECLARED),
    ("typed_ffi", "noise", DECLARED),
    ("typed_ffi", "pair_sums", DECLARED),
    ("typed_ffi", "picked", DECLARED),
    ("typed_ffi", "squared", DECLARED),
    (
        "inert",
        "",
        "the guest has no twins: the case is about what C's library imports",
    ),
    (
        "stb_jpeg",
        "",
        "the guest has no twins: it is third-party code for the processor",
    ),
    ("rms_norm", "", NO_KERNELS),
    ("activation", "", NO_KERNELS),
    ("layers", "", GALLERY),
    ("media", "", GALLERY),
    ("quantised", "", GALLERY),
    ("sequences", "", GALLERY),
    ("tables", "", GALLERY),
    ("vision", "", GALLERY),
];

/// Constructors and destructors of static information that have no twin.
const MODULES_OWN: [&str; 7] = [
    "make_it",
    "make_nothing",
    "make_trap",
    "drop_it",
    "drop_two",
    "drop_trap",
    "drop_failure",
];

/// The reason why a case is not run on CUDA, if there is one.
pub(super) fn against(case: &Case) -> Option<&'static str> {
    match &case.subject {
        Subject::FfiCall(call) if call.platform.eq_ignore_ascii_case("cuda") => {
            return Some("the case is about a function for the CPU that is registered for CUDA");
        }
        Subject::FfiCall(call) if has_own_constructor(call) => {
            return Some(
                "the case is about a module's constructors and destructors, as exports or as they go wrong",
            );
        }
        Subject::Program { text, .. } if MODULES_OWN.iter().any(|name| text.contains(name)) => {
            return Some(
                "the case is about a module's constructors and destructors, as exports or as they go wrong",
            );
        }
        _ => {}
    }
    if let Some(policy) = &case.policy {
        let of_instances = Policy {
            isolation: policy.isolation,
            ..Policy::default()
        };
        if *policy != of_instances {
            return Some("the case sets the sandbox's policy, which native targets are not under");
        }
        if named(&case.subject).any(|target| KEEP_SOMETHING.contains(&target)) {
            return Some(INSTANCES);
        }
    }
    named(&case.subject).find_map(|(guest, target)| {
        let mut known = TARGETS.iter();
        let entry =
            known.find(|(of, name, _)| *of == guest && (name.is_empty() || *name == target));
        entry.map(|(_, _, reason)| *reason)
    })
}

/// Whether exports without a twin construct or destroy its static information.
fn has_own_constructor(call: &FfiCall) -> bool {
    match &call.static_info {
        Some(StaticInfo::Reference {
            constructor,
            destructor,
            ..
        }) => [constructor, destructor]
            .iter()
            .any(|name| MODULES_OWN.contains(&name.as_str())),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover;

    /// Every reason must apply to a case.
    #[test]
    fn every_reason_is_some_case_s() {
        let mut unused: Vec<_> = TARGETS
            .iter()
            .map(|(guest, name, _)| (guest, name))
            .collect();
        for found in discover::all().unwrap() {
            let case = Case::read(&found.path).unwrap();
            for (guest, target) in named(&case.subject) {
                unused.retain(|(of, name)| **of != guest || !(name.is_empty() || **name == target));
            }
        }
        assert!(unused.is_empty(), "{unused:?}");
    }
}
