//! The crash ABI, with which the shared memory of a stream describes itself (`struct
//! lttng_crash_abi` in `frontend_types.h` of lttng-ust: 0.0 up to 2.14, 1.0 from 2.15 on). Offsets
//! count from the start of the stream's mapping.

use lastwords_bytes::{ByteOrder, Error, Reader};

/// First bytes of a stream's mapping.
pub const MAGIC: [u8; 16] = [
    0x17, 0x7b, 0xf1, 0x77, 0xbf, 0x17, 0x7b, 0xf1, 0x77, 0xbf, 0x17, 0x7b, 0xf1, 0x77, 0xbf, 0x17,
];
/// Length of the structure, bytes.
pub(super) const LEN: usize = 124;
/// User-space tracer in `enum lttng_crash_type`.
const USER: u8 = 0;
/// Largest accepted values: bytes of a mapping, sub-buffers of a ring, bytes of a sub-buffer.
const LENGTH_MAX: u64 = 1 << 36;
const SLOTS_MAX: u64 = 1 << 20;
const SIZE_MAX: u64 = 1 << 30;

/// Location of a number in the mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NumberAt {
    /// Offset from the start of the mapping, or of a table's row.
    pub(super) at: u64,
    /// Length of the number, bytes.
    pub(super) len: usize,
}

/// Location of a table in the mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Table {
    /// Offset of the table.
    pub(super) at: u64,
    /// Length of a row, bytes.
    pub(super) stride: u64,
}

/// The decoded crash ABI of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Abi {
    pub(super) length: u64,
    pub(super) order: ByteOrder,
    pub(super) major: u16,
    pub(super) minor: u16,
    pub(super) word: u8,
    pub(super) produced: NumberAt,
    pub(super) consumed: NumberAt,
    pub(super) hot: Table,
    pub(super) contiguous: NumberAt,
    pub(super) slots: Table,
    pub(super) slot_id: NumberAt,
    pub(super) sets: Table,
    pub(super) set_offset: NumberAt,
    pub(super) data_offset: NumberAt,
    pub(super) sub_buffer_size: u64,
    pub(super) count: u64,
    pub(super) is_overwrite: bool,
}

impl Abi {
    /// Parses the first [`LEN`] bytes of a mapping; none if they are no crash ABI.
    ///
    /// # Errors
    /// The version is unknown, or a value is impossible.
    pub(super) fn parse(what: &str, bytes: &[u8]) -> Result<Option<Self>, Error> {
        if !bytes.starts_with(&MAGIC) {
            return Ok(None);
        }
        let order = match bytes.get(24..26) {
            Some([0x34, 0x12]) => ByteOrder::Little,
            Some([0x12, 0x34]) => ByteOrder::Big,
            _ => return Ok(None),
        };
        let r = Reader::new(what, bytes, order);
        let bad = |offset: u64, value: u64, expected: &str| {
            Err(Error::value(what, offset, value, expected))
        };
        let (major, minor, word, kind) =
            (r.u16_at(26)?, r.u16_at(28)?, bytes.get(30), bytes.get(31));
        let (word, kind) = (word.copied().unwrap_or_default(), kind.copied().unwrap_or_default());
        if major > 1 || minor != 0 {
            return bad(26, u64::from(major), "crash ABI 0.0 or 1.0");
        }
        if !matches!(word, 4 | 8) {
            return bad(30, word.into(), "words of 4 or 8 bytes");
        }
        if kind != USER {
            return bad(31, kind.into(), "a layout of user space (0)");
        }
        let offset = |n: usize| r.u32_at(n.saturating_mul(4).saturating_add(32)).map(u64::from);
        let place = |n: usize, len: usize| -> Result<NumberAt, Error> {
            let size = bytes.get(len.saturating_add(76)).copied().unwrap_or_default();
            if !matches!(size, 1 | 2 | 4 | 8) {
                return Err(Error::value(
                    what,
                    len.saturating_add(76) as u64,
                    size.into(),
                    "1, 2, 4 or 8 bytes",
                ));
            }
            Ok(NumberAt { at: offset(n)?, len: size.into() })
        };
        let table = |n: usize, stride: usize| -> Result<Table, Error> {
            Ok(Table {
                at: offset(n)?,
                stride: r.u32_at(stride.saturating_mul(4).saturating_add(84))?.into(),
            })
        };
        let abi = Self {
            length: r.u64_at(16)?,
            order,
            major,
            minor,
            word,
            produced: place(0, 0)?,
            consumed: place(1, 1)?,
            hot: table(2, 0)?,
            contiguous: place(3, 2)?,
            slots: table(4, 1)?,
            slot_id: place(5, 3)?,
            sets: table(6, 2)?,
            set_offset: place(7, 4)?,
            data_offset: place(8, 5)?,
            sub_buffer_size: r.u64_at(104)?,
            count: r.u64_at(112)?,
            is_overwrite: r.u32_at(120)? == 0,
        };
        if abi.length > LENGTH_MAX {
            return bad(16, abi.length, "a mapping of up to 64 GiB");
        }
        let (size, count) = (abi.sub_buffer_size, abi.count);
        if !size.is_power_of_two() || size > SIZE_MAX {
            return bad(104, size, "a power of two up to 1 GiB");
        }
        if !count.is_power_of_two() || count > SLOTS_MAX || size.saturating_mul(count) > abi.length
        {
            return bad(112, count, "a power of two of sub-buffers that fit the mapping");
        }
        Ok(Some(abi))
    }

