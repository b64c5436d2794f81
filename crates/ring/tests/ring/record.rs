//! Tests each reservation, each memory and each header form: the ring must contain what was
//! recorded.

use std::cmp::Ordering;
use std::num::NonZeroU32;
use std::sync::atomic::Ordering::Relaxed;

use crate::common::{
    RESERVATIONS, Shape, bind_to, bind_to_this_cpu, channel, channel_on, copy, lost, of_id, parts,
    payload, read, read_all, sequence, u64_at, words,
};
use lastwords_abi::header;
use lastwords_abi::packet::TRAILER_LEN;
use lastwords_abi::session::{
    CHANNEL_FULL_HEADERS, CHANNEL_PAYLOAD_SIZE, MODE_DISCARD, RESERVATION_LOCKED,
    RESERVATION_LOCKLESS,
};
use lastwords_ring::{ClockKind, Lost, ShortText, Stream, Tail, rseq_available};

#[test]
fn what_fits_is_all_there_in_order() {
    for reservation in RESERVATIONS {
        for paged in [false, true] {
            for clock in [ClockKind::Tsc, ClockKind::Monotonic] {
                let shape = Shape { reservation, paged, clock, sub_buffers: 8, ..Shape::default() };
                let channel = channel(&shape);
                for n in 0..200u32 {
                    let p = payload(n, 8 + (n as usize * 7) % 90);
                    channel.record_parts((n % 40) as u16, &[&p[..5], &p[5..]]).expect("room");
                }
                let events = read_all(channel, 0);
                assert_eq!(
                    events.iter().map(sequence).collect::<Vec<_>>(),
                    (0..200).collect::<Vec<_>>()
                );
                assert!(events.iter().all(|e| u32::from(e.id) == sequence(e) % 40));
            }
        }
    }
}

#[test]
fn the_newest_survive_many_laps_by_the_fast_path() {
    let channel = channel(&Shape::default());
    for n in 0..100_000u32 {
        match n % 3 {
            0 => channel.record_words::<1>(1, words(&payload(n, 8)), 8, None),
            1 => channel.record_words::<4>(28, words(&payload(n, 29)), 29, None),
            _ => channel.record_words::<8>(29, words(&payload(n, 40)), 40, None),
        }
        .expect("overwrite mode has room");
    }
    let events = read_all(channel, 0);
    let first = sequence(&events[0]);
    let got: Vec<u32> = events.iter().map(sequence).filter(|&n| n >= 99_700).collect();
    assert_eq!(got, (99_700..100_000).collect::<Vec<_>>(), "first there is {first}");
}

/// Moves this thread to a CPU that it may run on, each call to the next.
fn next_cpu(turn: usize) {
    // SAFETY: the calls only use a local set.
    let cpus: Vec<usize> = unsafe {
        let mut may: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(libc::getpid(), size_of_val(&may), &raw mut may), 0);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &may)).collect()
    };
    bind_to(cpus[turn % cpus.len()]);
}

/// The fast path remembers in which channel and on which CPU a thread recorded last.
#[test]
fn a_thread_of_two_channels_on_one_cpu_and_the_next() {
    let shape = Shape { sub_buffer_size: 65536, sub_buffers: 32, ..Shape::default() };
    let channels = [channel(&shape), channel(&shape)];
    for n in 0..40_000u32 {
        if n % 1000 == 0 {
            next_cpu(n as usize / 1000);
        }
        // The thread records alternately in the channel of the last time and in the other.
        let to = channels[(n / 3 % 2) as usize];
        to.record_words::<2>((n % 29) as u16, words(&payload(n, 12)), 12, None).expect("room");
    }
    for (which, channel) in channels.iter().enumerate() {
        let mut events: Vec<_> =
            (0..channel.streams().len()).flat_map(|s| read(&channel.streams()[s], 0)).collect();
        events.sort_by_key(sequence);
        let expected = (0..40_000u32).filter(|n| n / 3 % 2 == which as u32);
        assert_eq!(events.iter().map(sequence).collect::<Vec<_>>(), expected.collect::<Vec<_>>());
        assert!(
            events
                .iter()
                .all(|e| u32::from(e.id) == sequence(e) % 29
                    && e.payload == payload(sequence(e), 12))
        );
    }
}

