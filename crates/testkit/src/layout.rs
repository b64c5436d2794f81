//! The numbers of docs/ABI.md, copied by hand from that page. `tests/check_abi.rs` compares them
//! with `lastwords-abi`, which this crate does not use.
//!
//! Names are those of the page; `_AT` is an offset in the structure, `_LEN` a length, both in
//! bytes.
#![allow(missing_docs, reason = "a table: the names are those of docs/ABI.md")]

/// Section 1: regions.
pub mod region {
    pub const MAGIC: [u8; 16] =
        [0x89, 0x4c, 0x41, 0x53, 0x54, 0x57, 0x4f, 0x52, 0x44, 0x53, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0];
    pub const PAGE: usize = 4096;
    pub const HEADER_LEN: usize = 128;
    pub const MAJOR_AT: usize = 16;
    pub const MINOR_AT: usize = 18;
    pub const KIND_AT: usize = 20;
    pub const BYTE_ORDER_AT: usize = 24;
    pub const WORD_SIZE_AT: usize = 28;
    pub const SIZE_AT: usize = 32;
    pub const SESSION_AT: usize = 40;
    pub const INDEX_AT: usize = 56;
    pub const FIXED_LEN_AT: usize = 60;
    pub const CHECK_AT: usize = 112;
    pub const BYTE_ORDER_MARK: u32 = 0x0102_0304;
    pub const KIND_SESSION: u32 = 1;
    pub const KIND_REGISTRY: u32 = 2;
    pub const KIND_STREAM: u32 = 3;
    pub const KIND_SPANS: u32 = 4;
    pub const KIND_COUNTERS: u32 = 5;
}

/// Section 3: the session region.
pub mod session {
    pub const INFO_AT: usize = 128;
    pub const INFO_LEN: usize = 480;
    pub const CREATED_REALTIME_AT: usize = 0;
    pub const CREATED_MONOTONIC_AT: usize = 8;
    pub const CREATOR_START_AT: usize = 16;
    pub const CREATOR_PIDNS_AT: usize = 24;
    pub const CREATOR_PID_AT: usize = 32;
    pub const UID_AT: usize = 36;
    pub const RESERVATION_AT: usize = 40;
    pub const BACKEND_AT: usize = 44;
    pub const SCOPE_AT: usize = 48;
    pub const CPUS_AT: usize = 52;
    pub const CONTROL_OFF_AT: usize = 56;
    pub const CLOCK_OFF_AT: usize = 60;
    pub const CHANNELS_OFF_AT: usize = 64;
    pub const PROCESSES_OFF_AT: usize = 68;
    pub const THREADS_OFF_AT: usize = 72;
    pub const THREADS_AT: usize = 76;
    pub const BOOT_ID_AT: usize = 80;
    pub const NAME_AT: usize = 96;
    pub const HOSTNAME_AT: usize = 160;
    pub const PROGRAM_AT: usize = 224;
    pub const NAME_LEN: usize = 64;
    pub const PROGRAM_LEN: usize = 256;

    pub const CONTROL_LEN: usize = 16576;
    pub const FLIP_AT: usize = 0;
    pub const RECORDING_AT: usize = 4;
    pub const GENERATION_AT: usize = 8;
    pub const FINISHED_AT: usize = 12;
    pub const ENDING_AT: usize = 20;
    pub const ENDED_BY_AT: usize = 24;
    pub const PANICS_AT: usize = 28;
    pub const ENDED_AT: usize = 32;
    pub const PANICKED_AT: usize = 40;
    pub const REMOVED_AT: usize = 48;
    pub const SNAPSHOT_AT: usize = 64;
    pub const SNAPSHOTS_AT: usize = 68;
    pub const SNAPSHOT_LOCK_AT: usize = 72;
    pub const SNAPSHOT_READER_AT: usize = 80;
    pub const SNAPSHOT_CLOCK_AT: usize = 88;
    pub const SNAPSHOT_STREAM_AT: usize = 96;
    pub const COUNTERS_AT: usize = 112;
    pub const HISTOGRAMS_AT: usize = 116;
    pub const RULES_LOCK_AT: usize = 128;
    pub const RULES_TURN_AT: usize = 136;
    pub const RULES_LEN_AT: usize = 140;
    pub const RULES_AT: usize = 192;
    pub const RULES_MAX: usize = 64;
    pub const RULE_LEN: usize = 128;
    pub const RULE_PATTERN_AT: usize = 16;

