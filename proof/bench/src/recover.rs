//! `cargo xtask bench recover`: how fast a session is copied out as CTF and printed as text, beside
//! babeltrace2 printing the same trace.
//!
//! Two sessions: a small one, which babeltrace2 prints in seconds, and a large one, for the copying
//! and to see whether memory grows with the trace.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::floors::{Limit, Verdict};
use super::lttng::stream_bytes;
use super::programs::{Programs, count_lines};
use super::stopwatch::Laps;
use super::{Clock, Judging, report};
use rig::run_quietly;
use rig::scratch::{self, Scratch};

/// Lines that `report` may print besides those of events.
const HEADER_LINES: u64 = 100;
/// How much more memory the large session may take than the small one.
const MORE_MEMORY: u64 = 16 << 20;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Use this session for everything, instead of generating two
    #[arg(long, value_name = "DIR")]
    session: Option<PathBuf>,
    /// Events of the small session
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    events: u64,
    /// Events of the large session
    #[arg(long, value_name = "N", default_value_t = 32_000_000)]
    copy_events: u64,
    /// How often each program runs
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// 3 rounds of 400,000 and 4,000,000 events
    #[arg(long)]
    quick: bool,
    /// Where sessions and traces are put: memory rather than a disk [default: /dev/shm, else the
    /// temporary folder]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// One CPU that everything runs on; without it, all, of which babeltrace2 and cp use one
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    #[command(flatten)]
    judging: Judging,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let (rounds, events, copy_events) = if args.quick {
        (3, 400_000, 4_000_000)
    } else {
        (args.rounds.max(1), args.events, args.copy_events)
    };
    eprintln!("building");
    let programs = Programs::build()?;
    let lastwords = rig::programs::lastwords()?;
    let parent = args.dir.clone().unwrap_or_else(scratch::memory);
    let scratch = Scratch::create(&parent, "lastwords-bench-recover")?;
    let bench = Bench {
        stopwatch: programs.bench,
        lastwords,
        cpu: args.cpu,
        rounds,
        scratch: scratch.path().to_path_buf(),
    };
    let small = bench.session(args.session.as_deref(), "small", events)?;
    let large = bench.session(args.session.as_deref(), "large", copy_events)?;
    let (text, copy) = (bench.text(&small)?, bench.copy(&large)?);
    let results = Results {
        text,
        copy,
        clock: args.judging.clock,
        cpus: if args.cpu.is_some() { "one CPU" } else { "all CPUs" },
    };
    let verdicts = results.verdicts();
    print!("{}{}", results.table(), report::floors(&verdicts));
    args.judging.end(results.data(rounds), &verdicts)
}

struct Bench {
    stopwatch: PathBuf,
    lastwords: PathBuf,
    cpu: Option<usize>,
    rounds: usize,
    scratch: PathBuf,
}

/// The results of the small session.
struct Text {
    events: u64,
    recover: Laps,
    report: Laps,
    /// `report` of the CTF folder; nothing where it cannot read one.
    report_ctf: Option<Laps>,
    babeltrace: Laps,
}

/// The results of the large session.
struct Copy {
    bytes: u64,
    recover: Laps,
    report: Laps,
    /// `cp` of what was written: what copying alone takes on this machine.
    cp: Laps,
}

impl Bench {
    /// The session that was given, or one generated with so many events.
    fn session(&self, given: Option<&Path>, name: &str, events: u64) -> Result<PathBuf> {
        if let Some(session) = given {
            return Ok(session.to_path_buf());
        }
        eprintln!("generating the {name} session: {events} events");
        let folder = self.scratch.join(name);
        run_quietly(
            Command::new(&self.stopwatch).arg("generate").arg(&folder).arg(events.to_string()),
        )
        .context("cannot generate a session; --session DIR takes one that is there")?;
        Ok(folder)
    }

