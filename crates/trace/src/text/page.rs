//! Buffers to which text is appended in pieces.

/// Minimum size of a page, in bytes.
const FIRST: usize = 64 << 10;

/// A buffer to which text is appended.
pub trait Put {
    /// Appends the first `used` bytes of a block. Implementations copy the whole block, which takes
    /// only a few stores; the bytes after the first `used` do not become part of the text.
    fn block<const N: usize>(&mut self, block: &[u8; N], used: usize);

    /// Appends a text of any length.
    fn text(&mut self, text: &[u8]);
}

impl Put for Vec<u8> {
    #[inline]
    fn block<const N: usize>(&mut self, block: &[u8; N], used: usize) {
        let end = self.len().wrapping_add(used);
        self.extend_from_slice(block);
        self.truncate(end);
    }

    #[inline]
    fn text(&mut self, text: &[u8]) {
        self.extend_from_slice(text);
    }
}

/// Text, and free space after it. The space is allocated for many lines at once, not for each piece
/// of a line.
#[derive(Debug, Default)]
pub struct Page {
    /// The text, then free space.
    bytes: Vec<u8>,
    used: usize,
}

impl Page {
    /// Returns the text.
    #[inline]
    #[must_use]
    pub fn text(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }

    /// Removes the text.
    #[inline]
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Returns the length of the text in bytes.
    #[inline]
    pub fn used(&self) -> usize {
        self.used
    }

    /// Appends a text of any length.
    #[inline]
    pub fn append(&mut self, text: &[u8]) {
        self.line(|line| {
            line.text(text);
            true
        });
    }

    /// Appends the line that `put` writes. Appends nothing if `put` returns false. If the space is
    /// too small, the page grows and calls `put` again.
    #[inline]
    pub fn line(&mut self, mut put: impl FnMut(&mut Line<'_>) -> bool) -> bool {
        loop {
            let mut line = Line { page: &mut self.bytes, at: self.used, is_cut: false };
            let is_put = put(&mut line);
            if !is_put || !line.is_cut {
                self.used = if is_put { line.at } else { self.used };
                return is_put;
            }
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        self.bytes.resize(self.bytes.len().wrapping_mul(2).max(FIRST), 0);
    }
}

/// Writes a line into the free space of a page, or into any other bytes.
pub struct Line<'p> {
    page: &'p mut [u8],
    at: usize,
    /// The space was too small for the line.
    is_cut: bool,
}

impl<'p> Line<'p> {
    /// Begins a line at the first of the bytes.
    #[inline]
    pub fn new(page: &'p mut [u8]) -> Self {
        Self { page, at: 0, is_cut: false }
    }

    /// Returns the length of the line in bytes.
    #[inline]
    pub fn used(&self) -> usize {
        self.at
    }
}

impl Put for Line<'_> {
    #[inline(always)]
    fn block<const N: usize>(&mut self, block: &[u8; N], used: usize) {
        match self.page.get_mut(self.at..self.at.wrapping_add(N)) {
            Some(place) => {
                place.copy_from_slice(block);
                self.at = self.at.wrapping_add(used);
            }
            None => self.is_cut = true,
        }
    }

    #[inline]
    fn text(&mut self, text: &[u8]) {
        match self.page.get_mut(self.at..self.at.wrapping_add(text.len())) {
            Some(place) => {
                place.copy_from_slice(text);
                self.at = self.at.wrapping_add(text.len());
            }
            None => self.is_cut = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Page, Put};

    #[test]
    fn lines_of_any_length_are_appended_in_order() {
        let (mut page, mut expected) = (Page::default(), Vec::new());
        for round in 0..3000usize {
            let long = vec![b'a' + (round % 26) as u8; round];
            let written = page.line(|line| {
                line.block(b"block", 3);
                line.text(&long);
                line.block(b"\n", 1);
                round % 3 > 0
            });
            assert_eq!(written, round % 3 > 0);
            assert_eq!(page.used(), expected.len() + if written { round + 4 } else { 0 });
            if written {
                expected.extend_from_slice(&[b"blo", long.as_slice(), b"\n"].concat());
            }
        }
        page.append(&expected.clone());
        expected.extend_from_within(..);
        assert_eq!(page.text(), expected);
        page.clear();
        assert!(page.text().is_empty());
    }
}
