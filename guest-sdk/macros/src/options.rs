//! The options in `#[target(...)]`.

use callbox_abi::Stage;
use proc_macro2::Span;
use quote::format_ident;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Ident, LitStr, Result, Token, Type, bracketed};

use crate::name;

/// `name = "...", stage = ..., pure, elementwise, rows, batched, T = [f32, f64]`, in any order,
/// each at most once.
pub(crate) struct Options {
    pub(crate) name: Option<LitStr>,
    pub(crate) stage: Stage,
    pub(crate) is_pure: bool,
    pub(crate) is_elementwise: bool,
    pub(crate) has_rows: bool,
    pub(crate) is_batched: bool,
    /// The type parameters of a generic target, each with its types.
    pub(crate) types: Vec<(Ident, Vec<Type>)>,
}

/// The most type parameters of a target. Each instance is compiled.
const MAX_TYPE_PARAMETERS: usize = 2;

/// A type parameter of a generic target, and its type in one instance.
#[derive(Clone, Copy)]
pub(crate) struct Replacement<'a> {
    pub(crate) parameter: &'a Ident,
    pub(crate) ty: &'a Type,
}

/// Returns the name of the variant of `callbox_guest::Stage`.
pub(crate) fn variant(stage: Stage) -> Ident {
    format_ident!("{stage:?}")
}

/// Reads the name of a stage.
pub(crate) fn stage(input: ParseStream<'_>) -> Result<Stage> {
    let ident: Ident = input.parse()?;
    Stage::ALL
        .into_iter()
        .find(|stage| ident == stage.name())
        .ok_or_else(|| {
            let message = format!(
                "expected a stage (instantiate, prepare, initialize or execute), found `{ident}`"
            );
            Error::new(ident.span(), message)
        })
}

impl Parse for Options {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut options = Self::new();
        let mut seen: Vec<Ident> = Vec::new();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            if seen.contains(&key) {
                return Err(Error::new(key.span(), format!("`{key}` is given twice")));
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
    /// The options of a `#[target]` without parentheses.
    pub(crate) const fn new() -> Self {
        Self {
            name: None,
            stage: Stage::Execute,
            is_pure: false,
            is_elementwise: false,
            has_rows: false,
            is_batched: false,
            types: Vec::new(),
        }
    }

    /// Returns the traits that the target promises. A target of the trait `elementwise`, `rows` or
    /// `batched` is also pure, for hosts that do not know these traits.
    pub(crate) fn traits(&self) -> impl Iterator<Item = &'static str> {
        let is_pure = self.is_pure || self.is_elementwise || self.has_rows || self.is_batched;
        let pure = is_pure.then_some("pure");
        let elementwise = self.is_elementwise.then_some("elementwise");
        let rows = self.has_rows.then_some("rows");
        let batched = self.is_batched.then_some("batched");
        pure.into_iter()
            .chain(elementwise)
            .chain(rows)
            .chain(batched)
    }

    /// Returns the instances of a generic target, each with the types of its parameters; of any
    /// other target one instance without types.
    pub(crate) fn instances(&self) -> Vec<Vec<Replacement<'_>>> {
        let mut instances = vec![Vec::new()];
        for (parameter, types) in &self.types {
            let extended = instances.iter().flat_map(|known: &Vec<Replacement<'_>>| {
                types.iter().map(|ty| {
                    let mut instance = known.clone();
                    instance.push(Replacement { parameter, ty });
                    instance
                })
            });
            instances = extended.collect();
        }
        instances
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
        if key == "rows" {
            self.has_rows = true;
            return Ok(());
        }
        if key == "batched" {
            self.is_batched = true;
            return Ok(());
        }
        let is_known = key == "name" || key == "stage" || is_type_parameter(key);
        if !is_known || !input.peek(Token![=]) {
            let message = format!(
                "unknown option `{key}`: expected `name = \"...\"`, `stage = ...`, `pure`, `elementwise`, `rows`, `batched`, or the types of a \
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
            self.stage = stage(input)?;
        } else {
            self.set_types(key, input)?;
        }
        Ok(())
    }

    fn set_types(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<()> {
        if self.types.len() == MAX_TYPE_PARAMETERS {
            let message = "a target is generic over two types at most";
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
        self.types.push((key.clone(), types.into_iter().collect()));
        Ok(())
    }
}

/// Returns whether the option is spelled like a type parameter.
fn is_type_parameter(key: &Ident) -> bool {
    key.to_string()
        .starts_with(|c: char| c.is_ascii_uppercase())
}
