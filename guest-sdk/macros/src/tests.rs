//! Messages of the macro for functions that cannot be targets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod declarations;

use proc_macro2::TokenStream;
use syn::ItemFn;

use crate::options::Options;
use crate::signature::Signature;
use crate::{derive, expand};

fn expand(options: &str, function: &str) -> syn::Result<String> {
    let options: Options = syn::parse_str(options)?;
    let mut function: ItemFn = syn::parse_str(function).unwrap();
    let signature = Signature::of(&mut function, &options)?;
    let added = expand::target(&function, &signature, &options)?;
    let function = quote::quote!(#function).to_string();
    assert!(
        !["attr", "state", "dimensions", "derivative_of"]
            .iter()
            .any(|marker| function.contains(marker)),
        "markers are left: {function}"
    );
    Ok(added.to_string())
}

/// Returns all messages for a function that the macro refuses.
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
        "unknown option `pur`: expected `name = \"...\"`, `stage = ...`, `pure`, `elementwise`, `rows`, `batched`, or the types of a generic \
         target such as `T = [f32, f64]`"
    );
    assert!(refusal("name").starts_with("unknown option `name`"));
    assert_eq!(refusal("pure, pure"), "`pure` is given twice");
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
        refusal("T = [f32], U = [f32], V = [f32]"),
        "a target is generic over two types at most"
    );
    assert_eq!(
        refusal("T = [f32]"),
        "`T` is not a type parameter of the function"
    );
}

#[test]
fn only_plain_functions_are_targets() {
    let refusal = |function: &str| refusal("", function);
    for qualifier in ["async", "unsafe"] {
        assert_eq!(
            refusal(&format!("{qualifier} fn f() {{}}")),
            format!("a target is a plain function: it cannot be {qualifier}")
        );
    }
    assert_eq!(
        refusal("extern \"C\" fn f() {}"),
        "a target is a plain function: it cannot be extern: the macro adds the export"
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
        "two parameters bind the attribute `n`"
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
        "stage execute does not run before stage execute, and leaves no state for it"
    );
    assert_eq!(
        instantiate_refusal("fn f(#[state] s: &State) {}"),
        "stage instantiate does not run before stage instantiate, and leaves no state for it"
    );
}

#[test]
fn a_pointer_is_no_attribute() {
    for pointer in ["*const f32", "*mut State"] {
        let refusal = refusal("", &format!("fn f(#[attr] p: {pointer}) {{}}"));
        assert!(
            refusal.starts_with("an attribute cannot be a pointer: it would be an address in the memory of the process"),
            "{refusal}"
        );
    }
}

#[test]
fn dimensions_are_checked() {
    let first = "`..` stands for any number of dimensions: it comes first, and at most once";
    let expected = "expected dimensions such as `#[dimensions(.., n, 4)]`: `..`, names, numbers, and expressions such as `n / 2`";
    let name =
        "a dimension's name has at most 64 letters from a to z and A to Z, digits and underscores";
    let long = "n".repeat(65);
    for (dimensions, message) in [
        ("(n, ..)", first),
        ("(.., ..)", first),
        ("(-1)", expected),
        ("(\"n\")", expected),
        ("(1.5)", expected),
        ("(n m)", "expected `,`"),
        ("(é)", name),
        (format!("({long})").as_str(), name),
        (
            "",
            "expected attribute arguments in parentheses: #[dimensions(...)]",
        ),
        (" = 3", "expected parentheses: #[dimensions(...)]"),
    ] {
        let function = format!("fn f(#[dimensions{dimensions}] x: &Operand<f32>) {{}}");
        assert_eq!(refusal("", &function), message, "{dimensions}");
    }
    for (options, function, message) in [
        (
            "",
            "fn f(#[dimensions(n)] #[dimensions(m)] x: &Operand<f32>) {}",
            "a parameter takes `#[dimensions(...)]` once",
        ),
        (
            "",
            "fn f(#[attr] #[dimensions(n)] x: &[f32]) {}",
            "only an operand or a result has dimensions",
        ),
        (
            "name = \"f\", stage = prepare",
            "fn f(#[dimensions(n)] x: &Operand<f32>) -> Result<(), Failure> { Ok(()) }",
            "dimensions are declared in stage execute, for all stages",
        ),
    ] {
        assert_eq!(refusal(options, function), message);
    }
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
    for parameter in [
        "#[attr] n: T",
        "x: Option<&Operand<T>>",
        "x: Option<Operand<T>>",
        "x: core::option::Option<Operand<'_, T>>",
    ] {
        let function = format!("fn f<T: Element>({parameter}) {{}}");
        assert_eq!(
            refusal("T = [f32, f64]", &function),
            "no required operand or result has elements of type `T`"
        );
    }
}

