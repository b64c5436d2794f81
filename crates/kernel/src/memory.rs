//! Access to the kernel's virtual memory in an image.

use lastwords_bytes::ByteOrder;
use lastwords_image::Hole;

/// Longest text that is read from an image, bytes.
const TEXT_MAX: usize = 64 << 10;

/// Memory at the kernel's virtual addresses.
pub trait Memory: Send + Sync {
    /// Fills `buf` with the bytes at `address`.
    ///
    /// # Errors
    /// A byte is not available: it has no translation, or the image has a hole.
    fn read(&self, address: u64, buf: &mut [u8]) -> Result<(), Hole>;

    /// Byte order of the machine.
    fn byte_order(&self) -> ByteOrder;

    /// Size of a pointer: 8 or 4 bytes.
    fn word_size(&self) -> u8;

    /// Size of a page, bytes.
    fn page_size(&self) -> u64;

    /// Reads an unsigned number of 1, 2, 4 or 8 bytes.
    ///
    /// # Errors
    /// Same as [`Memory::read`].
    fn number(&self, address: u64, size: usize) -> Result<u64, Hole> {
        let mut raw = [0u8; 8];
        let size = size.min(8);
        if let Some(buf) = raw.get_mut(..size) {
            self.read(address, buf)?;
        }
        if self.byte_order() == ByteOrder::Big {
            raw.rotate_right(8usize.saturating_sub(size));
        }
        Ok(u64::from_le_bytes(self.byte_order().little(raw)))
    }

    /// Reads a pointer.
    ///
    /// # Errors
    /// Same as [`Memory::read`].
    fn pointer(&self, address: u64) -> Result<u64, Hole> {
        self.number(address, usize::from(self.word_size()))
    }

    /// Reads the text at `address` up to its NUL, or up to `most` bytes.
    ///
    /// # Errors
    /// Same as [`Memory::read`], if the hole is before the NUL.
    fn text(&self, address: u64, most: usize) -> Result<String, Hole> {
        let most = most.min(TEXT_MAX);
        let mut text = Vec::new();
        let mut at = address;
        while text.len() < most {
            // Read up to a multiple of 64 bytes: the text may end just before a hole.
            let len =
                (64usize).saturating_sub((at & 63) as usize).min(most.saturating_sub(text.len()));
            let mut part = [0u8; 64];
            let part = part.get_mut(..len).unwrap_or_default();
            self.read(at, part)?;
            if let Some(end) = part.iter().position(|b| *b == 0) {
                text.extend_from_slice(part.get(..end).unwrap_or_default());
                break;
            }
            text.extend_from_slice(part);
            at = at.wrapping_add(len as u64);
        }
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}
