//! What the macro says of a function that cannot be a target.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

use syn::ItemFn;

use crate::expand;
use crate::options::Options;
use crate::signature::Signature;

fn expand(options: &str, function: &str) -> syn::Result<String> {
    let options: Options = syn::parse_str(options)?;
    let mut function: ItemFn = syn::parse_str(function).unwrap();
    let signature = Signature::of(&mut function, &options)?;
    let added = expand::target(&function, &signature, &options)?;
    let function = quote::quote!(#function).to_string();
    assert!(
        !function.contains("attr") && !function.contains("state"),
        "markers are left: {function}"
    );
    Ok(added.to_string())
}

/// All messages for a function that is refused.
fn refusal(options: &str, function: &str) -> String {
    match expand(options, function) {
        Ok(_) => panic!("not refused: #[target({options})] {function}"),
        Err(error) => {
            let messages: Vec<String> = error.into_iter().map(|error| error.to_string()).collect();
            messages.join("; ")
        }
    }
}

#[test]
fn options_are_checked() {
    let refusal = |options| refusal(options, "fn f() {}");
    assert_eq!(
        refusal("pur"),
        "unknown option `pur`: expected `name = \"...\"`, `stage = ...`, `pure`, or the types of a generic target such as \
         `T = [f32, f64]`"
    );
    assert!(refusal("name").starts_with("unknown option `name`"));
    assert_eq!(refusal("pure, pure"), "`pure` is said twice");
    assert_eq!(
        refusal("name = \"f\", stage = execution"),
        "expected a stage (instantiate, prepare, initialize or execute), found `execution`"
    );
    assert_eq!(
        refusal("stage = prepare"),
        "a stage needs the target's name: add `name = \"...\"`"
    );
    assert_eq!(
        refusal("name = \"$f\""),
        "Call targets that start with '$' are reserved for internal use."
    );
    assert_eq!(refusal("T = []"), "expected at least one type for `T`");
    assert_eq!(
        refusal("T = [f32], U = [f32]"),
        "a target is generic over one type at most"
    );
    assert_eq!(
        refusal("T = [f32]"),
        "`T` is no type parameter of the function"
    );
}

#[test]
fn only_plain_functions_are_targets() {
    let refusal = |function| refusal("", function);
    assert_eq!(
        refusal("async fn f() {}"),
        "a target is a plain function: it cannot be async"
    );
    assert_eq!(
        refusal("unsafe fn f() {}"),
        "a target is a plain function: it cannot be unsafe"
    );
    assert_eq!(
        refusal("extern \"C\" fn f() {}"),
        "a target is a plain function: it cannot be extern: the export is made beside it"
    );
    assert_eq!(
        refusal("fn f(&self) {}"),
        "a target is a plain function: it cannot have `self`"
    );
    assert_eq!(
        refusal("fn f<T>(x: &Operand<T>) {}"),
        "a generic target needs its types: write `#[target(T = [f32, f64])]`"
    );
    assert_eq!(
        refusal("fn f<const N: usize>(x: &Operand<f32, N>) {}"),
        "a target is generic over an element type, not over a constant"
    );
    assert!(refusal("fn memcpy() {}").starts_with("`memcpy` is a function of the C library"));
}

#[test]
fn parameters_are_checked() {
    let refusal = |function| refusal("", function);
    assert_eq!(
        refusal("fn f((a, b): (f32, f32)) {}"),
        "a target's parameter needs a name, such as `x: &Operand<f32>`"
    );
    assert_eq!(
        refusal("fn f(#[attr] #[state] n: f32) {}"),
        "a parameter has one marker, `#[attr]` or `#[state]`"
    );
    assert_eq!(
        refusal("fn f(#[attr] n: f32, #[attr(name = \"n\")] m: f32) {}"),
        "two parameters are the attribute `n`"
    );
    assert_eq!(
        refusal("fn f(#[attr(nam = \"n\")] m: f32) {}"),
        "expected `name = \"...\"`"
    );
    assert_eq!(
        refusal("fn f(#[state] s: State) {}"),
        "state is shared by all calls: expected a reference such as `&State`"
    );
    assert_eq!(
        refusal("fn f(#[state(execute)] s: &State) {}"),
        "stage execute does not run before stage execute, and so leaves it no state"
    );
    assert_eq!(
        instantiate_refusal("fn f(#[state] s: &State) {}"),
        "stage instantiate does not run before stage instantiate, and so leaves it no state"
    );
}

fn instantiate_refusal(function: &str) -> String {
    refusal("name = \"f\", stage = instantiate", function)
}

#[test]
fn all_wrong_parameters_are_reported() {
    assert_eq!(
        refusal("", "fn f(#[state] s: State, _: f32) {}"),
        "state is shared by all calls: expected a reference such as `&State`; \
         a target's parameter needs a name, such as `x: &Operand<f32>`"
    );
}

#[test]
fn a_generic_target_needs_a_buffer_of_its_type() {
    assert_eq!(
        refusal("T = [f32, f64]", "fn f<T: Element>(#[attr] n: T) {}"),
        "no operand or result is of type `T`"
    );
}

#[test]
fn stages_are_exports_of_their_own() {
    let execute = expand("", "fn f(x: &Operand<f32>) {}").unwrap();
    assert!(execute.contains("export_name = \"f\""), "{execute}");
    let prepare = expand(
        "name = \"f\", stage = prepare",
        "fn g(x: &Operand<f32>) -> Result<(), Failure> { Ok(()) }",
    );
    let prepare = prepare.unwrap();
    assert!(prepare.contains("export_name = \"f.prepare\""), "{prepare}");
}

#[test]
fn attributes_have_the_places_of_their_sorted_names() {
    let code = expand(
        "",
        "fn f(#[attr] b: f32, #[attr(name = \"B\")] x: f32, #[attr] a: f32) {}",
    );
    let code = code.unwrap().replace(' ', "");
    for place in ["(\"B\",0usize)", "(\"a\",1usize)", "(\"b\",2usize)"] {
        assert!(code.contains(place), "{place} is not in {code}");
    }
}
