//! Events and open spans as lines of text, so that tests compare lines. The naive reader reads the
//! events and their descriptions, as docs/ABI.md describes them.

pub(crate) mod end_of_thread;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use lastwords_testkit::naive::{self, Classes, Type};
use lastwords_testkit::put::Order;

/// Bytes that are read from the front.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, n: usize) -> &'a [u8] {
        let (first, rest) = self.0.split_at_checked(n).expect("bytes enough");
        self.0 = rest;
        first
    }

    fn number(&mut self, n: usize) -> u64 {
        let mut word = [0; 8];
        word[..n].copy_from_slice(self.take(n));
        u64::from_le_bytes(word)
    }

    fn signed(&mut self, n: usize) -> i64 {
        let shift = 64 - 8 * n;
        (self.number(n) as i64) << shift >> shift
    }

    fn text(&mut self) -> String {
        let len = self.0.iter().position(|byte| *byte == 0).expect("a NUL");
        let text = String::from_utf8_lossy(self.take(len)).into_owned();
        self.take(1);
        text
    }
}

/// Shows a value.
fn show(ty: &Type, from: &mut Bytes<'_>) -> String {
    match ty {
        Type::Integer(_, bytes, 16) => format!("{:#x}", from.number(*bytes)),
        Type::Integer(true, bytes, _) => from.signed(*bytes).to_string(),
        Type::Integer(_, bytes, _) => from.number(*bytes).to_string(),
        Type::Float(4) => f32::from_bits(from.number(4) as u32).to_string(),
        Type::Float(_) => f64::from_bits(from.number(8)).to_string(),
        Type::Bool => (from.number(1) == 1).to_string(),
        Type::String => format!("{:?}", from.text()),
        Type::Text(n) => String::from_utf8_lossy(from.take(*n)).trim_end_matches('\0').to_owned(),
        Type::Sequence(element) => {
            let count = from.number(4) as usize;
            many(count, element, from)
        }
        Type::Array(count, element) => many(*count, element, from),
        Type::Enum(is_signed, bytes, labels) => {
            let value = if *is_signed { from.signed(*bytes) } else { from.number(*bytes) as i64 };
            let label = labels.iter().find(|(of, _)| *of == value);
            label.map_or_else(|| value.to_string(), |(_, label)| label.clone())
        }
        Type::Optional(inner) => show(inner, from),
        Type::Bytes => {
            let count = from.number(4) as usize;
            from.take(count).iter().map(|byte| format!("{byte:02x}")).collect()
        }
        Type::Unknown => panic!("a type that is not known"),
    }
}

fn many(count: usize, element: &Type, from: &mut Bytes<'_>) -> String {
    let shown: Vec<String> = (0..count).map(|_| show(element, from)).collect();
    format!("[{}]", shown.join(" "))
}

fn registry(folder: &Path) -> Vec<u8> {
    std::fs::read(folder.join("registry")).expect("the registry")
}

/// Returns the records of the registry: kind and body.
pub(crate) fn records(folder: &Path) -> Vec<(u16, Vec<u8>)> {
    let file = registry(folder);
    let records = naive::records(&file, Order::Little).into_iter();
    records.map(|(kind, body)| (kind, body.to_vec())).collect()
}

fn classes(folder: &Path) -> Classes {
    Classes::read(&registry(folder), Order::Little, &[])
}

/// Returns the names of all described events and `FILE:LINE` of their callsites.
pub(crate) fn places(folder: &Path) -> Vec<(String, String)> {
    classes(folder).all().map(|class| (class.name.clone(), class.place.clone())).collect()
}

/// Returns the events of the session as `provider:name a=1 b="x"`, in order of time. There are
/// `skip` bytes of contexts before each payload.
pub(crate) fn lines_after(folder: &Path, skip: usize) -> Vec<String> {
    let in_channels = channel_lines(folder, skip);
    in_channels.into_iter().map(|(_, _, line)| line).collect()
}

/// Returns the events of a session without contexts, as [`lines_after`] does.
pub(crate) fn lines(folder: &Path) -> Vec<String> {
    lines_after(folder, 0)
}

/// Returns channel, level and line of each event.
pub(crate) fn channel_lines(folder: &Path, skip: usize) -> Vec<(u32, u64, String)> {
    let classes = classes(folder);
    let session = crate::common::read(folder);
    let channel: BTreeMap<u32, u32> =
        session.streams.iter().map(|stream| (stream.index, stream.channel)).collect();
    let mut events = session.events();
    events.sort_by_key(|(_, event)| event.clock);
    let mut lines = Vec::new();
    for (stream, event) in events {
        let class = classes.class(channel[&stream], event.id).expect("a description");
        let mut from = Bytes(&event.body[skip..]);
        let mut line = format!("{}:{}", class.provider, class.name);
        // A bit for each optional field, padded to whole bytes.
        let optional =
            class.fields.iter().filter(|(_, ty)| matches!(ty, Type::Optional(_))).count();
        let bits = from.take(optional.div_ceil(8));
        let mut bits = (0..).map(|at| bits[at / 8] >> (at % 8) & 1 == 1);
        for (name, ty) in &class.fields {
            if !matches!(ty, Type::Optional(_)) || bits.next() == Some(true) {
                let _ = write!(line, " {name}={}", show(ty, &mut from));
            }
        }
        assert!(from.0.is_empty(), "{line}: {} bytes left over", from.0.len());
        lines.push((channel[&stream], u64::from(class.level), line));
    }
    lines
}

