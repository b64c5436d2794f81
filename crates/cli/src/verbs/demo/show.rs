//! Shows the last events of each thread.

use super::check;
use crate::{paint, say};
use lastwords_ctf::read::{Trace, unwatched};
use lastwords_render::select::Selection;
use lastwords_render::text::{self, Style, Zone};

/// The number of events that are shown of each thread.
const SHOWN: usize = 3;

/// Prints the last events of each thread, in the form of `report`.
pub(super) fn last_events(recovered: &check::Recovered, trace: &Trace) -> anyhow::Result<()> {
    let lasts: Vec<(u64, Vec<u64>)> = recovered
        .threads
        .iter()
        .map(|(thread, seen)| {
            (*thread, seen.iter().rev().take(SHOWN).rev().map(|s| s.line).collect())
        })
        .collect();
    let first = lasts.iter().flat_map(|(_, lines)| lines).min().copied().unwrap_or(0);
    let selection = Selection { last: Some(recovered.events - first), ..Selection::default() };
    let mut text = Vec::new();
    let traces = std::slice::from_ref(trace);
    text::write(
        traces,
        Style::Fields,
        &selection,
        &Zone::local(),
        &mut text,
        &unwatched,
        &mut |_| {},
    )?;
    let text = String::from_utf8_lossy(&text);
    let text: Vec<&str> = text.lines().collect();
    for (thread, lines) in lasts {
        say::own(format_args!("\n{}", paint::bold(format!("last words of thread {thread}"))));
        for line in lines {
            let at = usize::try_from(line - first).unwrap_or(usize::MAX);
            say::own(format_args!("  {}", text.get(at).copied().unwrap_or_default()));
        }
    }
    Ok(())
}
