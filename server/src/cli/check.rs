//! `onceward check`: checks whether the settings and the store are fit for use.

use clap::ArgMatches;
use serde_json::{Value, json};

use super::argument::is_set;
use super::output::{Failure, Output};
use super::table::table;
use crate::check::connect_error::NamedRedis;
use crate::check::durability::Losses;
use crate::check::finding::{Finding, Level};
use crate::check::probe::{Facts, Probe};
use crate::check::{database, durability, is_cluster, rules, servers};
use crate::config::sources::Sources;
use crate::config::{Config, ConfigError, StoreAddress};
use crate::proxy::route::{ProxyRoute, RoutePolicy};

pub(super) async fn check(matches: &ArgMatches, sources: &Sources) -> Result<Output, Failure> {
    let config = settings(sources)?;
    let (mut findings, losses) = match &config.store {
        StoreAddress::Memory => (vec![memory()], durability::OF_MEMORY.to_vec()),
        StoreAddress::Redis(url) => redis(url, &config).await,
        StoreAddress::Sql(url) => database::judge(url, &config.prefix).await,
    };
    let odd = config
        .warnings
        .iter()
        .map(|warning| Finding::warning("settings", format!("{warning}."), "See `onceward --help`."));
    findings.extend(odd);
    let worst = findings.iter().map(|finding| finding.level).max().unwrap_or(Level::Fine);
    let enough = if is_set(matches, "strict") { Level::Warning } else { Level::Problem };
    let is_fit = worst < enough;
    let settings: Vec<_> = sources.shown(&config.store).map(|(name, value)| setting(name, value)).collect();
    let json = json!({
        "ok": is_fit,
        "settings": settings.iter().map(|[name, value, from]| json!({"name": name, "value": value, "from": from})).collect::<Vec<_>>(),
        "routes": config.proxy.routes.iter().map(|route| {
            let [methods, path, policy] = described(route);
            json!({"methods": methods, "path": path, "policy": policy})
        }).collect::<Vec<_>>(),
        "store": config.store.to_string(),
        "findings": findings.iter().map(Finding::json).collect::<Vec<_>>(),
        "can_be_lost": losses.iter().map(|(when, what)| json!({"when": when, "what": what})).collect::<Vec<_>>(),
    });
    let text = page(&settings, &config, &findings, &losses, is_fit);
    Ok(if is_fit { Output::fine(text, json) } else { Output::problem(text, json) })
}

/// Returns the settings for the proxy if there is an upstream, and otherwise those for the service, which needs an API key.
fn settings(sources: &Sources) -> Result<Config, ConfigError> {
    let config = Config::for_command(sources)?;
    if config.proxy.upstream.is_some() { Config::for_proxy(sources) } else { Config::for_service(sources) }
}

fn memory() -> Finding {
    Finding::note(
        "store",
        "Records are stored in the memory of the service: for a single process only, and lost when it stops.",
    )
}

async fn redis(address: &str, config: &Config) -> (Vec<Finding>, Losses) {
    let named = NamedRedis::of(address, &config.store.to_string());
    let servers = match servers(address).await {
        Ok(servers) => servers,
        Err(error) => return (vec![error.explain(&named).await], Vec::new()),
    };
    let (are_several, is_of_cluster) = (servers.len() > 1, is_cluster(address));
    let (mut findings, mut losses) = (Vec::new(), Losses::new());
    for (place, client) in servers {
        let facts = match Probe::begin(&client).await {
            Ok(mut probe) => probe.facts(&config.prefix, is_of_cluster).await.map(|facts| with_user(facts, &named)),
            Err(error) => Err(error),
        };
        let mut found = match &facts {
            Ok(facts) => {
                let mut found = rules::judge(facts, &config.prefix, config.allow_eviction);
                found.extend(rules::slowness(facts, config.store_timeout));
                found
            }
            Err(error) => vec![error.explain(&named).await],
        };
        if are_several {
            found.iter_mut().for_each(|finding| finding.says = format!("{place}: {}", finding.says));
        }
        findings.append(&mut found);
        let lost = facts.as_ref().map(durability::of).unwrap_or_default();
        losses.extend(lost.into_iter().filter(|loss| !losses.contains(loss)).collect::<Losses>());
    }
    (findings, losses)
}

