//! The numbers of docs/ABI.md, as typed into `testkit`, or here where no writer needs them, are
//! those of `lastwords-abi`.

use std::mem::{offset_of, size_of};

use lastwords_abi as abi;
use lastwords_testkit::layout;

/// Compares pairs and says which name differs.
macro_rules! same {
    ($($ours:expr => $theirs:expr),* $(,)?) => {
        $(assert_eq!($ours as u128, $theirs as u128, "{} against {}", stringify!($ours), stringify!($theirs));)*
    };
}

#[test]
fn regions() {
    use abi::region::{self, RegionHeader as H};
    use layout::region as l;
    assert_eq!(l::MAGIC, region::MAGIC);
    same! {
        1 => abi::VERSION_MAJOR, 4 => abi::VERSION_MINOR, 2 => abi::VERSION_MAJOR_ADDED,
        l::PAGE => region::REGION_ALIGN, l::HEADER_LEN => size_of::<H>(),
        l::MAJOR_AT => offset_of!(H, major), l::MINOR_AT => offset_of!(H, minor),
        l::KIND_AT => offset_of!(H, kind), l::BYTE_ORDER_AT => offset_of!(H, byte_order),
        l::WORD_SIZE_AT => offset_of!(H, word_size), l::SIZE_AT => offset_of!(H, size),
        l::SESSION_AT => offset_of!(H, session), l::INDEX_AT => offset_of!(H, index),
        l::FIXED_LEN_AT => offset_of!(H, fixed_len), l::CHECK_AT => offset_of!(H, check),
        l::BYTE_ORDER_MARK => region::BYTE_ORDER_MARK,
        l::KIND_SESSION => region::KIND_SESSION, l::KIND_REGISTRY => region::KIND_REGISTRY,
        l::KIND_STREAM => region::KIND_STREAM, l::KIND_SPANS => region::KIND_SPANS, l::KIND_COUNTERS => region::KIND_COUNTERS,
    }
    for len in [0, 1, 7, 8, 63, 64, 65, 128, 592, 4000] {
        let bytes: Vec<u8> = (0..len).map(|i: usize| (i * 7) as u8).collect();
        assert_eq!(
            region::checksum(&bytes),
            lastwords_testkit::checksum::checksum(&bytes),
            "{len} bytes"
        );
    }
}

#[test]
fn session_info() {
    use abi::session::SessionInfo as I;
    use layout::session as l;
    same! {
        l::INFO_AT => abi::region::HEADER_SIZE, l::INFO_LEN => size_of::<I>(),
        l::CREATED_REALTIME_AT => offset_of!(I, created_realtime), l::CREATED_MONOTONIC_AT => offset_of!(I, created_monotonic),
        l::CREATOR_START_AT => offset_of!(I, creator_start), l::CREATOR_PIDNS_AT => offset_of!(I, creator_pidns),
        l::CREATOR_PID_AT => offset_of!(I, creator_pid), l::UID_AT => offset_of!(I, uid),
        l::RESERVATION_AT => offset_of!(I, reservation), l::BACKEND_AT => offset_of!(I, backend),
        l::SCOPE_AT => offset_of!(I, scope), l::CPUS_AT => offset_of!(I, cpus),
        l::CONTROL_OFF_AT => offset_of!(I, control_off), l::CLOCK_OFF_AT => offset_of!(I, clock_off),
        l::CHANNELS_OFF_AT => offset_of!(I, channels_off), l::PROCESSES_OFF_AT => offset_of!(I, processes_off),
        l::THREADS_OFF_AT => offset_of!(I, threads_off), l::THREADS_AT => offset_of!(I, threads),
        l::BOOT_ID_AT => offset_of!(I, boot_id), l::NAME_AT => offset_of!(I, name),
        l::HOSTNAME_AT => offset_of!(I, hostname), l::PROGRAM_AT => offset_of!(I, program),
        l::NAME_AT + l::NAME_LEN => l::HOSTNAME_AT, l::PROGRAM_AT + 256 => l::INFO_LEN,
    }
}

