//! Packets of LTTng proven: each event decoded once, by what the session's metadata say of it.

use super::{Metadata, Proof, Session};
use lastwords_bytes::Budget;
use lastwords_ctf::program::{Part, Program};
use lastwords_ctf::read;
use lastwords_trace::class::TraceClass;
use std::path::Path;
use std::sync::Arc;

impl Metadata {
    /// The trace class that the metadata describe.
    ///
    /// # Errors
    /// They are not as their format says.
    pub fn class(&self) -> Result<TraceClass, read::Error> {
        // The kernel's own text has no first line by which it would be known.
        let mut text = self.text.clone();
        if !self.is_ctf2() && !text.starts_with(b"/* CTF") {
            text.splice(0..0, b"/* CTF 1.8 */ ".iter().copied());
        }
        lastwords_ctf::metadata::parse(Path::new("metadata"), &text)
    }
}

impl Session {
    /// Decodes all packets and returns how many events there are; `watch` is given the bytes of each packet that was decoded.
    /// Returns none, and notes why, where the metadata cannot be read.
    pub fn prove_events(&mut self, watch: &mut dyn FnMut(u64)) -> Option<u64> {
        if self.metadata.text.is_empty() {
            self.forget_doubtful();
            return None;
        }
        let class = self.metadata.class().map_err(|error| error.to_string());
        let budget = Arc::new(Budget::for_input(self.bytes()));
        let program = class.and_then(|class| Program::new(class, &budget).map_err(|error| error.to_string()));
        let program = match program {
            Ok(program) => program,
            Err(why) => {
                self.evidence.notes.push(format!("events were not decoded: {why}"));
                self.forget_doubtful();
                return None;
            }
        };
        Some(self.prove(&mut |bytes, only_likely| {
            watch(bytes.len() as u64);
            decode(&program, bytes, only_likely)
        }))
    }
}

/// Decodes a packet's events. `only_likely`: one whose time leaps ends them, as nothing else says where they end.
fn decode(program: &Program, bytes: &[u8], only_likely: bool) -> Proof {
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
    let mut pace = Pace::default();
    while at < end {
        match program.event(&mut decoder, packet.class, &part, at) {
            Ok(event) if only_likely && (is_nothing(bytes, at) || !pace.allows(event.clock)) => {
                proof.fault = Some(format!("offset {:#x}: the next event is not likely", at / 8));
                break;
            }
            Ok(event) => {
                at = event.end;
                proof.events = proof.events.saturating_add(1);
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

/// There are zeroes where an event would have id and time: a page that was never written.
fn is_nothing(bytes: &[u8], at_bit: u64) -> bool {
    let at = usize::try_from(at_bit / 8).unwrap_or(usize::MAX);
    bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) == Some(&[0; 8])
}

/// How fast the clock goes on from event to event.
#[derive(Default)]
struct Pace {
    last: Option<u64>,
    longest: u64,
}

impl Pace {
    /// Steps of the clock up to this, ticks, are always believed.
    const SHORT: u64 = 1_000_000;
    /// Others up to this multiple of the longest before.
    const LEAP: u64 = 8;

    /// The next event's time can be that: it does not go back, nor leap.
    fn allows(&mut self, clock: u64) -> bool {
        let step = self.last.map_or(Some(0), |last| clock.checked_sub(last));
        let most = self.longest.saturating_mul(Self::LEAP).max(Self::SHORT);
        self.last = Some(clock);
        let allowed = step.filter(|step| *step <= most);
        self.longest = self.longest.max(allowed.unwrap_or(0));
        allowed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::Pace;

    #[test]
    fn a_clock_that_goes_back_or_leaps_is_not_believed() {
        let mut pace = Pace::default();
        assert!([9, 9, 1_000_000, 8_000_000].into_iter().all(|clock| pace.allows(clock)));
        assert!(!pace.allows(7_999_999));
        assert!(!Pace { last: Some(8_000_000), longest: 10 }.allows(9_100_000));
    }
}
