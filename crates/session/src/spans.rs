//! Reads the table of open spans.

use super::layout::{field, part};
use super::region::Region;
use lastwords_abi::spans::{self as abi, Span, SpansControl};
use lastwords_bytes::{Budget, Error, Reader};
use lastwords_image::Image;
use lastwords_trace::source::OpenSpan;
use std::cmp::Reverse;

/// Number of spans read at a time.
const BATCH: usize = 256;
/// Most attempts to read an entry that changes while it is read.
const TRIES: usize = 8;

/// The open spans of a session.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    /// None if there is no table that can be read.
    pub(crate) open: Option<Vec<OpenSpan>>,
    pub(crate) dropped: u64,
    pub(crate) notes: Vec<String>,
    /// Number of entries that were being written.
    unfinished: usize,
}

/// Reads the table of open spans, as far as the image has it. `has_events`: spans were recorded.
pub(crate) fn read(
    image: &dyn Image,
    region: Option<&Region>,
    has_events: bool,
    budget: &Budget,
) -> Spans {
    let Some(region) = region else {
        let note = "there is no table of open spans: which spans were open is not known";
        let notes = if has_events { vec![note.to_owned()] } else { Vec::new() };
        return Spans { notes, ..Spans::default() };
    };
    read_region(image, region, budget)
}

fn read_region(image: &dyn Image, region: &Region, budget: &Budget) -> Spans {
    let mut spans = Spans::default();
    let mut open = Vec::new();
    let capacity = match control(image, region, budget, &mut spans) {
        Ok(capacity) => capacity,
        Err(error) => {
            spans.notes.push(format!("{error}: open spans cannot be read"));
            return spans;
        }
    };
    let mut at = 0usize;
    while at < capacity {
        let batch = BATCH.min(capacity.saturating_sub(at));
        if let Err(error) = entries(image, region, at, batch, budget, (&mut open, &mut spans)) {
            spans.notes.push(format!("{error}: open spans from entry {at} on cannot be read"));
            break;
        }
        at = at.saturating_add(batch);
    }
    if spans.unfinished > 0 {
        let entries = counted(spans.unfinished as u64, "entry", "entries");
        spans.notes.push(format!(
            "{entries} of the table of open spans was being written and is not listed"
        ));
    }
    // Spans that a thread is in come first, then the newest spans.
    open.sort_by_key(|span| (span.threads == 0, Reverse((span.opened, span.id))));
    spans.open = Some(open);
    spans
}

