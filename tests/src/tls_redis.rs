//! A real `redis-server` with TLS and a certificate from its own authority.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::listening_port::{free_port, listens};
use crate::polling::until_blocking;
use crate::redis_server::program;

/// A running server.
pub struct TlsRedis {
    child: Child,
    port: u16,
    authority: Authority,
}

impl TlsRedis {
    /// Starts one with additional arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        let authority = Authority::new();
        for _ in 0..10 {
            let port = free_port();
            let mut child = spawn(port, &authority, arguments);
            let has_ended = |child: &mut Child| child.try_wait().expect("its own child").is_some();
            until_blocking(Duration::from_secs(10), || listens(child.id(), port) || has_ended(&mut child));
            if !has_ended(&mut child) {
                return Self { child, port, authority };
            }
        }
        panic!("redis-server with TLS does not start");
    }

    /// Its host and port.
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Path of its authority's certificate.
    pub fn authority(&self) -> PathBuf {
        self.authority.certificate()
    }
}

impl Drop for TlsRedis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A certificate authority, with a certificate for a server on localhost.
pub struct Authority {
    folder: TempDir,
}

impl Authority {
    /// Creates an authority that no other process trusts.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        fs::write(folder.path().join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1").expect("a file");
        let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(folder.path(), &format!("req -x509 {new_key} -keyout ca.key -out ca.crt -days 2 -subj /CN=authority"));
        openssl(folder.path(), &format!("req {new_key} -keyout server.key -out server.csr -subj /CN=localhost"));
        let sign =
            "x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names -out server.crt";
        openssl(folder.path(), sign);
        Self { folder }
    }

    /// Path of its own certificate, for clients that trust it.
    pub fn certificate(&self) -> PathBuf {
        self.folder.path().join("ca.crt")
    }

    /// Path of the certificate of a server on localhost.
    pub fn server_certificate(&self) -> PathBuf {
        self.file("server.crt")
    }

    /// Path of the key of that server.
    pub fn server_key(&self) -> PathBuf {
        self.file("server.key")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

fn openssl(folder: &Path, arguments: &str) {
    let output = Command::new("openssl")
        .args(arguments.split(' '))
        .current_dir(folder)
        .output()
        .expect("openssl is missing; install it with: apt-get install openssl");
    assert!(output.status.success(), "openssl {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

fn spawn(port: u16, authority: &Authority, arguments: &[&str]) -> Child {
    Command::new(program())
        .args(["--port", "0", "--tls-port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""])
        .args(["--tls-auth-clients", "no", "--tls-cert-file"])
        .arg(authority.server_certificate())
        .arg("--tls-key-file")
        .arg(authority.server_key())
        .arg("--tls-ca-cert-file")
        .arg(authority.certificate())
        .arg("--dir")
        .arg(authority.folder.path())
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("redis-server is missing; install it with: apt-get install redis-server")
}
