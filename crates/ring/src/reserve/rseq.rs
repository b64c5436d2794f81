//! Restartable sequences: one section copies the whole event, and its last store publishes the
//! event.
//!
//! The section runs on one CPU and is the only one that runs on it. If a thread is preempted, moved
//! or interrupted by a signal inside the section, the kernel sends it to its abort handler. So
//! plain stores suffice, a killed thread leaves only bytes after the produced position, and a
//! signal handler may record in the middle of a record.
//!
//! Everything that the section needs is computed before it, from a produced position that the
//! section checks again. If the position has not changed, nobody has recorded here in between, and
//! the clock that was read since is not older than any event's.

use core::mem::MaybeUninit;
use core::sync::atomic::Ordering::Relaxed;

use lastwords_abi::session::RESERVATION_LOCKLESS;
use lastwords_abi::stream::HalfControl;
use lastwords_abi::sync::AtomicU32;

use super::lockless;
use super::single_writer::{self, Before, Context, Publish, Published, Step};
use crate::channel::Channel;
use crate::cpu::{self, Area};
use crate::memory::Memory;
use crate::record::{Chunk, Lost, Piece, Record};

/// Gives the next number to the descriptor and the abort handler of a section. They are in ELF
/// sections of this number. So the linker can remove them together with their function. In ELF
/// sections that all functions share, each function would keep all others of its object file, and
/// their thread-local variables.
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(loom)))]
macro_rules! number {
    () => {
        concat!(
            ".ifndef .Llastwords_rseq\n",
            ".set .Llastwords_rseq, 0\n",
            ".endif\n",
            ".set .Llastwords_rseq, .Llastwords_rseq + 1\n",
        )
    };
}

#[cfg(not(loom))]
#[cfg_attr(target_arch = "x86_64", path = "rseq_x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "rseq_aarch64.rs")]
#[cfg_attr(not(any(target_arch = "x86_64", target_arch = "aarch64")), path = "rseq_none.rs")]
pub(super) mod section;
#[cfg(loom)]
pub(super) use crate::model::section;

/// Number of aborts after which an event is recorded in the channel's lockless stream. Under a
/// debugger that steps, or under valgrind, a section never ends.
const RETRIES: u32 = 16;

/// Largest number of copies of a section, counting parts and page borders together. An event with
/// more is recorded in the stream that is bound to no CPU, which has no such limit.
const MAX_PIECES: usize = 48;

/// The values that a section checks before it copies, and the position that it publishes.
///
/// The sections read it by offset: 0 area, 8 cpu, 12 half, 16 flip, 24 stream's flip, 32 control,
/// 40 position, 48 end.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Commit<'a> {
    area: &'a Area,
    pub(crate) cpu: u32,
    /// The half that contains the copies.
    pub(crate) half: u32,
    /// The session's flip word.
    pub(crate) flip: &'a AtomicU32,
    /// The stream's flip word.
    pub(crate) stream_flip: &'a AtomicU32,
    pub(crate) control: &'a HalfControl,
    /// The position on which the copies are based. It must not have changed.
    pub(crate) position: u64,
    /// The position to publish.
    pub(crate) end: u64,
}

#[cfg(not(loom))]
const _: () =
    assert!(core::mem::offset_of!(Commit<'_>, end) == 48 || cfg!(not(target_pointer_width = "64")));

/// Records on the CPU where the thread runs. Losses are counted here.
///
/// # Errors
/// The event was lost.
#[inline(never)]
pub(crate) fn record<M: Memory>(channel: &Channel, record: &Record<'_>) -> Result<(), Lost> {
    let Some(area) = cpu::area().filter(|_| cpu::register_thread()) else {
        return record_unbound::<M>(channel, record);
    };
    let mut retries = 0;
    while retries < RETRIES {
        let cpu = area.cpu_id.load(Relaxed);
        let Some(stream) = channel.stream_of(cpu) else { break };
        let section = Section { area, cpu, channel };
        match single_writer::step::<M, _>(channel, stream, &section, record, Before::Done) {
            Step::Done => return Ok(()),
            Step::Progress => {}
            Step::Aborted => retries += 1,
            // The channel's last ring has some memory from the start.
            Step::TooManyPieces | Step::NoMemory => break,
            Step::Lost(cause) => {
                stream.count(cause);
                return Err(cause);
            }
        }
    }
    record_unbound::<M>(channel, record)
}

/// Records in the stream that is bound to no CPU, for a thread in which no section completes.
#[cold]
fn record_unbound<M: Memory>(channel: &Channel, record: &Record<'_>) -> Result<(), Lost> {
    let last = &channel.streams[channel.streams.len() - 1];
    debug_assert!(last.spec.reservation == RESERVATION_LOCKLESS);
    lockless::record::<M>(channel, last, record).inspect_err(|cause| last.count(*cause))
}

/// Publishes in a section on this CPU.
struct Section<'a> {
    area: &'a Area,
    cpu: u32,
    channel: &'a Channel,
}

impl Publish for Section<'_> {
    fn publish<M: Memory>(
        &self,
        step: &Context<'_, Self, M>,
        end: u64,
        chunks: &[Chunk<'_>],
    ) -> Published {
        let mut list = [const { MaybeUninit::<Piece>::uninit() }; MAX_PIECES];
        let mut used = 0;
        let mut add = |piece| {
            let Some(place) = list.get_mut(used) else { return false };
            place.write(piece);
            used += 1;
            true
        };
        if !chunks.iter().all(|chunk| chunk.pieces(step.memory, &mut add)) {
            return Err(Step::TooManyPieces);
        }
        // SAFETY: `add` wrote the first `used` pieces.
        let pieces: &[Piece] = unsafe { core::slice::from_raw_parts(list.as_ptr().cast(), used) };
        let commit = Commit {
            area: self.area,
            cpu: self.cpu,
            half: step.half as u32,
            flip: self.channel.parts.flip,
            stream_flip: &step.stream.control.flip,
            control: step.stream.half(step.half),
            position: step.position,
            end,
        };
        // SAFETY: `single_writer` ensures that each piece's destination is in the half's data
        // between the position and the end (or in the header of the sub-buffer that contains the
        // position, which a close may rewrite). The section copies only while this CPU's position
        // has that value.
        let done = unsafe { section::publish(&commit, pieces) };
        if done { Ok(()) } else { Err(Step::Aborted) }
    }
}