    fn text(&self, session: &Path) -> Result<Text> {
        let out = self.recover(session, &mut Laps::default())?;
        let ctf =
            ctf_folder(&out)?.with_context(|| format!("no CTF trace in {}", out.display()))?;
        let babeltrace = Path::new("babeltrace2");
        let events = count_lines(Command::new(babeltrace).arg(&ctf), |_| true)?;
        let lines =
            count_lines(Command::new(&self.lastwords).arg("report").arg(session), |_| true)?;
        if events == 0 || lines.abs_diff(events) > HEADER_LINES {
            bail!("not the same trace: babeltrace2 prints {events} lines, report {lines}");
        }
        let mut report_ctf = run_quietly(Command::new(&self.lastwords).arg("inspect").arg(&ctf))
            .ok()
            .map(|_| Laps::default());
        let [mut recover, mut report, mut babeltrace_laps] = [(); 3].map(|()| Laps::default());
        for round in 0..self.rounds {
            eprintln!("text: round {} of {}", round + 1, self.rounds);
            self.report(session, &mut report)?;
            if let Some(laps) = &mut report_ctf {
                self.report(&ctf, laps)?;
            }
            babeltrace_laps.run(
                &self.stopwatch,
                self.cpu,
                &[babeltrace.as_os_str(), ctf.as_os_str()],
            )?;
        }
        for _ in 0..self.rounds {
            self.recover(session, &mut recover)?;
        }
        Ok(Text { events, recover, report, report_ctf, babeltrace: babeltrace_laps })
    }

    fn copy(&self, session: &Path) -> Result<Copy> {
        let [mut recover, mut report, mut cp] = [(); 3].map(|()| Laps::default());
        let mut bytes = 0;
        for round in 0..self.rounds {
            eprintln!("copying: round {} of {}", round + 1, self.rounds);
            let out = self.recover(session, &mut recover)?;
            bytes = stream_bytes(&out)?;
            let copy = Scratch::create(&self.scratch, "cp")?;
            let words =
                [OsStr::new("cp"), OsStr::new("-r"), out.as_os_str(), copy.path().as_os_str()];
            cp.run(&self.stopwatch, self.cpu, &words)?;
        }
        self.report(session, &mut report)?;
        Ok(Copy { bytes, recover, report, cp })
    }

    fn report(&self, source: &Path, laps: &mut Laps) -> Result<()> {
        laps.run(
            &self.stopwatch,
            self.cpu,
            &[self.lastwords.as_os_str(), OsStr::new("report"), source.as_os_str()],
        )
    }

    /// Writes a session as CTF into an empty folder, which it returns.
    fn recover(&self, session: &Path, laps: &mut Laps) -> Result<PathBuf> {
        let out = self.scratch.join("out");
        if out.exists() {
            std::fs::remove_dir_all(&out)
                .with_context(|| format!("cannot remove {}", out.display()))?;
        }
        let words: [OsString; 7] = [
            self.lastwords.clone().into(),
            "recover".into(),
            session.into(),
            "-o".into(),
            out.clone().into(),
            "--to".into(),
            "ctf".into(),
        ];
        laps.run(&self.stopwatch, self.cpu, &words.each_ref().map(OsString::as_os_str))?;
        Ok(out)
    }
}

