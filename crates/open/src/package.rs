//! Finds the kernel image in a Debian package (`linux-image-*.deb`).
//!
//! A package is an `ar` archive (deb(5)): a magic line, then members with a header of 60 bytes
//! each. The member `data.tar.*` has the files.

use anyhow::{Context, bail, ensure};
use lastwords_bytes::Budget;
use lastwords_image::decompress;
use std::fs::File;
use std::io::{self, BufReader, Read, Take};
use std::path::Path;

/// The first bytes of a package.
pub(super) const MAGIC: &[u8] = b"!<arch>\n";
/// The length of a member's header. The name is in its first 16 bytes.
const HEADER: usize = 60;
/// The place of the decimal length of a member in its header.
const LENGTH: std::ops::Range<usize> = 48..58;
/// The last bytes of a member's header.
const END: &[u8] = b"`\n";
/// The beginnings of the names of kernel images.
const IMAGES: [&str; 2] = ["vmlinuz", "vmlinux"];

/// Returns the kernel image in a package.
///
/// # Errors
/// The file is no package, the package has no kernel image, or the budget is spent.
pub(super) fn image(path: &Path, budget: &Budget) -> anyhow::Result<Vec<u8>> {
    let name = path.display().to_string();
    let file = File::open(path).with_context(|| name.clone())?;
    let data = data(BufReader::new(file)).with_context(|| name.clone())?;
    let mut archive =
        tar::Archive::new(decompress::reader(&name, data, budget).with_context(|| name.clone())?);
    for entry in archive.entries().with_context(|| name.clone())? {
        let mut entry = entry.with_context(|| name.clone())?;
        budget.steps(&name, 1)?;
        let path = entry.path().with_context(|| name.clone())?.into_owned();
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        let is_file = entry.header().entry_type().is_file();
        if is_file && IMAGES.iter().any(|image| file.starts_with(image)) {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).with_context(|| name.clone())?;
            return Ok(bytes);
        }
    }
    bail!("{name}: the package has no kernel image (vmlinuz or vmlinux)")
}

/// Returns the bytes of the member `data.tar.*`.
fn data<R: Read>(mut package: R) -> anyhow::Result<Take<R>> {
    let mut magic = [0; MAGIC.len()];
    package.read_exact(&mut magic)?;
    ensure!(magic == *MAGIC, "the file is no Debian package");
    loop {
        let mut header = [0; HEADER];
        package.read_exact(&mut header).context("the package has no member data.tar")?;
        let digits = header.get(LENGTH).map(String::from_utf8_lossy).unwrap_or_default();
        let len: u64 = digits
            .trim()
            .parse()
            .with_context(|| format!("`{digits}` is not the length of a member"))?;
        ensure!(header.ends_with(END), "the header of a member is damaged");
        if header.starts_with(b"data.tar") {
            return Ok(package.take(len));
        }
        // Members begin at even offsets.
        let skipped = len.saturating_add(len % 2);
        let done = io::copy(&mut package.by_ref().take(skipped), &mut io::sink())?;
        ensure!(done == skipped, "the package ends in a member before data.tar");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for (name, content) in members {
            bytes.extend(
                format!(
                    "{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
                    0,
                    0,
                    0,
                    100_644,
                    content.len()
                )
                .bytes(),
            );
            bytes.extend_from_slice(content);
            bytes.extend(std::iter::repeat_n(b'\n', content.len() % 2));
        }
        bytes
    }

    #[test]
    fn the_image_is_found_among_the_files() {
        let mut archive = tar::Builder::new(Vec::new());
        for (name, content) in
            [("./boot/config-6.12", "a"), ("./boot/vmlinuz-6.12", "kernel"), ("./z", "b")]
        {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, name, content.as_bytes()).unwrap();
        }
        let data = zstd::encode_all(archive.into_inner().unwrap().as_slice(), 3).unwrap();
        let whole = package(&[
            ("debian-binary", b"2.0\n"),
            ("control.tar.xz", b"odd"),
            ("data.tar.zst", &data),
        ]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.deb");
        let of = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            image(&path, &Budget::default())
        };
        assert_eq!(of(&whole).unwrap(), b"kernel");
        for len in 0..whole.len() - 1 {
            assert!(of(&whole[..len]).is_err() || len > whole.len() - data.len(), "{len}");
        }
        let none = package(&[("debian-binary", b"2.0\n")]);
        assert!(format!("{:#}", of(&none).unwrap_err()).contains("no member data.tar"));
    }
}
