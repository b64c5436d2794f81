//! Perfetto traces: what ui.perfetto.dev and trace_processor open.
//!
//! A file is a sequence of `TracePacket`s. Messages and numbers of fields are those of Perfetto's public schema
//! (`protos/perfetto/trace/*.proto` of <https://github.com/google/perfetto> at ec5d16b14b, 2026-08-22).

pub mod ftrace;
mod proto;

pub mod packets;
mod table;

use proto::Message;

/// `TracePacket.trusted_packet_sequence_id` of all packets.
const SEQUENCE: u64 = 1;

/// Fields of `TracePacket`.
mod packet {
    pub(super) const FTRACE_EVENTS: u32 = 1;
    pub(super) const PROCESS_TREE: u32 = 2;
    pub(super) const CLOCK_SNAPSHOT: u32 = 6;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const SEQUENCE_ID: u32 = 10;
    pub(super) const TRACK_EVENT: u32 = 11;
    pub(super) const INTERNED_DATA: u32 = 12;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const FTRACE_STATS: u32 = 34;
    pub(super) const SYSTEM_INFO: u32 = 45;
    pub(super) const CLOCK_ID: u32 = 58;
    pub(super) const TRACK_DESCRIPTOR: u32 = 60;
}

/// `SEQ_INCREMENTAL_STATE_CLEARED`: interned data begins here.
const STATE_CLEARED: u64 = 1;
/// `SEQ_NEEDS_INCREMENTAL_STATE`.
const NEEDS_STATE: u64 = 2;
/// `BUILTIN_CLOCK_REALTIME`.
const REALTIME: u64 = 1;
/// `BUILTIN_CLOCK_BOOTTIME`: what the times of a kernel's events are in, where nothing else is said.
const BOOTTIME: u64 = 6;

/// Appends a packet: `Trace.packet`.
fn put_packet(out: &mut Vec<u8>, packet: &mut Message) {
    packet.number(packet::SEQUENCE_ID, SEQUENCE);
    proto::put_message(out, 1, packet.bytes());
    packet.clear();
}
