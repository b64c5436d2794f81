//! A child that runs free until it is killed: threads, signals, migration, through the public
//! interface; and what it reports.

use std::cell::Cell;
use std::fs::File;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use lastwords::{ChannelConfig, Reservation, Scope, Session, event};

use lastwords_testkit::random::{Random, mix};

/// Writers of one thread: itself and two signal handlers.
pub(crate) const LEVELS: usize = 3;
/// Threads of a storm.
pub(crate) const THREADS: usize = 4;
/// The first writer of the process that is not killed.
pub(crate) const SURVIVOR: usize = LEVELS * THREADS;
/// Writers in all.
pub(crate) const WRITERS: usize = SURVIVOR + LEVELS;
/// Events that the survivor records when it is asked.
pub(crate) const NUMBERED: u64 = 100;
/// Sub-buffers of a ring.
const SUB_BUFFERS: u32 = 8;
/// Bytes of a sub-buffer where no other size is asked for.
pub(crate) const SUB_BUFFER: u64 = 4096;

/// The reports of the children, in memory that outlives them.
#[repr(C)]
pub(crate) struct Reports {
    /// Children that have begun to record.
    pub(crate) ready: AtomicU32,
    /// Rounds asked of the survivor, and done by it.
    pub(crate) asked: AtomicU64,
    pub(crate) done: AtomicU64,
    /// CPU on which it is to record.
    pub(crate) cpu: AtomicU32,
    /// Time its last round took, ns.
    pub(crate) took: AtomicU64,
    pub(crate) writers: [Report; WRITERS],
}

/// The report of one writer: plain stores around each call.
#[repr(C, align(64))]
pub(crate) struct Report {
    /// Calls begun.
    begun: AtomicU64,
    /// Twice the calls up to the newest that returned, plus which of the clocks is that call's:
    /// one word, so that a kill between two stores leaves no clock of another call.
    returned: AtomicU64,
    /// Clocks before the newest call that returned and before the one that is in flight.
    before: [AtomicU64; 2],
}

impl Report {
    /// Calls begun; those behind [`returned`](Self::returned) were in flight when their process was
    /// killed.
    pub(crate) fn begun(&self) -> u64 {
        self.begun.load(Acquire)
    }

    /// Calls up to the newest that returned.
    pub(crate) fn returned(&self) -> u64 {
        self.returned.load(Acquire) >> 1
    }

    /// Clock before the newest call that returned.
    pub(crate) fn newest(&self) -> u64 {
        self.before[self.returned.load(Acquire) as usize & 1].load(Acquire)
    }

    /// Makes a call known before and behind it. `call` gets its number.
    fn around(&self, call: impl FnOnce(u64)) {
        let sequence = self.begun.load(Relaxed);
        let slot = self.returned.load(Relaxed) & 1 ^ 1;
        self.before[slot as usize].store(lastwords_ring::clock::counter(), Relaxed);
        self.begun.store(sequence + 1, Release);
        call(sequence);
        self.returned.store((sequence + 1) << 1 | slot, Release);
    }
}

/// The reports, mapped here.
#[derive(Debug)]
pub(crate) struct Page {
    file: File,
    base: *mut u8,
}

// SAFETY: the page is used through atomics alone.
unsafe impl Send for Page {}
// SAFETY: as for Send.
unsafe impl Sync for Page {}

impl Page {
    /// A fresh page.
    pub(crate) fn create() -> Result<Self> {
        // SAFETY: the name is a C string; flags 0: children inherit the descriptor.
        let fd = unsafe { libc::memfd_create(c"lastwords-kills".as_ptr(), 0) };
        ensure!(fd >= 0, "memfd_create: {}", std::io::Error::last_os_error());
        // SAFETY: a new descriptor, nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(size_of::<Reports>() as u64).context("the page's length")?;
        Self::map(file)
    }

    fn map(file: File) -> Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let len = size_of::<Reports>();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                core::ptr::null_mut(),
                len,
                protection,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        ensure!(
            base != libc::MAP_FAILED,
            "cannot map the page: {}",
            std::io::Error::last_os_error()
        );
        Ok(Self { file, base: base.cast() })
    }

    /// The descriptor that a child inherits.
    pub(crate) fn fd(&self) -> i32 {
        self.file.as_raw_fd()
    }

    /// Returns the reports.
    pub(crate) fn reports(&self) -> &Reports {
        // SAFETY: the mapping has the length of `Reports`, all of it atomics, and lives as long as
        // `self`.
        unsafe { &*self.base.cast::<Reports>() }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: our own mapping, to which no reference outlives `self`.
        unsafe { libc::munmap(self.base.cast(), size_of::<Reports>()) };
    }
}

/// The job of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Job {
    /// Threads that hop from CPU to CPU, and timers whose handlers record.
    Storm,
    /// One thread that records as fast as it can, on one CPU.
    Tight,
    /// Records numbered events when it is asked.
    Survivor,
}

#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[arg(long)]
    job: Job,
    #[arg(long)]
    dir: PathBuf,
    /// rseq, lockless or locked
    #[arg(long)]
    reservation: String,
    #[arg(long)]
    fd: i32,
    #[arg(long)]
    seed: u64,
    #[arg(long, default_value_t = 0)]
    cpu: u32,
    /// Bytes of a sub-buffer
    #[arg(long, default_value_t = SUB_BUFFER)]
    sub_buffer: u64,
    /// Microseconds that a thread of a storm rests before it goes to another CPU
    #[arg(long, default_value_t = 0)]
    rest: u64,
}

static PAGE: OnceLock<Page> = OnceLock::new();

