//! The options of the attribute, as they are written: names, some with a value.

use proc_macro2::Span;
use syn::ext::IdentExt as _;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, Ident, Lit, LitStr, Result, Token};

use crate::duration::millis;
use crate::policy;

/// One option: `bound`, or `remember = "10m"`.
pub(crate) struct Setting {
    pub(crate) name: Ident,
    pub(crate) value: Option<Expr>,
}

/// All options of one attribute, in their order, each name once.
pub(crate) struct Settings(pub(crate) Vec<Setting>);

impl Parse for Setting {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let written =
            |_| Error::new(input.span(), "an option is a name, or a name and a value, as in `remember = \"10m\"`");
        let name = Ident::parse_any(input).map_err(written)?;
        let value = input.parse::<Option<Token![=]>>()?.map(|_| input.parse()).transpose()?;
        match input.is_empty() || input.peek(Token![,]) {
            true => Ok(Self { name, value }),
            false => Err(written(Error::new(input.span(), ""))),
        }
    }
}

impl Parse for Settings {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let settings: Vec<_> = Punctuated::<Setting, Token![,]>::parse_terminated(input)?.into_iter().collect();
        for (at, setting) in settings.iter().enumerate() {
            if settings[..at].iter().any(|other| other.name == setting.name) {
                return Err(Error::new(setting.name.span(), format!("`{}` is given twice", setting.name)));
            }
        }
        Ok(Self(settings))
    }
}

impl Setting {
    /// Asserts that the option has no value.
    pub(crate) fn flag(&self) -> Result<()> {
        match &self.value {
            None => Ok(()),
            Some(value) => Err(self.error(value, "takes no value")),
        }
    }

    /// Returns the value, which is a text in quotes.
    pub(crate) fn text(&self) -> Result<LitStr> {
        match &self.value {
            Some(Expr::Lit(ExprLit { lit: Lit::Str(text), .. })) => Ok(text.clone()),
            Some(value) => Err(self.error(value, &format!("takes a text in quotes, as in `{}`", self.example()))),
            None => Err(Error::new(
                self.name.span(),
                format!("`{}` requires a value, as in `{}`", self.name, self.example()),
            )),
        }
    }

    /// Returns the value, which is a duration, in milliseconds.
    pub(crate) fn duration(&self) -> Result<u64> {
        millis(&self.text()?)
    }

    /// Returns the value, which is a duration longer than zero, in milliseconds.
    pub(crate) fn time(&self) -> Result<u64> {
        match self.duration()? {
            0 => Err(Error::new_spanned(&self.value, format!("`{}` has to be longer than zero", self.name))),
            millis => Ok(millis),
        }
    }

    /// Returns the value, which is an expression.
    pub(crate) fn expression(&self) -> Result<Expr> {
        let missing =
            || Error::new(self.name.span(), format!("`{}` requires a value, as in `{}`", self.name, self.example()));
        self.value.clone().ok_or_else(missing)
    }

    /// Returns the name, with an example of its value.
    fn example(&self) -> &'static str {
        policy::example(&self.name).unwrap_or_default()
    }

    fn error(&self, value: &Expr, what: &str) -> Error {
        Error::new_spanned(value, format!("`{}` {what}", self.name))
    }
}

impl Settings {
    /// Returns the span of the first option, or of the attribute.
    pub(crate) fn span(&self) -> Span {
        self.0.first().map_or_else(Span::call_site, |first| first.name.span())
    }
}
