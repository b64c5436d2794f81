//! The kills of `cargo xtask wedge` against LTTng-UST: how many it takes until its recorder is dead
//! on a CPU.

use anyhow::Result;

use super::wedge::wedge_lttng;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kills
    #[arg(long, default_value_t = 1000)]
    count: u64,
}

/// Kills writers of LTTng-UST until what another process records is not there any more, at most so
/// many times as are asked for.
pub(crate) fn run(args: &Args) -> Result<()> {
    let count = args.count;
    let killed = wedge_lttng(count)?;
    match killed.dead_after {
        Some(kills) => println!(
            "LTTng-UST: dead on CPU {} after {kills} kills; the {} events that another process recorded there behind \
             the last kill are not in its buffers",
            killed.cpu, killed.events
        ),
        None => println!("LTTng-UST: alive after {count} kills"),
    }
    Ok(())
}