#[test]
fn session_control_and_clock() {
    use abi::session::{self as s, ClockArea as A, ClockSample as M, Control as C, Rule as R};
    use layout::session as l;
    same! {
        l::CONTROL_LEN => size_of::<C>(), l::FLIP_AT => offset_of!(C, flip), l::RECORDING_AT => offset_of!(C, recording),
        8 => offset_of!(C, generation), l::FINISHED_AT => offset_of!(C, finished),
        16 => offset_of!(C, namespaces), 56 => offset_of!(C, channels_lock), l::ENDING_AT => offset_of!(C, ending), 24 => offset_of!(C, ended_by),
        28 => offset_of!(C, panics), 32 => offset_of!(C, ended),
        40 => offset_of!(C, panicked), 48 => offset_of!(C, removed),
        0 => s::ENDING_NONE, 1 => s::ENDING_CLOSED, 2 => s::ENDING_ERROR, 3 => s::ENDING_PANIC, 4 => s::ENDING_SIGNAL,
        5 => s::ENDING_EXIT, 6 => s::ENDING_UNSEEN, 1 << 16 => s::ENDING_NUMBER,
        l::SNAPSHOT_AT => offset_of!(C, snapshot), 68 => offset_of!(C, snapshots),
        72 => offset_of!(C, snapshot_lock), 80 => offset_of!(C, snapshot_reader),
        88 => offset_of!(C, snapshot_clock), l::SNAPSHOT_STREAM_AT => offset_of!(C, snapshot_stream),
        100 => offset_of!(C, guards_off), 104 => offset_of!(C, burst),
        l::COUNTERS_AT => offset_of!(C, counters), l::HISTOGRAMS_AT => offset_of!(C, histograms),
        8 => offset_of!(s::Guards, inode), 64 => offset_of!(s::Guards, entries), 24 => size_of::<s::Guard>(),
        8 => offset_of!(s::Guard, key), 16 => offset_of!(s::Guard, word), 1 << 30 => s::GUARD_DIED,
        128 => offset_of!(C, rules.lock), l::RULES_TURN_AT => offset_of!(C, rules.turn),
        l::RULES_LEN_AT => offset_of!(C, rules.len), 192 => offset_of!(C, rules.tables), 64 => s::MAX_RULES, 128 => size_of::<R>(),
        16 => offset_of!(R, pattern), 148 => offset_of!(C, rules.filters_off),
        152 => offset_of!(C, rules.filters_turn), 160 => offset_of!(C, rules.triggers_off), 164 => offset_of!(C, rules.conditions_off), 12 => offset_of!(R, filter), 16384 => s::FILTERS_LEN,
        2 * 16384 => size_of::<s::Filters>(), (34u64 << 32) + 12 => s::filter_head(12, 34), 4 => offset_of!(R, channel), 8 => offset_of!(R, level),
        l::SNAPSHOT_OFF => s::SNAPSHOT_OFF, l::SNAPSHOT_READY => s::SNAPSHOT_READY,
        l::SNAPSHOT_SWAPPING => s::SNAPSHOT_SWAPPING, l::SNAPSHOT_TAKEN => s::SNAPSHOT_TAKEN,
        l::SNAPSHOT_READING => s::SNAPSHOT_READING,
        l::CLOCK_LEN => size_of::<A>(), l::CLOCK_KIND_AT => offset_of!(A, kind), l::CLOCK_NEWEST_AT => offset_of!(A, newest),
        l::CLOCK_FREQUENCY_AT => offset_of!(A, frequency), 16 => offset_of!(A, busy),
        l::CLOCK_SAMPLES_AT => offset_of!(A, samples), l::SAMPLE_LEN => size_of::<M>(),
        l::SAMPLE_CLOCK_AT => offset_of!(M, clock), l::SAMPLE_MONOTONIC_AT => offset_of!(M, monotonic),
        l::SAMPLE_REALTIME_AT => offset_of!(M, realtime), 24 => offset_of!(M, width),
        l::CLOCK_TSC => s::CLOCK_TSC, l::CLOCK_MONOTONIC => s::CLOCK_MONOTONIC, 3 => s::CLOCK_MONOTONIC_RAW,
        4 => s::CLOCK_BOOTTIME, 5 => s::CLOCK_REALTIME, 6 => s::CLOCK_CNTVCT,
        l::RSEQ => s::RESERVATION_RSEQ, l::LOCKLESS => s::RESERVATION_LOCKLESS, l::LOCKED => s::RESERVATION_LOCKED,
        1 => s::BACKEND_HEAP, 2 => s::BACKEND_SHM, 3 => s::BACKEND_MEMFD, 4 => s::BACKEND_HUGE, 5 => s::BACKEND_DAX,
        6 => s::BACKEND_PHYSICAL, 1 => s::SCOPE_PROCESS, 2 => s::SCOPE_USER,
    }
}

