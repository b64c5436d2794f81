//! `cargo xtask bench ctf`: how fast a CTF trace in LTTng's layout is read, beside babeltrace2:
//! text, counting, CTF to CTF.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use super::floors::{Limit, Verdict};
use super::programs::Programs;
use super::stopwatch::Laps;
use super::{Clock, Judging, report};
use rig::scratch::Scratch;

/// Streams of the trace, and bytes of their packets.
const STREAMS: u64 = 4;
const PACKET: usize = 1 << 20;
/// Times as fast as babeltrace2 that text, and counting and copying, are at least.
const TEXT: f64 = 20.0;
const COUNT: f64 = 30.0;
/// Most resident memory, bytes.
const MEMORY: f64 = 100e6;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Events of the trace
    #[arg(long, value_name = "N", default_value_t = 20_000_000)]
    events: u64,
    /// How often each program runs
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// One CPU that everything runs on; without it, all, of which babeltrace2 uses one
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Where the trace is made; memory where there is room
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    judging: Judging,
}

pub(super) fn run(args: &Args) -> Result<()> {
    eprintln!("building");
    let programs = Programs::build()?;
    let lastwords = rig::programs::lastwords()?;
    let scratch = Scratch::create(
        &args.dir.clone().unwrap_or_else(std::env::temp_dir),
        "lastwords-bench-ctf",
    )?;
    let trace = scratch.path().join("trace");
    eprintln!("writing {} events", args.events);
    write_trace(&trace, args.events)?;
    let (copy, their_copy) = (scratch.path().join("copy"), scratch.path().join("their-copy"));
    let commands = commands(lastwords.as_os_str(), &trace, &copy, &their_copy);
    let mut laps = [const { None }; 6].map(|_: Option<Laps>| Laps::default());
    for _ in 0..args.rounds.max(1) {
        for (lap, (name, command)) in laps.iter_mut().zip(&commands) {
            eprintln!("{name}");
            for out in [&copy, &their_copy] {
                if out.exists() {
                    std::fs::remove_dir_all(out).with_context(|| out.display().to_string())?;
                }
            }
            lap.run(&programs.bench, args.cpu, command)?;
        }
    }
    let mut rows = Vec::new();
    for (lap, (name, _)) in laps.iter().zip(&commands) {
        let seconds = lap.seconds(args.judging.clock).context("no runs")?;
        let rate = args.events as f64 / seconds.median / 1e6;
        let cpu = lap.seconds(Clock::Cpu).map_or(0.0, |cpu| cpu.median);
        let memory = lap.peak_rss() as f64 / 1e6;
        println!(
            "{name:<24} {rate:>9.2} M events/s {:>8.2} s {cpu:>8.2} s of CPUs {memory:>8.1} MB",
            seconds.median
        );
        rows.push((*name, rate, lap.peak_rss()));
    }
    let ratio = |n: usize| Some(rows.get(n)?.1 / rows.get(n + 1)?.1);
    let memory = rows.iter().step_by(2).map(|row| row.2 as f64).reduce(f64::max);
    let verdicts = [
        Verdict::new("text against babeltrace2", Limit::AtLeast(TEXT), ratio(0)),
        Verdict::new("counting against babeltrace2", Limit::AtLeast(COUNT), ratio(2)),
        Verdict::new("CTF to CTF against babeltrace2", Limit::AtLeast(COUNT), ratio(4)),
        Verdict::new("memory, bytes", Limit::AtMost(MEMORY), memory),
    ];
    print!("{}", report::floors(&verdicts));
    let data: Vec<_> = rows
        .iter()
        .map(|(name, rate, rss)| json!({"name": name, "million_events_s": rate, "peak_rss": rss}))
        .collect();
    args.judging.end(json!({ "events": args.events, "rows": data }), &verdicts)
}

/// The programs to compare: what each does, and its command. Ours and theirs take turns.
fn commands<'a>(
    ours: &'a OsStr,
    trace: &'a Path,
    copy: &'a Path,
    their_copy: &'a Path,
) -> [(&'static str, Vec<&'a OsStr>); 6] {
    let (word, trace) = (OsStr::new, trace.as_os_str());
    let theirs = word("babeltrace2");
    let (copy, their_copy) = (copy.as_os_str(), their_copy.as_os_str());
    let convert = vec![ours, word("convert"), trace, word("-o"), copy, word("--to"), word("ctf")];
    let their_convert = vec![theirs, trace, word("-o"), word("ctf"), word("-w"), their_copy];
    [
        ("text", vec![ours, word("report"), trace]),
        ("babeltrace2: text", vec![theirs, trace]),
        ("counting", vec![ours, word("inspect"), trace]),
        ("babeltrace2: dummy", vec![theirs, trace, word("-o"), word("dummy")]),
        ("to CTF", convert),
        ("babeltrace2: to CTF", their_convert),
    ]
}

