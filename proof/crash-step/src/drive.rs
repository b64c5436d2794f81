//! A round: a fresh arena, a child, and one stop after the other until it has recorded all.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::os::fd::AsRawFd as _;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering::Acquire;

use anyhow::{Context as _, Result, bail};
use lastwords_abi::session::RESERVATION_LOCKLESS;
use lastwords_abi::stream::CONTROL_OFF;
use lastwords_ring::StreamSpec;

use super::arena::{Arena, Layout, SESSION, THREADS};
use super::counting::Counting;
use super::fault::{self, Fault};
use super::lockless;
use super::naive::{Geometry, Half, Raw, u32_at, u64_at};
use super::oracle::{Oracle, Stop, Tally};
use super::scenario::{LEVELS, Plot, Scenario};
use super::sections::{self, Section};
use super::tracee::{Stopped, Tracee};
use super::walker::Walker;
use super::watch;
use lastwords_testkit::random::Random;

/// Most aborts of sections that are planned for one event: below the recorder's own limit, so that
/// it does not give up.
const MAX_ABORTS: u64 = 12;

/// The constants and the sums of a scenario's rounds.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) scenario: &'static Scenario,
    pub(crate) cpu: u32,
    pub(crate) fault: Fault,
    /// Stops at which recovery was judged while a call was under way.
    pub(crate) points: u64,
    /// All stops.
    pub(crate) stops: u64,
    /// Stops at which memory had changed, so that the product's own recovery ran.
    pub(crate) walks: u64,
    pub(crate) sections: Vec<Section>,
    /// Where the address of each stop is written.
    pub(crate) trace: Option<BufWriter<File>>,
}

/// A thread that is stepped.
#[derive(Debug, Clone, Copy)]
struct Thread {
    tid: i32,
    /// Its number among all threads of the scenario.
    index: usize,
    ip: u64,
    /// Sections that may still be aborted for its event, and the count of calls when that was
    /// said.
    aborts: u64,
    calls: u64,
    /// The section inside which it stands, which the next move aborts.
    inside: Option<usize>,
}

struct Round<'a> {
    run: &'a mut Run,
    seed: u64,
    rng: Random,
    arena: Arc<Arena>,
    layout: Layout,
    geometry: Vec<Geometry>,
    halves: Vec<[Half; 2]>,
    /// Copies of paged halves.
    copies: Vec<[Vec<u8>; 2]>,
    oracle: Oracle<'a>,
    walker: Walker,
    /// What judges counters, in their scenarios.
    counting: Option<Counting>,
    is_first: bool,
    damaged: bool,
    /// Where the child's program is mapped.
    bias: u64,
}

/// Runs one round, at most until it has `window` points.
pub(crate) fn round(run: &mut Run, seed: u64, window: u64) -> Result<Tally> {
    let (scenario, cpu) = (run.scenario, run.cpu);
    let layout = Layout::new(scenario, cpu);
    let arena = Arc::new(Arena::create(scenario, &layout)?);
    let limit = run.points + window;
    let count = layout.streams.len();
    let mut round = Round {
        seed,
        rng: Random(seed),
        geometry: layout.streams.iter().map(|(spec, _)| geometry(spec)).collect(),
        halves: (0..count).map(|_| <[Half; 2]>::default()).collect(),
        copies: (0..count).map(|_| <[Vec<u8>; 2]>::default()).collect(),
        oracle: Oracle::new(scenario, seed, count),
        walker: Walker::new(&arena, &layout),
        counting: Counting::start(scenario, seed)?,
        arena,
        layout,
        is_first: true,
        damaged: false,
        bias: 0,
        run,
    };
    let processes = if scenario.plot == Plot::Dead { scenario.threads() } else { 1 };
    for process in 0..processes {
        round.process(process, process + 1 == processes, limit, window)?;
    }
    round.count_losses();
    Ok(round.oracle.tally)
}

fn geometry(spec: &StreamSpec) -> Geometry {
    Geometry {
        index: spec.index,
        lockless: spec.reservation == RESERVATION_LOCKLESS,
        size: spec.sub_buffer_size,
        count: spec.sub_buffers.into(),
        session: SESSION,
        channel: spec.channel,
    }
}

