//! Prints what a trace has lost, and why, in a line for each ring and cause. Positions, addresses
//! and the verdict on each sub-buffer are for `--verbose`, which prints the account itself.

use super::activity::{ROWS, write_more};
use crate::account::LIMIT;
use crate::progress::human_bytes;
use crate::table::plain;
use lastwords_open::{Account, Amount, Losses};
use lastwords_render::missing::count;
use lastwords_trace::evidence::{Cause, Gap, Verdict};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Writes the losses, or with `verbose` the account. `of` is the ring, if a trace has several;
/// `indent` precedes each line.
pub(super) fn write(
    account: &Account<'_>,
    of: Option<&str>,
    verbose: bool,
    indent: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut text = Vec::new();
    if verbose {
        account.write(LIMIT, &mut text)?;
    } else {
        let unknown = account.evidence.gaps.iter().any(|gap| gap.cause == Cause::Overwritten);
        // How much was overwritten is said by ring.
        let overwritten = Amount { unknown, ..Amount::default() };
        let words = Losses { overwritten, ..Losses::from_accounts([account]) }.words();
        let of = of.map_or_else(String::new, |of| format!("{of}: "));
        writeln!(text, "losses     {of}{words}")?;
        lines(account).iter().try_for_each(|line| writeln!(text, "  {}", plain(line)))?;
        account.write_spans(LIMIT, &mut text)?;
    }
    String::from_utf8_lossy(&text).lines().try_for_each(|line| writeln!(out, "{indent}{line}"))
}

/// Writes the messages about what cannot be read: without `all` at most [`ROWS`].
pub(super) fn write_faults(
    faults: &[&String],
    all: bool,
    indent: &str,
    out: &mut dyn Write,
) -> io::Result<()> {
    let shown = if all { faults.len() } else { ROWS };
    faults
        .iter()
        .take(shown)
        .try_for_each(|fault| writeln!(out, "{indent}not decoded: {}", plain(fault)))?;
    write_more(faults.len(), shown, "fault", indent, out)
}

/// Shortens remarks to what is said before the first address or type of the kernel. Equal ones
/// become one.
pub(super) fn remarks<'n>(notes: impl IntoIterator<Item = &'n String>) -> Vec<String> {
    let mut said: Vec<(String, u64)> = Vec::new();
    for note in notes {
        let is_internal = |part: &String| {
            part.contains("0x") || part.contains("struct ") || part.contains("offset ")
        };
        let parts = note.split(": ").map(without_places);
        let parts: Vec<String> = parts.take_while(|part| !is_internal(part)).collect();
        let short = if parts.is_empty() { note.clone() } else { parts.join(": ") };
        match said.iter_mut().find(|(known, _)| *known == short) {
            Some((_, times)) => *times += 1,
            None => said.push((short, 1)),
        }
    }
    let times =
        |(short, times)| if times == 1 { short } else { format!("{short} ({times} times)") };
    said.into_iter().map(times).collect()
}

/// Leaves the addresses out of words such as `perf event at 0xff23 of perf (113)`.
fn without_places(part: &str) -> String {
    let mut out = String::new();
    for (number, piece) in part.split(" at 0x").enumerate() {
        let digits = piece.bytes().take_while(u8::is_ascii_hexdigit).count();
        // The rest of an address is left out.
        out.push_str(if number == 0 { piece } else { piece.get(digits..).unwrap_or_default() });
    }
    out
}

/// The losses of a ring for one reason.
#[derive(Debug, Default, PartialEq)]
struct Lost {
    /// The ring; none stands for several.
    stream: Option<usize>,
    /// The words between amount and end.
    why: String,
    /// The ring overwrote them, as a flight recorder does: they are the oldest ones.
    is_overwritten: bool,
    events: Option<u64>,
    bytes: Option<u64>,
    /// The number of sub-buffers, if they are what is lost.
    sub_buffers: u64,
}

impl Lost {
    fn add(&mut self, other: &Self) {
        let sum = |a: Option<u64>, b: Option<u64>| {
            a.map_or(b, |a| Some(a.saturating_add(b.unwrap_or(0))))
        };
        (self.events, self.bytes) = (sum(self.events, other.events), sum(self.bytes, other.bytes));
        self.sub_buffers = self.sub_buffers.saturating_add(other.sub_buffers);
    }

