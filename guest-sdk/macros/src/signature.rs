//! The parameters of a target's function, as they are written.

use callbox_abi::Stage;
use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{
    Attribute, Error, Expr, ExprLit, FnArg, GenericArgument, GenericParam, Ident, ItemFn, Lifetime,
    Lit, LitStr, Meta, Pat, PatType, PathArguments, Result, ReturnType, Type,
};

use crate::derivative::DerivativeOf;
use crate::dimensions::{self, Dimensions};
use crate::name;
use crate::options::{self, Options, Replacement};

/// A function that can be a target.
pub(crate) struct Signature {
    pub(crate) name: LitStr,
    pub(crate) documentation: String,
    pub(crate) parameters: Vec<Parameter>,
    /// The target whose derivatives the function computes.
    pub(crate) derivative_of: Option<DerivativeOf>,
    /// The location of the return type.
    pub(crate) output: Span,
}

/// A parameter of the function.
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) binding: Binding,
    /// The type, without the reference of a buffer or a context.
    pub(crate) ty: Type,
    pub(crate) passing: Passing,
    /// The declared dimensions.
    pub(crate) dimensions: Option<Dimensions>,
}

/// The source of a parameter's value.
#[derive(PartialEq, Eq)]
pub(crate) enum Binding {
    /// An operand, a result or the context, as the type says.
    ByType,
    /// The attribute with the parameter's name.
    Attribute,
    /// The state that this stage returned.
    State(Stage),
}

/// How the decoded value is passed to the function.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passing {
    Value,
    Reference,
    MutableReference,
    /// As an `Option` of a reference.
    OptionalReference,
    OptionalMutableReference,
}

impl Parameter {
    /// Returns whether the type is written as an `Option`, so that a call may omit the parameter's
    /// value.
    pub(crate) fn is_optional(&self) -> bool {
        let Type::Path(path) = &self.ty else {
            return false;
        };
        let last = path.path.segments.last();
        last.is_some_and(|last| last.ident == "Option")
    }
}

impl Passing {
    /// Returns whether the function cannot write to the value.
    pub(crate) fn is_shared(self) -> bool {
        matches!(self, Self::Reference | Self::OptionalReference)
    }

    pub(crate) fn is_mutable(self) -> bool {
        matches!(
            self,
            Self::MutableReference | Self::OptionalMutableReference
        )
    }
}

impl Signature {
    /// Reads the function, and removes this macro's markers from it and its parameters.
    pub(crate) fn of(function: &mut ItemFn, options: &Options) -> Result<Self> {
        let parameters = parameters(function, options);
        let derivative_of = DerivativeOf::take(function, options);
        check_function(function, options)?;
        let (parameters, derivative_of) = (parameters?, derivative_of?);
        dimensions::check(&parameters, options)?;
        let name = match &options.name {
            Some(name) => name.clone(),
            None => default_name(&function.sig.ident)?,
        };
        let output = match &function.sig.output {
            ReturnType::Type(_, ty) => ty.span(),
            ReturnType::Default => function.sig.ident.span(),
        };
        Ok(Self {
            name,
            documentation: documentation(&function.attrs),
            parameters,
            derivative_of,
            output,
        })
    }

    /// Returns the attributes' names in the order of a call frame.
    pub(crate) fn attribute_names(&self) -> Vec<&str> {
        let attributes = self
            .parameters
            .iter()
            .filter(|p| p.binding == Binding::Attribute);
        let mut names: Vec<&str> = attributes.map(|p| p.name.as_str()).collect();
        names.sort_unstable();
        names
    }
}

/// Returns the type for use outside the function: without lifetimes, and with the type parameters
/// replaced.
pub(crate) fn instance(ty: &Type, replaced: &[Replacement<'_>]) -> Type {
    let mut ty = ty.clone();
    Instance { replaced, count: 0 }.visit_type_mut(&mut ty);
    ty
}

/// Returns whether the type mentions the type parameter.
pub(crate) fn mentions(ty: &Type, parameter: &Ident) -> bool {
    let never = Type::Verbatim(proc_macro2::TokenStream::new());
    let mut visitor = Instance {
        replaced: &[Replacement {
            parameter,
            ty: &never,
        }],
        count: 0,
    };
    visitor.visit_type_mut(&mut ty.clone());
    visitor.count > 0
}

struct Instance<'a> {
    replaced: &'a [Replacement<'a>],
    count: usize,
}

