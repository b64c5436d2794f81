//! The guests of `record -A`: each is recorded by its agent, and has a file beside the host's.

use super::buffers::AGENT;
use super::{Args, Output, bytes};
use crate::progress::human_bytes;
use crate::say;
use anyhow::bail;
use lastwords_ftrace::dat::Relation;
use lastwords_open::tracer_real_time;
use lastwords_render::missing::count;
use lastwords_stream::Address;
use lastwords_tracefs::Recording;
use lastwords_tracefs::agent::{Guest, GuestPlan, Related, SavedGuest, Wanted};
use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A guest on the command line.
#[derive(Debug, Clone)]
pub(super) struct GuestAt {
    name: String,
    address: Address,
}

/// Reads `NAME@ADDRESS`.
fn guest(text: &str) -> Result<GuestAt, String> {
    let (name, address) =
        text.split_once('@').ok_or("it is no NAME@ADDRESS, such as web@vsock:3:7118")?;
    let address = address.parse().map_err(|error| format!("{error}"))?;
    Ok(GuestAt { name: name.to_owned(), address })
}

/// The options of `record` about guests.
#[derive(Debug, clap::Args)]
pub(super) struct GuestOptions {
    /// Record a guest too, with the options after this one
    ///
    /// ADDRESS is tcp:HOST:PORT or vsock:CID:PORT of a `lastwords kernel agent` in the guest. The
    /// options for events, tracer, functions, processes, CPUs, ring and clock that follow are for the
    /// guest NAME, until the next --agent. Its events are written into FILE-NAME.dat while it records.
    /// Both files are shown by the clock of the host: `lastwords report trace.dat trace-NAME.dat`, or
    /// trace-cmd and KernelShark. TCP is neither encrypted nor authenticated.
    #[arg(id = AGENT, short = 'A', long = "agent", value_name = "NAME@ADDRESS", value_parser = guest)]
    agents: Vec<GuestAt>,

    /// The size of the largest stream of a guest
    ///
    /// At this size, the recording of the guest ends early, and what came is saved. For a moment at
    /// its end, a stream takes twice its size.
    #[arg(long, value_name = "BYTES", default_value = "4G", value_parser = bytes, requires = AGENT)]
    max_size: u64,
}

/// The guests that are recorded.
pub(super) struct Guests {
    /// Each, and whether it was told that its recording has ended early.
    all: Vec<(Guest, Cell<bool>)>,
    related: Related,
}

impl Guests {
    /// Has all agents prepare their recordings. A signal ends the wait for them.
    pub(super) fn begin(
        args: &Args,
        recording: &mut Recording,
        ended: BorrowedFd<'_>,
    ) -> anyhow::Result<Self> {
        let plans = plans(args, recording)?;
        for (at, plan) in plans.iter().enumerate() {
            if plans[..at].iter().any(|other| other.name == plan.name) {
                bail!("-A {}: it is named twice", plan.name);
            }
        }
        let mut all = Vec::new();
        for plan in plans {
            all.push((Guest::begin(plan, ended)?, Cell::new(false)));
        }
        let real_time = tracer_real_time(recording.clock());
        let guests = Self { all, related: Related { host: Guest::new_id()?, real_time } };
        if !guests.all.is_empty() {
            recording.relate(guests.relation())?;
        }
        Ok(guests)
    }

    /// Has all of them record.
    pub(super) fn start(&mut self, ended: BorrowedFd<'_>) -> anyhow::Result<()> {
        let related = self.related;
        Ok(self.all.iter_mut().try_for_each(|(guest, _)| guest.start(related, ended))?)
    }

    /// Says once of each guest whose recording has ended early that it has.
    pub(super) fn watch(&self) {
        for (guest, is_told) in &self.all {
            if guest.is_broken() && !is_told.replace(true) {
                let name = guest.of_host().name;
                say::warning(format_args!(
                    "guest {name}: its recording has ended early; that of the host goes on"
                ));
            }
        }
    }

    /// Returns the relation of the host's file.
    fn relation(&self) -> Relation {
        let Related { host, real_time } = self.related;
        let guests = self.all.iter().map(|(guest, _)| guest.of_host()).collect();
        Relation { trace_id: host, real_time, guests, shift: None }
    }

