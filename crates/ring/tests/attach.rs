//! A stream is attached only if its header and its geometry are valid.
mod common;

use common::pages;
use lastwords_abi::region::{self, RegionHeader};
use lastwords_abi::session::{MODE_DISCARD, RESERVATION_LOCKLESS};
use lastwords_abi::stream::StreamInfo;
use lastwords_ring::{Stream, StreamSpec, init, init_stream};

#[test]
fn offsets_of_slots_are_checked() {
    let info = StreamInfo {
        channel: 0,
        cpu: 0,
        reservation: RESERVATION_LOCKLESS,
        mode: MODE_DISCARD,
        sub_buffer_size: 256,
        sub_buffers: 4,
        page_size: 0,
        slots_off: [0; 2],
        data_off: [0; 2],
    };
    let spec = StreamSpec::new([7; 16], 0, info).expect("a ring");
    for half in 0..2 {
        for offset in [0, 8, 1 << 20, u64::MAX - 64, u64::MAX] {
            let region = pages(spec.region_len() as usize);
            // SAFETY: the region belongs to this test alone, is zeroed, has the length that the specification requires,
            // and is aligned for both shapes.
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
