//! Tests the length of a text with the library's own source, because functions for C cannot be
//! linked into a test.

#[path = "../../src/text.rs"]
mod text;

#[test]
fn as_strlen_at_every_place() {
    let mut page = [1u8; 3 * 4096];
    for end in [1, 15, 16, 17, 31, 32, 33, 100, 4095, 4096, 8192 + 7] {
        page.fill(1);
        page[end] = 0;
        for start in 0..=end {
            // SAFETY: the text ends at `end`.
            let found = unsafe { text::len(page[start..].as_ptr().cast()) };
            assert_eq!(found, end - start, "{start} to {end}");
            // SAFETY: the text ends at `end`.
            let zeros = unsafe { text::zeros_of_block(page[start..].as_ptr().cast()) };
            assert!(
                zeros.is_none_or(|zeros| zeros.trailing_zeros() as usize == end - start),
                "{start} to {end}"
            );
        }
    }
}
