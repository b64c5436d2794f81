//! Files of a tar archive, by code that shares nothing with the program (POSIX, `ustar`).

use std::ops::Range;

const BLOCK: usize = 512;

/// Where a file is in an archive.
pub(crate) struct File {
    pub(crate) name: String,
    /// The file with its head.
    pub(crate) whole: Range<usize>,
    pub(crate) contents: Range<usize>,
}

/// Returns the files of an archive; none for another format.
pub(crate) fn files(bytes: &[u8]) -> Option<Vec<File>> {
    let (mut at, mut found) = (0, Vec::new());
    while let Some(head) =
        bytes.get(at..at + BLOCK).filter(|head| head[257..].starts_with(b"ustar"))
    {
        let digits = |range: Range<usize>| {
            let text = String::from_utf8_lossy(&head[range]);
            usize::from_str_radix(text.trim_matches(['\0', ' ']), 8).ok()
        };
        let name: Vec<u8> = head[..100].iter().copied().take_while(|byte| *byte != 0).collect();
        let contents = at + BLOCK..at + BLOCK + digits(124..136)?;
        let end = contents.end.next_multiple_of(BLOCK);
        let name = String::from_utf8_lossy(&name).into_owned();
        found.push(File { name, whole: at..end, contents });
        at = end;
    }
    (!found.is_empty()).then_some(found)
}