/// Replaces ids of spans by their order of appearance.
pub(crate) fn with_ids_renamed(lines: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut ids: Vec<String> = vec!["0".to_owned()];
    let mut rename = |word: &str| match word.split_once('=') {
        Some((key @ ("span_id" | "parent_id"), id)) => {
            let known = ids.iter().position(|known| known == id);
            let at = known.unwrap_or_else(|| {
                ids.push(id.to_owned());
                ids.len() - 1
            });
            format!("{key}=#{at}")
        }
        _ => word.to_owned(),
    };
    lines
        .into_iter()
        .map(|line| line.split(' ').map(&mut rename).collect::<Vec<_>>().join(" "))
        .collect()
}

/// Returns the texts of the open spans, and whether they are entered, from the spans file as
/// docs/ABI.md describes it.
pub(crate) fn open_spans(folder: &Path) -> Vec<String> {
    let shown =
        |(text, _, count): (String, u32, u32)| if count == 0 { text } else { text + " entered" };
    open_spans_and_threads(folder).into_iter().map(shown).collect()
}

/// Returns the number of open spans that were evicted for newer ones.
pub(crate) fn evicted_spans(folder: &Path) -> u64 {
    counter_of_spans(folder, 152)
}

/// Returns the number of values that were left out of open spans because another thread was adding
/// to the same span.
pub(crate) fn skipped_values(folder: &Path) -> u64 {
    counter_of_spans(folder, 160)
}

/// Returns the number of open spans whose recorder the program replaced.
pub(crate) fn abandoned_spans(folder: &Path) -> u64 {
    counter_of_spans(folder, 168)
}

fn counter_of_spans(folder: &Path, at: usize) -> u64 {
    let file = std::fs::read(folder.join("spans")).expect("the spans");
    u64::from_ne_bytes(file[at..at + 8].try_into().expect("eight bytes"))
}

/// Returns the texts of the open spans, the threads that entered them last, or 0, and how many
/// threads are in them.
pub(crate) fn open_spans_and_threads(folder: &Path) -> Vec<(String, u32, u32)> {
    open_spans_by_time(folder).into_iter().map(|(_, span)| span).collect()
}

/// Returns the same with the times at which the spans were opened.
pub(crate) fn open_spans_by_time(folder: &Path) -> Vec<(u64, (String, u32, u32))> {
    let file = std::fs::read(folder.join("spans")).expect("the spans");
    let word = |at: usize| u64::from_ne_bytes(file[at..at + 8].try_into().expect("eight bytes"));
    let half = |at: usize| u32::from_ne_bytes(file[at..at + 4].try_into().expect("four bytes"));
    let mut spans = Vec::new();
    for n in 0..half(128) as usize {
        let at = 192 + 256 * n;
        if word(at) != 0 && half(at + 40) == 1 {
            let text = &file[at + 64..at + 64 + half(at + 44) as usize];
            let text = String::from_utf8_lossy(text).replace('\x1f', "|");
            spans.push((word(at + 16), (text, word(at + 32) as u32, half(at + 52) & 0xffff)));
        }
    }
    spans.sort();
    spans
}

/// Runs the test `name` of this program as a child that records in a folder of its own, until it
/// ends.
pub(crate) fn child(name: &str, dir: &Path) -> (ExitStatus, PathBuf) {
    let out = crate::common::test_of_this_module(name)
        .env(crate::common::DIR, dir)
        .env("RUST_BACKTRACE", "0")
        .output()
        .expect("the child starts");
    let found = lastwords_control::list(Some(dir)).expect("the folder is listed");
    assert_eq!(found.len(), 1, "{found:?}\n{}", String::from_utf8_lossy(&out.stderr));
    (out.status, found[0].folder.clone())
}

/// A child that has ended, and the folder of its session.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) folder: PathBuf,
    _dir: tempfile::TempDir,
}

impl Ended {
    /// Runs the test, whose path ends with a function's name, as a child.
    pub(crate) fn run(path: &str) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let (status, folder) = child(path.rsplit("::").nth(1).expect("the test"), dir.path());
        Self { status, folder, _dir: dir }
    }
}

/// Returns the number of values that were cut, from the registry's control words.
pub(crate) fn cut_values(folder: &Path) -> u64 {
    control_word(folder, 32)
}

/// Returns the number of texts in which NULs were replaced, from the registry's control words.
pub(crate) fn changed_texts(folder: &Path) -> u64 {
    control_word(folder, 56)
}

fn control_word(folder: &Path, at: usize) -> u64 {
    u64::from_ne_bytes(registry(folder)[128 + at..][..8].try_into().expect("eight bytes"))
}
