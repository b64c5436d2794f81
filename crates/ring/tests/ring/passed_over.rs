//! If a living recorder is still writing in a place, the place is skipped on every lap, however
//! often the ring comes round.

use std::sync::atomic::Ordering::Relaxed;

use crate::common::{Shape, bind_to_this_cpu, channel_in, parts_of, payload, session_region};
use lastwords_abi::session::{IN_FLIGHT_RESERVING, RESERVATION_LOCKLESS, SessionInfo, Thread};
use lastwords_abi::stream::{CONTROL_OFF, RECLAIMED, SKIPPED, Slot, StreamControl};
use lastwords_ring::{ClockKind, os};

/// Sub-buffers of the ring, and bytes of each.
const COUNT: u64 = 4;
const SIZE: u64 = 256;

#[test]
fn a_living_recorder_keeps_its_place_for_many_laps() {
    let region = session_region();
    let parts = parts_of(region);
    let shape = Shape {
        reservation: RESERVATION_LOCKLESS,
        sub_buffer_size: SIZE,
        sub_buffers: COUNT as u32,
        clock: ClockKind::Monotonic,
        ..Shape::default()
    };
    let channel = channel_in(parts, &shape);
    bind_to_this_cpu();
    channel.record_parts(1, &[&payload(0, 16)]).expect("room");
    let stream =
        channel.streams().iter().find(|s| s.position(0) > 0).expect("the stream of this CPU");
    // SAFETY: the table of threads is at the offset in the info, and is not freed; its fields are
    // atomics.
    let stalled = unsafe {
        let info = &*region.add(128).cast::<SessionInfo>();
        &*region.add(info.threads_off as usize).cast::<Thread>().add(info.threads as usize - 1)
    };
    let index =
        channel.streams().iter().position(|s| std::ptr::eq(s, stream)).expect("its index") as u64;
    stalled.pidns.store(os::pid_namespace(), Relaxed);
    stalled
        .owner
        .store(u64::from(std::process::id()) << 32 | u64::from(std::process::id()), Relaxed);
    let level = &stalled.levels[0];
    level.begin.store(84, Relaxed);
    level.end.store(84 + 34, Relaxed);
    level.state.store(IN_FLIGHT_RESERVING, Relaxed);
    level.target.store((index << 1) + 1, Relaxed);
    // The test removes the bytes of the event at 84 from the commit counter, as if they were not
    // committed.
    let slots =
        std::ptr::from_ref(stream.control()).cast::<u8>().wrapping_add(size_of::<StreamControl>());
    assert_eq!(slots as usize % 64, CONTROL_OFF % 64);
    // SAFETY: the slots follow the control in the region; their fields are atomics.
    let slot = unsafe { &*slots.cast::<Slot>() };
    slot.committed.fetch_sub(34, Relaxed);
    for n in 1..400 {
        channel.record_parts(1, &[&payload(n, 16)]).expect("room in the other places");
    }
    let laps = stream.position(0) / (COUNT * SIZE);
    let lost = |cause: usize| stream.control().lost[cause].load(Relaxed);
    assert!(laps > 5, "{laps} laps");
    assert_eq!(lost(RECLAIMED), 0, "the place of a living recorder was taken");
    assert!(lost(SKIPPED) + 1 >= laps, "passed over {} times in {laps} laps", lost(SKIPPED));
}