    /// Mask of the bits of counters to compare.
    pub(super) fn counter_mask(&self) -> u64 {
        let all = if self.word == 8 { u64::MAX } else { u32::MAX.into() };
        all >> self.count.trailing_zeros()
    }

    /// Number of sets of pages: one for each slot, and one more if the reader has its own.
    pub(super) fn set_count(&self) -> u64 {
        if self.has_reader_set() { self.count.saturating_add(1) } else { self.count }
    }

    /// True if the reader has its own set: always from 1.0 on, before that in overwrite mode.
    pub(super) fn has_reader_set(&self) -> bool {
        self.major >= 1 || self.is_overwrite
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first bytes of a stream from a crashed lttng-ust 2.13.9.
    fn sample() -> Vec<u8> {
        let words: [u64; 15] = [
            0xf17b_17bf_77f1_7b17,
            0x17bf_77f1_7b17_bf77,
            0x15180,
            0x0008_0000_0000_1234,
            0x98_0000_0080,
            0x8_0000_0280,
            0x15140,
            0x8_0000_06a0,
            0x30_0000_0028,
            0x0808_0808_0000_0038,
            0x0000_0080_0808_0808,
            0x0000_0010_0000_0008,
            0x10000,
            0x4000,
            4,
        ];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.extend([0; 4]);
        bytes
    }

    #[test]
    fn what_a_stream_says_of_itself() {
        let abi = Abi::parse("s", &sample()).expect("whole").expect("one");
        assert_eq!((abi.length, abi.word, abi.major, abi.minor), (0x15180, 8, 0, 0));
        assert_eq!(
            (abi.produced, abi.consumed),
            (NumberAt { at: 0x80, len: 8 }, NumberAt { at: 0x98, len: 8 })
        );
        assert_eq!(
            (abi.hot, abi.contiguous),
            (Table { at: 0x280, stride: 0x80 }, NumberAt { at: 8, len: 8 })
        );
        assert_eq!(
            (abi.slots, abi.sets),
            (Table { at: 0x15140, stride: 8 }, Table { at: 0x6a0, stride: 0x10 })
        );
        assert_eq!((abi.sub_buffer_size, abi.count, abi.is_overwrite), (0x4000, 4, true));
        assert_eq!((abi.counter_mask(), abi.set_count()), (u64::MAX >> 2, 5));
    }

    #[test]
    fn what_cannot_be_is_told() {
        let mutant = |offset: usize, value: u8| {
            let mut bytes = sample();
            bytes[offset] = value;
            Abi::parse("s", &bytes)
        };
        assert_eq!(mutant(0, 0), Ok(None));
        assert_eq!(mutant(24, 0), Ok(None));
        let say = |offset, value| mutant(offset, value).expect_err("refused").to_string();
        assert_eq!(say(26, 2), "s: offset 0x1a: found 0x2, expected crash ABI 0.0 or 1.0");
        assert_eq!(say(30, 16), "s: offset 0x1e: found 0x10, expected words of 4 or 8 bytes");
        assert_eq!(say(76, 3), "s: offset 0x4c: found 0x3, expected 1, 2, 4 or 8 bytes");
        assert_eq!(
            say(112, 0),
            "s: offset 0x70: found 0x0, expected a power of two of sub-buffers that fit the mapping"
        );
        assert!(Abi::parse("s", &sample()[..100]).is_err());
    }
}
