//! `cargo xtask bench record`: every contender in a process of its own, in turn, round after round.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::contenders::{self, Contender, Payload, Source};
use super::floors::{self, Verdict};
use super::programs::Programs;
use super::results::{Results, Samples};
use super::stats::Spread;
use super::{Clock, Judging, lttng, report};

use rig::run_quietly;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How often each contender runs
    #[arg(long, value_name = "N", default_value_t = 11)]
    rounds: usize,
    /// Events that each thread of a contender records in a run; the slow ones record fewer, the
    /// disabled ones more
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    events: u64,
    /// 3 rounds of 400,000 events: does it work, rather than how fast is it
    #[arg(long)]
    quick: bool,
    /// Run these contenders alone, and the floor (names with commas)
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<String>,
    /// The CPUs: two threads run on the first two, one on the second of them [default: all that we
    /// may use]
    #[arg(long, value_name = "LIST")]
    cpus: Option<String>,
    #[command(flatten)]
    judging: Judging,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let chosen = choose(&args.only)?;
    let cpus =
        args.cpus.as_deref().map_or_else(rig::workers::allowed_cpus, rig::workers::parse_cpus)?;
    let (rounds, events) =
        if args.quick { (3, 400_000) } else { (args.rounds.max(1), args.events.max(1)) };
    let mut results = Results {
        rounds,
        events,
        clock: args.judging.clock,
        samples: Vec::new(),
        missing: BTreeMap::new(),
    };
    let mut field = Field::set_up(&chosen, &mut results)?;
    measure(&mut field, &cpus, &mut results)?;
    if let Some(session) = &field.session {
        session.check()?;
    }
    drop(field);
    let verdicts = verdicts(&results, &chosen);
    print!("{}", report::table(&results, &verdicts));
    args.judging.end(data(&results), &verdicts)
}

fn choose(only: &[String]) -> Result<Vec<&'static Contender>> {
    if let Some(unknown) =
        only.iter().find(|name| !contenders::ALL.iter().any(|c| c.name == **name))
    {
        let names: Vec<&str> = contenders::ALL.iter().map(|contender| contender.name).collect();
        bail!("no contender `{unknown}`: there are {}", names.join(", "));
    }
    let is_chosen = |c: &&Contender| {
        only.is_empty() || c.source == Source::Floor || only.iter().any(|n| n == c.name)
    };
    Ok(contenders::ALL.iter().filter(is_chosen).collect())
}

/// The contenders that can run, with what they need.
struct Field {
    runners: Vec<(&'static Contender, PathBuf)>,
    session: Option<lttng::Session>,
}

impl Field {
    fn set_up(chosen: &[&'static Contender], results: &mut Results) -> Result<Self> {
        eprintln!("building the contenders");
        let programs = Programs::build()?;
        let mut field = Self { runners: Vec::new(), session: None };
        for contender in chosen {
            match programs
                .program(contender)
                .and_then(|program| field.prepare(contender).map(|()| program))
            {
                Ok(program) => field.runners.push((contender, program)),
                Err(error) if contender.source == Source::Floor => return Err(error),
                Err(error) => drop(results.missing.insert(contender.name, format!("{error:#}"))),
            }
        }
        Ok(field)
    }

    fn prepare(&mut self, contender: &Contender) -> Result<()> {
        if contender.source == Source::Lttng && self.session.is_none() {
            self.session = Some(lttng::Session::start()?);
        }
        Ok(())
    }

    fn command(&self, contender: &Contender, program: &PathBuf) -> Command {
        match &self.session {
            Some(session) if contender.source == Source::Lttng => session.command(program),
            _ => Command::new(program),
        }
    }
}

/// Runs the rounds, every other one backwards, so that nobody always runs behind the same
/// neighbour.
fn measure(field: &mut Field, cpus: &[usize], results: &mut Results) -> Result<()> {
    let mut places: Vec<(&PathBuf, Samples)> = Vec::new();
    for threads in [1, 2].into_iter().filter(|&threads| threads <= cpus.len()) {
        for payload in Payload::ALL {
            for (contender, program) in
                field.runners.iter().filter(|(contender, _)| contender.takes(payload))
            {
                places.push((
                    program,
                    Samples { contender, payload, threads, nanoseconds: Vec::new(), preempted: 0 },
                ));
            }
        }
    }
    for round in 0..results.rounds {
        eprintln!("round {} of {}", round + 1, results.rounds);
        for (program, samples) in &mut places {
            sample(field.command(samples.contender, program), samples, cpus, results)
                .with_context(|| {
                    format!("{}, payload {}", samples.contender.name, samples.payload.name())
                })?;
        }
        places.reverse();
    }
    if results.rounds % 2 == 1 {
        places.reverse();
    }
    results.samples = places.into_iter().map(|(_, samples)| samples).collect();
    Ok(())
}

/// One run of one contender.
fn sample(
    mut command: Command,
    samples: &mut Samples,
    cpus: &[usize],
    results: &Results,
) -> Result<()> {
    let chosen = match (samples.threads, cpus) {
        (1, [_, second, ..]) => vec![*second],
        (threads, _) => cpus[..threads].to_vec(),
    };
    let list: Vec<String> = chosen.iter().map(usize::to_string).collect();
    let events = samples.contender.events(results.events).to_string();
    command.args([samples.contender.name, samples.payload.name(), &events, &list.join(",")]);
    let line = run_quietly(&mut command)?;
    let data: Value =
        serde_json::from_str(&line).with_context(|| format!("not a line of JSON: {line:?}"))?;
    let key = match results.clock {
        Clock::Wall => "ns_per_event",
        Clock::Cpu => "cpu_ns_per_event",
    };
    samples
        .nanoseconds
        .push(data[key].as_f64().with_context(|| format!("no number `{key}` in {line:?}"))?);
    samples.preempted += data["preempted"].as_u64().unwrap_or(0);
    Ok(())
}

/// The floors; with `--only`, those whose contenders were asked for.
fn verdicts(results: &Results, chosen: &[&Contender]) -> Vec<Verdict> {
    let is_chosen = |name: &str| chosen.iter().any(|contender| contender.name == name);
    let asked = floors::RECORD.iter().filter(|floor| floor.needs().into_iter().all(is_chosen));
    asked.map(|floor| floor.verdict(|row| results.median(row))).collect()
}

fn data(results: &Results) -> Value {
    let rows: Vec<Value> = results.samples.iter().map(|samples| row(samples, results)).collect();
    json!({
        "schema": 1,
        "bench": "record",
        "rounds": results.rounds,
        "events": results.events,
        "rows": rows,
        "missing": results.missing,
    })
}

fn row(samples: &Samples, results: &Results) -> Value {
    let spread = Spread::from_samples(&samples.nanoseconds);
    json!({
        "contender": samples.contender.name,
        "payload": samples.payload.name(),
        "threads": samples.threads,
        "events": samples.contender.events(results.events),
        "ns_per_event": spread.map(report::spread_data),
        "to_floor": spread.zip(results.floor(samples.threads)).map(|(spread, floor)| spread.median / floor),
        "preempted": samples.preempted,
        "samples": samples.nanoseconds,
    })
}
