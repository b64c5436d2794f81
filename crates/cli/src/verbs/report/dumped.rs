//! Prints what is in the memory of kernels beside traces: histograms of the tracer,
//! BPF programs and maps, buffers of perf.

use super::Args;
use crate::account::{self, LIMIT};
use crate::exit::{Facts, Outcome};
use crate::histograms::{One, safe};
use crate::pager::Pager;
use crate::say;
use crate::table::plain;
use lastwords_ftrace::histogram::{Histogram, heading};
use lastwords_ftrace::memory::{Histograms, histograms};
use lastwords_open::{DumpedKernel, Failure, Losses};
use lastwords_render::evidence::Report;
use lastwords_trace::evidence::Evidence;
use serde::Serialize;
use std::io::{self, Write};
use std::path::PathBuf;

/// A part of a kernel's memory.
pub(super) trait Part<'k>: Sized {
    /// The part as data.
    type Data: Serialize;
    /// The format of [`Kernels`].
    const SCHEMA: &'static str;
    /// The word for the part in accounts.
    const WORD: &'static str;

    /// Lists what is in the part.
    fn read(dump: &'k DumpedKernel) -> Self;
    /// Returns true if the kernel has nothing of the kind.
    fn is_empty(&self) -> bool;
    /// Writes it as text. `plain` escapes names.
    fn write(&mut self, plain: &dyn Fn(&str) -> String, out: &mut dyn Write) -> io::Result<()>;
    /// Returns it as data.
    fn data(&mut self) -> Self::Data;
    /// Returns what was lost.
    fn evidence(self) -> Evidence;
}

/// Histograms of a kernel as data.
#[derive(Serialize)]
pub(super) struct HistogramsData {
    histograms: Vec<One>,
}

impl Part<'_> for Histograms {
    type Data = HistogramsData;
    const SCHEMA: &'static str = "lastwords.kernel-histograms.v1";
    const WORD: &'static str = "histograms";

    fn read(dump: &DumpedKernel) -> Self {
        histograms(&dump.kernel)
    }

    fn is_empty(&self) -> bool {
        self.histograms.is_empty()
    }

    /// Writes them as `lastwords kernel hist` does: the kernel's text of an event, and before it the
    /// names of instance and event.
    fn write(&mut self, _: &dyn Fn(&str) -> String, out: &mut dyn Write) -> io::Result<()> {
        let of = |histogram: &Histogram| (histogram.instance.clone(), histogram.event.clone());
        for all in self.histograms.chunk_by(|a, b| of(a) == of(b)) {
            let Some(first) = all.first() else { continue };
            let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
            let text = heading(&first.instance, &first.event) + &texts.join("\n\n");
            // Texts in keys may be of others.
            text.lines().try_for_each(|line| writeln!(out, "{}", safe(line)))?;
            writeln!(out)?;
        }
        Ok(())
    }

    fn data(&mut self) -> Self::Data {
        let histograms = std::mem::take(&mut self.histograms);
        HistogramsData { histograms: histograms.into_iter().map(One::from).collect() }
    }

    fn evidence(self) -> Evidence {
        self.evidence
    }
}

#[cfg(feature = "bpf")]
impl<'k> Part<'k> for lastwords_bpf::Bpf<'k> {
    type Data = lastwords_bpf::Report;
    const SCHEMA: &'static str = "lastwords.bpf.v1";
    const WORD: &'static str = "BPF";

    fn read(dump: &'k DumpedKernel) -> Self {
        Self::read(&dump.kernel)
    }

    fn is_empty(&self) -> bool {
        self.programs.is_empty() && self.maps.is_empty()
    }

    fn write(&mut self, plain: &dyn Fn(&str) -> String, out: &mut dyn Write) -> io::Result<()> {
        Self::write(self, plain, out)
    }

    fn data(&mut self) -> Self::Data {
        self.report()
    }

    fn evidence(self) -> Evidence {
        self.evidence
    }
}

#[cfg(feature = "perf")]
impl Part<'_> for lastwords_perf::Perf {
    type Data = lastwords_perf::Report;
    const SCHEMA: &'static str = "lastwords.perf.v1";
    const WORD: &'static str = "perf";

    fn read(dump: &DumpedKernel) -> Self {
        Self::read(&dump.kernel)
    }

    fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    fn write(&mut self, plain: &dyn Fn(&str) -> String, out: &mut dyn Write) -> io::Result<()> {
        Self::write(self, plain, out)
    }

    fn data(&mut self) -> Self::Data {
        self.report()
    }

    fn evidence(self) -> Evidence {
        self.evidence
    }
}

/// The parts of all kernels; docs/JSON.md describes them.
#[derive(Serialize)]
struct Kernels<D> {
    schema: &'static str,
    kernels: Vec<Kernel<D>>,
    /// Inputs that cannot be read.
    faults: Vec<String>,
}

#[derive(Serialize)]
struct Kernel<D> {
    from: PathBuf,
    /// Release of the kernel, or null.
    release: Option<String>,
    #[serde(flatten)]
    report: D,
    evidence: Report,
}

/// Prints a part of all kernels on stdout, and an account of each on stderr.
pub(super) fn run<'k, P: Part<'k>>(
    args: &Args,
    (kernels, failures): &'k (Vec<DumpedKernel>, Vec<Failure>),
) -> anyhow::Result<Outcome> {
    let mut all = Kernels {
        schema: P::SCHEMA,
        kernels: Vec::new(),
        faults: failures.iter().map(|failure| failure.why.clone()).collect(),
    };
    let (mut accounts, mut found) = (Vec::new(), false);
    let mut out = (!args.json).then(|| Pager::open(!args.no_pager));
    let mut is_closed = false;
    for dump in kernels {
        dump.notes.iter().for_each(|note| say::note(plain(note)));
        let mut part = P::read(dump);
        found |= !part.is_empty();
        let report = match &mut out {
            Some(out) => {
                let written = write(dump, &mut part, out);
                is_closed |= written.is_err();
                say::failure(written).map_or(Ok(()), Err)?;
                None
            }
            None => Some(part.data()),
        };
        let account = account::of_memory(dump, P::WORD, part.evidence());
        all.kernels.extend(report.map(|report| Kernel {
            from: dump.path.clone(),
            release: release(dump),
            report,
            evidence: account.report(),
        }));
        accounts.push(account);
        if is_closed {
            break;
        }
    }
    match out {
        Some(out) => is_closed |= !out.finish()?,
        None => say::json(&all, false)?,
    }
    for account in &accounts {
        let mut text = Vec::new();
        account.write(LIMIT, &mut text)?;
        say::remark(text);
    }
    let facts = Facts {
        strict: args.strict,
        losses: Losses::from_accounts(&accounts),
        worst_failure: failures.iter().map(|failure| failure.severity).max(),
        nothing: !is_closed && !found,
        ..Facts::default()
    };
    Ok(facts.outcome())
}

/// Returns the release of a kernel, if the dump has it.
fn release(dump: &DumpedKernel) -> Option<String> {
    dump.kernel.uname().ok().map(|uname| uname.release)
}

fn write<'k>(dump: &DumpedKernel, part: &mut impl Part<'k>, out: &mut Pager) -> io::Result<()> {
    let release = release(dump).map_or_else(|| "?".to_owned(), |release| plain(&release));
    writeln!(out, "# {}: Linux {release}", plain(&dump.path.display().to_string()))?;
    part.write(&plain, out)
}
