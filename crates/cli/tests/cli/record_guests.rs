//! `record -A` with an agent on the same machine: both have the same events, and the difference of
//! their clocks is known to be 0. They need root. The lab's scenario `guests` has two machines.

use crate::record::{KILLED, KILLS, kills, names, record, tracing};
use crate::stream::Receiver;
use crate::support::{Place, tool, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, DirBuilder};
use std::io::{BufRead as _, BufReader, Read as _};
use std::net::TcpStream;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;
use std::process::{Child, ChildStderr, Stdio};

/// An agent that runs. It is killed if a test fails.
pub(crate) struct Agent {
    child: Child,
    said: BufReader<ChildStderr>,
    pub(crate) address: String,
}

impl Agent {
    pub(crate) fn start(place: &Place) -> Self {
        let mut command = place.command();
        command.args(["kernel", "agent", "--listen", "tcp:127.0.0.1:0"]);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let said = BufReader::new(child.stderr.take().unwrap());
        let mut agent = Self { child, said, address: String::new() };
        let line = agent.next("listening at ");
        let address = line.split("listening at ").nth(1).unwrap().split(';').next().unwrap();
        address.clone_into(&mut agent.address);
        agent
    }

    /// The next line that has a word.
    pub(crate) fn next(&mut self, word: &str) -> String {
        let mut all = String::new();
        loop {
            let mut line = String::new();
            assert!(self.said.read_line(&mut line).unwrap() > 0, "no {word}: {all}");
            if line.contains(word) {
                return line;
            }
            all.push_str(&line);
        }
    }

    pub(crate) fn instance(&self) -> std::path::PathBuf {
        crate::record::instance(&format!("lastwords-{}", self.child.id()))
    }

