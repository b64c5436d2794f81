//! Compares what was read of an image that lacks pages with what was read of the whole one.

use std::collections::{BTreeMap, BTreeSet};

use crate::read::{Array, Line};

/// The result of judging one image, or the sum of several.
#[derive(Debug, Default, Clone)]
pub(crate) struct Verdict {
    pub(crate) lines: u64,
    /// Lines that differ in parts that are printed as unknown or raw.
    pub(crate) partly: u64,
    /// Lines under an array whose name is not known.
    pub(crate) unattributed: u64,
    pub(crate) missing: u64,
    /// Facts that are not known.
    pub(crate) unknown: u64,
    /// Images without the kernel's own tables, which nothing in the image replaces.
    pub(crate) refused: u64,
    pub(crate) wrong: Vec<String>,
}

impl Verdict {
    pub(crate) fn add(&mut self, other: Self) {
        self.lines += other.lines;
        self.partly += other.partly;
        self.unattributed += other.unattributed;
        self.missing += other.missing;
        self.unknown += other.unknown;
        self.refused += other.refused;
        self.wrong.extend(other.wrong);
    }

    /// Judges the lines of an array, those first that are there as they were. `told` is true if the
    /// account has losses that the whole image does not have.
    fn judge_lines(&mut self, array: &Array, truth: &mut Truth<'_>, knows_cpu: bool, told: bool) {
        let mut wrong = BTreeSet::new();
        let rest: Vec<&Line> = array
            .lines
            .iter()
            .filter(|line| truth.take(|other| other == *line, line.time).is_none())
            .collect();
        for line in rest {
            let partly = truth.take(|other| is_partly(other, line, knows_cpu), line.time);
            match partly {
                Some(_) if told || array.has_notes => self.partly += 1,
                Some(_) if wrong.insert("NOT TOLD") => {
                    self.wrong.push(format!("NOT TOLD: {:?} has {line:?}", array.name));
                }
                None if wrong.insert("INVENTED") => {
                    let near = truth.0.get(&line.time).and_then(|lines| lines.first());
                    self.wrong.push(format!(
                        "INVENTED: {:?} has {line:?}\n      near: {near:?}",
                        array.name
                    ));
                }
                _ => {}
            }
        }
    }

    /// Judges the facts of an array that is `own` in the whole image.
    fn judge_facts(&mut self, array: &Array, own: &Array, told: bool) {
        for ((what, fact), (_, truth)) in array.facts.iter().zip(&own.facts) {
            let name = &own.name;
            match (fact, truth) {
                (Some(fact), Some(truth)) if fact != truth => {
                    self.wrong
                        .push(format!("FACT: the {what} of {name:?} is {fact}, expected {truth}"));
                }
                (None, Some(_)) => {
                    self.unknown += 1;
                    if !told {
                        self.wrong.push(format!("NOT TOLD: the {what} of {name:?}"));
                    }
                }
                _ => {}
            }
        }
        if let (Some(bytes), Some(all)) = (array.bytes, own.bytes)
            && bytes < all
        {
            self.wrong.push(format!("COUNT: {bytes} of {all} bytes of {:?}", own.name));
        }
    }
}

/// The lines of the whole image by array, or of all together.
struct Truth<'a>(BTreeMap<u64, Vec<&'a Line>>);

impl<'a> Truth<'a> {
    fn by_time(lines: impl Iterator<Item = &'a Line>) -> Self {
        let mut all: BTreeMap<u64, Vec<&Line>> = BTreeMap::new();
        lines.for_each(|line| all.entry(line.time).or_default().push(line));
        Self(all)
    }

    /// Takes a line of a time out.
    fn take(&mut self, is_wanted: impl Fn(&Line) -> bool, time: u64) -> Option<&'a Line> {
        let at_time = self.0.get_mut(&time)?;
        let place = at_time.iter().position(|line| is_wanted(line))?;
        Some(at_time.swap_remove(place))
    }
}

/// Returns true if the found line differs from the true one only in parts that it shows as unknown
/// or raw.
fn is_partly(truth: &Line, found: &Line, knows_cpu: bool) -> bool {
    let pid = |task: &str| task.rsplit('-').next().map(str::to_owned);
    let is_task = truth.task == found.task
        || (found.task.contains("<...>") && pid(&truth.task) == pid(&found.task));
    let is_cpu = truth.cpu == found.cpu || !knows_cpu;
    is_task && is_cpu && truth.flags == found.flags && is_text(&truth.text, &found.text)
}

