//! The form of a stream. docs/STREAM.md has it in prose.
//!
//! A stream begins with [`MAGIC`], then come frames. A frame has a header of 16 bytes, a kind
//! (`u32`), a CPU (`u32`) and a length (`u64`), all little-endian, and that many bytes. Frames of
//! sub-buffers and regions have the recorder's own bytes, all others JSON, text or the archive of a
//! bundle.
//!
//! After [`Hello`], a stream is one of the kernel's tracer, which begins with [`Settings`], or one
//! of a session, which begins with [`SessionInfo`].

use crate::counters;
use crate::error::{WireError, check, refuse};
use crate::head::{HEAD, Head};
use lastwords_bytes::ByteOrder;
use lastwords_ftrace::Stats;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The first bytes of a stream that is sent; the last eight are the version.
pub const MAGIC: [u8; 16] = *b"LWSTREAM\x03\0\0\0\0\0\0\0";

/// Returns true if a stream that begins so can be received: this version, or version 2, which has
/// no frames of sub-buffers that are being filled.
#[must_use]
pub fn is_known(magic: &[u8; 16]) -> bool {
    let (name, version) = magic.split_at(8);
    name == &MAGIC[..8] && matches!(version, [2 | 3, 0, 0, 0, 0, 0, 0, 0])
}

/// Bytes of a frame's header.
pub const HEADER: usize = 16;
/// Most bytes of a frame of JSON or text.
const MOST_TEXT: u64 = 1 << 22;
/// Most bytes of a description.
const MOST_DESCRIPTION: u64 = 64 << 20;
/// Most bytes of a frame of sub-buffers.
pub const MOST_DATA: u64 = 16 << 20;
/// Most bytes of a copy of a session's counters and histograms.
pub(crate) const MOST_COUNTERS: u64 = 16 << 20;
/// Most bytes of a frame of a session's packet: its number, and the largest sub-buffer.
const MOST_PACKET: u64 = (1 << 30) + NUMBER;
/// Bytes of the number before a packet, and of the offset before a part of a region.
pub const NUMBER: u64 = 8;
/// Bytes of the number and the offset before a part of a sub-buffer that is being filled.
pub const PART: u64 = 16;
/// Most bytes of the session region and of the registry.
const MOST_REGION: u64 = 256 << 20;
/// Most streams of a session.
const MOST_STREAMS: u32 = 1 << 20;
/// Most parts in which the regions of a session come.
const MOST_PARTS: u32 = 1 << 20;
/// Most CPUs of a machine. Linux allows 8,192.
const MOST_CPUS: usize = 8192;

/// Most bytes of a name, as in Linux's file systems.
const MOST_NAME: usize = 255;
/// Most descriptions of a stream: one before the events, and its changes after them.
const MOST_DESCRIPTIONS: usize = 2;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum FrameKind {
    /// [`Hello`], the first frame. The receiver answers it.
    Hello = 1,
    /// [`Settings`], before the first sub-buffers.
    Settings = 2,
    /// A bundle that describes the events, before the first sub-buffers. At the end, what has
    /// changed of it since.
    Description = 3,
    /// Whole sub-buffers of one CPU, the oldest first.
    SubBuffers = 4,
    /// Nothing: the sender lives, and has no events. It has no bytes.
    Alive = 5,
    /// [`End`], the last frame. The receiver answers it.
    End = 6,
    /// [`SessionInfo`], the first frame of a session's stream after [`FrameKind::Hello`].
    Session = 7,
    /// A part of the session's region (CPU 1) or of its registry (CPU 2), which replaces what came
    /// before for that place: an offset (`u64`) and bytes.
    Region = 8,
    /// The first bytes of the region of the stream whose index is in the place of the CPU, before
    /// its first sub-buffer and again at the end.
    Head = 9,
    /// One sub-buffer of the stream whose index is in the place of the CPU: its number (`u64`) and
    /// its bytes. The last one of a stream may be shorter. The receiver answers
    /// [`FrameKind::Confirmed`].
    Packet = 10,
    /// The packet of this number (`u64`) may have been overwritten while it was sent, and is
    /// dropped. In the place of the CPU is the index of its stream.
    Overwritten = 11,
    /// A part of the sub-buffer that is being filled, of the stream whose index is in the place of
    /// the CPU: its number (`u64`), an offset in it (`u64`), and the bytes there. The packet of
    /// this number replaces it.
    Open = 12,
    /// A copy of the counters region, which replaces the one before: an offset (`u64`), a length
    /// (`u64`) and as many bytes for each part that is not zero. Without bytes: the counters are
    /// too many for a frame, and the copy before is dropped.
    Counters = 13,
    /// Of the receiver: it takes the stream. It has no bytes.
    Accepted = 16,
    /// Of the receiver: it does not take the stream, or no more of it. A text says why.
    Refused = 17,
    /// Of the receiver: [`Received`], after [`FrameKind::End`].
    Received = 18,
    /// Of the receiver: the number (`u64`) of frames [`FrameKind::Packet`] that it has.
    Confirmed = 19,
}