impl VisitMut for Instance<'_> {
    fn visit_lifetime_mut(&mut self, lifetime: &mut Lifetime) {
        if lifetime.ident != "static" {
            *lifetime = Lifetime::new("'_", lifetime.span());
        }
    }

    fn visit_type_mut(&mut self, ty: &mut Type) {
        let replacement = match &*ty {
            Type::Path(path) if path.qself.is_none() => {
                let mut replaced = self.replaced.iter();
                replaced.find(|replacement| path.path.is_ident(replacement.parameter))
            }
            _ => None,
        };
        if let Some(replacement) = replacement {
            self.count += 1;
            *ty = replacement.ty.clone();
        } else {
            visit_mut::visit_type_mut(self, ty);
        }
    }
}

fn check_function(function: &ItemFn, options: &Options) -> Result<()> {
    let signature = &function.sig;
    let refuse = |span: Span, what: &str| {
        let message = format!("a target is a plain function: it cannot be {what}");
        Err(Error::new(span, message))
    };
    if let Some(token) = &signature.asyncness {
        return refuse(token.span(), "async");
    }
    if let Some(token) = &signature.unsafety {
        return refuse(token.span(), "unsafe");
    }
    if let Some(abi) = &signature.abi {
        return refuse(abi.span(), "extern: the macro adds the export");
    }
    if let Some(variadic) = &signature.variadic {
        return refuse(variadic.span(), "variadic");
    }
    check_generics(function, options)
}

fn check_generics(function: &ItemFn, options: &Options) -> Result<()> {
    let mut listed: Vec<&Ident> = options.types.iter().map(|(ident, _)| ident).collect();
    for parameter in &function.sig.generics.params {
        match parameter {
            GenericParam::Lifetime(_) => {}
            GenericParam::Type(ty) if listed.contains(&&ty.ident) => {
                listed.retain(|listed| **listed != ty.ident);
            }
            GenericParam::Type(ty) => {
                let message = format!(
                    "a generic target needs its types: write `#[target({} = [f32, f64])]`",
                    ty.ident
                );
                return Err(Error::new(ty.span(), message));
            }
            GenericParam::Const(constant) => {
                let message = "a target is generic over an element type, not over a constant";
                return Err(Error::new(constant.span(), message));
            }
        }
    }
    match listed.first() {
        None => Ok(()),
        Some(listed) => {
            let message = format!("`{listed}` is not a type parameter of the function");
            Err(Error::new(listed.span(), message))
        }
    }
}

fn default_name(ident: &Ident) -> Result<LitStr> {
    let name = LitStr::new(&unraw(ident), ident.span());
    name::check(&name.value()).map_err(|message| Error::new(ident.span(), message))?;
    Ok(name)
}

/// Reads the parameters, and removes this macro's markers from all of them even if one is wrong.
fn parameters(function: &mut ItemFn, options: &Options) -> Result<Vec<Parameter>> {
    let mut parameters: Vec<Parameter> = Vec::new();
    let mut errors: Option<Error> = None;
    for argument in &mut function.sig.inputs {
        let parameter = match argument {
            FnArg::Receiver(receiver) => {
                let message = "a target is a plain function: it cannot have `self`";
                Err(Error::new(receiver.span(), message))
            }
            FnArg::Typed(typed) => parameter(typed, options.stage),
        };
        let parameter = parameter.and_then(|parameter| {
            let is_repeated = parameters
                .iter()
                .any(|p| p.name == parameter.name && p.binding == parameter.binding);
            if is_repeated && parameter.binding == Binding::Attribute {
                let message = format!("two parameters bind the attribute `{}`", parameter.name);
                return Err(Error::new(argument.span(), message));
            }
            Ok(parameter)
        });
        match (parameter, &mut errors) {
            (Ok(parameter), _) => parameters.push(parameter),
            (Err(error), Some(errors)) => errors.combine(error),
            (Err(error), none) => *none = Some(error),
        }
    }
    errors.map_or(Ok(parameters), Err)
}

fn parameter(typed: &mut PatType, stage: Stage) -> Result<Parameter> {
    let (markers, others): (Vec<_>, Vec<_>) = std::mem::take(&mut typed.attrs)
        .into_iter()
        .partition(|a| a.path().is_ident("attr") || a.path().is_ident("state"));
    let (extents, others): (Vec<_>, Vec<_>) = others
        .into_iter()
        .partition(|a| a.path().is_ident("dimensions"));
    typed.attrs = others;
    let Pat::Ident(pattern) = &*typed.pat else {
        let message = "a target's parameter needs a name, such as `x: &Operand<f32>`";
        return Err(Error::new(typed.pat.span(), message));
    };
    let mut name = unraw(&pattern.ident);
    let binding = match markers.as_slice() {
        [] => Binding::ByType,
        [marker] if marker.path().is_ident("attr") => {
            name = attribute_name(marker)?.unwrap_or(name);
            Binding::Attribute
        }
        [marker] => Binding::State(state_stage(marker, stage)?),
        [_, second, ..] => {
            let message = "a parameter has one marker, `#[attr]` or `#[state]`";
            return Err(Error::new(second.span(), message));
        }
    };
    let dimensions = match extents.as_slice() {
        [] => None,
        [marker] => Some(Dimensions::of(marker)?),
        [_, second, ..] => {
            let message = "a parameter takes `#[dimensions(...)]` once";
            return Err(Error::new(second.span(), message));
        }
    };
    let (ty, passing) = parted(&typed.ty, &binding)?;
    let name = match binding {
        Binding::Attribute => name,
        _ => name.trim_start_matches('_').to_owned(),
    };
    Ok(Parameter {
        name,
        binding,
        ty,
        passing,
        dimensions,
    })
}