#[test]
fn triggers() {
    use abi::triggers::{
        self as s, Conditions as D, Extra as E, Pending as P, Start as S, Triggers as T,
    };
    same! {
        0 => offset_of!(D, rules), 64 + 2 * 64 * 128 => offset_of!(D, filters), 0 => s::TRIGGER_STOP, 1 => s::TRIGGER_SNAPSHOT,
        64 + 2 * 64 * 128 + 2 * 16384 => offset_of!(D, hits),
        49728 => offset_of!(D, extras), 704 => size_of::<E>(), 16 => s::MAX_CONDITIONS, 72256 => offset_of!(D, dues), 72384 => offset_of!(D, starts),
        16 => size_of::<S>(), 128 => s::MAX_STARTS, 0 => offset_of!(S, key), 8 => offset_of!(S, at), 1 => s::START_CLAIMED,
        0 => offset_of!(E, before), 8 => offset_of!(E, after), 16 => offset_of!(E, period), 24 => offset_of!(E, most), 28 => offset_of!(E, flags),
        32 => offset_of!(E, above), 40 => offset_of!(E, then), 152 => offset_of!(E, on), 408 => offset_of!(E, folder), 1 => s::CONDITION_LATENCY,
        132 => offset_of!(T, is_cut), 136 => offset_of!(T, before), 144 => offset_of!(T, after), 152 => offset_of!(T, window_begin),
        160 => offset_of!(T, window_end), 168 => offset_of!(T, window_from), 176 => offset_of!(T, replaced),
        180 => offset_of!(T, booked), 184 => offset_of!(T, outcome), 192 => offset_of!(T, targets),
        256 => offset_of!(T, pending), 32 => size_of::<P>(), 8 => s::MAX_PENDING, 0 => offset_of!(P, due), 8 => offset_of!(P, begin),
        16 => offset_of!(P, last), 24 => offset_of!(P, target), 1 => s::PENDING_CLAIMED, u64::MAX => s::TARGET_BESIDE,
        512 => size_of::<T>(), 0 => offset_of!(T, lock), 8 => offset_of!(T, asked), 12 => offset_of!(T, answered),
        16 => offset_of!(T, name), 80 => offset_of!(T, most), 84 => offset_of!(T, saves), 88 => offset_of!(T, period),
        96 => offset_of!(T, due), 104 => offset_of!(T, fired), 108 => offset_of!(T, limited), 112 => offset_of!(T, told),
        116 => offset_of!(T, waiting), 120 => offset_of!(T, unsaved), 124 => offset_of!(T, saved), 128 => offset_of!(T, failed),
    }
}

