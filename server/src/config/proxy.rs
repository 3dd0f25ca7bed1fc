//! The settings of `onceward proxy`.

use std::path::PathBuf;

use http::uri::Scheme;
use onceward_api::duration;

use super::sources::Sources;
use super::{Config, ConfigError, upstream, value};
use crate::proxy::settings::{ProxySettings, RejectionShape, Require};

pub(super) fn settings(sources: &Sources) -> Result<ProxySettings, ConfigError> {
    let proxy_path = sources.value("proxy_path", value::proxy_path)?;
    let settings = ProxySettings {
        upstream: sources.optional("upstream", upstream::parse)?,
        upstream_ca: sources.optional("upstream_ca", file)?,
        upstream_host: sources.value("upstream_host", value::upstream_host)?,
        upstream_connect_timeout: sources.value("upstream_connect_timeout", value::duration)?,
        upstream_read_timeout: sources.value("upstream_read_timeout", value::duration)?,
        upstream_timeout: sources.value("upstream_timeout", value::duration)?,
        upstream_keep_alive: sources.value("upstream_keep_alive", duration::parse)?,
        require: sources.value("require", value::require)?,
        profile: sources.value("profile", value::profile)?,
        rejections: sources.value("rejections", value::rejections)?,
        envelope: sources.proxy_table().map(|table| table.envelope()).transpose()?.unwrap_or_default(),
        template: sources.proxy_table().map(|table| table.template()).transpose()?.flatten(),
        retention_header: sources.value("retention_header", value::own_header)?,
        well_known: sources.value("well_known", value::boolean)?,
        inject: sources.value("inject", value::boolean)?,
        credential_headers: sources.value("credential_headers", value::headers)?,
        body_limit: sources.value("body_limit", value::size)?,
        buffer_limit: sources.value("buffer_limit", value::size)?,
        routes: sources.proxy_table().map(|table| table.parse(&proxy_path)).transpose()?.unwrap_or_default(),
        proxy_path,
    };
    check_template(&settings)?;
    check_profile(&settings)?;
    check_buffer(&settings)?;
    Ok(settings)
}

/// Requires room for the largest body.
fn check_buffer(settings: &ProxySettings) -> Result<(), ConfigError> {
    let limits = settings.routes.iter().filter_map(|route| route.body_limit);
    let largest = limits.fold(settings.body_limit, usize::max);
    match settings.buffer_limit < largest {
        true => Err(ConfigError::Wrong(format!(
            "buffer_limit: it is less than the largest body_limit, of {largest} bytes, so a body of that size would always be rejected. \
             Raise buffer_limit, or lower body_limit."
        ))),
        false => Ok(()),
    }
}

/// Rejects a profile that demands keys beside a setting that ignores them.
fn check_profile(settings: &ProxySettings) -> Result<(), ConfigError> {
    if settings.profile.requires_key() && settings.require == Require::Token {
        return Err(ConfigError::Wrong(format!(
            "require: `token` ignores keys, and the profile `{}` demands one on every POST. Set require to key, either or off, or set the \
             profile in the routes that follow it.",
            settings.profile
        )));
    }
    Ok(())
}

/// Requires the template that a setting names.
fn check_template(settings: &ProxySettings) -> Result<(), ConfigError> {
    let mut chosen = settings.routes.iter().filter_map(|route| route.rejections).chain([settings.rejections]);
    if settings.template.is_none() && chosen.any(|shape| shape == RejectionShape::Template) {
        return Err(ConfigError::Wrong(
            "rejections: `template` needs the table [proxy.template] with a `body` in the settings file".to_owned(),
        ));
    }
    Ok(())
}

/// Requires an upstream other than the proxy itself.
pub(super) fn check(config: &Config) -> Result<(), ConfigError> {
    let wrong = |text: String| Err(ConfigError::Wrong(text));
    let Some(address) = &config.proxy.upstream else {
        return wrong(
            "upstream: it is not set, and `onceward proxy` forwards requests to it. \
             Set --upstream http://127.0.0.1:3000 (or ONCEWARD_UPSTREAM, or `upstream` in the settings file)."
                .to_owned(),
        );
    };
    if upstream::is_at(address, config.listen) {
        return wrong(format!(
            "upstream: {}://{} is the address of `listen`, so the proxy would forward requests to itself. \
             Set the address of the application, or another `listen`.",
            address.scheme, address.authority
        ));
    }
    if config.proxy.upstream_ca.is_some() && address.scheme != Scheme::HTTPS {
        return wrong(format!(
            "upstream_ca: the upstream {}://{} uses no TLS. Use an `https://` upstream, or remove the setting.",
            address.scheme, address.authority
        ));
    }
    check_subjects(config)
}

/// Requires trusted proxies if a route reads its subject from a header, which any other client could set.
fn check_subjects(config: &Config) -> Result<(), ConfigError> {
    let mut routes = config.proxy.routes.iter();
    let named = routes.find_map(|route| Some((route.path.as_str(), route.subject.header()?)));
    match named {
        Some((path, name)) if config.trusted_proxies.is_empty() => Err(ConfigError::Wrong(format!(
            "trusted_proxies: the route {path} reads its subject from the header `{name}`, and no proxy is trusted to set it, so every \
             submission would be rejected. Set trusted_proxies to the address of your gateway, or use another `subject`."
        ))),
        _ => Ok(()),
    }
}

fn file(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("the path of the file is empty".to_owned()) } else { Ok(PathBuf::from(text)) }
}
