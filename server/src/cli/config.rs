//! `onceward config`: a settings file to start with, and its JSON Schema.

mod route_example;
mod route_schema;

use onceward::http::Profile;
use serde_json::{Map, Value, json};

use super::output::Output;
use crate::config::flag::examples;
use crate::config::setting::Setting;
use crate::proxy::settings::RejectionShape;

/// Prints a settings file with every setting, its default and its description, all commented out.
pub(super) fn init() -> Output {
    let mut file = String::from(
        "# Settings of Onceward. Every setting has its default value: remove a `#` to change one.\n\
         # Flags override environment variables, and those override this file. To check it: onceward check --config FILE\n",
    );
    let mut settings = Vec::new();
    for (setting, example) in examples() {
        file += &format!("\n# {}.\n#{} = {example}\n", setting.help, setting.name);
        if setting.is_secret {
            file += &format!("#{0}_file = \"/run/secrets/{0}\"\n", setting.name);
        }
        let Setting { name, default, help, is_secret, .. } = setting;
        settings.push(json!({"name": name, "default": default, "help": help, "secret": is_secret}));
    }
    file += &route_example::routes();
    Output::fine(file, json!({ "settings": settings }))
}

/// Prints the JSON Schema of the settings file.
pub(super) fn schema() -> Output {
    let mut properties = Map::new();
    for (setting, _) in examples() {
        properties.insert(setting.name.to_owned(), property(setting));
        if setting.is_secret {
            let help = format!("File that contains the value of `{}`", setting.name);
            properties.insert(format!("{}_file", setting.name), json!({"type": "string", "description": help}));
        }
    }
    properties.insert("proxy".to_owned(), route_schema::proxy());
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of Onceward",
        "type": "object",
        "additionalProperties": false,
        "properties": properties,
    });
    Output::fine(format!("{schema:#}\n"), schema)
}

fn property(setting: &Setting) -> Value {
    let mut property = match (setting.value, setting.default) {
        ("BOOL", Some("auto")) => kind("BOOL or auto"),
        // The store has a default, and more schemes.
        ("URL", None) => kind("HTTP URL"),
        (value, _) => kind(value),
    };
    property["description"] = setting.help.into();
    property["default"] = match (setting.value, setting.default) {
        (_, None) => return property,
        ("COUNT" | "COUNT or off", Some(default)) => default.parse::<u64>().map_or(default.into(), Value::from),
        ("BOOL", Some("true")) => true.into(),
        ("BOOL", Some("false")) => false.into(),
        (_, Some(default)) => default.into(),
    };
    property
}

