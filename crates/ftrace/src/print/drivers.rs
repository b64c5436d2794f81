//! Functions of drivers in print formats whose text follows from their arguments alone. All others
//! are shown as the fields that they are given ([`super::raw`]). The sources are
//! `block/blk-core.c`, `drivers/usb/host/xhci.h`, `drivers/nvme/host/trace.c` and `drivers/scsi/
//! scsi_trace.c` of Linux 5.10 to 7.3.

use super::array::array;
use super::bytes::{Value, slice};
use super::lex::Token;
use super::parse::{Parsed, Parser};
use super::tree::{Expr, Helper, Table};
use super::{Env, Fault};
use lastwords_trace::text::number::unsigned;

/// Functions that return a word for an enumerator: the function, the begin of the enumerator's
/// name, the words, each of which is the rest of a name, and whether they count up from 0. Names so
/// short may be in another enumeration too; then their values do not.
const WORDS: [(&str, &str, &str, bool); 2] = [
    (
        "blk_op_str",
        "REQ_OP_",
        "READ WRITE FLUSH DISCARD SECURE_ERASE ZONE_RESET ZONE_RESET_ALL ZONE_OPEN ZONE_CLOSE ZONE_FINISH ZONE_APPEND \
         WRITE_SAME WRITE_ZEROES SCSI_IN SCSI_OUT DRV_IN DRV_OUT",
        false,
    ),
    ("xhci_ring_type_string", "TYPE_", "CTRL ISOC BULK INTR STREAM COMMAND EVENT", true),
];

impl Parser<'_> {
    /// Parses the arguments of a function of a driver; none if it is not known here.
    pub(super) fn driver_function(&mut self, name: &str) -> Parsed<Option<Expr>> {
        if let Some((_, begin, words, counts_up)) = WORDS.iter().find(|(known, ..)| *known == name)
        {
            let value = self.expression()?;
            return Ok(self
                .words(begin, words, *counts_up)
                .map(|table| Expr::Helper(Box::new(Helper::Symbolic { value, table }))));
        }
        let helper = match name {
            "nvme_trace_disk_name" => {
                self.sequence()?;
                Helper::Around { before: b"disk=", text: self.expression()?, after: b", " }
            }
            "scsi_trace_parse_cdb" => {
                self.sequence()?;
                let [buffer, length] = self.arguments()?;
                Helper::Cdb { buffer, length }
            }
            _ => return Ok(None),
        };
        Ok(Some(Expr::Helper(Box::new(helper))))
    }

    /// Skips the kernel's buffer, `p`, which is the first argument of functions that append to it.
    fn sequence(&mut self) -> Parsed<()> {
        match self.peek() {
            Some(Token::Word("p")) => self.at = self.at.saturating_add(1),
            _ => return Err("no buffer of the kernel as the first argument".into()),
        }
        self.expect(",")
    }

    /// Returns the words for the enumerators that this kernel has; none if their values are not
    /// known.
    fn words(&self, begin: &str, words: &str, counts_up: bool) -> Option<Table> {
        let row = |word: &str| {
            let value = self.symbols.constant(&format!("{begin}{word}"))?;
            Some((value.cast_unsigned(), word.as_bytes().into()))
        };
        let rows: Box<[(u64, Box<[u8]>)]> =
            words.split_ascii_whitespace().filter_map(row).collect();
        let is_known = !rows.is_empty()
            && (!counts_up || (0..).zip(&rows).all(|(at, (value, _))| at == *value));
        // Another value has a word of the kernel's own.
        is_known.then_some(Table { rows, is_complete: false })
    }
}

/// Appends a text between two others, or nothing if it is empty.
pub(super) fn around(
    before: &[u8],
    text: &Expr,
    after: &[u8],
    env: &mut Env<'_, '_>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let Value::Payload(place) = text.value(env)? else { return Err(Fault::Kind) };
    let text = lastwords_trace::nul::until(place.rest(env));
    if !text.is_empty() {
        [before, text, after].into_iter().for_each(|part| out.extend_from_slice(part));
    }
    Ok(())
}

