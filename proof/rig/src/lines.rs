//! Takes lines of text apart, as Babeltrace and `report` print them.

use anyhow::{Context as _, Result, bail, ensure};

/// The rest of a line.
#[derive(Debug)]
pub struct Rest<'a>(pub &'a [u8]);

impl<'a> Rest<'a> {
    /// Takes this text, if it is next.
    pub fn take(&mut self, prefix: &str) -> bool {
        let found = self.0.strip_prefix(prefix.as_bytes());
        self.0 = found.unwrap_or(self.0);
        found.is_some()
    }

    /// Takes this text.
    ///
    /// # Errors
    /// Another text is next.
    pub fn expect(&mut self, prefix: &str) -> Result<()> {
        let begin = String::from_utf8_lossy(&self.0[..self.0.len().min(60)]).into_owned();
        ensure!(self.take(prefix), "expected {prefix:?} before {begin:?}");
        Ok(())
    }

    /// All up to one of these bytes, or to the end.
    pub fn until(&mut self, ends: &[u8]) -> &'a [u8] {
        let end = self.0.iter().position(|byte| ends.contains(byte)).unwrap_or(self.0.len());
        let (before, rest) = self.0.split_at(end);
        self.0 = rest;
        before
    }

    /// A text in quotes.
    ///
    /// # Errors
    /// There is none, or it has an unknown escape.
    pub fn quoted(&mut self) -> Result<Vec<u8>> {
        self.expect("\"")?;
        let text = self.escaped(b'"')?;
        self.expect("\"")?;
        Ok(text)
    }

    /// Escaped text up to a byte, which is left.
    ///
    /// # Errors
    /// It has no end or an unknown escape.
    pub fn escaped(&mut self, end: u8) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        loop {
            match *self.0 {
                [byte, ..] if byte == end => return Ok(text),
                [b'\\', b'x', ref rest @ ..] => {
                    let digits = rest
                        .get(..2)
                        .and_then(|digits| std::str::from_utf8(digits).ok())
                        .context("digits")?;
                    text.push(u8::from_str_radix(digits, 16)?);
                    self.0 = &rest[2..];
                }
                [b'\\', escaped, ref rest @ ..] => {
                    let at = br#"abefnrtv\'"?"#.iter().position(|known| *known == escaped);
                    let at = at.with_context(|| format!("the escape \\{}", char::from(escaped)))?;
                    text.push(b"\x07\x08\x1b\x0c\n\r\t\x0b\\'\"?"[at]);
                    self.0 = rest;
                }
                [byte, ref rest @ ..] => {
                    text.push(byte);
                    self.0 = rest;
                }
                [] => bail!("a text without an end"),
            }
        }
    }
}