/// The first folder with a file `metadata` in it, from here downwards.
fn ctf_folder(folder: &Path) -> Result<Option<PathBuf>> {
    if folder.join("metadata").is_file() {
        return Ok(Some(folder.to_path_buf()));
    }
    for entry in
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?
    {
        let entry = entry?;
        if entry.file_type()?.is_dir()
            && let Some(found) = ctf_folder(&entry.path())?
        {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

struct Results {
    text: Text,
    copy: Copy,
    clock: Clock,
    /// The CPUs that it ran on.
    cpus: &'static str,
}

impl Results {
    /// How many of these a second, by the median.
    fn rate(&self, amount: u64, laps: &Laps) -> Option<f64> {
        laps.seconds(self.clock).map(|seconds| amount as f64 / seconds.median)
    }

    /// Returns a row for each run on the small session.
    fn rows(&self) -> Vec<(&'static str, &Laps)> {
        let text = &self.text;
        let mut rows =
            vec![("recover --to ctf", &text.recover), ("report, of the session", &text.report)];
        rows.extend(text.report_ctf.as_ref().map(|laps| ("report, of the CTF folder", laps)));
        rows.push(("babeltrace2, of the CTF folder", &text.babeltrace));
        rows
    }

    fn verdicts(&self) -> Vec<Verdict> {
        let (text, copy) = (&self.text, &self.copy);
        let faster = |rival: &Laps, ours: &Laps| {
            Some(rival.seconds(self.clock)?.median / ours.seconds(self.clock)?.median)
        };
        let grown = |large: &Laps, small: &Laps| {
            Some(
                large.peak_anonymous().saturating_sub(small.peak_anonymous()) as f64
                    / MORE_MEMORY as f64,
            )
        };
        vec![
            Verdict::new(
                "babeltrace2's time for text, to ours",
                Limit::AtLeast(10.0),
                faster(&text.babeltrace, &text.report),
            ),
            Verdict::new(
                "copying out, GB/s",
                Limit::AtLeast(1.5),
                self.rate(copy.bytes, &copy.recover).map(|r| r / 1e9),
            ),
            Verdict::new(
                "recover: memory more with more, 16 MiB",
                Limit::AtMost(1.0),
                grown(&copy.recover, &text.recover),
            ),
            Verdict::new(
                "report: memory more with more, 16 MiB",
                Limit::AtMost(1.0),
                grown(&copy.report, &text.report),
            ),
        ]
    }

    fn table(&self) -> String {
        let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        let base = self.rate(self.text.events, &self.text.babeltrace);
        let mut text =
            format!("{} events, {} time, {}\n", self.text.events, self.clock.name(), self.cpus);
        let heads = ["M events/s", "x peer", "peak RSS", "no file"];
        text += &format!("{:<33}{}\n", "", heads.map(|head| format!("{head:>12}")).concat());
        for (what, laps) in self.rows() {
            let rate = self.rate(self.text.events, laps);
            let ratio = rate.zip(base).map(|(rate, base)| rate / base);
            let numbers = [
                rate.map_or_else(String::new, |rate| format!("{:.2}", rate / 1e6)),
                ratio.map_or_else(String::new, |ratio| format!("{ratio:.1}")),
                format!("{:.1} MiB", mebibytes(laps.peak_rss())),
                format!("{:.1} MiB", mebibytes(laps.peak_anonymous())),
            ];
            text +=
                &format!("{what:<33}{}\n", numbers.map(|number| format!("{number:>12}")).concat());
        }
        let copy = &self.copy;
        let rate = self.rate(copy.bytes, &copy.recover).unwrap_or(0.0);
        let cp = self.rate(copy.bytes, &copy.cp).unwrap_or(0.0);
        text += &format!(
            "\nrecover --to ctf of {:.0} MiB: {:.2} GB/s",
            mebibytes(copy.bytes),
            rate / 1e9
        );
        text += &format!("; cp of what it wrote: {:.2} GB/s, {:.2} x", cp / 1e9, rate / cp);
        let peaks = (mebibytes(copy.recover.peak_rss()), mebibytes(copy.recover.peak_anonymous()));
        text + &format!(", peak RSS {:.1} MiB, {:.1} MiB of it of no file\n\n", peaks.0, peaks.1)
    }

    fn data(&self, rounds: usize) -> Value {
        let laps = |laps: &Laps, amount: u64| {
            json!({
                "wall_s": laps.seconds(Clock::Wall).map(report::spread_data),
                "cpu_s": laps.seconds(Clock::Cpu).map(report::spread_data),
                "per_s": self.rate(amount, laps),
                "peak_rss": laps.peak_rss(),
                "peak_anonymous": laps.peak_anonymous(),
            })
        };
        let rows: serde_json::Map<String, Value> = self
            .rows()
            .into_iter()
            .map(|(what, of)| (what.to_string(), laps(of, self.text.events)))
            .collect();
        json!({
            "schema": 1,
            "bench": "recover",
            "rounds": rounds,
            "events": self.text.events,
            "rows": rows,
            "copy": { "bytes": self.copy.bytes, "recover": laps(&self.copy.recover, self.copy.bytes), "cp": laps(&self.copy.cp, self.copy.bytes) },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_of_the_metadata() {
        let scratch =
            Scratch::create(&std::env::temp_dir(), "lastwords-bench-recover-test").unwrap();
        assert_eq!(ctf_folder(scratch.path()).unwrap(), None);
        let trace = scratch.path().join("a/b");
        std::fs::create_dir_all(&trace).unwrap();
        std::fs::write(trace.join("metadata"), "").unwrap();
        std::fs::write(trace.join("stream_0"), "four").unwrap();
        assert_eq!(ctf_folder(scratch.path()).unwrap(), Some(trace));
        assert_eq!(stream_bytes(scratch.path()).unwrap(), 4);
    }
}
