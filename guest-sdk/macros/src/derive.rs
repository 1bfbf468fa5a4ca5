//! Expansion of `#[derive(AttributeStruct)]` and `#[derive(AttributeEnum)]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    Data, DataEnum, DeriveInput, Error, Field, Fields, GenericParam, Ident, Lifetime, Result, Type,
};

use crate::signature::{attribute_name, unraw};

/// The integer types of scalar attributes.
const INTEGERS: [&str; 8] = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"];

/// A field: its attribute's name, its own name, and its type.
struct Member<'a> {
    name: String,
    ident: &'a Ident,
    ty: &'a Type,
}

/// Implements `AttributeValue` for a struct: a dictionary with its fields.
pub(crate) fn of_struct(input: &DeriveInput) -> Result<TokenStream> {
    let lifetime = lifetime(input)?;
    let members = members(input)?;
    let ident = &input.ident;
    let arguments = input.generics.split_for_impl().1;
    let names: Vec<&str> = members.iter().map(|m| m.name.as_str()).collect();
    let fields: Vec<&Ident> = members.iter().map(|m| m.ident).collect();
    let variables: Vec<Ident> = (0..members.len())
        .map(|i| format_ident!("field_{i}"))
        .collect();
    let values: Vec<TokenStream> = members
        .iter()
        .map(|m| {
            let ty = m.ty;
            quote_spanned!(ty.span()=> <#ty as __callbox::AttributeValue<#lifetime>>)
        })
        .collect();
    let decoded = members.iter().map(|m| {
        let (ty, name) = (m.ty, &m.name);
        quote_spanned!(ty.span()=> fields.get::<#ty>(#name))
    });
    Ok(implementation(
        ident,
        &lifetime,
        &quote!(#arguments),
        &quote!(Dictionary),
        &quote! {
            const ELEMENT_TYPE: ::core::option::Option<__callbox::ElementType> =
                ::core::option::Option::None;
            const FIELDS: ::core::option::Option<&'static [__callbox::AttributeDescription]> =
                ::core::option::Option::Some(&[#(
                    __callbox::AttributeDescription {
                        name: #names,
                        kind: #values::KIND,
                        element_type: #values::ELEMENT_TYPE,
                        fields: #values::FIELDS,
                        variants: #values::VARIANTS,
                        is_optional: #values::IS_OPTIONAL,
                    }
                ),*]);
        },
        &quote! {
            let required = 0_usize #(+ !#values::IS_OPTIONAL as usize)*;
            let mut fields = __callbox::Fields::of(attribute, &[#(#names),*], required)?;
            #(let #variables = #decoded;)*
            match (#(#variables,)*) {
                (#(::core::option::Option::Some(#variables),)*) => {
                    ::core::result::Result::Ok(Self { #(#fields: #variables),* })
                }
                #[allow(unreachable_patterns, reason = "a struct without fields has no other")]
                _ => ::core::result::Result::Err(fields.diagnostics()),
            }
        },
    ))
}

/// Implements `AttributeValue` for an enum: a scalar of its `repr`.
pub(crate) fn of_enum(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Enum(data) = &input.data else {
        return Err(Error::new(input.span(), "expected an enum"));
    };
    if let Some(parameter) = input.generics.params.first() {
        return Err(Error::new(
            parameter.span(),
            "an attribute enum cannot be generic",
        ));
    }
    let ident = &input.ident;
    let integer = representation(input)?;
    let variants = variants(data)?;
    let names: Vec<String> = variants.iter().map(|variant| unraw(variant)).collect();
    Ok(implementation(
        ident,
        &Lifetime::new("'a", ident.span()),
        &TokenStream::new(),
        &quote!(Scalar),
        &quote! {
            const ELEMENT_TYPE: ::core::option::Option<__callbox::ElementType> =
                <#integer as __callbox::AttributeValue<'static>>::ELEMENT_TYPE;
            const VARIANTS: ::core::option::Option<&'static [(&'static str, i128)]> =
                ::core::option::Option::Some(&[#((#names, Self::#variants as #integer as i128)),*]);
        },
        &quote! {
            let found = <#integer as __callbox::AttributeValue<'_>>::decode(attribute)?;
            #(
                if found == Self::#variants as #integer {
                    return ::core::result::Result::Ok(Self::#variants);
                }
            )*
            ::core::result::Result::Err(__callbox::unknown_variant(
                &[#((#names, &(Self::#variants as #integer))),*],
                &found,
            ))
        },
    ))
}

fn implementation(
    ident: &Ident,
    lifetime: &Lifetime,
    arguments: &TokenStream,
    kind: &TokenStream,
    constants: &TokenStream,
    decode: &TokenStream,
) -> TokenStream {
    quote! {
        const _: () = {
            use ::callbox_guest::__private as __callbox;

            impl<#lifetime> __callbox::AttributeValue<#lifetime> for #ident #arguments {
                const KIND: __callbox::AttributeKind = __callbox::AttributeKind::#kind;
                #constants

                fn decode(
                    attribute: __callbox::AnyAttribute<#lifetime>,
                ) -> ::core::result::Result<Self, __callbox::String> {
                    #decode
                }
            }
        };
    }
}

/// Returns the struct's only lifetime, or a lifetime that the struct does not use.
fn lifetime(input: &DeriveInput) -> Result<Lifetime> {
    let mut found = None;
    for parameter in &input.generics.params {
        match parameter {
            GenericParam::Lifetime(lifetime) if found.is_none() => {
                found = Some(lifetime.lifetime.clone());
            }
            other => {
                let message = "an attribute struct is generic over one lifetime at most";
                return Err(Error::new(other.span(), message));
            }
        }
    }
    Ok(found.unwrap_or_else(|| Lifetime::new("'a", input.ident.span())))
}

fn members(input: &DeriveInput) -> Result<Vec<Member<'_>>> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new(input.span(), "expected a struct"));
    };
    let Fields::Named(fields) = &data.fields else {
        let message = "an attribute struct needs named fields: their names are the dictionary's";
        return Err(Error::new(input.ident.span(), message));
    };
    let mut members: Vec<Member<'_>> = Vec::new();
    for field in &fields.named {
        let member = member(field)?;
        if members.iter().any(|known| known.name == member.name) {
            let message = format!("two fields bind the attribute `{}`", member.name);
            return Err(Error::new(field.span(), message));
        }
        members.push(member);
    }
    Ok(members)
}

fn member(field: &Field) -> Result<Member<'_>> {
    let Some(ident) = &field.ident else {
        return Err(Error::new(field.span(), "expected a named field"));
    };
    let mut name = unraw(ident);
    for marker in field.attrs.iter().filter(|a| a.path().is_ident("attr")) {
        name = attribute_name(marker)?.unwrap_or(name);
    }
    Ok(Member {
        name,
        ident,
        ty: &field.ty,
    })
}

/// Returns the integer type in `#[repr(...)]`.
fn representation(input: &DeriveInput) -> Result<Ident> {
    let mut integer = None;
    for attribute in input.attrs.iter().filter(|a| a.path().is_ident("repr")) {
        attribute.parse_nested_meta(|meta| {
            let found = meta.path.get_ident();
            if let Some(found) = found.filter(|found| INTEGERS.iter().any(|known| *found == known))
            {
                integer = Some(found.clone());
            }
            // The compiler checks what is in parentheses, as in `align(2)`.
            if meta.input.peek(syn::token::Paren) {
                let alignment;
                syn::parenthesized!(alignment in meta.input);
                alignment.parse::<proc_macro2::TokenStream>()?;
            }
            Ok(())
        })?;
    }
    integer.ok_or_else(|| {
        let message = format!(
            "an attribute enum needs an integer type: write `#[repr(i32)]`, or another of {}",
            INTEGERS.join(", ")
        );
        Error::new(input.ident.span(), message)
    })
}

fn variants(data: &DataEnum) -> Result<Vec<&Ident>> {
    data.variants
        .iter()
        .map(|variant| match variant.fields {
            Fields::Unit => Ok(&variant.ident),
            _ => Err(Error::new(
                variant.span(),
                "the variants of an attribute enum cannot have fields",
            )),
        })
        .collect()
}
