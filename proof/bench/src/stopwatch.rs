//! Time and memory of a program's run, taken by `lastwords-bench measure`.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Clock;
use super::stats::Spread;

use rig::run_quietly;

/// One run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Lap {
    wall_s: f64,
    cpu_s: f64,
    peak_rss: u64,
    peak_anonymous: u64,
}

/// The runs of one command line.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Laps(Vec<Lap>);

impl Laps {
    /// Runs a program on one CPU, or on all, its output thrown away.
    pub(super) fn run(
        &mut self,
        stopwatch: &Path,
        cpu: Option<usize>,
        command: &[&OsStr],
    ) -> Result<()> {
        let cpu = cpu.map_or("all".to_owned(), |cpu| cpu.to_string());
        let line = run_quietly(Command::new(stopwatch).arg("measure").arg(cpu).args(command))?;
        self.0.push(lap(&line).with_context(|| format!("the stop-watch printed {line:?}"))?);
        Ok(())
    }

    /// Seconds.
    pub(super) fn seconds(&self, clock: Clock) -> Option<Spread> {
        let of = |lap: &Lap| if clock == Clock::Wall { lap.wall_s } else { lap.cpu_s };
        Spread::from_samples(&self.0.iter().map(of).collect::<Vec<f64>>())
    }

    /// The most resident memory of all runs, in bytes.
    pub(super) fn peak_rss(&self) -> u64 {
        self.0.iter().map(|lap| lap.peak_rss).max().unwrap_or(0)
    }

    /// The most of it that no file backs: what the program asked for, mappings of its input left
    /// out.
    pub(super) fn peak_anonymous(&self) -> u64 {
        self.0.iter().map(|lap| lap.peak_anonymous).max().unwrap_or(0)
    }
}

fn lap(line: &str) -> Option<Lap> {
    let data: Value = serde_json::from_str(line).ok()?;
    Some(Lap {
        wall_s: data["wall_s"].as_f64()?,
        cpu_s: data["cpu_s"].as_f64()?,
        peak_rss: data["peak_rss"].as_u64()?,
        peak_anonymous: data["peak_anonymous"].as_u64()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps() {
        let line = |wall: f64| {
            format!(r#"{{"wall_s": {wall}, "cpu_s": 1.0, "peak_rss": 5, "peak_anonymous": 3}}"#)
        };
        let laps = Laps([2.0, 4.0].iter().filter_map(|wall| lap(&line(*wall))).collect());
        assert_eq!(laps.seconds(Clock::Wall).map(|spread| spread.median), Some(3.0));
        assert_eq!(laps.seconds(Clock::Cpu).map(|spread| spread.max), Some(1.0));
        assert_eq!((laps.peak_rss(), laps.peak_anonymous()), (5, 3));
        assert_eq!(lap("{}"), None);
    }
}
