//! Proves LTTng packets: decodes each event once, with the session's metadata.

use super::{Metadata, Proof, Session, zeros};
use lastwords_bytes::Budget;
use lastwords_ctf::program::{PacketPart, Program};
use lastwords_ctf::read;
use lastwords_trace::class::TraceClass;
use lastwords_trace::evidence::Gap;
use std::path::Path;
use std::sync::Arc;

impl Metadata {
    /// Parses the metadata into a trace class.
    ///
    /// # Errors
    /// The metadata do not follow their format.
    pub fn class(&self) -> Result<TraceClass, read::Error> {
        // The kernel tracer's cache lacks the first line that identifies CTF 1.8.
        let mut text = self.text.clone();
        if !self.is_ctf2() && !text.starts_with(b"/* CTF") {
            text.splice(0..0, b"/* CTF 1.8 */ ".iter().copied());
        }
        lastwords_ctf::metadata::parse(Path::new("metadata"), &text)
    }
}

impl Session {
    /// Decodes all packets and returns the number of events. Calls `watch` with the number of bytes
    /// of each decoded packet. Returns none, and adds a note, if the metadata cannot be parsed.
    pub fn prove_events(&mut self, watch: &mut dyn FnMut(u64)) -> Option<u64> {
        if self.metadata.text.is_empty() {
            self.forget_doubtful();
            return None;
        }
        let class = self.metadata.class().map_err(|error| error.to_string());
        let missing = class.as_ref().map(|class| class.missing.as_slice()).unwrap_or_default();
        self.evidence
            .gaps
            .extend(missing.iter().map(|what| Gap::not_known(None, &format!("metadata: {what}"))));
        let budget = Arc::new(Budget::for_input(self.bytes()));
        let program =
            class.and_then(|class| Program::new(class, &budget).map_err(|error| error.to_string()));
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

/// Decodes the events of a packet. With `only_likely`, decoding stops at an event whose clock
/// leaps, because nothing else marks the end.
fn decode(program: &Program, bytes: &[u8], only_likely: bool) -> Proof {
    let mut decoder = program.decoder();
    let packet = match program.packet(&mut decoder, bytes) {
        Ok(packet) => packet,
        Err(fault) => return Proof { fault: Some(fault.to_string()), ..Proof::default() },
    };
    let whole = (bytes.len() as u64).saturating_mul(8);
    let end = packet.content.unwrap_or(whole).min(whole);
    let part = PacketPart { bytes, base: 0, content_end: end };
    let mut proof = Proof { good: packet.events_at / 8, ..Proof::default() };
    let mut at = packet.events_at;
    let mut pace = Pace::default();
    let pages = zeros::Pages::new(bytes, end);
    // The proof before an event that has a page of zeros in it. The next event shows that this was
    // its length.
    let mut before = None;
    while at < end {
        match program.event(&mut decoder, packet.class, &part, at) {
            Ok(event) if pages.meets(at, event.end) == zeros::Meets::Unproven => {
                proof.fault = Some(format!(
                    "offset {:#x}: the next event is in a page of zeros, which may be missing",
                    at / 8
                ));
                break;
            }
            Ok(event) if only_likely && (is_nothing(bytes, at) || !pace.allows(event.clock)) => {
                proof.fault = Some(format!("offset {:#x}: the next event is not likely", at / 8));
                break;
            }
            Ok(event) => {
                let covers = pages.meets(at, event.end) == zeros::Meets::Covers;
                before = covers.then(|| proof.clone());
                if covers {
                    proof.zeros.push(at / 8);
                }
                at = event.end;
                proof.events = proof.events.saturating_add(1);
                proof.last = Some(event.clock);
                proof.good = at.div_ceil(8);
            }
            Err(fault) => {
                proof = before.unwrap_or(proof);
                proof.fault = Some(fault.to_string());
                break;
            }
        }
    }
    proof
}

/// True if the eight bytes at the next event are zeros: the page was never written.
fn is_nothing(bytes: &[u8], at_bit: u64) -> bool {
    let at = usize::try_from(at_bit / 8).unwrap_or(usize::MAX);
    bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) == Some(&[0; 8])
}

/// Measures how fast the clock advances from event to event.
#[derive(Default)]
struct Pace {
    last: Option<u64>,
    longest: u64,
}

impl Pace {
    /// Longest step of the clock that is always plausible, ticks.
    const SHORT: u64 = 1_000_000;
    /// Longer steps are plausible up to this multiple of the longest step before.
    const LEAP: u64 = 8;

    /// True if the clock of the next event is plausible: it neither goes back nor leaps.
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
    use super::*;

    /// Events of a byte for the id, one for the clock, and `_n` bytes.
    const TSDL: &str = "/* CTF 1.8 */ typealias integer { size = 16; align = 8; } := u16;
        typealias integer { size = 8; align = 8; map = clock.c.value; } := tick;
        trace { major = 1; minor = 8; byte_order = le; }; clock { name = c; };
        stream { id = 0; event.header := struct { integer { size = 8; align = 8; } id; tick timestamp; }; };
        event { name = e; id = 0; stream_id = 0; fields := struct { u16 _n; integer { size = 8; align = 8; } _a[_n]; }; };";

    fn event(bytes: &[u8]) -> Vec<u8> {
        let length = u16::try_from(bytes.len()).unwrap().to_le_bytes();
        [&[0, 7], &length[..], bytes].concat()
    }

    /// A page of zeros is memory that is missing: the events in it were others. An event that goes
    /// on behind it may have had zeros.
    #[test]
    fn events_in_a_page_of_zeros_are_not_proven() {
        let class = lastwords_ctf::metadata::parse(Path::new("metadata"), TSDL.as_bytes()).unwrap();
        let program = Program::new(class, &Arc::default()).unwrap();
        let whole: Vec<u8> = std::iter::repeat_n(event(&[1; 10]), 1200).flatten().collect();
        assert_eq!(decode(&program, &whole, false).events, 1200);
        let mut lost = whole;
        lost[4096..8192].fill(0);
        let proof = decode(&program, &lost, false);
        assert_eq!((proof.events, proof.good), (4096 / 14, 4096 / 14 * 14));
        assert!(proof.fault.is_some_and(|fault| fault.contains("page of zeros")));
        let large = [event(&[1; 10]), event(&[0; 9000]), event(&[1; 4000])].concat();
        let proof = decode(&program, &large, false);
        assert_eq!((proof.events, proof.fault, proof.zeros), (3, None, vec![14]));
    }

    #[test]
    fn a_clock_that_goes_back_or_leaps_is_not_believed() {
        let mut pace = Pace::default();
        assert!([9, 9, 1_000_000, 8_000_000].into_iter().all(|clock| pace.allows(clock)));
        assert!(!pace.allows(7_999_999));
        assert!(!Pace { last: Some(8_000_000), longest: 10 }.allows(9_100_000));
    }
}