impl FrameKind {
    fn from_number(number: u32) -> Option<Self> {
        let all = [
            Self::Hello,
            Self::Settings,
            Self::Description,
            Self::SubBuffers,
            Self::Alive,
            Self::End,
            Self::Session,
            Self::Region,
            Self::Head,
            Self::Packet,
            Self::Overwritten,
            Self::Open,
            Self::Counters,
            Self::Accepted,
            Self::Refused,
            Self::Received,
            Self::Confirmed,
        ];
        all.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The kind.
    pub kind: FrameKind,
    /// The CPU of sub-buffers; 0 in all other frames.
    pub cpu: u32,
    /// Bytes behind the header.
    pub length: u64,
}

/// Returns a frame of no CPU, for tests.
#[cfg(test)]
pub(crate) fn frame(kind: FrameKind, bytes: &[u8]) -> Vec<u8> {
    [&Header { kind, cpu: 0, length: bytes.len() as u64 }.bytes()[..], bytes].concat()
}

impl Header {
    /// Returns the header's bytes.
    #[must_use]
    pub fn bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        let fields = [(self.kind as u32).to_le_bytes(), self.cpu.to_le_bytes()].concat();
        let fields = fields.into_iter().chain(self.length.to_le_bytes());
        bytes.iter_mut().zip(fields).for_each(|(byte, field)| *byte = field);
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// No frame has such a kind, or one of the kind is never that long.
    pub fn read(bytes: [u8; HEADER]) -> Result<Self, WireError> {
        let [k0, k1, k2, k3, c0, c1, c2, c3, rest @ ..] = bytes;
        let (number, cpu) =
            (u32::from_le_bytes([k0, k1, k2, k3]), u32::from_le_bytes([c0, c1, c2, c3]));
        let length = u64::from_le_bytes(rest);
        let Some(kind) = FrameKind::from_number(number) else {
            refuse!(Header, "a frame of kind {number}, which does not exist")
        };
        let most = match kind {
            FrameKind::Alive | FrameKind::Accepted => 0,
            FrameKind::Description => MOST_DESCRIPTION,
            FrameKind::SubBuffers => MOST_DATA,
            FrameKind::Packet | FrameKind::Open => MOST_PACKET,
            FrameKind::Counters => MOST_COUNTERS,
            FrameKind::Head => HEAD as u64,
            FrameKind::Overwritten | FrameKind::Confirmed => NUMBER,
            _ => MOST_TEXT,
        };
        check!(Header, length <= most, "a frame {kind:?} of {length} bytes; {most} is the most");
        let of_streams = matches!(
            kind,
            FrameKind::Head | FrameKind::Packet | FrameKind::Overwritten | FrameKind::Open
        );
        let has_cpu = of_streams || matches!(kind, FrameKind::SubBuffers | FrameKind::Region);
        check!(Header, has_cpu || cpu == 0, "a frame {kind:?} of CPU {cpu}");
        Ok(Self { kind, cpu, length })
    }
}

/// Who sends a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// Name of the machine.
    pub host: String,
    /// Name of the recording's instance, or of the session.
    pub instance: String,
}

