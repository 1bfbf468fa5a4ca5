//! The macros of `callbox-guest`, which re-exports and documents them: `callbox_guest::target`,
//! `callbox_guest::AttributeStruct` and `callbox_guest::AttributeEnum`.
//!
//! The attribute macro reads names and markers only. A parameter's type decides its role, through
//! the traits of `callbox-guest`. Type aliases therefore work, and the compiler reports a wrong
//! type where it is written.

mod derivative;
mod derive;
mod dimensions;
mod expand;
mod name;
mod options;
mod signature;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;
use quote::quote;
use syn::{Attribute, DeriveInput, Error, ItemFn, parse_macro_input};

use options::Options;
use signature::Signature;

/// Makes a function a target. `callbox-guest` documents it.
#[proc_macro_attribute]
pub fn target(options: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as Options);
    let mut function = parse_macro_input!(item as ItemFn);
    let signature = Signature::of(&mut function, &options);
    let made = signature.and_then(|signature| expand::target(&function, &signature, &options));
    // The function is kept on an error, so that its absence causes no further errors.
    let made = made.unwrap_or_else(|error| error.to_compile_error());
    // The compiler of the host gives a function that also decodes the call too few registers for
    // its loops.
    let is_inlined = |attribute: &Attribute| attribute.path().is_ident("inline");
    let outline = (!function.attrs.iter().any(is_inlined))
        .then(|| quote!(#[cfg_attr(target_arch = "wasm32", inline(never))]));
    quote! {
        #outline
        #[allow(clippy::too_many_arguments, reason = "a target has as many parameters as its call has values")]
        #function
        #made
    }
    .into()
}

/// Makes a struct an attribute type. `callbox-guest` documents it.
#[proc_macro_derive(AttributeStruct, attributes(attr))]
pub fn attribute_struct(item: TokenStream) -> TokenStream {
    let input = parse_macro_input!(item as DeriveInput);
    derive::of_struct(&input)
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

/// Makes an enum an attribute type. `callbox-guest` documents it.
#[proc_macro_derive(AttributeEnum)]
pub fn attribute_enum(item: TokenStream) -> TokenStream {
    let input = parse_macro_input!(item as DeriveInput);
    derive::of_enum(&input)
        .unwrap_or_else(Error::into_compile_error)
        .into()
}
