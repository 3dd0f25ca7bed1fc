//! The routes of the proxy, in the order of the file: the first that matches a request applies.

use std::borrow::Cow;

use http::Method;

use super::normal_path::normal;
use super::route::{ProxyRoute, RoutePolicy, is_safe};

/// The routes of the proxy.
#[derive(Debug, Clone, Default)]
pub struct RouteTable {
    /// The routes, in the order of the file.
    pub routes: Vec<ProxyRoute>,
}

/// The route of a request.
#[derive(Debug, Clone)]
pub struct RouteMatch<'a> {
    /// The position of the route, from 0.
    pub index: usize,
    /// The route.
    pub route: &'a ProxyRoute,
    /// The decoded values of the path parameters, by name.
    pub parameters: Vec<(&'a str, String)>,
    /// The normal path, by the reading that the route matches.
    pub path: String,
}

/// A route that never applies, or not for all of its methods, because of an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShadowedRoute {
    /// The position of the earlier route, from 0.
    pub earlier: usize,
    /// The position of the shadowed one.
    pub later: usize,
}

impl RouteTable {
    /// Creates a table of these routes.
    pub fn new(routes: Vec<ProxyRoute>) -> Self {
        Self { routes }
    }

    /// Returns the route for this method and this path, as it was sent: the first one that matches it. An upstream may read a path in
    /// several ways. If they lead to different routes, the first that protects the request counts, since another spelling must
    /// not evade a route.
    pub fn find(&self, method: &Method, path: &str) -> Option<RouteMatch<'_>> {
        let readings = readings(path).into_iter();
        readings.map(|reading| self.find_normal(method, &normal(&reading))).min_by_key(rank).flatten()
    }

    fn find_normal(&self, method: &Method, path: &str) -> Option<RouteMatch<'_>> {
        let mut routes = self.routes.iter().enumerate().filter(|(_, route)| route.takes(method));
        routes.find_map(|(index, route)| {
            let parameters = route.path.parameters_of_normal(path)?;
            Some(RouteMatch { index, route, parameters, path: path.to_owned() })
        })
    }

    /// Returns a route that an earlier one shadows: all of its requests match the earlier one, or both have the same paths and share a
    /// method.
    pub fn shadowed(&self) -> Option<ShadowedRoute> {
        let earlier = |later: usize| {
            let shadows = |earlier: &usize| shadows(&self.routes[*earlier], &self.routes[later]);
            (0..later).find(shadows).map(|earlier| ShadowedRoute { earlier, later })
        };
        (0..self.routes.len()).find_map(earlier)
    }
}

/// Returns the order in which the readings of one path count: the routes that protect, no route, the routes that let a request pass.
fn rank(found: &Option<RouteMatch<'_>>) -> (u8, usize) {
    match found {
        Some(found) if matches!(found.route.policy, RoutePolicy::None) => (2, found.index),
        Some(found) => (0, found.index),
        None => (1, 0),
    }
}

/// Returns the paths for which an upstream may take this one: with `%2F` as a slash, and without the parameters of segments (`;a=1`), which
/// servlet containers leave out. Those without parameters are first, so that all spellings of a path share its claim.
fn readings(path: &str) -> Vec<Cow<'_, str>> {
    let mut readings = vec![Cow::Borrowed(path)];
    if let Some(decoded) = decoded_slashes(path) {
        // The slash may end a parameter, or be a part of it.
        let inside = without_parameters(path).and_then(|plain| decoded_slashes(&plain));
        let outside = without_parameters(&decoded);
        readings.push(Cow::Owned(decoded));
        readings.splice(0..0, outside.into_iter().chain(inside).map(Cow::Owned));
    }
    readings.splice(0..0, without_parameters(path).map(Cow::Owned));
    readings
}

/// Returns the path with slashes in place of `%2F`, if it has any.
fn decoded_slashes(path: &str) -> Option<String> {
    let decoded = path.replace("%2F", "/").replace("%2f", "/");
    (decoded.len() < path.len()).then_some(decoded)
}

/// Returns the path without the parameters of its segments, if it has any.
fn without_parameters(path: &str) -> Option<String> {
    let name = |segment: &str| segment.split(';').next().unwrap_or_default().to_owned();
    path.contains(';').then(|| path.split('/').map(name).collect::<Vec<_>>().join("/"))
}

fn shadows(earlier: &ProxyRoute, later: &ProxyRoute) -> bool {
    let is_same = later.path.covers(&earlier.path);
    earlier.path.covers(&later.path) && (takes_all(earlier, later) || (is_same && share_method(earlier, later)))
}

/// Returns true if one route takes every method of the other.
fn takes_all(one: &ProxyRoute, other: &ProxyRoute) -> bool {
    if other.methods.is_empty() { one.methods.is_empty() } else { other.methods.iter().all(|method| one.takes(method)) }
}

fn share_method(one: &ProxyRoute, other: &ProxyRoute) -> bool {
    match (one.methods.is_empty(), other.methods.is_empty()) {
        (true, true) => true,
        (true, false) => !other.methods.iter().all(is_safe),
        (false, _) => one.methods.iter().any(|method| other.takes(method)),
    }
}

