//! Large bodies pass through the proxy without being held in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use onceward_tests::client::{http, send};
use onceward_tests::legacy_shop::LegacyShop;
use onceward_tests::polling::until;
use onceward_tests::raw_http::connect;
use onceward_tests::service::OncewardServer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

const MIB: u64 = 1024 * 1024;
const UPLOAD: u64 = 100 * MIB;
const DOWNLOAD: u64 = 200 * MIB;
/// Maximum growth of the resident memory.
const GROWTH: u64 = 32 * MIB;
static PIECE: [u8; 64 * 1024] = [b'x'; 64 * 1024];
/// Number of slow uploads, and of readers that read nothing.
const UPLOADS: usize = 100;
const STALLED: usize = 200;
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
        self.end_within(GROWTH, what).await;
    }

    /// Like [`end`](Self::end), with a limit of its own.
    async fn end_within(self, growth: u64, what: &str) {
        self.is_over.store(true, Ordering::SeqCst);
        let highest = self.highest.await.unwrap();
        let mib = |bytes: u64| bytes as f64 / MIB as f64;
        println!("{what}: {:.1} MiB before, {:.1} MiB at most", mib(self.before), mib(highest));
        assert!(highest <= self.before + growth, "{what}: from {} to {highest} bytes", self.before);
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

/// Reads the head of a large response, and then nothing.
async fn stall(url: String) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    // The buffers of the operating system are not the memory of the proxy.
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let mut stream = socket.connect(url.trim_start_matches("http://").parse().unwrap()).await.unwrap();
    let request = format!("GET /big?bytes={DOWNLOAD} HTTP/1.1\r\nhost: shop\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.read_exact(&mut [0; 1024]).await.unwrap();
    stream
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_readers_hold_little_memory_each() {
    let shop = LegacyShop::start();
    let proxy = warm(&shop).await;
    let (memory, mut readers) = (MemoryWatch::start(&proxy), JoinSet::new());
    for _ in 0..STALLED {
        readers.spawn(stall(proxy.url.clone()));
    }
    let stalled = readers.join_all().await;
    until_constant(&proxy).await;
    memory.end_within(STALLED as u64 * 400 * 1024, "200 readers that read nothing").await;
    drop(stalled);
}

/// Waits until the memory of the proxy has been the same for a while.
async fn until_constant(proxy: &OncewardServer) {
    let (last, same) = (AtomicU64::new(0), AtomicU64::new(0));
    let is_constant = || {
        let now = proxy.memory();
        let is_same = last.swap(now, Ordering::SeqCst) == now;
        let count = if is_same { same.fetch_add(1, Ordering::SeqCst) } else { same.swap(0, Ordering::SeqCst) };
        std::future::ready(is_same && count >= 20)
    };
    until("the memory is constant", Duration::from_secs(60), is_constant).await;
}

/// Each client sends as much as a body may have, except for the last byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_uploads_are_held_within_buffer_limit() {
    let shop = LegacyShop::start();
    let proxy = Arc::new(shop.proxy(&["--buffer-limit", "8MiB", "--request-timeout", "60s"]));
    let (memory, mut uploads) = (MemoryWatch::start(&proxy), JoinSet::new());
    let ended = Arc::new(AtomicUsize::new(0));
    for key in 0..UPLOADS {
        let (url, ended) = (proxy.url.clone(), Arc::clone(&ended));
        uploads.spawn(async move {
            let mut stream = connect(&url).await;
            let head =
                format!("POST /sink HTTP/1.1\r\nhost: shop\r\nidempotency-key: {key}\r\ncontent-length: {MIB}\r\n\r\n");
            // A rejected upload receives a response or is cut off; one that is held waits for its last byte.
            if stream.write_all(head.as_bytes()).await.is_ok()
                && stream.write_all(&vec![b'x'; MIB as usize - 1]).await.is_ok()
            {
                let _ = stream.read_exact(&mut [0; 12]).await;
            }
            ended.fetch_add(1, Ordering::Relaxed);
        });
    }
    let ended = || ended.load(Ordering::Relaxed);
    until("8 uploads are held at most", Duration::from_secs(30), async || ended() >= UPLOADS - 8).await;
    assert!(ended() < UPLOADS, "no upload is held");
    // A body grows by copies, so it may need twice its size; the rest is the buffers of the connections.
    memory.end_within(2 * 8 * MIB + UPLOADS as u64 * 256 * 1024, "100 slow uploads of 1 MiB each").await;
    uploads.shutdown().await;
    let has_room = || async {
        let large = http().post(format!("{}/sink", proxy.url)).header("idempotency-key", "large");
        send(large.body(vec![b'x'; MIB as usize])).await.status == 200
    };
    until("their memory is free", Duration::from_secs(10), has_room).await;
}
