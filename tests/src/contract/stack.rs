//! The stacks of the table.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::naive_shop::NaiveFlaw;

/// A stack with a contract shop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stack {
    /// The library on actix-web.
    Actix,
    /// The library on axum.
    Axum,
    /// A naive middleware.
    Naive(NaiveFlaw),
}

/// The program of a stack's shop.
enum Program {
    /// `contract_shop` with this argument.
    Rust(&'static str),
}

impl Stack {
    /// True for a stack whose middleware asks the service. The others use a store themselves.
    pub fn asks_service(self) -> bool {
        !matches!(self.program(), Program::Rust(_))
    }

    /// Returns the command that starts its shop.
    pub fn command(self) -> Command {
        match self.program() {
            Program::Rust(kind) => {
                let mut command = Command::new(rust_shop());
                command.arg(kind);
                command
            }
        }
    }

    fn program(self) -> Program {
        match self {
            Self::Actix => Program::Rust("actix"),
            Self::Axum => Program::Rust("axum"),
            Self::Naive(flaw) => Program::Rust(flaw.name()),
        }
    }
}

/// Path of the binary `contract_shop`, which cargo builds beside every integration test.
fn rust_shop() -> PathBuf {
    let here = std::env::current_exe().expect("this program has a path");
    here.parent().and_then(Path::parent).expect("target/<profile>/deps").join("contract_shop")
}
