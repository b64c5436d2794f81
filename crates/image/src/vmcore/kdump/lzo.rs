//! Decompresses LZO1X; written from the description of the format in the kernel's
//! Documentation/staging/lzo.rst.

/// Decompresses `source` into `target`; none if the result does not fill `target` exactly or
/// `source` is no LZO1X stream.
pub(super) fn decompress(source: &[u8], target: &mut [u8]) -> Option<()> {
    let mut stream = Stream { source, target, from: 0, to: 0 };
    stream.run()?;
    (stream.to == target.len()).then_some(())
}

struct Stream<'a> {
    source: &'a [u8],
    target: &'a mut [u8],
    from: usize,
    to: usize,
}

/// The kind of the previous instruction, which determines the meaning of codes below 16.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// A match without literals after it, or no instruction.
    Match,
    /// A match with one to three literals after it.
    Few,
    /// A run of four or more literals.
    Run,
}

impl Stream<'_> {
    fn run(&mut self) -> Option<()> {
        let mut before = Before::Match;
        if let Some(count) = self.source.first()?.checked_sub(17).filter(|n| *n > 0) {
            self.from = 1;
            self.literals(usize::from(count))?;
            before = if count < 4 { Before::Few } else { Before::Run };
        }
        while let Some(next) = self.instruction(before)? {
            before = next;
        }
        Some(())
    }

    /// Executes an instruction; the inner none is the end mark.
    fn instruction(&mut self, before: Before) -> Option<Option<Before>> {
        let code = usize::from(self.byte()?);
        match code {
            0..16 if before == Before::Match => {
                let len = self.length(code, 15)?.checked_add(3)?;
                self.literals(len)?;
                Some(Some(Before::Run))
            }
            0..16 => {
                let (len, base) = if before == Before::Run { (3, 2049) } else { (2, 1) };
                let distance = self.high(code >> 2, 2)?.checked_add(base)?;
                self.copy(distance, len, code & 3)
            }
            16..32 => {
                let len = self.length(code & 7, 7)?.checked_add(2)?;
                let low = self.word()?;
                let distance = (code & 8) << 11 | low >> 2;
                if distance == 0 {
                    return Some(None);
                }
                self.copy(distance.checked_add(0x4000)?, len, low & 3)
            }
            32..64 => {
                let len = self.length(code & 31, 31)?.checked_add(2)?;
                let low = self.word()?;
                self.copy((low >> 2).checked_add(1)?, len, low & 3)
            }
            _ => {
                let len = if code < 128 {
                    (code >> 5 & 1).checked_add(3)?
                } else {
                    (code >> 5 & 3).checked_add(5)?
                };
                let distance = self.high(code >> 2 & 7, 3)?.checked_add(1)?;
                self.copy(distance, len, code & 3)
            }
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.source.get(self.from)?;
        self.from = self.from.checked_add(1)?;
        Some(byte)
    }

    fn word(&mut self) -> Option<usize> {
        Some(usize::from(u16::from_le_bytes([self.byte()?, self.byte()?])))
    }

    /// Reads a byte as the bits above `low`, which has `bits` bits.
    fn high(&mut self, low: usize, bits: u32) -> Option<usize> {
        Some(usize::from(self.byte()?) << bits | low)
    }

    /// Decodes a length: the code itself, or if that is 0, `most` plus the bytes that follow.
    fn length(&mut self, short: usize, most: usize) -> Option<usize> {
        if short != 0 {
            return Some(short);
        }
        let mut len = most;
        loop {
            match self.byte()? {
                0 => len = len.checked_add(255)?,
                last => return len.checked_add(usize::from(last)),
            }
        }
    }

    fn literals(&mut self, len: usize) -> Option<()> {
        let (from, to) = (self.from.checked_add(len)?, self.to.checked_add(len)?);
        self.target.get_mut(self.to..to)?.copy_from_slice(self.source.get(self.from..from)?);
        (self.from, self.to) = (from, to);
        Some(())
    }

    /// Copies bytes from `distance` bytes back in the output, then literals.
    fn copy(&mut self, distance: usize, len: usize, literals: usize) -> Option<Option<Before>> {
        let start = self.to.checked_sub(distance)?;
        let end = self.to.checked_add(len)?;
        if end > self.target.len() {
            return None;
        }
        if distance >= len {
            self.target.copy_within(start..start.checked_add(len)?, self.to);
        } else {
            // Source and target overlap: copy byte by byte, so that a pattern repeats.
            for (from, to) in (start..).zip(self.to..end) {
                let byte = *self.target.get(from)?;
                *self.target.get_mut(to)? = byte;
            }
        }
        self.to = end;
        self.literals(literals)?;
        Some(Some(if literals == 0 { Before::Match } else { Before::Few }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Writes instructions and the output they produce, from the tables of the description.
    #[derive(Default)]
    struct Writer {
        stream: Vec<u8>,
        plain: Vec<u8>,
        /// Number of literals of the last instruction: 0 to 3, or 4 for a run.
        state: usize,
    }

    impl Writer {
        fn long(&mut self, code: u8, short: usize, len: usize) {
            if len <= short {
                self.stream.push(code | len as u8);
                return;
            }
            self.stream.push(code);
            let mut left = len - short;
            while left > 255 {
                self.stream.push(0);
                left -= 255;
            }
            self.stream.push(left as u8);
        }

        fn run(&mut self, bytes: &[u8]) {
            if self.state == 0 && bytes.len() > 3 {
                self.long(0, 15, bytes.len() - 3);
                self.stream.extend(bytes);
                self.plain.extend(bytes);
                self.state = 4;
            }
        }

        /// Writes a match in a form that fits, followed by the literals `trail`.
        fn copy(&mut self, distance: usize, len: usize, form: u8, trail: &[u8]) {
            let distance = 1 + distance % self.plain.len().max(1);
            let s = trail.len() as u8;
            let (len, low) = match form % 5 {
                _ if self.plain.is_empty() => return,
                0 if (1..4).contains(&self.state) && distance <= 1024 => {
                    self.stream
                        .extend([((distance - 1) as u8 & 3) << 2 | s, ((distance - 1) >> 2) as u8]);
                    (2, None)
                }
                0 if self.state == 4 && (2049..3073).contains(&distance) => {
                    self.stream.extend([
                        ((distance - 2049) as u8 & 3) << 2 | s,
                        ((distance - 2049) >> 2) as u8,
                    ]);
                    (3, None)
                }
                1 if distance <= 2048 => {
                    let len = 3 + len % 2;
                    let code = 64 | ((len - 3) as u8) << 5 | ((distance - 1) as u8 & 7) << 2 | s;
                    self.stream.extend([code, ((distance - 1) >> 3) as u8]);
                    (len, None)
                }
                2 if distance <= 2048 => {
                    let len = 5 + len % 4;
                    let code = 128 | ((len - 5) as u8) << 5 | ((distance - 1) as u8 & 7) << 2 | s;
                    self.stream.extend([code, ((distance - 1) >> 3) as u8]);
                    (len, None)
                }
                _ if distance <= 16384 => {
                    let len = 3 + len;
                    self.long(32, 31, len - 2);
                    (len, Some(distance - 1))
                }
                _ if distance > 16384 && distance < 49152 => {
                    let (len, far) = (3 + len, distance - 16384);
                    self.long(16 | ((far >> 14) as u8) << 3, 7, len - 2);
                    (len, Some(far & 0x3fff))
                }
                _ => return,
            };
            if let Some(low) = low {
                self.stream.extend(((low as u16) << 2 | u16::from(s)).to_le_bytes());
            }
            for _ in 0..len {
                self.plain.push(self.plain[self.plain.len() - distance]);
            }
            self.stream.extend(trail);
            self.plain.extend(trail);
            self.state = trail.len();
        }
    }

    proptest! {
        #[test]
        fn every_instruction(
            start in proptest::collection::vec(any::<u8>(), 1..238),
            ops in proptest::collection::vec((any::<u16>(), 0usize..700, 0u8..6, proptest::collection::vec(any::<u8>(), 0..4), proptest::collection::vec(any::<u8>(), 0..40)), 0..120),
            at in any::<prop::sample::Index>(),
            flip in 1u8..,
        ) {
            let mut writer = Writer::default();
            writer.stream.push(17 + start.len() as u8);
            writer.stream.extend(&start);
            writer.plain.extend(&start);
            writer.state = start.len().min(4);
            for (distance, len, form, trail, run) in ops {
                writer.copy(usize::from(distance), len, form, &trail);
                writer.run(&run);
            }
            let Writer { mut stream, plain, .. } = writer;
            stream.extend([17, 0, 0]);
            let mut page = vec![0u8; plain.len()];
            prop_assert_eq!(decompress(&stream, &mut page), Some(()));
            prop_assert_eq!(&page, &plain);
            prop_assert_eq!(decompress(&stream, &mut vec![0; plain.len() + 1]), None);
            prop_assert_eq!(decompress(&stream, &mut page[1..]), None);
            prop_assert_eq!(decompress(&stream[..at.index(stream.len())], &mut page), None);
            let at = at.index(stream.len());
            stream[at] ^= flip;
            let _ = decompress(&stream, &mut page);
        }
    }
}
