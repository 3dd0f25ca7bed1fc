//! The headers of a response that are stored with it.

use crate::reply::Reply;

/// Headers that belong to one response, or to the way that it took: the server that sends a replay adds its own.
const OF_ONE_RESPONSE: [&str; 10] = [
    "age",
    "alt-svc",
    "authentication-control",
    "authentication-info",
    "clear-site-data",
    "dpop-nonce",
    "replay-nonce",
    "server-timing",
    "via",
    "x-request-id",
];

/// The headers of a route's responses that are stored, besides those that describe the body. [`Reply`] never stores some of them.
#[derive(Debug, Clone)]
pub(super) struct KeptHeaders<N> {
    names: Vec<N>,
    keeps_all: bool,
}

impl<N: AsRef<str>> KeptHeaders<N> {
    /// Stores this header too.
    pub(super) fn add(&mut self, name: N) {
        self.names.push(name);
    }

    /// Stores every header.
    pub(super) fn add_all(&mut self) {
        self.keeps_all = true;
    }

    /// Returns whether a header is stored. The name has to be in lower case.
    pub(super) fn keeps(&self, name: &str) -> bool {
        Reply::keeps(name)
            || self.names.iter().any(|other| other.as_ref() == name)
            || (self.keeps_all && !OF_ONE_RESPONSE.contains(&name))
    }
}

impl<N> Default for KeptHeaders<N> {
    fn default() -> Self {
        Self { names: Vec::new(), keeps_all: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_describe_the_body_are_stored_and_others_on_request() {
        let mut kept = KeptHeaders::<&str>::default();
        let names = ["content-type", "content-security-policy", "x-shop", "x-request-id", "age"];
        let stored = |kept: &KeptHeaders<&str>| names.map(|name| kept.keeps(name));
        assert_eq!(stored(&kept), [true, false, false, false, false]);
        kept.add("x-request-id");
        assert_eq!(stored(&kept), [true, false, false, true, false]);
        kept.add_all();
        assert_eq!(stored(&kept), [true, true, true, true, false]);
    }
}
