//! The sources of settings: defaults, a file, the environment and the command line. Each overrides the one before.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use clap::ArgMatches;

use super::proxy_table::ProxyTable;
use super::setting::{PREFIX, SETTINGS, Setting, names, nearest};
use super::{ConfigError, StoreAddress};

/// Shown in place of a secret.
const MASK: &str = "********";

/// The value of each setting and its source. Values include secrets, hence no `Debug`.
#[derive(Default)]
pub(crate) struct Sources {
    values: BTreeMap<String, (String, Source)>,
    proxy: Option<ProxyTable>,
    warnings: Vec<String>,
}

/// The source of a value. Later variants override earlier ones.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    Default,
    File(PathBuf),
    Variable(String),
    Flag(String),
}

impl Sources {
    /// Reads a command line, an environment, and the file that one of them names. A flag after a command overrides the same flag
    /// before it.
    pub(crate) fn gather(
        matches: &ArgMatches,
        variables: impl IntoIterator<Item = (String, String)>,
    ) -> Result<Self, ConfigError> {
        let levels = levels(matches);
        let variables: BTreeMap<_, _> = variables.into_iter().filter(|(name, _)| name.starts_with(PREFIX)).collect();
        let mut sources = Self::default();
        sources.take_defaults();
        let named = levels.iter().rev().find_map(|matches| flag(matches, "config"));
        if let Some(file) = named.or_else(|| variables.get("ONCEWARD_CONFIG")) {
            sources.take_file(Path::new(file))?;
        }
        sources.take_variables(&variables);
        levels.into_iter().for_each(|matches| sources.take_flags(matches));
        Ok(sources)
    }

    /// Returns every setting with its value and source, or `None` if it is not set. Secrets are masked; the address of the store is shown
    /// without credentials.
    pub(crate) fn shown(
        &self,
        store: &StoreAddress,
    ) -> impl Iterator<Item = (&'static str, Option<(String, &Source)>)> {
        SETTINGS.iter().map(move |setting| {
            let file = self.values.get(&format!("{}_file", setting.name));
            let plain = self.values.get(setting.name);
            let effective = match (plain, file) {
                (Some((_, plain)), Some((_, source))) if plain.rank() < source.rank() => file,
                (None, Some(_)) => file,
                _ => plain,
            };
            let value = |text: &String| match setting {
                Setting { name: "store", .. } => store.to_string(),
                Setting { is_secret: true, .. } => MASK.to_owned(),
                _ => text.clone(),
            };
            (setting.name, effective.map(|(text, source)| (value(text), source)))
        })
    }

    /// Returns the routes of the proxy, if the settings file has some.
    pub(crate) fn proxy_table(&self) -> Option<&ProxyTable> {
        self.proxy.as_ref()
    }

    /// Returns warnings about settings that do not prevent a start.
    pub(super) fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Returns a setting that has a default, parsed by `read`.
    pub(super) fn value<T>(&self, name: &str, read: impl Fn(&str) -> Result<T, String>) -> Result<T, ConfigError> {
        let (text, source) = self.values.get(name).ok_or_else(|| ConfigError::Wrong(format!("{name} is not set")))?;
        read(text).map_err(|error| wrong(name, source, &error))
    }

    /// Returns a list that may be missing.
    pub(super) fn list<T>(
        &self,
        name: &str,
        read: impl Fn(&str) -> Result<Vec<T>, String>,
    ) -> Result<Vec<T>, ConfigError> {
        Ok(self.optional(name, read)?.unwrap_or_default())
    }

    /// Returns a setting that may be missing.
    pub(super) fn optional<T>(
        &self,
        name: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        if self.values.contains_key(name) { self.value(name, read).map(Some) } else { Ok(None) }
    }

