//! `onceward`: the service.

use std::process::ExitCode;

use onceward_server::app::{Application, prepare};
use onceward_server::config::{Config, ConfigError};

#[actix_web::main]
async fn main() -> ExitCode {
    let config = match prepare(Config::load) {
        Ok(config) => config,
        Err(ConfigError::Usage(usage)) => {
            // Help goes to the output and is no failure; what cannot be read goes to the error output.
            let _ = usage.print();
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(2));
        }
        Err(error) => return fail(2, &error),
    };
    let application = match Application::build(config).await {
        Ok(application) => application,
        Err(error) => return fail(1, &error),
    };
    match application.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(1, &error),
    }
}

fn fail(code: u8, error: &dyn std::error::Error) -> ExitCode {
    eprintln!("onceward: {error}");
    ExitCode::from(code)
}
