//! ftrace's persistent ring buffer: a trace instance in memory that a reboot does not clear.
//!
//! A kernel that was started with `reserve_mem=12M:4096:trace trace_instance=boot_map@trace` keeps
//! an instance in a range of physical memory. [`read`] takes a copy of that range. It checks all
//! that the kernel checks when it boots, but for each sub-buffer separately: where the kernel
//! discards all events because one word is wrong, a damaged sub-buffer costs its own events here.
//!
//! 1. `members` has the layouts of the metadata: those that are known, and those that a kernel's
//!    types give;
//! 2. `layout` reads the metadata: sizes, the order of sub-buffers, where the kernel and its
//!    modules were;
//! 3. `geometry` derives the size and the number of a CPU's sub-buffers from all evidence, as each
//!    word of the metadata may be damaged;
//! 4. `find` looks for regions in an image of memory;
//! 5. `sub_buffer` judges each sub-buffer by its bytes, and `chain` puts the sub-buffers in order.

mod chain;
mod emptied;
mod find;
mod geometry;
mod layout;
mod members;
mod source;
mod sub_buffer;
mod words;

pub use find::find;
pub use layout::{Boot, Module};
pub use members::{Form, Members};

use self::sub_buffer::SubBuffer as Judged;
use crate::{CpuRing, HeaderPage, Ring, Stats, SubBufferInfo};
use chain::{Chain, Fit, blank_in_doubt, chain, exchange, fits, oldest_in_doubt};
use lastwords_bytes::{Budget, Error, Reader};
use lastwords_image::Image;
use lastwords_trace::evidence::{Cause, Evidence, Gap, SubBuffer, Verdict};
use layout::CpuMeta;
use source::Source;
use std::sync::Arc;

/// The ring of a region.
pub struct Region {
    /// The layout by which it is read.
    pub layout: Members,
    /// Facts of the metadata about the boot that wrote it.
    pub boot: Boot,
    image: Arc<dyn Image>,
    base: u64,
    cpus: Vec<CpuRing>,
    /// By CPU: its metadata, and the sub-buffers that are delivered, the oldest first.
    planned: Vec<(CpuMeta, Vec<Judged>)>,
    /// By CPU: its metadata, and the sub-buffers with an empty header whose events are whole.
    emptied: Vec<(CpuMeta, Vec<Judged>)>,
    evidence: Evidence,
}

/// Returns true if a file of `len` bytes that begins with `head` is a persistent ring buffer: of a
/// known layout, or of another that begins with the magic word.
#[must_use]
pub fn is_region(head: &[u8], len: u64) -> bool {
    let magic = |layout: &Members| layout.magic.read(&Reader::new("", head, layout.byte_order));
    let has_magic = members::KNOWN.iter().any(|layout| magic(layout) == Some(words::MAGIC));
    has_magic || !words::recognise(head, len, &members::KNOWN).is_empty()
}

/// Reads the region of `len` bytes at `base` of an image, by one of the layouts that kernels' types
/// gave, or by one that is known. Every sub-buffer is looked at once; the ring reads them again
/// when they are asked for.
///
/// # Errors
/// The region does not begin with metadata of any of these layouts, or the budget is spent.
pub fn read(
    image: &Arc<dyn Image>,
    base: u64,
    len: u64,
    layouts: &[Members],
    budget: &Budget,
) -> Result<Region, Error> {
    let fill = |at: u64, bytes: &mut [u8]| fill(image.as_ref(), base, at, bytes);
    let layouts = layout::with_known(layouts);
    let source = Source { name: image.name(), len, read: &fill, layouts: &layouts, budget };
    let layout = layout::read(&source)?;
    let mut region = Region {
        layout: layout.members,
        boot: layout.boot,
        image: Arc::clone(image),
        base,
        cpus: Vec::new(),
        planned: Vec::new(),
        emptied: Vec::new(),
        evidence: Evidence { notes: layout.notes, ..Evidence::default() },
    };
    let mut is_unused = layout.unread.is_none();
    for meta in &layout.cpus {
        is_unused = is_unused && region.is_unused(meta, budget)?;
    }
    for meta in layout.cpus {
        if is_unused {
            region.add(meta, Vec::new(), Vec::new());
        } else {
            region.add_cpu(meta, budget)?;
        }
    }
    if is_unused {
        region.evidence.notes.push(
            "a kernel has cleared this memory when it started, as it does after a loss of power, and nothing was recorded since: it has \
             nothing of an earlier boot"
                .into(),
        );
    }
    if let Some(unread) = layout.unread {
        let (begin, end) = (unread.start, unread.end);
        let place = format!(
            "offsets {begin:#x} to {end:#x} of the region: no metadata of a CPU can be read there"
        );
        let bytes = Some(end.saturating_sub(begin));
        region.evidence.gaps.push(Gap::new(None, Cause::Damaged, place).with_bytes(bytes));
    }
    Ok(region)
}

