//! Reads parts of sparse files. The length of a part is what its file claims; memory follows the
//! bytes that the file has.

use lastwords_image::{Hole, Image};

/// The buffer grows by this many bytes at a time, after the bytes before were read successfully.
/// Shorter holes are read as zeros.
const STEP: usize = 1 << 20;
/// Most bytes of longer holes between the data of one part.
const HOLES: u64 = 8 << 20;

/// Why reading has stopped before the end of a part.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The image does not have this byte.
    Missing(Hole),
    /// The holes between the data have more bytes than one part may have.
    Holes,
}

/// Replaces `buf` with the `len` bytes at `address`. A long hole at the end is left out: all bytes
/// after those in `buf` are zeros then. After an error, `buf` has the bytes before the place of the
/// error.
pub(crate) fn read(
    image: &dyn Image,
    address: u64,
    len: usize,
    buf: &mut Vec<u8>,
) -> Result<(), Stop> {
    buf.clear();
    let end = address.saturating_add(len as u64);
    let mut holes = 0u64;
    while buf.len() < len {
        let got = buf.len();
        let at = address.saturating_add(got as u64);
        let next = got.saturating_add(STEP.min(len.saturating_sub(got)));
        let is_long = len.saturating_sub(got) >= STEP;
        let hole = if is_long { image.next_data(at, end).saturating_sub(at) } else { 0 };
        if hole < STEP as u64 {
            buf.resize(next, 0);
            let Err(missing) = image.read(at, buf.get_mut(got..).unwrap_or_default()) else {
                continue;
            };
            buf.truncate(
                got.saturating_add(
                    usize::try_from(missing.address.saturating_sub(at)).unwrap_or(0),
                ),
            );
            return Err(Stop::Missing(missing));
        }
        if at.saturating_add(hole) >= end {
            return Ok(());
        }
        holes = holes.saturating_add(hole);
        if holes > HOLES {
            return Err(Stop::Holes);
        }
        buf.resize(got.saturating_add(usize::try_from(hole).unwrap_or(0)), 0);
    }
    Ok(())
}
