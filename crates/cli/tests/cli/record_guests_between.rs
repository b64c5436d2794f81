//! `record -A` with an agent whose answers somebody between the two changes: clocks that are none,
//! a guest that dies, an agent that stalls. They need root.

use crate::record::{Recorder, names, tracing};
use crate::record_guests::{Agent, wait_for_events};
use crate::support::{Place, wait_until};
use rustix::process::{Signal, kill_process};
use std::fs::{self, File};
use std::io::{Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread;

/// How an answer of the agent is passed on.
enum Act {
    Pass,
    Say(String),
    /// The guest dies.
    Die,
    /// The answer never comes.
    Stall,
}

/// Passes both connections of a recording on, and changes the agent's answers.
struct Between {
    address: String,
    sockets: Arc<Mutex<Vec<TcpStream>>>,
}

impl Between {
    fn new(agent: &Agent, mut change: impl FnMut(&str) -> Act + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("tcp:{}", listener.local_addr().unwrap());
        let to = agent.address.strip_prefix("tcp:").unwrap().to_owned();
        let sockets: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let all = Arc::clone(&sockets);
        thread::spawn(move || {
            let (host, _) = listener.accept().unwrap();
            let agent = TcpStream::connect(&to).unwrap();
            copy(host.try_clone().unwrap(), agent.try_clone().unwrap());
            all.lock().unwrap().extend([host.try_clone().unwrap(), agent.try_clone().unwrap()]);
            let of_second = Arc::clone(&all);
            thread::spawn(move || {
                let Ok((host, _)) = listener.accept() else { return };
                let agent = TcpStream::connect(&to).unwrap();
                of_second
                    .lock()
                    .unwrap()
                    .extend([host.try_clone().unwrap(), agent.try_clone().unwrap()]);
                copy(host.try_clone().unwrap(), agent.try_clone().unwrap());
                copy(agent, host);
            });
            let (mut from, mut to) = (agent, host);
            while let Some(text) = message(&mut from) {
                let said = match change(&text) {
                    Act::Pass => text,
                    Act::Say(text) => text,
                    Act::Stall => continue,
                    Act::Die => {
                        cut(&all);
                        return;
                    }
                };
                let bytes = [&(said.len() as u32).to_le_bytes()[..], said.as_bytes()].concat();
                if to.write_all(&bytes).is_err() {
                    return;
                }
            }
        });
        Self { address, sockets }
    }

    /// Keeps answers with this word back. Returns also whether one came.
    fn holding(agent: &Agent, word: &'static str) -> (Self, Arc<AtomicBool>) {
        let is_held = Arc::new(AtomicBool::new(false));
        let held = Arc::clone(&is_held);
        let between = Self::new(agent, move |text| match text.contains(word) {
            true => {
                held.store(true, SeqCst);
                Act::Stall
            }
            false => Act::Pass,
        });
        (between, is_held)
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        cut(&self.sockets);
    }
}

fn cut(sockets: &Mutex<Vec<TcpStream>>) {
    for socket in sockets.lock().unwrap().iter() {
        let _ = socket.shutdown(Shutdown::Both);
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut to);
        // The other direction may still have an answer.
        let _ = to.shutdown(Shutdown::Write);
    });
}