/// Fills a buffer from an offset of the region at `base`.
fn fill(image: &dyn Image, base: u64, at: u64, bytes: &mut [u8]) -> Result<(), Error> {
    let read = image.read(base.saturating_add(at), bytes);
    read.map_err(|hole| Error::value(image.name(), hole.address, 0, "bytes of the region"))
}

impl Region {
    /// How a sub-buffer begins.
    #[must_use]
    pub fn header_page(&self) -> HeaderPage {
        self.layout.header_page
    }

    /// Reads a sub-buffer; false where the image does not have it whole.
    fn load(&self, meta: &CpuMeta, number: u32, bytes: &mut Vec<u8>) -> bool {
        bytes.clear();
        bytes.resize(meta.sub_buffer_size as usize, 0);
        self.image.read(self.base.saturating_add(meta.offset_of(number)), bytes).is_ok()
    }

    fn judge(&self, meta: &CpuMeta, number: u32, not_after: u64, bytes: &mut Vec<u8>) -> Judged {
        let is_there = self.load(meta, number, bytes);
        let mut judged =
            Judged::judge(number, bytes, self.header_page(), self.layout.byte_order, not_after);
        if !is_there {
            judged.verdict = Verdict::Missing;
            let begin = self.header_page().data_offset as usize;
            judged.claimed = judged.claimed.max(bytes.len().saturating_sub(begin));
            judged.why = "the image does not have it whole".into();
        }
        judged
    }

    /// Returns true if a CPU's memory is as a kernel leaves it that does not find the region of an
    /// earlier boot (`rb_range_meta_init`): all sub-buffers are zero and in the order of their
    /// numbers, and the first one behind the reader's is the head and the commit. Such a CPU alone
    /// proves nothing, because a reset can lose the few cache lines that an idle CPU has written.
    fn is_unused(&self, meta: &CpuMeta, budget: &Budget) -> Result<bool, Error> {
        let is_first = |place: Option<u32>| place == Some(1);
        let is_new = meta.faults.is_empty()
            && is_first(meta.head)
            && is_first(meta.commit)
            && meta.order.iter().zip(0..).all(|(number, place)| *number == place);
        let mut bytes = Vec::new();
        for number in 0..u32::try_from(meta.order.len()).unwrap_or(0) {
            if !is_new {
                return Ok(false);
            }
            budget.bytes(self.image.name(), u64::from(meta.sub_buffer_size))?;
            if !self.load(meta, number, &mut bytes) || bytes.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
        }
        Ok(is_new)
    }

