//! The server of `cargo xtask bench overhead`: a key-value store over TCP, written as servers with
//! tokio are, and what its recording costs it.
//!
//! A client in a process of its own sends pipelined batches of requests. The CPU time of the server
//! alone is measured, from the first request behind the warm-up to the last.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lastwords::{ChannelConfig, Session, event};
use nix::time::{ClockId, clock_gettime};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket};
use tracing::{Instrument, debug, info_span};
use tracing_subscriber::layer::SubscriberExt;

use crate::Result;

/// Connections that send at the same time.
const CONNECTIONS: u64 = 4;
/// Rounds of [`calls`].
const ROUNDS: usize = 20;
/// Requests that are sent before their answers are read.
const BATCH: u64 = 32;

/// The recorder of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Recorder {
    /// Nothing; nobody listens to `tracing`.
    Nothing,
    /// Nothing; a subscriber without a layer keeps the spans of `tracing`.
    Registry,
    /// Five events of `event!` a request.
    Events,
    /// Every span and event of `tracing`, by our layer on the registry of `tracing-subscriber`.
    Tracing,
    /// The same by our own subscriber.
    Subscriber,
}

impl Recorder {
    fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "nothing" => Self::Nothing,
            "registry" => Self::Registry,
            "events" => Self::Events,
            "tracing" => Self::Tracing,
            "subscriber" => Self::Subscriber,
            other => {
                let known = "nothing, registry, events, tracing or subscriber";
                return Err(format!("recorder `{other}`: expected {known}").into());
            }
        })
    }

    /// Starts recording; the session records until it is dropped.
    fn start(self) -> Result<Option<Session>> {
        let session = || {
            Session::builder("server")
                .channel(ChannelConfig::new("main").sub_buffers(8, 256 << 10))
                .start()
        };
        // With `tracing`, nothing else is recorded: the events of `event!` are measured alone.
        let session_of_tracing = || -> Result<Session> {
            let session = session()?;
            session.disable("server:*")?;
            Ok(session)
        };
        Ok(match self {
            Self::Nothing => None,
            Self::Registry => {
                tracing::subscriber::set_global_default(tracing_subscriber::registry())?;
                None
            }
            Self::Events => Some(session()?),
            Self::Tracing => {
                let session = session_of_tracing()?;
                tracing::subscriber::set_global_default(
                    tracing_subscriber::registry().with(lastwords::layer::layer()),
                )?;
                Some(session)
            }
            Self::Subscriber => {
                let session = session_of_tracing()?;
                tracing::subscriber::set_global_default(lastwords::layer::subscriber())?;
                Some(session)
            }
        })
    }
}

/// A request, as its parser gives it.
#[derive(Debug)]
enum Request<'a> {
    Get { key: &'a str },
    Set { key: &'a str, value: &'a str },
}

impl<'a> Request<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.trim_end().splitn(3, ' ');
        match (words.next()?, words.next()?, words.next()) {
            ("GET", key, None) => Some(Self::Get { key }),
            ("SET", key, Some(value)) => Some(Self::Set { key, value }),
            _ => None,
        }
    }
}

type Store = Mutex<HashMap<String, String>>;

/// Serves so many requests and prints the CPU time of one in nanoseconds.
pub(crate) fn run(recorder: &str, requests: &str) -> Result<()> {
    let session = Recorder::parse(recorder)?.start()?;
    let requests: u64 = requests.parse()?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let nanoseconds = runtime.block_on(measure(requests))?;
    drop(session);
    println!("{{\"ns\": {nanoseconds:.1}}}");
    Ok(())
}

/// Makes the calls of so many requests without the network, a few times, and prints the nanoseconds
/// of one in the fastest round. Rounds that are shorter than a time slice say more where other
/// programs run.
pub(crate) fn calls(recorder: &str, requests: &str) -> Result<()> {
    let session = Recorder::parse(recorder)?.start()?;
    let requests: u64 = requests.parse()?;
    let store = Store::default();
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let _connection = info_span!("connection", number = 1u64, peer = "127.0.0.1:1").entered();
    let mut least = f64::MAX;
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        for served in 0..requests {
            let request = Request::Get { key: "key:123" };
            let call = std::pin::pin!(
                apply(&request, &store, served).instrument(info_span!("request", served))
            );
            if call.poll(&mut context).is_pending() {
                return Err("a request waits for nothing".into());
            }
        }
        least = least.min(begun.elapsed().as_nanos() as f64 / requests as f64);
    }
    drop(session);
    println!("{{\"ns\": {least:.1}}}");
    Ok(())
}

