//! A TCP proxy in front of an upstream, which counts the connections to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::net::{TcpListener, TcpStream};

/// Starts one, and returns its URL and its count.
pub(super) async fn count_connections(upstream: &str) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (url, count) = (format!("http://{}", listener.local_addr().unwrap()), Arc::new(AtomicUsize::new(0)));
    let (counted, upstream) = (Arc::clone(&count), upstream.trim_start_matches("http://").to_owned());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut server = TcpStream::connect(&upstream).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
        }
    });
    (url, count)
}