/// Records texts of each length after words of each length, in sub-buffers that they fill. Bytes
/// that follow a text in the caller's memory must not get into the ring.
#[test]
fn short_texts_of_c() {
    const BEHIND: u8 = 0xee;
    let channel = channel(&Shape { sub_buffers: 32, ..Shape::default() });
    let stream = &channel.streams()[bind_to_this_cpu()];
    let (mut expected, mut fast) = (Vec::new(), 0);
    for (len, end) in (4..=16).flat_map(|len| (0..32usize).map(move |end| (len, end))) {
        let block: [u8; 32] = std::array::from_fn(|n| match n.cmp(&end) {
            Ordering::Less => b'a' + n as u8 % 26,
            Ordering::Equal => 0,
            Ordering::Greater => BEHIND,
        });
        // The reader of these tests finds a payload's length in its first bytes.
        let mut head: [u8; 16] = std::array::from_fn(|n| 0x80 + n as u8);
        head[..4].copy_from_slice(&((len + end + 1) as u32).to_ne_bytes());
        let [first, second] = words(&head);
        let short =
            ShortText { at: block.as_ptr(), zeros: NonZeroU32::new(1 << end).expect("a bit") };
        // SAFETY: the block is readable, and the bit is that of its zero.
        let is_recorded = unsafe { channel.record_short_text(3, (first, second), len, short) };
        expected.push([&head[..len], &block[..=end]].concat());
        if is_recorded {
            fast += 1;
        } else {
            channel.record_parts(3, &[&head[..len], &block[..=end]]).expect("room");
            // From now on this thread remembers the lane of this CPU.
            channel.record_words::<1>(3, words(&payload(1, 8)), 8, None).expect("room");
            expected.push(payload(1, 8));
        }
    }
    let found: Vec<_> = read(stream, 0).into_iter().map(|event| event.payload).collect();
    assert_eq!(found, expected);
    assert!(
        fast == 0 || !behind_events(stream).contains(&BEHIND),
        "bytes behind a text were copied"
    );
    let has_section = cfg!(target_arch = "x86_64") && rseq_available();
    assert!(!has_section || fast > 380, "{fast} of 416 events took the fast path");
}

/// Records tails of each length that the section takes, and of some that it does not, after heads of
/// each length, in sub-buffers that they fill. Bytes that follow a tail in the caller's memory must
/// not get into the ring.
#[test]
fn tails_of_varying_lengths() {
    const BEHIND: u8 = 0xee;
    let channel = channel(&Shape { sub_buffers: 64, ..Shape::default() });
    let stream = &channel.streams()[bind_to_this_cpu()];
    let (mut expected, mut fast) = (Vec::new(), Vec::new());
    for (len, tail) in (0..=9usize).flat_map(|len| (8..136usize).map(move |tail| (len, tail))) {
        let event: Vec<u8> =
            payload(expected.len() as u32, len + tail).into_iter().map(|b| b.min(0xed)).collect();
        let memory = [&event[..], &[BEHIND; 128]].concat();
        let tail = &memory[len..len + tail];
        if channel.record_varying(3, words::<1>(&event[..8])[0], len, tail) {
            fast.push((len, tail.len()));
        } else {
            let head = words::<2>(&event[..len]);
            channel.record_words(3, head, len, Some(Tail::Bytes(tail))).expect("room");
        }
        expected.push(event);
    }
    let found: Vec<_> = read(stream, 0).into_iter().map(|event| event.payload).collect();
    assert_eq!(found, expected);
    assert!(!behind_events(stream).contains(&BEHIND), "bytes behind a tail were copied");
    assert!(fast.iter().all(|(len, tail)| *len <= 8 && (16..=128).contains(tail)));
    let has_section = cfg!(target_arch = "x86_64") && rseq_available();
    assert!(!has_section || fast.len() > 900, "{} of 1017 events took the fast path", fast.len());
}