async fn measure(requests: u64) -> Result<f64> {
    let socket = TcpSocket::new_v4()?;
    socket.bind("127.0.0.1:0".parse()?)?;
    let listener = socket.listen(64)?;
    let store = Arc::new(Store::default());
    let address = listener.local_addr()?.to_string();
    let warm_up = requests / 10;
    let begin = tokio::spawn(serve(listener, Arc::clone(&store)));
    load(&address, warm_up).await?;
    let before = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?;
    load(&address, requests).await?;
    let time = Duration::from(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)? - before);
    begin.abort();
    let sets = store.lock().map_err(|_| "the store is poisoned")?.len();
    if sets == 0 {
        return Err("the server has stored nothing".into());
    }
    Ok(time.as_nanos() as f64 / requests as f64)
}

async fn serve(listener: TcpListener, store: Arc<Store>) {
    let mut number = 0u64;
    while let Ok((stream, peer)) = listener.accept().await {
        number += 1;
        let span = info_span!("connection", number, %peer);
        tokio::spawn(connection(stream, Arc::clone(&store)).instrument(span));
    }
}

async fn connection(stream: tokio::net::TcpStream, store: Arc<Store>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let (read, mut write) = stream.into_split();
    let mut read = tokio::io::BufReader::new(read);
    let mut line = String::new();
    let mut served = 0u64;
    while let Ok(1..) = read.read_line(&mut line).await {
        let Some(request) = Request::parse(&line) else { return };
        served += 1;
        let span = info_span!("request", served);
        let answer = apply(&request, &store, served).instrument(span).await;
        if write.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
        line.clear();
    }
}

/// The work of a request, with two events of `tracing` and five of our own.
async fn apply(request: &Request<'_>, store: &Store, served: u64) -> String {
    let started = Instant::now();
    debug!(?request);
    event!(server, "accepted", request = served, bytes = 32u32);
    let answer = match request {
        Request::Get { key } => {
            event!(server, "lookup", request = served, key = key);
            let found = store.lock().ok().and_then(|store| store.get(*key).cloned());
            event!(server, "found", request = served, hit = found.is_some());
            found.map_or_else(|| "-\n".to_owned(), |value| format!("{value}\n"))
        }
        Request::Set { key, value } => {
            event!(server, "insert", request = served, key = key);
            let old = store
                .lock()
                .ok()
                .and_then(|mut store| store.insert((*key).to_owned(), (*value).to_owned()));
            event!(server, "replaced", request = served, old = old.is_some());
            "OK\n".to_owned()
        }
    };
    debug!(?answer);
    event!(server, "answer", request = served, bytes = answer.len() as u32);
    event!(server, "done", request = served, nanoseconds = started.elapsed().as_nanos() as u64);
    answer
}

/// Lets a client in another process send requests, and waits for its end.
async fn load(address: &str, requests: u64) -> Result<()> {
    let mut client = Client::start(address, requests)?;
    let status = tokio::task::spawn_blocking(move || client.0.wait()).await??;
    if status.success() { Ok(()) } else { Err(format!("the client: {status}").into()) }
}

/// A client; it is killed if it is dropped before its end.
struct Client(Child);

impl Client {
    fn start(address: &str, requests: u64) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["client", address, &requests.to_string()]).stdin(Stdio::null());
        Ok(Self(command.spawn()?))
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The client: sends requests on several connections, in batches, and reads the answers.
pub(crate) fn client(address: &str, requests: &str) -> Result<()> {
    let requests: u64 = requests.parse()?;
    let share = requests.div_ceil(CONNECTIONS);
    let threads: Vec<_> = (0..CONNECTIONS)
        .map(|number| {
            let address = address.to_owned();
            std::thread::spawn(move || {
                send(&address, number, share).map_err(|error| error.to_string())
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a thread of the client panicked")??;
    }
    Ok(())
}

fn send(address: &str, number: u64, requests: u64) -> Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut answers = BufReader::new(stream.try_clone()?);
    let (mut batch, mut answer) = (Vec::new(), String::new());
    let mut sent = 0;
    while sent < requests {
        batch.clear();
        let end = requests.min(sent + BATCH);
        for request in sent..end {
            let key = (request * 7 + number) % 1000;
            match request % 4 {
                0 => writeln!(batch, "SET key:{key} value-{request}")?,
                _ => writeln!(batch, "GET key:{key}")?,
            }
        }
        stream.write_all(&batch)?;
        for _ in sent..end {
            answer.clear();
            if answers.read_line(&mut answer)? == 0 {
                return Err("the server closed the connection".into());
            }
        }
        sent = end;
    }
    stream.shutdown(std::net::Shutdown::Write)?;
    answers.read_to_string(&mut answer)?;
    Ok(())
}
