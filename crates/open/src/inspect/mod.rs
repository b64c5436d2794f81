//! Reports what is in the inputs, as data. These are the reports of `inspect --json`, which
//! docs/JSON.md describes.

mod activity;
pub mod ctf;
mod histogram;
pub mod kernel;
pub mod lttng;
pub mod session;
mod tally;

pub use activity::{Activity, Make, Named, TICKS};

use crate::why::Outside;
use crate::{Origin, Trace};
use lastwords_ctf::Result;
use lastwords_ctf::read::{self, Watch};
use lastwords_render::select::Selection;
use serde::{Serialize, Serializer};
use std::path::PathBuf;
use std::sync::Arc;

/// The contents of some inputs, by kind of trace. Each trace has its account, `evidence`.
#[derive(Debug, Clone, Default)]
pub struct Report<'a> {
    /// Kernels, from dumps of a machine's memory and from trace.dat files.
    pub kernels: Vec<kernel::Report<'a>>,
    /// Inputs with streams of LTTng's user-space tracer.
    pub inputs: Vec<Input<'a>>,
    /// Traces in folders of CTF.
    pub traces: Vec<ctf::Report<'a>>,
    /// Sessions of lastwords.
    pub sessions: Vec<session::Report<'a>>,
    /// The messages about parts of the inputs that cannot be read.
    pub faults: Vec<String>,
}

/// An input with streams of LTTng's user-space tracer.
#[derive(Debug, Clone, Serialize)]
pub struct Input<'a> {
    /// The path that was named, or the file or folder that was found there.
    pub from: PathBuf,
    /// Its sessions.
    pub sessions: Vec<lttng::Report<'a>>,
}

impl<'a> Report<'a> {
    /// Reads the traces of some inputs, once without a selection. `packets` has the packets of each
    /// trace, if it has any: of a kernel's trace array those that are selected; if there is no
    /// selection, those of arrays may be left to `make`, and are dropped when they are counted.
    /// `selection` is for the counts by event and over time ([`Activity`]) alone. `watch` receives
    /// the bytes that were read. `outside` has what is known besides the inputs, for verdicts.
    #[must_use]
    pub fn new(
        origins: &'a [Arc<Origin>],
        traces: &'a [Trace],
        packets: &[Option<Result<read::Trace>>],
        make: Make<'_>,
        selection: Option<&Selection>,
        watch: Watch<'_>,
        outside: &Outside,
    ) -> Self {
        let mut report = Self::default();
        let read = activity::read(traces, packets, make, selection, watch);
        let all = || traces.iter().zip(&read).map(|(trace, read)| (trace, read.as_ref()));
        for origin in origins {
            let own: Vec<_> =
                all().filter(|(trace, _)| Arc::ptr_eq(&trace.origin, origin)).collect();
            let sessions: Vec<lttng::Report<'a>> =
                own.iter().filter_map(|(trace, read)| lttng::report(trace, *read)).collect();
            if let Some(machine) = &origin.machine {
                report.kernels.push(kernel::report(origin, machine, &own, sessions));
            } else if !sessions.is_empty() {
                report.inputs.push(Input { from: origin.path.clone(), sessions });
            }
        }
        report.traces = all().filter_map(|(trace, read)| ctf::report(trace, read?)).collect();
        report.sessions =
            all().filter_map(|(trace, read)| session::report(trace, read?, outside)).collect();
        report
    }
}

impl Report<'_> {
    /// Returns the number of events of all traces, or of those that were selected.
    #[must_use]
    pub fn total(&self) -> u64 {
        let instances = self
            .kernels
            .iter()
            .flat_map(|kernel| &kernel.instances)
            .map(|instance| &instance.activity);
        let in_kernels = self.kernels.iter().flat_map(|kernel| &kernel.lttng);
        let lttng = self
            .inputs
            .iter()
            .flat_map(|input| &input.sessions)
            .chain(in_kernels)
            .map(|session| &session.activity);
        let traces = self.traces.iter().map(|trace| &trace.activity);
        let sessions = self.sessions.iter().map(|session| &session.activity);
        let all = instances.chain(lttng).chain(traces).chain(sessions);
        all.flatten().map(|activity| activity.total).fold(0, u64::saturating_add)
    }
}

/// The reports of one kind of traces.
#[derive(Serialize)]
#[serde(untagged)]
enum KindReport<'r, 'a> {
    Kernels { schema: &'static str, kernels: &'r [kernel::Report<'a>] },
    Lttng { schema: &'static str, inputs: &'r [Input<'a>] },
    Ctf { schema: &'static str, traces: &'r [ctf::Report<'a>], faults: &'r [String] },
    Sessions { schema: &'static str, sessions: &'r [session::Report<'a>] },
}

#[derive(Serialize)]
struct AllReports<'r, 'a> {
    schema: &'static str,
    reports: &'r [KindReport<'r, 'a>],
    faults: &'r [String],
}

/// Serializes the report of the only kind of trace. If there are several kinds, or if something
/// cannot be read and the only kind is not folders of CTF, it serializes an object with their
/// reports.
impl Serialize for Report<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let Self { kernels, inputs, traces, sessions, faults } = self;
        let is_all_ctf = kernels.is_empty() && inputs.is_empty() && sessions.is_empty();
        let kernels = KindReport::Kernels { schema: "lastwords.inspect-kernel.v2", kernels };
        let inputs = KindReport::Lttng { schema: "lastwords.inspect-lttng.v2", inputs };
        let own: &[String] = if is_all_ctf { faults } else { &[] };
        let traces = KindReport::Ctf { schema: "lastwords.inspect-ctf.v1", traces, faults: own };
        let sessions = KindReport::Sessions { schema: "lastwords.inspect.v1", sessions };
        let mut reports = vec![kernels, inputs, traces, sessions];
        reports.retain(|part| match part {
            KindReport::Kernels { kernels, .. } => !kernels.is_empty(),
            KindReport::Lttng { inputs, .. } => !inputs.is_empty(),
            KindReport::Ctf { traces, faults, .. } => !traces.is_empty() || !faults.is_empty(),
            KindReport::Sessions { sessions, .. } => !sessions.is_empty(),
        });
        match reports.as_slice() {
            [one] if is_all_ctf || faults.is_empty() => one.serialize(serializer),
            reports => AllReports { schema: "lastwords.inspect-all.v1", reports, faults }
                .serialize(serializer),
        }
    }
}
