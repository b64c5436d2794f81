//! Builds what the benches run.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::contenders::{Contender, Source};
use rig::{programs, run_quietly};

/// Built programs, and where others go.
pub(super) struct Programs {
    /// `lastwords-bench`: the contenders in Rust, and the stop-watch.
    pub(super) bench: PathBuf,
    /// The contenders that are built into it.
    built_in: BTreeSet<String>,
    /// Where the programs in C go.
    out: PathBuf,
}

impl Programs {
    /// Builds `lastwords-bench`.
    pub(super) fn build() -> Result<Self> {
        let release = programs::build("lastwords-bench")?;
        let out = release.with_file_name("bench");
        std::fs::create_dir_all(&out)
            .with_context(|| format!("cannot create {}", out.display()))?;
        let bench = release.join("lastwords-bench");
        let names = run_quietly(Command::new(&bench).arg("list"))?;
        let built_in = names.lines().map(str::to_string).collect();
        Ok(Self { bench, built_in, out })
    }

    /// A contender's program, built; or why there is none.
    pub(super) fn program(&self, contender: &Contender) -> Result<PathBuf> {
        match contender.source {
            Source::Rust | Source::Number if self.built_in.contains(contender.name) => {
                Ok(self.bench.clone())
            }
            Source::Rust | Source::Number => bail!("not built into lastwords-bench"),
            Source::Floor => self.compile("floor", &[OsStr::new("-lpthread")]),
            Source::Model => self.compile("model", &[OsStr::new("-lpthread")]),
            Source::Lttng => lttng(&self.out),
            Source::OurC => self.compile_ours(),
        }
    }

    fn compile(&self, name: &str, more: &[&OsStr]) -> Result<PathBuf> {
        compile(name, &self.out, more)
    }

    fn compile_ours(&self) -> Result<PathBuf> {
        let include = rig::root().join("crates/capi/include");
        let library = programs::build("lastwords-capi")?.join("liblastwords_c.a").into_os_string();
        let options =
            [join("-I", &include), library, "-lpthread".into(), "-ldl".into(), "-lm".into()];
        self.compile("lastwords", &options.each_ref().map(|option| option.as_os_str()))
    }
}

/// Compiles the contender of LTTng-UST into a folder.
pub(super) fn lttng(out: &Path) -> Result<PathBuf> {
    compile("lttng", out, &["-llttng-ust", "-ldl", "-lpthread"].map(OsStr::new))
        .context("LTTng-UST's headers are needed: package liblttng-ust-dev")
}

/// Compiles a program of `bench/c` into a folder.
fn compile(name: &str, out: &Path, more: &[&OsStr]) -> Result<PathBuf> {
    let sources = rig::root().join("bench/c");
    let program = out.join(name);
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-O2", "-Wall", "-Wextra", "-I"]).arg(&sources);
    compiler.arg(sources.join(name).with_extension("c")).args(more).arg("-o").arg(&program);
    run_quietly(&mut compiler)?;
    Ok(program)
}

fn join(option: &str, path: &Path) -> std::ffi::OsString {
    let mut joined = std::ffi::OsString::from(option);
    joined.push(path);
    joined
}

/// Runs a program to its end and counts those of the lines that it prints.
pub(super) fn count_lines(command: &mut Command, is_counted: fn(&[u8]) -> bool) -> Result<u64> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| rig::shown(command))?;
    let mut printed = BufReader::with_capacity(1 << 18, child.stdout.take().context("no pipe")?);
    let (mut line, mut count) = (Vec::new(), 0);
    while printed.read_until(b'\n', &mut line)? > 0 {
        count += u64::from(line.ends_with(b"\n") && is_counted(&line));
        line.clear();
    }
    let status = child.wait()?;
    ensure!(status.success(), "{}: {status}", rig::shown(command));
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted() {
        assert_eq!(count_lines(Command::new("printf").arg("a\nb\nc"), |_| true).unwrap(), 2);
        assert!(count_lines(&mut Command::new("false"), |_| true).is_err());
    }
}
