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
use proc_macro2::{Ident, Span};
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

/// Creates a name for a variable of the generated code. Besides its hygiene it has a prefix: `#[post]` turns a handler into a unit struct,
/// which a variable with the same name would match as a pattern.
fn own_name(name: &str) -> Ident {
    Ident::new(&format!("__onceward_{name}"), Span::mixed_site())
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
