//! `cargo xtask lttng-layouts`: the layouts of LTTng's releases against the types of modules that
//! were built.
//!
//! Each release's structures, laid out with the sizes of a kernel's types, must have their members
//! where the modules of that kernel have them. New modules are built by `apt-get install
//! lttng-modules-dkms` beside a kernel's headers; the kernel's types are `/sys/kernel/btf/vmlinux`
//! there, or the section `.BTF` of its vmlinux.

use std::io::Cursor;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use lastwords_bytes::Budget;
use lastwords_kernel::btf::{self, Btf, Types};
use lastwords_lttng::kernel::layouts::{RELEASES, Release};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The kernel's BTF; without it, the stored case's
    #[arg(long, requires = "module")]
    kernel: Option<PathBuf>,
    /// lttng-tracer.ko with BTF, of the same kernel
    #[arg(long, requires = "kernel")]
    module: Option<PathBuf>,
}

/// Members that stand for others: of another name or shape with each release, or for what is not
/// read.
const STANDS_FOR: &[(&str, &str, &[&str])] = &[
    ("lttng_kernel_ring_buffer", "time", &["last_tsc", "last_timestamp"]),
    ("channel_backend", "start", &["start_tsc", "start_timestamp"]),
    ("channel_backend", "buf", &["buf", "percpu_buf"]),
    ("lttng_kernel_ring_buffer_config", "bits", &["tsc_bits", "timestamp_bits"]),
    ("lttng_kernel_session_private", "states", &["mj_gen.states"]),
    ("lttng_kernel_session_private", "state_index", &["mj_gen.state_index"]),
    ("lttng_kernel_session_private", "flags", &["metadata_dumped"]),
    ("lttng_kernel_channel_common_private", "flags", &["sys_enter_registered"]),
    ("lttng_kernel_syscall_table", "flags", &["sys_enter_registered"]),
];
/// Structures of ours alone, which are embedded.
const OWN: &[&str] = &["lttng_kernel_time", "lttng_kernel_channel_time"];

/// Compares.
pub(crate) fn run(args: &Args) -> Result<()> {
    let (kernel, module) = match (&args.kernel, &args.module) {
        (Some(kernel), Some(module)) => (std::fs::read(kernel)?, std::fs::read(module)?),
        _ => stored()?,
    };
    let budget = Budget::default();
    let kernel = Arc::new(Types::new(Arc::new(Btf::parse(kernel, None, &budget)?)));
    let module = btf::of_module("the module", Cursor::new(module), &kernel, &budget)?;
    let mut fits = Vec::new();
    for release in &RELEASES {
        let (members, wrong) = compare(release, &kernel, &module)?;
        println!("{}: {members} members, {} elsewhere", release.name, wrong.len());
        wrong.iter().for_each(|line| println!("  {line}"));
        fits.push(wrong.is_empty());
    }
    match fits.iter().filter(|fit| **fit).count() {
        1 => Ok(()),
        n => bail!("{n} releases have this layout, expected one"),
    }
}

/// How many members were compared, and a line for each that is elsewhere.
fn compare(release: &Release, kernel: &Arc<Types>, module: &Types) -> Result<(usize, Vec<String>)> {
    let ours = release.types_of(kernel, &Budget::default())?;
    let (mut members, mut wrong) = (0, Vec::new());
    for structure in release.structures().filter(|name| !OWN.contains(name)) {
        for member in ours.members(ours.id(structure)?) {
            let offset = ours.member(structure, &member)?.offset;
            let stands =
                STANDS_FOR.iter().find(|row| (row.0, row.1) == (structure, member.as_str()));
            let names = stands.map_or(vec![member.as_str()], |row| row.2.to_vec());
            let theirs = names
                .iter()
                .find_map(|name| module.member(structure, name).ok())
                .map(|member| member.offset);
            members += 1;
            if theirs != Some(offset) {
                wrong.push(format!("{structure}.{member}: {offset}, the module has {theirs:?}"));
            }
        }
    }
    Ok((members, wrong))
}

/// The kernel's BTF and the module of the case that is kept beside the repository.
fn stored() -> Result<(Vec<u8>, Vec<u8>)> {
    let case = rig::beside().join("cases/lttng-6.12-snapshot-stopped");
    if !case.is_dir() {
        bail!(
            "name the kernel's BTF and the module: --kernel /sys/kernel/btf/vmlinux --module lttng-tracer.ko"
        );
    }
    Ok((
        unpacked(&case.join("facts/btf-vmlinux.zst"))?,
        unpacked(&case.join("modules/lttng-tracer.ko.zst"))?,
    ))
}

fn unpacked(path: &Path) -> Result<Vec<u8>> {
    let output = Command::new("zstd")
        .args(["-q", "-d", "-c", "--long=27"])
        .arg(path)
        .output()
        .context("zstd")?;
    anyhow::ensure!(output.status.success(), "{}: zstd: {}", path.display(), output.status);
    Ok(output.stdout)
}
