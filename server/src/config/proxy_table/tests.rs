use std::time::Duration;

use http::Method;
use onceward::{Effect, Fields, IntervalRules, KeyRules};

use super::*;
use crate::proxy::route::{KeyLocation, RoutePolicy, RouteSubject};

/// Parses a settings file.
fn load(text: &str) -> Result<Vec<ProxyRoute>, String> {
    let mut table: Table = text.parse().unwrap_or_else(|error| panic!("{error}\n{text}"));
    let table = ProxyTable::new(Path::new("onceward.toml"), text, table.remove("proxy").unwrap());
    table.and_then(|table| table.parse("/_onceward")).map_err(|error| error.to_string())
}

/// Parses one route.
fn one(fields: &str) -> Result<ProxyRoute, String> {
    load(&format!("[[proxy.route]]\n{fields}")).map(|routes| routes[0].clone())
}

#[test]
fn route_has_the_defaults_of_its_policy() {
    let key = one("path = \"/a\"\npolicy = \"key\"").unwrap();
    assert!(key.methods.is_empty() && key.body_limit.is_none() && key.subject == RouteSubject::Credentials);
    let RoutePolicy::Key { rules, from, wait: None, fields } = key.policy else { panic!("{key:?}") };
    assert_eq!((rules, fields), (KeyRules::at_most_once(), Fields::all()));
    assert_eq!(from, KeyLocation::Header("idempotency-key".parse().unwrap()));
    let token = one("path = \"/a\"\npolicy = \"token\"").unwrap().policy;
    assert!(matches!(token, RoutePolicy::Token { bound: false, remember: None, wait: None, .. }));
    let RoutePolicy::Interval { rules, from: None, .. } = one("path = \"/a\"\npolicy = \"interval\"").unwrap().policy
    else {
        panic!()
    };
    assert_eq!(rules, IntervalRules::new());
    let text = "path = \"/a\"\npolicy = \"interval\"\nremember = true\nwait = \"2s\"\nkey_from = { query = \"a\" }\nfingerprint = []";
    assert!(matches!(
        one(text).unwrap().policy,
        RoutePolicy::Interval { remember: true, wait: Some(_), from: Some(_), .. }
    ));
    assert!(matches!(one("path = \"/a\"\npolicy = \"none\"").unwrap().policy, RoutePolicy::None));
}

#[test]
fn every_rule_of_a_key_is_read() {
    let route = one(
        "path = \"/orders/{id}/pay\"\nmethods = [\"POST\", \"PURGE\"]\npolicy = \"key\"\nretain = \"7d\"\nlease = \"30s\"\n\
         at_most_once = false\nwait = \"0s\"\nkey_from = { path = \"id\" }\nfingerprint = { except = [\"/sent_at\"] }\n\
         applied = [401]\nnot_applied = [404, 422]\nunknown = [502]\nsubject = { header = \"X-User\" }\nbody_limit = \"8MiB\"",
    )
    .unwrap();
    assert_eq!(route.methods, [Method::POST, "PURGE".parse().unwrap()]);
    assert_eq!((route.body_limit, route.subject), (Some(8 << 20), RouteSubject::Header("x-user".parse().unwrap())));
    let RoutePolicy::Key { rules, from, wait, fields } = route.policy else { panic!() };
    let expected = KeyRules::retryable().retain(Duration::from_secs(7 * 86_400)).lease(Duration::from_secs(30));
    assert_eq!((Ok(rules), wait), (expected, Some(Duration::ZERO)));
    assert_eq!((from, Ok(fields)), (KeyLocation::Path("id".to_owned()), Fields::all_but(["/sent_at"])));
    let effects = [401, 404, 422, 502, 200].map(|status| route.effects.of(status));
    let expected = [Effect::Applied, Effect::NotApplied, Effect::NotApplied, Effect::Unknown];
    assert_eq!(effects, [Some(expected[0]), Some(expected[1]), Some(expected[2]), Some(expected[3]), None]);
}

#[test]
fn token_remembers_for_a_duration_or_a_day() {
    let remembered = |text: &str| match one(&format!("path = \"/a\"\npolicy = \"token\"\n{text}")).unwrap().policy {
        RoutePolicy::Token { bound, remember, wait, .. } => (bound, remember, wait),
        other => panic!("{other:?}"),
    };
    let kept = |minutes: u64| Some(KeyRules::at_most_once().retain(Duration::from_secs(minutes * 60)));
    assert_eq!(remembered("remember = true").1, kept(24 * 60));
    assert_eq!(remembered("remember = \"10m\"\nbound = true").1, kept(10));
    assert_eq!(remembered("remember = false\nbound = true"), (true, None, None));
    assert_eq!(remembered("remember = true\nwait = \"2s\"").2, Some(Duration::from_secs(2)));
}

