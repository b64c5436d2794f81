//! The numbers of docs/ABI.md, copied by hand from that page. `tests/check_abi.rs` compares them
//! with `lastwords-abi`, which this crate does not use.
//!
//! Names are those of the page; `_AT` is an offset in the structure, `_LEN` a length, both in
//! bytes.
#![allow(missing_docs, reason = "a table: the names are those of docs/ABI.md")]

/// Meaning of a field, as far as it can mislead a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A length or count.
    Length,
    /// An offset.
    Offset,
    /// Another value.
    Other,
}

/// A field that readers use: its name, offset, width in bytes, and meaning.
pub type Row = (&'static str, usize, usize, Role);

/// Defines the offsets of the fields of a structure that readers use, and their list.
macro_rules! fields {
    ($list:ident: $($name:ident = $at:literal, $width:literal $role:ident;)*) => {
        $(pub const $name: usize = $at;)*
        pub const $list: &[super::Row] =
            &[$((stringify!($name), $at, $width, super::Role::$role)),*];
    };
}

/// Section 1: regions.
pub mod region {
    pub const MAGIC: [u8; 16] =
        [0x89, 0x4c, 0x41, 0x53, 0x54, 0x57, 0x4f, 0x52, 0x44, 0x53, 0x0d, 0x0a, 0x1a, 0x0a, 0, 0];
    pub const PAGE: usize = 4096;
    pub const HEADER_LEN: usize = 128;
    fields! { HEADER:
        MAGIC_AT = 0, 8 Other;
        MAJOR_AT = 16, 2 Other;
        MINOR_AT = 18, 2 Other;
        KIND_AT = 20, 4 Other;
        BYTE_ORDER_AT = 24, 4 Other;
        WORD_SIZE_AT = 28, 4 Other;
        SIZE_AT = 32, 8 Length;
        SESSION_AT = 40, 8 Other;
        INDEX_AT = 56, 4 Other;
        FIXED_LEN_AT = 60, 4 Length;
        CHECK_AT = 112, 8 Other;
    }
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
    fields! { SESSION:
        CREATED_REALTIME_AT = 0, 8 Other;
        CREATED_MONOTONIC_AT = 8, 8 Other;
        RESERVATION_AT = 40, 4 Other;
        BACKEND_AT = 44, 4 Other;
        SCOPE_AT = 48, 4 Other;
        CPUS_AT = 52, 4 Length;
        CONTROL_OFF_AT = 56, 4 Offset;
        CLOCK_OFF_AT = 60, 4 Offset;
        CHANNELS_OFF_AT = 64, 4 Offset;
        PROCESSES_OFF_AT = 68, 4 Offset;
        THREADS_OFF_AT = 72, 4 Offset;
        THREADS_AT = 76, 4 Length;
        NAME_AT = 96, 8 Other;
    }
    pub const CREATOR_START_AT: usize = 16;
    pub const CREATOR_PIDNS_AT: usize = 24;
    pub const CREATOR_PID_AT: usize = 32;
    pub const UID_AT: usize = 36;
    pub const BOOT_ID_AT: usize = 80;
    pub const HOSTNAME_AT: usize = 160;
    pub const PROGRAM_AT: usize = 224;
    pub const NAME_LEN: usize = 64;

    pub const CONTROL_LEN: usize = 16576;
    fields! { CONTROL:
        FLIP_AT = 0, 4 Other;
        RECORDING_AT = 4, 4 Other;
        FINISHED_AT = 12, 4 Other;
        ENDING_AT = 20, 4 Other;
        SNAPSHOT_AT = 64, 4 Other;
        SNAPSHOT_STREAM_AT = 96, 4 Other;
        RULES_TURN_AT = 136, 4 Length;
        RULES_LEN_AT = 140, 4 Length;
    }
    pub const COUNTERS_AT: usize = 112;
    pub const HISTOGRAMS_AT: usize = 116;

    pub const CLOCK_LEN: usize = 192;
    fields! { CLOCK:
        CLOCK_KIND_AT = 0, 4 Other;
        CLOCK_NEWEST_AT = 4, 4 Other;
        CLOCK_FREQUENCY_AT = 8, 8 Other;
    }
    pub const CLOCK_SAMPLES_AT: usize = 64;
    pub const SAMPLE_LEN: usize = 32;
    fields! { SAMPLE:
        SAMPLE_CLOCK_AT = 0, 8 Other;
        SAMPLE_MONOTONIC_AT = 8, 8 Other;
        SAMPLE_REALTIME_AT = 16, 8 Other;
    }

    pub const CHANNELS_MAX: usize = 32;
    pub const CHANNEL_LEN: usize = 128;
    fields! { CHANNEL:
        CHANNEL_STATE_AT = 0, 4 Other;
        CHANNEL_NEXT_ID_AT = 8, 4 Other;
        CHANNEL_MODE_AT = 12, 4 Other;
        CHANNEL_FLAGS_AT = 16, 4 Other;
        CHANNEL_CONTEXTS_AT = 20, 4 Other;
        CHANNEL_FIRST_STREAM_AT = 24, 4 Other;
        CHANNEL_STREAMS_AT = 28, 4 Other;
        CHANNEL_SUB_BUFFER_SIZE_AT = 32, 8 Other;
        CHANNEL_SUB_BUFFERS_AT = 40, 4 Other;
        CHANNEL_NAME_AT = 56, 8 Other;
    }
    pub const CHANNEL_RECORDING_AT: usize = 4;

    pub const PROCESSES_MAX: usize = 256;
    pub const PROCESS_LEN: usize = 32;
    fields! { PROCESS:
        PROCESS_PID_AT = 0, 4 Other;
        PROCESS_START_AT = 8, 8 Other;
    }

    pub const THREAD_LEN: usize = 320;
    pub const THREAD_OWNER_AT: usize = 0;
    pub const LEVELS_AT: usize = 64;
    pub const LEVELS: usize = 4;
    pub const LEVEL_LEN: usize = 64;
    fields! { LEVEL:
        TARGET_AT = 0, 8 Other;
        BEGIN_AT = 8, 8 Other;
        END_AT = 16, 8 Other;
        CONFIRMED_AT = 24, 8 Other;
        STATE_AT = 32, 8 Other;
    }
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
    fields! { TABLE:
        END_AT = 136, 8 Length;
        DROPPED_AT = 144, 8 Other;
    }
    pub const RECORDS_AT: usize = 192;
    pub const RECORD_HEADER_LEN: usize = 16;
    fields! { RECORD:
        RECORD_LEN_AT = 0, 4 Length;
        RECORD_KIND_AT = 4, 2 Other;
        RECORD_FLAGS_AT = 6, 2 Other;
        RECORD_CHECK_AT = 8, 8 Other;
    }
    pub const EVENT: u16 = 1;
    pub const CONTEXT: u16 = 2;
    pub const MODULE: u16 = 3;
    pub const ENV: u16 = 4;
    pub const EVENT_MANY: u16 = 5;
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
    fields! { PACKET:
        MAGIC_AT = 0, 4 Other;
        UUID_AT = 4, 8 Other;
        CHANNEL_AT = 20, 4 Other;
        STREAM_AT = 24, 8 Other;
        BEGIN_AT = 32, 8 Other;
        END_AT = 40, 8 Other;
        CONTENT_SIZE_AT = 48, 8 Other;
        PACKET_SIZE_AT = 56, 8 Other;
        SEQ_NUM_AT = 64, 8 Other;
        DISCARDED_AT = 72, 8 Other;
        CPU_AT = 80, 4 Other;
    }
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
    fields! { STREAM:
        CHANNEL_AT = 0, 4 Other;
        CPU_AT = 4, 4 Other;
        RESERVATION_AT = 8, 4 Other;
        MODE_AT = 12, 4 Other;
        SUB_BUFFER_SIZE_AT = 16, 8 Length;
        SUB_BUFFERS_AT = 24, 4 Length;
        PAGE_SIZE_AT = 28, 4 Length;
    }
    pub const SLOTS_OFF_AT: usize = 32;
    pub const DATA_OFF_AT: usize = 48;
    pub const ANY_CPU: u32 = 0xffff_ffff;

    pub const CONTROL_AT: usize = 256;
    pub const CONTROL_LEN: usize = 512;
    pub const FLIP_AT: usize = 0;
    pub const LOST_AT: usize = 72;
    pub const LOST: usize = 7;
    pub const LOST_FULL: usize = 0;
    pub const RECLAIMED: usize = 5;
    pub const SKIPPED: usize = 6;
    pub const HALVES_AT: usize = 128;
    pub const HALF_LEN: usize = 192;
    fields! { HALF:
        RESERVE_AT = 0, 8 Length;
        ATTEMPT_AT = 8, 8 Other;
        FIRST_AT = 64, 8 Offset;
        CONTIGUOUS_AT = 72, 8 Other;
        CONSUMED_AT = 128, 8 Other;
        DROPPED_AT = 80, 8 Other;
    }
    pub const LAST_CLOCK_AT: usize = 16;
    pub const POSITION_BITS: u32 = 52;
    pub const CLOSED_BIT: u64 = 1 << 63;

    pub const SLOT_LEN: usize = 64;
    fields! { SLOT:
        COMMITTED_AT = 0, 8 Other;
        CONTENT_END_AT = 8, 8 Other;
        END_CLOCK_AT = 16, 8 Other;
    }
}

/// Section 10: spans.
pub mod spans {
    fields! { TABLE:
        CAPACITY_AT = 128, 4 Length;
        NEXT_ID_AT = 144, 8 Other;
    }
    pub const DROPPED_AT: usize = 136;
    pub const EVICTED_AT: usize = 152;
    pub const SKIPPED_AT: usize = 160;
    pub const ABANDONED_AT: usize = 168;
    pub const SPANS_AT: usize = 192;
    pub const SPAN_LEN: usize = 256;
    fields! { SPAN:
        ID_AT = 0, 8 Other;
        OPENED_AT = 16, 8 Other;
        STATE_AT = 40, 4 Other;
        TEXT_LEN_AT = 44, 4 Other;
        LEVEL_AT = 48, 4 Other;
        INSIDE_AT = 52, 4 Other;
        TEXT_AT = 64, 8 Other;
    }
    pub const PARENT_AT: usize = 8;
    pub const OPENER_AT: usize = 24;
    pub const ENTERED_AT: usize = 32;
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
    pub const COPIED_AT: usize = 24;
    pub const ENTRIES_AT: usize = 256;
    pub const ENTRY_LEN: usize = 256;
    pub const CHECK_AT: usize = 0;
    pub const KIND_AT: usize = 8;
    pub const TEXT_LEN_AT: usize = 12;
    pub const TEXT_AT: usize = 16;
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
