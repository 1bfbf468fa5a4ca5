//! The code that the macro adds beside a target's function.
//!
//! Its names begin with `__callbox`, because a macro has no other way to avoid clashes with names
//! of the crate around the function.

use callbox_abi::Stage;
use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, Ident, ItemFn, LitStr, Result, TypeParam};

use crate::derivative;
use crate::dimensions;
use crate::options::{Options, variant};
use crate::signature::{Binding, Parameter, Passing, Signature, instance, mentions};

/// Returns a type of the function's name that implements `Target`, and in WebAssembly the export
/// and the metadata.
///
/// Tests refer to the target by this type. It can have the function's name because types and
/// functions are in different namespaces.
pub(crate) fn target(
    function: &ItemFn,
    signature: &Signature,
    options: &Options,
) -> Result<TokenStream> {
    let (ident, vis) = (&function.sig.ident, &function.vis);
    let description = description(signature, options);
    let call = call(function, signature, options)?;
    let check = check(options.stage, ident);
    let wasm = wasm(ident, signature, options);
    Ok(quote! {
        #[doc(hidden)]
        #[allow(non_camel_case_types, reason = "the type has the function's name")]
        #vis struct #ident {}

        const _: () = {
            use ::callbox_guest::__private as __callbox;

            impl __callbox::Target for #ident {
                const DESCRIPTION: &'static __callbox::Description = &#description;

                #call
            }

            #check
            #wasm
        };
    })
}