impl Round<'_> {
    /// Runs one process: to its end if it is the last, else until a random step.
    fn process(&mut self, process: usize, last: bool, limit: u64, window: u64) -> Result<()> {
        let tracee = self.start(process)?;
        let mut threads = self.ready(&tracee, process)?;
        self.is_first = true;
        self.bias = tracee.bias()?;
        self.walker.found_at(self.arena.progress().threads[process].base.load(Acquire));
        if self.run.scenario.planned
            && self.run.scenario.reservation == lastwords_abi::session::RESERVATION_RSEQ
        {
            self.find_sections(&tracee)?;
        }
        let mut turn = Turn::new(self.run.scenario.plot, &mut self.rng);
        // Where a process is to die: at a random step, half of them at the next one that holds a
        // reservation.
        let mut steps_left = if last { u64::MAX } else { 1 + self.rng.below(window.min(2000)) };
        let patient = self.rng.one_in(2);
        while self.run.points < limit {
            let progress = self.arena.progress();
            let is_finished = |t: &Thread| progress.threads[t.index].finished.load(Acquire) == 1;
            let Some(which) =
                turn.choose(&mut self.rng, &threads.iter().map(is_finished).collect::<Vec<_>>())
            else {
                break;
            };
            let mut thread = threads[which];
            let context =
                format!("thread {} at {:#x}, stop {}", thread.index, thread.ip, self.run.stops);
            self.advance(&tracee, &mut thread).context(context)?;
            threads[which] = thread;
            let inside = self.judge().with_context(|| {
                format!(
                    "thread {} stopped at {:#x}, stop {}",
                    thread.index, thread.ip, self.run.stops
                )
            })?;
            self.run.stops += 1;
            watch::moved();
            self.run.trace(thread.ip.wrapping_sub(self.bias))?;
            let swaps = &self.arena.progress().swaps;
            let swapping = swaps[0].load(Acquire) != swaps[1].load(Acquire);
            let calls = inside >> (LEVELS * thread.index) & ((1 << LEVELS) - 1) != 0;
            let counted = calls || (swapping && thread.index == 1);
            self.run.points += u64::from(counted);
            let reserved = counted && self.holds_reservation(thread.tid);
            turn.stopped(&mut self.rng, which, reserved, swapping);
            steps_left = steps_left.saturating_sub(1);
            if steps_left == 0 && !last && (reserved || !patient) {
                break;
            }
        }
        Ok(())
    }

    /// The thread has announced a reservation in the table of threads.
    fn holds_reservation(&self, tid: i32) -> bool {
        let bytes = self.arena.bytes();
        let entry = size_of::<lastwords_abi::session::Thread>();
        let table = &bytes[self.layout.threads as usize..];
        table.chunks_exact(entry).take(THREADS).any(|thread| {
            u64_at(thread, 0) >> 32 == tid as u64
                && (1..=4).any(|level| u64_at(thread, 64 * level) != 0)
        })
    }

    /// Takes the recorder's own counters over.
    fn count_losses(&mut self) {
        let bytes = self.arena.bytes();
        for (_, at) in &self.layout.streams {
            let lost = |cause: usize| u64_at(bytes, *at as usize + CONTROL_OFF + 72 + 8 * cause);
            self.oracle.tally.reclaimed += lost(lastwords_abi::stream::RECLAIMED);
            self.oracle.tally.passed += lost(lastwords_abi::stream::SKIPPED);
        }
    }

    fn start(&self, process: usize) -> Result<Tracee> {
        let mut command = Command::new(rig::own_program());
        command.args(["child", "--scenario", self.run.scenario.name]);
        for (option, value) in [
            ("--seed", self.seed),
            ("--fd", self.arena.fd().as_raw_fd() as u64),
            ("--cpu", self.run.cpu.into()),
            ("--process", process as u64),
        ] {
            command.args([option, &value.to_string()]);
        }
        let fault =
            clap::ValueEnum::to_possible_value(&self.run.fault).context("a fault's name")?;
        command.args(["--fault", fault.get_name()]);
        if let Some(counting) = &self.counting {
            command.arg("--counters").arg(counting.dir());
        }
        // Symbols are bound at the start: a step in the dynamic linker is no step in the recorder.
        command.env("LD_BIND_NOW", "1");
        let tracee = Tracee::start(&mut command)?;
        watch::child(tracee.pid);
        Ok(tracee)
    }

    fn ready(&self, tracee: &Tracee, process: usize) -> Result<Vec<Thread>> {
        let count = self.run.scenario.threads_of_process();
        let reports = &self.arena.progress().threads;
        let index_of = |tid: i32| {
            (process..process + count).find(|&i| reports[i].ready.load(Acquire) == tid as u32)
        };
        let tids = tracee.run_until_ready(count, |tid| index_of(tid).is_some())?;
        let mut threads = Vec::new();
        for tid in tids {
            let index = index_of(tid).context("a thread that is not ready")?;
            threads.push(Thread {
                tid,
                index,
                ip: tracee.ip(tid)?,
                aborts: 0,
                calls: u64::MAX,
                inside: None,
            });
        }
        threads.sort_by_key(|t| t.index);
        Ok(threads)
    }

    /// The sections in this process; what was stopped at before is kept.
    fn find_sections(&mut self, tracee: &Tracee) -> Result<()> {
        let mut found = sections::find(tracee)?;
        for (new, old) in found.iter_mut().zip(&self.run.sections) {
            new.go_on_from(old);
        }
        self.run.sections = found;
        Ok(())
    }

    /// Brings a thread to its next stop: one instruction on, into a signal's handler, or to a place
    /// inside a section.
    fn advance(&mut self, tracee: &Tracee, thread: &mut Thread) -> Result<()> {
        let calls = self.arena.progress().writers[LEVELS * thread.index].begun.load(Acquire);
        if calls != thread.calls {
            let most = if self.rng.one_in(2) { 1 } else { MAX_ABORTS + 1 };
            (thread.calls, thread.aborts) = (calls, self.rng.below(most));
        }
        let at = self.run.sections.iter().position(|s| s.arming == thread.ip);
        // From inside a section straight to the next place in it: what lies between was stepped
        // before.
        let again = thread.inside.take().filter(|_| thread.aborts > 0 && !self.rng.one_in(4));
        if let Some(index) = at.or(again) {
            return self.run_section(tracee, thread, index, at.is_none());
        }
        let signal = self.signal();
        match tracee.step(thread.tid, signal)? {
            Stopped::Trap => {}
            Stopped::Signal(libc::SIGUSR1 | libc::SIGUSR2) => {}
            other => bail!("the child stopped: {other:?}"),
        }
        thread.ip = tracee.ip(thread.tid)?;
        Ok(())
    }

    /// Runs a thread, which is about to arm a section or is inside it (`again`), to the next place
    /// inside.
    fn run_section(
        &mut self,
        tracee: &Tracee,
        thread: &mut Thread,
        index: usize,
        again: bool,
    ) -> Result<()> {
        let others: Vec<u64> = self.run.sections.iter().map(|s| s.arming).collect();
        let section = &mut self.run.sections[index];
        let mut breakpoints = section.plan(thread.aborts > 0);
        if again {
            // The abort handler and where it leads are passed; the recorder may go on to another
            // section.
            breakpoints.retain(|&at| at != section.abort && !section.exits.contains(&at));
            breakpoints.extend(others.iter().filter(|&&at| at != section.arming));
        }
        thread.ip = tracee.run_to(thread.tid, &breakpoints)?;
        if section.note(thread.ip) {
            thread.aborts = thread.aborts.saturating_sub(1);
            thread.inside = Some(index);
        }
        Ok(())
    }

    fn signal(&mut self) -> i32 {
        if self.run.scenario.plot != Plot::Signals && self.run.scenario.name != "lockless-discard" {
            return 0;
        }
        match self.rng.below(400) {
            0 => libc::SIGUSR1,
            1 => libc::SIGUSR2,
            _ => 0,
        }
    }

    /// Recovers what is in the arena and judges it.
    fn judge(&mut self) -> Result<u32> {
        if let Some(counting) = &mut self.counting {
            let stop = counting.judge(self.arena.progress(), &mut self.oracle.tally)?;
            self.run.walks += u64::from(stop.is_new);
            return Ok(stop.inside);
        }
        let bytes = self.arena.bytes();
        let threads = self.layout.threads as usize;
        let threads =
            &bytes[threads..threads + THREADS * size_of::<lastwords_abi::session::Thread>()];
        let mut in_flight = Vec::new();
        let mut data: Vec<[&[u8]; 2]> = Vec::with_capacity(self.halves.len());
        for (index, ((spec, at), copies)) in
            self.layout.streams.iter().zip(&mut self.copies).enumerate()
        {
            let geometry = &self.geometry[index];
            let region = &bytes[*at as usize..(at + spec.region_len()) as usize];
            for (half, copy) in copies.iter_mut().enumerate() {
                let control = &region[CONTROL_OFF + 128 + 192 * half..];
                if geometry.lockless {
                    lockless::in_flight(
                        threads,
                        spec.index,
                        half,
                        u64_at(control, 0),
                        &mut in_flight,
                    );
                }
                let slots = &region[u64_at(region, 128 + 32 + 8 * half) as usize..];
                let raw = Raw {
                    control,
                    slots,
                    data: half_data(&self.layout, index, half, region, bytes, copy),
                };
                self.halves[index][half].read(geometry, raw, &in_flight);
            }
            let copies = &*copies;
            data.push([0, 1].map(|half| half_data_again(spec, half, region, &copies[half])));
        }
        let flip = u32_at(bytes, self.layout.control as usize);
        let now = lastwords_ring::clock::counter();
        let places = self.layout.streams.first().map_or(1, |(spec, _)| spec.sub_buffers.into());
        let stop =
            Stop { streams: &self.halves, data: &data, flip, now, is_first: self.is_first, places };
        let inside = self.oracle.judge(&stop, self.arena.progress())?;
        self.is_first = false;
        let (oracle, progress) = (&self.oracle, self.arena.progress());
        let was_recorded =
            |id: u16, payload: &[u8]| oracle.check_event(id, payload, progress).map(drop);
        self.run.walks +=
            u64::from(self.walker.judge(&stop, bytes, &self.layout, &was_recorded)?);
        if !self.damaged && self.run.stops > 5000 {
            let (spec, at) = &self.layout.streams[self.run.cpu as usize];
            self.damaged = fault::damage(
                self.run.fault,
                &self.arena,
                spec,
                *at,
                &self.halves[self.run.cpu as usize][0],
            );
        }
        Ok(inside)
    }
}

