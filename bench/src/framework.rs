//! The web frameworks that the server under load can use.

use crate::case::{Case, Store};

/// A web framework with an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framework {
    /// actix-web, with a single-threaded runtime per worker.
    Actix,
    /// axum, on one multi-threaded runtime.
    Axum,
}

impl Framework {
    /// All frameworks, in the order of the reports.
    pub(crate) const ALL: [Self; 2] = [Self::Actix, Self::Axum];

    /// The name in commands and reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Actix => "actix-web",
            Self::Axum => "axum",
        }
    }

    /// Returns the framework with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|framework| framework.name() == name)
    }

    /// The measured cases, the bare one first. On axum, these are the cases in memory and on the installed Redis: another Redis costs the
    /// adapter nothing else.
    pub(crate) fn cases(self) -> impl Iterator<Item = &'static Case> {
        let is_measured = move |case: &&Case| match self {
            Self::Actix => true,
            Self::Axum => matches!(case.store, Store::None | Store::Memory | Store::Redis),
        };
        Case::ALL.iter().filter(is_measured)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_case_on_each_framework_is_bare() {
        for framework in Framework::ALL {
            assert!(framework.cases().next().unwrap().is_bare());
            assert!(framework.cases().skip(1).all(|case| !case.is_bare()));
        }
        assert_eq!((Framework::Actix.cases().count(), Framework::Axum.cases().count()), (Case::ALL.len(), 12));
    }

    #[test]
    fn framework_is_found_by_name() {
        assert!(Framework::ALL.iter().all(|framework| Framework::named(framework.name()) == Some(*framework)));
        assert_eq!(Framework::named("rocket"), None);
    }
}