/// Returns the schema of a value, by its placeholder in the help.
fn kind(value: &str) -> Value {
    match value {
        "DURATION" => json!({"type": "string", "pattern": "^[0-9]+(ms|s|m|h|d)$"}),
        "RATE" => json!({"type": "string", "pattern": "^([1-9][0-9]*/[smh]|off)$"}),
        "SIZE" => json!({"type": "string", "pattern": "^[1-9][0-9]* *(B|KiB|MiB|GiB)$"}),
        "COUNT" => json!({"type": ["integer", "string"], "minimum": 1, "pattern": "^[1-9][0-9]*$"}),
        "COUNT or off" => json!({"type": ["integer", "string"], "minimum": 1, "pattern": "^([1-9][0-9]*|off)$"}),
        "BOOL" => json!({"enum": [true, false, "true", "false", "on", "off", "yes", "no"]}),
        "BOOL or auto" => json!({"enum": [true, false, "true", "false", "on", "off", "yes", "no", "auto"]}),
        "LIST" => json!({"type": ["array", "string"], "items": {"type": "string"}}),
        "HTTP URL" => json!({"type": "string", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@]+/?$"}),
        "PATH" => json!({"type": "string", "pattern": "^(/[A-Za-z0-9._~-]+)+$"}),
        "HOST" => json!({"enum": ["client", "upstream"]}),
        "HEADER or off" => json!({"type": "string", "pattern": "^[!#$%&'*+.^_`|~0-9A-Za-z-]+$"}),
        "WHICH" => json!({"enum": ["off", "token", "key", "either"]}),
        "PROFILE" => json!({"enum": Profile::ALL.map(Profile::as_str)}),
        "SHAPE" => json!({"enum": RejectionShape::ALL.map(RejectionShape::as_str)}),
        "FORMAT" => json!({"enum": ["auto", "human", "json"]}),
        "REQUESTS" => json!({"enum": ["all", "errors", "off", "auto"]}),
        "LEVEL" => json!({"enum": ["error", "warn", "info", "debug", "trace"]}),
        _ => json!({"type": "string"}),
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::config::Config;
    use crate::config::route_field::FIELDS;

    /// Returns the file with every setting uncommented.
    fn everything(keep: impl Fn(&str) -> bool) -> String {
        let name = |line: &str| {
            line.strip_prefix('#').and_then(|line| line.split_once(" = ")).map(|(name, _)| name.to_owned())
        };
        let is_setting = |name: &String| !name.contains(' ') && !name.is_empty() && keep(name);
        let file = init().text;
        let (file, _) = file.split_once("#[[proxy.route]]").unwrap();
        let lines = file.lines().filter(|line| name(line).as_ref().is_some_and(is_setting));
        lines.map(|line| format!("{}\n", &line[1..])).collect()
    }

    /// Returns the example routes, uncommented.
    fn routes() -> String {
        let file = init().text;
        let lines =
            file.lines().skip_while(|line| *line != "#[[proxy.route]]").filter_map(|line| line.strip_prefix('#'));
        lines.filter(|line| !line.starts_with(' ')).map(|line| format!("{line}\n")).collect()
    }

    fn load(text: &str) -> Result<Config, crate::config::ConfigError> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Config::from(["onceward", "--config", file.path().to_str().unwrap()].map(OsString::from), [])
    }

    fn conforms(text: &str) -> Result<(), String> {
        let file: Value = serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap();
        let schema = jsonschema::validator_for(&schema().json).unwrap();
        schema.validate(&file).map_err(|error| error.to_string())
    }

    #[test]
    fn generated_config_loads_with_and_without_its_examples() {
        assert!(load(&init().text).unwrap().warnings.is_empty());
        let all = everything(|name| !name.ends_with("_file"));
        assert_eq!(all.lines().count(), crate::config::setting::SETTINGS.len(), "{all}");
        let error = load(&all).unwrap_err().to_string();
        assert!(error.contains("placeholder"), "{error}");
        let all = all.replace("change-me", "not-a-secret");
        load(&all).unwrap_or_else(|error| panic!("{error}\n{all}"));
    }

    #[test]
    fn generated_config_conforms_to_the_schema() {
        conforms(&init().text).unwrap();
        conforms(&everything(|_| true)).unwrap();
        for good in [
            "rate_burst = 7",
            "rate_burst = \"7\"",
            "cors_origins = [\"https://a.example\"]",
            "demo = true",
            "rate_limit = \"off\"",
            "max_connections_per_client = \"off\"",
            "max_connections_per_client = 7",
            "upstream = \"https://shop.internal:8443/\"",
            "upstream_keep_alive = \"0s\"",
            "require = \"either\"",
            "proxy_path = \"/a/b\"",
        ] {
            assert!(load(good).is_ok() && conforms(good).is_ok(), "{good}");
        }
        for wrong in [
            "token_tll = \"1m\"",
            "token_ttl = \"x\"",
            "rate_burst = 0",
            "cors_origins = [1]",
            "log = \"xml\"",
            "demo = \"maybe\"",
            "allow_eviction = \"auto\"",
            "max_connections_per_client = 0",
            "max_connections = \"off\"",
            "upstream = \"127.0.0.1:3000\"",
            "upstream = \"http://shop/api\"",
            "upstream_host = \"shop\"",
            "require = true",
            "proxy_path = \"/a/\"",
            "body_limit = 7",
        ] {
            assert!(load(wrong).is_err() && conforms(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn example_routes_load_conform_and_show_every_field() {
        let routes = routes();
        let loaded = load(&routes).unwrap_or_else(|error| panic!("{error}\n{routes}")).proxy.routes;
        assert_eq!(loaded.len(), 3);
        conforms(&routes).unwrap_or_else(|error| panic!("{error}\n{routes}"));
        for field in FIELDS {
            assert!(routes.contains(&format!("\n{} = {}\n", field.name, field.example)), "{}\n{routes}", field.name);
        }
    }

    #[test]
    fn schema_of_a_route_agrees_with_the_parser() {
        let route = |fields: &str| format!("[[proxy.route]]\npath = \"/a/{{id}}\"\n{fields}");
        for good in [
            "policy = \"none\"\nmethods = [\"GET\"]",
            "policy = \"token\"",
            "policy = \"token\"\nremember = true\nlease = \"20s\"",
            "policy = \"key\"\nkey_from = { path = \"id\" }\nfingerprint = [\"/a\"]",
            "policy = \"key\"\nsubject = \"client_address\"\nunknown = [599]",
            "policy = \"interval\"\nevery = \"5s\"\nkey_from = { query = \"id\" }",
        ] {
            let text = route(good);
            load(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            conforms(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        }
        for wrong in [
            "",
            "policy = \"keys\"",
            "policy = \"key\"\nretian = \"1h\"",
            "policy = \"key\"\nremember = true",
            "policy = \"none\"\nsubject = \"anonymous\"",
            "policy = \"token\"\nlease = \"20s\"",
            "policy = \"token\"\nremember = false\nwait = \"2s\"",
            "policy = \"interval\"\nkey_from = { query = \"a\" }\nfingerprint = []",
            "policy = \"key\"\nmethods = []",
            "policy = \"key\"\nmethods = [\"post\"]",
            "policy = \"key\"\nmethods = [\"GET\"]",
            "policy = \"key\"\nretain = 7",
            "policy = \"key\"\nat_most_once = \"yes\"",
            "policy = \"key\"\nkey_from = \"X-Order\"",
            "policy = \"key\"\nkey_from = { header = \"a\", query = \"b\" }",
            "policy = \"key\"\nkey_from = { body = \"id\" }",
            "policy = \"key\"\nfingerprint = { only = [\"/a\"] }",
            "policy = \"key\"\napplied = [600]",
            "policy = \"key\"\nsubject = \"user\"",
            "policy = \"key\"\nbody_limit = 7",
        ] {
            let text = route(wrong);
            assert!(load(&text).is_err() && conforms(&text).is_err(), "{text}");
        }
        for wrong in ["[proxy]\nx = 1", "proxy = 7", "[proxy.route]\npath = \"/a\"\npolicy = \"key\""] {
            assert!(load(wrong).is_err() && conforms(wrong).is_err(), "{wrong}");
        }
    }
}
