//! `onceward`: the service, and commands for its operators.

use std::process::ExitCode;

#[actix_web::main]
async fn main() -> ExitCode {
    onceward_server::cli::run(std::env::args_os()).await
}