#[test]
fn session_tables() {
    use abi::session::{self as s, Channel as C, InFlight as F, Process as P, Thread as T};
    use layout::session as l;
    same! {
        l::CHANNELS_MAX => s::MAX_CHANNELS, l::CHANNEL_LEN => size_of::<C>(), l::CHANNEL_STATE_AT => offset_of!(C, state),
        l::CHANNEL_RECORDING_AT => offset_of!(C, recording), l::CHANNEL_NEXT_ID_AT => offset_of!(C, next_id),
        l::CHANNEL_MODE_AT => offset_of!(C, mode), l::CHANNEL_FLAGS_AT => offset_of!(C, flags),
        l::CHANNEL_CONTEXTS_AT => offset_of!(C, contexts), l::CHANNEL_FIRST_STREAM_AT => offset_of!(C, first_stream),
        l::CHANNEL_STREAMS_AT => offset_of!(C, streams), l::CHANNEL_SUB_BUFFER_SIZE_AT => offset_of!(C, sub_buffer_size),
        l::CHANNEL_SUB_BUFFERS_AT => offset_of!(C, sub_buffers), l::CHANNEL_NAME_AT => offset_of!(C, name),
        44 => offset_of!(C, snapshots), 48 => offset_of!(C, unattached), 120 => offset_of!(C, told), 2 => s::CHANNEL_ADDED, 24 => offset_of!(P, features),
        1 => s::FEATURE_CHANNELS, 0x1234_5600_4567_8901u64 => s::features_word(1, 0x0045_6789, 0x12_3456),
        l::PROCESSES_MAX => s::MAX_PROCESSES, l::PROCESS_LEN => size_of::<P>(), l::PROCESS_PID_AT => offset_of!(P, pid),
        l::PROCESS_START_AT => offset_of!(P, start), 16 => offset_of!(P, pidns),
        l::THREAD_LEN => size_of::<T>(), l::THREAD_OWNER_AT => offset_of!(T, owner), 8 => offset_of!(T, start),
        16 => offset_of!(T, pidns), l::LEVELS_AT => offset_of!(T, levels), l::LEVELS => s::MAX_LEVELS,
        l::LEVEL_LEN => size_of::<F>(), l::TARGET_AT => offset_of!(F, target), l::BEGIN_AT => offset_of!(F, begin),
        l::END_AT => offset_of!(F, end), l::CONFIRMED_AT => offset_of!(F, confirmed), l::STATE_AT => offset_of!(F, state),
        l::STATE_RESERVING => s::IN_FLIGHT_RESERVING, l::STATE_COPIED => s::IN_FLIGHT_COPIED,
        l::STATE_SWITCH => s::IN_FLIGHT_SWITCH, l::OVERWRITE => s::MODE_OVERWRITE, l::DISCARD => s::MODE_DISCARD,
        l::FLAG_PAYLOAD_SIZE => s::CHANNEL_PAYLOAD_SIZE, l::CONTEXT_PID => abi::context::PID, l::CONTEXT_TID => abi::context::TID,
        l::CONTEXT_THREAD_NAME => abi::context::THREAD_NAME, l::CONTEXT_CPU => abi::context::CPU, l::CONTEXT_USER => abi::context::USER,
    }
}

#[test]
fn the_registry() {
    use abi::registry::{self as r, RecordHeader as H, RegistryControl as C, field as f};
    use layout::registry as l;
    same! {
        128 => r::CONTROL_OFF + offset_of!(C, lock), l::END_AT => r::CONTROL_OFF + offset_of!(C, end),
        l::DROPPED_AT => r::CONTROL_OFF + offset_of!(C, dropped), l::RECORDS_AT => r::RECORDS_OFF,
        160 => r::CONTROL_OFF + offset_of!(C, values_cut), 168 => r::CONTROL_OFF + offset_of!(C, names_at),
        176 => r::CONTROL_OFF + offset_of!(C, names_replaced),
        184 => r::CONTROL_OFF + offset_of!(C, values_changed),
        l::RECORD_HEADER_LEN => size_of::<H>(), l::RECORD_LEN_AT => offset_of!(H, len), l::RECORD_KIND_AT => offset_of!(H, kind),
        l::RECORD_FLAGS_AT => offset_of!(H, flags), l::RECORD_CHECK_AT => offset_of!(H, check),
        l::EVENT => r::KIND_EVENT, l::CONTEXT => r::KIND_CONTEXT, l::MODULE => r::KIND_MODULE, l::ENV => r::KIND_ENV,
        l::EVENT_MANY => r::KIND_EVENT_MANY, 1 => r::REPLACED,
        l::UNSIGNED => f::UNSIGNED, l::SIGNED => f::SIGNED, l::FLOAT => f::FLOAT, l::BOOL => f::BOOL, l::STRING => f::STRING,
        l::SEQUENCE => f::SEQUENCE, l::ARRAY => f::ARRAY, l::ENUM => f::ENUM, l::TEXT => f::TEXT, l::BYTES => f::BYTES,
        l::OPTIONAL => f::OPTIONAL,
        1 => r::level::ERROR, 2 => r::level::WARN, 3 => r::level::INFO, 4 => r::level::DEBUG, 5 => r::level::TRACE,
    }
}

