//! The `proxy` table of a settings file: its `[[proxy.route]]` tables, as they are written, `[proxy.envelope]` and `[proxy.template]`.

use std::path::{Path, PathBuf};

use onceward::http::Envelope;
use toml::de::DeTable;
use toml::{Table, Value};

use super::setting::names;
use super::{ConfigError, envelope, rejection_template, route};
use crate::proxy::rejection_template::RejectionTemplate;
use crate::proxy::route::ProxyRoute;
use crate::proxy::route_table::{RouteTable, ShadowedRoute};

/// The routes of a settings file.
pub(crate) struct ProxyTable {
    file: PathBuf,
    routes: Vec<WrittenRoute>,
    envelope: Option<Table>,
    template: Option<Table>,
}

/// A route, as it is written.
pub(crate) struct WrittenRoute {
    /// The line of its header.
    pub(crate) line: usize,
    /// Its fields.
    pub(crate) fields: Table,
}

impl ProxyTable {
    /// Takes the value of `proxy` in a file with this text.
    pub(super) fn new(file: &Path, text: &str, value: Value) -> Result<Self, ConfigError> {
        let wrong = |what: &str| ConfigError::Wrong(format!("config: {}: {what}", file.display()));
        let Value::Table(mut table) = value else {
            return Err(wrong("`proxy` must be a table: write [[proxy.route]]"));
        };
        let Value::Array(tables) = table.remove("route").unwrap_or(Value::Array(Vec::new())) else {
            return Err(wrong("`proxy.route` must be a list of tables: write [[proxy.route]] with two brackets"));
        };
        let mut inner = |name: &str| match table.remove(name) {
            None => Ok(None),
            Some(Value::Table(inner)) => Ok(Some(inner)),
            Some(_) => Err(wrong(&format!("`proxy.{name}` must be a table: write [proxy.{name}]"))),
        };
        let (envelope, template) = (inner("envelope")?, inner("template")?);
        if let Some(name) = table.keys().next() {
            return Err(wrong(&unknown(name)));
        }
        let lines = lines(text);
        let number = |(at, value): (usize, Value)| match value {
            Value::Table(fields) => Ok(WrittenRoute { line: lines.get(at).copied().unwrap_or(1), fields }),
            _ => Err(wrong("`proxy.route` must be a list of tables: write [[proxy.route]]")),
        };
        let routes = tables.into_iter().enumerate().map(number).collect::<Result<_, _>>()?;
        Ok(Self { file: file.to_owned(), routes, envelope, template })
    }

    /// Parses the envelope of rejections.
    pub(super) fn envelope(&self) -> Result<Envelope, ConfigError> {
        let parsed = self.envelope.as_ref().map(envelope::parse).transpose();
        Ok(parsed.map_err(|error| self.wrong_in("envelope", &error))?.unwrap_or_default())
    }

    /// Parses the template of rejections, if there is one.
    pub(super) fn template(&self) -> Result<Option<RejectionTemplate>, ConfigError> {
        let parsed = self.template.as_ref().map(rejection_template::parse).transpose();
        parsed.map_err(|error| self.wrong_in("template", &error))
    }

    /// Returns an error that names the file and the table.
    fn wrong_in(&self, table: &str, error: &str) -> ConfigError {
        ConfigError::Wrong(format!("config: {}: [proxy.{table}]: {error}", self.file.display()))
    }

    /// Returns the routes, as they are written.
    pub(crate) fn written(&self) -> &[WrittenRoute] {
        &self.routes
    }

    /// Parses the routes.
    pub(super) fn parse(&self, proxy_path: &str) -> Result<Vec<ProxyRoute>, ConfigError> {
        let parse = |(at, written): (usize, &WrittenRoute)| {
            let route = route::parse(&written.fields).map_err(|error| self.wrong(at, &error))?;
            match is_under(route.path.as_str(), proxy_path) {
                true => Err(self.wrong(at, &own(proxy_path))),
                false => Ok(route),
            }
        };
        let table = RouteTable::new(self.routes.iter().enumerate().map(parse).collect::<Result<_, _>>()?);
        match table.shadowed() {
            Some(shadowed) => Err(self.wrong(shadowed.later, &self.shadow(shadowed, &table))),
            None => Ok(table.routes),
        }
    }

    fn shadow(&self, ShadowedRoute { earlier, later }: ShadowedRoute, table: &RouteTable) -> String {
        let (number, line, path) = (earlier + 1, self.routes[earlier].line, table.routes[earlier].path.as_str());
        let fix = match table.routes[later].path.covers(&table.routes[earlier].path) {
            true => "remove one of them, or give them different `methods`",
            false => "move this one before it",
        };
        format!("route {number} ({path}, line {line}) matches the same requests first; {fix}")
    }

    /// Returns an error that names the file and the route.
    fn wrong(&self, at: usize, error: &str) -> ConfigError {
        let WrittenRoute { line, fields } = &self.routes[at];
        let path = fields.get("path").and_then(Value::as_str).map(|path| format!(" ({path})")).unwrap_or_default();
        let file = self.file.display();
        ConfigError::Wrong(format!("config: {file}: line {line}: route {}{path}: {error}", at + 1))
    }
}

/// Returns true if a path is this one or below it.
fn is_under(path: &str, above: &str) -> bool {
    path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn own(proxy_path: &str) -> String {
    format!(
        "`path`: the proxy serves the paths under {proxy_path} itself, so the route never matches; remove it, or change the setting `proxy_path`"
    )
}

fn unknown(name: &str) -> String {
    if names().any(|(setting, _)| setting == name) {
        return format!("`{name}` is a setting and not part of [proxy]; move it above the first table");
    }
    let meant = if strsim::jaro_winkler("route", name) > 0.7 {
        "; did you mean [[proxy.route]]?"
    } else {
        "; it has only [[proxy.route]], [proxy.envelope] and [proxy.template]"
    };
    format!("there is no `{name}` in [proxy]{meant}")
}

/// Returns the line of each route.
fn lines(text: &str) -> Vec<usize> {
    let Ok(table) = DeTable::parse(text) else { return Vec::new() };
    let routes = table.get_ref().get("proxy").and_then(|proxy| proxy.get_ref().get("route"));
    let routes = routes.and_then(|routes| routes.get_ref().as_array());
    let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    routes.into_iter().flatten().map(|route| line(route.span().start)).collect()
}

#[cfg(test)]
mod tests;
