//! A socket on which a server has accepted the login, for a connection that a thread drives itself.

use std::io;
use std::sync::Arc;

use futures_util::future::select_ok;
use redis::aio::AsyncStream;
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::SockRef;
use redis::{Client, Cmd, ConnectionAddr, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, RedisResult};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::connection::CONNECT;
use super::reply::{is_push, parse, reply_length};

/// A connected socket: TCP, TLS or a Unix socket.
pub(super) type Socket = Box<dyn AsyncStream + Send + Unpin>;

/// Connects to the server of this client, and logs in as redis-rs does.
pub(super) async fn open(client: &Client) -> RedisResult<Socket> {
    let opened = timeout(CONNECT, async {
        let mut socket = connect(client).await?;
        log_in(&mut socket, client.get_connection_info().redis_settings()).await?;
        Ok(socket)
    });
    opened.await.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()))
}

async fn connect(client: &Client) -> RedisResult<Socket> {
    let info = client.get_connection_info();
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => Ok(Box::new(connect_tcp(host, *port, info.tcp_settings()).await?)),
        ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None } => {
            let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
            let tcp = connect_tcp(host, *port, info.tcp_settings()).await?;
            Ok(Box::new(TlsConnector::from(Arc::new(trusting_system()?)).connect(name, tcp).await?))
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        _ => Err((ErrorKind::InvalidClientConfig, "only redis-rs connects to such an address").into()),
    }
}

/// Connects to the first address of the host that answers, as redis-rs does: one of them may be unreachable.
async fn connect_tcp(host: &str, port: u16, settings: &TcpSettings) -> io::Result<TcpStream> {
    let attempts: Vec<_> =
        lookup_host((host, port)).await?.map(|address| Box::pin(TcpStream::connect(address))).collect();
    if attempts.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the name of the server has no address"));
    }
    let (socket, _) = select_ok(attempts).await?;
    socket.set_nodelay(settings.nodelay())?;
    let options = SockRef::from(&socket);
    if let Some(keepalive) = settings.keepalive() {
        options.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(target_os = "linux")]
    options.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(socket)
}

/// Returns TLS settings with the system's trusted certificates.
fn trusting_system() -> RedisResult<ClientConfig> {
    let mut loaded = rustls_native_certs::load_native_certs();
    if let Some(error) = loaded.errors.pop() {
        return Err(io::Error::other(error).into());
    }
    let mut roots = RootCertStore::empty();
    for certificate in loaded.certs {
        roots.add(certificate).map_err(io::Error::other)?;
    }
    Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}

async fn log_in(socket: &mut Socket, login: &RedisConnectionInfo) -> RedisResult<()> {
    let (commands, required) = login_commands(login);
    socket.write_all(&commands.get_packed_pipeline()).await?;
    let (mut received, mut number) = (Vec::new(), 0);
    while number < commands.len() {
        let Some(length) = reply_length(&received)? else {
            if socket.read_buf(&mut received).await? == 0 {
                return Err(RedisError::from(io::Error::from(io::ErrorKind::UnexpectedEof)));
            }
            continue;
        };
        if !is_push(&received) {
            let reply = parse(&received[..length]);
            if number < required {
                reply?;
            }
            number += 1;
        }
        received.drain(..length);
    }
    // Otherwise the rest would be taken for the reply to the first command.
    if received.is_empty() { Ok(()) } else { Err((ErrorKind::Parse, "a reply to no command").into()) }
}

/// Returns the commands after which the connection can be used, and how many of them the server has to accept.
fn login_commands(login: &RedisConnectionInfo) -> (Pipeline, usize) {
    let mut hello = Cmd::new();
    hello.arg("HELLO").arg(3);
    if let Some(password) = login.password() {
        hello.arg("AUTH").arg(login.username().unwrap_or("default")).arg(password);
    }
    let mut commands = Pipeline::new();
    commands.add_command(hello);
    if login.db() != 0 {
        commands.cmd("SELECT").arg(login.db());
    }
    let required = commands.len();
    // Shown by CLIENT LIST. A server before Redis 7.2 does not know the command.
    for (name, value) in [("LIB-NAME", env!("CARGO_PKG_NAME")), ("LIB-VER", env!("CARGO_PKG_VERSION"))] {
        commands.cmd("CLIENT").arg("SETINFO").arg(name).arg(value);
    }
    (commands, required)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(login: &RedisConnectionInfo) -> (String, usize) {
        let (commands, required) = login_commands(login);
        let words = |command: &Cmd| {
            let words = command.args_iter().map(|word| match word {
                redis::Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
                _ => "?".to_owned(),
            });
            words.collect::<Vec<_>>().join(" ")
        };
        (commands.cmd_iter().map(words).collect::<Vec<_>>().join("; "), required)
    }

    #[test]
    fn login_names_user_password_and_database() {
        let login = RedisConnectionInfo::default();
        let (commands, required) = sent(&login);
        assert!(commands.starts_with("HELLO 3; CLIENT SETINFO LIB-NAME onceward; "), "{commands}");
        assert_eq!(required, 1);
        let (commands, required) = sent(&login.clone().set_password("p").set_db(3));
        assert!(commands.starts_with("HELLO 3 AUTH default p; SELECT 3; CLIENT"), "{commands}");
        assert_eq!(required, 2);
        let (commands, _) = sent(&login.set_username("u").set_password("p"));
        assert!(commands.starts_with("HELLO 3 AUTH u p; CLIENT"), "{commands}");
    }

    async fn log_in_with_replies(replies: &'static [u8]) -> RedisResult<()> {
        let (near, mut far) = tokio::io::duplex(4096);
        far.write_all(replies).await.unwrap();
        far.shutdown().await.unwrap();
        let mut near: Socket = Box::new(near);
        log_in(&mut near, &RedisConnectionInfo::default().set_password("p").set_db(3)).await
    }

    #[tokio::test]
    async fn rejected_login_fails_and_an_unknown_library_name_does_not() {
        let unknown = b"%1\r\n+proto\r\n:3\r\n+OK\r\n-ERR unknown\r\n-ERR unknown\r\n";
        log_in_with_replies(unknown).await.unwrap();
        let push = b"%0\r\n>1\r\n+push\r\n+OK\r\n+OK\r\n+OK\r\n";
        log_in_with_replies(push).await.unwrap();
        assert!(log_in_with_replies(b"%0\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n").await.is_err(), "a reply too many");
        let denied = b"-WRONGPASS no\r\n+OK\r\n+OK\r\n+OK\r\n";
        assert_eq!(log_in_with_replies(denied).await.unwrap_err().code(), Some("WRONGPASS"));
        let database = b"%0\r\n-ERR DB index is out of range\r\n+OK\r\n+OK\r\n";
        assert!(log_in_with_replies(database).await.is_err());
        assert!(log_in_with_replies(b"%0\r\n+OK\r\n").await.unwrap_err().is_io_error(), "the connection was closed");
    }
}
