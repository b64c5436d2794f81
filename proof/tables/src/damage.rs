//! Damaged inputs.

use crate::{Lab, inputs};
use anyhow::{Result, ensure};
use lastwords_testkit::random::Random;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Damages copies of the small inputs, and ingests them. The run ends by itself, each part that it
/// wrote is whole, and what cannot be read is listed with its reason.
pub(crate) fn run(lab: &Lab, mutants: u64) -> Result<()> {
    let (folder, damaged, set) = (lab.at("damage"), lab.at("damaged"), lab.at("damaged-set"));
    std::fs::create_dir(&folder)?;
    std::fs::create_dir(&damaged)?;
    let inputs = inputs::small(lab, &folder)?;
    let mut random = Random(lab.seed ^ 0xda_a6ed);
    for number in 0..mutants {
        let copy = damaged.join(format!("mutant-{number}"));
        let input = random.pick(&inputs);
        rig::run_quietly(Command::new("cp").arg("-r").arg(input).arg(&copy))?;
        // A session's region files are sparse and sealed, and a copy is a plain file.
        let files = files(&copy)?;
        for _ in 0..=random.below(3) {
            let file = random.pick(&files);
            damage(file, &mut random)?;
        }
    }
    std::fs::write(damaged.join("notes.txt"), "no trace")?;
    let ran = lab.ingest(&[&damaged], &set, &[])?;
    let said = String::from_utf8_lossy(&ran.stderr);
    ensure!(!said.contains("panicked"), "{said}");
    ensure!(matches!(ran.status.code(), Some(0 | 1)), "{}: {said}", ran.status);
    lab.judge("whole", &[&set])?;
    let dead = std::fs::read_to_string(set.join("dead-letters.jsonl"))?;
    ensure!(!dead.contains("notes.txt"), "a text is no dead letter: {dead}");
    let count = dead.lines().count();
    ensure!(dead.lines().all(|line| line.contains("\"error\":\"")), "no reason: {dead}");
    ensure!((ran.status.code() == Some(1)) == (count > 0), "{} of {count}: {said}", ran.status);
    println!("damage: {mutants} damaged inputs, {count} dead letters; {}", last_line(&ran.stdout));
    Ok(())
}

fn last_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).lines().last().unwrap_or_default().to_owned()
}

/// Changes bytes of a file, or cuts its end off.
pub(crate) fn damage(file: &Path, random: &mut Random) -> Result<()> {
    let mut bytes = std::fs::read(file)?;
    if random.one_in(3) {
        bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
    } else {
        for _ in 0..=random.below(20) {
            let at = random.below(bytes.len() as u64) as usize;
            let value = *random.pick(&[0, 1, 0x7f, 0x80, 0xff]);
            bytes.get_mut(at).into_iter().for_each(|byte| *byte = value);
        }
    }
    Ok(std::fs::write(file, bytes)?)
}

/// Returns the files in a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    Ok(entries.filter(|path| path.is_file()).collect())
}
