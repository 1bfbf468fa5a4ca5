//! The marker `#[derivative_of(...)]` of a function.

use callbox_abi::Stage;
use proc_macro2::TokenStream;
use quote::quote;
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, Ident, ItemFn, LitStr, Result, Token};

use crate::name;
use crate::options::Options;
use crate::signature::unraw;

/// The modes, the first of which is the default.
const MODES: [&str; 2] = ["vjp", "jvp"];

/// The target whose derivatives a function computes.
pub(crate) struct DerivativeOf {
    target: String,
    mode: &'static str,
}

impl DerivativeOf {
    /// Reads and removes the function's marker, if there is one.
    pub(crate) fn take(function: &mut ItemFn, options: &Options) -> Result<Option<Self>> {
        let (markers, others) = std::mem::take(&mut function.attrs)
            .into_iter()
            .partition::<Vec<_>, _>(|attribute| attribute.path().is_ident("derivative_of"));
        function.attrs = others;
        let Some(first) = markers.first() else {
            return Ok(None);
        };
        let refuse = |message: &str| Err(Error::new(first.span(), message));
        if markers.len() > 1 {
            return refuse("a target takes `#[derivative_of(...)]` once");
        }
        if options.stage != Stage::Execute {
            return refuse("a derivative is declared in stage execute, for all stages");
        }
        first.parse_args().map(Some)
    }
}

impl Parse for DerivativeOf {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let span = input.span();
        let target = if input.peek(LitStr) {
            input.parse::<LitStr>()?.value()
        } else if input.peek(Ident::peek_any) {
            unraw(&Ident::parse_any(input)?)
        } else {
            let message = "expected the name of a target, such as `#[derivative_of(softmax)]`";
            return Err(Error::new(span, message));
        };
        name::check(&target).map_err(|message| Error::new(span, message))?;
        if input.is_empty() {
            let mode = MODES[0];
            return Ok(Self { target, mode });
        }
        input.parse::<Token![,]>()?;
        let found: Ident = input.parse()?;
        match MODES.into_iter().find(|mode| found == mode) {
            Some(mode) => Ok(Self { target, mode }),
            None => {
                let message = format!("expected `vjp` or `jvp`, found `{found}`");
                Err(Error::new(found.span(), message))
            }
        }
    }
}

/// Returns the expression for a target's description.
pub(crate) fn expression(derivative_of: Option<&DerivativeOf>) -> TokenStream {
    let Some(DerivativeOf { target, mode }) = derivative_of else {
        return TokenStream::new();
    };
    quote!(.with_derivative_of(#target, #mode))
}
