//! The child: records its plan into the arena, and reports each call that returned.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Relaxed, Release};

use anyhow::{Context as _, Result, bail};
use lastwords_abi::{region, session as abi};
use lastwords_ring::SessionParts;
use lastwords_ring::swap::Swap;
use lastwords_ring::{Channel, ClockKind, Stream, Tail, os};

use super::arena::{Arena, Layout, RESULT_LOST, RESULT_OK};
use super::counting;
use super::fault::Fault;
use super::scenario::{self, Event, Form, LEVELS, Plot, Scenario};

/// What the parent tells it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[arg(long)]
    scenario: String,
    #[arg(long)]
    seed: u64,
    #[arg(long)]
    fd: i32,
    /// The CPU to which it is bound.
    #[arg(long)]
    cpu: u32,
    /// Its number, where several processes come one after the other.
    #[arg(long)]
    process: usize,
    #[arg(long, default_value = "none")]
    fault: Fault,
    /// The folder of the session with the counters.
    #[arg(long)]
    counters: Option<std::path::PathBuf>,
}

struct Child {
    scenario: &'static Scenario,
    arena: Arena,
    layout: Layout,
    parts: SessionParts,
    channel: &'static Channel,
    /// Each writer's events.
    plans: Vec<Vec<Planned>>,
    seed: u64,
    fault: Fault,
    /// The session whose counters are added to.
    _counters: Option<lastwords::Session>,
}

// SAFETY: the arena is shared memory that is used through atomics and by the recorder; the rest is
// plain data.
unsafe impl Sync for Child {}
// SAFETY: as for Sync.
unsafe impl Send for Child {}

/// An event, prepared so that little is done between two calls.
struct Planned {
    event: Event,
    words: [u64; 10],
    /// Where the parts end.
    ends: Vec<usize>,
}

static CHILD: OnceLock<Child> = OnceLock::new();

