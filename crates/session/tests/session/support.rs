//! Recovers the images of testkit, and returns the events of sessions.

use lastwords_ctf::session::{DecodeError, Decoder};
use lastwords_session::{Options, Recovered, Session};
use lastwords_testkit::image::Image;
use lastwords_trace::evidence::Verdict;
use lastwords_trace::source::Source;
use std::path::Path;

/// Clock, and bytes of contexts and payload.
pub(crate) type Event = (u64, Vec<u8>);

/// Recovers what is in a folder or file.
pub(crate) fn open(path: &Path) -> Recovered {
    lastwords_session::open(path, &Options::default()).expect("readable")
}

/// Recovers an image that is written as a folder.
pub(crate) fn recover(image: &Image) -> Recovered {
    let folder = tempfile::tempdir().expect("a folder");
    image.write_folder(folder.path()).expect("files");
    open(folder.path())
}

/// Recovers an image that is written as one file.
pub(crate) fn recover_arena(image: &Image) -> Recovered {
    let file = tempfile::NamedTempFile::new().expect("a file");
    image.write_arena(file.path()).expect("written");
    open(file.path())
}

/// Returns the bytes of the region of this name.
pub(crate) fn region<'i>(image: &'i mut Image, name: &str) -> &'i mut Vec<u8> {
    let region = image.regions.iter_mut().find(|region| region.name == name);
    &mut region.unwrap_or_else(|| panic!("no {name}")).bytes
}

/// Recovers the first session of an image that is written as a folder.
pub(crate) fn first(image: &Image) -> Session {
    recover(image).sessions.into_iter().next().expect("a session")
}

/// Returns the events of a stream, each with the verdict on its sub-buffer. An error ends its
/// sub-buffer.
pub(crate) fn events(
    session: &Session,
    stream: usize,
) -> Vec<(Verdict, Result<Event, DecodeError>)> {
    let decoder = Decoder::new(session.schema());
    let channel = session.streams()[stream].channel;
    let (mut all, mut bytes) = (Vec::new(), Vec::new());
    let mut packets = session.packets(stream);
    while let Some(info) = packets.next_packet(&mut bytes) {
        for event in decoder.events(channel, &bytes, info.begin, info.events_at) {
            let event = event.map(|e| (e.clock, bytes[e.context_at..e.end].to_vec()));
            all.push((info.verdict, event));
        }
    }
    all
}
