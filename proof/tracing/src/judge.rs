//! Compares what was recovered with what must be there.

use std::collections::{BTreeSet, HashMap};

use anyhow::{Context as _, Result, bail, ensure};
use rig::json::Json;

use crate::found::Event;
use crate::model::{Model, Span, Wanted, What};
use crate::value::{Expected, stored};

/// The mark of a text that was cut.
const CUT: &str = "…";
/// Texts of an event that together have so many bytes are never cut.
const ROOM: usize = 3000;
/// The text of a span that has so many bytes is not cut.
const SPAN_ROOM: usize = 150;

/// Fields of a callsite beyond these are left out.
const MOST_FIELDS: usize = 512;
/// An event of so many values may have no room for some.
const MANY: usize = 300;

/// The steps of the program before it was killed.
pub(crate) struct Report {
    /// For the main thread and each thread: its id, and the steps that it had done.
    pub(crate) threads: Vec<(u64, usize)>,
}

/// The format that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Json,
    Ctf,
    Perfetto,
}

impl Format {
    /// Returns true if a field may have this name in place of the callsite's: control characters
    /// are replaced, names that come twice get a number, and CTF has letters, digits and
    /// underscores alone.
    fn is_name(self, name: &str, found: &str) -> bool {
        let word =
            |character: char| if character.is_ascii_alphanumeric() { character } else { '_' };
        let is_ctf = self == Self::Ctf;
        let name: String = if is_ctf { name.chars().map(word).collect() } else { plain(name) };
        let (name, found) = if is_ctf {
            (name.trim_start_matches('_'), found.trim_start_matches('_'))
        } else {
            (&*name, found)
        };
        let number = |rest: &str| rest.trim_start_matches('_').parse::<u32>().is_ok();
        found == name || found.strip_prefix(name).is_some_and(number)
    }
}

/// A value or the message of an event.
#[derive(Debug)]
enum Value<'a> {
    Of(&'a Expected),
    Message(&'a (String, bool)),
}

/// Figures of judged events.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Sum {
    pub(crate) events: u64,
    pub(crate) values: u64,
    pub(crate) cut: u64,
    /// Texts with NULs, of fields and of spans.
    pub(crate) changed: u64,
}

/// The events that a session may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    Nothing,
    /// The oldest events of all threads, and this many events that were refused.
    Oldest {
        refused: u64,
    },
    /// This many events anywhere.
    Any {
        refused: u64,
    },
}

impl Sum {
    pub(crate) fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.values += other.values;
        self.cut += other.cut;
        self.changed += other.changed;
    }
}

/// Judges all events of a session. Returns the ids of spans too.
pub(crate) fn judge(
    model: &Model,
    report: &Report,
    format: Format,
    lack: Lack,
    found: &[Event],
) -> Result<(Sum, HashMap<Span, u64>)> {
    // Where a rule disables the events of spans, no event says which id a new span has.
    let may_learn = lack != Lack::Nothing || model.has_rules;
    let is_whole = lack == Lack::Nothing;
    let mut judge =
        Judge { model, format, may_learn, is_whole, ids: HashMap::new(), sum: Sum::default() };
    let known: Vec<u64> = report.threads.iter().map(|(tid, _)| *tid).collect();
    if let Some(event) = found.iter().find(|event| !known.contains(&event.tid)) {
        bail!("INVENTED: an event of thread {}, {}", event.tid, event.name);
    }
    // Events that are missing, and the oldest ones, of which some may have been refused before
    // others were overwritten.
    let (mut missing, mut oldest) = (0, 0);
    for (thread, wanted) in model.threads.iter().enumerate() {
        let (tid, done) = report.threads[thread];
        // How often a value is formatted, and the event in its formatting recorded, is not told.
        let found: Vec<&Event> =
            found.iter().filter(|event| event.tid == tid && !event.is_loud()).collect();
        // The step at which the program died may have recorded.
        let least = wanted.iter().filter(|wanted| wanted.step < done).count();
        let most = wanted.iter().filter(|wanted| wanted.step <= done).count();
        let wanted = OfThread { all: &wanted[..most], least, thread };
        let one = match (lack, found.first()) {
            (Lack::Nothing, _) => wanted.follow(&mut judge, &found, 0, false)?,
            // Where events are like each other, the first one may be any of several. The right one
            // has the fewest gaps behind it.
            (Lack::Oldest { .. }, Some(first)) => {
                let is_first = |at: &usize| judge.clone().event(&wanted.all[*at], first).is_ok();
                let begins: Vec<usize> = (0..most).rev().filter(is_first).collect();
                let mut best: Option<(usize, Judge<'_>)> = None;
                let mut why = anyhow::anyhow!("no event is like it");
                for begin in begins {
                    let mut judge = judge.clone();
                    let missing = match wanted.follow(&mut judge, &found, begin, true) {
                        Ok(missing) => missing,
                        Err(error) => {
                            why = error;
                            continue;
                        }
                    };
                    if best.as_ref().is_none_or(|(least, _)| missing < *least) {
                        best = Some((missing, judge));
                    }
                }
                oldest += least;
                match best {
                    Some((missing, followed)) => {
                        judge = followed;
                        missing
                    }
                    None => bail!("INVENTED, thread {thread}: {}: {why:#}", first.shown()),
                }
            }
            (Lack::Oldest { .. }, None) => {
                oldest += least;
                0
            }
            (Lack::Any { .. }, _) => wanted.follow(&mut judge, &found, 0, true)?,
        };
        missing += one;
    }
    if let Lack::Oldest { refused } | Lack::Any { refused } = lack {
        // An event that was under way when the program died may be counted.
        let told = missing as u64..=(missing + oldest + report.threads.len()) as u64;
        let is_told =
            if model.is_loud { refused >= missing as u64 } else { told.contains(&refused) };
        ensure!(is_told, "LOST: {missing} events are missing, {refused} are told");
    }
    Ok((judge.sum, judge.ids))
}

/// The events that must be found of a thread.
struct OfThread<'a> {
    /// Those that may be there.
    all: &'a [Wanted],
    /// The number of those that must be there.
    least: usize,
    thread: usize,
}