/// The data of a half: in the region, or copied from its pages.
fn half_data<'a>(
    layout: &Layout,
    index: usize,
    half: usize,
    region: &'a [u8],
    arena: &[u8],
    copy: &'a mut Vec<u8>,
) -> &'a [u8] {
    let spec = &layout.streams[index].0;
    if spec.page_size != 0 {
        copy.clear();
        for page in layout.page_offsets(index, half) {
            copy.extend_from_slice(&arena[page as usize..page as usize + spec.page_size as usize]);
        }
        return copy;
    }
    half_data_again(spec, half, region, copy)
}

fn half_data_again<'a>(
    spec: &StreamSpec,
    half: usize,
    region: &'a [u8],
    copy: &'a [u8],
) -> &'a [u8] {
    if spec.page_size != 0 {
        return copy;
    }
    let range = spec.data_range(half);
    &region[range.start as usize..(range.start + spec.half_size()) as usize]
}

/// Whose turn it is.
#[derive(Debug)]
struct Turn {
    plot: Plot,
    now: usize,
    /// Stops until the next turn.
    left: u64,
    /// Stops until thread 1 may begin the next snapshot, or is stalled.
    hold: u64,
    stalled: bool,
    /// A snapshot was being taken at the last stop.
    swapping: bool,
}

