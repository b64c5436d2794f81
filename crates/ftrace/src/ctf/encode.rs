//! Encodes the payload of an event as the bytes of its class.

use lastwords_bytes::{ByteOrder, low_u32};
use lastwords_trace::evidence::Verdict;
use lastwords_trace::source::PacketInfo;

use super::class::{Cell, fixed_count};
use super::{ArrayPackets, Form};
use crate::page::long;
use crate::text::{EventInfo, Printer};
use crate::values::{Column, Element, Kind};
use lastwords_ctf::write::packets::{HEADER_LEN, Header, Last};

/// Appends a number in byte order `order`. `number` is in little-endian order.
pub(crate) fn put<const N: usize>(out: &mut Vec<u8>, order: ByteOrder, mut number: [u8; N]) {
    if order == ByteOrder::Big {
        number.reverse();
    }
    out.extend_from_slice(&number);
}

/// Appends text up to its NUL. Bytes that are not UTF-8 become U+FFFD.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    match std::str::from_utf8(text) {
        Ok(_) => out.extend_from_slice(text),
        Err(_) => out.extend_from_slice(String::from_utf8_lossy(text).as_bytes()),
    }
    out.push(0);
}

/// Appends the header of an event.
pub(crate) fn put_header(out: &mut Vec<u8>, order: ByteOrder, id: u16, time: u64) {
    put(out, order, id.to_le_bytes());
    put(out, order, time.to_le_bytes());
}

/// Makes a packet of `bytes`, which hold space for a header and then events: writes that header.
pub(crate) fn packet(
    bytes: &mut [u8],
    header: &Header,
    begin: u64,
    Last { end, sequence, discarded }: Last,
    verdict: Verdict,
) -> Option<PacketInfo> {
    let content = bytes.len().checked_sub(HEADER_LEN)?;
    let head = header.bytes(Last { end, sequence, discarded }, begin, content);
    bytes.get_mut(..HEADER_LEN)?.copy_from_slice(&head);
    let (events_at, packet_len) = (HEADER_LEN, bytes.len() as u64);
    Some(PacketInfo { sequence, begin, end, discarded, verdict, events_at, packet_len })
}

/// Appends the context of an event. `lost`: the number of events that are missing before it, if
/// events are missing.
pub(super) fn put_context(
    out: &mut Vec<u8>,
    payload: &[u8],
    at: EventInfo,
    lost: Option<Option<u64>>,
    packets: &ArrayPackets,
    printer: &mut Printer<'_>,
    scratch: &mut Vec<u8>,
) {
    let (common, order, tgids) = (at.common, packets.tracing.byte_order, &packets.tracing.tgids);
    if packets.form == Form::Lines {
        printer.irq_flags(out, common);
        out.push(0);
    } else {
        out.extend_from_slice(&[common.flags, common.preempt]);
    }
    put(out, order, common.pid.to_le_bytes());
    if !tgids.is_empty() {
        put(out, order, tgids.get(&common.pid).copied().unwrap_or(0).to_le_bytes());
    }
    put_text(out, printer.comm(common.pid).as_bytes());
    if packets.form == Form::Lines {
        let lost = lost
            .map_or(0, |count| count.map_or(-1, |count| i64::try_from(count).unwrap_or(i64::MAX)));
        put(out, order, lost.to_le_bytes());
        scratch.clear();
        printer.body(scratch, payload, at);
        put_text(out, scratch.strip_suffix(b"\n").unwrap_or(scratch));
    }
}

/// Appends an event without decoding it: its event id and its bytes.
pub(super) fn put_raw(out: &mut Vec<u8>, payload: &[u8], order: ByteOrder, kind: u16) {
    put(out, order, kind.to_le_bytes());
    put(out, order, u32::try_from(payload.len()).unwrap_or(0).to_le_bytes());
    out.extend_from_slice(payload);
}

impl Cell<'_> {
    /// Appends the value of the field. Returns `None` if the payload does not hold the field.
    pub(super) fn put(
        &self,
        out: &mut Vec<u8>,
        payload: &[u8],
        order: ByteOrder,
        at: EventInfo,
        printer: &mut Printer<'_>,
        scratch: &mut Vec<u8>,
    ) -> Option<()> {
        match self {
            Self::Column { column, .. } => put_column(column, out, payload, order),
            Self::Message => {
                scratch.clear();
                printer.message(scratch, payload, at);
                put_text(out, scratch);
                Some(())
            }
        }
    }
}

fn put_column(
    column: &Column<'_>,
    out: &mut Vec<u8>,
    payload: &[u8],
    order: ByteOrder,
) -> Option<()> {
    let bytes = column.bytes(payload, order)?;
    match column.kind {
        Kind::Text => put_text(out, bytes),
        // The low half of the `long` holds the `int`.
        Kind::Argument => put(out, order, low_u32(long(bytes, 0, order)).to_le_bytes()),
        Kind::Number(_) => out.extend_from_slice(bytes),
        Kind::Bool => out.push(u8::from(*bytes.first()? != 0)),
        Kind::Bytes | Kind::Numbers(_) => {
            let size = match column.kind {
                Kind::Numbers(Element { size, .. }) => usize::from(size.max(1)),
                _ => 1,
            };
            let count = bytes.len().checked_div(size)?;
            if fixed_count(column).is_none() {
                put(out, order, u32::try_from(count).ok()?.to_le_bytes());
            }
            out.extend_from_slice(bytes.get(..count.saturating_mul(size))?);
        }
    }
    Some(())
}
