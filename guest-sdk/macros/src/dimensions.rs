//! The marker `#[dimensions(...)]`.

use callbox_abi::Stage;
use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Ident, LitInt, Result, Token, parenthesized};

use crate::options::Options;
use crate::signature::{Binding, Parameter, unraw};

/// The longest symbol or expression that a host accepts, in bytes.
const MAX_TEXT: usize = 64;

/// The declared dimensions of an operand or result.
pub(crate) struct Dimensions {
    pub(crate) list: Vec<Dimension>,
    pub(crate) span: Span,
}

/// One entry of declared dimensions.
#[derive(PartialEq, Eq)]
pub(crate) enum Dimension {
    /// `..`: any number of dimensions.
    Any,
    /// A number.
    Size(usize),
    /// A name.
    Symbol(String),
    /// A size that is computed from names.
    Expression(Expression),
}

/// An expression without spaces, and its names.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct Expression {
    text: String,
    symbols: Vec<String>,
}

impl Dimensions {
    /// Reads the marker of a parameter.
    pub(crate) fn of(marker: &Attribute) -> Result<Self> {
        let entries = marker.parse_args_with(Punctuated::<Entry, Token![,]>::parse_terminated)?;
        let mut list = Vec::new();
        for Entry { dimension, span } in entries {
            if dimension == Dimension::Any && !list.is_empty() {
                let message =
                    "`..` stands for any number of dimensions: it comes first, and at most once";
                return Err(Error::new(span, message));
            }
            list.push(dimension);
        }
        Ok(Self {
            list,
            span: marker.span(),
        })
    }
}

struct Entry {
    dimension: Dimension,
    span: Span,
}

impl Parse for Entry {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let span = input.span();
        if input.peek(Token![..]) {
            input.parse::<Token![..]>()?;
            let dimension = Dimension::Any;
            return Ok(Self { dimension, span });
        }
        let mut expression = Expression::default();
        expression.read(input)?;
        let Expression { text, symbols } = &expression;
        let dimension = match (text.parse(), symbols.as_slice()) {
            (Ok(size), _) => Dimension::Size(size),
            (_, [symbol]) if symbol == text => Dimension::Symbol(text.clone()),
            (_, []) => {
                let message = "expected a size as one number, or an expression with names";
                return Err(Error::new(span, message));
            }
            _ if text.len() > MAX_TEXT => {
                let message = format!("an expression has at most {MAX_TEXT} characters");
                return Err(Error::new(span, message));
            }
            _ => Dimension::Expression(expression),
        };
        Ok(Self { dimension, span })
    }
}

impl Expression {
    /// Reads values with operators between them.
    fn read(&mut self, input: ParseStream<'_>) -> Result<()> {
        loop {
            self.read_value(input)?;
            let operator = if input.parse::<Option<Token![+]>>()?.is_some() {
                '+'
            } else if input.parse::<Option<Token![-]>>()?.is_some() {
                '-'
            } else if input.parse::<Option<Token![*]>>()?.is_some() {
                '*'
            } else if input.parse::<Option<Token![/]>>()?.is_some() {
                '/'
            } else {
                return Ok(());
            };
            self.text.push(operator);
        }
    }

    /// Reads a number, a name or parentheses.
    fn read_value(&mut self, input: ParseStream<'_>) -> Result<()> {
        let expected = Error::new(
            input.span(),
            "expected dimensions such as `#[dimensions(.., n, 4)]`: `..`, names, numbers, and expressions such as `n / 2`",
        );
        if input.peek(LitInt) {
            let number: LitInt = input.parse()?;
            // A number token includes its sign.
            let size: usize = number.base10_parse().map_err(|_| expected)?;
            self.text.push_str(&size.to_string());
        } else if input.peek(Ident) {
            let symbol = symbol(&input.parse()?)?;
            self.text.push_str(&symbol);
            self.symbols.push(symbol);
        } else if input.peek(syn::token::Paren) {
            let content;
            parenthesized!(content in input);
            self.text.push('(');
            self.read(&content)?;
            if !content.is_empty() {
                return Err(content.error("expected `+`, `-`, `*`, `/` or `)`"));
            }
            self.text.push(')');
        } else {
            return Err(expected);
        }
        Ok(())
    }
}

fn symbol(ident: &Ident) -> Result<String> {
    let symbol = unraw(ident);
    if symbol.is_ascii() && symbol.len() <= MAX_TEXT {
        return Ok(symbol);
    }
    let message = format!(
        "a dimension's name has at most {MAX_TEXT} letters from a to z and A to Z, digits and underscores"
    );
    Err(Error::new(ident.span(), message))
}

