//! Starts a service, sends it orders, and kills it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rig::process::{Killed, wait_until};
use rig::scratch;

use crate::Program;

/// The orders that are answered, one after the other.
pub(crate) const ANSWERED: std::ops::RangeInclusive<u64> = 1..=30;
/// The orders that wait for the bank for ever.
pub(crate) const WAITING: [u64; 3] = [100, 200, 300];
/// The longest time for one step.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a service rests before it is killed. Spans of answered requests close meanwhile.
const REST: Duration = Duration::from_millis(300);
/// The line in which a service tells its address.
const ADDRESS: &str = "listening on ";

/// A service that runs.
pub(crate) struct Service {
    child: Killed,
    folder: PathBuf,
    /// Connections of the orders that wait.
    _waiting: Vec<TcpStream>,
}

/// What a dead service left.
pub(crate) struct Died {
    /// The folder of its session.
    pub(crate) session: PathBuf,
    /// What it wrote to stdout.
    pub(crate) log: String,
    /// The folder for files of the judge.
    pub(crate) folder: PathBuf,
}

impl Service {
    /// Starts a service, and sends it all orders. Returns once it rests.
    pub(crate) fn start(program: &Program, built: &Path, folder: &Path) -> Result<Self> {
        let child = Command::new(built.join(program.name))
            .env("LASTWORDS_DIR", folder.join("sessions"))
            .env("NO_COLOR", "1")
            .env_remove("RUST_LOG")
            .current_dir(folder)
            .stdout(File::create(log_of(folder))?)
            .stderr(File::create(folder.join("errors"))?)
            .stdin(Stdio::null())
            .spawn()
            .with_context(|| program.name.to_owned())?;
        let mut service =
            Self { child: Killed(child), folder: folder.to_owned(), _waiting: Vec::new() };
        let address = service.wait_for("its address", |log| {
            let line = log.lines().find_map(|line| line.strip_prefix(ADDRESS));
            line.filter(|_| log.contains('\n')).map(str::to_owned)
        })?;
        for order in ANSWERED {
            let mut answer = String::new();
            send(&address, order)?.read_to_string(&mut answer).context("an answer")?;
            ensure!(answer.ends_with(&format!("order {order}\n")), "it answered {answer:?}");
        }
        for order in WAITING {
            service._waiting.push(send(&address, order)?);
        }
        let received = ANSWERED.count() + WAITING.len();
        let exported = if program.has_opentelemetry { 2 * ANSWERED.count() } else { 0 };
        service.wait_for("its log", |log| {
            let count = |text: &str| log.lines().filter(|line| line.contains(text)).count();
            (count(": received ") == received && count("TraceId") >= exported).then_some(())
        })?;
        std::thread::sleep(REST);
        Ok(service)
    }

    /// Waits until its log shows something.
    fn wait_for<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> Result<T> {
        let (log, mut found) = (log_of(&self.folder), None);
        let has_come = || {
            found = find(&std::fs::read_to_string(&log)?);
            Ok(found.is_some())
        };
        wait_until(&mut self.child.0, Duration::from_millis(20), has_come)
            .with_context(|| what.to_owned())?;
        found.with_context(|| what.to_owned())
    }

    /// Sends the signal until the process is dead: the handlers of Rust's standard library let a
    /// process live on after the first SIGSEGV or SIGBUS that was sent.
    pub(crate) fn kill(mut self, signal: &str) -> Result<Died> {
        let begun = Instant::now();
        let pid = self.child.0.id().to_string();
        let mut sent = 0;
        while self.child.0.try_wait()?.is_none() {
            ensure!(begun.elapsed() < PATIENCE, "it does not die of {signal}");
            // A service that exits by itself takes its time, and may not like a second signal.
            if sent == 0 || signal != "TERM" {
                // The process may have died meanwhile.
                let _ = Command::new("kill").args(["-s", signal, &pid]).output();
                sent += 1;
            }
            std::thread::sleep(Duration::from_millis(30));
        }
        Ok(Died {
            session: scratch::only(&self.folder.join("sessions"))?,
            log: std::fs::read_to_string(log_of(&self.folder))?,
            folder: self.folder,
        })
    }
}

fn log_of(folder: &Path) -> PathBuf {
    folder.join("log")
}

/// Asks for an order. Returns the connection, from which the answer can be read.
fn send(address: &str, order: u64) -> Result<TcpStream> {
    let mut connection = TcpStream::connect(address).context("cannot connect")?;
    connection.set_read_timeout(Some(PATIENCE))?;
    let close = "Connection: close";
    write!(connection, "GET /orders/{order} HTTP/1.1\r\nHost: {address}\r\n{close}\r\n\r\n")?;
    Ok(connection)
}