    /// Looks at all sub-buffers of a CPU and plans what is delivered: all of the chain, in its
    /// order.
    fn add_cpu(&mut self, meta: CpuMeta, budget: &Budget) -> Result<(), Error> {
        let stream = self.cpus.len();
        let mut bytes = Vec::new();
        let mut all = Vec::new();
        for number in 0..u32::try_from(meta.order.len()).unwrap_or(0) {
            budget.bytes(self.image.name(), u64::from(meta.sub_buffer_size))?;
            all.push(self.judge(&meta, number, u64::MAX, &mut bytes));
        }
        let mut order = chain(&meta, &all);
        for (one, other) in exchange(&mut order.numbers, &all) {
            let why = || {
                format!(
                    "the table of the order has sub-buffer {other} before {one}, and their times are the other way round: the table or a \
                     time is damaged, and they are read in the order of their times"
                )
            };
            let both = all.iter_mut().filter(|sub| [one, other].contains(&sub.number));
            both.for_each(|sub| sub.refuse(why()));
        }
        self.judge_chained(&meta, &order, &mut all);
        self.tell_order(stream, &meta, &order);
        let chained: Vec<&Judged> =
            order.numbers.iter().filter_map(|n| all.get(*n as usize)).collect();
        let fits = fits(&chained, order.ring);
        let mut planned = Vec::new();
        for ((position, sub), fit) in
            chained.iter().enumerate().zip(fits).filter(|((_, sub), _)| !sub.is_empty())
        {
            let mut sub = self.fitted(&meta, sub, &fit);
            let is_last = position.saturating_add(1) == chained.len();
            if order.has_open && is_last && sub.verdict == Verdict::Committed {
                sub.verdict = Verdict::Open;
            }
            self.tell(stream, planned.len(), &sub, &meta);
            planned.push(sub);
        }
        if let Some(sub) = oldest_in_doubt(&meta, &order, &all) {
            self.tell_doubt(stream, sub, &meta);
        }
        self.tell_blank(stream, blank_in_doubt(&meta, &order, &all));
        let emptied = self.emptied_of(&meta, &all);
        self.tell_damage_elsewhere(stream, &order.numbers, &all, emptied.len());
        self.add(meta, planned, emptied);
        Ok(())
    }

    /// Adds the ring of a CPU.
    fn add(&mut self, meta: CpuMeta, planned: Vec<Judged>, emptied: Vec<Judged>) {
        let total =
            |of: &dyn Fn(&Judged) -> u64| planned.iter().map(of).fold(0, u64::saturating_add);
        let stats = Stats {
            entries: total(&|sub| sub.events),
            bytes: total(&|sub| sub.committed as u64),
            ..Stats::default()
        };
        let cpu = u32::try_from(self.cpus.len()).unwrap_or(u32::MAX);
        let (sub_buffers, sub_buffer_size) = (planned.len(), meta.sub_buffer_size);
        self.cpus.push(CpuRing { cpu, sub_buffers, sub_buffer_size, stats });
        self.emptied.push((meta.clone(), emptied));
        self.planned.push((meta, planned));
    }

    /// Judges chained sub-buffers once more, with what the chain says of them: takes the events of
    /// those whose committed size is damaged, and refuses those whose header is lost. The newest
    /// sub-buffer may be written in part only: how far is not known then, and its memory may
    /// have events of an older lap. The reader's may be empty because it was read.
    fn judge_chained(&self, meta: &CpuMeta, order: &Chain, all: &mut [Judged]) {
        let (layout, byte_order) = (self.header_page(), self.layout.byte_order);
        let mut bytes = Vec::new();
        let read = order
            .numbers
            .iter()
            .filter_map(|number| all.get(*number as usize))
            .filter(|sub| sub.committed > 0);
        let newest = read.map(|sub| sub.last).max();
        for (position, number) in order.numbers.iter().enumerate() {
            let Some(sub) = all.get_mut(*number as usize) else { continue };
            let is_last = position.saturating_add(1) == order.numbers.len();
            // A writer sets the time with the first event, which is committed soon.
            let may_be_open = is_last && (order.has_open || order.by_time.is_some());
            if may_be_open && sub.has_remains && newest.is_some_and(|newest| sub.first >= newest) {
                self.load(meta, *number, &mut bytes);
                sub.refuse_lost_size(&bytes, layout);
                continue;
            }
            let is_emptied =
                sub.has_remains && (position < order.consumed || position >= order.ring);
            let is_open = is_last && order.has_open && sub.broken.is_some();
            let is_mendable = !is_last && (sub.has_bad_size || is_emptied);
            // A writer that goes on from the reader's sub-buffer has set the time of the next, and
            // of all from the head to the commit.
            let is_written = order.has_open && (is_last && position > 0 || position >= order.ring);
            let is_blank = is_written && sub.first == 0 && sub.is_empty();
            let is_lost = sub.has_lost_header || is_blank;
            if !(is_open || is_mendable || is_lost) {
                continue;
            }
            self.load(meta, *number, &mut bytes);
            if is_lost {
                sub.refuse_lost_header(&bytes, layout);
            } else if is_open {
                *sub = sub.clone().without_older_lap(&bytes, layout, byte_order);
            } else {
                sub.mend_size(&bytes, layout, byte_order);
            }
        }
    }

