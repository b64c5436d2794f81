//! A stream is attached only if its header and its geometry are valid.

use crate::common::pages;
use lastwords_abi::region::{self, RegionHeader};
use lastwords_abi::session::{MODE_DISCARD, RESERVATION_LOCKLESS};
use lastwords_abi::stream::StreamInfo;
use lastwords_ring::{Stream, StreamSpec, init, init_stream};

/// Where slots and data are in new rings, and in those that came over a network.
const ORDERS: [([u64; 2], [u64; 2]); 2] = [([0; 2], [0; 2]), ([8192; 2], [4096; 2])];

#[test]
fn offsets_of_slots_are_checked() {
    for (slots_off, data_off) in ORDERS {
        check_offsets(slots_off, data_off);
    }
}

fn check_offsets(slots_off: [u64; 2], data_off: [u64; 2]) {
    let info = StreamInfo {
        channel: 0,
        cpu: 0,
        reservation: RESERVATION_LOCKLESS,
        mode: MODE_DISCARD,
        sub_buffer_size: 256,
        sub_buffers: 4,
        page_size: 0,
        slots_off,
        data_off,
    };
    let spec = StreamSpec::new([7; 16], 0, info).expect("a ring");
    assert_eq!(spec.data_off[0] < spec.slots_off[0], data_off[0] < slots_off[0]);
    let region = pages(spec.region_len() as usize);
    // SAFETY: as below.
    let attached = unsafe {
        init_stream(region, &spec);
        Stream::attach(region, spec.region_len())
    };
    attached.expect("a ring");
    for half in 0..2 {
        for offset in [0, 8, 1 << 20, u64::MAX - 64, u64::MAX] {
            let region = pages(spec.region_len() as usize);
            // SAFETY: the region belongs to this test alone, is zeroed, has the length that the
            // specification requires, and is aligned for both shapes.
            unsafe {
                init_stream(region, &spec);
                let info = &mut *region.add(region::HEADER_SIZE as usize).cast::<StreamInfo>();
                info.slots_off[half] = offset;
                let header = &mut *region.cast::<RegionHeader>();
                header.check = init::check_of(header, init::bytes_of(info));
                let error = Stream::attach(region, spec.region_len()).expect_err("refused");
                assert!(error.what.contains("geometry"), "{half} at {offset}: {error}");
            }
        }
    }
}
