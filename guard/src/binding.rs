//! The binding of a token to an action and a subject.

use std::borrow::Cow;

use onceward_api::path::canonical_action;

use crate::subject::Subject;

/// The action and the subject that a token is valid for. An unbound token is valid on every route that does not require a bound one.
#[derive(Debug, Clone, Default)]
pub struct Binding<'a> {
    pub(crate) action: Option<Cow<'a, str>>,
    pub(crate) subject: Option<Subject<'a>>,
}

impl<'a> Binding<'a> {
    /// Returns a binding that allows every action and every subject.
    pub fn none() -> Self {
        Self::default()
    }

    /// Returns a binding to this action, if there is one, and to this subject, as a client requests it.
    pub fn to(action: Option<&'a str>, subject: Subject<'a>) -> Self {
        Self { action: action.map(canonical_action), ..Self::default() }.subject(subject)
    }

    /// Restricts the token to this action. An action that is a method and a path is compared by its [canonical path](canonical_action).
    #[must_use]
    pub fn action(mut self, action: &'a str) -> Self {
        self.action = Some(canonical_action(action));
        self
    }

    /// Restricts the token to this subject. An anonymous subject does not restrict it.
    #[must_use]
    pub fn subject(mut self, subject: Subject<'a>) -> Self {
        self.subject = (!subject.is_anonymous()).then_some(subject);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binding_to_anonymous_subject_restricts_no_subject() {
        let bound = Binding::to(Some("POST /orders"), Subject::named("alice"));
        assert_eq!((bound.action.as_deref(), bound.subject), (Some("POST /orders"), Some(Subject::named("alice"))));
        let free = Binding::to(None, Subject::anonymous());
        assert_eq!((free.action, free.subject), (None, None));
    }

    #[test]
    fn action_is_bound_by_its_canonical_path() {
        for action in ["POST /%6frders", "POST /orders"] {
            assert_eq!(Binding::none().action(action).action.as_deref(), Some("POST /orders"));
            assert_eq!(Binding::to(Some(action), Subject::anonymous()).action.as_deref(), Some("POST /orders"));
        }
    }
}