    /// Tells of what is wrong with a CPU's metadata, and of what its order is.
    fn tell_order(&mut self, stream: usize, meta: &CpuMeta, order: &Chain) {
        let notes = &mut self.evidence.notes;
        notes.extend(meta.faults.iter().map(|fault| format!("CPU {stream}: {fault}")));
        if let Some(why) = &order.by_time {
            notes.push(format!(
                "CPU {stream}: {why}; its sub-buffers are read in the order of their time stamps"
            ));
        }
        if order.consumed > 0 {
            let count = order.consumed;
            let are = if count == 1 { "sub-buffer was" } else { "sub-buffers were" };
            notes.push(format!(
                "CPU {stream}: {count} {are} read before the reboot and can still be read"
            ));
        }
    }

    /// A sub-buffer with the verdict that the times of its neighbours add. Its events stay, unless
    /// all of them are of an older lap, or some are later than both sub-buffers behind.
    fn fitted(&self, meta: &CpuMeta, sub: &Judged, fit: &Fit) -> Judged {
        let mut fitted = sub.clone();
        let times = format!("its times {} to {}", sub.first, sub.last);
        match fit {
            Fit::InOrder => return fitted,
            Fit::OlderLap => {
                (fitted.verdict, fitted.committed, fitted.events) = (Verdict::Stale, 0, 0);
                fitted.why = format!(
                    "{times} are older than all sub-buffers before it: newer cache lines did not reach memory before the reset"
                );
                return fitted;
            }
            Fit::Wrong { is_first: true, between: (_, end) } => {
                fitted = self.judge(meta, sub.number, *end, &mut Vec::new());
            }
            Fit::Wrong { is_first: false, between } => {
                fitted.refuse(format!("{times} do not fit between those of its neighbours"));
                fitted.mend(*between);
            }
            Fit::Ambiguous(other) => fitted.refuse(format!(
                "{times} and those of sub-buffer {other} contradict each other, one of the two is damaged; both are kept"
            )),
        }
        fitted
    }

    /// Puts down the verdict on a sub-buffer that is delivered, and what of it is lost.
    fn tell(&mut self, stream: usize, sequence: usize, sub: &Judged, meta: &CpuMeta) {
        let header = u64::from(self.header_page().data_offset);
        let content = (sub.committed as u64).saturating_add(header);
        let row = SubBuffer {
            stream,
            sequence: sequence as u64,
            verdict: sub.verdict,
            content,
            why: sub.why.clone(),
        };
        self.evidence.sub_buffers.push(row);
        // What was overwritten before the first sub-buffer is no gap in the recording.
        if let Some(events) = sub.missed.filter(|_| sequence > 0 && sub.committed > 0) {
            let place = format!("before sub-buffer {} in memory, as its header says", sub.number);
            let gap =
                Gap { stream: Some(stream), place, cause: Cause::Unread, events, bytes: None };
            self.evidence.gaps.push(gap);
        }
        let lost = sub.claimed.saturating_sub(sub.committed) as u64;
        if lost == 0 {
            return;
        }
        let cause = match sub.verdict {
            Verdict::Missing | Verdict::Stale => Cause::Missing,
            _ => Cause::Damaged,
        };
        let begin = meta.offset_of(sub.number).saturating_add(content);
        let end = begin.saturating_add(lost);
        let number = sub.number;
        let place = format!(
            "sub-buffer {number} in memory, offsets {begin:#x} to {end:#x} of the region: {}",
            sub.why
        );
        self.evidence.gaps.push(Gap::new(Some(stream), cause, place).with_bytes(Some(lost)));
    }

