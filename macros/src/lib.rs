#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod actix;
mod axum;
mod duration;
mod handler;
mod options;
mod policy;
mod rule;

use proc_macro::TokenStream;
use quote::quote;

use self::handler::Handler;
use self::rule::Rule;

/// The code that one framework needs around a handler.
type Expand = fn(&Rule, Handler) -> proc_macro2::TokenStream;

#[doc = include_str!("../options.md")]
#[proc_macro_attribute]
pub fn actix_once(options: TokenStream, handler: TokenStream) -> TokenStream {
    expand(options, handler, actix::expand)
}

#[doc = include_str!("../options.md")]
#[proc_macro_attribute]
pub fn axum_once(options: TokenStream, handler: TokenStream) -> TokenStream {
    expand(options, handler, axum::expand)
}

/// Expands the attribute. After an error the handler stays as it is, so that the compiler reports nothing else about it.
fn expand(options: TokenStream, handler: TokenStream, expand: Expand) -> TokenStream {
    let unchanged = proc_macro2::TokenStream::from(handler.clone());
    let rule = syn::parse::<Rule>(options);
    let handler = syn::parse::<Handler>(handler);
    match (rule, handler) {
        (Ok(rule), Ok(handler)) => expand(&rule, handler).into(),
        (Err(error), _) | (_, Err(error)) => {
            let error = error.into_compile_error();
            quote!(#error #unchanged).into()
        }
    }
}