    pub const CLOCK_LEN: usize = 192;
    pub const CLOCK_KIND_AT: usize = 0;
    pub const CLOCK_NEWEST_AT: usize = 4;
    pub const CLOCK_FREQUENCY_AT: usize = 8;
    pub const CLOCK_BUSY_AT: usize = 16;
    pub const CLOCK_SAMPLES_AT: usize = 64;
    pub const SAMPLE_LEN: usize = 32;
    pub const SAMPLE_CLOCK_AT: usize = 0;
    pub const SAMPLE_MONOTONIC_AT: usize = 8;
    pub const SAMPLE_REALTIME_AT: usize = 16;
    pub const SAMPLE_WIDTH_AT: usize = 24;

    pub const CHANNELS_MAX: usize = 32;
    pub const CHANNEL_LEN: usize = 128;
    pub const CHANNEL_STATE_AT: usize = 0;
    pub const CHANNEL_RECORDING_AT: usize = 4;
    pub const CHANNEL_NEXT_ID_AT: usize = 8;
    pub const CHANNEL_MODE_AT: usize = 12;
    pub const CHANNEL_FLAGS_AT: usize = 16;
    pub const CHANNEL_CONTEXTS_AT: usize = 20;
    pub const CHANNEL_FIRST_STREAM_AT: usize = 24;
    pub const CHANNEL_STREAMS_AT: usize = 28;
    pub const CHANNEL_SUB_BUFFER_SIZE_AT: usize = 32;
    pub const CHANNEL_SUB_BUFFERS_AT: usize = 40;
    pub const CHANNEL_NAME_AT: usize = 56;

    pub const PROCESSES_MAX: usize = 256;
    pub const PROCESS_LEN: usize = 32;
    pub const PROCESS_PID_AT: usize = 0;
    pub const PROCESS_START_AT: usize = 8;
    pub const PROCESS_PIDNS_AT: usize = 16;

    pub const THREAD_LEN: usize = 320;
    pub const THREAD_OWNER_AT: usize = 0;
    pub const THREAD_START_AT: usize = 8;
    pub const THREAD_PIDNS_AT: usize = 16;
    pub const LEVELS_AT: usize = 64;
    pub const LEVELS: usize = 4;
    pub const LEVEL_LEN: usize = 64;
    pub const TARGET_AT: usize = 0;
    pub const BEGIN_AT: usize = 8;
    pub const END_AT: usize = 16;
    pub const CONFIRMED_AT: usize = 24;
    pub const STATE_AT: usize = 32;
    pub const STATE_RESERVING: u64 = 1;
    pub const STATE_COPIED: u64 = 2;
    pub const STATE_SWITCH: u64 = 3;

    pub const RSEQ: u32 = 1;
    pub const LOCKLESS: u32 = 2;
    pub const LOCKED: u32 = 3;
    pub const OVERWRITE: u32 = 1;
    pub const DISCARD: u32 = 2;
    pub const FLAG_PAYLOAD_SIZE: u32 = 1;
    pub const CONTEXT_PID: u32 = 1;
    pub const CONTEXT_TID: u32 = 2;
    pub const CONTEXT_THREAD_NAME: u32 = 4;
    pub const CONTEXT_CPU: u32 = 8;
    pub const CONTEXT_USER: u32 = 16;
    pub const CLOCK_TSC: u32 = 1;
    pub const CLOCK_MONOTONIC: u32 = 2;
    pub const SNAPSHOT_OFF: u32 = 0;
    pub const SNAPSHOT_READY: u32 = 1;
    pub const SNAPSHOT_SWAPPING: u32 = 2;
    pub const SNAPSHOT_TAKEN: u32 = 3;
    pub const SNAPSHOT_READING: u32 = 4;
}

