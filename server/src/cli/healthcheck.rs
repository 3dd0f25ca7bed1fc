//! `onceward healthcheck`: checks whether the running service is ready, for the health check of a container.

use clap::ArgMatches;
use serde_json::json;

use super::argument::duration;
use super::http_client::{get, reachable};
use super::output::{Failure, Output};
use crate::config::Config;

pub(super) async fn healthcheck(matches: &ArgMatches, config: &Config) -> Result<Output, Failure> {
    let within = duration(matches, "timeout")?;
    let address = reachable(config.listen);
    let (is_ready, why) = match get(address, &path(config), within).await {
        Ok(answer) if answer.status == 200 => (true, "ready".to_owned()),
        Ok(answer) => {
            let problem: serde_json::Value = serde_json::from_str(&answer.body).unwrap_or_default();
            let code = problem["code"].as_str().unwrap_or("no reason given");
            let detail = problem["detail"].as_str().map(|detail| format!(". {detail}")).unwrap_or_default();
            (false, format!("not ready: {address} responded with {} ({code}){detail}", answer.status))
        }
        Err(error) => (false, format!("not ready: {address}: {error}")),
    };
    let json = json!({"ready": is_ready, "address": address.to_string(), "says": why});
    Ok(if is_ready { Output::fine(format!("{why}\n"), json) } else { Output::problem(format!("{why}\n"), json) })
}

/// Returns the path of the readiness check. Behind the proxy, `/readyz` belongs to the application.
fn path(config: &Config) -> String {
    let below = config.proxy.upstream.as_ref().map_or("", |_| config.proxy.proxy_path.as_str());
    format!("{below}/readyz")
}
