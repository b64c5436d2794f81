//! Inputs that hold sessions of LTTng.

use crate::evidence::LIMIT;
use crate::say;
use crate::table::plain;
use lastwords_kernel::Kernel;
use lastwords_walk::lttng::Session;
use lastwords_walk::lttng_kernel;
use std::sync::Arc;

/// The sessions of a kernel's LTTng; why they cannot be read is noted.
pub(crate) fn of_kernel(kernel: &Arc<Kernel>, notes: &mut Vec<String>) -> Vec<Session> {
    match lttng_kernel::read(kernel, None) {
        Ok(found) => {
            notes.extend(found.notes);
            found.sessions
        }
        Err(error) => {
            notes.push(format!("the sessions of LTTng are not known: {error}"));
            Vec::new()
        }
    }
}

/// Name of a stream: of its channel, or else of that one's id, and of its CPU, as LTTng names files.
pub(crate) fn stream_name(session: &Session, stream: usize) -> String {
    let Some(stream) = session.streams.get(stream) else { return format!("stream {stream}") };
    let cpu = stream.cpu.map_or_else(String::new, |cpu| format!("_{cpu}"));
    match stream.channel_name.as_str() {
        "" => format!("channel{}{cpu}", stream.channel),
        name => format!("{name}{cpu}"),
    }
}

/// Prints what is known of losses on stderr; whether there are any.
pub(crate) fn evidence(session: &Session) -> bool {
    let evidence = &session.evidence;
    evidence.notes.iter().for_each(|note| say::note(plain(note)));
    for row in evidence.sub_buffers.iter().filter(|row| !row.why.is_empty()).take(LIMIT) {
        let (stream, verdict) = (stream_name(session, row.stream), row.verdict.word());
        let content = row.content;
        say::note(format_args!(
            "{}: packet {} is {verdict}, {content} bytes kept: {}",
            plain(&stream),
            row.sequence,
            plain(&row.why)
        ));
    }
    for gap in evidence.gaps.iter().take(LIMIT) {
        let stream = gap.stream.map_or_else(|| "all streams".to_owned(), |stream| stream_name(session, stream));
        let sizes = [(gap.events, "events"), (gap.bytes, "bytes")];
        let sizes: String = sizes.iter().filter_map(|(n, unit)| n.map(|n| format!(", {n} {unit}"))).collect();
        say::note(format_args!("{}: {}: {}{sizes}", plain(&stream), plain(&gap.place), gap.cause.word()));
    }
    evidence.has_losses()
}