/// Section 4: the registry.
pub mod registry {
    pub const LOCK_AT: usize = 128;
    pub const END_AT: usize = 136;
    pub const DROPPED_AT: usize = 144;
    pub const VALUES_CUT_AT: usize = 160;
    pub const VALUES_CHANGED_AT: usize = 184;
    pub const NAMES_AT_AT: usize = 168;
    pub const NAMES_REPLACED_AT: usize = 176;
    pub const RECORDS_AT: usize = 192;
    pub const RECORD_HEADER_LEN: usize = 16;
    pub const RECORD_LEN_AT: usize = 0;
    pub const RECORD_KIND_AT: usize = 4;
    pub const RECORD_FLAGS_AT: usize = 6;
    pub const RECORD_CHECK_AT: usize = 8;
    pub const EVENT: u16 = 1;
    pub const CONTEXT: u16 = 2;
    pub const MODULE: u16 = 3;
    pub const ENV: u16 = 4;
    pub const EVENT_MANY: u16 = 5;
    pub const REPLACED: u16 = 1;
    pub const UNSIGNED: u8 = 1;
    pub const SIGNED: u8 = 2;
    pub const FLOAT: u8 = 3;
    pub const BOOL: u8 = 4;
    pub const STRING: u8 = 5;
    pub const SEQUENCE: u8 = 6;
    pub const ARRAY: u8 = 7;
    pub const ENUM: u8 = 8;
    pub const TEXT: u8 = 9;
    pub const BYTES: u8 = 10;
    pub const OPTIONAL: u8 = 11;
}

/// Section 5: packets.
pub mod packet {
    pub const MAGIC: u32 = 0xC1FC_1FC1;
    pub const HEADER_LEN: usize = 84;
    pub const TRAILER_LEN: usize = 16;
    pub const CHECK_FROM_END: usize = 8;
    pub const MAGIC_AT: usize = 0;
    pub const UUID_AT: usize = 4;
    pub const CHANNEL_AT: usize = 20;
    pub const STREAM_AT: usize = 24;
    pub const BEGIN_AT: usize = 32;
    pub const END_AT: usize = 40;
    pub const CONTENT_SIZE_AT: usize = 48;
    pub const PACKET_SIZE_AT: usize = 56;
    pub const SEQ_NUM_AT: usize = 64;
    pub const DISCARDED_AT: usize = 72;
    pub const CPU_AT: usize = 80;
}

/// Section 6: event headers.
pub mod header {
    pub const TAG_BITS: u32 = 5;
    pub const CLOCK_BITS: u32 = 27;
    pub const MAX_COMPACT_ID: u16 = 28;
    pub const FULL: u32 = 29;
    pub const SIZE: u32 = 30;
    pub const ID: u32 = 31;
    pub const FULL_LEN: usize = 18;
    pub const SIZE_LEN: usize = 10;
    pub const ID_LEN: usize = 6;
    pub const COMPACT_LEN: usize = 4;
    pub const NO_SIZE: u32 = 0xffff_ffff;
}

/// Section 7: streams.
pub mod stream {
    pub const INFO_AT: usize = 128;
    pub const INFO_LEN: usize = 64;
    pub const CHANNEL_AT: usize = 0;
    pub const CPU_AT: usize = 4;
    pub const RESERVATION_AT: usize = 8;
    pub const MODE_AT: usize = 12;
    pub const SUB_BUFFER_SIZE_AT: usize = 16;
    pub const SUB_BUFFERS_AT: usize = 24;
    pub const PAGE_SIZE_AT: usize = 28;
    pub const SLOTS_OFF_AT: usize = 32;
    pub const DATA_OFF_AT: usize = 48;
    pub const ANY_CPU: u32 = 0xffff_ffff;

