//! The handler below the attribute.

use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, FnArg, Ident, ItemFn, Result, Type, Visibility};

/// The attributes of actix-web that register a handler, by their last segment.
const ROUTES: [&str; 11] =
    ["get", "post", "put", "delete", "head", "connect", "options", "trace", "patch", "route", "routes"];

/// A function that can be protected: it is `async`, has no `self` and is not generic.
pub(crate) struct Handler {
    /// The attributes of the item that takes the place of the function.
    pub(crate) outer: Vec<Attribute>,
    pub(crate) visibility: Visibility,
    /// The function itself, with all other attributes.
    pub(crate) function: ItemFn,
}

impl Parse for Handler {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let start = input.fork();
        let Ok(mut function) = input.parse::<ItemFn>() else {
            let rest: proc_macro2::TokenStream = input.parse()?;
            let item: proc_macro2::TokenStream = start.parse()?;
            return Err(Error::new_spanned(item, "`#[once]` protects a handler: an `async fn`"))
                .inspect_err(|_| drop(rest));
        };
        checked(&function)?;
        let attributes = std::mem::take(&mut function.attrs);
        let (outer, inner) = attributes.into_iter().partition(describes);
        function.attrs = inner;
        let visibility = std::mem::replace(&mut function.vis, Visibility::Inherited);
        Ok(Self { outer, visibility, function })
    }
}

impl Handler {
    pub(crate) fn name(&self) -> &Ident {
        &self.function.sig.ident
    }

    /// Returns the types of the arguments.
    pub(crate) fn arguments(&self) -> Vec<&Type> {
        let types = self.function.sig.inputs.iter().filter_map(|argument| match argument {
            FnArg::Typed(argument) => Some(&*argument.ty),
            FnArg::Receiver(_) => None,
        });
        types.collect()
    }
}

/// Returns whether an attribute describes the item that other code refers to.
fn describes(attribute: &Attribute) -> bool {
    ["doc", "deprecated"].iter().any(|name| attribute.path().is_ident(name))
}

fn checked(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    if let Some(error) = function.attrs.iter().find_map(misplaced) {
        return Err(error);
    }
    if let Some(receiver) = signature.receiver() {
        return Err(Error::new(receiver.span(), "`#[once]` protects a function: a handler has no `self`"));
    }
    if signature.asyncness.is_none() {
        return Err(Error::new(signature.fn_token.span, "`#[once]` protects a handler: an `async fn`"));
    }
    if !signature.generics.params.is_empty() {
        return Err(Error::new(
            signature.generics.span(),
            "`#[once]` does not protect generic handlers: name the types, or wrap the route in `Protect`",
        ));
    }
    Ok(())
}

/// Returns the error for an attribute that has to be above `#[once]`, or that is a second one.
fn misplaced(attribute: &Attribute) -> Option<Error> {
    let segments: Vec<_> = attribute.path().segments.iter().map(|segment| segment.ident.to_string()).collect();
    let last = segments.last()?;
    let said = if last == "once" {
        "a handler has one `#[once]`: for a second policy, wrap the route in `Protect`".to_owned()
    } else if ROUTES.contains(&last.as_str()) || segments == ["utoipa", "path"] {
        let shown = segments.join("::");
        format!(
            "write `#[once]` below `#[{shown}]`: it protects the function, and `#[{shown}]` has to see it as you wrote it"
        )
    } else {
        return None;
    };
    Some(Error::new(attribute.span(), said))
}