impl Hello {
    /// Returns what a sender on this machine says of itself.
    #[must_use]
    pub fn of_this_machine(instance: &str) -> Self {
        let uname = rustix::system::uname();
        Self {
            host: uname.nodename().to_string_lossy().into_owned(),
            instance: instance.to_owned(),
        }
    }

    /// Checks that the names are no longer than those of Linux.
    ///
    /// # Errors
    /// They are longer.
    pub fn check(&self) -> Result<(), WireError> {
        let is_name = |text: &str| text.len() <= MOST_NAME;
        check!(
            Content,
            is_name(&self.host) && is_name(&self.instance),
            "a name of more than {MOST_NAME} bytes in the frame Hello"
        );
        Ok(())
    }
}

/// The shape of the rings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// The machine is big-endian.
    pub is_big_endian: bool,
    /// Bytes of a page.
    pub page_size: u32,
    /// Bytes of a sub-buffer.
    pub sub_buffer_size: u32,
    /// Numbers of the CPUs, rising.
    pub cpus: Vec<u32>,
    /// The clock of the events.
    pub clock: String,
    /// The clock counts nanoseconds.
    pub clock_in_ns: bool,
    /// The tracer.
    pub tracer: String,
    /// Nanoseconds to add to readings of the clock to get the time since the epoch, if the clock
    /// can be related to it.
    pub real_time: Option<i64>,
}

impl Settings {
    /// Returns the byte order of the machine.
    #[must_use]
    pub fn byte_order(&self) -> ByteOrder {
        if self.is_big_endian { ByteOrder::Big } else { ByteOrder::Little }
    }

    /// Checks that a kernel can have such rings.
    ///
    /// # Errors
    /// It cannot.
    pub fn check(&self) -> Result<(), WireError> {
        let is_size = |size: u32| size.is_power_of_two() && (4096..=1 << 20).contains(&size);
        check!(Content, is_size(self.page_size), "pages of {} bytes", self.page_size);
        check!(
            Content,
            is_size(self.sub_buffer_size),
            "sub-buffers of {} bytes",
            self.sub_buffer_size
        );
        let (count, last) = (self.cpus.len(), self.cpus.last().copied().unwrap_or(0));
        let is_rising = self.cpus.iter().zip(self.cpus.iter().skip(1)).all(|(a, b)| a < b);
        check!(
            Content,
            count > 0 && is_rising,
            "the list of {count} CPUs is empty or does not rise"
        );
        check!(Content, (last as usize) < MOST_CPUS, "CPU {last}; Linux has {MOST_CPUS} at most");
        let is_plain = |text: &str| text.len() <= 64 && text.chars().all(|c| c.is_ascii_graphic());
        check!(Content, is_plain(&self.clock), "the clock {:?}", self.clock);
        check!(Content, is_plain(&self.tracer), "the tracer {:?}", self.tracer);
        Ok(())
    }
}

/// The counters of a CPU's ring at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Number of the CPU.
    pub cpu: u32,
    /// Events that were still in the ring.
    pub entries: u64,
    /// Events that were overwritten.
    pub overrun: u64,
    /// Events lost because the writer came round to a page that was being committed.
    pub commit_overrun: u64,
    /// Events that were discarded.
    pub dropped: u64,
    /// Events that were read from the ring, and sent.
    pub read: u64,
}

impl Counters {
    /// Makes them of the kernel's counters.
    #[must_use]
    pub fn new(cpu: u32, stats: &Stats) -> Self {
        let Stats { entries, overrun, commit_overrun, bytes: _, dropped, read } = *stats;
        Self { cpu, entries, overrun, commit_overrun, dropped, read }
    }

    /// Returns them as the kernel has them.
    #[must_use]
    pub fn stats(self) -> Stats {
        let Self { cpu: _, entries, overrun, commit_overrun, dropped, read } = self;
        Stats { entries, overrun, commit_overrun, bytes: 0, dropped, read }
    }
}

