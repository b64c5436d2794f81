//! Finds the words of a dump's memory that the walks read.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use lastwords_bytes::Budget;
use lastwords_ftrace::memory as ftrace;
use lastwords_image::{Hole, Image, Range, unwatched, vmcore};
use lastwords_kernel::{Kernel, Sources, find};
use lastwords_lttng::kernel;

/// Reads of more bytes are of pages: of these the head counts, and a word of so many bytes.
const PAGE_HEAD: u64 = 128;
const PAGE_STEP: u64 = 512;

/// Physical addresses, multiples of 8, of words that are read from opening the kernel to its last
/// packet, in order.
pub(super) fn words(dump: &Path) -> Result<Vec<u64>> {
    let context = || dump.display().to_string();
    let budget = Arc::new(Budget::default());
    let physical = vmcore::open_physical(dump, &budget, &unwatched).with_context(context)?;
    let mut physical =
        physical.with_context(|| format!("{}: no dump of a kernel", dump.display()))?;
    let witness = Arc::new(Witness { image: Arc::clone(&physical.image), seen: Mutex::default() });
    physical.image = witness.clone();
    let found = find::kernel(&physical, &budget, &unwatched).with_context(context)?;
    let memory = Arc::new(found.memory);
    let kernel = Kernel::open(memory.clone(), &found.info, Sources::default(), budget)
        .with_context(context)?;
    let kernel = Arc::new(kernel);
    // Symbols and types are read whole before, megabytes of them; they have fuzz targets of their
    // own.
    witness.seen.lock().expect("no panic").clear();
    let mut bytes = Vec::new();
    let tracing = ftrace::read(&kernel, Some(&memory)).with_context(context)?;
    for ring in tracing
        .arrays
        .iter()
        .flat_map(|array| [Some(&array.live), array.snapshot.as_ref()])
        .flatten()
    {
        for (at, cpu) in ring.cpus().iter().enumerate() {
            for index in 0..cpu.sub_buffers {
                let _ = ring.sub_buffer(at, index, &mut bytes);
            }
        }
    }
    for session in
        kernel::read(&kernel, &kernel::ModuleTypes::Image).with_context(context)?.sessions
    {
        for (at, stream) in session.streams.iter().enumerate() {
            for packet in 0..stream.packets.len() {
                let _ = session.packet(at, packet, &mut bytes);
            }
        }
    }
    let seen = std::mem::take(&mut *witness.seen.lock().expect("no panic"));
    Ok(seen.into_iter().collect())
}

/// An image that notes what is read of it.
struct Witness {
    image: Arc<dyn Image>,
    seen: Mutex<BTreeSet<u64>>,
}

impl Image for Witness {
    fn name(&self) -> &str {
        self.image.name()
    }

    fn ranges(&self) -> &[Range] {
        self.image.ranges()
    }

    fn is_virtual(&self) -> bool {
        self.image.is_virtual()
    }

    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole> {
        let (first, len) = (address & !7, buf.len() as u64);
        let step = |at: u64| if len > PAGE_STEP && at - first >= PAGE_HEAD { PAGE_STEP } else { 8 };
        let words = std::iter::successors(Some(first), |at| {
            Some(at + step(*at)).filter(|at| *at < address + len)
        });
        self.seen.lock().expect("no panic").extend(words);
        self.image.read(address, buf)
    }

    fn next_data(&self, address: u64, end: u64) -> u64 {
        self.image.next_data(address, end)
    }
}
