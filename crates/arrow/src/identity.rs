//! The identity of a crash: a UUID that is the same whenever the crash is read.

use lastwords_ctf::uuid_text;
use lastwords_open::Trace;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Bytes of the samples of a file, and their number.
const SAMPLE: u64 = 4096;
const SAMPLES: u64 = 64;
/// Bytes at the beginning of a file that are all taken: the headers of dumps are there.
const BEGINNING: u64 = 64 << 10;
/// Most files of a folder that are taken.
const FILES: usize = 4096;

/// Returns the UUID of a session of lastwords.
pub(crate) fn of_session(trace: &Trace) -> Option<String> {
    let uuid = trace.session()?.session.info().uuid;
    (uuid != [0; 16]).then(|| uuid_text(&uuid))
}

/// Returns the identity of what has no session: a hash of facts (the boot, the time of the panic)
/// and of the bytes at a path. A large file is sampled: its length, its beginning, and blocks at
/// equal distances.
pub(crate) fn hashed(facts: &[&[u8]], path: &Path) -> String {
    let mut hash = Sha256::new();
    for fact in facts {
        hash.update((fact.len() as u64).to_le_bytes());
        hash.update(fact);
    }
    let mut left = FILES;
    add_path(&mut hash, path, &mut left);
    let mut uuid = [0; 16];
    hash.finalize().iter().zip(&mut uuid).for_each(|(from, to)| *to = *from);
    // RFC 9562: version 8 is for UUIDs of one's own making.
    let [.., version, _, variant, _, _, _, _, _, _, _] = &mut uuid;
    *version = (*version & 0x0f) | 0x80;
    *variant = (*variant & 0x3f) | 0x80;
    uuid_text(&uuid)
}

/// Adds the bytes of a file, or of the files in a folder, by name.
fn add_path(hash: &mut Sha256, path: &Path, left: &mut usize) {
    if *left == 0 {
        return;
    }
    *left = left.saturating_sub(1);
    let Ok(entries) = path.read_dir() else { return add_file(hash, path) };
    let mut names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.sort();
    for name in names {
        hash.update(name.as_encoded_bytes());
        add_path(hash, &path.join(name), left);
    }
}

fn add_file(hash: &mut Sha256, path: &Path) {
    // A file that cannot be read adds nothing to the identity.
    let Ok(file) = File::open(path) else { return };
    let Ok(len) = file.metadata().map(|meta| meta.len()) else { return };
    hash.update(len.to_le_bytes());
    let mut add = |from: u64, to: u64| {
        let mut bytes = vec![0; usize::try_from(to.saturating_sub(from)).unwrap_or(0)];
        if file.read_exact_at(&mut bytes, from).is_ok() {
            hash.update(&bytes);
        }
    };
    add(0, len.min(BEGINNING));
    let step = len.saturating_sub(BEGINNING).checked_div(SAMPLES).unwrap_or(0).max(SAMPLE);
    let mut at = BEGINNING;
    while at < len {
        add(at, len.min(at.saturating_add(SAMPLE)));
        at = at.saturating_add(step);
    }
    add(len.saturating_sub(SAMPLE).max(BEGINNING.min(len)), len);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_bytes_have_one_identity_wherever_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let (one, other) = (folder.path().join("one"), folder.path().join("other"));
        let mut bytes = vec![7; 3 << 20];
        std::fs::write(&one, &bytes).unwrap();
        std::fs::write(&other, &bytes).unwrap();
        let id = hashed(&[b"boot"], &one);
        assert_eq!(id, hashed(&[b"boot"], &other));
        assert_eq!((id.len(), &id[14..15]), (36, "8"));
        assert_ne!(id, hashed(&[b"another boot"], &other));
        assert_ne!(hashed(&[b"a", b"b"], &one), hashed(&[b"ab", b""], &one));
        for at in [0, 1000, bytes.len() - 1] {
            bytes[at] = 8;
            std::fs::write(&other, &bytes).unwrap();
            assert_ne!(id, hashed(&[b"boot"], &other), "byte {at}");
            bytes[at] = 7;
        }
        bytes.push(7);
        std::fs::write(&other, &bytes).unwrap();
        assert_ne!(id, hashed(&[b"boot"], &other), "the length");
    }
}
