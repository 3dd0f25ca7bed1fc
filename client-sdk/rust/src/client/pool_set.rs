//! The token pools of a client: one for each endpoint, binding and identity.

use std::collections::HashMap;
use std::sync::Arc;

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName};

use super::ClientInner;
use crate::token_pool::{TokenBinding, TokenPool, TokenSource};

/// Maximum number of token pools. Beyond that the idle pools are dropped, and if that is not enough, all of them.
const MAX_POOLS: usize = 1000;

#[derive(Default)]
pub(super) struct PoolSet {
    all: HashMap<PoolKey, Arc<TokenPool>>,
    /// The pool used last, by origin. Most submissions use it again, and find it without building a [`PoolKey`].
    last: Option<(String, TokenBinding, HeaderMap, Arc<TokenPool>)>,
}

/// The properties that distinguish the tokens of one pool from those of another.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct PoolKey {
    base: Url,
    binding: TokenBinding,
    /// Sorted by name.
    identity: Vec<(HeaderName, Vec<u8>)>,
    is_authorized: bool,
}

impl PoolKey {
    pub(super) fn of(base: Url, binding: TokenBinding, identity: &HeaderMap, is_authorized: bool) -> Self {
        let mut identity: Vec<_> =
            identity.iter().map(|(name, value)| (name.clone(), value.as_bytes().to_vec())).collect();
        identity.sort_by(|one, other| (one.0.as_str(), &one.1).cmp(&(other.0.as_str(), &other.1)));
        Self { base, binding, identity, is_authorized }
    }
}

impl PoolSet {
    /// The pool used last, if it was for this origin, binding and identity.
    pub(super) fn last(&self, origin: &str, binding: &TokenBinding, who: &HeaderMap) -> Option<Arc<TokenPool>> {
        let (last_origin, last_binding, last_who, pool) = self.last.as_ref()?;
        (last_origin == origin && last_binding == binding && last_who == who).then(|| Arc::clone(pool))
    }

    /// Remembers the pool used last.
    pub(super) fn set_last(&mut self, origin: &str, binding: &TokenBinding, who: &HeaderMap, pool: &Arc<TokenPool>) {
        self.last = Some((origin.to_owned(), binding.clone(), who.clone(), Arc::clone(pool)));
    }

    /// Returns the pool for this key, and opens it if it does not exist.
    pub(super) fn get_or_open(&mut self, key: PoolKey, identity: HeaderMap, inner: &ClientInner) -> Arc<TokenPool> {
        match self.all.get(&key) {
            Some(pool) => Arc::clone(pool),
            None => self.open(key, identity, inner),
        }
    }

    fn open(&mut self, key: PoolKey, identity: HeaderMap, inner: &ClientInner) -> Arc<TokenPool> {
        if self.all.len() >= MAX_POOLS {
            self.all.retain(|_, pool| !pool.is_idle());
            // Submissions in flight keep their pool; tokens in the dropped pools expire unused.
            if self.all.len() >= MAX_POOLS {
                self.all.clear();
            }
        }
        let mut source =
            TokenSource::new(inner.http.clone(), key.base.clone(), key.binding.clone(), inner.limits.attempt_timeout);
        source.identity = identity;
        source.authorization = inner.authorization.clone().filter(|_| key.is_authorized);
        let pool = TokenPool::new(source, inner.pool_size, inner.limits);
        self.all.insert(key, Arc::clone(&pool));
        pool
    }
}
