#![doc = include_str!("../../README.md")]
#![warn(missing_docs)]

mod background;
mod clock;
mod drain;
mod guard;
mod intent;
mod mint;
mod pass;
mod policy;
mod random;
mod record;
mod refusal;
mod secret;
mod sharing;
pub mod store;
mod ticket;
mod token;

#[cfg(feature = "actix")]
pub mod actix;

pub use onceward_api as api;

pub use crate::clock::{Clock, ManualClock};
pub use crate::guard::{Guard, GuardBuilder, Seen, Verdict};
pub use crate::intent::{Binding, Intent, Subject};
pub use crate::pass::Pass;
pub use crate::policy::{Effect, Policy};
pub use crate::refusal::Refusal;
pub use crate::secret::{Secret, WeakSecret};
pub use crate::ticket::{Kind, Ticket};
pub use crate::token::Token;