fn description(signature: &Signature, options: &Options) -> TokenStream {
    let name = &signature.name;
    let stage = variant(options.stage);
    let documentation = &signature.documentation;
    let traits = options.traits();
    let parameters = by_type(signature).map(|(_, p)| parameter(p, options));
    let attributes = signature
        .parameters
        .iter()
        .filter(|p| p.binding == Binding::Attribute);
    let attributes = attributes.map(|p| attribute(p, options));
    let derivative_of = derivative::expression(signature.derivative_of.as_ref());
    quote! {
        __callbox::Description::new(#name, __callbox::Stage::#stage)
            .with_words(#documentation, &[#(#traits),*])
            #derivative_of
            .with_parameters(&[#(#parameters),*], &[#(#attributes),*])
    }
}

/// Returns the description of a parameter: one role for each instance of a generic target.
fn parameter(parameter: &Parameter, options: &Options) -> TokenStream {
    let name = &parameter.name;
    let instances = options.instances();
    let types = instances.iter().map(|types| instance(&parameter.ty, types));
    let shared = parameter.passing.is_shared().then(|| quote!(.shared()));
    let roles = types.map(|ty| {
        let span = parameter.ty.span();
        quote_spanned!(span=> <#ty as __callbox::TargetParameter<'_>>::ROLE #shared)
    });
    let dimensions = dimensions::expression(parameter.dimensions.as_ref());
    quote! {
        __callbox::ParameterDescription { name: #name, roles: &[#(#roles),*], dimensions: #dimensions }
    }
}

fn attribute(parameter: &Parameter, options: &Options) -> TokenStream {
    let name = &parameter.name;
    let instances = options.instances();
    let ty = instance(&parameter.ty, instances.first().map_or(&[], Vec::as_slice));
    let value = quote_spanned!(parameter.ty.span()=> <#ty as __callbox::AttributeValue<'_>>);
    // An attribute of the generic type has several element types.
    let mut several = options.types.iter().filter(|(_, types)| types.len() > 1);
    let element_type = if several.any(|(ident, _)| mentions(&parameter.ty, ident)) {
        quote!(::core::option::Option::None)
    } else {
        quote!(#value::ELEMENT_TYPE)
    };
    quote! {
        __callbox::AttributeDescription {
            name: #name,
            kind: #value::KIND,
            element_type: #element_type,
            fields: #value::FIELDS,
            variants: #value::VARIANTS,
            is_optional: #value::IS_OPTIONAL,
        }
    }
}

/// Returns the code that decodes and calls: once, or once for each type of a generic target.
fn call(function: &ItemFn, signature: &Signature, options: &Options) -> Result<TokenStream> {
    let returned = quote! {
        ::core::result::Result<
            ::core::option::Option<__callbox::State>,
            __callbox::Failure,
        >
    };
    let body = body(function, signature, options.stage);
    if options.types.is_empty() {
        return Ok(quote! {
            #[inline]
            fn call(mut __callbox_decoder: __callbox::Decoder<'_>) -> #returned {
                __callbox_decoder.check_counts()?;
                #body
            }
        });
    }
    let generics = &function.sig.generics;
    let parameters: Vec<&TypeParam> = generics.type_params().collect();
    let where_clause = &generics.where_clause;
    // In the order of the function's parameters.
    let idents: Vec<&Ident> = parameters
        .iter()
        .map(|parameter| &parameter.ident)
        .collect();
    let selected = select(signature, options, &quote!(__callbox_call::<#(#idents),*>))?;
    Ok(quote! {
        fn call(__callbox_decoder: __callbox::Decoder<'_>) -> #returned {
            fn __callbox_call<#(#parameters),*>(mut __callbox_decoder: __callbox::Decoder<'_>) -> #returned #where_clause {
                #body
            }

            __callbox_decoder.check_counts()?;
            #selected
        }
    })
}

/// Returns the code that selects the instance of a generic target by the element types of a call,
/// one type parameter after the other. In each arm, the parameter is an alias of its type.
fn select(signature: &Signature, options: &Options, call: &TokenStream) -> Result<TokenStream> {
    let mut selected = quote!(#call(__callbox_decoder));
    for (ident, types) in options.types.iter().rev() {
        let (parameter, position) = selector(signature, ident)?;
        selected = quote! {
            match __callbox_decoder.element_type(#parameter) {
                #(
                    ::core::option::Option::Some(__callbox_found)
                        if __callbox_found == <#types as __callbox::Element>::TYPE => {
                            type #ident = #types;
                            #selected
                        }
                )*
                _ => ::core::result::Result::Err(__callbox_decoder.unsupported_type(#parameter, #position)),
            }
        };
    }
    Ok(selected)
}

/// Returns the buffer whose element type selects the instance of a generic target: its index among
/// the buffers, and among all parameters.
fn selector(signature: &Signature, ident: &Ident) -> Result<(usize, usize)> {
    by_type(signature)
        .enumerate()
        .find(|(_, (_, p))| !p.is_optional() && mentions(&p.ty, ident))
        .map(|(place, (position, _))| (place, position))
        .ok_or_else(|| {
            let message = format!("no required operand or result has elements of type `{ident}`");
            Error::new(ident.span(), message)
        })
}

/// Returns the code that decodes every parameter, so that all mismatches are reported together, and
/// calls the function.
fn body(function: &ItemFn, signature: &Signature, stage: Stage) -> TokenStream {
    let ident = &function.sig.ident;
    let names = signature.attribute_names();
    let variables: Vec<Ident> = (0..signature.parameters.len())
        .map(|i| format_ident!("__callbox_parameter_{i}"))
        .collect();
    let decoded = signature.parameters.iter().map(|p| decode(p, &names));
    let unwrapped = signature
        .parameters
        .iter()
        .zip(&variables)
        .map(|(p, variable)| {
            let mutability = p.passing.is_mutable().then(|| quote!(mut));
            quote! {
                let ::core::option::Option::Some(#mutability #variable) = #variable else {
                    return ::core::result::Result::Err(__callbox_decoder.failure());
                };
            }
        });
    let arguments = signature
        .parameters
        .iter()
        .zip(&variables)
        .map(|(p, variable)| match p.passing {
            Passing::Value => quote!(#variable),
            Passing::Reference => quote!(&#variable),
            Passing::MutableReference => quote!(&mut #variable),
            Passing::OptionalReference => quote!(#variable.as_ref()),
            Passing::OptionalMutableReference => quote!(#variable.as_mut()),
        });
    let finish = if stage == Stage::Execute {
        quote_spanned!(signature.output=> __callbox::finish)
    } else {
        quote_spanned!(signature.output=> __callbox::keep)
    };
    quote! {
        #(let #variables = #decoded;)*
        #(#unwrapped)*
        #finish(#ident(#(#arguments),*))
    }
}

fn decode(parameter: &Parameter, attribute_names: &[&str]) -> TokenStream {
    let ty = instance(&parameter.ty, &[]);
    let name = &parameter.name;
    match parameter.binding {
        Binding::ByType => {
            quote_spanned!(parameter.ty.span()=> __callbox_decoder.parameter::<#ty>())
        }
        Binding::Attribute => {
            let place = attribute_names.iter().take_while(|n| *n != name).count();
            quote_spanned!(parameter.ty.span()=> __callbox_decoder.attribute::<#ty>(#name, #place))
        }
        Binding::State(stage) => {
            let stage = variant(stage);
            quote_spanned!(parameter.ty.span()=> __callbox_decoder.state::<#ty>(__callbox::Stage::#stage))
        }
    }
}

/// Returns checks that need the parameters' types: evaluating the description checks their order.
fn check(stage: Stage, ident: &Ident) -> TokenStream {
    if stage != Stage::Instantiate {
        return quote_spanned! {ident.span()=>
            const _: &__callbox::Description = <#ident as __callbox::Target>::DESCRIPTION;
        };
    }
    quote_spanned! {ident.span()=>
        const _: () = ::core::assert!(
            !<#ident as __callbox::Target>::DESCRIPTION.has_buffers(),
            "stage instantiate has attributes only: no operands and no results"
        );
    }
}

/// Returns the export, and the target's line in the custom section.
///
/// Native builds have neither: the exports' names would be symbols that clash with other crates'.
fn wasm(ident: &Ident, signature: &Signature, options: &Options) -> TokenStream {
    let target = signature.name.value();
    let export = match options.stage {
        Stage::Execute => target,
        stage => format!("{target}.{}", stage.name()),
    };
    let take_back = (options.stage != Stage::Execute).then(|| take_back(&export));
    let export = LitStr::new(&export, Span::call_site());
    quote! {
        #take_back

        #[cfg(target_arch = "wasm32")]
        #[unsafe(export_name = #export)]
        extern "C" fn __callbox_export(__callbox_frame: __callbox::FramePointer<'_>) -> u32 {
            __callbox::run::<#ident>(__callbox_frame)
        }

        // Refers to the export's code, so that the function counts as used.
        #[cfg(not(target_arch = "wasm32"))]
        const _: fn(__callbox::FramePointer<'_>) -> u32 = __callbox::run::<#ident>;

        #[cfg(target_arch = "wasm32")]
        #[used]
        #[unsafe(link_section = "callbox.targets")]
        static __CALLBOX_METADATA: [u8; __callbox::json_len(<#ident as __callbox::Target>::DESCRIPTION)] =
            __callbox::json(<#ident as __callbox::Target>::DESCRIPTION);
    }
}

/// Returns the export through which a host drops a stage's state.
fn take_back(export: &str) -> TokenStream {
    let export = LitStr::new(&format!("{export}.drop"), Span::call_site());
    quote! {
        #[cfg(target_arch = "wasm32")]
        #[unsafe(export_name = #export)]
        extern "C" fn __callbox_take_back(__callbox_word: __callbox::StateWord) {
            __callbox::take_back_state(__callbox_word);
        }
    }
}

/// Returns the parameters that are bound by type, each with its index among all parameters.
fn by_type(signature: &Signature) -> impl Iterator<Item = (usize, &Parameter)> {
    signature
        .parameters
        .iter()
        .enumerate()
        .filter(|(_, p)| p.binding == Binding::ByType)
}
