//! `lastwords inspect`: what is in a session or core.

mod data;
mod text;

use crate::exit::Outcome;
use crate::inputs;
use crate::select::Which;
use std::io::Write;

/// Arguments.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sessions' folders or names, the folder of all sessions, process cores
    #[arg(value_name = "IMAGE", required_unless_present = "pid")]
    inputs: Vec<String>,

    #[command(flatten)]
    which: Which,

    /// Print data instead of text
    #[arg(long)]
    json: bool,
}

/// Inspects.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let sessions = inputs::open(&args.inputs, &args.which)?;
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
    std::io::stdout().lock().write_all(text.as_bytes())?;
    Ok(Outcome::Done)
}
