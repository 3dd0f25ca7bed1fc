//! The contract shops of the Python and Node SDKs, and the service that they ask.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::NamedTempFile;

use crate::Failure;
use crate::redis_server::{free_port, is_up};

/// The API key of the service.
const API_KEY: &str = "the-key-of-the-benchmark";

/// A stack with a contract shop.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SdkStack {
    pub(crate) name: &'static str,
    /// The interpreter, and the file that it runs, relative to the repository.
    program: [&'static str; 2],
}

impl SdkStack {
    /// Every stack.
    pub(crate) const ALL: [Self; 7] = [
        Self { name: "ASGI, FastAPI", program: [PYTHON, "client-sdk/python/tests/shop/asgi.py"] },
        Self { name: "WSGI, Flask", program: [PYTHON, "client-sdk/python/tests/shop/wsgi.py"] },
        Self { name: "WSGI, Django", program: [PYTHON, "client-sdk/python/tests/shop/django_shop.py"] },
        Self { name: "ASGI, Django", program: [PYTHON, "client-sdk/python/tests/shop/django_asgi.py"] },
        Self { name: "Express", program: ["node", "client-sdk/node/test/shop/express.mjs"] },
        Self { name: "Fastify", program: ["node", "client-sdk/node/test/shop/fastify.mjs"] },
        Self { name: "Fetch API", program: ["node", "client-sdk/node/test/shop/fetch.mjs"] },
    ];
}

/// Whether a shop has the middleware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Middleware {
    /// The same application without it.
    Absent,
    /// On three routes, of which one is measured.
    Present,
}

const PYTHON: &str = "target/python/bin/python3";

/// A process of the comparison. SIGTERM ends it with its workers.
pub(crate) struct SdkProcess {
    child: Child,
    pub(crate) url: String,
    _ledger: Option<NamedTempFile>,
}

impl SdkProcess {
    /// Starts the service with this program and Redis.
    pub(crate) fn service(program: &Path, redis: &str) -> Result<Self, Failure> {
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut command = Command::new(program);
        command.args(["--listen", &address, "--store", redis, "--store-timeout", "5s", "--api-key", API_KEY]);
        command.args(["--rate-limit", "off", "--rate-limit-total", "off", "--request-log", "errors"]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).ok_or("no port")?;
        if !is_up(&mut child, port)? {
            return Err(format!("{} did not start", program.display()).into());
        }
        Ok(Self { child, url: format!("http://{address}"), _ledger: None })
    }

    /// Starts the shop of a stack, in the folder of the repository, with or without its middleware.
    pub(crate) fn shop(stack: SdkStack, service: &Self, middleware: Middleware) -> Result<Self, Failure> {
        let ledger = NamedTempFile::new()?;
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let [interpreter, file] = stack.program;
        let interpreter = if interpreter.contains('/') { root.join(interpreter) } else { interpreter.into() };
        let mut command = Command::new(interpreter);
        command.arg(root.join(file)).env("ONCEWARD_URL", &service.url).env("ONCEWARD_API_KEY", API_KEY);
        command.env("LEDGER", ledger.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        if middleware == Middleware::Absent {
            command.env("PROTECTION", "off");
        }
        let mut child =
            command.spawn().map_err(|error| format!("could not start {} ({error}); run `make setup`", stack.name))?;
        let mut url = String::new();
        BufReader::new(child.stdout.take().ok_or("its output is piped")?).read_line(&mut url)?;
        Ok(Self { child, url: url.trim().to_owned(), _ledger: Some(ledger) })
    }
}

impl Drop for SdkProcess {
    fn drop(&mut self) {
        // It may have exited.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}
