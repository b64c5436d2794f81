//! Pages of a packet that read as zeros. Memory that is missing, or was never written, reads so; no
//! tracer writes a page of events that are all zeros.

/// Size of a page, bytes. Larger pages are several of these.
const PAGE: u64 = 4096;
/// Most bits of an event's end that are likely to be zeros.
const END: u64 = 64;

/// The pages of a packet.
pub(super) struct Pages {
    zeros: Vec<bool>,
    /// End of the content, bits.
    end: u64,
}

/// How an event and pages of zeros meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meets {
    /// The event has no byte in such a page.
    Not,
    /// The event begins before such pages and ends behind them.
    Covers,
    /// The event begins or ends in such a page: what it has there is not proven.
    Unproven,
}

impl Pages {
    /// Looks at the pages of a packet whose content ends at bit `end`.
    pub(super) fn new(bytes: &[u8], end: u64) -> Self {
        let is_zero = |page: &[u8]| page.iter().all(|byte| *byte == 0);
        Self { zeros: bytes.chunks(usize::try_from(PAGE).unwrap_or(1)).map(is_zero).collect(), end }
    }

    /// Returns how the event from bit `at` to bit `to` and pages of zeros meet.
    pub(super) fn meets(&self, at: u64, to: u64) -> Meets {
        let page = |bit: u64| bit / 8 / PAGE;
        let is_zero = |page: u64| {
            usize::try_from(page).ok().and_then(|page| self.zeros.get(page)) == Some(&true)
        };
        let (first, last) = (page(at), page(to.saturating_sub(1)));
        // The content ends here: the event has this length, and only its last bytes are in the
        // page.
        let is_end = to == self.end
            && first < last
            && to.saturating_sub(last.saturating_mul(PAGE * 8)) <= END;
        match is_zero(first) || is_zero(last) {
            true if !is_zero(first) && is_end => Meets::Not,
            true => Meets::Unproven,
            false if (first..last).any(is_zero) => Meets::Covers,
            false => Meets::Not,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_in_a_page_of_zeros_is_not_proven() {
        let mut bytes = vec![1u8; 5 * 4096];
        bytes[4096..3 * 4096].fill(0);
        let pages = Pages::new(&bytes, 5 * 4096 * 8);
        let meets = |at: u64, to: u64| pages.meets(at * 8, to * 8);
        assert_eq!(meets(84, 4096), Meets::Not);
        assert_eq!(meets(4000, 4100), Meets::Unproven);
        assert_eq!(meets(4096, 4106), Meets::Unproven);
        assert_eq!(meets(3 * 4096 - 8, 3 * 4096 + 8), Meets::Unproven);
        assert_eq!(meets(4000, 3 * 4096 + 8), Meets::Covers);
        assert_eq!(meets(3 * 4096, 3 * 4096 + 8), Meets::Not);
    }

    #[test]
    fn the_last_bytes_of_a_packet_may_be_zeros() {
        let mut bytes = vec![1u8; 2 * 4096];
        bytes[4096..].fill(0);
        let ends = |end: u64| Pages::new(&bytes, end * 8).meets(4000 * 8, end * 8);
        assert_eq!((ends(4100), ends(4200)), (Meets::Not, Meets::Unproven));
        assert_eq!(Pages::new(&bytes, 4104 * 8).meets(4096 * 8, 4104 * 8), Meets::Unproven);
    }
}
