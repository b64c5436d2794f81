//! `lastwords inspect`: what is in a session or core.

mod data;
mod kernel;
mod lttng;
mod text;

use crate::ctf;
use crate::exit::Outcome;
use crate::ftrace::{self, Machine};
use crate::inputs;
use crate::memory::Memory;
use crate::select::Which;
use std::io::Write;

/// Arguments.
#[derive(Debug, clap::Args)]
#[command(override_usage = "lastwords inspect [OPTIONS] <IMAGE>...\n       lastwords inspect [OPTIONS] --pid <PID>")]
pub(crate) struct Args {
    /// Sessions' folders or names, the folder of all sessions, process cores; kernel crash dumps, trace.dat files;
    /// folders of CTF traces
    #[arg(value_name = "IMAGE", required_unless_present = "pid")]
    inputs: Vec<String>,

    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    memory: Memory,

    /// Print data instead of text
    #[arg(long)]
    json: bool,
}

/// Inspects.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    inputs::check(&args.inputs)?;
    if let Some(machines) = ftrace::open_all(&args.inputs, &args.memory)? {
        return of_kernels(args, &machines);
    }
    args.memory.refuse()?;
    if let Some(inputs) = crate::lttng::open_user(&args.inputs, None)? {
        return of_lttng(args, &inputs);
    }
    if let Some(found) = ctf::open_all(&args.inputs)? {
        let (text, outcome) = ctf::inspect(&found, args.json)?;
        crate::say::print(text);
        return Ok(outcome);
    }
    let found = inputs::open(&args.inputs, &args.which)?;
    let sessions = &found.inputs;
    let text = if args.json {
        let sessions: Vec<data::Session> = sessions.iter().map(data::of).collect();
        serde_json::to_string_pretty(&data::Report { schema: "lastwords.inspect.v1", sessions })? + "\n"
    } else {
        let mut text = Vec::new();
        for (i, input) in sessions.iter().enumerate() {
            if i > 0 {
                text.push(b'\n');
            }
            text::write(input, &mut text)?;
        }
        String::from_utf8_lossy(&text).into_owned()
    };
    crate::say::print(text);
    Ok(found.lacking.outcome(false, false))
}

fn of_lttng(args: &Args, inputs: &[crate::lttng::Input]) -> anyhow::Result<Outcome> {
    let input = |(from, sessions): &crate::lttng::Input| {
        let sessions = sessions.iter().filter(|session| args.which.wants(&session.name));
        lttng::Input { from: from.clone(), sessions: sessions.map(lttng::of).collect() }
    };
    let inputs: Vec<lttng::Input> = inputs.iter().map(input).collect();
    let mut text = Vec::new();
    if args.json {
        let report = lttng::Report { schema: "lastwords.inspect-lttng.v1", inputs };
        text.extend_from_slice((serde_json::to_string_pretty(&report)? + "\n").as_bytes());
    } else {
        for input in &inputs {
            writeln!(text, "{}: memory of LTTng's user-space tracer", input.from.display())?;
            input.sessions.iter().try_for_each(|session| lttng::write(session, &mut text))?;
        }
    }
    crate::say::print(text);
    Ok(Outcome::Done)
}

fn of_kernels(args: &Args, machines: &[Machine]) -> anyhow::Result<Outcome> {
    let kernels: Vec<kernel::Summary> = machines.iter().map(kernel::of).collect();
    let mut text = Vec::new();
    if args.json {
        let report = kernel::Report { schema: "lastwords.inspect-kernel.v1", kernels };
        text.extend_from_slice((serde_json::to_string_pretty(&report)? + "\n").as_bytes());
    } else {
        kernels.iter().try_for_each(|k| kernel::write(k, &mut text))?;
    }
    crate::say::print(text);
    Ok(Outcome::Done)
}
