//! Columns of texts. The bytes of a text can be written in their place, without a copy.

use arrow_array::StringArray;
use arrow_array::builder::NullBufferBuilder;
use arrow_buffer::{Buffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::ArrowError;

/// A column of texts under construction.
pub(crate) struct Texts {
    bytes: Vec<u8>,
    /// The end of each text in `bytes`; the first one is 0.
    ends: Vec<i32>,
    nulls: NullBufferBuilder,
}

impl Default for Texts {
    fn default() -> Self {
        Self::with_capacity(0, 0)
    }
}

impl Texts {
    fn with_capacity(rows: usize, bytes: usize) -> Self {
        let mut ends = Vec::with_capacity(rows.saturating_add(1));
        ends.push(0);
        Self { bytes: Vec::with_capacity(bytes), ends, nulls: NullBufferBuilder::new(rows) }
    }

    /// Returns the number of rows that have a value, or come before one that has.
    pub(crate) fn len(&self) -> usize {
        self.ends.len().saturating_sub(1)
    }

    /// Returns the number of bytes of all texts.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Appends nulls for the rows before this one that have no value.
    fn pad(&mut self, row: usize) {
        let missing = row.saturating_sub(self.len());
        if missing > 0 {
            let end = self.ends.last().copied().unwrap_or(0);
            self.ends.resize(row.saturating_add(1), end);
            self.nulls.append_n_nulls(missing);
        }
    }

    /// Begins the text of a row, in place of the one that it may have. The caller appends to the
    /// bytes that are returned, and calls [`Texts::end`] or [`Texts::cancel`].
    #[inline]
    pub(crate) fn begin(&mut self, row: usize) -> &mut Vec<u8> {
        if self.len() > row {
            self.ends.truncate(row.saturating_add(1));
            self.nulls.truncate(row);
            self.cancel();
        }
        self.pad(row);
        &mut self.bytes
    }

    /// Ends the text that was begun last.
    #[inline]
    pub(crate) fn end(&mut self) {
        // A column that is too long is refused when it is finished.
        self.ends.push(i32::try_from(self.bytes.len()).unwrap_or(i32::MAX));
        self.nulls.append_non_null();
    }

    /// Drops the text that was begun last. Its row is null.
    pub(crate) fn cancel(&mut self) {
        let end = self.ends.last().copied().unwrap_or(0);
        self.bytes.truncate(usize::try_from(end).unwrap_or(0));
    }

    /// Sets the text of a row.
    #[inline]
    pub(crate) fn push(&mut self, row: usize, text: &[u8]) {
        self.begin(row).extend_from_slice(text);
        self.end();
    }

    /// Returns the text of a row, if it is the last one that has a text.
    pub(crate) fn get(&self, row: usize) -> Option<&str> {
        let [.., begin, end] = self.ends.as_slice() else { return None };
        if self.len() != row.saturating_add(1) {
            return None;
        }
        let range = usize::try_from(*begin).ok()?..usize::try_from(*end).ok()?;
        std::str::from_utf8(self.bytes.get(range)?).ok()
    }

    /// Returns the column of this number of rows, and begins anew with room for as many.
    ///
    /// # Errors
    /// The texts have more than 2 GiB, or one is not UTF-8.
    pub(crate) fn finish(&mut self, rows: usize) -> Result<StringArray, ArrowError> {
        self.pad(rows);
        let size = self.bytes.len();
        let new = Self::with_capacity(rows, size.saturating_add(size / 8));
        let Self { bytes, ends, mut nulls } = std::mem::replace(self, new);
        if i32::try_from(size).is_err() {
            return Err(ArrowError::OffsetOverflowError(size));
        }
        let ends = OffsetBuffer::new(ScalarBuffer::from(ends));
        StringArray::try_new(ends, Buffer::from_vec(bytes), nulls.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow_array::Array as _;

    #[test]
    fn rows_without_a_text_are_null_and_the_last_text_of_a_row_counts() {
        let mut texts = Texts::default();
        texts.push(1, b"one");
        texts.push(1, b"first");
        assert_eq!((texts.get(1), texts.get(0), texts.len()), (Some("first"), None, 2));
        texts.begin(2).extend_from_slice(b"dropped");
        texts.cancel();
        texts.push(4, b"");
        let column = texts.finish(6).unwrap();
        let found: Vec<Option<&str>> = column.iter().collect();
        assert_eq!(found, [None, Some("first"), None, None, Some(""), None]);
        texts.push(0, b"again");
        let column = texts.finish(1).unwrap();
        assert_eq!((column.value(0), column.null_count()), ("again", 0));
        texts.push(0, b"\xff");
        assert!(texts.finish(1).is_err());
    }
}
