//! The account that a thread keeps of what it does.

use std::collections::BTreeMap;
use std::path::Path;

/// Values that are made of a number.
pub(super) struct Value {
    pub(super) big: u64,
    pub(super) cents: i64,
    pub(super) share: f64,
    pub(super) yes: bool,
    pub(super) user: String,
    /// The id of a trace, which some spans record.
    pub(super) trace: Option<String>,
}

impl Value {
    pub(super) fn new(n: u64) -> Self {
        Self {
            big: u64::MAX - n,
            cents: -(n as i64),
            share: n as f64 / 3.0,
            yes: n.is_multiple_of(2),
            user: format!("user \"{n}\"\u{e9}\n"),
            trace: n.is_multiple_of(2).then(|| format!("{:032x}", 1u128 << 100 | u128::from(n))),
        }
    }
}

/// Something that a thread did, or had begun to do.
#[derive(Debug, Clone)]
pub(super) struct Deed {
    pub(super) what: String,
    /// When it was begun.
    pub(super) begun: i128,
    /// When it was done, and the id of the span that it was done in, or that was opened.
    pub(super) done: Option<(i128, u64)>,
}

/// Reads the account of a thread: what it did, by number. A line that was cut is not there.
pub(super) fn read(file: &Path) -> BTreeMap<u64, Deed> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut deeds: BTreeMap<u64, Deed> = BTreeMap::new();
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        let words: Vec<&str> = line.split(' ').collect();
        let [kind, n, time, last] = words.as_slice() else { panic!("{line}") };
        let (n, time) = (n.parse().expect("a number"), time.parse().expect("a time"));
        if *kind == "begin" {
            deeds.insert(n, Deed { what: (*last).to_owned(), begun: time, done: None });
        } else {
            let deed = deeds.get_mut(&n).expect("what was begun");
            deed.done = Some((time, last.parse().expect("an id")));
        }
    }
    deeds
}