    /// Reports an emptied sub-buffer as lost, because damage of its header may have emptied it.
    fn tell_doubt(&mut self, stream: usize, sub: &Judged, meta: &CpuMeta) {
        let begin =
            meta.offset_of(sub.number).saturating_add(self.header_page().data_offset.into());
        let end = meta.offset_of(sub.number).saturating_add(meta.sub_buffer_size.into());
        let place = format!(
            "sub-buffer {} in memory, offsets {begin:#x} to {end:#x} of the region: its header says that nothing is committed, nobody has read \
             it, and no other metadata say whether it has events",
            sub.number
        );
        let bytes = Some(end.saturating_sub(begin));
        self.evidence.gaps.push(Gap::new(Some(stream), Cause::Damaged, place).with_bytes(bytes));
    }

    /// Reports sub-buffers as lost that have nothing: they were never written, or what they had is
    /// gone.
    fn tell_blank(&mut self, stream: usize, count: usize) {
        if count > 0 {
            let have = if count == 1 { "sub-buffer has" } else { "sub-buffers have" };
            let place = format!(
                "{count} {have} nothing, and the metadata do not say whether something was recorded there"
            );
            self.evidence.gaps.push(Gap::new(Some(stream), Cause::Damaged, place));
        }
    }

    /// Adds notes about sub-buffers that are not delivered but have content: those whose header is
    /// empty, and those outside the chain that cannot be read.
    fn tell_damage_elsewhere(
        &mut self,
        stream: usize,
        chained: &[u32],
        all: &[Judged],
        whole: usize,
    ) {
        let mut is_chained = vec![false; all.len()];
        for number in chained {
            is_chained.get_mut(*number as usize).into_iter().for_each(|chained| *chained = true);
        }
        let outside = |sub: &&Judged| {
            is_chained.get(sub.number as usize) == Some(&false)
                && sub.verdict == Verdict::Invalid
                && sub.committed == 0
        };
        let remains = all.iter().filter(|sub| sub.has_remains && sub.committed == 0).count();
        if remains > 0 {
            let have = if remains == 1 { "sub-buffer has" } else { "sub-buffers have" };
            self.evidence.notes.push(format!(
                "CPU {stream}: {remains} {have} an empty header but bytes of events: a reader consumed these events, or a kernel \
                 discarded them; they may be of an earlier boot and are kept apart, {whole} of them whole"
            ));
        }
        for sub in all.iter().filter(outside) {
            let note = format!(
                "CPU {stream}: sub-buffer {}, which holds no events by the metadata: {}",
                sub.number, sub.why
            );
            self.evidence.notes.push(note);
        }
    }
}

impl Ring for Region {
    fn cpus(&self) -> &[CpuRing] {
        &self.cpus
    }

    fn sub_buffer(&self, cpu: usize, index: usize, bytes: &mut Vec<u8>) -> SubBufferInfo {
        let nothing = SubBufferInfo::MISSING;
        let Some((meta, planned)) = self.planned.get(cpu) else { return nothing };
        let Some(sub) = planned.get(index) else { return nothing };
        self.load(meta, sub.number, bytes);
        if let (Some(time), Some(stamp)) = (sub.mended, bytes.first_chunk_mut::<8>()) {
            *stamp = self.layout.byte_order.little(time.to_le_bytes());
        }
        SubBufferInfo {
            committed: sub.committed,
            consumed: 0,
            missed: sub.missed,
            verdict: sub.verdict,
        }
    }

    fn evidence(&self) -> Evidence {
        self.evidence.clone()
    }
}
