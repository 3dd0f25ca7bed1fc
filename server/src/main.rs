//! `onceward`: the service, and what whoever runs it needs.

use std::process::ExitCode;

#[actix_web::main]
async fn main() -> ExitCode {
    onceward_server::cli::run(std::env::args_os()).await
}
