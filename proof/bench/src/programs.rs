//! Builds what the benches run.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::contenders::{Contender, Source};
use rig::programs;

/// Built programs, and where others go.
pub(super) struct Programs {
    /// `lastwords-bench`: the contenders in Rust, and the stop-watch.
    pub(super) bench: PathBuf,
    /// The contenders that are built into it.
    built_in: BTreeSet<String>,
    /// Where the programs in C go.
    out: PathBuf,
    /// `bench/c`.
    sources: PathBuf,
}

impl Programs {
    /// Builds `lastwords-bench`.
    pub(super) fn build() -> Result<Self> {
        let release = programs::build("lastwords-bench")?;
        let out = release.with_file_name("bench");
        std::fs::create_dir_all(&out)
            .with_context(|| format!("cannot create {}", out.display()))?;
        let bench = release.join("lastwords-bench");
        let names = output(Command::new(&bench).arg("list"))?;
        let built_in = names.lines().map(str::to_string).collect();
        Ok(Self { bench, built_in, out, sources: rig::root().join("bench/c") })
    }

    /// A contender's program, built; or why there is none.
    pub(super) fn of(&self, contender: &Contender) -> Result<PathBuf> {
        match contender.source {
            Source::Rust | Source::Number if self.built_in.contains(contender.name) => {
                Ok(self.bench.clone())
            }
            Source::Rust | Source::Number => bail!("not built into lastwords-bench"),
            Source::Floor => self.compile("floor", &[OsStr::new("-lpthread")]),
            Source::Model => self.compile("model", &[OsStr::new("-lpthread")]),
            Source::Lttng => self
                .compile("lttng", &["-llttng-ust", "-ldl", "-lpthread"].map(OsStr::new))
                .context("LTTng-UST's headers are needed: package liblttng-ust-dev"),
            Source::OurC => self.compile_ours(),
        }
    }

    fn compile(&self, name: &str, more: &[&OsStr]) -> Result<PathBuf> {
        let source = self.sources.join(format!("{name}.c"));
        if !source.exists() {
            bail!("there is no {}", source.display());
        }
        let program = self.out.join(name);
        let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
        compiler.args(["-O2", "-Wall", "-Wextra", "-I"]).arg(&self.sources);
        output(compiler.arg(&source).args(more).arg("-o").arg(&program))?;
        Ok(program)
    }

    fn compile_ours(&self) -> Result<PathBuf> {
        if !self.sources.join("lastwords.c").exists() {
            bail!("there is no bench/c/lastwords.c");
        }
        let include = rig::root().join("crates/capi/include");
        let library = programs::build("lastwords-capi")?.join("liblastwords_c.a").into_os_string();
        let options =
            [join("-I", &include), library, "-lpthread".into(), "-ldl".into(), "-lm".into()];
        self.compile("lastwords", &options.each_ref().map(|option| option.as_os_str()))
    }
}

fn join(option: &str, path: &Path) -> std::ffi::OsString {
    let mut joined = std::ffi::OsString::from(option);
    joined.push(path);
    joined
}

/// Runs a program to its end. Returns what it printed; where it failed, an error with what it
/// complained of.
pub(super) fn output(command: &mut Command) -> Result<String> {
    let shown = command.get_program().to_string_lossy().into_owned();
    let done =
        command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {shown}"))?;
    if !done.status.success() {
        bail!("{shown}: {}: {}", done.status, String::from_utf8_lossy(&done.stderr).trim());
    }
    String::from_utf8(done.stdout).with_context(|| format!("{shown} printed what is not UTF-8"))
}