impl Turn {
    fn new(plot: Plot, rng: &mut Random) -> Self {
        Self { plot, now: 0, left: 0, hold: 50 + rng.below(1500), stalled: false, swapping: false }
    }

    /// The thread to go on with; none when all that matters is done.
    fn choose(&mut self, rng: &mut Random, finished: &[bool]) -> Option<usize> {
        let main_only = match self.plot {
            Plot::Alone | Plot::Signals | Plot::Dead => true,
            Plot::TwoThreads => false,
            Plot::Swaps => self.hold > 0,
            Plot::Stalled => self.stalled,
        };
        if main_only {
            return (!finished[0]).then_some(0);
        }
        if finished[0] && (self.plot == Plot::Swaps || finished[1]) {
            return None;
        }
        if self.left == 0 {
            self.now = 1 - self.now;
            self.left = if rng.one_in(2) { 1 + rng.below(8) } else { 1 + rng.below(400) };
        }
        self.left -= 1;
        if finished[self.now] {
            self.now = 1 - self.now;
        }
        Some(self.now)
    }

    /// Takes note of a stop.
    fn stopped(&mut self, rng: &mut Random, which: usize, reserved: bool, swapping: bool) {
        let done = self.swapping && !swapping;
        self.swapping = swapping;
        match self.plot {
            Plot::Swaps if done => self.hold = 100 + rng.below(1500),
            Plot::Swaps => self.hold = self.hold.saturating_sub(1),
            Plot::Stalled if !self.stalled && which == 1 => {
                self.hold = self.hold.saturating_sub(1);
                // Anywhere between the announcement, which comes first, and the commit.
                self.stalled = self.hold == 0 && reserved && rng.one_in(32);
            }
            _ => {}
        }
    }
}

impl Run {
    /// A run of `scenario` on `cpu`.
    pub(crate) fn new(scenario: &'static Scenario, cpu: u32, fault: Fault) -> Self {
        Self {
            scenario,
            cpu,
            fault,
            points: 0,
            stops: 0,
            walks: 0,
            sections: Vec::new(),
            trace: None,
        }
    }

    fn trace(&mut self, at: u64) -> Result<()> {
        self.trace
            .as_mut()
            .map_or(Ok(()), |out| writeln!(out, "{at:#x}"))
            .context("the trace of addresses")
    }

    /// Instructions of sections at which a stop was made, and those of the sections that were
    /// entered.
    pub(crate) fn covered(&self) -> (usize, usize) {
        let entered = self.sections.iter().filter(|s| s.stops.iter().any(|&n| n > 0));
        entered.fold((0, 0), |(met, all), s| {
            (met + s.stops.iter().filter(|&&n| n > 0).count(), all + s.stops.len())
        })
    }
}