impl OfThread<'_> {
    /// Judges the events that were found, the first of which may be this one. Returns how many are
    /// missing, if some `may_lack`.
    fn follow(
        &self,
        judge: &mut Judge<'_>,
        found: &[&Event],
        begin: usize,
        may_lack: bool,
    ) -> Result<usize> {
        let Self { all, least, thread } = self;
        let (mut at, mut missing) = (begin, 0);
        for (number, found) in found.iter().enumerate() {
            let mut next = at;
            while may_lack && next < all.len() && judge.clone().event(&all[next], found).is_err() {
                next += 1;
            }
            // Where no event is like this one, the next one's error tells more.
            let next = if next < all.len() { next } else { at };
            let Some(wanted) = all.get(next) else {
                bail!(
                    "INVENTED, thread {thread}: {} events of {}: {}",
                    number + 1,
                    all.len(),
                    found.shown()
                );
            };
            let place = || {
                format!("thread {thread}, event {number} (step {}): {}", wanted.step, found.shown())
            };
            judge.event(wanted, found).with_context(place)?;
            missing += next - at;
            at = next + 1;
        }
        if !may_lack && at < *least {
            bail!(
                "LOST, thread {thread}: {} of {least} events, the next was {:?}",
                found.len(),
                all[at]
            );
        }
        Ok(missing + least.saturating_sub(at))
    }
}

#[derive(Clone)]
struct Judge<'a> {
    model: &'a Model,
    format: Format,
    /// The event that has a span's id first may be lost.
    may_learn: bool,
    /// No event may be missing.
    is_whole: bool,
    /// The id of each span, as its first event has it.
    ids: HashMap<Span, u64>,
    sum: Sum,
}

