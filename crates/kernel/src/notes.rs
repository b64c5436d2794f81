//! The build id in the kernel's ELF notes, which `/sys/kernel/notes` has too.

use lastwords_bytes::ByteOrder;
use object::Endianness;
use object::elf::{FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::{FileHeader, NoteIterator};

/// Most bytes of the notes that are read; kernels have 500.
pub(crate) const NOTES_MAX: u64 = 64 << 10;

/// Returns the build id in ELF notes, in hexadecimal. Returns none if they have none.
#[must_use]
pub fn build_id(notes: &[u8], order: ByteOrder) -> Option<String> {
    let endian = if order == ByteOrder::Little { Endianness::Little } else { Endianness::Big };
    of_notes(NoteIterator::<FileHeader64<Endianness>>::new(endian, 4, notes).ok()?, endian)
}

/// The same for notes of which the alignment is known.
pub(crate) fn of_notes<E: FileHeader>(
    mut notes: NoteIterator<'_, E>,
    endian: E::Endian,
) -> Option<String> {
    while let Ok(Some(note)) = notes.next() {
        if note.name() == b"GNU" && note.n_type(endian) == NT_GNU_BUILD_ID {
            return Some(note.desc().iter().map(|byte| format!("{byte:02x}")).collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_id_is_found_after_another_note() {
        let mut notes = Vec::new();
        for (name, kind, desc) in
            [(b"Linux\0\0\0".as_slice(), 6u32, 1u8), (b"GNU\0".as_slice(), 3, 0xab)]
        {
            let len = name.iter().position(|byte| *byte == 0).unwrap() as u32 + 1;
            [len, 4, kind].iter().for_each(|word| notes.extend(word.to_le_bytes()));
            notes.extend_from_slice(name);
            notes.extend([desc; 4]);
        }
        assert_eq!(build_id(&notes, ByteOrder::Little).as_deref(), Some("abababab"));
        assert_eq!(build_id(&notes[..20], ByteOrder::Little), None);
        assert_eq!(build_id(b"x", ByteOrder::Big), None);
    }
}
