//! Text that is appended to, piece by piece.

/// Bytes that a page begins with.
const FIRST: usize = 64 << 10;

/// What text is appended to.
pub(crate) trait Put {
    /// Appends the first `used` bytes of a block: all are copied, which is a few stores, and what is behind them is
    /// nothing.
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

/// Text, and room behind it: made for many lines at once, rather than for each piece of a line.
#[derive(Debug, Default)]
pub(crate) struct Page {
    /// The text, then what was never written or was cut again.
    bytes: Vec<u8>,
    used: usize,
}

impl Page {
    /// The text.
    pub(crate) fn text(&self) -> &[u8] {
        self.bytes.get(..self.used).unwrap_or_default()
    }

    /// Forgets the text.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }

    /// Bytes of the text.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Appends a text of any length.
    pub(crate) fn append(&mut self, text: &[u8]) {
        self.line(|line| {
            line.text(text);
            true
        });
    }

    /// Appends the line that `put` writes, if it says that it did; it is asked again where there was too little room.
    #[inline]
    pub(crate) fn line(&mut self, mut put: impl FnMut(&mut Line<'_>) -> bool) -> bool {
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

/// A line that is being written.
pub(crate) struct Line<'p> {
    page: &'p mut [u8],
    at: usize,
    /// Not all of it has found room.
    is_cut: bool,
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
    fn lines_stand_in_order_however_long_they_are() {
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
            assert_eq!(page.len(), expected.len() + if written { round + 4 } else { 0 });
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
