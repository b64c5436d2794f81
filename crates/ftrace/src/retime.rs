//! Other times for the events of a sub-buffer: what a file says of its clock is applied where the
//! sub-buffer is read, so that everything behind it has the corrected times.

use lastwords_bytes::ByteOrder;

use super::HeaderPage;
use super::page::{
    LONGEST_SHORT, PADDING, STAMP_BITS, TIME_EXTEND, TIME_STAMP, long, put_native, whole_stamp,
    word,
};

/// The longest time since the event before that the head of an event holds.
const LONGEST_DELTA: u64 = (1 << 27) - 1;
/// The same of a time extension.
const LONGEST_EXTENSION: u64 = (1 << STAMP_BITS) - 1;

/// Gives each event of a sub-buffer, of which `committed` bytes behind the header are events, the
/// time that `convert` makes of its own.
///
/// Returns how many times the sub-buffer cannot hold: a time before that of the previous event, or
/// too far behind it. Such an event has the nearest time that the sub-buffer can hold; the events
/// behind it have their own.
pub fn retime(
    bytes: &mut [u8],
    layout: HeaderPage,
    order: ByteOrder,
    committed: usize,
    convert: &mut dyn FnMut(u64) -> u64,
) -> u64 {
    let mut at = layout.data_offset as usize;
    let end = at.saturating_add(committed).min(bytes.len());
    let mut time = long(bytes, 0, order);
    let mut written = convert(time);
    put_native(bytes, 0, written, 8, order);
    let mut wrong = 0u64;
    while at.saturating_add(4) <= end {
        let head = word(bytes, at, order);
        let (kind, delta) = match order {
            ByteOrder::Little => (head & 31, u64::from(head >> 5)),
            ByteOrder::Big => (head >> 27, u64::from(head & 0x07ff_ffff)),
        };
        let behind = at.saturating_add(4);
        let next = word(bytes, behind, order);
        let long_delta = u64::from(next) << 27 | delta;
        // What stands in the head in place of the time since the event before.
        let (put, is_long) = match kind {
            PADDING if delta == 0 => break,
            PADDING => {
                at = behind.saturating_add((next as usize).max(4));
                continue;
            }
            TIME_STAMP => {
                time = whole_stamp(long_delta, time);
                let stamp = convert(time);
                let read = whole_stamp(stamp & LONGEST_EXTENSION, written);
                wrong = wrong.saturating_add(u64::from(read != stamp));
                written = read;
                (stamp & LONGEST_EXTENSION, true)
            }
            _ => {
                let is_long = kind == TIME_EXTEND;
                time = time.wrapping_add(if is_long { long_delta } else { delta });
                let most = if is_long { LONGEST_EXTENSION } else { LONGEST_DELTA };
                let since = convert(time).wrapping_sub(written);
                // A time before the previous one is a difference in the upper half of all numbers.
                let put = if since.cast_signed() < 0 { 0 } else { since.min(most) };
                wrong = wrong.saturating_add(u64::from(put != since));
                written = written.wrapping_add(put);
                (put, is_long)
            }
        };
        let low = (put & LONGEST_DELTA) as u32;
        let head = if order == ByteOrder::Little { kind | low << 5 } else { kind << 27 | low };
        put_native(bytes, at, u64::from(head), 4, order);
        if is_long {
            put_native(bytes, behind, put >> 27, 4, order);
        }
        at = match kind {
            0 => behind.saturating_add((next as usize).max(4).next_multiple_of(4)),
            1..=LONGEST_SHORT => behind.saturating_add((kind as usize).saturating_mul(4)),
            _ => behind.saturating_add(4),
        };
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::super::page::{Event, Events};
    use super::*;
    use proptest::prelude::*;

    const LAYOUT: HeaderPage = HeaderPage { commit_size: 8, data_offset: 16 };

    fn times(bytes: &[u8], order: ByteOrder, committed: usize) -> Vec<Event> {
        Events::new(bytes, LAYOUT, order, committed).map_while(Result::ok).collect()
    }

    proptest! {
        /// Every event keeps its payload, and has the converted time where the sub-buffer can hold it.
        #[test]
        fn times_are_those_that_are_asked_for(
            events in proptest::collection::vec((0u32..32, 0u32..1 << 20, 0u32..4), 0..60),
            is_little in any::<bool>(),
            (mult, shift, offset) in (1u64..3000, 8u32..14, 0u64..1 << 50),
        ) {
            let order = if is_little { ByteOrder::Little } else { ByteOrder::Big };
            let mut words = Vec::new();
            for (kind, delta, more) in events {
                words.push(if is_little { kind | delta << 5 } else { kind << 27 | delta });
                match kind {
                    0 => words.extend([4 + more * 4, 1, 2, 3].into_iter().take(2 + more as usize)),
                    1..=LONGEST_SHORT => words.extend(vec![more; kind as usize]),
                    PADDING if delta > 0 => words.extend([8, more]),
                    // Absolute times lie behind those before them.
                    TIME_STAMP => words.push((1 << 20) + words.len() as u32 * 64 + more),
                    _ => words.push(more),
                }
            }
            let put = |word: &u32| if is_little { word.to_le_bytes() } else { word.to_be_bytes() };
            let mut bytes = vec![0; 16];
            put_native(&mut bytes, 0, 1_000_000, 8, order);
            bytes.extend(words.iter().flat_map(put));
            let (committed, before) = (bytes.len() - 16, bytes.clone());
            let mut convert = |time: u64| ((u128::from(time) * u128::from(mult)) >> shift) as u64 + offset;
            let old = times(&before, order, committed);
            let wrong = retime(&mut bytes, LAYOUT, order, committed, &mut convert);
            let new = times(&bytes, order, committed);
            prop_assert_eq!(old.len(), new.len());
            let mut differ = 0u64;
            for (old, new) in old.iter().zip(&new) {
                prop_assert_eq!(&old.payload, &new.payload);
                prop_assert_eq!(&before[old.payload.clone()], &bytes[new.payload.clone()]);
                differ += u64::from(convert(old.time) != new.time);
            }
            prop_assert!(differ <= wrong, "{} differ, {} told", differ, wrong);
        }
    }

    #[test]
    fn times_that_go_back_or_too_far_are_counted() {
        let head = |delta: u32| (1 | delta << 5).to_le_bytes();
        let mut bytes = [&1000u64.to_le_bytes()[..], &24u64.to_le_bytes()].concat();
        for delta in [1, 1, 1] {
            bytes.extend([head(delta), [0; 4]].concat());
        }
        let mut wanted = [2000, 1500, 3000, 3000 + (1 << 28)].into_iter();
        assert_eq!(
            retime(&mut bytes, LAYOUT, ByteOrder::Little, 24, &mut |_| wanted.next().unwrap()),
            2
        );
        let found: Vec<u64> =
            times(&bytes, ByteOrder::Little, 24).iter().map(|event| event.time).collect();
        assert_eq!(found, [2000, 3000, 3000 + LONGEST_DELTA]);
    }
}