/// Returns true if the texts are equal but for words that the found one shows raw: numbers in
/// hexadecimal in place of names.
fn is_text(truth: &str, found: &str) -> bool {
    if truth == found {
        return true;
    }
    let name = |text: &str| text.split(':').next().map(str::to_owned);
    // The event's kind is not known: the kernel's words for that are its id and its bytes.
    if found.starts_with("Unknown type") || found.starts_with("unknown") {
        return true;
    }
    // Markers begin with the name of a function.
    if found.starts_with("0x")
        && found.split_once(": ").map(|(_, text)| text)
            == truth.split_once(": ").map(|(_, text)| text)
    {
        return true;
    }
    // Without a print format, fields are printed: `field=0xff (255)`.
    if name(truth) == name(found) && found.contains(" (") && found.contains('=') {
        return true;
    }
    // A part of several words may be unknown.
    let mut parts = found.split("unknown");
    let (first, mut rest) = (parts.next().unwrap_or_default(), parts.collect::<Vec<_>>());
    if let (Some(last), Some(middle)) = (rest.pop(), truth.strip_prefix(first)) {
        let left = rest.iter().try_fold(middle, |left, part| Some(left.split_once(*part)?.1));
        if left.is_some_and(|left| left.ends_with(last)) {
            return true;
        }
    }
    let is_raw = |word: &str| {
        word.contains("0x")
            || (word.len() == 16 && u64::from_str_radix(word, 16).is_ok())
            || word.contains("UNKNOWN")
            || word.contains("unknown")
            || word.contains("[FAILED")
    };
    let words = |text: &str| text.split([' ', '=', ',']).map(str::to_owned).collect::<Vec<_>>();
    let (a, b) = (words(truth), words(found));
    // An address stands for a text of several words where it is the whole message.
    let is_address =
        b.get(1..).is_some_and(|rest| matches!(rest, [word] if word.starts_with("(0x")));
    let is_alike = a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a == b || is_raw(b));
    name(truth) == name(found) && (is_alike || is_address)
}

/// Judges the arrays of a part that were read of an image without some pages.
pub(crate) fn judge(whole: &[Array], found: &[Array]) -> Verdict {
    let mut verdict = Verdict::default();
    let known: BTreeSet<&String> = whole.iter().flat_map(|array| &array.losses).collect();
    let is_told = |array: &Array| array.losses.iter().any(|loss| !known.contains(loss));
    for array in found {
        verdict.lines += array.lines.len() as u64;
        // `unknown-1` is a number and no name: it may be another array in the whole image.
        let own = whole
            .iter()
            .find(|other| other.name == array.name && !array.name.starts_with("unknown-"));
        let is_own = |other: &&Array| own.is_none_or(|own| own.name == other.name);
        // Where the whole image does not have the name either, its loss is not new.
        let told = if own.is_some() { is_told(array) } else { !array.losses.is_empty() };
        let lines = whole.iter().filter(is_own).flat_map(|other| &other.lines);
        let wanted = own.map_or(0, |own| own.lines.len());
        let any = own.is_none() || array.facts.contains(&("position", None));
        let more = whole.iter().filter(|_| any).filter(is_own).flat_map(|other| &other.more);
        let mut truth = Truth::by_time(lines.chain(more));
        verdict.judge_lines(array, &mut truth, own.is_some(), told);
        let Some(own) = own else {
            verdict.unattributed += array.lines.len() as u64;
            if !told {
                verdict.wrong.push(format!("NOT TOLD: the array {:?}", array.name));
            }
            continue;
        };
        let left = wanted.saturating_sub(array.lines.len()) as u64;
        verdict.missing += left;
        if left > 0 && !told {
            verdict
                .wrong
                .push(format!("LOST: {:?} lacks {left} of {wanted} lines, nothing lost", own.name));
        }
        verdict.judge_facts(array, own, told);
    }
    for lost in whole
        .iter()
        // Nothing says where zones of pstore are but the zones.
        .filter(|own| !own.lines.is_empty() && !own.name.starts_with("zone"))
        .filter(|own| found.iter().all(|array| array.name != own.name))
    {
        verdict.missing += lost.lines.len() as u64;
        if !found.iter().any(is_told) {
            verdict.wrong.push(format!("LOST: the array {:?}, nothing lost", lost.name));
        }
    }
    verdict
}