/// Returns the expression for a parameter's description.
pub(crate) fn expression(dimensions: Option<&Dimensions>) -> TokenStream {
    let Some(dimensions) = dimensions else {
        return quote!(::core::option::Option::None);
    };
    let list = dimensions.list.iter().map(|dimension| match dimension {
        Dimension::Any => quote!(__callbox::Dimension::Any),
        Dimension::Size(size) => quote!(__callbox::Dimension::Size(#size)),
        Dimension::Symbol(symbol) => quote!(__callbox::Dimension::Symbol(#symbol)),
        Dimension::Expression(Expression { text, .. }) => {
            quote!(__callbox::Dimension::Expression(#text))
        }
    });
    quote!(::core::option::Option::Some(&[#(#list),*]))
}

/// Checks that dimensions are declared in stage `execute` only, that those of an elementwise target
/// are all equal and unrestricted, that the results of a target with rows have them, and that those
/// of a target that takes batches have a batch.
pub(crate) fn check(parameters: &[Parameter], options: &Options) -> Result<()> {
    check_rows(parameters, options)?;
    check_batched(parameters, options)?;
    let mut first: Option<&Dimensions> = None;
    for parameter in parameters {
        let Some(dimensions) = &parameter.dimensions else {
            continue;
        };
        let refuse = |message: &str| Err(Error::new(dimensions.span, message));
        if parameter.binding != Binding::ByType {
            return refuse("only an operand or a result has dimensions");
        }
        if options.stage != Stage::Execute {
            return refuse("dimensions are declared in stage execute, for all stages");
        }
        // An operand of rank 0 is exempt.
        if !options.is_elementwise || dimensions.list.is_empty() {
            continue;
        }
        for (i, dimension) in dimensions.list.iter().enumerate() {
            let is_size = matches!(dimension, Dimension::Size(_) | Dimension::Expression(_));
            if is_size || dimensions.list[..i].contains(dimension) {
                return refuse(
                    "an elementwise target takes arrays of any size: expected `..` and names, each at most once",
                );
            }
        }
        match first {
            Some(first) if first.list != dimensions.list => {
                return refuse(
                    "the operands and results of an elementwise target have the same dimensions, except operands of rank 0",
                );
            }
            _ => first = Some(dimensions),
        }
    }
    Ok(())
}

/// Checks that a target with rows declares `..`, also for each result. The host checks results
/// whose dimensions are not declared.
fn check_rows(parameters: &[Parameter], options: &Options) -> Result<()> {
    if !options.has_rows {
        return Ok(());
    }
    if options.stage != Stage::Execute {
        let message = "rows are declared in stage execute, for all stages";
        return Err(Error::new(Span::call_site(), message));
    }
    let declared = parameters.iter();
    let mut declared = declared.filter_map(|p| Some((p.passing, p.dimensions.as_ref()?)));
    let has_rows = |dimensions: &Dimensions| dimensions.list.first() == Some(&Dimension::Any);
    let without = declared
        .clone()
        .find(|(passing, dimensions)| passing.is_mutable() && !has_rows(dimensions));
    if let Some((_, dimensions)) = without {
        let message =
            "a target with rows has them in each result: expected dimensions that begin with `..`";
        return Err(Error::new(dimensions.span, message));
    }
    if declared.any(|(_, dimensions)| has_rows(dimensions)) {
        return Ok(());
    }
    let message = "a target with rows declares them: expected dimensions that begin with `..`";
    Err(Error::new(Span::call_site(), message))
}

/// The name of the dimension along which a batch lies.
const BATCH: &str = "batch";

/// Checks that each result of a target that takes batches, and an operand, declare the dimension
/// `batch`, and that it comes first. The host checks results whose dimensions are not declared.
fn check_batched(parameters: &[Parameter], options: &Options) -> Result<()> {
    if !options.is_batched {
        return Ok(());
    }
    let refuse = |span: Span, message: &str| Err(Error::new(span, message));
    if options.stage != Stage::Execute {
        let message = "a batch is declared in stage execute, for all stages";
        return refuse(Span::call_site(), message);
    }
    if options.is_elementwise || options.has_rows {
        let message =
            "a target has one of the traits `elementwise`, `rows` and `batched`, found two";
        return refuse(Span::call_site(), message);
    }
    let is_batch = |dimension: &Dimension| matches!(dimension, Dimension::Symbol(s) if s == BATCH);
    let mut has_operand = false;
    for parameter in parameters {
        let Some(dimensions) = &parameter.dimensions else {
            continue;
        };
        let has_batch = dimensions.list.first().is_some_and(is_batch);
        let is_computed = |dimension: &Dimension| matches!(dimension, Dimension::Expression(e) if e.symbols.iter().any(|s| s == BATCH));
        let mut list = dimensions.list.iter();
        if list.any(is_computed) || dimensions.list.iter().skip(1).any(is_batch) {
            return refuse(dimensions.span, "`batch` is the first dimension alone");
        }
        if parameter.passing.is_mutable() && !has_batch {
            let message = "a target that takes batches has one in each result: expected dimensions that begin with `batch`";
            return refuse(dimensions.span, message);
        }
        has_operand |= has_batch && !parameter.passing.is_mutable();
    }
    if has_operand {
        return Ok(());
    }
    let message =
        "a target that takes batches declares them: expected dimensions that begin with `batch`";
    refuse(Span::call_site(), message)
}
