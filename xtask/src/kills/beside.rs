//! The same kills against LTTng-UST: how many it takes until its recorder is dead on a CPU.

use anyhow::Result;

/// Kills writers of LTTng-UST until what another process records is not there any more, at most `count` times.
pub(super) fn run(count: u64) -> Result<()> {
    let killed = crate::bench::wedge_lttng(count)?;
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
