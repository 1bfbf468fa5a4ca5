//! Validation of targets' names.

/// Checks a target's name, which becomes the name of an export and of a symbol.
pub(crate) fn check(name: &str) -> Result<(), String> {
    if name.is_empty() {
        return Err("expected a name for the target, found none".to_owned());
    }
    if name.starts_with('$') {
        // The message is XLA's, from `CustomCall` (xla/hlo/builder/xla_builder.cc).
        return Err("Call targets that start with '$' are reserved for internal use.".to_owned());
    }
    if name.contains(|c: char| c.is_control()) {
        return Err(format!("`{}` has a control character", name.escape_debug()));
    }
    for suffix in STAGE_SUFFIXES {
        if name.ends_with(suffix) {
            return Err(format!("`{name}` ends like the export of a stage"));
        }
    }
    if RESERVED.contains(&name) || name.starts_with("cabi_") || name.starts_with("__") {
        return Err(format!("`{name}` is reserved for the WebAssembly module"));
    }
    let stem = name.strip_suffix(['f', 'l']).unwrap_or(name);
    if C_FUNCTIONS.contains(&name) || C_FUNCTIONS.contains(&stem) {
        return Err(format!(
            "`{name}` is a function of the C library, which compiled code may call: choose another name"
        ));
    }
    Ok(())
}

const STAGE_SUFFIXES: [&str; 7] = [
    ".instantiate",
    ".prepare",
    ".initialize",
    ".execute",
    ".instantiate.drop",
    ".prepare.drop",
    ".initialize.drop",
];

/// Names with a meaning of their own. `jax-ffi-api` is the export that returns the API table of the
/// JAX FFI proposal from a module in C.
const RESERVED: &[&str] = &["memory", "main", "_start", "_initialize", "jax-ffi-api"];

/// Functions of the C library that compilers call implicitly, without the suffixes for `float` and
/// `long double`. A target's symbol of that name would replace the function.
const C_FUNCTIONS: &[&str] = &[
    "abort",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bcmp",
    "calloc",
    "cbrt",
    "ceil",
    "copysign",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp10",
    "exp2",
    "expm1",
    "fabs",
    "fdim",
    "floor",
    "fma",
    "fmax",
    "fmaximum",
    "fmin",
    "fminimum",
    "fmod",
    "free",
    "frexp",
    "hypot",
    "ilogb",
    "ldexp",
    "lgamma",
    "lgamma_r",
    "log",
    "log10",
    "log1p",
    "log2",
    "malloc",
    "memchr",
    "memcmp",
    "memcpy",
    "memmove",
    "memset",
    "modf",
    "nextafter",
    "pow",
    "realloc",
    "remainder",
    "remquo",
    "rint",
    "round",
    "roundeven",
    "scalbn",
    "sin",
    "sincos",
    "sinh",
    "sqrt",
    "strlen",
    "tan",
    "tanh",
    "tgamma",
    "trunc",
];

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn ordinary_names_are_fine() {
        for name in [
            "add_n",
            "my.module.add",
            "Softmax",
            "xla::add",
            "fail",
            "half",
            "prepare",
            "x.drop",
            "instantiate.drop",
        ] {
            assert_eq!(check(name), Ok(()), "{name}");
        }
    }

    #[test]
    fn names_that_stand_for_something_else_are_refused() {
        for name in [
            "",
            "$x",
            "a\0b",
            "x.prepare",
            "x.instantiate.drop",
            "x.prepare.drop",
            "x.initialize.drop",
            "jax-ffi-api",
            "memory",
            "cabi_realloc",
            "__heap_base",
            "exp",
            "sinf",
            "memcpy",
        ] {
            assert!(check(name).is_err(), "{name}");
        }
    }
}