fn message(from: &mut impl Read) -> Option<String> {
    let mut length = [0; 4];
    from.read_exact(&mut length).ok()?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    from.read_exact(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

/// The reading in an answer about the clock.
fn reading(text: &str) -> Option<u64> {
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    (value["answer"] == "clock").then(|| value["nanoseconds"].as_u64().unwrap())
}

fn clock(nanoseconds: u64) -> Act {
    Act::Say(format!(r#"{{"answer":"clock","nanoseconds":{nanoseconds}}}"#))
}

/// A host that records itself and a guest until the file `go` is there.
pub(crate) struct Host<'a> {
    recorder: Recorder<'a>,
    place: &'a Place,
}

const RULE: [&str; 2] = ["-e", "sched:sched_process_exit"];

impl<'a> Host<'a> {
    fn start(place: &'a Place, between: &Between) -> Self {
        Self::start_as(place, place.command(), &between.address, &RULE)
    }

    /// Starts it by a command that ends with the program. `of_guest` are options for the guest.
    pub(crate) fn start_as(
        place: &'a Place,
        mut command: Command,
        address: &str,
        of_guest: &[&str],
    ) -> Self {
        let guest = format!("self@{address}");
        command.args(["record", "--instance", "lastwords_test"]).args(RULE).args(["-A", &guest]);
        command.args(of_guest).args(["--", "bash", "-c", "until [ -e go ]; do sleep 0.05; done"]);
        let said = File::create(place.at("said")).unwrap();
        let child = command.stderr(said).stdout(Stdio::null()).spawn().expect("it starts");
        Self { recorder: Recorder::new(child, place), place }
    }

    pub(crate) fn said(&self) -> String {
        fs::read_to_string(self.place.at("said")).unwrap()
    }

    /// Ends the command, and returns the status and what the host said.
    pub(crate) fn end(&mut self) -> (i32, String) {
        fs::write(self.place.at("go"), "").unwrap();
        (self.recorder.wait().status, self.said())
    }
}

/// Fails unless only these files are left.
#[track_caller]
fn has_files(place: &Place, files: &[&str]) {
    let is_left = |name: &String| !["go", "said", "sessions"].contains(&name.as_str());
    let left: Vec<String> = names(place.path()).into_iter().filter(is_left).collect();
    assert_eq!(left, files);
}

#[test]
fn a_reading_that_no_clock_has_is_refused() {
    let Some(place) = tracing() else { return };
    let agent = Agent::start(&place);
    let between = Between::new(&agent, |text| match reading(text) {
        Some(_) => clock(u64::MAX),
        None => Act::Pass,
    });
    let mut host = Host::start(&place, &between);
    let (status, said) = host.end();
    assert_eq!(status, 1, "{said}");
    let named = [format!("guest self: {}: ", between.address), format!("{} ns", u64::MAX)];
    assert!(named.iter().all(|word| said.contains(word)), "{said}");
    wait_until("the agent's instance is gone", || !agent.instance().exists());
    agent.end();
    place.is_restored("the end");
    has_files(&place, &[]);
}

#[test]
fn a_clock_that_is_set_is_told() {
    let Some(place) = tracing() else { return };
    let agent = Agent::start(&place);
    let (is_set, answers) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let (set, count) = (Arc::clone(&is_set), Arc::clone(&answers));
    let between = Between::new(&agent, move |text| match reading(text) {
        Some(time) if set.load(SeqCst) => {
            count.fetch_add(1, SeqCst);
            clock(time + 5_000_000_000)
        }
        _ => Act::Pass,
    });
    let mut host = Host::start(&place, &between);
    wait_for_events(&place);
    is_set.store(true, SeqCst);
    wait_until("the clock was measured", || answers.load(SeqCst) > 8);
    let (status, said) = host.end();
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("its clock was set, stopped or went back: 1 measurement"), "{said}");
    assert!(said.contains(" s ahead of the host's"), "{said}");
    agent.end();
    place.is_restored("the end");
    has_files(&place, &["trace-self.dat", "trace.dat"]);
}

#[test]
fn the_death_of_a_guest_is_told_at_once_and_when_its_clock_was_measured_last() {
    let Some(place) = tracing() else { return };
    let agent = Agent::start(&place);
    let last = Arc::new(AtomicU64::new(0));
    let (is_dead, noted) = (Arc::new(AtomicBool::new(false)), Arc::clone(&last));
    let dies = Arc::clone(&is_dead);
    let between = Between::new(&agent, move |text| match reading(text) {
        Some(_) if dies.load(SeqCst) => Act::Die,
        Some(time) => {
            noted.fetch_max(time, SeqCst);
            Act::Pass
        }
        None => Act::Pass,
    });
    let mut host = Host::start(&place, &between);
    // A guest without an event leaves no file.
    wait_for_events(&place);
    is_dead.store(true, SeqCst);
    wait_until("it is told", || {
        host.said().contains("guest self: its recording has ended early; that of the host goes on")
    });
    let (status, said) = host.end();
    assert_eq!(status, 0, "{said}");
    let measured = said.split("its clock was measured last at ").nth(1).expect("a time");
    let measured: f64 = measured.split(' ').next().unwrap().parse().unwrap();
    let last = last.load(SeqCst) as f64 / 1e9;
    assert!(measured <= last + 1e-6 && last - measured < 1.0, "{measured} {last}");
    assert!(said.contains("the error of later times is not known"), "{said}");
    wait_until("the agent's instance is gone", || !agent.instance().exists());
    agent.end();
    place.is_restored("the end");
    has_files(&place, &["trace-self.dat", "trace.dat"]);
}

#[test]
fn an_agent_that_does_not_end_is_left_at_the_second_signal() {
    let Some(place) = tracing() else { return };
    let agent = Agent::start(&place);
    let (between, is_held) = Between::holding(&agent, r#""finished""#);
    let mut host = Host::start(&place, &between);
    wait_for_events(&place);
    kill_process(host.recorder.pid(), Signal::INT).unwrap();
    wait_until("the agent has ended", || is_held.load(SeqCst));
    kill_process(host.recorder.pid(), Signal::INT).unwrap();
    let (status, said) = host.end();
    assert_eq!(status, 0, "{said}");
    assert!(said.contains("a signal ended that"), "{said}");
    agent.end();
    place.is_restored("the end");
}

/// A signal ends the wait for an agent that prepares nothing.
#[test]
fn a_signal_ends_the_wait_for_an_agent_that_is_silent() {
    let Some(place) = tracing() else { return };
    let agent = Agent::start(&place);
    let (between, is_held) = Between::holding(&agent, r#""begun""#);
    let mut host = Host::start(&place, &between);
    wait_until("the agent is prepared", || is_held.load(SeqCst));
    let ran = host.recorder.end(Signal::TERM);
    assert_eq!(ran.status, 1);
    assert!(host.said().contains("a signal ended that"), "{}", host.said());
    wait_until("the agent's instance is gone", || !agent.instance().exists());
    agent.end();
    place.is_restored("the end");
    has_files(&place, &[]);
}
