use std::ffi::OsString;

use serde_json::json;

use super::super::command;
use super::*;

const FILE: &str = "require = \"either\"\n\n[[proxy.route]]\npath = \"/orders/{id}\"\nmethods = [\"PUT\"]\npolicy = \"none\"\n\n\
    [[proxy.route]]\npath = \"/orders/{id}\"\nmethods = [\"POST\"]\npolicy = \"key\"\nretain = \"7d\"\nkey_from = { path = \"id\" }\nnot_applied = [404]\n\n\
    [[proxy.route]]\npath = \"/contact\"\npolicy = \"token\"\nremember = true\n";

fn explain_in(file: &str, arguments: &[&str]) -> Result<Output, Failure> {
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), file).unwrap();
    let command_line = ["onceward", "proxy", "explain", "--config", path.path().to_str().unwrap()];
    let arguments = command_line.iter().chain(arguments);
    let matches = command::command().try_get_matches_from(arguments.map(OsString::from)).unwrap();
    let below = matches.subcommand().and_then(|(_, below)| below.subcommand()).map(|(_, below)| below).unwrap();
    explain(below, &Sources::gather(&matches, []).unwrap())
}

fn explained(arguments: &[&str]) -> Output {
    explain_in(FILE, arguments).unwrap_or_else(|failure| panic!("{failure:?}"))
}

#[test]
fn matching_route_is_shown_with_every_rule() {
    let output = explained(&["POST", "//orders/%37?x=1"]);
    let expected = "POST //orders/%37\n  route 1 (/orders/{id}) does not match: it does not have this method\n  \
        route 2 (/orders/{id}, line 8) applies, id = 7\n\n    \
        methods           POST\n    policy            key\n    \
        retain            7d\n    at_most_once      true             default\n    \
        lease             15s              default\n    wait              0s               default\n    \
        key_from          path id\n    fingerprint       all body fields  default\n    \
        subject           credentials      default\n    profile           ietf             default\n    \
        rejections        profile          default\n    retention_header  off              default\n    \
        body_limit        1MiB             default\n\n  \
        effect of a response, by its status\n    \
        applied      200-400, 402, 405-407, 409-424, 426-428, 430-499\n    not applied  401, 403-404, 425, 429\n    \
        unknown      408, 500-599\n";
    assert_eq!(output.text, expected);
    assert_eq!(output.json["route"]["parameters"], json!({"id": "7"}));
    assert_eq!(output.json["route"]["rules"][2], json!({"name": "retain", "value": "7d", "default": false}));
    assert_eq!(output.json["skipped"][0]["reason"], "it does not have this method");
}

#[test]
fn remembered_token_shows_its_retention() {
    let text = explained(&["POST", "/contact"]).text;
    for part in ["remember     24h\n", "wait         10s               default\n", "not applied  400-501, 503\n"] {
        let squeeze = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(squeeze(&text).contains(&squeeze(part)), "{text}");
    }
}

#[test]
fn request_without_a_route_gets_the_default_rule() {
    let output = explained(&["POST", "/carts"]);
    assert!(
        output.text.contains(
            "no route matches: the default rule applies, with `require` either, `profile` ietf and `rejections` profile"
        ),
        "{}",
        output.text
    );
    assert!(output.text.ends_with("with neither          is rejected\n"), "{}", output.text);
    assert_eq!(output.json["skipped"].as_array().map(Vec::len), Some(3));
    let off = explain_in("", &["POST", "/carts"]).unwrap();
    assert!(off.text.ends_with("with neither          passes to the upstream, unprotected\n"), "{}", off.text);
    assert_eq!((&off.json["rule"], &off.json["require"]), (&json!("default"), &json!("off")));
}

#[test]
fn bound_token_with_injected_script_has_a_warning() {
    let file = "[[proxy.route]]\npath = \"/orders\"\npolicy = \"token\"\nbound = true\n";
    let explained = |settings: &str| explain_in(&[settings, file].concat(), &["POST", "/orders"]).unwrap();
    let warned = explained("inject = true\n");
    assert!(
        warned.text.contains("warning: with `inject`") && warned.text.contains("data-onceward-action"),
        "{}",
        warned.text
    );
    assert!(warned.json["route"]["warning"].is_string(), "{}", warned.json);
    let fine = explained("");
    assert!(!fine.text.contains("warning") && fine.json["route"]["warning"].is_null(), "{}", fine.text);
}

