//! Prints events as text: all traces on one timeline, or the arrays of a kernel one after the
//! other.

mod arrays;
mod merged;
mod timeline;

use crate::account::Notes;
use crate::kernel_log::{log, timeline_of};
use crate::kernels::{kernels, print_remarks};
use crate::progress::{Progress, Shared};
use crate::say;
use crate::select::Chosen;
use crate::table::plain;
use crate::traces::Traces;
use anyhow::bail;
use lastwords_ctf::{Version, read};
use lastwords_ftrace::{ctf as ftrace_ctf, text as ftrace};
use lastwords_open::{Ftrace, Trace};
use lastwords_render::select::Selection;
use lastwords_render::text::chosen::{self, Columns};
use lastwords_render::text::{self, Style, Zone};
use lastwords_render::{Error, Totals};
use std::io::{self, Write};
use std::sync::Arc;

/// The styles of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LineStyle {
    /// Time, level, CPU, thread, spans, name, then the message or the fields
    Fields,
    /// The form of the kernel's `trace` file
    Ftrace,
    /// The form of babeltrace2; the default if there are only CTF traces and sessions of LTTng
    Babeltrace,
    /// Ticks, places, ids, and the bytes in hexadecimal
    Raw,
    /// The form of the kernel's option `latency-format`; only for a kernel's trace
    Latency,
}

/// Options for writing text.
#[derive(Default)]
pub(crate) struct Form<'a> {
    /// The style of lines. Without one, sessions have fields, CTF looks as in babeltrace2, and a
    /// kernel's trace follows its own options.
    pub(crate) style: Option<LineStyle>,
    /// Lines of sessions have the ids of spans, and all that is left out otherwise.
    pub(crate) verbose: bool,
    /// The fields that lines have in place of a style.
    pub(crate) columns: Option<&'a Columns>,
    /// The time zone of times of day.
    pub(crate) zone: Zone,
    /// The kernel's log appears among its events.
    pub(crate) with_log: bool,
    /// The title of the progress bar. Without one, no bar is shown.
    pub(crate) title: Option<&'a str>,
    /// A kernel's text has no header.
    pub(crate) no_header: bool,
    /// Times are those before a moment: by the clock of a trace array, if nothing relates that to
    /// real time.
    pub(crate) before: Option<i64>,
}

/// The text of trace arrays, for messages.
pub(crate) const KERNEL_TEXT: &str = "the text of a kernel's trace, which is the kernel's own";

/// The result of writing text.
#[derive(Debug, Default)]
pub(crate) struct TextResult {
    /// Counts of events, streams and bytes, and of packets that could not be decoded.
    pub(crate) totals: Totals,
    /// The remarks that reading made besides events.
    pub(crate) notes: Notes,
    /// The totals of trace arrays, by their positions among all traces.
    arrays: Vec<(usize, Totals)>,
    /// The reader of the text has left.
    pub(crate) is_closed: bool,
    /// The positions of the chosen fields of which no event had a value.
    pub(crate) unused: Vec<usize>,
}

impl LineStyle {
    /// Returns the style of all traces except those of ftrace.
    fn of_packets(style: Option<Self>, traces: &Traces) -> anyhow::Result<Style> {
        Ok(match style {
            None if traces.sessions().next().is_none() => Style::Babeltrace,
            None | Some(Self::Fields) => Style::Fields,
            Some(Self::Ftrace) => Style::Ftrace,
            Some(Self::Babeltrace) => Style::Babeltrace,
            Some(Self::Raw) => Style::Raw,
            Some(Self::Latency) => {
                bail!(
                    "--style latency is for a kernel's trace; others have fields, ftrace, babeltrace, raw"
                )
            }
        })
    }

    fn of_kernel(style: Option<Self>) -> anyhow::Result<ftrace::Style> {
        Ok(match style {
            None => ftrace::Style::AsSet,
            Some(Self::Ftrace) => ftrace::Style::Default,
            Some(Self::Fields) => ftrace::Style::Fields,
            Some(Self::Raw) => ftrace::Style::Raw,
            Some(Self::Latency) => ftrace::Style::Latency,
            Some(Self::Babeltrace) => {
                bail!(
                    "--style babeltrace is for sessions and CTF; a kernel's trace has ftrace, latency, fields, raw"
                )
            }
        })
    }
}

