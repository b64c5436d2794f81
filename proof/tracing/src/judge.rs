//! Compares what was recovered with what must be there.

use std::collections::HashMap;

use anyhow::{Context as _, Result, bail, ensure};
use lastwords_testkit::json::Json;

use crate::found::Event;
use crate::model::{Model, Span, Wanted, What};
use crate::value::{Expected, stored};

/// The mark of a text that was cut.
const CUT: &str = "…";
/// Texts of an event that together have so many bytes are never cut.
const ROOM: usize = 3000;
/// The text of a span that has so many bytes is not cut.
const SPAN_ROOM: usize = 150;

/// What the program did before it was killed.
pub(crate) struct Report {
    /// For the main thread and each thread: its id, and the steps that it had done.
    pub(crate) threads: Vec<(u64, usize)>,
}

/// What was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Ctf,
    Perfetto,
    Text,
}

impl Format {
    /// The name of a field. CTF has letters, digits and underscores alone.
    fn field(self, name: &str) -> String {
        let plain = |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
        if self == Self::Ctf { name.chars().map(plain).collect() } else { name.to_owned() }
    }
}

/// Figures of judged events.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sum {
    pub(crate) events: u64,
    pub(crate) values: u64,
    pub(crate) cut: u64,
}

/// Judges all events of a session.
pub(crate) fn judge(model: &Model, report: &Report, format: Format, found: &[Event]) -> Result<Sum> {
    let mut judge = Judge { model, format, ids: HashMap::new(), sum: Sum::default() };
    let known: Vec<u64> = report.threads.iter().map(|(tid, _)| *tid).collect();
    if let Some(event) = found.iter().find(|event| !known.contains(&event.tid)) {
        bail!("INVENTED: an event of thread {}, {}", event.tid, event.name);
    }
    for (thread, wanted) in model.threads.iter().enumerate() {
        let (tid, done) = report.threads[thread];
        let found: Vec<&Event> = found.iter().filter(|event| event.tid == tid).collect();
        // The step at which the program died may have recorded.
        let least = wanted.iter().filter(|wanted| wanted.step < done).count();
        let most = wanted.iter().filter(|wanted| wanted.step <= done).count();
        for (number, (wanted, found)) in wanted[..most].iter().zip(&found).enumerate() {
            let place = || format!("thread {thread}, event {number} (step {}): {}", wanted.step, found.shown());
            judge.event(wanted, found).with_context(place)?;
        }
        if found.len() < least {
            let missing = &wanted[found.len()];
            bail!("LOST, thread {thread}: {} of {least} events, the next was {missing:?}", found.len());
        }
        ensure!(found.len() <= most, "INVENTED, thread {thread}: {} events of {most}", found.len());
    }
    Ok(judge.sum)
}

struct Judge<'a> {
    model: &'a Model,
    format: Format,
    /// The id of each span, as its first event has it.
    ids: HashMap<Span, u64>,
    sum: Sum,
}

