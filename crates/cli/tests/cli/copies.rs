//! What the recorder and the two ends of a stream copy in user space, by their system calls.

use super::record::{Recorder, TRACEFS, names, told, tracing, wait_for_instance};
use super::stream::{Receiver, path};
use crate::support::{Place, tool, wait_until, words};
use rustix::process::Signal;
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The calls of strace's output that moved bytes: name, arguments, bytes.
pub(crate) fn calls(text: &str) -> Vec<(&str, &str, u64)> {
    fn parse(line: &str) -> Option<(&str, &str, u64)> {
        let (name, rest) = line.split_once('(')?;
        let (args, result) = rest.rsplit_once(" = ")?;
        Some((
            name,
            args,
            result.split(' ').next()?.parse::<u64>().ok().filter(|bytes| *bytes > 0)?,
        ))
    }
    text.lines().filter_map(parse).collect()
}

/// Starts a recorder of these events under strace, which writes the file `calls`, and waits until
/// it records.
fn under_strace<'a>(place: &'a Place, options: &[&str], events: &[&str]) -> Recorder<'a> {
    let mut command = Command::new("strace");
    // With -D, the process that is started is the recorder, and strace is its grandchild.
    command
        .arg("-D")
        .args(options)
        .arg("-o")
        .arg(place.at("calls"))
        .arg(env!("CARGO_BIN_EXE_lastwords"));
    command.args(["record", "--stream"]).args(events).args(["--instance", "lastwords_test"]);
    command.current_dir(place.path()).env("LASTWORDS_DIR", place.sessions()).process_group(0);
    let child =
        command.stderr(Stdio::piped()).spawn().expect("strace is needed: cargo xtask setup");
    let recorder = Recorder::new(child, place);
    wait_for_instance("lastwords_test");
    recorder
}

/// The text of all files that strace has written, one for each thread.
fn logs(place: &Place, begin: &str) -> String {
    let logs = names(place.path())
        .into_iter()
        .filter(|name| name.starts_with(begin))
        .map(|name| place.at(&name));
    let ended = |log: PathBuf| {
        wait_until("strace has ended", || {
            fs::read_to_string(&log).is_ok_and(|text| text.contains("+++ exited"))
        });
        fs::read_to_string(log).unwrap()
    };
    logs.map(ended).collect()
}

#[test]
fn a_stream_is_not_copied_in_user_space() {
    let Some(place) = tracing() else { return };
    let list =
        "trace=read,write,pread64,pwrite64,readv,writev,splice,copy_file_range,sendfile,mmap";
    // With -ff, each thread has a file.
    let mut recorder = under_strace(
        &place,
        &["-ff", "-y", "-s", "0", "-e", list],
        &["-e", "syscalls:*", "-e", "sched:*"],
    );
    // No CPU's file may become so large that it becomes the trace in place, in which case nothing
    // is copied out of it. So the work is short, also on a machine with more to do.
    for _ in 0..50 {
        (0..1_000).for_each(|_| assert!(rustix::process::getppid().is_some()));
        std::thread::sleep(Duration::from_millis(1));
    }
    let ended = recorder.end(Signal::INT);
    ended.has_status(0);
    assert!(told(&ended) > 10_000, "{}", ended.err);
    let text = logs(&place, "calls.");
    let all = calls(&text);
    let sum = |name: &str, of: &str| -> u64 {
        all.iter()
            .filter(|(call, args, _)| *call == name && args.contains(of))
            .map(|(.., bytes)| bytes)
            .sum()
    };
    let size = fs::metadata(place.at("trace.dat")).unwrap().len();
    let (spliced, copied) = (sum("splice", "trace_pipe_raw"), sum("copy_file_range", ".cpu"));
    // The rest is the head of the file, with kallsyms and formats.
    assert!(spliced > 1 << 20 && copied >= spliced && size >= copied, "{spliced} {copied} {size}");
    assert_eq!(sum("splice", ".cpu"), spliced, "all of it went into the files");
    // `splice` gives full sub-buffers only. The last one of each CPU is read, after the end.
    let page = u64::try_from(rustix::param::page_size()).unwrap();
    let cpus = u64::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
    let is_data = |args: &str| args.contains("trace_pipe_raw") || args.contains(".cpu");
    let touched: Vec<_> = all
        .iter()
        .filter(|(name, args, _)| !["splice", "copy_file_range"].contains(name) && is_data(args))
        .collect();
    assert!(
        touched.iter().all(|(_, args, bytes)| *bytes <= page && !args.contains(".new")),
        "{touched:?}"
    );
    assert!(touched.len() as u64 <= 2 * cpus, "a read and a write for each CPU: {touched:?}");
    assert_eq!(copied, spliced + sum("read", "trace_pipe_raw"));
}

