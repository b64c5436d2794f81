//! `watch-guest` beside a QEMU that the test plays: what is read of the guest's memory is what
//! `recover` finds in a file of it. The rig `lab` has the real one (`--scenario watch-guest`).

use crate::persistent::{Made, file};
use crate::support::{Place, Ran, ran};
use lastwords_testkit::form::Form;
use lastwords_testkit::persistent::SIZE;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Stdio};

/// What QEMU says of its guest.
struct Guest {
    /// The answer to `query-memdev`.
    backends: Value,
    /// The file of the memory.
    path: Option<String>,
    /// What the monitor prints of the address space, and of the blocks.
    tree: String,
    blocks: String,
    status: &'static str,
}

impl Guest {
    /// Answers one command.
    fn answer(&self, request: &Value) -> Value {
        let refused = json!({ "error": { "class": "GenericError", "desc": "no such property" } });
        let returned = match request["execute"].as_str().expect("a command") {
            "query-memdev" => self.backends.clone(),
            "query-status" => {
                json!({ "status": self.status, "running": self.status == "running" })
            }
            "human-monitor-command" => match request["arguments"]["command-line"].as_str() {
                Some("info mtree -f") => json!(self.tree),
                Some("info ramblock") => json!(self.blocks),
                other => panic!("{other:?}"),
            },
            "qom-get" => match (request["arguments"]["property"].as_str(), &self.path) {
                (Some("mem-path"), Some(path)) => json!(path),
                _ => return refused,
            },
            "qmp_capabilities" | "stop" | "cont" => json!({}),
            other => panic!("{other}"),
        };
        json!({ "return": returned })
    }

    /// Serves one client until it goes; before each answer comes an event that ends nothing, and
    /// when the client has asked for the state, the panic. Returns the commands.
    fn serve(&self, listener: &UnixListener) -> Vec<String> {
        let (stream, _) = listener.accept().expect("a client");
        let mut lines = BufReader::new(stream);
        let say = |stream: &mut UnixStream, object: Value| {
            let _ = writeln!(stream, "{object}");
        };
        say(lines.get_mut(), json!({ "QMP": { "version": {}, "capabilities": [] } }));
        let mut asked = Vec::new();
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|len| len > 0) {
            let request: Value = serde_json::from_str(&line).expect("JSON");
            line.clear();
            say(lines.get_mut(), json!({ "event": "RTC_CHANGE" }));
            say(lines.get_mut(), self.answer(&request));
            let command = request["execute"].as_str().expect("a command").to_owned();
            if command == "query-status" && !asked.contains(&command) {
                say(lines.get_mut(), json!({ "event": "GUEST_PANICKED" }));
            }
            asked.push(command);
        }
        asked
    }

    /// Runs the program with this guest. Returns how it ended, and the commands that it gave.
    fn watched(&self, place: &Place, more: &[&str]) -> (Ran, Vec<String>) {
        let listener = UnixListener::bind(place.at("qmp")).expect("a socket");
        let child = start(place, more);
        let asked = self.serve(&listener);
        std::fs::remove_file(place.at("qmp")).expect("removed");
        (ran(child.wait_with_output().expect("it ends")), asked)
    }
}