/// Adds the user in the address, if Redis has not named it.
fn with_user(facts: Facts, named: &NamedRedis) -> Facts {
    Facts { user: facts.user.or_else(|| named.user.clone()), ..facts }
}

/// Returns the name, value and source of a setting.
fn setting(name: &'static str, value: Option<(String, impl std::fmt::Display)>) -> [Value; 3] {
    match value {
        Some((value, from)) => [name.into(), value.into(), from.to_string().into()],
        None => [name.into(), Value::Null, "not set".into()],
    }
}

/// Lists the routes of the proxy, if there are any.
fn routes(routes: &[ProxyRoute]) -> String {
    let row = |(at, route): (usize, &ProxyRoute)| {
        let [methods, path, policy] = described(route);
        vec![(at + 1).to_string(), methods, path, policy]
    };
    let rows: Vec<_> = routes.iter().enumerate().map(row).collect();
    if rows.is_empty() { String::new() } else { format!("Routes of the proxy\n{}\n", table("  ", &rows)) }
}

/// Returns the methods, path and policy of a route.
fn described(route: &ProxyRoute) -> [String; 3] {
    let methods = match route.methods.as_slice() {
        [] => "all but GET, HEAD, OPTIONS".to_owned(),
        methods => methods.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    };
    let policy = match &route.policy {
        RoutePolicy::Token { remember: None, .. } => "token",
        RoutePolicy::Token { remember: Some(_), .. } => "token, remembered",
        RoutePolicy::Key { .. } => "key",
        RoutePolicy::Interval { remember: false, .. } => "interval",
        RoutePolicy::Interval { remember: true, .. } => "interval, remembered",
        RoutePolicy::None => "none",
    };
    [methods, route.path.as_str().to_owned(), policy.to_owned()]
}

fn page(settings: &[[Value; 3]], config: &Config, findings: &[Finding], losses: &Losses, is_fit: bool) -> String {
    let cell = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let rows: Vec<_> = settings.iter().map(|row| row.iter().map(cell).collect()).collect();
    let mut page =
        format!("Settings\n{}\n{}Store {}\n", table("  ", &rows), routes(&config.proxy.routes), config.store);
    for Finding { level, topic, says, fix } in findings {
        page += &format!("  {:<8} {topic}: {says}\n", level.as_str());
        page += &fix.as_ref().map(|fix| format!("  {:<8} -> {fix}\n", "")).unwrap_or_default();
    }
    if !losses.is_empty() {
        page += "\nWhat can be lost\n";
        losses.iter().for_each(|(when, what)| page += &format!("  {when}: {what}\n"));
    }
    let has_problem = findings.iter().any(|finding| finding.level == Level::Problem);
    page + match (is_fit, has_problem) {
        (true, _) => "\nFit for use.\n",
        (false, true) => "\nNot fit for use: see the problems above.\n",
        (false, false) => "\nNot fit for use: see the warnings above (--strict).\n",
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::super::command;
    use super::*;

    async fn checked(file: &str) -> Result<Output, Failure> {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), file).unwrap();
        let arguments = ["onceward", "check", "--config", path.path().to_str().unwrap()].map(OsString::from);
        let matches = command::command().try_get_matches_from(arguments).unwrap();
        let (_, below) = matches.subcommand().unwrap();
        check(below, &Sources::gather(&matches, []).unwrap()).await
    }

    #[tokio::test]
    async fn routes_of_the_proxy_are_listed() {
        let file = "upstream = \"http://127.0.0.1:3000\"\nlisten = \"0.0.0.0:8080\"\n\n[[proxy.route]]\npath = \"/orders/{id}\"\nmethods = [\"POST\"]\npolicy = \"key\"";
        let output = checked(file).await.unwrap();
        assert!(
            output.code == 0 && output.text.contains("\nRoutes of the proxy\n  1  POST  /orders/{id}  key\n"),
            "{}",
            output.text
        );
        assert_eq!(output.json["routes"][0]["policy"], "key");
        assert!(!checked("").await.unwrap().text.contains("Routes"));
    }

    #[tokio::test]
    async fn invalid_route_exits_with_2() {
        let failure =
            checked("[[proxy.route]]\npath = \"/orders\"\npolicy = \"key\"\nlease = \"1ms\"").await.unwrap_err();
        assert!(failure.code == 2 && failure.text.contains("line 1: route 1 (/orders): `lease`"), "{failure:?}");
    }
}
