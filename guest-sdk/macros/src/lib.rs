//! The attribute macro of `callbox-guest`, which documents it: see `callbox_guest::target`.
//!
//! The macro reads names and markers only. What a parameter stands for is decided by its type, through the traits of
//! `callbox-guest`, so that type aliases work and a wrong type is the compiler's error at the right place.

mod expand;
mod name;
mod options;
mod signature;
#[cfg(test)]
mod tests;

use proc_macro::TokenStream;
use quote::quote;
use syn::{ItemFn, parse_macro_input};

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
