//! Sessions, written in any format.

use super::{Format, Line, to_file};
use crate::inputs::{self, Input};
use crate::progress::Shared;
use crate::select::once;
use anyhow::bail;
use lastwords_ctf::Version;
use lastwords_ctf::write as ctf;
use lastwords_formats::select::Selection;
use lastwords_formats::text::{self, Style, Zone};
use lastwords_formats::{Totals, json, perfetto};
use lastwords_trace::source::Source;
use std::path::Path;

/// Writes one session as a CTF folder.
pub(crate) fn to_ctf(source: &dyn Source, version: Version, count: bool, path: &Path) -> anyhow::Result<Totals> {
    let bar = Shared::new(&source.schema().name, inputs::bytes(&[source]));
    Ok(ctf::write(source, path, ctf::Options { version, count_events: count }, &|bytes| bar.add(bytes))?)
}

/// Writes the chosen events of sessions, merged by time, as one file.
pub(crate) fn to_one(inputs: &[&Input], format: Format, selection: &Selection, path: &Path) -> anyhow::Result<Totals> {
    let sources: Vec<&dyn Source> = inputs.iter().map(|input| &*input.session as &dyn Source).collect();
    let traces = inputs.iter().map(|input| input.trace(Version::V2)).collect::<Result<Vec<_>, _>>()?;
    let bar = Shared::new(path.display().to_string(), inputs::bytes(&sources));
    let tell = |bytes| bar.add(bytes);
    let shown = once(selection.clone());
    let mut notes = |note| crate::evidence::tell(&note);
    let totals = match format {
        Format::TraceDat => bail!("trace-dat is for a kernel's trace; a session has ctf, ctf2, json, text, perfetto"),
        Format::Ctf | Format::Ctf2 => bail!("{}: CTF is a folder a session", path.display()),
        Format::Perfetto => to_file(path, |out| perfetto::packets::write(&traces, &shown, out, &tell, &mut notes))?,
        Format::Json => to_file(path, |out| json::write(&traces, selection, out, &tell, &mut notes))?,
        Format::Text => {
            let zone = Zone::local();
            to_file(path, |out| text::write(&traces, Style::Fields, &shown, &zone, out, &tell, &mut notes))?
        }
    };
    Ok(Totals { streams: used(&sources, selection), ..totals })
}

/// Streams of the chosen CPUs that have packets: what a folder of CTF has as files.
fn used(sources: &[&dyn Source], selection: &Selection) -> u64 {
    let is_used = |source: &dyn Source, stream: usize| source.packets(stream).next_packet(&mut Vec::new()).is_some();
    let of_one = |source: &&dyn Source| {
        let streams = source.streams().iter().enumerate().filter(|(_, stream)| selection.wants_cpu(stream.cpu));
        streams.filter(|(at, _)| is_used(*source, *at)).count() as u64
    };
    sources.iter().map(of_one).sum()
}

/// The line of one session.
pub(crate) fn line(input: &Input, path: &Path, totals: &Totals, counted: bool) -> Line {
    let source: &dyn Source = &*input.session;
    Line {
        path: path.to_owned(),
        session: source.schema().name.clone(),
        from: input.from.clone(),
        events: counted.then_some(totals.events),
        streams: totals.streams,
        packets: totals.packets,
        bytes: totals.bytes,
        lost_events: source.evidence().lost_events(),
        losses: source.evidence().has_losses() || totals.faults > 0,
        unreadable: false,
        merged: Vec::new(),
    }
}