impl Judge<'_> {
    fn event(&mut self, wanted: &Wanted, found: &Event) -> Result<()> {
        // An empty target is not shown.
        let is_named = |name: &String| {
            plain(name).trim_start_matches(':') == found.name.trim_start_matches(':')
        };
        ensure!(wanted.names.iter().any(is_named), "NAME: one of {:?} expected", wanted.names);
        let mut fields: Vec<(&str, &Json)> =
            found.fields.iter().map(|(name, value)| (&**name, value)).collect();
        self.span(wanted, &mut fields)?;
        // Fields are in the order of the callsite.
        let message = wanted.message.iter().map(|message| ("message", Value::Message(message)));
        let values = wanted.fields.iter().map(|(name, value)| (&**name, Value::Of(value)));
        let mut expected: Vec<_> = values.chain(message).zip(&wanted.places).collect();
        expected.sort_by_key(|(_, place)| **place);
        let mut fields = fields.into_iter().peekable();
        let (mut texts, mut left_out, mut numbers) = (Texts::default(), 0, 4);
        for ((name, value), place) in expected {
            let Some((_, found_value)) =
                fields.next_if(|(found, _)| self.format.is_name(name, found))
            else {
                // A constant message is the name.
                let is_name =
                    |text: &str| found.name == text || found.name.ends_with(&format!(":{text}"));
                if matches!(value, Value::Message((text, true)) if is_name(text)) {
                    continue;
                }
                // A value that is left out is counted, and there was no room for it.
                let has_no_room = *place >= MOST_FIELDS || wanted.fields.len() >= MANY;
                ensure!(has_no_room, "LOST: field {name} = {value:?}");
                left_out += 1;
                continue;
            };
            match value {
                Value::Message((text, _)) | Value::Of(Expected::Text(text)) => {
                    texts.check(name, text, found_value)?;
                }
                Value::Of(other) if wanted.is_any && matches!(found_value, Json::Text(_)) => {
                    let begin = text_of(found_value).unwrap_or_default().trim_end_matches(CUT);
                    let shown = shown(other);
                    let text =
                        shown.iter().find(|text| text.starts_with(begin)).unwrap_or(&shown[0]);
                    texts.check(name, text, found_value)?;
                }
                Value::Of(other) => {
                    let is_right = is(other, found_value, self.format);
                    ensure!(is_right, "WRONG: field {name} is {found_value:?}, expected {other:?}");
                    numbers += 1;
                }
            }
        }
        let rest: Vec<_> = fields.collect();
        ensure!(rest.is_empty(), "INVENTED: fields {rest:?}");
        if left_out == 0 {
            texts.judge(numbers)?;
        }
        self.sum.events += 1;
        self.sum.values += wanted.fields.len() as u64;
        self.sum.cut +=
            left_out + texts.all.iter().filter(|text| text.kept.is_some()).count() as u64;
        self.sum.changed += texts.all.iter().filter(|text| text.has_nul).count() as u64;
        Ok(())
    }

    /// Takes the fields that say which span an event is in, or is of.
    fn span(&mut self, wanted: &Wanted, fields: &mut Vec<(&str, &Json)>) -> Result<()> {
        let format = self.format;
        let mut id = |name| -> Result<Option<u64>> {
            let Some(value) = take_last(fields, name, format) else { return Ok(None) };
            let Json::Number(digits) = value else { bail!("WRONG: {name} is {value:?}") };
            Ok(Some(digits.parse()?))
        };
        match wanted.what {
            What::Event(None) => {
                // Fields of a span that are there are more than the event has.
            }
            What::Event(Some(span)) => {
                let id = id("span_id")?.context("SPAN: none, but the event was in one")?;
                let text = take_last(fields, "span", format)
                    .and_then(|text| text_of(text))
                    .context("SPAN: no text")?;
                self.learn(span, id);
                let known = self.ids.get(&span);
                let expected = wanted.span_text.as_ref().context("SPAN: it has no text")?;
                ensure!(is_span_text(expected, text), "SPAN: {text:?}, expected {expected:?}");
                self.sum.changed += u64::from(has_nul(expected, text));
                ensure!(
                    known == Some(&id),
                    "SPAN: id {id}, but the span that it was in has {known:?}"
                );
            }
            What::New(span, ref parents) => {
                let found = id("parent_id")?.context("no id of the parent")?;
                let own = id("span_id")?.context("no id")?;
                let known = |judge: &Self| -> Vec<u64> {
                    let id = |parent: &Option<Span>| {
                        parent.map_or(Some(0), |parent| judge.ids.get(&parent).copied())
                    };
                    parents.iter().filter_map(id).collect()
                };
                let unknown: BTreeSet<Span> = parents
                    .iter()
                    .flatten()
                    .filter(|parent| !self.ids.contains_key(parent))
                    .copied()
                    .collect();
                if let Some(one) =
                    unknown.first().filter(|_| unknown.len() == 1 && !known(self).contains(&found))
                {
                    self.learn(*one, found);
                }
                // It may be either of two spans whose first events are lost.
                let is_either = self.may_learn
                    && unknown.len() > 1
                    && !self.ids.values().any(|id| *id == found);
                let expected = known(self);
                ensure!(
                    is_either || expected.contains(&found),
                    "SPAN: parent {found}, expected {expected:?} of {parents:?}"
                );
                self.ids.insert(span, own);
            }
            What::Of(span) => {
                let own = id("span_id")?.context("no id")?;
                // Nothing else in the event says which span it is of.
                if self.is_whole {
                    self.learn(span, own);
                }
                let expected = self.ids.get(&span);
                let site = self.model.spans[span].site;
                let is_right = expected.map_or(!self.is_whole, |expected| *expected == own);
                ensure!(is_right, "SPAN: id {own}, expected {expected:?}, of callsite {site}");
            }
        }
        Ok(())
    }

    /// Notes the id of a span whose first event may be lost.
    fn learn(&mut self, span: Span, id: u64) {
        if self.may_learn && id != 0 && !self.ids.values().any(|known| *known == id) {
            self.ids.entry(span).or_insert(id);
        }
    }
}

/// A text of an event: how long it was, and how much of it was kept if it was cut.
struct Text {
    name: String,
    len: usize,
    kept: Option<usize>,
    /// There was a NUL in what was kept.
    has_nul: bool,
}