/// The session whose stream this is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionInfo {
    /// The UUID, in 32 hexadecimal digits.
    pub uuid: String,
    /// The name.
    pub name: String,
}

impl SessionInfo {
    /// Checks that the UUID and the name are such.
    ///
    /// # Errors
    /// They are not.
    pub fn check(&self) -> Result<(), WireError> {
        let is_uuid = self.uuid.len() == 32
            && self.uuid.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        check!(Content, is_uuid, "{:?}: no UUID of a session", self.uuid);
        check!(
            Content,
            self.name.len() <= MOST_NAME,
            "a name of more than {MOST_NAME} bytes in the frame Session"
        );
        Ok(())
    }
}

/// The account of a stream that was sent completely.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// The counters of each CPU.
    pub cpus: Vec<Counters>,
    /// Bytes of sub-buffers that were sent.
    pub bytes: u64,
}

/// The amount of a stream that the receiver has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Bytes of sub-buffers.
    pub bytes: u64,
}

/// Checks the order of a stream's frames, and their lengths.
#[derive(Debug, Default)]
pub struct Order {
    has_hello: bool,
    settings: Option<Settings>,
    descriptions: usize,
    session: Option<SessionInfo>,
    /// Bytes of a sub-buffer of each stream of the session, and the number of its first.
    rings: BTreeMap<u32, (u64, u64)>,
    /// A part of the session region came, and of the registry.
    regions: [bool; 2],
    /// The session region says that the session has counters.
    has_counters: bool,
    /// Parts of regions that came.
    parts: u32,
    is_over: bool,
}

impl Order {
    /// Admits the next frame of a sender.
    ///
    /// # Errors
    /// It may not stand here.
    pub fn admit(&mut self, header: &Header) -> Result<(), WireError> {
        let Header { kind, cpu, length } = *header;
        check!(Order, !self.is_over, "a frame {kind:?} after the end");
        check!(
            Order,
            self.has_hello == (kind != FrameKind::Hello),
            "a frame {kind:?}, where the first and no other is Hello"
        );
        match kind {
            FrameKind::Hello => self.has_hello = true,
            FrameKind::Settings => {
                check!(Order, self.settings.is_none(), "the second frame Settings");
                check!(
                    Order,
                    self.session.is_none(),
                    "a frame {kind:?} in the stream of a session"
                );
            }
            FrameKind::Session => {
                check!(Order, self.session.is_none(), "the second frame Session");
                check!(
                    Order,
                    self.settings.is_none(),
                    "a frame {kind:?} in the stream of a kernel"
                );
            }
            FrameKind::Region
            | FrameKind::Head
            | FrameKind::Packet
            | FrameKind::Overwritten
            | FrameKind::Open
            | FrameKind::Counters => self.admit_session(header)?,
            FrameKind::Description => {
                check!(Order, self.settings.is_some(), "a frame {kind:?} before Settings");
                self.descriptions = self.descriptions.saturating_add(1);
                check!(
                    Order,
                    self.descriptions <= MOST_DESCRIPTIONS,
                    "more than {MOST_DESCRIPTIONS} frames {kind:?}"
                );
            }
            FrameKind::SubBuffers => {
                let Some(settings) = self.settings.as_ref().filter(|_| self.descriptions > 0)
                else {
                    refuse!(Order, "a frame {kind:?} before Settings and Description");
                };
                let size = u64::from(settings.sub_buffer_size);
                let is_whole = length > 0 && length.checked_rem(size) == Some(0);
                check!(Order, is_whole, "{length} bytes of sub-buffers, each of which has {size}");
                check!(
                    Order,
                    settings.cpus.binary_search(&cpu).is_ok(),
                    "CPU {cpu}, which is not in Settings"
                );
            }
            FrameKind::Alive => {}
            FrameKind::End => {
                check!(
                    Order,
                    self.descriptions > 0 || self.session.is_some(),
                    "a frame {kind:?} before Description"
                );
                self.is_over = true;
            }
            FrameKind::Accepted
            | FrameKind::Refused
            | FrameKind::Received
            | FrameKind::Confirmed => {
                refuse!(Order, "a frame {kind:?}, which is of receivers")
            }
        }
        Ok(())
    }