    pub(crate) fn end(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        assert_eq!(self.child.wait().unwrap().code(), Some(0));
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        rest
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The numbers in a line of `record` about the clock: seconds of difference, and the error in
/// microseconds.
fn clock(said: &str) -> (f64, f64) {
    let line =
        said.lines().find(|line| line.contains("its clock is ")).expect("a line of the clock");
    let number = |before: &str| -> f64 {
        line.split(before).nth(1).unwrap().split(' ').next().unwrap().parse().unwrap()
    };
    (number("its clock is "), number("is wrong by "))
}

/// Makes the option DATE of a file one that nobody knows.
fn forget_date(file: &Path) {
    let mut bytes = fs::read(file).unwrap();
    let is_date = |window: &[u8]| {
        window.starts_with(&[1, 0]) && window[3..6] == [0; 3] && window.ends_with(b"0x")
    };
    let at = bytes.windows(8).position(is_date).expect("a date");
    bytes[at] = 200;
    fs::write(file, bytes).unwrap();
}

/// The time and the file of each event that a report of several files shows, in order.
fn times(text: &str) -> Vec<(u64, String)> {
    let event = |line: &str| {
        let (file, rest) = line.split_once(": ").filter(|(file, _)| file.ends_with(".dat"))?;
        let time =
            rest.split_whitespace().find(|word| word.ends_with(':') && word.contains('.'))?;
        let digits = time.trim_end_matches(':').replace('.', "");
        Some((digits.parse().ok()?, file.trim().to_owned()))
    };
    text.lines().filter_map(event).collect()
}

#[test]
fn a_guest_has_the_same_events_by_the_same_clock() {
    let Some(place) = tracing() else { return };
    let mut agent = Agent::start(&place);
    let guest = format!("self@{}", agent.address);
    let rule = ["-e", "syscalls:sys_enter_kill", "-f", KILLED];
    let main = ["--strict", "--instance", "lastwords_test"];
    let of_guest = ["-A", guest.as_str()];
    let command = ["--", "bash", "-c", KILLS];
    let ran = record(&place, &[&main[..], &rule, &of_guest, &rule, &command].concat());
    ran.has_status(0);
    agent.next("recording in the instance");
    let (host, guest) = (place.at("trace.dat"), place.at("trace-self.dat"));
    let all: Vec<u64> = (0..20_000).collect();
    assert!(kills(&host) == all && kills(&guest) == all, "{}", ran.err);
    let (difference, error) = clock(&ran.err);
    // The line rounds the difference to microseconds.
    assert!(difference * 1e6 <= error + 1.0, "{}", ran.err);
    // Both readers show all events of both files.
    let both =
        tool("trace-cmd", &["report", "-i", host.to_str().unwrap(), "-i", guest.to_str().unwrap()]);
    assert_eq!(both.out.matches("sys_enter_kill:").count(), 40_000);
    let ours = place.run(&["report", "trace.dat", "trace-self.dat"]);
    ours.has_status(0);
    assert_eq!(ours.out.matches("sys_kill(").count(), 40_000, "{}", &ours.out[..1000]);
    // Without their dates, as trace-cmd writes them, the files have no relation but that of guest and
    // host.
    [&host, &guest].into_iter().for_each(|file| forget_date(file));
    let both =
        tool("trace-cmd", &["report", "-i", host.to_str().unwrap(), "-i", guest.to_str().unwrap()]);
    let ours = place.run(&["report", "trace.dat", "trace-self.dat"]);
    let (mut theirs, ours) = (times(&both.out), times(&ours.out));
    let is_rising = ours.windows(2).all(|pair| pair[0].0 <= pair[1].0);
    assert!(is_rising && ours.len() == 40_000, "{:?}", &ours[..10]);
    let turns = ours.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    assert!(turns > 20_000, "{turns}");
    let mut ours = ours;
    theirs.sort();
    ours.sort();
    assert!(ours == theirs, "{:?} {:?}", &ours[..4], &theirs[..4]);
    assert!(!agent.instance().exists());
    agent.end();
    place.is_restored("the end of the agent");
    assert_eq!(names(place.path()), ["sessions", "trace-self.dat", "trace.dat"]);
}

/// The description of a kernel's events alone is larger than this limit. The host says why, and the
/// agent that its stream is broken.
#[test]
fn a_guest_takes_no_more_of_the_disk_than_it_may() {
    let Some(place) = tracing() else { return };
    let mut agent = Agent::start(&place);
    let guest = format!("self@{}", agent.address);
    let run = |size: &str| {
        let main = ["--instance", "lastwords_test", "--max-size", size, "-e", "sched"];
        record(&place, &[&main[..], &["-A", &guest, "-e", "sched", "--", "true"]].concat())
    };
    run("64K").has_status(1).says("guest self: ").says("65536 bytes (--max-size)");
    agent.next("is broken");
    assert_eq!(names(place.path()), ["sessions"]);
    run("1G").has_status(0);
    agent.end();
    place.is_restored("the end of the agent");
}

/// An agent outlives peers that say nothing, or what no host says, and leaves nothing of them.
#[test]
fn an_agent_outlives_other_peers() {
    use std::io::Write as _;
    let Some(place) = tracing() else { return };
    let mut agent = Agent::start(&place);
    let address = agent.address.strip_prefix("tcp:").unwrap().to_owned();
    let say = |bytes: &[u8]| {
        let mut peer = TcpStream::connect(&address).unwrap();
        peer.write_all(bytes).unwrap();
        peer
    };
    let message = |text: &str| [&(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat();
    for (bytes, why) in [
        (u32::MAX.to_le_bytes().to_vec(), "1048576 is the most"),
        (message("{}"), "a message"),
        (message(r#"{"ask":"start"}"#), "it begins with Start"),
        (message(r#"{"ask":"record","version":9,"wanted":{}}"#), "missing field"),
    ] {
        let peer = say(&bytes);
        agent.next(why);
        drop(peer);
    }
    // A key that nobody has; the connection is closed without a word.
    let mut other = say(&message(r#"{"ask":"join","key":""}"#));
    assert_eq!(other.read(&mut [0; 64]).unwrap(), 0);
    // A peer that leaves in the middle of a recording.
    let wanted = r#"{"events":[{"pattern":"sched","filter":"","is_left_out":false}],"tracer":null,"functions":[],
        "no_functions":[],"graph_functions":[],"graph_depth":null,"pids":[],"children":false,"cpus":null,
        "options":[],"size":null,"clock":"mono","discard":false,"flush":0}"#;
    let record = message(&format!(r#"{{"ask":"record","version":1,"wanted":{wanted}}}"#));
    drop(say(&record));
    agent.next("second connection");
    // As many as may wait: a host comes in nevertheless.
    let silent: Vec<_> = (0..16).map(|_| say(b"")).collect();
    let guest = format!("self@{}", agent.address);
    let rule = ["-e", "sched:sched_process_exit"];
    let ran = crate::record::record(
        &place,
        &[&rule[..], &["-A", &guest], &rule, &["--", "true"]].concat(),
    );
    ran.has_status(0);
    agent.end();
    drop(silent);
    place.is_restored("the end of the agent");
}

/// Waits until events of a guest have come, and its clock was measured. Tasks that exit are events.
pub(crate) fn wait_for_events(place: &Place) {
    let mut described = None;
    wait_until("events came, and the clock was measured", || {
        tool("true", &[]);
        let of = |ending: &str| names(place.path()).into_iter().find(|n| n.ends_with(ending));
        let length = of(".stream").and_then(|name| Some(fs::metadata(place.at(&name)).ok()?.len()));
        // The clock is measured when the events are described.
        let (Some(length), Some(_)) = (length, of(".relation")) else { return false };
        length > *described.get_or_insert(length)
    });
}

/// The numbers of the options TRACEID, GUEST and TIME_SHIFT of a file, by trace-cmd: that of the
/// file, and that of its guest or host.
fn relation(file: &Path) -> (u64, u64) {
    let text = tool("trace-cmd", &["dump", "--options", "-i", file.to_str().unwrap()]).out;
    let lines: Vec<&str> = text.lines().collect();
    let data = |name: &str| -> Option<u64> {
        let at = lines.iter().position(|line| line.contains(name))?;
        let rest = lines[at..].join(" ");
        let number = rest.split("0x").nth(1)?.split(|c: char| !c.is_ascii_hexdigit()).next()?;
        u64::from_str_radix(number, 16).ok()
    };
    let own = data("[Option TRACEID").unwrap_or_else(|| panic!("{text}"));
    let other = data("[Option GUEST").or_else(|| data("[Option TimeShift"));
    (own, other.unwrap_or_else(|| panic!("{text}")))
}

/// Both files that are left have the relation of the clocks, as if the host had ended the recording.
#[test]
fn a_host_that_is_killed_leaves_no_instance_in_its_guest() {
    let Some(place) = tracing() else { return };
    let mut agent = Agent::start(&place);
    let guest = format!("self@{}", agent.address);
    let rule = ["-e", "sched:sched_process_exit"];
    let args = [&["--instance", "lastwords_test"][..], &rule, &["-A", &guest], &rule].concat();
    let mut host = crate::record::start(&place, &args);
    agent.next("recording in the instance");
    assert!(agent.instance().exists());
    // Another host waits for nothing.
    let busy = record(&place, &[&["-o", "busy.dat"][..], &rule, &["-A", &guest], &rule].concat());
    busy.has_status(1);
    busy.says("the agent records for another host");
    wait_for_events(&place);
    host.end(Signal::KILL);
    agent.next("connection");
    wait_until("the agent's instance is gone", || !agent.instance().exists());
    place.run(&["restore"]).has_status(0);
    agent.end();
    place.is_restored("the end of the agent");
    // The events that had come are there for `receive`, with the relation of the clocks.
    let stream = names(place.path()).into_iter().find(|name| name.ends_with(".stream")).unwrap();
    DirBuilder::new().mode(0o700).create(place.at("in")).unwrap();
    for ending in ["stream", "relation"] {
        let name = Path::new(&stream).with_extension(ending);
        fs::rename(place.path().join(&name), place.at("in").join(&name)).unwrap();
    }
    assert_eq!(names(place.path()), ["in", "sessions", "trace.dat"]);
    let args = ["--dir", "in", "--listen", "tcp:127.0.0.1:0"];
    let mut receiver = Receiver::start_until(place.command(), &args, "saved");
    assert_eq!(receiver.first["is_related"], true);
    let why = receiver.first["ended_early"].as_str().unwrap();
    assert!(why.contains("its clock was measured last at "), "{why}");
    let guest = place.at(receiver.first["path"].as_str().unwrap());
    receiver.end(Signal::TERM);
    assert_eq!(names(&place.at("in")), [guest.file_name().unwrap().to_str().unwrap()]);
    let host = place.at("trace.dat");
    let ((host_id, guest_of_host), (guest_id, host_of_guest)) = (relation(&host), relation(&guest));
    assert!(host_id == host_of_guest && guest_id == guest_of_host && host_id != guest_id);
    let both = [host.to_str().unwrap(), "-i", guest.to_str().unwrap()];
    let both = tool("trace-cmd", &[&["report", "-i"][..], &both].concat());
    assert!(both.out.matches("sched_process_exit:").count() > 2, "{}", both.out);
}
