//! The policies of a route as types, and the traits that decide which setters each has.

/// A one-time token. A duplicate is rejected.
#[derive(Debug)]
pub enum TokenPolicy {}

/// A one-time token whose response is stored. A duplicate receives the stored response.
#[derive(Debug)]
pub enum RememberedPolicy {}

/// A key that the client generates. A duplicate receives the stored response.
#[derive(Debug)]
pub enum KeyPolicy {}

/// An interval. A duplicate within it is rejected.
#[derive(Debug)]
pub enum IntervalPolicy {}

/// An interval in which requests with the same name are duplicates.
#[derive(Debug)]
pub enum NamedIntervalPolicy {}

/// An interval in which requests with the same content are duplicates.
#[derive(Debug)]
pub enum ContentIntervalPolicy {}

/// An interval whose response is stored. A duplicate within it, by content, receives the stored response.
#[derive(Debug)]
pub enum RememberedIntervalPolicy {}

/// An interval whose response is stored. A duplicate within it, by name, receives the stored response.
#[derive(Debug)]
pub enum RememberedNamedIntervalPolicy {}

/// Any of the policies; see [`Protect::into_any`](super::Protect::into_any).
#[derive(Debug)]
pub enum AnyPolicy {}

mod sealed {
    pub trait Sealed {}
}

/// A policy under which a route requires a token.
#[diagnostic::on_unimplemented(message = "this setter requires `Protect::token`, and this route has `{Self}`")]
pub trait RequiresToken: sealed::Sealed {}

/// A policy under which the source of a key or name can be chosen.
#[diagnostic::on_unimplemented(
    message = "`from` requires `Protect::key` or `Protect::interval`, and this route has `{Self}`",
    note = "the source can be set once"
)]
pub trait TakesKey: sealed::Sealed {
    /// The policy with that source.
    type Named;
}

/// A policy under which a route reads a token, a key or a name, which may be missing.
#[diagnostic::on_unimplemented(
    message = "`optional` requires `Protect::token`, `Protect::key` or a named interval, and this route has `{Self}`",
    note = "name the interval with `from` first"
)]
pub trait ReadsId: sealed::Sealed {}

/// A policy under which requests are compared by their content.
#[diagnostic::on_unimplemented(
    message = "this setter requires a policy that compares content, and this route has `{Self}`",
    note = "use `Protect::key`, `Protect::token(…).remember(…)`, or `Protect::interval` without a name or with `remember`"
)]
pub trait ComparesContent: sealed::Sealed {
    /// The policy once the comparison is set up.
    type Compared;
}

/// A policy under which a body over the limit can be accepted without being compared.
#[diagnostic::on_unimplemented(
    message = "`skip_large_bodies` requires a policy that compares content and has another id, and this route has `{Self}`",
    note = "in a remembered interval all large bodies would receive the same response; raise `body_limit`, or name the interval with \
            `from`"
)]
pub trait SkipsLargeBodies: ComparesContent {}

/// A policy under which responses are stored.
#[diagnostic::on_unimplemented(
    message = "this setter requires a policy that stores responses, and this route has `{Self}`",
    note = "use `Protect::key`, or call `remember` first"
)]
pub trait StoresResponses: sealed::Sealed {}

impl sealed::Sealed for TokenPolicy {}
impl sealed::Sealed for RememberedPolicy {}
impl sealed::Sealed for KeyPolicy {}
impl sealed::Sealed for IntervalPolicy {}
impl sealed::Sealed for NamedIntervalPolicy {}
impl sealed::Sealed for ContentIntervalPolicy {}
impl sealed::Sealed for RememberedIntervalPolicy {}
impl sealed::Sealed for RememberedNamedIntervalPolicy {}

impl RequiresToken for TokenPolicy {}
impl RequiresToken for RememberedPolicy {}

impl TakesKey for KeyPolicy {
    type Named = Self;
}

impl TakesKey for IntervalPolicy {
    type Named = NamedIntervalPolicy;
}

impl TakesKey for RememberedIntervalPolicy {
    type Named = RememberedNamedIntervalPolicy;
}

impl ReadsId for TokenPolicy {}
impl ReadsId for RememberedPolicy {}
impl ReadsId for KeyPolicy {}
impl ReadsId for NamedIntervalPolicy {}
impl ReadsId for RememberedNamedIntervalPolicy {}

impl ComparesContent for RememberedPolicy {
    type Compared = Self;
}

impl ComparesContent for KeyPolicy {
    type Compared = Self;
}

impl ComparesContent for IntervalPolicy {
    type Compared = ContentIntervalPolicy;
}

impl ComparesContent for ContentIntervalPolicy {
    type Compared = Self;
}

impl ComparesContent for RememberedIntervalPolicy {
    type Compared = Self;
}

impl ComparesContent for RememberedNamedIntervalPolicy {
    type Compared = Self;
}

impl SkipsLargeBodies for RememberedPolicy {}
impl SkipsLargeBodies for KeyPolicy {}
impl SkipsLargeBodies for IntervalPolicy {}
impl SkipsLargeBodies for ContentIntervalPolicy {}
impl SkipsLargeBodies for RememberedNamedIntervalPolicy {}

impl StoresResponses for RememberedPolicy {}
impl StoresResponses for KeyPolicy {}
impl StoresResponses for RememberedIntervalPolicy {}
impl StoresResponses for RememberedNamedIntervalPolicy {}