/// LTTng's metadata of such a trace, shortened.
const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; align = 8; signed = false; } := uint8_t;
typealias integer { size = 32; align = 8; signed = false; } := uint32_t;
typealias integer { size = 64; align = 8; signed = false; } := uint64_t;
typealias integer { size = 5; align = 1; signed = false; } := uint5_t;
trace {
	major = 1; minor = 8; byte_order = le; uuid = "01020304-0506-0708-090a-0b0c0d0e0f10";
	packet.header := struct { uint32_t magic; uint8_t uuid[16]; uint32_t stream_id; uint64_t stream_instance_id; };
};
env { hostname = "bench"; domain = "kernel"; };
clock { name = "monotonic"; freq = 1000000000; offset = 1700000000000000000; };
typealias integer { size = 27; align = 1; signed = false; map = clock.monotonic.value; } := uint27_clock_t;
typealias integer { size = 64; align = 8; signed = false; map = clock.monotonic.value; } := uint64_clock_t;
struct event_header_compact {
	enum : uint5_t { compact = 0 ... 30, extended = 31 } id;
	variant <id> {
		struct { uint27_clock_t timestamp; } compact;
		struct { uint32_t id; uint64_clock_t timestamp; } extended;
	} v;
} align(8);
stream {
	id = 0;
	event.header := struct event_header_compact;
	packet.context := struct {
		uint64_clock_t timestamp_begin; uint64_clock_t timestamp_end; uint64_t content_size; uint64_t packet_size;
		uint64_t packet_seq_num; uint64_t events_discarded; uint32_t cpu_id;
	};
};
event { name = "sched_waking"; id = 0; stream_id = 0; fields := struct {
	integer { size = 8; align = 8; signed = false; encoding = UTF8; } _comm[16];
	integer { size = 32; align = 8; signed = true; } _tid; integer { size = 32; align = 8; signed = true; } _prio; };
};
event { name = "syscall_entry_read"; id = 1; stream_id = 0; fields := struct {
	uint32_t _fd; integer { size = 64; align = 8; base = 16; } _buf; uint64_t _count; };
};
event { name = "app:message"; id = 2; stream_id = 0; fields := struct { uint64_t _number; string _text; }; };
"#;

/// Bytes of a packet's header and context.
const HEAD: usize = 32 + 52;

/// Writes a trace of so many events, each stream's every third of a kind.
fn write_trace(folder: &Path, events: u64) -> Result<()> {
    std::fs::create_dir(folder).with_context(|| folder.display().to_string())?;
    std::fs::write(folder.join("metadata"), METADATA)?;
    for stream in 0..STREAMS {
        let mut file = BufWriter::new(File::create(folder.join(format!("channel0_{stream}")))?);
        let (mut packet, mut sequence, mut begin) = (vec![0; HEAD], 0, 0);
        let count = events / STREAMS + u64::from(stream < events % STREAMS);
        for number in 0..count {
            let clock = 1000 + (number * STREAMS + stream) * 250;
            if packet.len() == HEAD {
                begin = clock;
            }
            event(&mut packet, number, clock);
            if packet.len() > PACKET - 64 || number + 1 == count {
                head(&mut packet, stream, sequence, begin, clock);
                file.write_all(&packet)?;
                packet.clear();
                packet.resize(HEAD, 0);
                sequence += 1;
            }
        }
        file.flush()?;
    }
    Ok(())
}

fn event(packet: &mut Vec<u8>, number: u64, clock: u64) {
    let id = (number % 3) as u32;
    packet.extend_from_slice(&((clock as u32) << 5 | id).to_le_bytes());
    match id {
        0 => {
            packet.extend_from_slice(b"kworker/u16:3\0\0\0");
            packet.extend_from_slice(&(number as u32 % 40_000).to_le_bytes());
            packet.extend_from_slice(&120u32.to_le_bytes());
        }
        1 => {
            packet.extend_from_slice(&(number as u32 % 64).to_le_bytes());
            packet.extend_from_slice(&(0x7f00_0000_0000 | number << 4).to_le_bytes());
            packet.extend_from_slice(&4096u64.to_le_bytes());
        }
        _ => {
            packet.extend_from_slice(&number.to_le_bytes());
            packet.extend_from_slice(b"request served\0");
        }
    }
}

/// Fills in the header and context of a packet whose events are there, and its padding.
fn head(packet: &mut Vec<u8>, stream: u64, sequence: u64, begin: u64, end: u64) {
    let content = packet.len();
    packet.resize(PACKET, 0);
    let mut head = 0xc1fc_1fc1u32.to_le_bytes().to_vec();
    head.extend(1..=16u8);
    head.extend(0u32.to_le_bytes());
    for word in [stream, begin, end, 8 * content as u64, 8 * PACKET as u64, sequence, 0] {
        head.extend(word.to_le_bytes());
    }
    head.extend((stream as u32).to_le_bytes());
    packet[..HEAD].copy_from_slice(&head);
}
