//! Submissions through the proxy, and the settings files of its tests.

use std::time::Duration;

use onceward_api::header;
use onceward_tests::client::{http, token_for};
use onceward_tests::service::OncewardServer;
use reqwest::RequestBuilder;
use tempfile::NamedTempFile;

/// Time limit of a poll.
pub(super) const LONG: Duration = Duration::from_secs(10);

/// Fetches a token from the proxy.
pub(super) async fn token(proxy: &OncewardServer) -> String {
    token_for(&format!("{}/_onceward", proxy.url), "").await
}

/// Builds a form with a token.
pub(super) fn form(proxy: &OncewardServer, target: &str, token: &str) -> RequestBuilder {
    http().post(format!("{}{target}", proxy.url)).form(&[("_onceward", token), ("item", "tea")])
}

/// Builds a JSON order.
pub(super) fn order(proxy: &OncewardServer, target: &str, item: &str) -> RequestBuilder {
    let body = format!(r#"{{"item":"{item}"}}"#);
    http().post(format!("{}{target}", proxy.url)).header("content-type", "application/json").body(body)
}

/// Builds a JSON order for tea with a key.
pub(super) fn keyed(proxy: &OncewardServer, target: &str, key: &str) -> RequestBuilder {
    order(proxy, target, "tea").header(header::IDEMPOTENCY_KEY, key)
}

/// Builds a JSON order for tea with a token in the header.
pub(super) fn tokened(proxy: &OncewardServer, target: &str, token: &str) -> RequestBuilder {
    order(proxy, target, "tea").header(header::TOKEN, token)
}

/// A settings file with this text.
pub(super) struct SettingsFile(NamedTempFile);

impl SettingsFile {
    pub(super) fn new(text: &str) -> Self {
        let file = NamedTempFile::with_suffix(".toml").unwrap();
        std::fs::write(file.path(), text).unwrap();
        Self(file)
    }

    pub(super) fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}
