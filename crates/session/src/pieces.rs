//! Runs of bytes (begin, end) in a sub-buffer that contain its events.

use lastwords_abi::packet::HEADER_LEN;

/// Maps `at`, an offset in the concatenation of a header and the pieces, back to an offset in the
/// sub-buffer.
pub(crate) fn offset_of(pieces: &[(usize, usize)], at: usize) -> u64 {
    let mut left = at.saturating_sub(HEADER_LEN);
    for (begin, end) in pieces {
        let size = end.saturating_sub(*begin);
        if left < size {
            return begin.saturating_add(left) as u64;
        }
        left = left.saturating_sub(size);
    }
    pieces.last().map_or(HEADER_LEN, |piece| piece.1) as u64
}

/// Keeps the first `len` bytes of the pieces.
pub(crate) fn truncate(pieces: &mut Vec<(usize, usize)>, len: usize) {
    let mut left = len;
    for piece in pieces.iter_mut() {
        let size = piece.1.saturating_sub(piece.0).min(left);
        piece.1 = piece.0.saturating_add(size);
        left = left.saturating_sub(size);
    }
    pieces.retain(|p| p.1 > p.0);
}

/// Drops the first `len` bytes of the pieces.
pub(crate) fn drop_front(pieces: &mut Vec<(usize, usize)>, len: usize) {
    let mut left = len;
    for piece in pieces.iter_mut() {
        let size = piece.1.saturating_sub(piece.0).min(left);
        piece.0 = piece.0.saturating_add(size);
        left = left.saturating_sub(size);
    }
    pieces.retain(|p| p.1 > p.0);
}