#[test]
fn packets_and_event_headers() {
    use abi::header as h;
    use abi::packet::{self as p, at};
    use layout::{header as lh, packet as l};
    same! {
        l::MAGIC => p::CTF_MAGIC, l::HEADER_LEN => p::HEADER_LEN, l::TRAILER_LEN => p::TRAILER_LEN,
        l::CHECK_FROM_END => p::CHECK_FROM_END, l::MAGIC_AT => at::MAGIC, l::UUID_AT => at::UUID,
        l::CHANNEL_AT => at::STREAM_ID, l::STREAM_AT => at::STREAM_INSTANCE_ID, l::BEGIN_AT => at::TIMESTAMP_BEGIN,
        l::END_AT => at::TIMESTAMP_END, l::CONTENT_SIZE_AT => at::CONTENT_SIZE, l::PACKET_SIZE_AT => at::PACKET_SIZE,
        l::SEQ_NUM_AT => at::PACKET_SEQ_NUM, l::DISCARDED_AT => at::EVENTS_DISCARDED, l::CPU_AT => at::CPU_ID,
        lh::TAG_BITS => h::TAG_BITS, lh::CLOCK_BITS => h::CLOCK_BITS, lh::MAX_COMPACT_ID => h::MAX_COMPACT_ID,
        lh::FULL => h::TAG_FULL, lh::SIZE => h::TAG_SIZE, lh::ID => h::TAG_ID, lh::COMPACT_LEN => h::LEN_COMPACT,
        lh::FULL_LEN => h::LEN_FULL, lh::SIZE_LEN => h::LEN_SIZE, lh::ID_LEN => h::LEN_ID, lh::NO_SIZE => h::NO_SIZE,
    }
}

#[test]
fn streams() {
    use abi::stream::{
        self as s, HalfControl as H, Slot as L, StreamControl as C, StreamInfo as I,
    };
    use layout::stream as l;
    same! {
        l::INFO_AT => abi::region::HEADER_SIZE, l::INFO_LEN => size_of::<I>(), l::CHANNEL_AT => offset_of!(I, channel),
        l::CPU_AT => offset_of!(I, cpu), l::RESERVATION_AT => offset_of!(I, reservation), l::MODE_AT => offset_of!(I, mode),
        l::SUB_BUFFER_SIZE_AT => offset_of!(I, sub_buffer_size), l::SUB_BUFFERS_AT => offset_of!(I, sub_buffers),
        l::PAGE_SIZE_AT => offset_of!(I, page_size), l::SLOTS_OFF_AT => offset_of!(I, slots_off),
        l::DATA_OFF_AT => offset_of!(I, data_off), l::ANY_CPU => s::ANY_CPU, l::CONTROL_AT => s::CONTROL_OFF,
        l::CONTROL_LEN => size_of::<C>(), l::FLIP_AT => offset_of!(C, flip), 4 => offset_of!(C, refused), 88 => offset_of!(H, backed), 64 => offset_of!(C, lock),
        l::LOST_AT => offset_of!(C, lost), l::LOST_AT + 8 * l::LOST => l::HALVES_AT, l::LOST_FULL => s::LOST_FULL,
        l::RECLAIMED => s::RECLAIMED, l::SKIPPED => s::SKIPPED, l::HALVES_AT => offset_of!(C, half),
        l::HALF_LEN => size_of::<H>(), l::RESERVE_AT => offset_of!(H, reserve), l::ATTEMPT_AT => offset_of!(H, attempt),
        l::LAST_CLOCK_AT => offset_of!(H, last_clock), l::FIRST_AT => offset_of!(H, first),
        l::CONTIGUOUS_AT => offset_of!(H, contiguous), l::CONSUMED_AT => offset_of!(H, consumed),
        l::POSITION_BITS => s::POSITION_BITS, l::POSITION_BITS => s::OWNER_SHIFT, l::CLOSED_BIT => s::CLOSED_BIT,
        l::SLOT_LEN => size_of::<L>(), l::COMMITTED_AT => offset_of!(L, committed), l::CONTENT_END_AT => offset_of!(L, content_end),
        l::END_CLOCK_AT => offset_of!(L, end_clock),
    }
}

