//! The progress of the application: a page that it writes on the DAX file system, and its expected
//! events.

use anyhow::{Context, Result, ensure};

use lastwords_testkit::random::mix;

/// Begins the page; no other page of the memory begins so.
pub(super) const MAGIC: &[u8; 16] = b"lab's nvdimm ack";
/// Bytes of the page.
pub(super) const LEN: usize = 4096;
/// Offset of the number of the boot, and of the word that is 1 when the session has begun.
pub(super) const BOOT: usize = 16;
pub(super) const READY: usize = 24;
/// Threads that record.
pub(super) const WRITERS: usize = 2;

/// How far one thread has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Writer {
    /// Calls begun.
    pub(super) begun: u64,
    /// Calls that returned.
    pub(super) returned: u64,
    /// Calls of all writers that were begun before the last of these.
    pub(super) order: u64,
}

/// The page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) boot: u64,
    pub(super) ready: bool,
    /// The counts of each writer.
    pub(super) writers: [Writer; WRITERS],
}

impl Ack {
    /// Reads a page.
    pub(super) fn parse(page: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(page.get(at..at + 8)?.try_into().ok()?));
        if !page.starts_with(MAGIC) {
            return None;
        }
        let mut writers = [Writer::default(); WRITERS];
        for (writer, counts) in writers.iter_mut().enumerate() {
            let (begun, returned) = places(writer);
            *counts = Writer {
                begun: word(begun)?,
                returned: word(returned)?,
                order: word(returned + 8)?,
            };
        }
        Some(Self { boot: word(BOOT)?, ready: word(READY)? == 1, writers })
    }

    /// Finds the page in a memory.
    pub(super) fn find(memory: &[u8]) -> Option<Self> {
        memory.chunks_exact(LEN).find_map(Self::parse)
    }
}

/// Offsets of a writer's counts: calls begun, and calls that returned, behind which their order is.
pub(super) fn places(writer: usize) -> (usize, usize) {
    (64 + 128 * writer, 128 + 128 * writer)
}

/// True if the application makes the kernel panic in this boot; in others, the machine is reset.
pub(super) fn panics(boot: u64) -> bool {
    boot % 5 == 4
}

/// The third value of an event, by which it is known to be whole.
pub(super) fn check(writer: usize, sequence: u64) -> u64 {
    mix((writer as u64) << 48 | sequence)
}

/// The text of an event.
pub(super) fn filler(check: u64) -> String {
    (0..check % 60).map(|at| char::from(b'a' + (mix(check ^ at) % 26) as u8)).collect()
}

/// Compares a text of events with the page: each event whose call returned is there, unless the
/// ring came round to it; each that is there is whole, and was begun. Returns the events.
pub(super) fn judge(ack: &Ack, text: &str, kept_at_least: usize) -> Result<usize> {
    let mut found: [Vec<u64>; WRITERS] = Default::default();
    for line in text.lines().filter(|line| line.contains("nvdimm:step")) {
        let value = |name: &str| {
            let (_, rest) = line.split_once(&format!(" {name}="))?;
            Some(rest.split(' ').next().unwrap_or_default().trim_matches('"').to_string())
        };
        let number = |name: &str| value(name).and_then(|word| word.parse::<u64>().ok());
        let (writer, sequence) = (number("writer"), number("sequence"));
        let (Some(writer), Some(sequence)) = (writer, sequence) else {
            anyhow::bail!("TORN: {line}")
        };
        let sequences =
            found.get_mut(writer as usize).with_context(|| format!("INVENTED: {line}"))?;
        let expected = check(writer as usize, sequence);
        let is_whole =
            number("check") == Some(expected) && value("filler") == Some(filler(expected));
        ensure!(is_whole, "TORN: {line}");
        sequences.push(sequence);
    }
    let count = found.iter().map(Vec::len).sum();
    let mut came_round = false;
    let newest_order = ack.writers.iter().map(|writer| writer.order).max().unwrap_or(0);
    for (writer, (sequences, Writer { begun, returned, order })) in
        found.iter().zip(ack.writers).enumerate()
    {
        let (first, newest) =
            (sequences.first().copied().unwrap_or(0), sequences.last().map_or(0, |last| last + 1));
        came_round |= first > 0 || sequences.is_empty() && returned > 0;
        let in_order = sequences.iter().zip(first..).all(|(found, expected)| *found == expected);
        ensure!(in_order, "LOST: writer {writer} has gaps in {first}..{newest}");
        ensure!(
            newest <= begun,
            "INVENTED: writer {writer} began {begun} events, {newest} are there"
        );
        // While a writer waits for its turn, the ring may come round to all of its events.
        let is_overwritten = sequences.is_empty() && newest_order - order >= kept_at_least as u64;
        ensure!(
            newest >= returned || is_overwritten,
            "LOST: writer {writer} recorded {returned} events, {newest} are there"
        );
    }
    ensure!(
        !came_round || count >= kept_at_least,
        "LOST: {count} events are there, the ring holds {kept_at_least}"
    );
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(writer: usize, sequence: u64) -> String {
        let check = check(writer, sequence);
        let filler = filler(check);
        format!(
            "1 INFO [000] nvdimm:step: writer={writer} sequence={sequence} check={check} filler={filler}\n"
        )
    }

    #[test]
    fn a_lost_and_an_invented_and_a_torn_event_are_found() {
        let writer = |begun, returned, order| Writer { begun, returned, order };
        let ack = Ack { boot: 0, ready: true, writers: [writer(4, 3, 3), writer(1, 1, 0)] };
        let text: String = (0..3).map(|n| line(0, n)).chain([line(1, 0)]).collect();
        assert_eq!(judge(&ack, &text, 1).unwrap(), 4);
        assert_eq!(
            judge(&ack, &(text.clone() + &line(0, 3)), 1).unwrap(),
            5,
            "an event in flight may be there"
        );
        let error = |text: &str| judge(&ack, text, 1).unwrap_err().to_string();
        assert!(error(&text.replace("sequence=2", "sequence=9")).contains("TORN"));
        assert!(error(&text.replace(&line(0, 2), "")).contains("LOST"));
        assert!(error(&text.replace(&line(0, 1), "")).contains("LOST"));
        assert!(
            judge(&ack, &text.replace(&line(1, 0), ""), 4)
                .unwrap_err()
                .to_string()
                .contains("LOST")
        );
        assert_eq!(
            judge(&ack, &text.replace(&line(1, 0), ""), 3).unwrap(),
            3,
            "the ring came round to it"
        );
        assert!(error(&(text.clone() + &line(1, 1))).contains("INVENTED"));
        assert!(
            judge(&ack, &text[line(0, 0).len()..], 100).unwrap_err().to_string().contains("LOST")
        );
    }

    #[test]
    fn the_page_is_found_and_read() {
        let mut memory = vec![0; 4 * LEN];
        memory[LEN * 2..][..16].copy_from_slice(MAGIC);
        memory[LEN * 2 + BOOT] = 7;
        memory[LEN * 2 + places(1).1] = 3;
        let ack = Ack::find(&memory).unwrap();
        assert_eq!((ack.boot, ack.ready, ack.writers[1].returned), (7, false, 3));
        assert_eq!(Ack::find(&memory[..LEN * 2]), None);
    }
}