/// A run over the traces.
struct Run<'a> {
    traces: &'a Traces,
    /// All traces except those of ftrace, and the style of their lines.
    packets: Vec<read::Trace>,
    style: Style,
    chosen: &'a Chosen,
    form: &'a Form<'a>,
    result: TextResult,
}

/// Writes the chosen events.
///
/// # Errors
/// A style does not fit a kind of trace; `out` cannot be written.
pub(crate) fn write(
    traces: &Traces,
    chosen: &Chosen,
    form: &Form<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<TextResult> {
    if let Some(columns) = form.columns {
        return listed(traces, chosen, columns, form, out);
    }
    let style =
        if traces.is_ftrace() { Style::Fields } else { LineStyle::of_packets(form.style, traces)? };
    let style = match style {
        Style::Fields if form.verbose => Style::FieldsWithIds,
        style => style,
    };
    if traces.has_arrays() {
        LineStyle::of_kernel(form.style)?;
        traces.refuse_redacted(KERNEL_TEXT, "-F LIST, json, perfetto, otlp and view")?;
    }
    if style == Style::Raw {
        traces.refuse_redacted("--style raw, which prints bytes", "the other styles")?;
    }
    // babeltrace2 prints what `recover` writes: CTF 1.8.
    let version = if style == Style::Babeltrace { Version::V1_8 } else { Version::V2 };
    let packets = traces.packets(version)?;
    let mut run = Run { traces, packets, style, chosen, form, result: TextResult::default() };
    let arrays: Vec<&Trace> = traces.arrays().collect();
    let is_first = |array: &&Trace| {
        arrays.first().is_some_and(|first| Arc::ptr_eq(&array.origin, &first.origin))
    };
    // The kernel's own form of text is not merged, because it has a header.
    let is_merged = arrays.len() > 1
        && form.style == Some(LineStyle::Fields)
        && self::arrays::offsets(&arrays).is_some();
    let is_apart = arrays.iter().all(is_first) && !is_merged;
    let written = match (run.packets.is_empty(), arrays.is_empty()) {
        (false, true) => run.packets(out),
        (true, _) if is_apart => run.kernels(&arrays, out),
        _ => run.all(out),
    };
    match written {
        Err(error) if is_closed(&error) => run.result.is_closed = true,
        written => written?,
    }
    run.result.notes.renumber(&traces.of_packets());
    run.result.notes.of_traces.append(&mut run.result.arrays);
    Ok(run.result)
}

/// Writes the chosen fields of the chosen events, merged by time.
fn listed(
    traces: &Traces,
    chosen: &Chosen,
    columns: &Columns,
    form: &Form<'_>,
    out: &mut dyn Write,
) -> anyhow::Result<TextResult> {
    let packets = traces.packets(Version::V2)?;
    let bar =
        form.title.filter(|_| !packets.is_empty()).map(|title| Shared::new(title, bytes(&packets)));
    let watch = |bytes| bar.iter().for_each(|bar| bar.add(bytes));
    let (kernels, positions, remarks) =
        kernels(traces, chosen, ftrace_ctf::Form::Lines, form.with_log)?;
    let all = [packets, kernels].concat();
    let mut result = TextResult::default();
    let notes = &mut result.notes;
    let written =
        chosen::write(&all, columns, &chosen.once(), &form.zone, out, &watch, &mut |note| {
            notes.add(note)
        });
    match written.map_err(anyhow::Error::from) {
        Err(error) if is_closed(&error) => result.is_closed = true,
        written => {
            let written = written?;
            (result.totals, result.unused) = (written.totals, written.unused);
        }
    }
    result.notes.renumber(&[traces.of_packets(), positions].concat());
    print_remarks(&remarks);
    Ok(result)
}

/// Returns the names of chosen fields that no event of the traces has, each with a proposal.
pub(crate) fn unknown_fields(
    traces: &Traces,
    chosen: &Chosen,
    columns: &Columns,
) -> anyhow::Result<Vec<String>> {
    let (kernels, ..) = kernels(traces, chosen, ftrace_ctf::Form::Lines, false)?;
    Ok(columns.unknown(&[traces.packets(Version::V2)?, kernels].concat()))
}

fn is_closed(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Error>().is_some_and(Error::is_closed_pipe)
        || error
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

impl Run<'_> {
    /// Returns the selection for the style. In styles for people, an event that several channels
    /// have appears once.
    fn selection(chosen: &Chosen, style: Style) -> Selection {
        if matches!(style, Style::Fields | Style::FieldsWithIds | Style::Ftrace) {
            chosen.once()
        } else {
            chosen.selection()
        }
    }

    fn packets(&mut self, out: &mut dyn Write) -> anyhow::Result<()> {
        let selection = Self::selection(self.chosen, self.style);
        let bar = self.form.title.map(|title| Shared::new(title, bytes(&self.packets)));
        let watch = |bytes| bar.iter().for_each(|bar| bar.add(bytes));
        let Self { packets, style, form, result, .. } = self;
        let notes = &mut result.notes;
        result.totals =
            text::write(packets, *style, &selection, &form.zone, out, &watch, &mut |note| {
                notes.add(note)
            })?;
        Ok(())
    }

    /// Prints the arrays one after the other, each with the header that the kernel gives it. With
    /// several arrays, a line before the header names the array, and an array that has none of the
    /// last events is left out.
    fn kernels(&mut self, arrays: &[&Trace], out: &mut dyn Write) -> anyhow::Result<()> {
        for (array, last) in arrays.iter().zip(self.last_of_each(arrays)?) {
            if last == Some(0) && self.chosen.last != Some(0) {
                continue;
            }
            let Some((Ftrace { machine, index, .. }, ring)) = self.shown(array) else { continue };
            let lines =
                if self.form.with_log { log(array, self.form.verbose)? } else { Vec::new() };
            let mut options = self.options(array, self.chosen)?;
            options.choice.last = last;
            if arrays.len() > 1 {
                writeln!(out, "# instance: {}", self::arrays::name(array, arrays))?;
            }
            let read = std::iter::once(ring).filter(|_| self.form.title.is_some());
            let _bar = machine.meter.show(read, |total| {
                let mut bar = Progress::new(self.form.title.unwrap_or_default(), total);
                Box::new(move |done| bar.set(done))
            });
            let log = timeline_of(array, &lines);
            let summary = ftrace::write_with_log(out, &machine.tracing, index, &options, log)?;
            self.result.add(&summary, self.traces.position(array));
            let used = ring
                .cpus()
                .iter()
                .filter(|own| own.sub_buffers > 0 && self.chosen.wants_cpu(own.cpu));
            self.result.totals.streams += used.count() as u64;
        }
        Ok(())
    }

    /// Returns an array, and its ring if it has any of the chosen CPUs.
    fn shown<'t>(
        &self,
        array: &'t Trace,
    ) -> Option<(Ftrace<'t>, &'t Arc<dyn lastwords_ftrace::Ring>)> {
        let ftrace = array.ftrace()?;
        let ring = ftrace.ring?;
        let is_chosen = ring.cpus().iter().any(|own| self.chosen.wants_cpu(own.cpu));
        is_chosen.then_some((ftrace, ring))
    }

    /// Returns the moment before which times are shown, by the clock of an array.
    fn before(&self, array: &Trace) -> Option<i64> {
        let offset = array.ftrace().and_then(|ftrace| ftrace.real_time()).unwrap_or(0);
        self.form.before.map(|before| before.saturating_sub(offset))
    }

    fn options(&self, array: &Trace, chosen: &Chosen) -> anyhow::Result<ftrace::Options> {
        Ok(ftrace::Options {
            choice: chosen.choice(array.ftrace().as_slice()),
            style: LineStyle::of_kernel(self.form.style)?,
            no_header: self.form.no_header,
            before: self.before(array),
            ..ftrace::Options::default()
        })
    }
}

impl TextResult {
    /// Adds the result of a trace array at a position among all traces.
    fn add(&mut self, summary: &ftrace::Summary, position: Option<usize>) {
        let own = Totals { faults: summary.faults, ..Totals::default() };
        self.arrays.extend(position.map(|position| (position, own)));
        summary.notes.iter().for_each(|note| say::note(plain(note)));
        self.totals.events += summary.events;
        self.totals.bytes += summary.bytes;
        self.totals.faults += summary.faults;
    }
}

/// Returns the number of bytes of packets to be read.
pub(crate) fn bytes(traces: &[read::Trace]) -> u64 {
    traces.iter().map(read::Trace::bytes).fold(0, u64::saturating_add)
}