impl Judge<'_> {
    fn event(&mut self, wanted: &Wanted, found: &Event) -> Result<()> {
        ensure!(wanted.names.contains(&found.name), "NAME: one of {:?} expected", wanted.names);
        let mut fields: Vec<(&str, &Json)> = found.fields.iter().map(|(name, value)| (&**name, value)).collect();
        self.span(wanted, &mut fields)?;
        let mut texts = Texts::default();
        if let Some((message, is_constant)) = &wanted.message {
            match take(&mut fields, "message") {
                Some(found) => texts.check("message", message, self.format, found)?,
                None => {
                    let is_name = *is_constant && found.name.ends_with(&format!(":{message}"));
                    ensure!(is_name, "LOST: the message {message:?}");
                }
            }
        }
        for (name, value) in &wanted.fields {
            let found = take(&mut fields, &self.format.field(name))
                .with_context(|| format!("LOST: field {name} = {value:?}"))?;
            match value {
                Expected::Text(text) => texts.check(name, text, self.format, found)?,
                other => ensure!(is(other, found, self.format), "WRONG: field {name} is {found:?}, expected {other:?}"),
            }
        }
        ensure!(fields.is_empty(), "INVENTED: fields {fields:?}");
        let numbers = wanted.fields.len() + 4 - texts.all.len().min(wanted.fields.len());
        texts.judge(numbers)?;
        self.sum.events += 1;
        self.sum.values += wanted.fields.len() as u64;
        self.sum.cut += texts.all.iter().filter(|text| text.kept.is_some()).count() as u64;
        Ok(())
    }

    /// Takes the fields that say which span an event is in, or is of.
    fn span(&mut self, wanted: &Wanted, fields: &mut Vec<(&str, &Json)>) -> Result<()> {
        let mut id = |name| -> Result<Option<u64>> {
            let Some(value) = take(fields, name) else { return Ok(None) };
            let Json::Number(digits) = value else { bail!("WRONG: {name} is {value:?}") };
            Ok(Some(digits.parse()?))
        };
        match wanted.what {
            What::Event(None) => {
                let (found, id) = (take(fields, "span"), take(fields, "span_id"));
                ensure!(found.is_none() && id.is_none(), "SPAN: {found:?} {id:?}, but the event was in none");
            }
            What::Event(Some(span)) => {
                let id = id("span_id")?.context("SPAN: none, but the event was in one")?;
                let text = take(fields, "span").and_then(|text| text_of(self.format, text)).context("SPAN: no text")?;
                let known = self.ids.get(&span);
                let is_right = wanted.span_text.as_ref().is_some_and(|expected| is_span_text(expected, text));
                ensure!(is_right, "SPAN: {text:?}, expected {:?}", wanted.span_text);
                ensure!(known == Some(&id), "SPAN: id {id}, but the span that it was in has {known:?}");
            }
            What::New(span, parent) => {
                let own = id("span_id")?.context("no id")?;
                let found = id("parent_id")?.context("no id of the parent")?;
                let expected = parent.map_or(Some(&0), |parent| self.ids.get(&parent));
                ensure!(expected == Some(&found), "SPAN: parent {found}, expected {expected:?}");
                self.ids.insert(span, own);
            }
            What::Record(span) | What::Close(span) => {
                let own = id("span_id")?.context("no id")?;
                let expected = self.ids.get(&span);
                let site = self.model.spans[span].site;
                ensure!(expected == Some(&own), "SPAN: id {own}, expected {expected:?}, of callsite {site}");
            }
        }
        Ok(())
    }
}

/// A text of an event: how long it was, and how much of it was kept if it was cut.
struct Text {
    name: String,
    len: usize,
    kept: Option<usize>,
}

#[derive(Default)]
struct Texts {
    all: Vec<Text>,
}

impl Texts {
    fn check(&mut self, name: &str, expected: &str, format: Format, found: &Json) -> Result<()> {
        let found = text_of(format, found).with_context(|| format!("WRONG: field {name} is {found:?}"))?;
        let expected = stored(expected);
        let len = expected.len();
        if found == expected {
            self.all.push(Text { name: name.into(), len, kept: None });
            return Ok(());
        }
        let begins = found.strip_suffix(CUT).filter(|kept| expected.starts_with(kept));
        let Some(kept) = begins else {
            let is_part = expected.starts_with(found);
            ensure!(!is_part, "CUT WITHOUT A MARK: {name}, {} bytes of {len}", found.len());
            bail!("WRONG: field {name} is {found:?}, expected {expected:?}");
        };
        self.all.push(Text { name: name.into(), len, kept: Some(kept.len()) });
        Ok(())
    }

    /// Each text must have had its share of the room.
    fn judge(&self, numbers: usize) -> Result<()> {
        let room = ROOM.saturating_sub(9 * numbers);
        let total: usize = self.all.iter().map(|text| text.len + 1).sum();
        let share = room / self.all.len().max(1);
        for text in &self.all {
            let Some(kept) = text.kept else { continue };
            let Text { name, len, .. } = text;
            ensure!(total > room, "CUT: {name} of {len} bytes, though all texts together have {total}");
            ensure!(*len > share, "UNFAIR: {name} of {len} bytes is cut to {kept}, its share is {share}");
            ensure!(kept >= share * 3 / 4, "UNFAIR: {name} of {len} bytes is cut to {kept}, its share is {share}");
        }
        Ok(())
    }
}

