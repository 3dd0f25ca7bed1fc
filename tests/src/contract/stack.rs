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
    /// The Python SDK: ASGI middleware, on FastAPI.
    Asgi,
    /// The Python SDK: WSGI middleware, on Flask.
    Wsgi,
    /// The Python SDK: Django middleware, on WSGI.
    Django,
    /// The Python SDK: Django middleware, on ASGI with async views.
    DjangoAsgi,
    /// The Node SDK on Express.
    Express,
    /// The Node SDK on Fastify.
    Fastify,
    /// The Node SDK around handlers of the Fetch API.
    Fetch,
    /// A naive middleware.
    Naive(NaiveFlaw),
}

/// The program of a stack's shop.
enum Program {
    /// `contract_shop` with this argument.
    Rust(&'static str),
    /// This file of the Python package.
    Python(&'static str),
    /// This file of the Node package.
    Node(&'static str),
}

impl Stack {
    /// True for a stack whose middleware asks the service. The others use a store themselves.
    pub fn asks_service(self) -> bool {
        !matches!(self.program(), Program::Rust(_))
    }

    /// True if a handler receives a body that is sent in chunks. Django passes an empty one to a view.
    pub fn reads_chunked_bodies(self) -> bool {
        self != Self::Django
    }

    /// The words in its log if its credentials are rejected: by the service, or by Redis.
    pub fn word_for_wrong_credentials(self) -> &'static str {
        if self.asks_service() {
            "ONCEWARD_API_KEY is missing or wrong"
        } else {
            "rejects the user name or the password"
        }
    }

    /// Returns the command that starts its shop.
    pub fn command(self) -> Command {
        match self.program() {
            Program::Rust(kind) => {
                let mut command = Command::new(rust_shop());
                command.arg(kind);
                command
            }
            Program::Python(file) => script("target/python/bin/python3", "client-sdk/python/tests/shop", file),
            Program::Node(file) => script("node", "client-sdk/node/test/shop", file),
        }
    }

    fn program(self) -> Program {
        match self {
            Self::Actix => Program::Rust("actix"),
            Self::Axum => Program::Rust("axum"),
            Self::Asgi => Program::Python("asgi.py"),
            Self::Wsgi => Program::Python("wsgi.py"),
            Self::Django => Program::Python("django_shop.py"),
            Self::DjangoAsgi => Program::Python("django_asgi.py"),
            Self::Express => Program::Node("express.mjs"),
            Self::Fastify => Program::Node("fastify.mjs"),
            Self::Fetch => Program::Node("fetch.mjs"),
            Self::Naive(flaw) => Program::Rust(flaw.name()),
        }
    }
}

/// Path of the binary `contract_shop`, which cargo builds beside every integration test.
fn rust_shop() -> PathBuf {
    let here = std::env::current_exe().expect("this program has a path");
    here.parent().and_then(Path::parent).expect("target/<profile>/deps").join("contract_shop")
}

/// Returns the command that runs a file with an interpreter, which is a program of the system or a path in the repository.
fn script(interpreter: &str, folder: &str, file: &str) -> Command {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    let program = if interpreter.contains('/') { root.join(interpreter) } else { interpreter.into() };
    assert!(!interpreter.contains('/') || program.exists(), "{} is missing: run `make setup`", program.display());
    let mut command = Command::new(program);
    command.arg(root.join(folder).join(file));
    command
}