    fn line(&self, account: &Account<'_>) -> String {
        let of = self
            .stream
            .map_or_else(String::new, |stream| format!("{}: ", account.stream_name(stream)));
        let (size, why) = (self.bytes.map(human_bytes), &self.why);
        let older = if self.is_overwritten { "older " } else { "" };
        let amount = match (self.events, size) {
            _ if self.sub_buffers > 0 => count(self.sub_buffers, "sub-buffer"),
            (Some(events), Some(size)) => {
                format!("{} ({size})", count(events, &format!("{older}event")))
            }
            (Some(events), None) => count(events, &format!("{older}event")),
            (None, Some(size)) => format!("{size} of {older}events"),
            (None, None) if !older.is_empty() => "older events".to_owned(),
            (None, None) => "an unknown number of events".to_owned(),
        };
        format!("{of}{amount} {why}")
    }
}

/// Returns a line for each ring and reason. If that is too many, those of all rings are added up.
fn lines(account: &Account<'_>) -> Vec<String> {
    let has_own_line =
        |gap: &&Gap| matches!(gap.cause, Cause::Cut(_) | Cause::Changed(_) | Cause::Unknown);
    let gaps = account.evidence.gaps.iter().filter(|gap| !has_own_line(gap)).map(|gap| Lost {
        stream: gap.stream,
        why: why(gap),
        is_overwritten: gap.cause == Cause::Overwritten,
        events: gap.events,
        bytes: gap.bytes,
        sub_buffers: 0,
    });
    let damaged = account.evidence.sub_buffers.iter().filter_map(|sub_buffer| {
        let why = verdict(sub_buffer.verdict)?.to_owned();
        Some(Lost { stream: Some(sub_buffer.stream), why, sub_buffers: 1, ..Lost::default() })
    });
    let mut all = summed(gaps.chain(damaged));
    if all.len() > ROWS {
        all = summed(all.into_iter().map(|lost| Lost { stream: None, ..lost }));
    }
    all.sort_by_key(|lost| lost.stream);
    let faults = (account.faults > 0)
        .then(|| format!("{} cannot be decoded to the end", count(account.faults, "packet")));
    let cut = account.cut();
    let cut = (cut > 0)
        .then(|| format!("{} cut, because the events had no room for all", count(cut, "value")));
    let changed = account.changed();
    let changed = (changed > 0)
        .then(|| format!("{} with NUL, each of which became 0x1a", count(changed, "text")));
    let lines = all
        .iter()
        .map(|lost| lost.line(account))
        .chain(unknown(account))
        .chain(cut)
        .chain(changed)
        .chain(faults);
    lines.chain(remarks(&account.evidence.notes)).collect()
}

/// Returns a line for the facts about each ring that are not known, and one for those about all
/// rings.
fn unknown(account: &Account<'_>) -> Vec<String> {
    let mut facts: BTreeMap<Option<usize>, Vec<String>> = BTreeMap::new();
    for gap in account.evidence.gaps.iter().filter(|gap| gap.cause == Cause::Unknown) {
        let fact = plain(gap.place.split(':').next().unwrap_or_default());
        let known = facts.entry(gap.stream).or_default();
        if !known.contains(&fact) {
            known.push(fact);
        }
    }
    let line = |(stream, facts): (Option<usize>, Vec<String>)| {
        let of =
            stream.map_or_else(String::new, |stream| format!("{}: ", account.stream_name(stream)));
        format!("{of}not known: {}", facts.join(", "))
    };
    facts.into_iter().map(line).collect()
}

/// Adds up what is lost in the same ring for the same reason.
fn summed(all: impl Iterator<Item = Lost>) -> Vec<Lost> {
    let mut sums: Vec<Lost> = Vec::new();
    for lost in all {
        match sums.iter_mut().find(|sum| (sum.stream, &sum.why) == (lost.stream, &lost.why)) {
            Some(sum) => sum.add(&lost),
            None => sums.push(lost),
        }
    }
    sums
}

/// Says what happened to events. A place that has no number is a reason; others are positions.
fn why(gap: &Gap) -> String {
    let reason =
        Some(gap.place.trim()).filter(|place| !place.contains(|c: char| c.is_ascii_digit()));
    let because = |words: &str| match reason {
        Some(reason) => format!("{words} ({reason})"),
        None => words.to_owned(),
    };
    match gap.cause {
        Cause::Overwritten => "overwritten, because the ring was full".to_owned(),
        Cause::Unread => "overwritten before anybody had read them".to_owned(),
        Cause::Discarded => "not recorded, because the ring was full".to_owned(),
        Cause::InFlight => "being written at the end".to_owned(),
        Cause::TooBig => "not recorded, because they are larger than a sub-buffer".to_owned(),
        Cause::Refused => because("not recorded, because the recorder could not get room in time"),
        Cause::Damaged => because("lost, because the bytes are damaged"),
        Cause::Missing => because("missing in the input"),
        Cause::Cleared => "cleared by a user".to_owned(),
        Cause::Consumed => "consumed by a reader before".to_owned(),
        Cause::Dropped => "dropped with a snapshot that was replaced or freed".to_owned(),
        Cause::Undescribed => "unreadable, because nothing describes them".to_owned(),
        Cause::Unknown => because("of which something is not known"),
        Cause::Cut(_) => "with values that were cut, because there was no room for all".to_owned(),
        Cause::Changed(_) => "with texts in which NUL became 0x1a".to_owned(),
    }
}

