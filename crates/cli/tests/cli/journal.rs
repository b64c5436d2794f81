//! `why --journal`: entries of the system's journal, as a socket gets them and as journald has them.

use crate::pods::library;
use crate::support::{Place, assert_members, hooks, ran};
use crate::why::ended;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::Signal;
use serde_json::json;
use std::collections::BTreeMap;
use std::io::{IoSliceMut, Read as _, Seek as _};
use std::mem::MaybeUninit;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::Command;

/// The fields of an entry, each with its values.
type Fields = BTreeMap<String, Vec<String>>;

/// Parses an entry of the native protocol.
fn parse(mut bytes: &[u8]) -> Fields {
    let mut fields = Fields::new();
    while !bytes.is_empty() {
        let end = bytes.iter().position(|byte| [b'=', b'\n'].contains(byte)).expect("a name");
        let name = String::from_utf8(bytes[..end].to_vec()).expect("a name");
        let (value, rest) = if bytes[end] == b'=' {
            let rest = &bytes[end + 1..];
            rest.split_at(rest.iter().position(|byte| *byte == b'\n').expect("an end"))
        } else {
            let (len, rest) = bytes[end + 1..].split_first_chunk::<8>().expect("a length");
            rest.split_at(u64::from_le_bytes(*len) as usize)
        };
        assert_eq!(rest[0], b'\n', "{name}");
        fields.entry(name).or_default().push(String::from_utf8(value.to_vec()).expect("text"));
        bytes = &rest[1..];
    }
    fields
}

/// Runs `why --journal` on the only session of a place, with a socket of the test.
fn entry_of(place: &Place) -> (Fields, bool) {
    let socket = UnixDatagram::bind(place.at("socket")).expect("a socket");
    let socket_path = place.at("socket");
    let args = ["why", "shop", "--journal", "--journal-socket", socket_path.to_str().unwrap()];
    let page = place.ok(&args);
    assert!(page.lines().filter(|line| line.contains(" shop:")).count() <= 7, "{page}");
    let mut bytes = vec![0; 1 << 20];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let got = recvmsg(&socket, &mut parts, &mut control, RecvFlags::empty()).expect("an entry");
    bytes.truncate(got.bytes);
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let is_file = file.is_some();
    if let Some(file) = file {
        assert!(bytes.is_empty(), "all is in the file");
        let seals = rustix::fs::fcntl_get_seals(&file).expect("seals");
        assert_eq!(seals.bits() & 0xf, 0xf, "journald takes sealed files only");
        let mut file = std::fs::File::from(file);
        file.rewind().expect("from its beginning");
        file.read_to_end(&mut bytes).expect("read");
    }
    (parse(&bytes), is_file)
}

#[test]
fn an_entry_has_the_verdict_and_the_last_events() {
    let place = ended("panic", None);
    let (fields, is_file) = entry_of(&place);
    let one = |name: &str| match fields.get(name).map(Vec::as_slice) {
        Some([value]) => value.as_str(),
        other => panic!("{name}: {other:?} in {fields:#?}"),
    };
    let lines: Vec<&str> = one("MESSAGE").lines().collect();
    assert!(lines[0].starts_with("session shop: panic in thread "), "{lines:#?}");
    assert_eq!((lines[1], lines.len() > 11), ("", true), "{lines:#?}");
    let message_id = one("MESSAGE_ID");
    assert!(message_id.len() == 32 && message_id.bytes().all(|byte| byte.is_ascii_hexdigit()));
    assert_eq!((one("PRIORITY"), one("SYSLOG_IDENTIFIER")), ("2", "lastwords"));
    assert_eq!((one("LASTWORDS_SESSION"), one("LASTWORDS_CAUSE")), ("shop", "panic"));
    assert!(one("LASTWORDS_LAST_ERROR").contains(" shop:failed: "), "{fields:#?}");
    assert!(fields["LASTWORDS_EVIDENCE"][0].starts_with("exit record: `panic`"), "{fields:#?}");
    assert_eq!(one("LASTWORDS_LOST"), "nothing lost");
    assert_eq!(one("LASTWORDS_LAST_EVENTS"), lines[2..].join("\n"));
    let pid: u32 = one("COREDUMP_PID").parse().expect("a process");
    assert!(pid > 1 && one("COREDUMP_TIMESTAMP").len() == 16, "{fields:#?}");
    // The event's text has an escape sequence and a line break, which no value has.
    let values = || fields.values().flatten();
    assert!(!values().any(|value| value.contains('\u{1b}')), "{fields:#?}");
    assert!(!values().any(|value| value.lines().any(|line| line == "stock")), "{fields:#?}");
    assert!(!is_file);
}

