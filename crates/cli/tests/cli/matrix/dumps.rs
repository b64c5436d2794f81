//! Sources that are kept beside the checkout: dumps of real machines, and what other tracers wrote
//! of them. `cargo xtask matrix` names the folder.

use super::babeltrace;
use super::kernel::Kernel;
use super::sources::{Part, Source, Style, Truth};
use crate::support::{Place, tool};
use std::path::{Path, PathBuf};

/// How many there are.
pub(super) const COUNT: usize = 4;

/// Unpacks a file that `zstd --long=27` packed; where it is then.
fn unpacked(place: &Place, file: &Path, name: &str) -> PathBuf {
    let to = place.at(name);
    tool("zstd", &["-q", "-d", "--long=27", &file.to_string_lossy(), "-o", &to.to_string_lossy()]);
    to
}

/// The CTF that LTTng itself wrote: a folder in the case's archive.
fn lttng(place: &Place, case: &Path, name: &str, below: &str) -> PathBuf {
    let archive = unpacked(place, &case.join("truth.tar.zst"), &format!("{name}.tar"));
    let folder = place.at(&format!("{name}-truth"));
    std::fs::create_dir(&folder).unwrap();
    tool("tar", &["xf", &archive.to_string_lossy(), "-C", &folder.to_string_lossy()]);
    folder.join(below)
}

/// The events that Babeltrace reads from a folder of CTF.
fn packets(truth: PathBuf) -> Truth {
    let events = babeltrace::events(&truth).expect("what LTTng wrote");
    Truth::Packets(vec![Part { name: "", events, style: Style::Babeltrace(Some(truth)) }])
}

/// A kernel's ring buffer: what trace-cmd recorded on a copy of the machine, and what the kernel
/// printed.
fn ftrace(place: &Place, case: &Path, trace_processor: PathBuf) -> Truth {
    let truth = case.join("truth");
    let file = unpacked(place, &truth.join("fork-tracecmd/trace.dat.zst"), "truth.dat");
    let kallsyms = unpacked(place, &truth.join("system/kallsyms.zst"), "kallsyms");
    let kallsyms = std::fs::read_to_string(kallsyms).unwrap();
    let symbol = |line: &str| {
        let mut words = line.split_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        words.nth(1).map(|name| (address, name.to_owned()))
    };
    let mut symbols: Vec<(u64, String)> = kallsyms.lines().filter_map(symbol).collect();
    symbols.sort();
    let text = |instance: &'static str| {
        let plain = truth.join(instance).join("trace");
        let packed = plain.with_extension("zst");
        let file = if plain.exists() {
            plain
        } else {
            unpacked(place, &packed, &format!("{instance}.txt"))
        };
        (instance, std::fs::read_to_string(file).unwrap())
    };
    let texts = ["top", "errors"].map(text).into();
    Truth::Kernel(Kernel {
        file,
        symbols,
        texts,
        is_top_alone: false,
        trace_processor: Some(trace_processor),
    })
}

/// The sources below the folder of cases.
pub(super) fn sources(place: &Place, cases: &Path) -> Vec<Source> {
    let program = std::env::var_os("LASTWORDS_TRACE_PROCESSOR");
    let program = program.expect(
        "LASTWORDS_TRACE_PROCESSOR: Perfetto's trace processor, which `cargo xtask matrix` names",
    );
    let [basic, kernel, process] = ["ftrace-6.12-basic", "lttng-6.12-snapshot-stopped", "ust-core"]
        .map(|name| cases.join(name));
    unpacked(place, &basic.join("memory.elf.zst"), "ftrace.elf");
    unpacked(place, &kernel.join("vmcore.elf.zst"), "lttng.elf");
    unpacked(place, &process.join("core-gcore.zst"), "ust.core");
    let of_kernel =
        lttng(place, &kernel, "lttng", "truth/snap/snapshot-1-20261121-025424-0/kernel");
    let of_process =
        lttng(place, &process, "ust", "truth/snap/snapshot-1-20261121-030556-0/ust/uid/0/64-bit");
    let crash = cases.join("ust-shm-crash");
    tool(
        "tar",
        &["xf", &crash.join("shm.tar").to_string_lossy(), "-C", &place.path().to_string_lossy()],
    );
    let of_crash =
        lttng(place, &crash, "shm", "truth/lttng-crash/crash-20261121-030546/ust/uid/0/64-bit");
    let metadata = of_process.join("metadata").to_string_lossy().into_owned();
    let source = |name, inputs: Vec<String>, truth| Source { name, inputs, lost: 0, truth };
    vec![
        source(
            "a vmcore with ftrace",
            vec!["ftrace.elf".into()],
            ftrace(place, &basic, program.into()),
        ),
        source("a vmcore with LTTng", vec!["lttng.elf".into()], packets(of_kernel)),
        source(
            "a core with LTTng",
            vec!["ust.core".into(), "--metadata".into(), metadata],
            packets(of_process),
        ),
        source(
            "a folder of LTTng's shared memory after a crash",
            vec!["./shm".into()],
            packets(of_crash),
        ),
    ]
}