    /// Ends the recordings of the guests, and notes them for the host's file. A signal ends the wait
    /// for them. Returns true if one has failed, and true if events were lost.
    pub(super) fn finish(
        mut self,
        recording: &mut Recording,
        ended: BorrowedFd<'_>,
    ) -> (bool, bool) {
        if self.all.is_empty() {
            return (false, false);
        }
        // What is recorded while guests end would be of the host alone.
        if let Err(error) = recording.stop() {
            say::error(error);
        }
        self.related.real_time = tracer_real_time(recording.clock());
        let (mut failed, mut lost) = (false, false);
        if let Err(error) = recording.relate(self.relation()) {
            say::error(error);
            failed = true;
        }
        for (guest, _) in self.all {
            match guest.finish(self.related, ended) {
                Ok(saved) => {
                    lost |= tell(&saved);
                    failed |= !saved.errors.is_empty();
                }
                Err(error) => {
                    say::error(error);
                    failed = true;
                }
            }
        }
        (failed, lost)
    }
}

fn plans(args: &Args, recording: &Recording) -> anyhow::Result<Vec<GuestPlan>> {
    let agents = &args.guests.agents;
    let Output::File(output) = &args.output else {
        if let Some(agent) = agents.first() {
            bail!("-A {}: its file is beside the host's: name a file with -o", agent.name);
        }
        return Ok(Vec::new());
    };
    let mut plans = Vec::new();
    for (GuestAt { name, address }, own) in agents.iter().zip(&args.own.guests) {
        let choice = args.processes.of_guest(&own.choice);
        let wanted = Wanted::new(&own.events.rules, own.plugin.as_deref(), &choice);
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(why) => bail!("-A {name}: {why}"),
        };
        let clock = recording.clock().to_owned();
        plans.push(GuestPlan {
            name: name.clone(),
            address: address.clone(),
            wanted: Wanted {
                size: own.size,
                clock: own.clock.clone().unwrap_or_else(|| clock.clone()),
                discard: args.discard,
                flush: u64::try_from(args.flush().as_millis()).unwrap_or(0),
                ..wanted
            },
            output: output.clone(),
            force: args.force,
            clock,
            size: args.guests.max_size,
        });
    }
    Ok(plans)
}

/// Prints what came of a guest, and how its clock is related to the host's. Returns true if events
/// were lost.
fn tell(saved: &SavedGuest) -> bool {
    let SavedGuest { name, file, shift, ended_early, errors } = saved;
    match file {
        Some(file) => {
            let lost = match file.lost {
                Some(0) => "nothing lost".to_owned(),
                Some(lost) => format!("{} lost", count(lost, "event")),
                None => "what was lost at the end is not known".to_owned(),
            };
            let (events, cpus) = (count(file.events, "event"), count(file.cpus as u64, "CPU"));
            let (path, size) = (file.path.display(), human_bytes(file.bytes));
            say::said(format_args!("{path}: {events} of {cpus}, {size}; {lost}"));
            for loss in &file.losses {
                let events = count(loss.events, "event");
                say::warning(format_args!(
                    "guest {name}, CPU {}: {events} {}",
                    loss.cpu, loss.cause
                ));
            }
        }
        None => say::note(format_args!("guest {name}: no event came, and there is no file")),
    }
    let measured = shift.refined();
    let error = measured.iter().map(|measured| measured.error).max();
    if let (Some(last), Some(error)) = (measured.last(), error) {
        let seconds = Duration::from_nanos(last.offset.unsigned_abs()).as_secs_f64();
        let word = if last.offset < 0 { "ahead of" } else { "behind" };
        say::note(format_args!(
            "guest {name}: its clock is {seconds:.6} s {word} the host's; each of {} is wrong by {:.1} us at most",
            count(measured.len() as u64, "measurement"),
            Duration::from_nanos(error).as_secs_f64() * 1e6
        ));
    }
    let contradictions = shift.contradictions();
    if contradictions > 0 {
        say::warning(format_args!(
            "guest {name}: its clock was set, stopped or went back: {} its measurement before; the error of the times there is not known",
            if contradictions == 1 {
                "1 measurement contradicts".to_owned()
            } else {
                format!("{contradictions} measurements contradict each")
            }
        ));
    }
    let why = ended_early.as_ref().or(file.as_ref().and_then(|file| file.ended_early.as_ref()));
    if let Some(why) = why {
        say::warning(format_args!("guest {name}: its recording ended early: {why}"));
    }
    errors.iter().for_each(|error| say::error(format_args!("guest {name}: {error}")));
    why.is_some() || file.as_ref().is_some_and(|file| file.lost != Some(0))
}