#[test]
fn open_spans() {
    use abi::spans::{self as s, Span as S, SpansControl as C};
    use layout::spans as l;
    same! {
        l::CAPACITY_AT => s::CONTROL_OFF + offset_of!(C, capacity), 132 => s::CONTROL_OFF + offset_of!(C, hint),
        l::DROPPED_AT => s::CONTROL_OFF + offset_of!(C, dropped), l::NEXT_ID_AT => s::CONTROL_OFF + offset_of!(C, next_id),
        l::SPANS_AT => s::SPANS_OFF, l::SPAN_LEN => size_of::<S>(), l::ID_AT => offset_of!(S, id),
        l::PARENT_AT => offset_of!(S, parent), l::OPENED_AT => offset_of!(S, opened), l::OPENER_AT => offset_of!(S, opener),
        l::ENTERED_AT => offset_of!(S, entered), l::STATE_AT => offset_of!(S, state), l::TEXT_LEN_AT => offset_of!(S, text_len),
        l::LEVEL_AT => offset_of!(S, level), 56 => offset_of!(S, opener_start), l::TEXT_AT => offset_of!(S, text),
        184 => s::TEXT_LEN, l::EVICTED_AT => s::CONTROL_OFF + offset_of!(C, evicted),
        l::SKIPPED_AT => s::CONTROL_OFF + offset_of!(C, skipped), l::INSIDE_AT => offset_of!(S, inside),
        248 => offset_of!(S, active), 1 => s::SPAN_OPEN, 2 => s::SPAN_APPENDING, 0xffff => s::WRITING,
    }
}

#[test]
fn counters() {
    use abi::counters::{
        self as s, CountersControl as C, CountersInfo as I, Entry as E, Histogram as H,
    };
    use layout::counters as l;
    same! {
        l::INFO_AT => abi::region::HEADER_SIZE, l::INFO_LEN => size_of::<I>(), l::COUNTERS_AT => offset_of!(I, counters),
        l::HISTOGRAMS_AT => offset_of!(I, histograms), l::COUNTERS_OFF_AT => offset_of!(I, counters_off),
        l::HISTOGRAMS_OFF_AT => offset_of!(I, histograms_off), l::SUB_BITS_AT => offset_of!(I, sub_bits),
        l::CONTROL_AT => s::CONTROL_OFF, l::USED_COUNTERS_AT => offset_of!(C, used_counters),
        l::USED_HISTOGRAMS_AT => offset_of!(C, used_histograms), l::LOST_ADDITIONS_AT => offset_of!(C, lost_additions),
        l::LOST_VALUES_AT => offset_of!(C, lost_values), l::COPIED_AT => offset_of!(C, copied), l::ENTRIES_AT => s::ENTRIES_OFF, l::ENTRY_LEN => size_of::<E>(),
        l::CHECK_AT => offset_of!(E, check), l::KIND_AT => offset_of!(E, kind), l::TEXT_LEN_AT => offset_of!(E, text_len),
        l::TEXT_AT => offset_of!(E, text), 176 => s::TEXT_LEN, l::COUNT_AT => offset_of!(E, count),
        l::VALUE_AT => offset_of!(E, value), l::BUCKETS_AT => offset_of!(H, buckets), l::BUCKETS => s::BUCKETS,
        l::HISTOGRAM_LEN => size_of::<H>(), l::COUNTER => s::KIND_COUNTER, l::HISTOGRAM => s::KIND_HISTOGRAM,
        l::SEPARATOR => s::SEPARATOR, l::SUB_BITS => s::SUB_BITS, l::KIND_AT => s::COVERED.start, l::COUNT_AT => s::COVERED.end,
    }
}