/// Returns the bytes of a half that are in no event: what is behind the last event of each
/// sub-buffer, without the trailers. Headers of events have the clock, and so bytes of any value.
fn behind_events(stream: &Stream) -> Vec<u8> {
    // SAFETY: the stream is quiet.
    let half = unsafe { copy(stream, 0, 0, stream.half_size()) };
    let size = stream.spec().sub_buffer_size as usize;
    let position = stream.position(0) as usize;
    let behind = |(number, packet): (usize, &[u8])| {
        let content = match (number + 1) * size <= position {
            true => u64_at(packet, 48) as usize / 8,
            false => position.saturating_sub(number * size),
        };
        packet[content..size - TRAILER_LEN].to_vec()
    };
    half.chunks(size).enumerate().flat_map(behind).collect()
}

#[test]
fn payload_sizes_and_events_over_pages() {
    for reservation in RESERVATIONS {
        let shape = Shape {
            reservation,
            paged: true,
            sub_buffer_size: 65536,
            flags: CHANNEL_PAYLOAD_SIZE,
            ..Shape::default()
        };
        let channel = channel(&shape);
        for n in 0..12 {
            channel.record_parts(3, &[&payload(n, 8 + 1500 * n as usize)]).expect("room");
        }
        assert_eq!(read_all(channel, 0).len(), 12);
        assert_eq!(channel.record_parts(3, &[&payload(1, 65536)]), Err(Lost::TooBig));
        assert_eq!(lost(channel), 1);
    }
}

/// An event of many parts, each on several pages, is recorded with every reservation.
#[test]
fn events_of_many_pieces_fit_every_reservation() {
    for reservation in RESERVATIONS {
        for paged in [false, true] {
            let shape = Shape { reservation, paged, sub_buffer_size: 1 << 20, ..Shape::default() };
            let channel = channel(&shape);
            for (n, (len, parts)) in
                [(640, 49), (640, 64), (640, 200), (500_000, 1), (500_000, 100)]
                    .into_iter()
                    .enumerate()
            {
                let bytes = payload(n as u32, len);
                let parts: Vec<&[u8]> = bytes.chunks(len.div_ceil(parts)).collect();
                assert_eq!(
                    channel.record_parts(3, &parts),
                    Ok(()),
                    "reservation {reservation}, {len} bytes"
                );
            }
            assert_eq!(read_all(channel, 0).len(), 5, "reservation {reservation}");
        }
    }
}

#[test]
fn discard_mode_keeps_the_oldest_and_counts_the_rest() {
    for reservation in RESERVATIONS {
        let channel = channel(&Shape { reservation, mode: MODE_DISCARD, ..Shape::default() });
        let results: Vec<_> =
            (0..5000u32).map(|n| channel.record_parts(1, &[&payload(n, 64)])).collect();
        let events = read_all(channel, 0);
        let kept = results.iter().filter(|r| r.is_ok()).count();
        assert_eq!(events.len(), kept, "reservation {reservation}");
        assert!(results.iter().all(|r| matches!(r, Ok(()) | Err(Lost::Full))));
        assert_eq!(lost(channel) as usize, 5000 - kept, "reservation {reservation}");
    }
}

/// Returns the size of an event's header, in bytes, when the last event is `ago` nanoseconds old.
fn header_after(reservation: u32, flags: u32, ago: u64) -> usize {
    let clock = ClockKind::Monotonic;
    let channel = channel_on(1, parts(), &Shape { reservation, clock, flags, ..Shape::default() });
    let stream = &channel.streams()[0];
    channel.record_parts(7, &[&payload(0, 8)]).expect("room");
    let before = stream.position(0);
    stream.control().half[0].last_clock.store(clock.now() - ago, Relaxed);
    channel.record_parts(7, &[&payload(1, 8)]).expect("room");
    (stream.position(0) - before) as usize - 8
}

