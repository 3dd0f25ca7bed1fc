//! The rule of a handler: a policy with its options, checked.

use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::{Error, Expr, LitStr, Result};

use crate::options::{Setting, Settings};
use crate::own_name;
use crate::policy::{POLICIES, Policy};

/// A checked rule.
pub(crate) struct Rule {
    policy: Policy,
    /// The value of the policy: the pointer of a key.
    pointer: Option<LitStr>,
    /// The value of the policy: the length of an interval in milliseconds.
    every: u64,
    remember: Option<u64>,
    /// Whether an interval stores the response.
    is_remembered: bool,
    retain: Option<u64>,
    wait: Option<u64>,
    is_retryable: bool,
    /// The setters that take nothing, such as `bound`.
    flags: Vec<Ident>,
    message: Option<LitStr>,
    subject: Option<Expr>,
}

impl Parse for Rule {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let settings: Settings = input.parse()?;
        let first = settings.0.first().and_then(|first| Some((first, Policy::named(&first.name)?)));
        let Some((first, policy)) = first else {
            return Err(Error::new(settings.span(), format!("`#[once]` starts with a policy: {POLICIES}")));
        };
        let mut rule = Self::of(policy, first)?;
        for setting in &settings.0[1..] {
            rule.set(setting)?;
        }
        rule.check_combinations(&settings)?;
        Ok(rule)
    }
}

impl Rule {
    /// Creates the rule of a policy without options.
    fn of(policy: Policy, setting: &Setting) -> Result<Self> {
        let (mut pointer, mut every) = (None, 0);
        match (policy, &setting.value) {
            (Policy::Token, _) => setting.flag()?,
            (Policy::Key, None) => {}
            (Policy::Key, Some(_)) => pointer = Some(checked_pointer(setting.text()?)?),
            (Policy::Interval, _) => every = setting.time()?,
        }
        Ok(Self {
            policy,
            pointer,
            every,
            remember: None,
            is_remembered: false,
            retain: None,
            wait: None,
            is_retryable: false,
            flags: Vec::new(),
            message: None,
            subject: None,
        })
    }

    /// Rejects options that have no effect beside each other.
    fn check_combinations(&self, settings: &Settings) -> Result<()> {
        let named = |name: &str| settings.0.iter().find(|setting| setting.name == name);
        let why = match self.policy {
            Policy::Token if self.remember.is_none() => named("wait")
                .zip(Some("`wait` requires `remember = \"10m\"`: a token without it stores no response to wait for")),
            Policy::Interval if !self.is_remembered => named("wait")
                .zip(Some("`wait` requires `remember`: an interval without it stores no response to wait for")),
            Policy::Interval => named("message")
                .zip(Some("`message` does not apply with `remember`: a duplicate receives the stored response")),
            _ => None,
        };
        why.map_or(Ok(()), |(setting, why)| Err(Error::new(setting.name.span(), why)))
    }

    fn set(&mut self, setting: &Setting) -> Result<()> {
        if let Some(why) = self.policy.refusal(&setting.name) {
            return Err(Error::new(setting.name.span(), why));
        }
        match setting.name.to_string().as_str() {
            "remember" if self.policy == Policy::Interval => {
                setting.flag()?;
                self.is_remembered = true;
            }
            "remember" => self.remember = Some(setting.time()?),
            "retain" => self.retain = Some(setting.time()?),
            "wait" => self.wait = Some(setting.duration()?),
            "message" => self.message = Some(setting.text()?),
            "subject" => self.subject = Some(setting.expression()?),
            "retryable" => {
                setting.flag()?;
                self.is_retryable = true;
            }
            _ => {
                setting.flag()?;
                self.flags.push(setting.name.clone());
            }
        }
        Ok(())
    }

    /// Returns the code that builds this rule with a `Protection`: a closure that captures nothing.
    pub(crate) fn build(&self) -> TokenStream {
        let protection = own_name("protection");
        let subject = self.subject.iter().map(|subject| quote!(let #protection = #protection.subject(#subject);));
        let (policy, flags) = (self.policy(), &self.flags);
        let wait = self.wait.map(duration).into_iter();
        quote!(|#protection| {
            #(#subject)*
            #protection #policy #(.#flags())* #(.wait(#wait))* .into_any()
        })
    }

    fn policy(&self) -> TokenStream {
        match self.policy {
            Policy::Token => {
                let remember = self.remember.map(duration).into_iter();
                quote!(.token() #(.remember(#remember))*)
            }
            Policy::Key => {
                let rules = if self.is_retryable { quote!(retryable) } else { quote!(at_most_once) };
                let retain = self.retain.map(duration).into_iter();
                let from = self.pointer.iter();
                quote!(
                    .key(::onceward::KeyRules::#rules() #(.retain(#retain))*)
                    #(.from(::onceward::http::annotated::body_key(#from)))*
                )
            }
            Policy::Interval => {
                let (every, message) = (self.every, self.message.iter());
                let remember = self.is_remembered.then(|| quote!(.remember())).into_iter();
                quote!(.interval(::onceward::http::annotated::interval(#every) #(.message(#message))*) #(#remember)*)
            }
        }
    }
}

fn duration(millis: u64) -> TokenStream {
    quote!(::core::time::Duration::from_millis(#millis))
}

/// Checks that a text is a JSON pointer below the whole body.
fn checked_pointer(text: LitStr) -> Result<LitStr> {
    let pointer = text.value();
    let is_escaped = |piece: &str| piece.starts_with('0') || piece.starts_with('1');
    match pointer.starts_with('/') && pointer.split('~').skip(1).all(is_escaped) {
        true => Ok(text),
        false => Err(Error::new(
            text.span(),
            format!(
                "`{pointer}` is not a JSON pointer: name a field of the body, as in `key = \"/order/id\"`, with `~0` for `~` and `~1` for `/`; \
                 the header `Idempotency-Key` is `key` without a value"
            ),
        )),
    }
}