#[test]
fn injected_script_beside_required_keys_has_a_warning() {
    for settings in ["require = \"key\"\n", "profile = \"acp\"\n", "profile = \"acp\"\nrequire = \"either\"\n"] {
        let file = format!("inject = true\n{settings}");
        let explained = |file: &str, method: &str| explain_in(file, &[method, "/orders"]).unwrap();
        let warned = explained(&file, "POST");
        assert!(
            warned.text.contains("\n  warning: with `inject`") && warned.text.contains("key_missing"),
            "{}",
            warned.text
        );
        assert!(warned.json["warning"].is_string(), "{}", warned.json);
        for fine in [explained(settings, "POST"), explained(&file, "GET"), explained("inject = true\n", "POST")] {
            assert!(!fine.text.contains("warning") && fine.json["warning"].is_null(), "{}", fine.text);
        }
    }
}

#[test]
fn safe_method_and_own_path_are_explained() {
    let safe = explained(&["GET", "/orders/7"]);
    assert!(
        safe.text.contains("GET, HEAD and OPTIONS are never checked") && safe.json["rule"] == "safe",
        "{}",
        safe.text
    );
    let own = explained(&["POST", "/_onceward/token"]);
    assert!(own.text.contains("the proxy responds itself") && own.json["rule"] == "own", "{}", own.text);
    let well_known = ["GET", "/.well-known/onceward"];
    assert_eq!(explained(&well_known).json["rule"], "safe");
    let own = explain_in("well_known = true", &well_known).unwrap();
    assert!(own.text.contains("the setting `well_known`") && own.json["rule"] == "own", "{}", own.text);
    let none = explained(&["PUT", "/orders/7"]).text;
    assert!(none.contains("policy   none") && !none.contains("effect"), "{none}");
}

#[test]
fn malformed_method_or_path_is_rejected() {
    for (arguments, expected) in [
        (["post", "/a"], "METHOD: `post` must be in upper case: POST"),
        (["A B", "/a"], "METHOD: `A B` is not a method"),
        (["POST", "http://shop/a"], "PATH: `http://shop/a` must start with a slash"),
    ] {
        let failure = explain_in(FILE, &arguments).unwrap_err();
        assert!(failure.code == 2 && failure.text.starts_with(expected), "{failure:?}");
    }
}

#[test]
fn effects_are_those_of_the_profile() {
    let file = "profile = \"stripe\"\n\n[[proxy.route]]\npath = \"/charges\"\npolicy = \"key\"\n\n[[proxy.route]]\npath = \"/refunds\"\npolicy = \"key\"\nprofile = \"ietf\"\n";
    let effects = |path: &str| explain_in(file, &["POST", path]).unwrap().json["route"]["effects"].clone();
    let stripe =
        json!({"applied": "200-400, 402-428, 430-501, 503, 505-599", "not_applied": "401, 429", "unknown": "502, 504"});
    assert_eq!(effects("/charges"), stripe);
    assert_eq!(effects("/refunds")["unknown"], "408, 500-599");
}

#[test]
fn profile_that_requires_keys_rejects_a_post_without_one() {
    for require in ["off", "either"] {
        let file = format!("profile = \"acp\"\nrequire = \"{require}\"\n");
        let text = |method: &str| explain_in(&file, &[method, "/carts"]).unwrap().text;
        assert!(text("POST").ends_with("without Idempotency-Key  is rejected\n"), "{}", text("POST"));
        assert!(text("PUT").contains("with a token"), "{}", text("PUT"));
    }
}

#[test]
fn profile_that_requires_keys_contradicts_tokens() {
    let failure = explain_in("profile = \"acp\"\nrequire = \"token\"\n", &["POST", "/carts"]).unwrap_err();
    assert!(format!("{failure:?}").contains("Set require to key, either or off"), "{failure:?}");
}
