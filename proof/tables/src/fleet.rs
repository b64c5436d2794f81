//! A fleet: a thousand crashes of many hosts, made here and of the stored cases.
//!
//! Sessions of programs that panicked have random times, hosts, process ids, builds and places of
//! the panic, and are written by testkit; traces of a scheduler and copies of a kernel's trace.dat
//! file with another release are among them; every twentieth input is damaged.

use crate::inputs::CASES;
use crate::{Lab, damage};
use anyhow::{Result, ensure};
use lastwords_testkit::image::Image;
use lastwords_testkit::layout::{region, session as layout};
use lastwords_testkit::put::{Order, Packed};
use lastwords_testkit::random::Random;
use lastwords_testkit::ring::Event;
use lastwords_testkit::schema::{Record, Type};
use lastwords_testkit::session::{ChannelSpec, Session, seal};
use lastwords_testkit::{samples, scheduling};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const DAY: u64 = 86_400_000_000_000;
const PROGRAMS: [&str; 4] = ["shop", "billing", "search", "mailer"];
const FILES: [&str; 6] = ["cart.rs", "order.rs", "index.rs", "queue.rs", "session.rs", "main.rs"];
/// An ending by a panic, in the words of the format in memory.
const PANICKED: u32 = 3;

/// A session that was made.
struct Made {
    uuid: [u8; 16],
    host: String,
    program: &'static str,
    file: &'static str,
    /// The time of its last event, nanoseconds since the epoch.
    at: u64,
}

/// Makes the inputs in a folder, and a list of the crashes that must be recovered of them.
pub(crate) fn make(lab: &Lab, crashes: u64, folder: &Path, truth: &Path) -> Result<()> {
    std::fs::create_dir(folder)?;
    let mut random = Random(lab.seed);
    let dat = kernel_trace(lab)?;
    let mut lines = "crash_id,host,program,file,ts\n".to_owned();
    for number in 0..crashes {
        let path = folder.join(format!("crash-{number:05}"));
        match number % 20 {
            18 => {
                std::fs::create_dir(&path)?;
                scheduling::write(&path, &mut Random(random.bits()), random.one_in(2));
            }
            17 if !dat.is_empty() => std::fs::write(&path, of_release(&dat, number))?,
            kind => {
                let (image, made) = session(&mut random);
                image.write_folder(&path)?;
                if kind == 19 {
                    let name = *random.pick(&["session", "registry"]);
                    damage::damage(&path.join(name), &mut random)?;
                } else {
                    line(&mut lines, &made)?;
                }
            }
        }
    }
    Ok(std::fs::write(truth, lines)?)
}

/// Makes the inputs, ingests them, and compares the answers of DuckDB with what was made.
pub(crate) fn run(lab: &Lab, crashes: u64) -> Result<()> {
    let (folder, set, truth) = (lab.at("fleet"), lab.at("fleet-set"), lab.at("fleet.csv"));
    make(lab, crashes, &folder, &truth)?;
    let begun = Instant::now();
    let ran = lab.ingest(&[&folder], &set, &[])?;
    let seconds = begun.elapsed().as_secs_f64();
    let said = String::from_utf8_lossy(&ran.stderr);
    ensure!(matches!(ran.status.code(), Some(0 | 1)), "{}: {said}", ran.status);
    print!("{}{said}", String::from_utf8_lossy(&ran.stdout));
    println!("fleet: {crashes} inputs in {seconds:.1} s, {:.1} a second", crashes as f64 / seconds);
    lab.judge("fleet", &[&set, &truth])
}

fn line(lines: &mut String, made: &Made) -> Result<()> {
    let Made { uuid, host, program, file, at } = made;
    let hex: String = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-");
    Ok(writeln!(lines, "{parts},{host},{program},{file},{at}")?)
}