fn start(place: &Place, more: &[&str]) -> Child {
    let mut command = place.command();
    command.args(["watch-guest", "qmp", "-o", "out", "--to", "text"]).args(more);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

/// The memory of a machine in two pieces, with a kernel's persistent ring in the second.
fn memory() -> Vec<u8> {
    let made = Made::new(&file(), Form::Common, 0);
    [&vec![0; 8 * SIZE][..], &made.region.bytes, &vec![0xa5; 3 * SIZE]].concat()
}

/// Where the pieces of `len` bytes are in the machine, as QEMU prints it.
fn tree(len: usize) -> String {
    let (half, high) = (4 * SIZE, 0x1_0000_0000_usize);
    format!(
        "FlatView #0\n AS \"I/O\", root: io\n  0000-00ff (prio 0, ram): mem\n\nFlatView #1\n AS \"memory\", root: system\n \
         Root memory region: system\n  {:016x}-{:016x} (prio 0, ram): mem KVM\n  00000000fffc0000-00000000ffffffff (prio 0, rom): pc.bios\n  \
         {high:016x}-{:016x} (prio 0, ram): mem @{half:016x}\n",
        0,
        half - 1,
        high + len - half - 1,
    )
}

fn texts(folder: &Path) -> BTreeMap<String, String> {
    let entry = |entry: std::io::Result<std::fs::DirEntry>| {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("a text");
        (path.file_name().expect("a name").to_string_lossy().into_owned(), text)
    };
    std::fs::read_dir(folder).expect("a folder").map(entry).collect()
}

#[test]
fn the_memory_is_read_from_a_file_or_from_qemu() {
    let place = Place::new();
    let memory = memory();
    std::fs::write(place.at("ram"), &memory).expect("written");
    let raw = format!("--raw=0+{:#x},0x100000000+{:#x}", 4 * SIZE, memory.len() - 4 * SIZE);
    let expected = place.run(&["recover", "ram", &raw, "-o", "expected", "--to", "text"]);
    let expected_texts = texts(&place.at("expected"));
    assert!(expected_texts.values().any(|text| text.lines().count() > 10), "{expected:?}");
    let block = format!(
        "Block Name PSize Offset Used Total HVA RO\n mem 4 KiB 0x0 {len:#x} {len:#x} {:#018x} rw\n",
        memory.as_ptr() as usize,
        len = memory.len(),
    );
    let guest = |share, path: Option<&str>| Guest {
        backends: json!([{ "id": "mem", "share": share, "size": memory.len() }]),
        path: path.map(|name| place.at(name).display().to_string()),
        tree: tree(memory.len()),
        blocks: block.clone(),
        status: "running",
    };
    for (guest, from) in [
        (guest(true, Some("ram")), place.at("ram").display().to_string()),
        // The guest's writes do not reach the file.
        (guest(false, Some("ram")), format!("/proc/{}/mem", std::process::id())),
        (guest(true, Some("absent")), format!("/proc/{}/mem", std::process::id())),
        (guest(true, None), format!("/proc/{}/mem", std::process::id())),
    ] {
        let (ran, asked) = guest.watched(&place, &["--force"]);
        ran.has_status(expected.status).says(&format!("are in {from}"));
        ran.prints("the guest panicked").prints("read in ");
        let found: Vec<String> = texts(&place.at("out")).into_values().collect();
        let known: Vec<String> = expected_texts.values().cloned().collect();
        assert_eq!(found, known, "{from}");
        assert!(asked.iter().any(|command| command == "stop"), "{asked:?}");
        assert!(asked.iter().all(|command| command != "cont"), "{asked:?}");
        // Read while it runs, it goes on.
        let (ran, asked) = guest.watched(&place, &["--force", "--now"]);
        ran.has_status(expected.status).prints("the guest stands still");
        assert_eq!(asked.last().map(String::as_str), Some("cont"));
    }
}

#[test]
fn a_guest_whose_places_are_not_known_is_refused() {
    let place = Place::new();
    let guest = |tree: String, blocks: &str| Guest {
        backends: json!([{ "id": "mem", "share": false }]),
        path: None,
        tree,
        blocks: blocks.to_owned(),
        status: "guest-panicked",
    };
    let (long, short) = (tree(1 << 20), "mem 4 KiB 0x0 0x1000 0x1000 0x7000 rw\n");
    for (guest, says) in [
        (guest(String::new(), short), "does not say where the guest's memory is"),
        (guest(long.replace(" mem", " other"), short), "does not say where the guest's memory is"),
        (guest(long.clone(), ""), "does not say where its memory of the guest is"),
        // A block that is shorter than the guest's memory in it.
        (guest(long.clone(), short), "does not say where its memory of the guest is"),
    ] {
        let (ran, _) = guest.watched(&place, &[]);
        ran.has_status(1).says("qmp: ").says(says);
    }
}

#[test]
fn what_is_not_qemu_is_refused() {
    let long = "x".repeat(17 << 20);
    for (first, says) in [
        ("", "QEMU has ended"),
        ("hello\n", "a line that is not JSON"),
        ("{\"return\": {}}\n", "not a socket of QMP"),
        (long.as_str(), "more than 16777216 bytes"),
    ] {
        let place = Place::new();
        let listener = UnixListener::bind(place.at("qmp")).expect("a socket");
        let child = start(&place, &[]);
        let (mut stream, _) = listener.accept().expect("a client");
        // The program may have read enough.
        let _ = stream.write_all(first.as_bytes());
        drop(stream);
        ran(child.wait_with_output().expect("it ends")).has_status(1).says(says);
    }
    let place = Place::new();
    place.run(&["watch-guest", "qmp", "-o", "out"]).has_status(1).says("qmp: No such file");
}