/// Says what is wrong with sub-buffers, or nothing if they are as they should be.
fn verdict(verdict: Verdict) -> Option<&'static str> {
    match verdict {
        Verdict::Committed | Verdict::Open => None,
        Verdict::Torn => {
            Some("with events that were never finished, around which all are recovered")
        }
        Verdict::Stale => Some("lost, because older contents are in their place"),
        Verdict::Invalid => Some("damaged, of which the undamaged events are recovered"),
        Verdict::Missing => Some("missing in the input, wholly or in part"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_trace::evidence::{Evidence, SubBuffer};
    use std::borrow::Cow;

    fn account(gaps: Vec<Gap>, sub_buffers: Vec<SubBuffer>) -> Account<'static> {
        let evidence = Cow::Owned(Evidence { gaps, sub_buffers, notes: Vec::new() });
        Account { name: "a".into(), evidence, ..Account::default() }
    }

    fn gap(
        stream: usize,
        cause: Cause,
        events: Option<u64>,
        bytes: Option<u64>,
        place: &str,
    ) -> Gap {
        Gap { stream: Some(stream), place: place.into(), cause, events, bytes }
    }

    /// Each cause and verdict has a line, whatever the number of rings: nothing that is lost is
    /// left out.
    #[test]
    fn every_loss_is_said_and_no_position() {
        let causes = [
            Cause::Overwritten,
            Cause::Unread,
            Cause::Discarded,
            Cause::InFlight,
            Cause::TooBig,
            Cause::Refused,
            Cause::Damaged,
            Cause::Missing,
            Cause::Cleared,
            Cause::Consumed,
            Cause::Dropped,
            Cause::Undescribed,
        ];
        for rings in [1, 64] {
            let gaps = |cause| {
                (0..rings)
                    .map(move |ring| gap(ring, cause, Some(2), None, "positions 7771 to 7772"))
            };
            let verdicts =
                [Verdict::Torn, Verdict::Stale, Verdict::Invalid, Verdict::Missing, Verdict::Open];
            let sub_buffer = |verdict| SubBuffer {
                stream: 0,
                sequence: 7773,
                verdict,
                content: 0,
                why: "0x7774".into(),
            };
            let account = account(
                causes.into_iter().flat_map(gaps).collect(),
                verdicts.map(sub_buffer).to_vec(),
            );
            let lines = lines(&account);
            assert_eq!(lines.len(), causes.len() + 4, "{lines:#?}");
            assert!(!lines.iter().any(|line| line.contains("777")), "{lines:#?}");
            let count = format!("{} ", 2 * rings);
            assert_eq!(
                lines.iter().filter(|line| line.contains(&count)).count(),
                causes.len(),
                "{lines:#?}"
            );
        }
    }

    #[test]
    fn sizes_and_reasons_are_in_words() {
        let line = |gap| lines(&account(vec![gap], Vec::new())).remove(0);
        let overwritten =
            gap(0, Cause::Overwritten, None, Some(5_311_174), "positions 1 to 5311175");
        assert_eq!(
            line(overwritten),
            "stream 0: 5.07 MiB of older events overwritten, because the ring was full"
        );
        let refused =
            gap(3, Cause::Refused, Some(1), None, "every sub-buffer was still being written");
        let words = "not recorded, because the recorder could not get room in time (every sub-buffer was still being written)";
        assert_eq!(line(refused), format!("stream 3: 1 event {words}"));
    }

    #[test]
    fn remarks_lose_addresses_and_are_said_once() {
        let note = |address: &str| {
            format!(
                "CPU 1: the reader's sub-buffer is not known: page of struct buffer_page at {address}"
            )
        };
        let notes = [note("0xff3d"), note("0xff3e"), "the stream ended early".to_owned()];
        let said = remarks(&notes);
        assert_eq!(
            said,
            ["CPU 1: the reader's sub-buffer is not known (2 times)", "the stream ended early"]
        );
        // The words around an address stay.
        let of_perf = |event: &str| {
            format!(
                "missing: perf event at {event} of perf (113): id of struct perf_event at {event}"
            )
        };
        let said = remarks(&[of_perf("0xff23ed9a044554a0"), of_perf("0xff23ed9a04455ef0")]);
        assert_eq!(said, ["missing: perf event of perf (113) (2 times)"]);
    }
}