/// Returns the type to decode, and how the value is passed.
fn parted(ty: &Type, binding: &Binding) -> Result<(Type, Passing)> {
    match (binding, ty) {
        (Binding::Attribute, Type::Ptr(pointer)) => Err(Error::new(pointer.span(), NO_POINTERS)),
        (Binding::Attribute, _) => Ok((ty.clone(), Passing::Value)),
        (Binding::State(_), Type::Reference(reference)) if reference.mutability.is_none() => {
            Ok(((*reference.elem).clone(), Passing::Value))
        }
        (Binding::State(_), _) => {
            let message = "state is shared by all calls: expected a reference such as `&State`";
            Err(Error::new(ty.span(), message))
        }
        (Binding::ByType, Type::Reference(reference)) => {
            let passing = match reference.mutability {
                Some(_) => Passing::MutableReference,
                None => Passing::Reference,
            };
            Ok(((*reference.elem).clone(), passing))
        }
        (Binding::ByType, _) => Ok(optional(ty).unwrap_or_else(|| (ty.clone(), Passing::Value))),
    }
}

const NO_POINTERS: &str = "an attribute cannot be a pointer: it would be an address in the memory of the process that made the \
     program, which a guest does not share; pass the data as an operand or an array attribute, or attach it as user data";

/// Returns `Option<T>`, which can be decoded, for `Option<&T>`.
fn optional(ty: &Type) -> Option<(Type, Passing)> {
    let mut ty = ty.clone();
    let Type::Path(path) = &mut ty else {
        return None;
    };
    let last = path
        .path
        .segments
        .last_mut()
        .filter(|last| last.ident == "Option")?;
    let PathArguments::AngleBracketed(arguments) = &mut last.arguments else {
        return None;
    };
    let Some(GenericArgument::Type(argument)) = arguments.args.first_mut() else {
        return None;
    };
    let Type::Reference(reference) = argument else {
        return None;
    };
    let passing = match reference.mutability {
        Some(_) => Passing::OptionalMutableReference,
        None => Passing::OptionalReference,
    };
    *argument = (*reference.elem).clone();
    Some((ty, passing))
}

/// Returns the name in `#[attr(name = "...")]`.
pub(crate) fn attribute_name(marker: &Attribute) -> Result<Option<String>> {
    if matches!(marker.meta, Meta::Path(_)) {
        return Ok(None);
    }
    let mut name = None;
    marker.parse_nested_meta(|meta| {
        if !meta.path.is_ident("name") {
            return Err(meta.error("expected `name = \"...\"`"));
        }
        name = Some(meta.value()?.parse::<LitStr>()?.value());
        Ok(())
    })?;
    Ok(name)
}

/// Returns the stage in `#[state(...)]`, which is `instantiate` if none is given.
fn state_stage(marker: &Attribute, user: Stage) -> Result<Stage> {
    let stage = match marker.meta {
        Meta::Path(_) => Stage::Instantiate,
        _ => marker.parse_args_with(options::stage)?,
    };
    if stage < user {
        return Ok(stage);
    }
    let message = format!(
        "stage {} does not run before stage {}, and leaves no state for it",
        stage.name(),
        user.name()
    );
    Err(Error::new(marker.span(), message))
}

fn documentation(attributes: &[Attribute]) -> String {
    let lines = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
                Expr::Lit(ExprLit {
                    lit: Lit::Str(line),
                    ..
                }) => Some(line.value()),
                _ => None,
            },
            _ => None,
        });
    let lines: Vec<String> = lines
        .map(|line| {
            line.strip_prefix(' ')
                .unwrap_or(&line)
                .trim_end()
                .to_owned()
        })
        .collect();
    lines.join("\n").trim().to_owned()
}

pub(crate) fn unraw(ident: &Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#").unwrap_or(&name).to_owned()
}