/// Returns the bytes of a kernel's trace.dat file, if there are cases.
fn kernel_trace(lab: &Lab) -> Result<Vec<u8>> {
    let (dump, dat) = (rig::beside().join("cases").join(CASES[0]), lab.at("fleet.dat"));
    if !dump.exists() {
        return Ok(Vec::new());
    }
    let mut recover: Command = lab.lastwords();
    rig::run_quietly(recover.arg("recover").arg(&dump).arg("-o").arg(&dat))?;
    Ok(std::fs::read(&dat)?)
}

/// Returns the file with another release of the kernel in its `uname`, and with another length: the
/// identity of a large file is a hash of samples.
fn of_release(dat: &[u8], number: u64) -> Vec<u8> {
    let mut bytes = dat.to_vec();
    let release = format!("6.12.{:02}", number / 20 % 100);
    let places: Vec<usize> = (0..bytes.len().saturating_sub(release.len()))
        .filter(|at| bytes[*at..].starts_with(b"6.12.") && bytes[at + 5].is_ascii_digit())
        .collect();
    for at in places {
        bytes[at..at + release.len()].copy_from_slice(release.as_bytes());
    }
    bytes.resize(bytes.len() + number as usize, 0);
    bytes
}

/// Makes the session of a program that panicked.
fn session(random: &mut Random) -> (Image, Made) {
    let (program, file) = (*random.pick(&PROGRAMS), *random.pick(&FILES));
    let mut own = Session::new(program, layout::RSEQ);
    for byte in &mut own.uuid {
        *byte = random.bits() as u8;
    }
    let moved = random.below(90) * DAY + random.below(DAY);
    own.clock.samples[..2].iter_mut().for_each(|sample| sample[2] += moved);
    let channel = own.channel(ChannelSpec::new("main", 4096, 4));
    samples::describe(&mut own, channel);
    own.records.push(Record::Event {
        channel: 0,
        id: PANIC,
        level: 3,
        name: ("crash".into(), "panic".into()),
        format: String::new(),
        source: ("panic.rs".into(), 1),
        fields: ["message", "location", "thread"]
            .map(|name| (name.to_owned(), Type::String))
            .into(),
    });
    let build = random.below(3);
    let module = format!("/opt/{program}-{build}/bin/{program}");
    own.records.push(Record::Module {
        pid: 4242,
        addresses: [0x1000, 0x2000, 0x3000],
        build_id: vec![build as u8; 20],
        path: module.clone(),
    });
    own.stream(channel, 0, layout::RSEQ);
    let ring = &mut own.rings[0];
    samples::record(ring, 0, 20 + random.below(60) as u32, &[]);
    let clock = 1 << 33;
    let place = format!("src/{file}:{}:5", 10 + random.below(400));
    let text = format!("no item {}", random.below(1000));
    let body = Packed::new(Order::Little).string(&text).string(&place).string("main");
    ring.push(&Event { clock, id: PANIC, body: body.done() });
    let host = format!("host-{:03}", random.below(40));
    let at = own.clock.samples[0][2] - own.clock.samples[0][0] + clock;
    let made = Made { uuid: own.uuid, host: host.clone(), program, file, at };
    let mut image = own.image();
    let bytes = &mut image.regions[0].bytes;
    let info = layout::INFO_AT;
    put_text(bytes, info + layout::HOSTNAME_AT, &host);
    put_text(bytes, info + layout::PROGRAM_AT, &module);
    let control = region::HEADER_LEN + layout::INFO_LEN + 32;
    Order::Little.put32(bytes, control + layout::ENDING_AT, PANICKED);
    Order::Little.put32(bytes, control + layout::RECORDING_AT, 0);
    seal(bytes, Order::Little, layout::INFO_LEN);
    (image, made)
}

/// The id of the event of a panic.
const PANIC: u16 = 40;

fn put_text(bytes: &mut [u8], at: usize, text: &str) {
    bytes[at..at + 32].fill(0);
    bytes[at..at + text.len()].copy_from_slice(text.as_bytes());
}