std::thread_local! {
    /// The first writer of this thread.
    static WRITER: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Records; returns never, the parent kills it.
pub(crate) fn run(args: &Args) -> Result<()> {
    let child = CHILD.get_or_init(|| prepare(args).expect("the child's arena"));
    install_handlers()?;
    for thread in 1..child.scenario.threads_of_process() {
        std::thread::Builder::new().spawn(move || child.thread(thread)).context("a thread")?;
    }
    child.thread(args.process);
    Ok(())
}

fn prepare(args: &Args) -> Result<Child> {
    let scenario = scenario::find(&args.scenario)
        .with_context(|| format!("no scenario `{}`", args.scenario))?;
    let layout = Layout::new(scenario, args.cpu);
    let arena = Arena::inherited(args.fd, layout.len)?;
    if scenario.paged {
        arena.fill_pages(&layout);
    }
    let attach = |(spec, at): &(lastwords_ring::StreamSpec, u64)| {
        // SAFETY: the parent initialised the region, and the arena stays mapped until the process
        // ends.
        unsafe { Stream::attach(arena.at(*at), spec.region_len()) }
    };
    let streams = layout.streams.iter().map(attach).collect::<Result<Vec<_>, _>>()?;
    let session = arena.at(layout.session);
    // SAFETY: as above; nobody changes the region's info.
    let parts = unsafe {
        SessionParts::of_region(
            session,
            &*session.add(region::HEADER_SIZE as usize).cast::<abi::SessionInfo>(),
        )
    };
    let channel = Box::leak(Box::new(Channel::new(parts, streams, ClockKind::Tsc, scenario.flags)));
    let plan = |w: usize| {
        (0..scenario.events()).map(|n| Planned::new(scenario.event(args.seed, w, n))).collect()
    };
    let plans = (0..LEVELS * scenario.threads()).map(plan).collect();
    let join = |dir: &std::path::PathBuf| counting::session(dir, scenario);
    let _counters = args.counters.as_ref().map(join).transpose()?;
    let (seed, fault) = (args.seed, args.fault);
    Ok(Child { scenario, arena, layout, parts, channel, plans, seed, fault, _counters })
}

impl Planned {
    fn new(event: Event) -> Self {
        let mut words = [0u64; 10];
        for (word, bytes) in words.iter_mut().zip(event.payload.chunks(8)) {
            let mut whole = [0u8; 8];
            whole[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(whole);
        }
        let ends = (1..=event.parts).map(|n| event.payload.len() * n / event.parts).collect();
        Self { event, words, ends }
    }
}

impl Child {
    /// Does the work of one thread, once the parent has seen the thread.
    fn thread(&self, thread: usize) {
        let progress = &self.arena.progress().threads[thread];
        WRITER.set(LEVELS * thread);
        progress.base.store(self.arena.at(0) as u64, Relaxed);
        if !self.takes_snapshots(thread) && self.fault != Fault::PublishFirst {
            (0..self.scenario.skipped(self.seed, thread))
                .for_each(|_| self.record_next(LEVELS * thread));
        }
        let tid = os::tid();
        progress.ready.store(tid, Release);
        // SAFETY: a signal to this very thread, which its tracer takes.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGSTOP) };
        if self.takes_snapshots(thread) {
            self.take_snapshots();
        } else {
            (0..self.scenario.events()).for_each(|_| self.record_next(LEVELS * thread));
        }
        progress.finished.store(1, Release);
        loop {
            // SAFETY: no arguments.
            unsafe { libc::pause() };
        }
    }

    fn takes_snapshots(&self, thread: usize) -> bool {
        self.scenario.plot == Plot::Swaps && thread == 1
    }

    /// Records the next event of a writer, if there is one.
    fn record_next(&self, writer: usize) {
        let report = &self.arena.progress().writers[writer];
        let next = report.begun.load(Relaxed) as usize;
        let Some(planned) = self.plans.get(writer).and_then(|p| p.get(next)) else { return };
        if planned.event.pause > 0
            && self.arena.progress().threads[writer / LEVELS].ready.load(Relaxed) != 0
        {
            std::thread::sleep(std::time::Duration::from_millis(planned.event.pause.into()));
        }
        if self.fault == Fault::ReportFirst {
            report.results[next].store(RESULT_OK, Release);
        }
        report.before[next].store(lastwords_ring::clock::counter(), Relaxed);
        report.begun.store(next as u64 + 1, Release);
        let done = if self.scenario.form == Form::Counters {
            counting::add(self.seed, writer, next)
        } else if self.fault == Fault::PublishFirst {
            self.publish_first(planned)
        } else {
            self.record(planned)
        };
        report.after[next].store(lastwords_ring::clock::counter(), Relaxed);
        report.results[next].store(if done { RESULT_OK } else { RESULT_LOST }, Release);
    }

    fn record(&self, planned: &Planned) -> bool {
        let Planned { event, words, ends } = planned;
        if self.scenario.form == Form::Varying {
            return self.record_varying(event, words[0]);
        }
        if event.tail != 0 {
            return self.record_tail(event, words);
        }
        if event.parts == 0 && event.payload.len() <= 72 {
            return self.record_words(event, words);
        }
        let mut parts: [&[u8]; 8] = [&[]; 8];
        let mut begin = 0;
        for (part, &end) in parts.iter_mut().zip(ends) {
            *part = &event.payload[begin..end];
            begin = end;
        }
        let all: [&[u8]; 1] = [&event.payload];
        let parts = if event.parts == 0 { &all[..] } else { &parts[..ends.len()] };
        self.channel.record_parts(event.id, parts).is_ok()
    }

    /// The first word has bytes of the tail too, which the section writes twice.
    fn record_varying(&self, event: &Event, word: u64) -> bool {
        let (head, tail) = event.payload.split_at(event.tail);
        let tail_at = Some(Tail::Bytes(tail));
        self.channel.record_varying(event.id, word, head.len(), tail)
            || self.channel.record_words(event.id, [word], head.len(), tail_at).is_ok()
    }

    fn record_tail(&self, event: &Event, words: &[u64; 10]) -> bool {
        match event.tail.div_ceil(8) {
            1 => self.record_in_words_and_tail::<1>(event, words),
            2 => self.record_in_words_and_tail::<2>(event, words),
            3 => self.record_in_words_and_tail::<3>(event, words),
            _ => self.record_in_words_and_tail::<4>(event, words),
        }
    }

    fn record_in_words_and_tail<const W: usize>(&self, event: &Event, words: &[u64; 10]) -> bool {
        let tail = match &event.payload[event.tail..] {
            [text @ .., 0] => Tail::Text(text),
            bytes => Tail::Bytes(bytes),
        };
        self.channel
            .record_words(
                event.id,
                core::array::from_fn::<_, W, _>(|n| words[n]),
                event.tail,
                Some(tail),
            )
            .is_ok()
    }

    fn record_words(&self, event: &Event, words: &[u64; 10]) -> bool {
        let len = event.payload.len();
        match len.div_ceil(8) {
            1 => self.record_in_words::<1>(event, words, len),
            2 => self.record_in_words::<2>(event, words, len),
            3 => self.record_in_words::<3>(event, words, len),
            4 => self.record_in_words::<4>(event, words, len),
            5 => self.record_in_words::<5>(event, words, len),
            6 => self.record_in_words::<6>(event, words, len),
            _ => self.record_in_words::<9>(event, words, len),
        }
    }

    fn record_in_words<const W: usize>(
        &self,
        event: &Event,
        words: &[u64; 10],
        len: usize,
    ) -> bool {
        let words: [u64; W] = words[..W].try_into().expect("W words");
        self.channel.record_words(event.id, words, len, None).is_ok()
    }

    /// Takes snapshots, all streams or one, by both ways of making sections restart, until the
    /// parent has enough.
    fn take_snapshots(&self) {
        let progress = self.arena.progress();
        // SAFETY: the parent initialised a session region here.
        let control = unsafe { &*self.arena.at(self.layout.control).cast::<abi::Control>() };
        let streams: Vec<&Stream> = self.channel.streams().iter().collect();
        while progress.threads[0].finished.load(Relaxed) == 0 {
            let number = progress.swaps[0].fetch_add(1, Relaxed);
            let mine = lastwords_ring::lock_word();
            let locked = os::lock(&control.snapshot_lock, mine, || false);
            assert_eq!(locked, os::Lock::Held, "nobody else takes snapshots");
            control.snapshot.store(abi::SNAPSHOT_SWAPPING, Relaxed);
            let is_alone = number.is_multiple_of(2);
            let swap = Swap {
                parts: self.parts,
                streams: &streams,
                are_all: true,
                is_alone,
                persists: false,
            };
            // SAFETY: all halves have memory, and the snapshot lock is held.
            let done = unsafe { swap.run() };
            let state = if done.is_ok() { abi::SNAPSHOT_TAKEN } else { abi::SNAPSHOT_READY };
            let restless = done.is_ok_and(|rest| rest.in_flight > 0 || !rest.unvisited.is_empty());
            progress.restless.store(restless.into(), Relaxed);
            control.snapshot.store(state, Relaxed);
            os::unlock(&control.snapshot_lock, mine);
            progress.swaps[1].fetch_add(1, Release);
        }
    }

    /// A recorder with the fault that the check must find: publishes the position, then copies.
    fn publish_first(&self, planned: &Planned) -> bool {
        let (spec, at) = &self.layout.streams[self.layout.streams.len() - 1];
        super::fault::publish_first(
            &self.arena,
            spec,
            *at,
            planned.event.id,
            &planned.event.payload,
        )
    }
}

/// SIGUSR1 and SIGUSR2 record; each may come inside the other, not inside itself.
fn install_handlers() -> Result<()> {
    for signal in [libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: a zeroed `sigaction` is valid; the handler only does what signal handlers may.
        let set = unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, core::ptr::null_mut())
        };
        if set != 0 {
            bail!("sigaction: {}", std::io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn handle(signal: libc::c_int) {
    let writer = WRITER.get();
    if let Some(child) = CHILD.get().filter(|_| writer != usize::MAX) {
        child.record_next(writer + if signal == libc::SIGUSR1 { 1 } else { 2 });
    }
}
