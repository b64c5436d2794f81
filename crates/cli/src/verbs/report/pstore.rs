//! Prints what pstore has kept in memories.

use super::Args;
use crate::exit::{Facts, Outcome};
use crate::pager::Pager;
use crate::table::plain;
use crate::{ended, say};
use lastwords_open::{Losses, Pstore, PstoreKind as Kind, PstoreZone as Zone};
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;

/// The format of [`Memories`].
const SCHEMA: &str = "lastwords.pstore.v1";

/// What pstore has kept in memories; docs/JSON.md describes it.
#[derive(Serialize)]
struct Memories {
    schema: &'static str,
    memories: Vec<OfMemory>,
    /// Inputs that cannot be read.
    faults: Vec<String>,
}

#[derive(Serialize)]
struct OfMemory {
    from: PathBuf,
    zones: Vec<OfZone>,
}

#[derive(Serialize)]
struct OfZone {
    address: u64,
    kind: &'static str,
    /// Nanoseconds since 1970, of a record.
    time: Option<i64>,
    text: String,
    /// Why data are missing, or null.
    missing: Option<String>,
}

impl OfZone {
    fn new(zone: &Zone) -> Self {
        Self {
            address: zone.address,
            kind: words(zone.kind).0,
            time: time(zone.kind),
            text: String::from_utf8_lossy(&zone.text).into_owned(),
            missing: zone.missing.clone(),
        }
    }
}

/// Prints the zones of all memories on stdout.
pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let (memories, failures) = args.input.pstore()?;
    let mut is_closed = false;
    if args.json {
        let of = |memory: &Pstore| OfMemory {
            from: memory.path.clone(),
            zones: memory.zones.iter().map(OfZone::new).collect(),
        };
        let faults = failures.iter().map(|failure| failure.why.clone()).collect();
        let memories = memories.iter().map(of).collect();
        say::json(&Memories { schema: SCHEMA, memories, faults }, false)?;
    } else {
        let mut out = Pager::open(!args.no_pager);
        let written = memories.iter().try_for_each(|memory| write(memory, &mut out));
        is_closed = written.is_err();
        say::failure(written).map_or(Ok(()), Err)?;
        is_closed |= !out.finish()?;
    }
    let mut losses = Losses::default();
    for memory in &memories {
        memory.notes.iter().for_each(|note| say::note(plain(note)));
        let path = plain(&memory.path.display().to_string());
        for (zone, why) in memory.zones.iter().filter_map(|z| Some((z, z.missing.as_ref()?))) {
            losses.any = true;
            say::warning(format_args!("{path}: the zone at {:#x}: {}", zone.address, plain(why)));
        }
        if memory.zones.is_empty() {
            say::note(format_args!("{path}: nothing of pstore is in this memory"));
        }
    }
    let facts = Facts {
        strict: args.strict,
        losses,
        worst_failure: failures.iter().map(|failure| failure.severity).max(),
        nothing: !is_closed && memories.iter().all(|memory| memory.zones.is_empty()),
        ..Facts::default()
    };
    Ok(facts.outcome())
}

fn write(memory: &Pstore, out: &mut dyn Write) -> io::Result<()> {
    let path = plain(&memory.path.display().to_string());
    for zone in &memory.zones {
        let (_, what) = words(zone.kind);
        let time = time(zone.kind).map(ended::date_and_time);
        let time = time.map_or_else(String::new, |time| format!(" of {time}"));
        writeln!(out, "# {path}: {what}{time} at {:#x}", zone.address)?;
        for line in zone.text.strip_suffix(b"\n").unwrap_or(&zone.text).split(|b| *b == b'\n') {
            writeln!(out, "{}", plain(&String::from_utf8_lossy(line)))?;
        }
    }
    Ok(())
}

/// Returns the name of a kind for programs, and the words for people.
fn words(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Record { .. } => ("record", "record"),
        Kind::Console => ("console", "console"),
        Kind::Other => ("other", "messages of programs, or what else is no kernel's log"),
    }
}

/// The time of a record, nanoseconds since 1970.
fn time(kind: Kind) -> Option<i64> {
    let Kind::Record { seconds, nanoseconds } = kind else { return None };
    seconds.checked_mul(1_000_000_000)?.checked_add(nanoseconds.into())
}
