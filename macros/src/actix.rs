//! The attribute on a handler of actix-web.

use proc_macro2::TokenStream;
use quote::quote;

use crate::handler::Handler;
use crate::own_name;
use crate::rule::Rule;

/// Expands to a function with the same name, which takes the whole request and runs the handler under the rule.
pub(crate) fn expand(rule: &Rule, handler: Handler) -> TokenStream {
    let (name, build) = (handler.name().clone(), rule.build());
    let shown = name.to_string();
    let request = own_name("request");
    let Handler { outer, visibility, function } = handler;
    quote! {
        #(#outer)*
        #visibility fn #name(
            #request: ::onceward::actix::annotated::AnnotatedRequest,
        ) -> ::onceward::actix::annotated::AnnotatedCall {
            #function
            ::onceward::actix::annotated::run(
                ::core::concat!(::core::module_path!(), "::", #shown),
                #request,
                #build,
                #name,
            )
        }
    }
}
