//! Packets of LTTng proven: each event decoded once, by what the session's metadata say of it.

use lastwords_formats::ctf::read;
use lastwords_trace::ctf::{Part, Program, TraceClass};
use lastwords_walk::lttng::{Metadata, Proof, Session};
use std::path::Path;

/// Decodes all packets of a session; how many events there are. None where its metadata cannot be read, which is noted.
pub(crate) fn events(session: &mut Session) -> Option<u64> {
    if session.metadata.text.is_empty() {
        return None;
    }
    let program = match program(session) {
        Ok(program) => program,
        Err(why) => {
            session.evidence.notes.push(format!("events were not decoded: {why}"));
            return None;
        }
    };
    Some(session.prove(&mut |bytes| decode(&program, bytes)))
}

fn program(session: &Session) -> Result<Program, String> {
    let class = class(&session.metadata).map_err(|error| error.to_string())?;
    Program::new(class).map_err(|error| error.to_string())
}

/// What a session's metadata say.
///
/// # Errors
/// They are not as their format says.
pub(crate) fn class(metadata: &Metadata) -> Result<TraceClass, read::Error> {
    // The kernel's own text has no first line by which it would be known.
    let mut text = metadata.text.clone();
    if !metadata.is_ctf2() && !text.starts_with(b"/* CTF") {
        text.splice(0..0, b"/* CTF 1.8 */ ".iter().copied());
    }
    read::parse(Path::new("metadata"), &text)
}

fn decode(program: &Program, bytes: &[u8]) -> Proof {
    let mut decoder = program.decoder();
    let packet = match program.packet(&mut decoder, bytes) {
        Ok(packet) => packet,
        Err(fault) => return Proof { fault: Some(fault.to_string()), ..Proof::default() },
    };
    let whole = (bytes.len() as u64).saturating_mul(8);
    let end = packet.content.unwrap_or(whole).min(whole);
    let part = Part { bytes, base: 0, content_end: end };
    let mut proof = Proof { good: packet.events_at / 8, ..Proof::default() };
    let mut at = packet.events_at;
    while at < end {
        match program.event(&mut decoder, packet.class, &part, at) {
            Ok(event) => {
                at = event.end;
                proof.events += 1;
                proof.last = Some(event.clock);
                proof.good = at.div_ceil(8);
            }
            Err(fault) => {
                proof.fault = Some(fault.to_string());
                break;
            }
        }
    }
    proof
}