#[test]
fn an_optional_buffer_does_not_choose_the_type() {
    let code = expand(
        "T = [f32, f64]",
        "fn f<T: Element>(a: &AnyOperand, b: Option<Operand<T>>, y: &mut ResultBuffer<T>) {}",
    );
    let code = code.unwrap().replace(' ', "");
    assert!(code.contains("element_type(2usize)"), "{code}");
}

#[test]
fn shared_references_are_no_results() {
    let code = expand(
        "",
        "fn f(a: &Operand<f32>, b: Option<&Operand<f32>>, y: &mut ResultBuffer<f32>) {}",
    );
    let code = code.unwrap().replace(' ', "");
    assert_eq!(code.matches("::ROLE.shared()").count(), 2, "{code}");
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
    for export in ["f.prepare", "f.prepare.drop"] {
        let attribute = format!("export_name = \"{export}\"");
        assert!(prepare.contains(&attribute), "{export} is not in {prepare}");
    }
    assert!(!execute.contains(".drop"), "{execute}");
}

#[test]
fn an_optional_buffer_is_handed_over_as_an_option_of_a_reference() {
    let code = expand(
        "",
        "fn f(a: Option<&Operand<f32>>, b: core::option::Option<&mut ResultBuffer<f32>>, c: Option<AnyOperand>) {}",
    );
    let code = code.unwrap().replace(' ', "");
    let call =
        "f(__callbox_parameter_0.as_ref(),__callbox_parameter_1.as_mut(),__callbox_parameter_2)";
    assert!(code.contains(call), "{call} is not in {code}");
    assert!(
        code.contains("decoder.parameter::<Option<Operand<f32>>>()"),
        "{code}"
    );
}

/// Items around the function must neither be seen by the generated code nor replace its patterns.
#[test]
fn added_names_are_the_macros_own() {
    let function = "fn f<T: Element>(x: &Operand<T>, #[attr] n: T) {}";
    let code = expand("T = [f32, f64]", function).unwrap();
    let stage = "fn f(#[attr] n: f32) -> Result<(), Failure> { Ok(()) }";
    let stage = expand("name = \"f\", stage = prepare", stage).unwrap();
    for bound in [
        "decoder",
        "found",
        "parameter_0",
        "export",
        "frame",
        "take_back",
        "word",
        "METADATA",
        "call ::",
    ] {
        let bound = format!(" {bound} ");
        assert!(!code.contains(&bound), "{bound} is in {code}");
        assert!(!stage.contains(&bound), "{bound} is in {stage}");
    }
}

fn derive_refusal(derive: fn(&syn::DeriveInput) -> syn::Result<TokenStream>, item: &str) -> String {
    match derive(&syn::parse_str(item).unwrap()) {
        Ok(_) => panic!("not refused: {item}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn only_structs_with_names_are_dictionaries() {
    let refusal = |item| derive_refusal(derive::of_struct, item);
    assert_eq!(refusal("enum E { A }"), "expected a struct");
    assert_eq!(
        refusal("struct S(i32);"),
        "an attribute struct needs named fields: their names are the dictionary's"
    );
    for generic in [
        "struct S<T> { a: T }",
        "struct S<'a, 'b> { a: &'a str, b: &'b str }",
    ] {
        assert_eq!(
            refusal(generic),
            "an attribute struct is generic over one lifetime at most"
        );
    }
    assert_eq!(
        refusal("struct S { a: i32, #[attr(name = \"a\")] b: i32 }"),
        "two fields bind the attribute `a`"
    );
    assert_eq!(
        refusal("struct S { #[attr(named = \"a\")] b: i32 }"),
        "expected `name = \"...\"`"
    );
}

#[test]
fn only_enums_of_known_width_are_scalars() {
    let refusal = |item| derive_refusal(derive::of_enum, item);
    assert_eq!(refusal("struct S { a: i32 }"), "expected an enum");
    for item in [
        "enum E { A }",
        "#[repr(align(2))] enum E { A }",
        "#[repr(isize)] enum E { A }",
        "#[repr(C)] enum E { A }",
    ] {
        assert_eq!(
            refusal(item),
            "an attribute enum needs an integer type: write `#[repr(i32)]`, or another of i8, i16, i32, i64, \
             u8, u16, u32, u64",
            "{item}"
        );
    }
    assert_eq!(
        refusal("#[repr(u8)] enum E { A(i32) }"),
        "the variants of an attribute enum cannot have fields"
    );
    assert_eq!(
        refusal("#[repr(u8)] enum E<T> { A(T) }"),
        "an attribute enum cannot be generic"
    );
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