#[test]
fn a_signal_and_a_large_entry() {
    let place = ended("abort", None);
    let (fields, _) = entry_of(&place);
    let of = |name: &str| fields[name][0].as_str();
    assert_eq!((of("COREDUMP_SIGNAL"), of("COREDUMP_SIGNAL_NAME")), ("6", "SIGABRT"));
    assert!(!of("LASTWORDS_BACKTRACE").is_empty());
    let place = ended("large", Some(Signal::KILL));
    let (fields, is_file) = entry_of(&place);
    assert_eq!(fields["LASTWORDS_LAST_EVENTS"][0].lines().count(), 50);
    assert!(is_file, "50 events of 8,000 bytes fit into no datagram");
    assert_eq!((&*fields["PRIORITY"][0], &*fields["LASTWORDS_CAUSE"][0]), ("4", "unknown"));
    assert!(!fields.contains_key("COREDUMP_TIMESTAMP"), "the time of the end is not known");
}

#[test]
fn without_a_journal_it_is_an_error() {
    let place = ended("exit_3", None);
    let ran = place.run(&["why", "shop", "--journal", "--journal-socket", "none"]);
    ran.has_status(1).says("none: the journal takes no entry");
}

/// journald itself, in a mount namespace, and the script of the units. As root only.
#[test]
fn journald_has_what_collect_writes() {
    let journald = Path::new("/usr/lib/systemd/systemd-journald");
    if !rustix::process::geteuid().is_root() || !journald.exists() {
        return;
    }
    let place = ended("large", Some(Signal::KILL));
    let hooks = hooks();
    let script = r#"
        set -e
        mount -t tmpfs none /run
        mkdir -p /run/systemd/journal /run/log/journal
        echo 0123456789abcdef0123456789abcdef > /run/machine-id
        mount --bind /run/machine-id /etc/machine-id
        /usr/lib/systemd/systemd-journald > /run/journald 2>&1 & journald=$!
        until [ -S /run/systemd/journal/socket ]; do kill -0 $journald; sleep 0.05; done
        sh "$COLLECT" --journal > /run/collect
        sh "$COLLECT" --journal >> /run/collect
        n=0
        until journalctl --directory=/run/log/journal --all -o json SYSLOG_IDENTIFIER=lastwords > /run/found && [ -s /run/found ]; do
            n=$((n + 1)); [ $n -lt 100 ]; sleep 0.1
        done
        kill $journald
        cat /run/found
    "#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", script]);
    command.env("COLLECT", hooks.join("systemd/collect"));
    command.env("LASTWORDS_LIBRARY", library(&place, &hooks));
    command.env("LASTWORDS_PROGRAM", env!("CARGO_BIN_EXE_lastwords"));
    command.env("LASTWORDS_PLACES", place.sessions()).env("LASTWORDS_CORES", place.at("cores"));
    command.env("LASTWORDS_REPORTS", place.at("reports"));
    let found = ran(command.output().expect("unshare"));
    found.has_status(0);
    // The second run has nothing new to say.
    let [entry] = found.out.lines().collect::<Vec<_>>()[..] else { panic!("{found:?}") };
    let entry: serde_json::Value = serde_json::from_str(entry).expect("JSON");
    assert_members(&entry, &json!({ "LASTWORDS_SESSION": "shop", "PRIORITY": "4" }));
    assert_eq!(entry["_TRANSPORT"], "journal");
    let events = entry["LASTWORDS_LAST_EVENTS"].as_str().expect("text");
    assert_eq!(events.lines().filter(|line| line.contains("shop:large")).count(), 50);
}
