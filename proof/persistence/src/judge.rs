//! Judges the memory after a loss of power by the events that the application recorded. This module
//! shares no code with the recorder.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use lastwords::Persist;
use lastwords_bytes::Budget;
use lastwords_ctf::session::Decoder;
use lastwords_image::unwatched;
use lastwords_session as session;
use lastwords_trace::evidence::Verdict;
use lastwords_trace::metrics::Metrics;
use lastwords_trace::source::Source as _;

use crate::numbers::Numbers;
use lastwords_testkit::random::mix;

/// Bytes of packet header, packet trailer, and the shortest and the longest event header.
const ENDS: u64 = 84 + 16;
const HEADERS: (u64, u64) = (4, 18);
/// Largest payload of an event.
const LONGEST: u64 = 8 + 8 + 4 + 200;

/// The events that the application has recorded.
#[derive(Debug, Default)]
pub(super) struct Truth {
    /// Whether the call that recorded the event of this number has returned.
    pub(super) returned: Vec<bool>,
    /// What it has added to counters and a histogram.
    pub(super) numbers: Numbers,
}

/// Sub-buffers of a ring, and their bytes.
pub(super) type Geometry = (u32, u64);

/// The second value of an event.
pub(super) fn check(number: u64) -> u64 {
    mix(number ^ 0x5eed)
}

/// The third value of an event: bytes of a length of its own.
pub(super) fn filler(number: u64) -> Vec<u8> {
    let check = check(number);
    let len = if check.is_multiple_of(5) { check % 200 } else { check % 40 };
    (0..len).map(|at| mix(check ^ at) as u8).collect()
}

fn payload(number: u64) -> u64 {
    8 + 8 + 4 + filler(number).len() as u64
}

impl Truth {
    /// The numbers of the events that must be there by the policy.
    pub(super) fn promised(&self, persist: Persist, (count, size): Geometry) -> BTreeSet<u64> {
        // The ring may have given up all but this many bytes of the newest events.
        let room = u64::from(count - 2) * (size - ENDS - HEADERS.1 - LONGEST);
        let (mut most, mut least) = (0, 0);
        let mut promised = BTreeSet::new();
        for (number, returned) in self.returned.iter().enumerate().rev() {
            let number = number as u64;
            // Where newer events that have returned take a whole sub-buffer, that of this event was
            // closed.
            let is_persistent = persist == Persist::Event || least >= size;
            if *returned && is_persistent {
                promised.insert(number);
            }
            most += payload(number) + HEADERS.1;
            least += if *returned { payload(number) + HEADERS.0 } else { 0 };
            if most > room {
                break;
            }
        }
        if persist == Persist::None { BTreeSet::new() } else { promised }
    }

    /// Recovers a memory and judges it.
    pub(super) fn judge(
        &self,
        image: &[u8],
        persist: Persist,
        promised: &BTreeSet<u64>,
    ) -> Result<()> {
        let (found, metrics) = recover(image)?;
        let mut there = BTreeSet::new();
        for (verdict, event) in found {
            // What an open sub-buffer holds was not promised where only closed ones are persisted.
            let vouched = match verdict {
                Verdict::Committed => true,
                Verdict::Open | Verdict::Torn => persist == Persist::Event,
                _ => false,
            };
            match event {
                Ok(payload) => {
                    let number = number_of(&payload);
                    let was_begun =
                        number.is_ok_and(|number| (number as usize) < self.returned.len());
                    if vouched {
                        let number = number_of(&payload)?;
                        ensure!(
                            was_begun,
                            "INVENTED: event {number} in a sub-buffer that is {}",
                            verdict.word()
                        );
                    }
                    if let Ok(number) = number_of(&payload)
                        && !matches!(verdict, Verdict::Invalid)
                    {
                        there.insert(number);
                    }
                }
                Err(error) if vouched => {
                    bail!("TORN: {error} in a sub-buffer that is {}", verdict.word())
                }
                Err(_) => {}
            }
        }
        let missing: Vec<_> = promised.difference(&there).take(5).collect();
        ensure!(
            missing.is_empty(),
            "LOST: events {missing:?} of {} that were persisted",
            promised.len()
        );
        self.numbers.judge(&metrics, persist)
    }
}

/// The number of an event, if all its bytes are right.
fn number_of(payload: &[u8]) -> Result<u64> {
    let word = |at: usize| {
        payload.get(at..at + 8).map(|bytes| u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
    };
    let (number, said) = word(0).zip(word(8)).context("TORN: a short payload")?;
    ensure!(said == check(number), "TORN: event {number} has the value {said:#x}");
    let bytes = filler(number);
    let len = (bytes.len() as u32).to_le_bytes();
    ensure!(payload[16..].strip_prefix(&len) == Some(&bytes), "TORN: event {number}");
    Ok(number)
}

/// The verdict on an event's sub-buffer, and its payload or why there is none.
type Found = (Verdict, std::result::Result<Vec<u8>, String>);

/// Recovers all events, counters and histograms by the product's reader.
fn recover(image: &[u8]) -> Result<(Vec<Found>, Metrics)> {
    let image = lastwords_proof_persistence::image(image.to_vec());
    let found =
        session::find(&image, &session::Options::default(), &Budget::default(), &unwatched)?;
    ensure!(found.sessions.len() == 1, "LOST: {} sessions", found.sessions.len());
    let session = &found.sessions[0];
    let decoder = Decoder::new(session.schema());
    let mut all = Vec::new();
    for (index, stream) in session.streams().iter().enumerate() {
        let (mut packets, mut bytes) = (session.packets(index), Vec::new());
        while let Some(packet) = packets.next_packet(&mut bytes) {
            for event in decoder.events(stream.channel, &bytes, packet.begin, packet.events_at) {
                let event = event
                    .map(|event| bytes[event.payload()].to_vec())
                    .map_err(|error| error.to_string());
                all.push((packet.verdict, event));
            }
        }
    }
    Ok((all, session.info().metrics.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_sub_buffer_is_promised_and_the_newest_events_are_not() {
        let truth = Truth { returned: vec![true; 400], ..Truth::default() };
        let geometry = (8, 4096);
        let each = truth.promised(Persist::Event, geometry);
        let closed = truth.promised(Persist::SubBuffer, geometry);
        assert!(each.contains(&399) && !closed.contains(&399));
        assert!(closed.len() > 100 && closed.is_subset(&each), "{} {}", closed.len(), each.len());
        assert!(!each.contains(&0), "the ring came round");
        assert!(truth.promised(Persist::None, geometry).is_empty());
    }
}