/// Appends what a SCSI command says. The bytes of a command that is not decoded here are shown as
/// they are.
pub(super) fn command(
    buffer: &Expr,
    length: &Expr,
    env: &mut Env<'_, '_>,
    out: &mut Vec<u8>,
) -> Result<(), Fault> {
    let length = length.int(env)?.0;
    let bytes = slice(buffer.value(env)?, env, length)?;
    if decode(bytes, out).is_none() {
        array(out, bytes, 1, env.machine);
        env.unnamed = true;
    }
    Ok(())
}

/// Appends the text of a command; none, and nothing, if it is too short or not known.
fn decode(cdb: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let be = |at: usize, size: usize| {
        let bytes = cdb.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().fold(0u64, |value, byte| value << 8 | u64::from(*byte)))
    };
    let flags = u64::from(*cdb.get(1)?);
    let mut put = |parts: &[(&str, u64)]| {
        for (name, value) in parts {
            out.extend_from_slice(name.as_bytes());
            unsigned(out, *value);
        }
    };
    let (protect, unmap) = ((" protect=", flags >> 5), (" unmap=", flags >> 3 & 1));
    match *cdb.first()? {
        0x08 | 0x0a => {
            let blocks = be(4, 1)?;
            put(&[
                ("lba=", be(1, 3)? & 0x1f_ffff),
                (" txlen=", if blocks == 0 { 256 } else { blocks }),
            ]);
        }
        0x28 | 0x2a | 0x2f => put(&[("lba=", be(2, 4)?), (" txlen=", be(7, 2)?), protect]),
        0x41 => put(&[("lba=", be(2, 4)?), (" txlen=", be(7, 2)?), protect, unmap]),
        0xa8 | 0xaa | 0xaf => put(&[("lba=", be(2, 4)?), (" txlen=", be(6, 4)?), protect]),
        0x88 | 0x8a | 0x8f => put(&[("lba=", be(2, 8)?), (" txlen=", be(10, 4)?), protect]),
        0x93 => put(&[("lba=", be(2, 8)?), (" txlen=", be(10, 4)?), protect, unmap]),
        0x42 => put(&[("regions=", be(7, 2)?.checked_sub(8)? / 16)]),
        0x9e => {
            let action = match flags & 0x1f {
                0x10 => "READ_CAPACITY_16 lba=",
                0x12 => "GET_LBA_STATUS lba=",
                _ => return None,
            };
            put(&[(action, be(2, 8)?), (" alloc_len=", be(10, 4)?)]);
        }
        // Commands of a variable length, for maintenance and for zones have texts of their own.
        0x7f | 0x94 | 0x95 | 0xa3 | 0xa4 => return None,
        _ => out.push(b'-'),
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::decode;

    #[test]
    fn commands_of_disks() {
        let of = |cdb: &[u8]| {
            let mut out = Vec::new();
            decode(cdb, &mut out).map(|()| String::from_utf8(out).unwrap())
        };
        for (cdb, expected) in [
            (&[0x2a, 0, 0, 0, 0, 8, 0, 0, 40, 0][..], Some("lba=8 txlen=40 protect=0")),
            (&[0x08, 0xff, 0xff, 0xfe, 0, 0], Some("lba=2097150 txlen=256")),
            (&[0x41, 0x28, 0, 0, 1, 0, 0, 0, 1, 0], Some("lba=256 txlen=1 protect=1 unmap=1")),
            (&[0xa8, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0], Some("lba=1 txlen=65536 protect=0")),
            (
                &[0x8a, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0],
                Some("lba=72057594037927938 txlen=3 protect=0"),
            ),
            (&[0x42, 0, 0, 0, 0, 0, 0, 0, 40, 0], Some("regions=2")),
            (
                &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0],
                Some("READ_CAPACITY_16 lba=0 alloc_len=32"),
            ),
            (&[0x12, 0, 0, 0, 36, 0], Some("-")),
            (&[0x2a, 0, 0, 0, 0, 8, 0], None),
            (&[0x9e, 0x11, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0], None),
            (&[0x7f; 32], None),
            (&[], None),
        ] {
            assert_eq!(of(cdb).as_deref(), expected, "{cdb:02x?}");
        }
    }
}
