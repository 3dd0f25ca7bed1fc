//! The handler below the attribute.

use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, FnArg, Ident, Item, ItemFn, Result, Type, Visibility};

/// The attributes of actix-web that register a handler, by their last segment.
const ROUTES: [&str; 11] =
    ["get", "post", "put", "delete", "head", "connect", "options", "trace", "patch", "route", "routes"];

/// The attributes that describe the item that other code refers to.
const OUTER_ONLY: [&str; 2] = ["doc", "deprecated"];
/// The attributes of that item: a lint that is allowed is allowed for the function too.
const OUTER: [&str; 3] = ["doc", "deprecated", "allow"];

const NOT_A_HANDLER: &str = "`#[once]` protects a handler: an `async fn`";

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
        let mut function = match input.parse::<Item>()? {
            Item::Fn(function) => function,
            other => return Err(Error::new_spanned(other, NOT_A_HANDLER)),
        };
        checked(&function)?;
        let attributes = std::mem::take(&mut function.attrs);
        let outer = attributes.iter().filter(|attribute| is_one_of(attribute, &OUTER)).cloned().collect();
        function.attrs = attributes.into_iter().filter(|attribute| !is_one_of(attribute, &OUTER_ONLY)).collect();
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

fn is_one_of(attribute: &Attribute, names: &[&str]) -> bool {
    names.iter().any(|name| attribute.path().is_ident(name))
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
        return Err(Error::new(signature.fn_token.span, NOT_A_HANDLER));
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
