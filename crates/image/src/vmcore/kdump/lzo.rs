//! LZO1X, decompression only: written after the description of the format in the kernel's Documentation/staging/lzo.rst.

/// Decompresses `source` into `target`; none where it does not fill `target` exactly or is no LZO1X stream.
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

/// What came before an instruction decides what codes below 16 mean.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    /// A match without literals behind it, or nothing.
    Match,
    /// A match with one to three literals behind it.
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

    /// Carries out an instruction; the inner none is the end mark.
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
                let len = if code < 128 { (code >> 5 & 1).checked_add(3)? } else { (code >> 5 & 3).checked_add(5)? };
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

    /// A byte above `low`, which has `bits` bits.
    fn high(&mut self, low: usize, bits: u32) -> Option<usize> {
        Some(usize::from(self.byte()?) << bits | low)
    }

    /// A length: in the code itself, or where that is 0 `most` and what follows.
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

    /// Copies what was decompressed `distance` bytes ago, then literals.
    fn copy(&mut self, distance: usize, len: usize, literals: usize) -> Option<Option<Before>> {
        let start = self.to.checked_sub(distance)?;
        let end = self.to.checked_add(len)?;
        if end > self.target.len() {
            return None;
        }
        if distance >= len {
            self.target.copy_within(start..start.checked_add(len)?, self.to);
        } else {
            // It overlaps what it writes: byte by byte, so that a pattern repeats.
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
