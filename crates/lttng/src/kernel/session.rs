//! Reads one session: its properties, its channels and their CPUs.

use super::{Memory, metadata, ring};
use crate::{Domain, Session, Shape};
use lastwords_kernel::{Error, Object};
use lastwords_trace::evidence::Evidence;

/// Most channels of a session that are accepted.
const CHANNELS_MAX: usize = 1 << 12;
/// `channel_type` of the metadata channel. Its ring has only the last pages of the text in the
/// cache.
const METADATA: u64 = 1;

pub(super) fn read(memory: &Memory<'_>, object: &Object<'_>) -> Result<Session, Error> {
    let kernel = memory.kernel;
    let mut evidence = Evidence::default();
    let uuid = object.bytes("uuid")?.try_into().unwrap_or_default();
    let public = object.pointer("pub")?;
    let shape = Shape { order: kernel.memory.byte_order(), word: kernel.memory.word_size() };
    let mut metadata =
        metadata::read(kernel, object, &mut evidence.notes).or_else(|error| match error {
            Error::Bytes(_) => Err(error),
            error => {
                evidence.notes.push(format!("there is no metadata: {error}"));
                Ok(Default::default())
            }
        })?;
    evidence.notes.extend(metadata.cut());
    let mut session = Session {
        name: object.text("name")?,
        created: object.text("creation_time").unwrap_or_default(),
        is_active: public.u64("active").ok().map(|active| active != 0),
        metadata,
        evidence,
        ..Session::new(Domain::Kernel, uuid, shape, kernel.memory.page_size())
    };
    channels(memory, object, &mut session)?;
    Ok(session)
}

fn channels(memory: &Memory<'_>, object: &Object<'_>, session: &mut Session) -> Result<(), Error> {
    const CHANNEL: &str = "lttng_kernel_channel_buffer_private";
    let head = memory.first_member(super::SESSION, &["chan_head", "chan"])?;
    let link = memory.first_member(CHANNEL, &["parent.node", "node"])?;
    let mut channels = Vec::new();
    for entry in memory.list(object.at(head)?.place(), CHANNEL, link)?.take(CHANNELS_MAX) {
        match entry {
            Ok(channel) => channels.push(channel),
            Err(error @ Error::Bytes(_)) => return Err(error),
            Err(error) => {
                session.is_cut = true;
                session.lose(format!("the list of channels ends early: {error}"));
            }
        }
    }
    let mut found = Vec::new();
    for channel in channels {
        match streams(memory, &channel) {
            Ok((streams, notes)) => {
                found.extend(streams);
                session.is_cut |= !notes.is_empty();
                notes.into_iter().for_each(|note| session.lose(note));
            }
            Err(error @ Error::Bytes(_)) => return Err(error),
            Err(error) => {
                let id = channel.u64("id").map_or_else(|_| "?".to_owned(), |id| id.to_string());
                session.is_cut = true;
                session.lose(format!("channel {id} is not known: {error}"));
            }
        }
    }
    found.sort_by_key(|stream| (stream.channel, stream.cpu));
    if !found.is_empty() {
        let note = "the kernel does not know what the user called the channels: they are named by their ids";
        session.evidence.notes.push(note.to_owned());
    }
    for stream in found {
        session.add(stream, memory.kernel.budget())?;
    }
    Ok(())
}

/// Reads the streams of a channel, and notes. Returns no streams for the metadata channel and for
/// channels of counters.
fn streams(
    memory: &Memory<'_>,
    channel: &Object<'_>,
) -> Result<(Vec<crate::Stream>, Vec<String>), Error> {
    if is_counter(memory, channel)? || channel.u64("channel_type")? == METADATA {
        return Ok(Default::default());
    }
    ring::streams(memory, channel)
}

/// True for a channel of counters; from 2.14 on these are in the list of channels (`enum
/// lttng_kernel_channel_type`).
pub(super) fn is_counter(memory: &Memory<'_>, channel: &Object<'_>) -> Result<bool, Error> {
    if !channel.has("parent.node") {
        return Ok(false);
    }
    let counter = memory.types.enum_value("LTTNG_KERNEL_CHANNEL_TYPE_COUNTER").unwrap_or(1);
    Ok(channel.pointer("parent.pub")?.i64("type")? == counter)
}
