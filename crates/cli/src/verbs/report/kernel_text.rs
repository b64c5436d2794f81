//! Prints the file `trace` of an instance of the running kernel, where the kernel's memory cannot
//! be read. Reading it consumes nothing.

use super::Args;
use crate::exit::{Facts, Outcome};
use crate::lines::Lines;
use crate::pager::Pager;
use crate::say;
use crate::table::plain;
use crate::text::LineStyle;
use anyhow::Context;
use lastwords_ftrace::dat;
use lastwords_render::evidence::Losses;
use lastwords_render::missing::count;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

/// Returns the folder of the instance that is the only input; none if there are others.
pub(super) fn instance(args: &Args) -> Option<PathBuf> {
    let [word] = args.input.inputs.as_slice() else { return None };
    lastwords_live::instance_folder(word)
}

/// Prints the kernel's own text. `why`: why its memory cannot be read.
///
/// # Errors
/// An option needs the events themselves; the file cannot be read.
pub(super) fn run(args: &Args, folder: &Path, why: anyhow::Error) -> anyhow::Result<Outcome> {
    let is_own_text =
        args.fields.is_empty() && matches!(args.style, None | Some(LineStyle::Ftrace));
    if args.input.hides_fields()
        || !is_own_text
        || !args.events.is_default()
        || args.relative
        || args.with_log
    {
        return Err(why.context(
            "without the kernel's memory there is the kernel's own text alone, of which these options choose nothing: --consume takes the \
             events out of the rings and reads them",
        ));
    }
    say::note(plain(&lastwords_open::chain(&why)));
    say::note(
        "this is the kernel's own text; --consume reads the events themselves, and takes them out of the rings",
    );
    let file = if args.input.snapshot { "snapshot" } else { "trace" };
    let path = folder.join(file);
    let named = || path.display().to_string();
    let mut text = BufReader::new(File::open(&path).with_context(named)?);
    let mut out = Pager::open(!args.no_pager);
    let mut lines = Lines::new(&mut out, &args.grep, None);
    let (mut line, mut events) = (Vec::new(), 0u64);
    while text.read_until(b'\n', &mut line).with_context(named)? > 0 {
        let shown = String::from_utf8_lossy(&line);
        events += u64::from(!shown.starts_with('#') && !shown.trim().is_empty());
        lines.put(format_args!("{}\n", plain(shown.trim_end_matches('\n'))))?;
        line.clear();
    }
    let matched = lines.finish()?;
    out.finish()?;
    let lost = lost(folder).with_context(named)?;
    if lost > 0 {
        say::warning(format_args!(
            "{} lost in the rings, by the kernel's counters",
            count(lost, "event")
        ));
    }
    let shown = matched.filter(|_| !args.grep.is_empty()).unwrap_or(events);
    let losses = Losses { events: lost, any: lost > 0, ..Losses::default() };
    Ok(Facts { strict: args.strict, losses, nothing: shown == 0, ..Facts::default() }.outcome())
}

/// Returns the events that the rings discarded. What a ring overwrote is not lost.
fn lost(folder: &Path) -> anyhow::Result<u64> {
    let mut lost = 0u64;
    for entry in folder.join("per_cpu").read_dir()? {
        let stats = dat::counters(&std::fs::read_to_string(entry?.path().join("stats"))?);
        lost = lost.saturating_add(stats.dropped).saturating_add(stats.commit_overrun);
    }
    Ok(lost)
}
