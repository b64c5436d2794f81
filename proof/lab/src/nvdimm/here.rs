//! The application of `cargo xtask nvdimm`: records in memory that outlives the machine until it is
//! reset or panics, and keeps there how far it has come.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use lastwords::{ChannelConfig, Context, Persist, Reservation, Session, event};

use super::ack::{self, Ack, BOOT, MAGIC, READY, WRITERS};
use super::memory::{Memory, Places};
use lastwords_testkit::random::Random;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The kind of memory
    memory: Memory,
    /// Only tell by the status whether an older boot has recorded there
    #[arg(long)]
    knows: bool,
}

/// The work of the boots, in turn.
const PLANS: [(Persist, Reservation); 6] = [
    (Persist::Event, Reservation::Locked),
    (Persist::Event, Reservation::Lockless),
    (Persist::SubBuffer, Reservation::Rseq),
    (Persist::SubBuffer, Reservation::Locked),
    (Persist::SubBuffer, Reservation::Lockless),
    (Persist::None, Reservation::Rseq),
];
/// Sub-buffers of the ring, and their bytes.
pub(super) const SUB_BUFFERS: (u32, u64) = (32, 4096);

/// Records. Returns only an error.
pub(crate) fn run(args: &Args) -> Result<()> {
    let Places { session, ack: (path, start) } = args.memory.places();
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .context(path)?;
    let mut page = vec![0; ack::LEN];
    let is_whole = file.read_at(&mut page, start)? == page.len();
    let last = Ack::parse(&page).filter(|_| is_whole);
    if args.knows {
        ensure!(last.is_some_and(|last| last.ready), "no older boot has recorded here");
        return Ok(());
    }
    if last.is_some_and(|last| ack::panics(last.boot)) {
        // The host stops the machine here, and reads the memory before the application begins anew.
        std::thread::sleep(Duration::from_secs(3));
    }
    let boot = last.map_or(0, |last| last.boot + 1);
    let mut page = vec![0; ack::LEN];
    page[..MAGIC.len()].copy_from_slice(MAGIC);
    page[BOOT..BOOT + 8].copy_from_slice(&boot.to_le_bytes());
    file.write_all_at(&page, start)?;
    if file.metadata()?.is_file() {
        file.sync_all()?;
    }
    let (persist, reservation) = PLANS[boot as usize % PLANS.len()];
    let channel = ChannelConfig::new("main")
        .sub_buffers(SUB_BUFFERS.0, SUB_BUFFERS.1)
        .contexts(Context::NONE);
    let builder =
        Session::builder("nvdimm").dir("/run/lastwords").channel(channel).backend(session);
    let session = builder.persist(persist).reservation(reservation).start()?;
    file.write_all_at(&1u64.to_le_bytes(), start + READY as u64)?;
    println!("NVDIMM-PLAN {persist:?} {reservation:?}: {}", session.note());
    println!("NVDIMM-RECORDS {boot}.");
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let file = &file;
            scope.spawn(move || record(file, start, writer));
        }
        if ack::panics(boot) {
            let wait = Random(boot).below(1500);
            std::thread::sleep(Duration::from_millis(wait));
            std::fs::write("/proc/sysrq-trigger", "c").context("/proc/sysrq-trigger")?;
        }
        Ok(())
    })
}

/// Counts the calls of all writers. It orders nothing else.
static ORDER: AtomicU64 = AtomicU64::new(0);

/// Records numbered events, and writes before and after each call how far it has come.
fn record(file: &File, start: u64, writer: usize) {
    let (begun, returned) = ack::places(writer);
    let note = |place: usize, counts: &[u64]| {
        let bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        file.write_all_at(&bytes, start + place as u64)
    };
    for sequence in 0.. {
        let check = ack::check(writer, sequence);
        let filler = ack::filler(check);
        if note(begun, &[sequence + 1]).is_err() {
            println!("LAB-FAILED the page of acknowledgements cannot be written");
            return;
        }
        let order = ORDER.fetch_add(1, Relaxed);
        event!(
            nvdimm,
            "step",
            writer = writer as u32,
            sequence = sequence,
            check = check,
            filler = filler.as_str()
        );
        // An error leaves the older count, which is also true.
        let _ = note(returned, &[sequence + 1, order]);
    }
}