/// Sets the age of each span, ns: the time from its opening to `end` (ticks) or to the newest
/// opening, whichever is later.
pub(crate) fn set_ages(spans: &mut [OpenSpan], end: u64, frequency: u64) {
    let end = spans.iter().map(|span| span.opened).fold(end, u64::max);
    for span in spans {
        let ticks = u128::from(end.saturating_sub(span.opened));
        let age =
            ticks.saturating_mul(1_000_000_000).checked_div(u128::from(frequency)).unwrap_or(0);
        span.age = u64::try_from(age).unwrap_or(u64::MAX);
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn control(
    image: &dyn Image,
    region: &Region,
    budget: &Budget,
    spans: &mut Spans,
) -> Result<usize, Error> {
    let bytes = part(image, region, abi::CONTROL_OFF as u64, size_of::<SpansControl>(), budget)?;
    let what = region.place();
    let r = Reader::new(&what, &bytes, region.order).based(abi::CONTROL_OFF as u64);
    spans.dropped = field!(r, 0, SpansControl, dropped, u64_at)?;
    let evicted = field!(r, 0, SpansControl, evicted, u64_at)?;
    let skipped = field!(r, 0, SpansControl, skipped, u64_at)?;
    let abandoned = field!(r, 0, SpansControl, abandoned, u64_at)?;
    let said = field!(r, 0, SpansControl, capacity, u32_at)?;
    let room = region
        .size
        .saturating_sub(abi::SPANS_OFF as u64)
        .checked_div(size_of::<Span>() as u64)
        .unwrap_or(0);
    if u64::from(said) > room {
        spans.notes.push(format!(
            "{what}: offset {:#x}: a table of {said} spans is said, {room} fit the region",
            abi::CONTROL_OFF
        ));
    }
    let capacity = room.min(u64::from(said));
    let unknown = "which of them were still open is not known";
    if spans.dropped > 0 {
        let dropped = counted(spans.dropped, "span", "spans");
        spans.notes.push(format!(
            "{dropped} found no room among the {capacity} entries of the table: {unknown}"
        ));
    }
    if evicted > 0 {
        let evicted = counted(evicted, "open span was", "open spans were");
        spans.notes.push(format!(
            "{evicted} evicted from the {capacity} entries of the table, the longest idle ones first: {unknown}"
        ));
    }
    if abandoned > 0 {
        let abandoned = counted(abandoned, "open span was", "open spans were");
        spans.notes.push(format!("{abandoned} of a recorder that the program replaced: {unknown}"));
    }
    if skipped > 0 {
        let skipped = counted(skipped, "value", "values");
        spans.notes.push(format!(
            "{skipped} recorded on open spans while another thread did so are not shown here"
        ));
    }
    Ok(usize::try_from(capacity).unwrap_or(0))
}

fn entries(
    image: &dyn Image,
    region: &Region,
    first: usize,
    count: usize,
    budget: &Budget,
    (open, spans): (&mut Vec<OpenSpan>, &mut Spans),
) -> Result<(), Error> {
    let skip = first.saturating_mul(size_of::<Span>());
    let offset = abi::SPANS_OFF.saturating_add(skip) as u64;
    let what = region.place();
    let read = || part(image, region, offset, count.saturating_mul(size_of::<Span>()), budget);
    // Entries of a running session change. Each entry is read three times: the fields come from the
    // first reading and the text from the second; the third shows whether the entry changed in
    // between.
    let (mut before, mut text, mut after) = (read()?, read()?, read()?);
    for entry in 0..count {
        let base = entry.saturating_mul(size_of::<Span>());
        for round in 1.. {
            let reader = |bytes| Reader::new(&what, bytes, region.order).based(offset);
            budget.steps(&what, 1)?;
            match whole(&[reader(&before), reader(&text), reader(&after)], base, &mut spans.notes)?
            {
                Entry::Open(span) => open.push(span),
                Entry::Changing if round < TRIES => {
                    (before, text, after) =
                        (std::mem::take(&mut text), std::mem::take(&mut after), read()?);
                    continue;
                }
                Entry::Changing => spans.unfinished = spans.unfinished.saturating_add(1),
                Entry::Free => (),
            }
            break;
        }
    }
    Ok(())
}

/// An entry of the table.
enum Entry {
    Free,
    /// The entry was being written, or another span took the entry between the readings.
    Changing,
    Open(OpenSpan),
}

/// Decodes an entry from three readings, made one after the other.
fn whole(
    [before, text, after]: &[Reader<'_>; 3],
    base: usize,
    notes: &mut Vec<String>,
) -> Result<Entry, Error> {
    let id = field!(before, base, Span, id, u64_at)?;
    let inside = field!(before, base, Span, inside, u32_at)?;
    let inside_after = field!(after, base, Span, inside, u32_at)?;
    if id == 0 {
        return Ok(Entry::Free);
    }
    let is_writing =
        [inside, inside_after].iter().any(|inside| inside & abi::WRITING == abi::WRITING);
    if is_writing || inside & !abi::WRITING != inside_after & !abi::WRITING {
        return Ok(Entry::Changing);
    }
    let state = field!(before, base, Span, state, u32_at)?;
    if !matches!(state, abi::SPAN_OPEN | abi::SPAN_APPENDING) {
        return Ok(Entry::Free);
    }
    span([before, text], base, id, inside & abi::WRITING, notes).map(Entry::Open)
}

fn span(
    [r, texts]: [&Reader<'_>; 2],
    base: usize,
    id: u64,
    inside: u32,
    notes: &mut Vec<String>,
) -> Result<OpenSpan, Error> {
    let said = field!(r, base, Span, text_len, u32_at)? as usize;
    if said > abi::TEXT_LEN {
        notes.push(format!(
            "{}: span {id}: a text of {said} bytes is said, {} fit",
            r.what(),
            abi::TEXT_LEN
        ));
    }
    let text = field!(texts, base, Span, text, bytes_at, said.min(abi::TEXT_LEN))?;
    let text = String::from_utf8_lossy(text);
    let mut parts = text.splitn(3, '\u{1f}').map(str::to_owned);
    let level = field!(r, base, Span, level, u32_at)?;
    let entered = field!(r, base, Span, entered, u64_at)?;
    Ok(OpenSpan {
        id,
        parent: field!(r, base, Span, parent, u64_at)?,
        opened: field!(r, base, Span, opened, u64_at)?,
        age: 0,
        opener: thread(field!(r, base, Span, opener, u64_at)?),
        entered: (entered != 0).then(|| thread(entered)),
        threads: inside.max(u32::from(entered != 0)),
        level: u8::try_from(level & 0xff).unwrap_or(0),
        target: parts.next().unwrap_or_default(),
        name: parts.next().unwrap_or_default(),
        fields: parts.next().unwrap_or_default(),
    })
}

/// Splits a word into process id and thread id.
fn thread(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, (word & 0xffff_ffff) as u32)
}
