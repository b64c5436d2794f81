//! A library with a function and a static probe, the program that calls it, and where both are in
//! the file, by binutils.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use rig::run_quietly;

/// The library and its program.
pub(super) struct Probed {
    pub(super) program: PathBuf,
    library: PathBuf,
}

impl Probed {
    /// Compiles both.
    pub(super) fn build(folder: &Path) -> Result<Self> {
        let (program, library) = (folder.join("probed"), folder.join("libprobed.so"));
        let source = rig::root().join("proof/lab/src/choice/probed.c");
        let cc = |arguments: &[&str], of: &[&Path], to: &Path| {
            let mut cc = Command::new("cc");
            run_quietly(cc.args(["-O1", "-Wall", "-Wextra", "-o"]).arg(to).args(arguments).args(of))
        };
        // No part is loaded at its offset in the file.
        let shared = [
            "-shared",
            "-fPIC",
            "-nostdlib",
            "-Wl,-soname,libprobed.so",
            "-Wl,-Ttext-segment=0x10000",
        ];
        cc(&shared, &[&source], &library)?;
        let path = format!("-Wl,-rpath,{}", folder.display());
        cc(&["-DMAIN", &path], &[&source, &library], &program)?;
        Ok(Self { program, library })
    }

    /// The places of the function, of the static probe and of its counter, for a shell.
    pub(super) fn places(&self) -> Result<String> {
        let say = |program: &str, arguments: &[&str]| {
            run_quietly(Command::new(program).args(arguments).arg(&self.library))
        };
        let sections = say("readelf", &["-SW"])?;
        let symbols = say("nm", &["-D"])?;
        let step = symbols.lines().find_map(|line| line.strip_suffix(" T lab_step"));
        let step = offset(&sections, step.context("lab_step")?)?;
        let notes = say("readelf", &["-nW"])?;
        let mut text = format!("STEP={step:#x}\n");
        let words = |line: &str, what: &str| {
            let rest = line.split_once(what)?.1;
            Some(rest.split([',', ' ']).next()?.to_owned())
        };
        let mut done = String::new();
        for line in notes.lines().filter(|line| line.contains("Location: ")) {
            let place = words(line, "Location: ").context("a place")?;
            let counter = words(line, "Semaphore: ").context("a counter")?;
            let (place, counter) = (offset(&sections, &place)?, offset(&sections, &counter)?);
            done += &format!(" {place:#x}({counter:#x})");
        }
        ensure!(done.matches('(').count() == 2, "the probe is in two places, not{done}");
        text += &format!("DONE='{}'\n", done.trim());
        Ok(text)
    }
}

/// The offset in the file of an address, by the table of sections that readelf prints.
fn offset(sections: &str, address: &str) -> Result<u64> {
    let hex = |word: &str| u64::from_str_radix(word.trim_start_matches("0x"), 16);
    let address = hex(address)?;
    for line in sections.lines() {
        let Some((_, row)) = line.split_once("] ") else { continue };
        let words: Vec<&str> = row.split_whitespace().collect();
        let [_, "PROGBITS", begin, at, size, ..] = words[..] else { continue };
        let (begin, at, size) = (hex(begin)?, hex(at)?, hex(size)?);
        if begin > 0 && (begin..begin + size).contains(&address) {
            return Ok(address - begin + at);
        }
    }
    anyhow::bail!("no section has the address {address:#x}")
}
