//! Large bodies pass through the proxy without being held in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use onceward_tests::client::http;
use onceward_tests::legacy_shop::LegacyShop;
use onceward_tests::raw_http::connect;
use onceward_tests::service::OncewardServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

const MIB: u64 = 1024 * 1024;
const UPLOAD: u64 = 100 * MIB;
const DOWNLOAD: u64 = 200 * MIB;
/// Maximum growth of the resident memory.
const GROWTH: u64 = 32 * MIB;
static PIECE: [u8; 64 * 1024] = [b'x'; 64 * 1024];
/// Pause of a slow reader after each piece, and the time after which it reads without pauses.
const PAUSE: Duration = Duration::from_millis(20);
const SLOW_FOR: Duration = Duration::from_secs(2);

/// The resident memory of a proxy, sampled until it is asked for.
struct MemoryWatch {
    before: u64,
    is_over: Arc<AtomicBool>,
    highest: JoinHandle<u64>,
}

impl MemoryWatch {
    fn start(proxy: &Arc<OncewardServer>) -> Self {
        let (before, is_over) = (proxy.memory(), Arc::new(AtomicBool::new(false)));
        let (proxy, until) = (Arc::clone(proxy), Arc::clone(&is_over));
        let highest = tokio::spawn(async move {
            let mut highest = 0;
            while !until.load(Ordering::SeqCst) {
                highest = highest.max(proxy.memory());
                sleep(Duration::from_millis(5)).await;
            }
            highest.max(proxy.memory())
        });
        Self { before, is_over, highest }
    }

    /// Asserts that the memory has stayed within the limit.
    async fn end(self, what: &str) {
        self.is_over.store(true, Ordering::SeqCst);
        let highest = self.highest.await.unwrap();
        let mib = |bytes: u64| bytes as f64 / MIB as f64;
        println!("{what}: {:.1} MiB before, {:.1} MiB at most", mib(self.before), mib(highest));
        assert!(highest <= self.before + GROWTH, "{what}: from {} to {highest} bytes", self.before);
    }
}

/// Starts a proxy whose allocator and pools have seen some traffic.
async fn warm(shop: &LegacyShop) -> Arc<OncewardServer> {
    let proxy = Arc::new(shop.proxy(&[]));
    for is_chunked in [false, true] {
        assert_eq!(upload(&proxy.url, MIB, is_chunked).await, MIB);
        assert_eq!(download(&proxy.url, MIB, is_chunked, Duration::ZERO).await, MIB);
    }
    proxy
}

/// Uploads this many bytes. Returns how many the application received.
async fn upload(url: &str, size: u64, is_chunked: bool) -> u64 {
    let mut stream = connect(url).await;
    let length = if is_chunked { "transfer-encoding: chunked".to_owned() } else { format!("content-length: {size}") };
    let kind = "content-type: application/octet-stream";
    let head = format!("POST /sink HTTP/1.1\r\nhost: shop\r\nconnection: close\r\n{kind}\r\n{length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    for at in (0..size).step_by(PIECE.len()) {
        let piece = &PIECE[..PIECE.len().min((size - at) as usize)];
        if is_chunked {
            stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await.unwrap();
        }
        stream.write_all(piece).await.unwrap();
        if is_chunked {
            stream.write_all(b"\r\n").await.unwrap();
        }
    }
    if is_chunked {
        stream.write_all(b"0\r\n\r\n").await.unwrap();
    }
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str::<serde_json::Value>(body).unwrap()["bytes"].as_u64().unwrap()
}

/// Downloads this many bytes, with pauses at first. Returns how many arrived.
async fn download(url: &str, size: u64, is_chunked: bool, slow_for: Duration) -> u64 {
    let query = if is_chunked { "&chunked=1" } else { "" };
    let mut response = http().get(format!("{url}/big?bytes={size}{query}")).send().await.unwrap();
    assert_eq!((response.status().as_u16(), response.content_length()), (200, (!is_chunked).then_some(size)));
    let (begun, mut count) = (Instant::now(), 0);
    while let Some(piece) = response.chunk().await.unwrap() {
        assert!(piece.iter().all(|byte| *byte == b'x'));
        count += piece.len() as u64;
        if begun.elapsed() < slow_for {
            sleep(PAUSE).await;
        }
    }
    count
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_upload_is_not_held_in_memory() {
    let shop = LegacyShop::start();
    let proxy = warm(&shop).await;
    for is_chunked in [false, true] {
        let memory = MemoryWatch::start(&proxy);
        assert_eq!(upload(&proxy.url, UPLOAD, is_chunked).await, UPLOAD);
        memory.end(if is_chunked { "100 MiB up, chunked" } else { "100 MiB up, with a length" }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_download_is_not_held_in_memory() {
    let shop = LegacyShop::start();
    let proxy = warm(&shop).await;
    for is_chunked in [false, true] {
        let memory = MemoryWatch::start(&proxy);
        assert_eq!(download(&proxy.url, DOWNLOAD, is_chunked, Duration::ZERO).await, DOWNLOAD);
        memory.end(if is_chunked { "200 MiB down, chunked" } else { "200 MiB down, with a length" }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_do_not_fill_memory() {
    let shop = LegacyShop::start();
    let proxy = warm(&shop).await;
    let (memory, mut readers) = (MemoryWatch::start(&proxy), JoinSet::new());
    for number in 0..4 {
        let url = proxy.url.clone();
        readers.spawn(async move { download(&url, DOWNLOAD / 4, number % 2 == 0, SLOW_FOR).await });
    }
    assert_eq!(readers.join_all().await, [DOWNLOAD / 4; 4]);
    memory.end("4 slow readers of 50 MiB each").await;
}
