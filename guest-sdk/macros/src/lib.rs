//! The macros of `callbox-guest`, which documents them: see `callbox_guest::target`, `callbox_guest::AttributeStruct` and
//! `callbox_guest::AttributeEnum`.
//!
//! The attribute macro reads names and markers only. What a parameter stands for is decided by its type, through the traits of
//! `callbox-guest`, so that type aliases work and a wrong type is the compiler's error at the right place.

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
use syn::{DeriveInput, Error, ItemFn, parse_macro_input};

use options::Options;
use signature::Signature;

/// Makes a function a target. Documented where `callbox-guest` exports it.
#[proc_macro_attribute]
pub fn target(options: TokenStream, item: TokenStream) -> TokenStream {
    let options = parse_macro_input!(options as Options);
    let mut function = parse_macro_input!(item as ItemFn);
    let signature = Signature::of(&mut function, &options);
    let made = signature.and_then(|signature| expand::target(&function, &signature, &options));
    // The function itself stays, so that a mistake in it is not followed by errors about its absence.
    let made = made.unwrap_or_else(|error| error.to_compile_error());
    quote! {
        #[allow(clippy::too_many_arguments, reason = "a target has as many parameters as its call has values")]
        #function
        #made
    }
    .into()
}

/// Makes a struct an attribute. Documented where `callbox-guest` exports it.
#[proc_macro_derive(AttributeStruct, attributes(attr))]
pub fn attribute_struct(item: TokenStream) -> TokenStream {
    let input = parse_macro_input!(item as DeriveInput);
    derive::of_struct(&input)
        .unwrap_or_else(Error::into_compile_error)
        .into()
}

/// Makes an enum an attribute. Documented where `callbox-guest` exports it.
#[proc_macro_derive(AttributeEnum)]
pub fn attribute_enum(item: TokenStream) -> TokenStream {
    let input = parse_macro_input!(item as DeriveInput);
    derive::of_enum(&input)
        .unwrap_or_else(Error::into_compile_error)
        .into()
}
