//! Writes a recovered session of LTTng as a CTF folder, with the packets as they were in memory.

use crate::{FileNames, Lttng};
use anyhow::Context;
use lastwords_ctf::write::lttng::{self as folder, Entry, StreamWriter};
use lastwords_ctf::{Version, emit};
use lastwords_lttng::{Metadata, Packet};
use lastwords_render::Totals;
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// A CTF folder that was written from a session of LTTng.
#[derive(Debug)]
pub struct LttngFolder {
    /// The path of the folder.
    pub path: PathBuf,
    /// The streams, packets and bytes that were written. Events are not counted.
    pub totals: Totals,
    /// Why the metadata could not be written in the version that was asked for. They are then
    /// written in the version of the tracer.
    pub version_error: Option<anyhow::Error>,
}

impl Lttng {
    /// Writes the session as the CTF folder `below` in the folder `into`.
    ///
    /// Without a `version`, the metadata stay in the version of the tracer. `watch` receives the
    /// size in bytes of each packet that was written.
    ///
    /// # Errors
    /// The folder or a file in it cannot be written, or the image no longer has a packet.
    pub fn write_folder(
        &self,
        into: &Path,
        below: &str,
        version: Option<Version>,
        watch: &dyn Fn(u64),
    ) -> anyhow::Result<LttngFolder> {
        let (session, own) = (&self.session, &self.session.metadata);
        let (metadata, version_error) = match version.map(|version| translated(own, version)) {
            Some(Ok(Some(text))) => (Cow::Owned(text.into_bytes()), None),
            Some(Err(error)) => (Cow::Borrowed(&own.text[..]), Some(error)),
            _ => (Cow::Borrowed(&own.text[..]), None),
        };
        let path = folder::folder(into, below)?;
        let mut totals = Totals::default();
        let mut files = FileNames::default();
        let mut bytes = Vec::new();
        for (number, stream) in session.streams.iter().enumerate() {
            let mut file = StreamWriter::new(&path, &files.unique(&session.stream_name(number)))?;
            for (index, packet) in stream.packets.iter().enumerate() {
                // The packet was there when the session was found. It can only be gone if the file
                // has changed since.
                let read = session.packet(number, index, &mut bytes).then_some(());
                read.with_context(|| {
                    format!("{}: packet {} is gone", path.display(), packet.header.sequence)
                })?;
                file.packet(&bytes, &entry(packet))?;
                watch(bytes.len() as u64);
                totals.packets = totals.packets.saturating_add(1);
            }
            totals.bytes = totals.bytes.saturating_add(file.finish()?);
            totals.streams = totals.streams.saturating_add(1);
        }
        // Readers fail on empty metadata. They do not take a folder without a metadata file for a
        // trace.
        if !metadata.is_empty() {
            let written = folder::metadata(&path, &metadata, &session.uuid, session.shape.order)?;
            totals.bytes = totals.bytes.saturating_add(written);
        }
        Ok(LttngFolder { path, totals, version_error })
    }
}

/// Translates metadata into another version of CTF. Returns none if they have that version already,
/// or if there are none.
///
/// # Errors
/// The metadata cannot be read, or the version cannot express them.
fn translated(metadata: &Metadata, version: Version) -> anyhow::Result<Option<String>> {
    let own = if metadata.is_ctf2() { Version::V2 } else { Version::V1_8 };
    if metadata.text.is_empty() || own == version {
        return Ok(None);
    }
    Ok(Some(emit(&metadata.class()?, version)?))
}

fn entry(packet: &Packet) -> Entry {
    let header = &packet.header;
    Entry {
        packet_bits: header.packet_bits,
        content_bits: header.content_bits,
        begin: header.begin,
        end: header.end,
        discarded: header.discarded,
        stream_id: header.stream_id.into(),
        instance: header.instance,
        sequence: header.sequence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Metadata as the kernel's tracer writes them: without a first line that names the format.
    const TSDL: &str = "typealias integer { size = 32; align = 8; signed = false; } := uint32_t;\n\
        trace { major = 1; minor = 8; byte_order = le; packet.header := struct { uint32_t magic; uint32_t stream_id; }; };\n\
        stream { id = 0; event.header := struct { uint32_t id; }; };\n\
        event { name = \"sched_switch\"; id = 7; stream_id = 0; fields := struct { uint32_t tid; }; };\n";

    fn metadata(text: &str) -> Metadata {
        Metadata { text: text.as_bytes().to_vec(), ..Metadata::default() }
    }

    #[test]
    fn metadata_in_the_other_version() {
        let to = |text: &str, version| translated(&metadata(text), version).expect("valid");
        assert_eq!(to(TSDL, Version::V1_8), None);
        assert_eq!(to("", Version::V2), None);
        let second = to(TSDL, Version::V2).expect("another");
        assert!(second.starts_with('\u{1e}') && second.contains("sched_switch"), "{second}");
        assert_eq!(to(&second, Version::V2), None);
        let first = to(&second, Version::V1_8).expect("another");
        assert!(first.contains("sched_switch"), "{first}");
        let event = |text: &str| metadata(text).class().expect("valid").streams[0].events[0].id;
        assert_eq!(event(&first), event(TSDL));
        assert!(translated(&metadata("event { "), Version::V2).is_err());
    }
}
