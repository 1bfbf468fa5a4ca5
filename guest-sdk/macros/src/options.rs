//! What is written in the parentheses of `#[target(...)]`.

use proc_macro2::Span;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, LitStr, Result, Token, Type, bracketed};

use crate::name;

/// `name = "...", stage = ..., pure, elementwise, T = [f32, f64]`, in any order, each at most once.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    pub(crate) stage: Stage,
    pub(crate) is_pure: bool,
    pub(crate) is_elementwise: bool,
    pub(crate) types: Option<(Ident, Vec<Type>)>,
}

/// A stage of a target.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    Instantiate,
    Prepare,
    Initialize,
    #[default]
    Execute,
}

impl Stage {
    /// The name in an export's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Instantiate => "instantiate",
            Self::Prepare => "prepare",
            Self::Initialize => "initialize",
            Self::Execute => "execute",
        }
    }

    /// The variant of `callbox_guest::Stage`.
    pub(crate) fn variant(self) -> Ident {
        let name = match self {
            Self::Instantiate => "Instantiate",
            Self::Prepare => "Prepare",
            Self::Initialize => "Initialize",
            Self::Execute => "Execute",
        };
        Ident::new(name, Span::call_site())
    }
}

impl Parse for Stage {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let ident: Ident = input.parse()?;
        [
            Self::Instantiate,
            Self::Prepare,
            Self::Initialize,
            Self::Execute,
        ]
        .into_iter()
        .find(|stage| ident == stage.name())
        .ok_or_else(|| {
            let message = format!(
                "expected a stage (instantiate, prepare, initialize or execute), found `{ident}`"
            );
            Error::new(ident.span(), message)
        })
    }
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut options = Self::default();
        let mut seen: Vec<Ident> = Vec::new();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            if seen.contains(&key) {
                return Err(Error::new(key.span(), format!("`{key}` is said twice")));
            }
            options.set(&key, input)?;
            seen.push(key);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        if options.stage != Stage::Execute && options.name.is_none() {
            let message = "a stage needs the target's name: add `name = \"...\"`";
            return Err(Error::new(Span::call_site(), message));
        }
        Ok(options)
    }
}

impl Options {
    /// What the target promises. One that is elementwise is pure, which a host may know that does not know the former.
    pub(crate) fn traits(&self) -> impl Iterator<Item = &'static str> {
        let pure = (self.is_pure || self.is_elementwise).then_some("pure");
        let elementwise = self.is_elementwise.then_some("elementwise");
        pure.into_iter().chain(elementwise)
    }

    fn set(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<()> {
        if key == "pure" {
            self.is_pure = true;
            return Ok(());
        }
        if key == "elementwise" {
            self.is_elementwise = true;
            return Ok(());
        }
        let is_known = key == "name" || key == "stage" || is_type_parameter(key);
        if !is_known || !input.peek(Token![=]) {
            let message = format!(
                "unknown option `{key}`: expected `name = \"...\"`, `stage = ...`, `pure`, `elementwise`, or the types of a \
                 generic target such as `T = [f32, f64]`"
            );
            return Err(Error::new(key.span(), message));
        }
        input.parse::<Token![=]>()?;
        if key == "name" {
            let name: LitStr = input.parse()?;
            name::check(&name.value()).map_err(|message| Error::new(name.span(), message))?;
            self.name = Some(name);
        } else if key == "stage" {
            self.stage = input.parse()?;
        } else {
            self.set_types(key, input)?;
        }
        Ok(())
    }

    fn set_types(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<()> {
        if self.types.is_some() {
            let message = "a target is generic over one type at most";
            return Err(Error::new(key.span(), message));
        }
        let content;
        let bracket = bracketed!(content in input);
        let types: Punctuated<Type, Token![,]> =
            content.parse_terminated(Type::parse, Token![,])?;
        if types.is_empty() {
            let message = format!("expected at least one type for `{key}`");
            return Err(Error::new(bracket.span.join(), message));
        }
        self.types = Some((key.clone(), types.into_iter().collect()));
        Ok(())
    }
}

/// Whether it is written as type parameters are.
fn is_type_parameter(key: &Ident) -> bool {
    key.to_string()
        .starts_with(|c: char| c.is_ascii_uppercase())
}
