//! The table of open spans.

use super::find::Region;
use super::layout::{field, part};
use lastwords_abi::spans::{self as abi, Span, SpansControl};
use lastwords_bytes::{Budget, Error, Reader};
use lastwords_image::Image;
use lastwords_trace::source::OpenSpan;

/// Spans read at a time.
const BATCH: usize = 256;

/// Open spans and how many found no entry.
#[derive(Debug, Default)]
pub(crate) struct Spans {
    pub(crate) open: Vec<OpenSpan>,
    pub(crate) dropped: u64,
    pub(crate) notes: Vec<String>,
}

/// Reads the table, as far as the image has it.
pub(crate) fn read(image: &dyn Image, region: &Region, budget: &Budget) -> Spans {
    let mut spans = Spans::default();
    let capacity = match control(image, region, budget, &mut spans) {
        Ok(capacity) => capacity,
        Err(error) => {
            spans.notes.push(format!("{error}: open spans cannot be read"));
            return spans;
        }
    };
    if spans.dropped > 0 {
        spans.notes.push(format!(
            "{} spans found no room among the {capacity} entries of the table: which of them are open is not known",
            spans.dropped
        ));
    }
    let mut at = 0usize;
    while at < capacity {
        let batch = BATCH.min(capacity.saturating_sub(at));
        if let Err(error) = entries(image, region, at, batch, budget, &mut spans) {
            spans.notes.push(format!("{error}: open spans from entry {at} on cannot be read"));
            break;
        }
        at = at.saturating_add(batch);
    }
    spans.open.sort_by_key(|s| (s.opened, s.id));
    spans
}

fn control(image: &dyn Image, region: &Region, budget: &Budget, spans: &mut Spans) -> Result<usize, Error> {
    let bytes = part(image, region, abi::CONTROL_OFF as u64, size_of::<SpansControl>(), budget)?;
    let what = region.place();
    let r = Reader::new(&what, &bytes, region.order).based(abi::CONTROL_OFF as u64);
    spans.dropped = field!(r, 0, SpansControl, dropped, u64_at)?;
    let said = field!(r, 0, SpansControl, capacity, u32_at)?;
    let room = region.size.saturating_sub(abi::SPANS_OFF as u64).checked_div(size_of::<Span>() as u64).unwrap_or(0);
    if u64::from(said) > room {
        spans.notes.push(format!(
            "{what}: offset {:#x}: a table of {said} spans is said, {room} fit the region",
            abi::CONTROL_OFF
        ));
    }
    Ok(usize::try_from(room.min(u64::from(said))).unwrap_or(0))
}

fn entries(
    image: &dyn Image,
    region: &Region,
    first: usize,
    count: usize,
    budget: &Budget,
    spans: &mut Spans,
) -> Result<(), Error> {
    let skip = first.saturating_mul(size_of::<Span>());
    let offset = abi::SPANS_OFF.saturating_add(skip) as u64;
    let bytes = part(image, region, offset, count.saturating_mul(size_of::<Span>()), budget)?;
    let what = region.place();
    let r = Reader::new(&what, &bytes, region.order).based(offset);
    for entry in 0..count {
        let base = entry.saturating_mul(size_of::<Span>());
        let id = field!(r, base, Span, id, u64_at)?;
        if id == 0 || field!(r, base, Span, state, u32_at)? != abi::SPAN_OPEN {
            continue;
        }
        budget.steps(&what, 1)?;
        spans.open.push(span(&r, base, id, &mut spans.notes)?);
    }
    Ok(())
}

fn span(r: &Reader<'_>, base: usize, id: u64, notes: &mut Vec<String>) -> Result<OpenSpan, Error> {
    let said = field!(r, base, Span, text_len, u32_at)? as usize;
    if said > abi::TEXT_LEN {
        notes.push(format!("{}: span {id}: a text of {said} bytes is said, {} fit", r.what(), abi::TEXT_LEN));
    }
    let text = field!(r, base, Span, text, bytes_at, said.min(abi::TEXT_LEN))?;
    let text = String::from_utf8_lossy(text);
    let mut parts = text.splitn(3, '\u{1f}').map(str::to_owned);
    let level = field!(r, base, Span, level, u32_at)?;
    let entered = field!(r, base, Span, entered, u64_at)?;
    Ok(OpenSpan {
        id,
        parent: field!(r, base, Span, parent, u64_at)?,
        opened: field!(r, base, Span, opened, u64_at)?,
        opener: thread(field!(r, base, Span, opener, u64_at)?),
        entered: (entered != 0).then(|| thread(entered)),
        level: u8::try_from(level).unwrap_or(0),
        target: parts.next().unwrap_or_default(),
        name: parts.next().unwrap_or_default(),
        fields: parts.next().unwrap_or_default(),
    })
}

/// Process and thread of a word.
fn thread(word: u64) -> (u32, u32) {
    ((word >> 32) as u32, (word & 0xffff_ffff) as u32)
}