#[test]
fn subjects_and_key_sources_are_read() {
    for (text, expected) in [
        ("\"anonymous\"", RouteSubject::Anonymous),
        ("\"client_address\"", RouteSubject::ClientAddress),
        ("\"credentials\"", RouteSubject::Credentials),
        ("{ cookie = \"Session\" }", RouteSubject::Cookie("Session".to_owned())),
    ] {
        let route = one(&format!("path = \"/a\"\npolicy = \"token\"\nsubject = {text}")).unwrap();
        assert_eq!(route.subject, expected, "{text}");
    }
    for (text, expected) in [
        ("{ header = \"X-Order\" }", KeyLocation::Header("x-order".parse().unwrap())),
        ("{ query = \"id\" }", KeyLocation::Query("id".to_owned())),
        ("{ body = \"/order/id\" }", KeyLocation::Body("/order/id".to_owned())),
    ] {
        let route = one(&format!("path = \"/a\"\npolicy = \"interval\"\nevery = \"5s\"\nkey_from = {text}")).unwrap();
        assert!(matches!(route.policy, RoutePolicy::Interval { from: Some(from), .. } if from == expected), "{text}");
    }
}

#[test]
fn error_names_file_line_route_field_and_fix() {
    let text = "token_ttl = \"1m\"\n\n[[proxy.route]]\npath = \"/a\"\npolicy = \"none\"\n\n[[proxy.route]]\npath = \"/b\"\npolicy = \"key\"\nlease = \"50ms\"\n";
    assert_eq!(
        load(text).unwrap_err(),
        "config: onceward.toml: line 7: route 2 (/b): `lease`: a lease must be at least 100 milliseconds, so that it can be renewed in time"
    );
}

#[test]
fn wrong_field_is_rejected_with_the_fix() {
    for (fields, expected) in [
        ("policy = \"key\"", "`path`: it is not set"),
        ("path = \"/a\"", "`policy`: it is not set; set it to \"token\""),
        ("path = 7\npolicy = \"key\"", "`path`: it must be a string, not a number"),
        ("path = \"a\"\npolicy = \"key\"", "`path`: `a` must start with a slash"),
        ("path = \"/a\"\npolicy = \"keys\"", "`policy`: `keys` is not one of \"token\""),
        ("path = \"/a\"\npolicy = \"key\"\nretian = \"1h\"", "there is no field `retian`; did you mean `retain`?"),
        ("path = \"/a\"\npolicy = \"key\"\ntoken_ttl = \"1h\"", "move it above the first [[proxy.route]]"),
        (
            "path = \"/a\"\npolicy = \"key\"\nremember = true",
            "`remember`: the policy \"key\" does not have it, only \"token\"",
        ),
        (
            "path = \"/a\"\npolicy = \"token\"\nretain = \"1h\"",
            "`retain`: the policy \"token\" does not have it, only \"key\"",
        ),
        ("path = \"/a\"\npolicy = \"none\"\nsubject = \"anonymous\"", "only \"token\", \"key\" and \"interval\""),
        ("path = \"/a\"\npolicy = \"token\"\nlease = \"20s\"", "only with `remember`; set `remember = true`"),
        ("path = \"/a\"\npolicy = \"token\"\nremember = false\nwait = \"2s\"", "only with `remember`"),
        (
            "path = \"/a\"\npolicy = \"interval\"\nkey_from = { query = \"a\" }\nfingerprint = []",
            "does not compare content",
        ),
        (
            "path = \"/a\"\npolicy = \"interval\"\nwait = \"2s\"",
            "`wait`: the policy \"interval\" has it only with `remember`",
        ),
        (
            "path = \"/a\"\npolicy = \"interval\"\nremember = \"5m\"",
            "`remember`: in an interval it must be `true` or `false`",
        ),
        ("path = \"/a\"\npolicy = \"key\"\nretain = \"0s\"", "`retain`: it must be positive"),
        (
            "path = \"/a\"\npolicy = \"key\"\nretain = 7",
            "`retain`: it must be a duration such as \"90s\", not a number",
        ),
        ("path = \"/a\"\npolicy = \"key\"\nretain = \"soon\"", "`retain`: `soon` is not a duration"),
        ("path = \"/a\"\npolicy = \"interval\"\nevery = \"0s\"", "`every`: an interval must be at least 1 millisecond"),
        ("path = \"/a\"\npolicy = \"token\"\nremember = 7", "or `true` for \"24h\", not a number"),
        (
            "path = \"/a\"\npolicy = \"key\"\nat_most_once = \"yes\"",
            "`at_most_once`: it must be `true` or `false` without quotes",
        ),
        (
            "path = \"/a\"\npolicy = \"key\"\nmethods = \"POST\"",
            "`methods`: it must be a list such as [\"POST\"], not a string",
        ),
        ("path = \"/a\"\npolicy = \"key\"\nmethods = []", "`methods`: the list is empty"),
        ("path = \"/a\"\npolicy = \"key\"\nmethods = [\"post\"]", "`methods`: `post` must be in upper case: \"POST\""),
        ("path = \"/a\"\npolicy = \"key\"\nmethods = [\"A B\"]", "`A B` is not a method"),
        ("path = \"/a\"\npolicy = \"key\"\nmethods = [\"PUT\", \"PUT\"]", "PUT is in the list twice"),
        ("path = \"/a\"\npolicy = \"key\"\nmethods = [\"POST\", \"GET\"]", "`methods`: GET requests are never checked"),
        ("path = \"/a\"\npolicy = \"key\"\nkey_from = { path = \"id\" }", "no parameter {id}; add it to `path`"),
        ("path = \"/{a}/{b}\"\npolicy = \"key\"\nkey_from = { path = \"id\" }", "no parameter {id}; it has {a}, {b}"),
        ("path = \"/a\"\npolicy = \"key\"\nkey_from = \"X-Order\"", "`key_from`: write { header = \"X-Order\" }"),
        (
            "path = \"/a\"\npolicy = \"key\"\nkey_from = { header = \"X Order\" }",
            "`X Order` is not the name of a header",
        ),
        ("path = \"/a\"\npolicy = \"key\"\nkey_from = { body = \"id\" }", "`id` is not a JSON pointer"),
        ("path = \"/a\"\npolicy = \"key\"\nkey_from = { body = \"\" }", "the pointer is empty"),
        ("path = \"/a\"\npolicy = \"key\"\nkey_from = { header = \"a\", query = \"b\" }", "`key_from`: write"),
        ("path = \"/a\"\npolicy = \"key\"\nfingerprint = \"/a\"", "`fingerprint`: write a list of JSON pointers"),
        ("path = \"/a\"\npolicy = \"key\"\nfingerprint = { only = [\"/a\"] }", "`fingerprint`: write a list"),
        ("path = \"/a\"\npolicy = \"key\"\nfingerprint = [\"a\"]", "`a` is not a JSON pointer"),
        ("path = \"/a\"\npolicy = \"key\"\napplied = [99]", "`applied`: it must be a list of statuses from 100 to 599"),
        ("path = \"/a\"\npolicy = \"key\"\nunknown = [\"500\"]", "`unknown`: it must be a list of statuses"),
        ("path = \"/a\"\npolicy = \"key\"\nunknown = [500, 500]", "500 is in the list twice"),
        ("path = \"/a\"\npolicy = \"key\"\napplied = [404]\nnot_applied = [404]", "404 is in two of"),
        ("path = \"/a\"\npolicy = \"key\"\nsubject = \"user\"", "`subject`: write { header = \"X-User\" }"),
        ("path = \"/a\"\npolicy = \"key\"\nsubject = { cookie = \"a b\" }", "`a b` is not the name of a cookie"),
        ("path = \"/a\"\npolicy = \"key\"\nbody_limit = 7", "`body_limit`: it must be a size such as \"8MiB\""),
        ("path = \"/a\"\npolicy = \"key\"\nbody_limit = \"7\"", "`7` is not a size"),
        ("path = \"/_onceward/token\"\npolicy = \"none\"", "serves the paths under /_onceward itself"),
    ] {
        let error = one(fields).expect_err(fields);
        assert!(error.starts_with("config: onceward.toml: line 1: route 1"), "{error}");
        assert!(error.contains(expected), "{fields}:\n{error}");
    }
}