/// The text of a value. Lines of text have words without quotes.
fn text_of(format: Format, value: &Json) -> Option<&str> {
    match value {
        Json::Text(text) => Some(text),
        Json::Number(word) if format == Format::Text => Some(word),
        _ => None,
    }
}

fn take<'a>(fields: &mut Vec<(&str, &'a Json)>, name: &str) -> Option<&'a Json> {
    let at = fields.iter().position(|(known, _)| *known == name)?;
    Some(fields.remove(at).1)
}

/// Returns true if the text of a span is the expected one, or is marked as the beginning of one that is too long.
fn is_span_text(expected: &str, found: &str) -> bool {
    if expected == found {
        return true;
    }
    let kept = found.strip_suffix('}').unwrap_or(found).strip_suffix(CUT);
    kept.is_some_and(|kept| expected.len() > SPAN_ROOM && expected.starts_with(kept))
}

fn is(expected: &Expected, found: &Json, format: Format) -> bool {
    match (expected, found) {
        (Expected::Unsigned(value), Json::Number(digits)) => digits.parse() == Ok(*value),
        (Expected::Signed(value), Json::Number(digits)) => digits.parse() == Ok(*value),
        (Expected::Bool(value), Json::Bool(found)) => value == found,
        (Expected::Bool(value), Json::Number(word)) => match format {
            Format::Ctf => *word == u8::from(*value).to_string(),
            _ => *word == value.to_string(),
        },
        (Expected::Float(value), found) => is_float(*value, found, format),
        _ => false,
    }
}

fn is_float(value: f64, found: &Json, format: Format) -> bool {
    match (format, found) {
        (Format::Perfetto, Json::Number(bits)) => {
            let bits = bits.strip_prefix("0x").and_then(|bits| u64::from_str_radix(bits, 16).ok());
            bits.is_some_and(|bits| bits == value.to_bits() || (value.is_nan() && f64::from_bits(bits).is_nan()))
        }
        (Format::Json, Json::Number(digits)) => digits.parse::<f64>().is_ok_and(|f| f.to_bits() == value.to_bits()),
        (Format::Json, Json::Text(text)) => {
            let name = if value.is_nan() {
                "NaN"
            } else if value > 0.0 {
                "inf"
            } else {
                "-inf"
            };
            !value.is_finite() && text == name
        }
        // Six digits are shown, as C's `%g` does.
        (_, Json::Number(word)) if value.is_nan() => word.trim_start_matches('-') == "nan",
        (_, Json::Number(word)) => word.parse::<f64>().is_ok_and(|found| {
            let near = if value.is_infinite() { 0.0 } else { (value * 1e-5).abs().max(f64::MIN_POSITIVE) };
            found == value || ((found - value).abs() <= near && found.is_sign_negative() == value.is_sign_negative())
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &str, found: &str) -> Result<Texts> {
        let mut texts = Texts::default();
        texts.check("a", expected, Format::Json, &Json::Text(found.into()))?;
        Ok(texts)
    }

    #[test]
    fn cuts_need_a_mark_and_a_reason() {
        assert!(check("abc", "abc").unwrap().judge(0).is_ok());
        assert!(check("a\0c", "a\u{1a}c").unwrap().judge(0).is_ok());
        let error = |found: &str| check("abc", found).err().unwrap().to_string();
        assert!(error("ab").starts_with("CUT WITHOUT A MARK"));
        assert!(error("").starts_with("CUT WITHOUT A MARK"));
        assert!(error("abd").starts_with("WRONG"));
        assert!(check("abc", "ab…").unwrap().judge(0).is_err());
        let long = "b".repeat(5000);
        assert!(check(&long, &format!("{}…", &long[..2900])).unwrap().judge(0).is_ok());
        assert!(check(&long, &format!("{}…", &long[..100])).unwrap().judge(0).is_err());
    }

    #[test]
    fn texts_of_spans() {
        assert!(is_span_text("a::b{x=1}", "a::b{x=1}"));
        assert!(!is_span_text("a::b{x=1}", "a::b{x…}"));
        let long = format!("a::b{{x={}}}", "y".repeat(300));
        assert!(is_span_text(&long, &format!("{}…}}", &long[..150])));
        assert!(!is_span_text(&long, &format!("{}…}}", "a::c")));
    }
}