    pub const CONTROL_AT: usize = 256;
    pub const CONTROL_LEN: usize = 512;
    pub const FLIP_AT: usize = 0;
    pub const REFUSED_AT: usize = 4;
    pub const LOCK_AT: usize = 64;
    pub const LOST_AT: usize = 72;
    pub const LOST: usize = 7;
    pub const LOST_FULL: usize = 0;
    pub const RECLAIMED: usize = 5;
    pub const SKIPPED: usize = 6;
    pub const HALVES_AT: usize = 128;
    pub const HALF_LEN: usize = 192;
    pub const RESERVE_AT: usize = 0;
    pub const ATTEMPT_AT: usize = 8;
    pub const LAST_CLOCK_AT: usize = 16;
    pub const FIRST_AT: usize = 64;
    pub const CONTIGUOUS_AT: usize = 72;
    pub const DROPPED_AT: usize = 80;
    pub const BACKED_AT: usize = 88;
    pub const CONSUMED_AT: usize = 128;
    pub const POSITION_BITS: u32 = 52;
    pub const CLOSED_BIT: u64 = 1 << 63;

    pub const SLOT_LEN: usize = 64;
    pub const COMMITTED_AT: usize = 0;
    pub const CONTENT_END_AT: usize = 8;
    pub const END_CLOCK_AT: usize = 16;
}

/// Section 10: spans.
pub mod spans {
    pub const CAPACITY_AT: usize = 128;
    pub const HINT_AT: usize = 132;
    pub const DROPPED_AT: usize = 136;
    pub const NEXT_ID_AT: usize = 144;
    pub const EVICTED_AT: usize = 152;
    pub const SKIPPED_AT: usize = 160;
    pub const ABANDONED_AT: usize = 168;
    pub const SPANS_AT: usize = 192;
    pub const SPAN_LEN: usize = 256;
    pub const ID_AT: usize = 0;
    pub const PARENT_AT: usize = 8;
    pub const OPENED_AT: usize = 16;
    pub const OPENER_AT: usize = 24;
    pub const ENTERED_AT: usize = 32;
    pub const STATE_AT: usize = 40;
    pub const TEXT_LEN_AT: usize = 44;
    pub const LEVEL_AT: usize = 48;
    pub const INSIDE_AT: usize = 52;
    pub const OPENER_START_AT: usize = 56;
    pub const TEXT_AT: usize = 64;
    pub const TEXT_LEN: usize = 184;
    pub const ACTIVE_AT: usize = 248;
}

/// Section 11: counters and histograms.
pub mod counters {
    pub const INFO_AT: usize = 128;
    pub const INFO_LEN: usize = 64;
    pub const COUNTERS_AT: usize = 0;
    pub const HISTOGRAMS_AT: usize = 4;
    pub const COUNTERS_OFF_AT: usize = 8;
    pub const HISTOGRAMS_OFF_AT: usize = 12;
    pub const SUB_BITS_AT: usize = 16;
    pub const CONTROL_AT: usize = 192;
    pub const USED_COUNTERS_AT: usize = 0;
    pub const USED_HISTOGRAMS_AT: usize = 4;
    pub const LOST_ADDITIONS_AT: usize = 8;
    pub const LOST_VALUES_AT: usize = 16;
    pub const ENTRIES_AT: usize = 256;
    pub const ENTRY_LEN: usize = 256;
    pub const CHECK_AT: usize = 0;
    pub const KIND_AT: usize = 8;
    pub const TEXT_LEN_AT: usize = 12;
    pub const TEXT_AT: usize = 16;
    pub const TEXT_LEN: usize = 176;
    pub const COUNT_AT: usize = 192;
    pub const VALUE_AT: usize = 200;
    pub const BUCKETS_AT: usize = 256;
    pub const BUCKETS: usize = 496;
    pub const HISTOGRAM_LEN: usize = 4224;
    pub const COUNTER: u32 = 1;
    pub const HISTOGRAM: u32 = 2;
    pub const SEPARATOR: u8 = 0x1f;
    pub const SUB_BITS: u32 = 3;
}
