//! The attribute on a handler of axum.

use proc_macro2::TokenStream;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned as _;

use crate::handler::Handler;
use crate::own_name;
use crate::rule::Rule;

/// Expands to a function with the same name, which takes the whole request and runs the handler under the rule. It is generic over the
/// state of the router, which the extractors of the handler need.
pub(crate) fn expand(rule: &Rule, handler: Handler) -> TokenStream {
    let (name, build) = (handler.name().clone(), rule.build());
    let (via, bounds) = bounds(&handler);
    let request = own_name("request");
    let Handler { outer, visibility, function } = handler;
    quote! {
        #(#outer)*
        #[allow(private_bounds)]
        #visibility fn #name<OnceState, #via>(
            #request: ::onceward::axum::annotated::AnnotatedRequest<OnceState>,
        ) -> ::onceward::axum::annotated::AnnotatedCall
        where
            OnceState: ::onceward::axum::annotated::HasProtection,
            #bounds
        {
            #function
            ::onceward::axum::annotated::run(#request, #build, #name)
        }
    }
}

/// Returns a parameter for the way in which the last argument is extracted, and the bounds of all arguments, each at its place in the
/// handler, so that a compile error points there.
fn bounds(handler: &Handler) -> (TokenStream, TokenStream) {
    let mut arguments = handler.arguments();
    let Some(last) = arguments.pop() else { return Default::default() };
    let parts = arguments.iter().map(|argument| {
        quote_spanned!(argument.span()=> #argument: ::onceward::axum::annotated::FromRequestParts<OnceState>,)
    });
    let whole = quote_spanned!(last.span()=> #last: ::onceward::axum::annotated::FromRequest<OnceState, OnceVia>,);
    (quote!(OnceVia: 'static), quote!(#(#parts)* #whole))
}