    /// Returns a secret that may be missing, from its own setting or from its `_file` setting, whichever source overrides the other.
    pub(super) fn secret<T>(
        &self,
        name: &str,
        read: impl Fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, ConfigError> {
        let file = format!("{name}_file");
        let (text, source) = match (self.values.get(name), self.values.get(&file)) {
            (Some((_, plain)), Some((_, source))) if plain.rank() == source.rank() => {
                let both = format!("{name} and {file} are both set, by {plain} and {source}; set one of them");
                return Err(ConfigError::Wrong(both));
            }
            (plain, Some((path, source))) if plain.is_none_or(|(_, plain)| plain.rank() < source.rank()) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| wrong(&file, source, &format!("{path} cannot be read: {error}")))?;
                (text.trim_end_matches(['\r', '\n']).to_owned(), source)
            }
            (Some((text, source)), _) => (text.clone(), source),
            (None, _) => return Ok(None),
        };
        read(&text).map(Some).map_err(|error| wrong(name, source, &error))
    }

    fn take_defaults(&mut self) {
        let default =
            |setting: &Setting| Some((setting.name.to_owned(), (setting.default?.to_owned(), Source::Default)));
        self.values.extend(SETTINGS.iter().filter_map(default));
    }

    fn take_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let wrong = |what: String| ConfigError::Wrong(format!("config: {}: {what}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(format!("cannot be read: {error}")))?;
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            // The error has the line number and not the line, which may contain a secret.
            let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
            wrong(format!("line {line}: {}", error.message()))
        })?;
        for (name, value) in table {
            if name == "proxy" {
                self.proxy = Some(ProxyTable::new(path, &text, value)?);
                continue;
            }
            if !is_known(&name) {
                let meant = nearest(&name).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default();
                return Err(wrong(format!("there is no setting `{name}`{meant}")));
            }
            let text = as_text(&value).ok_or_else(|| {
                wrong(format!("`{name}` must be a string, a number, true, false or a list of strings"))
            })?;
            self.values.insert(name, (text, Source::File(path.to_owned())));
        }
        Ok(())
    }

    /// Reads the environment. An unknown variable is not an error: platforms set some of their own.
    fn take_variables(&mut self, variables: &BTreeMap<String, String>) {
        for (variable, value) in variables {
            let name = variable[PREFIX.len()..].to_lowercase();
            if is_known(&name) {
                self.values.insert(name, (value.clone(), Source::Variable(variable.clone())));
            } else if name != "config" {
                let meant = nearest(&name).map(|name| format!("; did you mean {PREFIX}{}?", name.to_uppercase()));
                let meant = meant.unwrap_or_default();
                self.warnings.push(format!("there is no setting {variable}; the variable is ignored{meant}"));
            }
        }
    }

    fn take_flags(&mut self, matches: &ArgMatches) {
        for (name, _) in names() {
            if let Some(value) = flag(matches, &name) {
                let source = Source::Flag(format!("--{}", name.replace('_', "-")));
                self.values.insert(name, (value.clone(), source));
            }
        }
    }
}

impl Source {
    fn rank(&self) -> u8 {
        match self {
            Self::Default => 0,
            Self::File(_) => 1,
            Self::Variable(_) => 2,
            Self::Flag(_) => 3,
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Variable(name) | Self::Flag(name) => f.write_str(name),
        }
    }
}

/// Returns the arguments of the command line and of each subcommand.
fn levels(matches: &ArgMatches) -> Vec<&ArgMatches> {
    let below = matches.subcommand().map(|(_, below)| levels(below)).unwrap_or_default();
    [matches].into_iter().chain(below).collect()
}

/// Returns the value of a flag, if this command level has the flag.
fn flag<'a>(matches: &'a ArgMatches, name: &str) -> Option<&'a String> {
    matches.try_get_one::<String>(name).ok().flatten()
}

fn is_known(name: &str) -> bool {
    names().any(|(known, _)| known == name)
}

fn as_text(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Boolean(truth) => Some(truth.to_string()),
        toml::Value::Array(items) => Some(items.iter().map(toml::Value::as_str).collect::<Option<Vec<_>>>()?.join(",")),
        _ => None,
    }
}

fn wrong(name: &str, source: &Source, error: &str) -> ConfigError {
    ConfigError::Wrong(format!("{name} (from {source}): {error}"))
}
