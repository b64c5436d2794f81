//! A buffer of perf (`struct perf_buffer`) and its positions.
//!
//! Positions count bytes since the buffer was made. A buffer that is written backward begins at
//! position 0 and counts down, as numbers of 64 bits do. `perf_buffer.head` is the end of what was
//! reserved, and `perf_event_mmap_page.data_head` the end of what is committed: records of
//! interrupts lie in those that they interrupted, and all are published together by the outermost.

use crate::event::Event;
use lastwords_bytes::Error as BytesError;
use lastwords_kernel::{Error, Kernel, Object};
use lastwords_trace::evidence::{Cause, Gap};
use serde::Serialize;

/// Largest buffer that is accepted, bytes.
const SIZE_MAX: u64 = 1 << 36;

/// A process that has a buffer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// Number of the process.
    pub pid: u32,
    /// Name of the process.
    pub comm: String,
}

/// Positions in a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Positions {
    /// Where the next record is reserved.
    pub reserved: u64,
    /// Where the committed records end; of a buffer that is written backward, where they begin.
    pub committed: u64,
    /// Where the records begin that the process has not read, or null if that is not known. A
    /// buffer in overwrite mode has no such position.
    pub consumed: Option<u64>,
}

/// A buffer of perf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Buffer {
    /// Address of its `struct perf_buffer`.
    pub address: u64,
    /// The process that has it.
    pub owner: Owner,
    /// Its CPU, or null if it has records of several.
    pub cpu: Option<u32>,
    /// Size of the data, bytes.
    pub size: u64,
    /// New records overwrite the oldest. In other buffers they are lost if there is no room.
    pub is_overwritten: bool,
    /// It is written from the end to the begin.
    pub is_backward: bool,
    /// Recording into it was paused.
    pub is_paused: bool,
    /// Its positions.
    pub positions: Positions,
    /// Records that found no room, which no record tells yet.
    pub lost: u64,
    /// The events whose records are in it.
    pub events: Vec<Event>,
    /// Some event may be missing: its file, its process or the event itself could not be read.
    #[serde(skip)]
    pub(crate) lacks_events: bool,
    /// Bytes of a data page.
    #[serde(skip)]
    pub(crate) page_size: u64,
    /// Address of the pointers to its pages.
    #[serde(skip)]
    pub(crate) pages: u64,
}

impl Buffer {
    /// Reads a buffer. A position that cannot be right becomes a gap. None for a buffer without
    /// data, which only maps a counter.
    ///
    /// # Errors
    /// The image lacks the buffer, or it is damaged.
    pub(crate) fn read(
        kernel: &Kernel,
        buffer: &Object<'_>,
        owner: &Owner,
        events: Vec<Event>,
        gaps: &mut Vec<Gap>,
    ) -> Result<Option<Self>, Error> {
        let order = if buffer.has("page_order") { buffer.u64("page_order")? } else { 0 };
        let page_size = kernel.memory.page_size().wrapping_shl(u32::try_from(order).unwrap_or(64));
        let pages = buffer.u64("nr_pages")?;
        let user_page = buffer.address("user_page")?;
        if user_page == 0 || order > 20 {
            let expected = "a buffer with a page of positions";
            return Err(BytesError::value("perf_buffer", buffer.place(), pages, expected).into());
        }
        if pages == 0 {
            return Ok(None);
        }
        let size = pages.checked_mul(page_size).filter(|size| *size <= SIZE_MAX);
        let Some(size) = size.filter(|size| size.is_power_of_two()) else {
            let expected = "a number of pages, a power of two";
            return Err(BytesError::value("perf_buffer", buffer.place(), pages, expected).into());
        };
        let cpus = || events.iter().map(|event| event.cpu);
        let mut found = Self {
            address: buffer.place(),
            owner: owner.clone(),
            cpu: cpus().next().flatten().filter(|first| cpus().all(|cpu| cpu == Some(*first))),
            size,
            is_overwritten: buffer.bool("overwrite")?,
            is_backward: events.iter().any(|event| event.is_backward),
            is_paused: buffer.has("paused") && buffer.bool("paused")?,
            positions: Positions { reserved: buffer.u64("head")?, committed: 0, consumed: None },
            lost: buffer.u64("lost")?,
            events,
            lacks_events: false,
            page_size,
            pages: buffer.at("data_pages")?.place(),
        };
        found.find_positions(kernel, buffer, gaps)?;
        Ok(Some(found))
    }

    /// Reads the positions in the page that the process shares.
    fn find_positions(
        &mut self,
        kernel: &Kernel,
        buffer: &Object<'_>,
        gaps: &mut Vec<Gap>,
    ) -> Result<(), Error> {
        let is_writing = buffer.u64("nest")? != 0;
        let read = || {
            let page = kernel.object("perf_event_mmap_page", buffer.address("user_page")?)?;
            let (head, tail) = (page.u64("data_head")?, page.u64("data_tail")?);
            // Zero is of a page that reads as zero.
            if page.has("data_size") && page.u64("data_size")? == 0 {
                let expected = "the size of the data";
                return Err(
                    BytesError::value("perf_event_mmap_page", page.place(), 0, expected).into()
                );
            }
            Ok((head, tail))
        };
        let reserved = self.positions.reserved;
        match read() {
            Ok((head, tail)) => {
                // Without a writer, all that was reserved is published.
                self.positions.committed = if is_writing { head } else { reserved };
                if !is_writing && head != reserved {
                    let why = format!("data_head is {head} and the kernel's head {reserved}");
                    gaps.push(self.gap(Cause::Unknown, &why).with_events(Some(0)));
                }
                if self.written_since(self.positions.committed) > self.size {
                    self.positions.committed = reserved;
                    let why = format!("data_head is {head} and the kernel's head {reserved}");
                    gaps.push(self.gap(Cause::Unknown, &why));
                }
                self.positions.consumed = self.consumed(tail, gaps);
            }
            Err(error) => {
                self.positions.committed = reserved;
                gaps.push(crate::lost(&format!("{}, its positions", self.words()), &error));
            }
        }
        Ok(())
    }

    /// Returns the position to which the process has read.
    fn consumed(&self, tail: u64, gaps: &mut Vec<Gap>) -> Option<u64> {
        if self.is_overwritten {
            return None;
        }
        let unread = self.distance(tail, self.positions.committed);
        if unread <= self.size && tail & 7 == 0 {
            return Some(tail);
        }
        let why = format!("data_tail is {tail} and data_head {}", self.positions.committed);
        gaps.push(self.gap(Cause::Unknown, &why).with_events(Some(0)));
        None
    }

    /// Returns the bytes that were written from one position to a later one.
    pub(crate) fn distance(&self, from: u64, to: u64) -> u64 {
        if self.is_backward { from.wrapping_sub(to) } else { to.wrapping_sub(from) }
    }

    /// Returns the bytes that were reserved since a position.
    pub(crate) fn written_since(&self, position: u64) -> u64 {
        self.distance(position, self.positions.reserved)
    }

    /// Returns words for the buffer: its process and CPU.
    #[must_use]
    pub fn words(&self) -> String {
        let Owner { pid, comm } = &self.owner;
        let cpu = self.cpu.map_or_else(String::new, |cpu| format!(" of CPU {cpu}"));
        format!("perf buffer{cpu} at {:#x} of {comm} ({pid})", self.address)
    }

    /// Returns a gap in the buffer, of unknown size.
    pub(crate) fn gap(&self, cause: Cause, place: &str) -> Gap {
        Gap::new(None, cause, format!("{}, {place}", self.words()))
    }
}