    /// Admits a frame of a session's stream.
    fn admit_session(&self, header: &Header) -> Result<(), WireError> {
        let Header { kind, cpu, length } = *header;
        check!(Order, self.session.is_some(), "a frame {kind:?} before Session");
        match kind {
            FrameKind::Region => check!(
                Order,
                (1..=2).contains(&cpu) && length > NUMBER,
                "{length} bytes of the region {cpu}"
            ),
            FrameKind::Head => check!(
                Order,
                length == HEAD as u64 && cpu < MOST_STREAMS,
                "{length} bytes of the stream {cpu}"
            ),
            FrameKind::Counters => check!(
                Order,
                self.has_counters,
                "a frame {kind:?} of a session that has no counters"
            ),
            _ => {
                let Some((size, _)) = self.rings.get(&cpu) else {
                    refuse!(Order, "a frame {kind:?} of stream {cpu} before its Head")
                };
                let is_packet = kind == FrameKind::Packet
                    && length > NUMBER
                    && length.saturating_sub(NUMBER) <= *size;
                let is_number = kind == FrameKind::Overwritten && length == NUMBER;
                let is_open = kind == FrameKind::Open
                    && length > PART
                    && length.saturating_sub(PART) <= *size;
                check!(
                    Order,
                    is_packet || is_number || is_open,
                    "{length} bytes of a frame {kind:?}"
                );
            }
        }
        Ok(())
    }

    /// Takes the content of a frame that was admitted, if it is one that describes a session.
    ///
    /// # Errors
    /// No session has such a description.
    pub fn describe(&mut self, header: &Header, bytes: &[u8]) -> Result<(), WireError> {
        match header.kind {
            FrameKind::Session => {
                let info: SessionInfo = serde_json::from_slice(bytes)?;
                info.check()?;
                self.session = Some(info);
            }
            FrameKind::Region => {
                let offset =
                    bytes.first_chunk::<8>().map_or(u64::MAX, |offset| u64::from_le_bytes(*offset));
                let end = offset.saturating_add(header.length);
                check!(
                    Content,
                    end <= MOST_REGION,
                    "a region of {end} bytes; {MOST_REGION} is the most"
                );
                self.parts = self.parts.saturating_add(1);
                check!(
                    Content,
                    self.parts <= MOST_PARTS,
                    "more than {MOST_PARTS} parts of regions"
                );
                let [session, registry] = &mut self.regions;
                *(if header.cpu == 1 { session } else { registry }) = true;
                if header.cpu == 1 && offset == 0 {
                    self.has_counters = counters::are_in(bytes.get(8..).unwrap_or_default());
                }
            }
            FrameKind::Head => {
                let head = Head::read(bytes)?;
                let (size, begin) =
                    *self.rings.entry(header.cpu).or_insert((head.size, head.begin()));
                check!(
                    Content,
                    size == head.size,
                    "stream {}: sub-buffers of {} and {size} bytes",
                    header.cpu,
                    head.size
                );
                let other = head.begin();
                check!(
                    Content,
                    begin == other,
                    "stream {}: it begins with the sub-buffers {begin} and {other}",
                    header.cpu
                );
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns true if all came that must come before the first sub-buffer.
    #[must_use]
    pub fn is_described(&self) -> bool {
        self.descriptions > 0 || self.regions == [true; 2]
    }

    /// Returns the session whose stream this is.
    #[must_use]
    pub fn session(&self) -> Option<&SessionInfo> {
        self.session.as_ref()
    }

    /// Takes the content of the frame of settings that was admitted.
    ///
    /// # Errors
    /// It has none that a kernel can have.
    pub fn settings(&mut self, bytes: &[u8]) -> Result<Settings, WireError> {
        let settings: Settings = serde_json::from_slice(bytes)?;
        settings.check()?;
        self.settings = Some(settings.clone());
        Ok(settings)
    }

    /// Returns true if the frame of the end was admitted.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_over
    }
}
