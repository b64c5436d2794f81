//! Runs of `ingest` that are killed at random times.

use crate::{Lab, inputs};
use anyhow::{Result, ensure};
use lastwords_testkit::random::Random;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Kills runs until the data set is complete, again and again. After each kill, each part that a
/// reader sees is whole, and each crash in `crashes` has all its tables. The complete data set is
/// that of a run that was not killed.
pub(crate) fn run(lab: &Lab, kills: u64) -> Result<()> {
    let (folder, whole) = (lab.at("kills"), lab.at("kills-whole"));
    std::fs::create_dir(&folder)?;
    let inputs = inputs::small(lab, &folder)?;
    let inputs: Vec<&Path> = inputs.iter().map(PathBuf::as_path).collect();
    let begun = Instant::now();
    ensure!(lab.ingest(&inputs, &whole, &[])?.status.success(), "ingest failed");
    let length = begun.elapsed().as_micros() as u64;
    let (mut random, mut done, mut ended) = (Random(lab.seed), 0, 0);
    let mut round = 0;
    while done < kills {
        let set = lab.at(&format!("kills-{round}"));
        round += 1;
        // A data set that is complete is begun anew.
        for _ in 0..5 {
            // Often, two runs add to the data set at the same time.
            let mut is_over = false;
            let children: Vec<Child> = (0..1 + random.below(2))
                .map(|_| begin(lab, &inputs, &set))
                .collect::<Result<_>>()?;
            for mut child in children {
                std::thread::sleep(Duration::from_micros(random.below(length)));
                child.kill()?;
                let own = child.wait()?.success();
                done += u64::from(!own);
                ended += u64::from(own);
                is_over |= own;
            }
            lab.judge("whole", &[&set])?;
            if is_over || done >= kills {
                break;
            }
        }
        let ran = lab.ingest(&inputs, &set, &[])?;
        ensure!(ran.status.success(), "after kills: {}", String::from_utf8_lossy(&ran.stderr));
        // Each crash is there once, however often it is added.
        ensure!(lab.ingest(&inputs, &set, &["--again"])?.status.success(), "again");
        lab.judge("same", &[&set, &whole])?;
        std::fs::remove_dir_all(&set)?;
    }
    println!(
        "kills: {done} runs killed, {ended} had ended, {round} data sets completed and compared"
    );
    Ok(())
}

/// Starts a run.
fn begin(lab: &Lab, inputs: &[&Path], set: &Path) -> Result<Child> {
    let mut command = lab.lastwords();
    command.arg("ingest").args(inputs).arg("--into").arg(set);
    Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}