#[derive(Default)]
struct Texts {
    all: Vec<Text>,
}

impl Texts {
    fn check(&mut self, name: &str, expected: &str, found: &Json) -> Result<()> {
        let found = text_of(found).with_context(|| format!("WRONG: field {name} is {found:?}"))?;
        let (given, expected) = (expected, stored(expected));
        let len = expected.len();
        if found == expected {
            let has_nul = has_nul(given, found);
            self.all.push(Text { name: name.into(), len, kept: None, has_nul });
            return Ok(());
        }
        let begins = found.strip_suffix(CUT).filter(|kept| expected.starts_with(kept));
        let Some(kept) = begins else {
            let is_part = expected.starts_with(found);
            ensure!(!is_part, "CUT WITHOUT A MARK: {name}, {} bytes of {len}", found.len());
            bail!("WRONG: field {name} is {found:?}, expected {expected:?}");
        };
        let has_nul = has_nul(given, found);
        self.all.push(Text { name: name.into(), len, kept: Some(kept.len()), has_nul });
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
            ensure!(
                total > room,
                "CUT: {name} of {len} bytes, though all texts together have {total}"
            );
            ensure!(
                *len > share,
                "UNFAIR: {name} of {len} bytes is cut to {kept}, its share is {share}"
            );
            ensure!(
                kept + CUT.len() >= share * 3 / 4,
                "UNFAIR: {name} of {len} bytes is cut to {kept}, its share is {share}"
            );
        }
        Ok(())
    }
}

/// The text of a value.
fn text_of(value: &Json) -> Option<&str> {
    match value {
        Json::Text(text) => Some(text),
        _ => None,
    }
}

/// Takes the last field, if it has this name. A name that the callsite has too is followed by a
/// number.
fn take_last<'a>(
    fields: &mut Vec<(&str, &'a Json)>,
    name: &str,
    format: Format,
) -> Option<&'a Json> {
    fields.pop_if(|(found, _)| format.is_name(name, found)).map(|(_, value)| value)
}

/// The name without control characters.
fn plain(name: &str) -> String {
    name.replace(char::is_control, "_")
}

/// Returns true if the text of a span is the expected one, or is marked as the beginning of one
/// that is too long.
pub(crate) fn is_span_text(expected: &str, found: &str) -> bool {
    // The table of open spans keeps NULs.
    let (expected, found) = (&*stored(expected), &*stored(found));
    // A target that is cut leaves no room for the name.
    let found = found.strip_suffix("::").filter(|target| target.ends_with(CUT)).unwrap_or(found);
    if expected == found {
        return true;
    }
    let kept = found.strip_suffix('}').unwrap_or(found).strip_suffix(CUT);
    kept.is_some_and(|kept| expected.len() > SPAN_ROOM && expected.starts_with(kept))
}

/// Returns true if a NUL was in what is there of the text.
fn has_nul(expected: &str, found: &str) -> bool {
    let found = found.strip_suffix('}').unwrap_or(found);
    let kept = found.strip_suffix(CUT).unwrap_or(found).len();
    // A NUL and what replaces it have one byte each.
    expected.as_bytes()[..kept.min(expected.len())].contains(&0)
}

/// The texts that show the number or truth.
fn shown(value: &Expected) -> [String; 2] {
    match value {
        Expected::Unsigned(value) => [value.to_string(), value.to_string()],
        Expected::Signed(value) => [value.to_string(), value.to_string()],
        Expected::Bool(value) => [value.to_string(), value.to_string()],
        Expected::Float(value) => [value.to_string(), format!("{value:?}")],
        Expected::Text(text) => [text.clone(), text.clone()],
    }
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
            bits.is_some_and(|bits| {
                bits == value.to_bits() || (value.is_nan() && f64::from_bits(bits).is_nan())
            })
        }
        (Format::Json, Json::Number(digits)) => {
            digits.parse::<f64>().is_ok_and(|f| f.to_bits() == value.to_bits())
        }
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
        (_, Json::Number(word)) if value.is_nan() => {
            word.trim_start_matches('-').eq_ignore_ascii_case("nan")
        }
        (_, Json::Number(word)) => word.parse::<f64>().is_ok_and(|found| {
            let near =
                if value.is_infinite() { 0.0 } else { (value * 1e-5).abs().max(f64::MIN_POSITIVE) };
            found == value
                || ((found - value).abs() <= near
                    && found.is_sign_negative() == value.is_sign_negative())
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: &str, found: &str) -> Result<Texts> {
        let mut texts = Texts::default();
        texts.check("a", expected, &Json::Text(found.into()))?;
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
