//! `lastwords inspect`: what is in the inputs.

mod ctf;
mod data;
mod kernel;
mod lttng;
mod text;

use crate::exit::{Facts, Outcome};
use crate::input::{Array, Input, Lttng, Traces};
use crate::say;
use lastwords_open::Origin;
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(override_usage = "lastwords inspect [OPTIONS] <INPUT>...\n       lastwords inspect [OPTIONS] --pid <PID>")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    /// Print data instead of text
    #[arg(long)]
    json: bool,
}

/// Inspects.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    args.input.find(|traces| inspect(args, &traces))
}

fn inspect(args: &Args, traces: &Traces) -> anyhow::Result<Outcome> {
    let (mut text, mut reports) = (Vec::new(), Vec::new());
    let is_of = |origin: &Arc<Origin>, other: &Arc<Origin>| Arc::ptr_eq(origin, other);
    let mut kernels = Vec::new();
    let mut inputs = Vec::new();
    for origin in &traces.origins {
        let own: Vec<&Lttng> = traces.lttng.iter().filter(|lttng| is_of(&lttng.origin, origin)).collect();
        let arrays: Vec<Array> = traces.arrays.iter().filter(|array| is_of(&array.origin, origin)).cloned().collect();
        if let Some(machine) = &origin.machine {
            kernels.push(kernel::of(origin, machine, &arrays, &own));
        } else if !own.is_empty() {
            let sessions = own.iter().map(|lttng| lttng::of(lttng.session())).collect();
            inputs.push(lttng::Input { from: origin.path.clone(), sessions });
        }
    }
    if !kernels.is_empty() {
        kernels.iter().try_for_each(|kernel| kernel::write(kernel, &mut text))?;
        reports.push(value(&kernel::Report { schema: "lastwords.inspect-kernel.v2", kernels })?);
    }
    if !inputs.is_empty() {
        for input in &inputs {
            writeln!(text, "{}: memory of LTTng's user-space tracer", input.from.display())?;
            input.sessions.iter().try_for_each(|session| lttng::write(session, &mut text))?;
        }
        reports.push(value(&lttng::Report { schema: "lastwords.inspect-lttng.v2", inputs })?);
    }
    let mut failed = false;
    if !traces.ctf.is_empty() || !traces.faults.is_empty() {
        let of = ctf::of(&traces.ctf);
        failed = of.iter().any(ctf::TraceSummary::is_faulty);
        traces.ctf.iter().zip(&of).try_for_each(|(trace, of)| ctf::write(trace, of, &mut text))?;
        let faults = traces.faults.clone();
        reports.push(value(&ctf::Report { schema: "lastwords.inspect-ctf.v1", traces: of, faults })?);
    }
    if !traces.sessions.is_empty() {
        if args.json {
            let sessions = traces.sessions.iter().map(data::of).collect();
            reports.push(value(&data::Report { schema: "lastwords.inspect.v1", sessions })?);
        } else {
            for session in &traces.sessions {
                if !text.is_empty() {
                    text.push(b'\n');
                }
                text::write(session, &mut text)?;
            }
        }
    }
    say::print(if args.json { together(reports).into_bytes() } else { text });
    Ok(Facts { lacking: traces.lacking, failed, ..Facts::default() }.outcome())
}

fn value(report: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(report)?)
}

/// One report, or an object of several.
fn together(mut reports: Vec<String>) -> String {
    match (reports.pop(), reports.is_empty()) {
        (Some(one), true) => one + "\n",
        (last, _) => {
            reports.extend(last);
            format!("{{\"schema\":\"lastwords.inspect-all.v1\",\"reports\":[\n{}\n]}}\n", reports.join(",\n"))
        }
    }
}