#[test]
fn safe_method_is_allowed_for_the_policy_none() {
    assert!(one("path = \"/_oncewards\"\npolicy = \"none\"\nmethods = [\"GET\"]").is_ok());
}

#[test]
fn shadowed_route_is_rejected_with_both_positions() {
    let route = |path: &str| format!("[[proxy.route]]\npath = \"{path}\"\npolicy = \"none\"\n");
    let error = load(&(route("/*") + &route("/a"))).unwrap_err();
    let expected =
        "line 4: route 2 (/a): route 1 (/*, line 1) matches the same requests first; move this one before it";
    assert!(error.ends_with(expected), "{error}");
    let error = load(&(route("/{x}") + &route("/b/c") + &route("/{y}"))).unwrap_err();
    assert!(
        error.contains("route 3 (/{y}): route 1 (/{x}, line 1)") && error.contains("remove one of them"),
        "{error}"
    );
    assert!(load(&(route("/a") + &route("/*"))).is_ok());
}

#[test]
fn proxy_table_has_routes_only() {
    for (text, expected) in [
        ("proxy = 7", "`proxy` must be a table"),
        ("[proxy]\nroutes = []", "there is no `routes` in [proxy]; did you mean [[proxy.route]]?"),
        ("[proxy]\nx = 1", "there is no `x` in [proxy]; it has only [[proxy.route]]"),
        ("[proxy]\nupstream = \"http://a\"", "`upstream` is a setting and not part of [proxy]; move it above"),
        ("[proxy.route]\npath = \"/a\"", "[[proxy.route]] with two brackets"),
        ("[proxy]\nroute = [7]", "must be a list of tables"),
    ] {
        let error = load(text).expect_err(text);
        assert!(error.starts_with("config: onceward.toml: ") && error.contains(expected), "{text}: {error}");
    }
    assert!(load("[proxy]").unwrap().is_empty());
}