std::thread_local! {
    /// The first writer of this thread.
    static WRITER: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// The reservation of that name.
pub(crate) fn reservation(name: &str) -> Result<Reservation> {
    match name {
        "rseq" => Ok(Reservation::Rseq),
        "lockless" => Ok(Reservation::Lockless),
        "locked" => Ok(Reservation::Locked),
        _ => bail!("no reservation `{name}`: rseq, lockless, locked"),
    }
}

/// Records until it is killed.
pub(crate) fn run(args: &Args) -> Result<()> {
    // SAFETY: the parent left this descriptor open for us, and nothing else here owns it.
    let page = Page::map(unsafe { File::from_raw_fd(args.fd) })?;
    let reports = PAGE.get_or_init(|| page).reports();
    die_with_parent();
    let scope = if args.job == Job::Storm { Scope::Process } else { Scope::User };
    let _session = Session::builder("kills")
        .dir(&args.dir)
        .scope(scope)
        .reservation(reservation(&args.reservation)?)
        .channel(ChannelConfig::new("main").sub_buffers(SUB_BUFFERS, args.sub_buffer))
        .listen(false)
        .start()?;
    match args.job {
        Job::Storm => storm(reports, args.seed, Duration::from_micros(args.rest)),
        Job::Tight => {
            pin(args.cpu);
            WRITER.set(0);
            reports.ready.fetch_add(1, Release);
            loop {
                record_next(reports, 0);
            }
        }
        Job::Survivor => survive(reports),
    }
}

fn storm(reports: &'static Reports, seed: u64, rest: Duration) -> Result<()> {
    install_handlers()?;
    for thread in 1..THREADS {
        std::thread::Builder::new()
            .spawn(move || record_and_hop(reports, thread, seed, rest))
            .context("a thread")?;
    }
    record_and_hop(reports, 0, seed, rest)
}

fn record_and_hop(reports: &Reports, thread: usize, seed: u64, rest: Duration) -> ! {
    let mut rng = Random(seed ^ mix(thread as u64));
    // The first event makes the callsite known, which no handler may have to do.
    record_next(reports, LEVELS * thread);
    WRITER.set(LEVELS * thread);
    reports.ready.fetch_add(1, Release);
    if thread == 0 {
        start_timers();
    }
    let cpus = cpus();
    loop {
        for _ in 0..=rng.below(128) {
            record_next(reports, LEVELS * thread);
        }
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
        pin(rng.below(cpus) as u32);
    }
}

/// CPUs of this machine, those too that are offline now.
fn cpus() -> u64 {
    // SAFETY: no memory is involved.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }).unwrap_or(1).max(1)
}

/// Records a round of events whenever it is asked.
fn survive(reports: &Reports) -> Result<()> {
    record_next(reports, SURVIVOR);
    reports.ready.fetch_add(1, Release);
    loop {
        let asked = reports.asked.load(Acquire);
        if reports.done.load(Relaxed) == asked {
            std::thread::sleep(Duration::from_micros(20));
            continue;
        }
        pin(reports.cpu.load(Relaxed));
        let begun = Instant::now();
        (0..NUMBERED).for_each(|_| record_next(reports, SURVIVOR));
        reports.took.store(begun.elapsed().as_nanos() as u64, Relaxed);
        reports.done.store(asked, Release);
    }
}

/// Returns the check word of event `sequence` of `writer`. The event's filler is made from it too.
pub(crate) fn check(writer: usize, sequence: u64) -> u64 {
    mix(((writer as u64) << 48) ^ sequence)
}

/// Bytes of filler: at most 40.
pub(crate) fn filler(check: u64) -> ([u8; 40], usize) {
    let mut bytes = [0u8; 40];
    for (i, part) in bytes.chunks_mut(8).enumerate() {
        part.copy_from_slice(&check.rotate_left(i as u32 * 7).to_ne_bytes());
    }
    (bytes, (check % 41) as usize)
}

/// Records the next event of a writer and reports it.
fn record_next(reports: &Reports, writer: usize) {
    reports.writers[writer].around(|sequence| {
        let check = check(writer, sequence);
        let (bytes, len) = filler(check);
        event!(
            kills,
            "tick",
            writer = writer as u32,
            sequence = sequence,
            check = check,
            filler = &bytes[..len]
        );
    });
}

/// Binds this thread to a CPU, if it may run there.
fn pin(cpu: u32) {
    // SAFETY: the set is a plain bit array, valid when zeroed, and passed with its size.
    unsafe {
        let mut set: libc::cpu_set_t = core::mem::zeroed();
        libc::CPU_SET(cpu as usize % (8 * size_of::<libc::cpu_set_t>()), &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

fn die_with_parent() {
    // SAFETY: a number, no addresses.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

fn install_handlers() -> Result<()> {
    for signal in [libc::SIGALRM, libc::SIGPROF] {
        // SAFETY: a zeroed `sigaction` is valid; the handler only does what signal handlers may.
        let set = unsafe {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = handle as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(signal, &raw const action, core::ptr::null_mut())
        };
        ensure!(set == 0, "sigaction: {}", std::io::Error::last_os_error());
    }
    Ok(())
}

fn start_timers() {
    for (timer, us) in [(libc::ITIMER_REAL, 170), (libc::ITIMER_PROF, 1000)] {
        let every = libc::timeval { tv_sec: 0, tv_usec: us };
        let value = libc::itimerval { it_interval: every, it_value: every };
        // SAFETY: the value is valid; the old one is not asked for.
        unsafe { libc::setitimer(timer as _, &raw const value, core::ptr::null_mut()) };
    }
}

extern "C" fn handle(signal: libc::c_int) {
    let writer = WRITER.get();
    if let Some(page) = PAGE.get().filter(|_| writer != usize::MAX) {
        record_next(page.reports(), writer + if signal == libc::SIGALRM { 1 } else { 2 });
    }
}