#[test]
fn a_clock_that_overflowed_needs_the_full_header() {
    for reservation in [RESERVATION_LOCKLESS, RESERVATION_LOCKED] {
        // The 27 bits of the clock overflow after 134 ms, and a busy machine may stop the thread
        // for that long.
        let found = (0..20)
            .map(|_| header_after(reservation, 0, 0))
            .find(|len| *len == header::LEN_COMPACT);
        assert_eq!(found, Some(header::LEN_COMPACT), "reservation {reservation}");
        assert_eq!(
            header_after(reservation, 0, 1 << 27),
            header::LEN_FULL,
            "reservation {reservation}"
        );
    }
}

#[test]
fn each_event_of_a_channel_of_full_headers_has_the_whole_clock() {
    bind_to_this_cpu();
    for reservation in RESERVATIONS {
        let flags = CHANNEL_FULL_HEADERS;
        let channel = channel_on(1, parts(), &Shape { reservation, flags, ..Shape::default() });
        let positions =
            || channel.streams().iter().map(|stream| stream.position(0)).sum::<u64>() as usize;
        channel.record_parts(700, &[&payload(0, 8)]).expect("room");
        let begin = positions();
        for n in 1..20 {
            let id = if n % 2 == 0 { 700 } else { 7 };
            if n % 3 == 0 {
                channel.record_words::<1>(id, words(&payload(n, 8)), 8, None).expect("room");
            } else {
                channel.record_parts(id, &[&payload(n, 8)]).expect("room");
            }
        }
        let (ids, found): (Vec<_>, Vec<_>) =
            read_all(channel, 0).into_iter().map(|event| (event.id, event.payload)).unzip();
        assert_eq!(
            found,
            (0..20).map(|n| payload(n, 8)).collect::<Vec<_>>(),
            "reservation {reservation}"
        );
        assert_eq!(ids, [700, 7].repeat(10), "reservation {reservation}");
        assert_eq!(positions() - begin, 19 * (header::LEN_FULL + 8), "reservation {reservation}");
    }
}

/// A recorder may have read a position that the ring has left since, and everything up to the
/// present position was consumed.
#[test]
fn a_stale_position_is_not_a_full_ring() {
    let shape = Shape {
        reservation: RESERVATION_LOCKLESS,
        mode: MODE_DISCARD,
        sub_buffer_size: 256,
        clock: ClockKind::Monotonic,
        ..Shape::default()
    };
    let channel = channel_on(1, parts(), &shape);
    let stream = &channel.streams()[0];
    let fill = || while channel.record_parts(7, &[&payload(0, 8)]).is_ok() {};
    for end in [1024, 2048] {
        fill();
        assert!((end - 256..=end).contains(&stream.position(0)), "four sub-buffers have room");
        assert_eq!(channel.record_parts(7, &[&payload(0, 8)]), Err(Lost::Full));
        stream.consume(0, end);
    }
    fill();
    assert!(
        (2048 + 3 * 256..=2048 + 4 * 256).contains(&stream.position(0)),
        "four sub-buffers have room again"
    );
    stream.control().half[0].reserve.store(512, Relaxed);
    assert_eq!(channel.record_parts(7, &[&payload(0, 8)]), Ok(()), "the position is stale");
}

#[test]
fn threads_on_all_cpus_lose_nothing() {
    for reservation in RESERVATIONS {
        let shape =
            Shape { reservation, sub_buffer_size: 1 << 16, sub_buffers: 64, ..Shape::default() };
        let channel = channel(&shape);
        std::thread::scope(|scope| {
            for thread in 0..4u32 {
                let channel = &channel;
                scope.spawn(move || {
                    for n in 0..10_000u32 {
                        let p = payload(thread << 24 | n, 8 + (n as usize % 40));
                        channel.record_parts(thread as u16, &[&p]).expect("room");
                    }
                });
            }
        });
        let events = read_all(channel, 0);
        for thread in 0..4u16 {
            let first = u32::from(thread) << 24;
            assert_eq!(
                of_id(&events, thread),
                (first..first + 10_000).collect::<Vec<_>>(),
                "reservation {reservation}, thread {thread}"
            );
        }
    }
}