/// The kernel finds no memory for every third read of a ring.
#[test]
fn reads_that_find_no_memory_are_made_again() {
    let Some(place) = tracing() else { return };
    let raw = |cpu| format!("-P{TRACEFS}/instances/lastwords_test/per_cpu/cpu{cpu}/trace_pipe_raw");
    let paths: Vec<String> =
        (0..std::thread::available_parallelism().unwrap().get()).map(raw).collect();
    let mut options =
        vec!["-f", "-e", "trace=splice,read", "-e", "inject=splice,read:error=ENOMEM:when=1+3"];
    options.extend(paths.iter().map(String::as_str));
    let mut recorder = under_strace(&place, &options, &["-e", "syscalls:*"]);
    tool("find", &["/usr/lib", "-name", "x"]);
    let ended = recorder.end(Signal::INT);
    ended.has_status(0);
    assert!(told(&ended) > 10_000, "{}", ended.err);
    let failed = fs::read_to_string(place.at("calls")).unwrap().matches("ENOMEM").count();
    assert!(failed > 2, "{failed} reads found no memory");
}

#[test]
fn a_stream_is_not_copied_in_user_space_at_either_end() {
    let Some(place) = tracing() else { return };
    let list = "trace=read,write,pread64,pwrite64,readv,writev,splice,copy_file_range,sendfile,sendto,sendmsg,recvfrom,recvmsg";
    let strace = |log: &str| {
        let mut strace = Command::new("strace");
        strace.args(["-D", "-ff", "-y", "-s", "0", "-e", list, "-o"]);
        strace.arg(place.at(log)).arg(place.command().get_program());
        strace.current_dir(place.path()).env("LASTWORDS_DIR", place.sessions()).process_group(0);
        strace
    };
    let mut receiver = Receiver::start(strace("to"), &["-d", "in", "--listen", "tcp:127.0.0.1:0"]);
    let mut command = strace("from");
    command.args(words("record -e syscalls:* -e sched:* --instance lastwords_test -o"));
    command.arg(&receiver.address);
    let begun = Instant::now();
    let child =
        command.stderr(Stdio::piped()).spawn().expect("strace is needed: cargo xtask setup");
    let mut recorder = Recorder::new(child, &place);
    wait_for_instance("lastwords_test");
    for _ in 0..4 {
        tool("find", &["/usr/lib", "-name", "x"]);
    }
    let ended = recorder.end(Signal::INT);
    let seconds = begun.elapsed().as_secs() + 1;
    assert!(ended.status == 0 && told(&ended) > 10_000, "{}", ended.err);
    let saved = receiver.next("saved");
    receiver.end(Signal::INT);
    let (from, to) = (logs(&place, "from."), logs(&place, "to."));
    let sum = |text: &str, name: &str, first: &str| -> u64 {
        let of = |args: &str| args.split('>').next().is_some_and(|args| args.contains(first));
        calls(text)
            .iter()
            .filter(|(call, args, _)| *call == name && of(args))
            .map(|(.., bytes)| bytes)
            .sum()
    };
    let all = |text: &str, names: &[&str], first: &str| {
        names.iter().map(|name| sum(text, name, first)).sum::<u64>()
    };
    let page = u64::try_from(rustix::param::page_size()).unwrap();
    let cpus = u64::try_from(std::thread::available_parallelism().unwrap().get()).unwrap();
    let spliced = sum(&from, "splice", "trace_pipe_raw");
    assert!(spliced > 1 << 20, "{spliced}");
    // `splice` gives full sub-buffers only. The last one of each CPU is read, after the end; and at
    // each flush the one that is being filled, and later its rest. Besides, descriptions are sent:
    // what the calls of the sender send is what is no sub-buffer.
    let read = all(&from, &["read", "pread64", "readv"], "trace_pipe_raw");
    assert!(read <= page * cpus * (2 * seconds + 1), "{read} in {seconds} s");
    let data = spliced + read;
    let size = fs::metadata(path(&place, &saved)).unwrap().len();
    assert!(size >= data, "{size} {data}");
    // What goes into the pipe comes out of it, to the socket.
    assert_eq!(sum(&from, "splice", "pipe:"), spliced);
    // The receiver reads headers and JSON alone, and writes the same into the spool; all else is
    // spliced and copied by the kernel. Some versions of strace name a socket by its protocol.
    let of_socket = |name: &str| sum(&to, name, "TCP") + sum(&to, name, "socket:");
    let (taken, moved, touched) =
        (of_socket("splice"), sum(&to, "copy_file_range", ".stream"), of_socket("recvfrom"));
    assert!(taken >= data && moved == data, "{taken} {moved} {data}");
    // A frame has a header of 16 bytes and one sub-buffer at least; the settings and the account
    // are JSON.
    let most = data / page * 16 + 20_000;
    assert!(touched < most, "{touched} bytes of headers, of {data}");
    assert!(all(&to, &["write", "pwrite64"], ".stream") < most);
}