#[cfg(test)]
mod tests {
    use onceward::Fields;

    use super::*;
    use crate::proxy::pattern::PathPattern;
    use crate::proxy::route::{RouteSubject, StatusEffects};

    /// Returns a table of routes that let requests pass, each written as `POST,PUT /path` or `/path`.
    fn table(routes: &[&str]) -> RouteTable {
        let route = |text: &&str| {
            let (methods, path) = text.split_once(' ').unwrap_or(("", text));
            let methods = methods.split(',').filter(|name| !name.is_empty());
            ProxyRoute {
                profile: None,
                rejections: None,
                retention_header: None,
                path: PathPattern::parse(path).unwrap(),
                methods: methods.map(|name| name.parse().unwrap()).collect(),
                policy: RoutePolicy::None,
                subject: RouteSubject::Credentials,
                body_limit: None,
                effects: StatusEffects::default(),
            }
        };
        RouteTable::new(routes.iter().map(route).collect())
    }

    #[test]
    fn first_route_with_the_path_and_method_applies() {
        let table = table(&["PUT /orders/{id}", "/orders/{id}", "GET /orders/new", "/*"]);
        let found = |method: Method, path: &str| table.find(&method, path).map(|found| found.index);
        assert_eq!(found(Method::PUT, "/orders/7"), Some(0));
        assert_eq!(found(Method::POST, "/orders/7"), Some(1));
        assert_eq!(found(Method::POST, "/a/../%6frders//7"), Some(1));
        assert_eq!(found(Method::GET, "/orders/new"), Some(2));
        assert_eq!(found(Method::GET, "/orders/7"), None);
        assert_eq!(found(Method::DELETE, "/"), Some(3));
        assert_eq!(table.find(&Method::POST, "/orders/7").unwrap().parameters, [("id", "7".to_owned())]);
        assert_eq!(found(Method::POST, "/orders%2F7"), Some(1), "an upstream may read it as a slash");
        assert_eq!(found(Method::POST, "/orders/7%2f8"), Some(1), "or not");
        assert!(RouteTable::default().find(&Method::POST, "/").is_none());
    }

    /// Returns a table of routes. Those that end with `!` require a token, the others let requests pass.
    fn protecting(routes: &[&str]) -> RouteTable {
        let mut table = table(&routes.iter().map(|text| text.trim_end_matches('!')).collect::<Vec<_>>());
        for (route, _) in table.routes.iter_mut().zip(routes).filter(|(_, text)| text.ends_with('!')) {
            route.policy = RoutePolicy::Token { bound: false, remember: None, wait: None, fields: Fields::all() };
        }
        table
    }

    #[test]
    fn parameters_of_segments_do_not_evade_a_route() {
        let table = protecting(&["/hooks/*", "/orders!", "/orders/{id}/pay!", "/v;1!"]);
        for (path, expected) in [
            ("/orders;a", Some((1, "/orders"))),
            ("/orders;a=1;b=2", Some((1, "/orders"))),
            ("/orders;", Some((1, "/orders"))),
            ("/;a/orders", Some((1, "/orders"))),
            ("/x/..;/orders", Some((1, "/orders"))),
            ("/.;a/orders", Some((1, "/orders"))),
            ("/orders;a%2Fb", Some((1, "/orders"))),
            ("/orders/7;a/pay", Some((2, "/orders/7/pay"))),
            ("/orders;b/7/pay;c", Some((2, "/orders/7/pay"))),
            ("/orders%2F7;a/pay", Some((2, "/orders/7/pay"))),
            ("/orders;a%2F7/pay", Some((2, "/orders/7/pay"))),
            ("/v;1", Some((3, "/v;1"))),
            ("/hooks/..;/orders", Some((1, "/orders"))),
            ("/hooks/..%2Forders", Some((1, "/orders"))),
            ("/hooks/a;b", Some((0, "/hooks/a"))),
            ("/hooks/..;/other", None),
            ("/other;a", None),
            ("/orders%3Ba", None),
        ] {
            let found = table.find(&Method::POST, path);
            assert_eq!(found.as_ref().map(|found| (found.index, found.path.as_str())), expected, "{path}");
        }
        assert_eq!(table.find(&Method::POST, "/orders/7;a/pay").unwrap().parameters, [("id", "7".to_owned())]);
    }

    #[test]
    fn route_that_an_earlier_one_covers_is_shadowed() {
        for routes in [
            ["/*", "/orders"],
            ["/orders/{id}", "/orders/{order}"],
            ["/orders/{id}", "PUT /orders/new"],
            ["POST,PUT /a", "PUT,PATCH /a"],
            ["POST /a", "/a"],
            ["GET,POST /a/*", "GET /a/b"],
        ] {
            assert_eq!(table(&routes).shadowed(), Some(ShadowedRoute { earlier: 0, later: 1 }), "{routes:?}");
        }
        for routes in [
            ["/orders", "/*"],
            ["POST /a", "PUT /a"],
            ["/a", "GET /a"],
            ["POST /*", "/a"],
            ["/orders/new", "/orders/{id}"],
            ["/a", "/a/"],
        ] {
            assert_eq!(table(&routes).shadowed(), None, "{routes:?}");
        }
    }
}
