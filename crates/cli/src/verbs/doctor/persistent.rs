//! Checks what a reboot would keep of the kernel's trace: a persistent trace instance, a bundle for this kernel, persistent memory.

use super::{Finding, read};
use std::ops::Range;
use std::path::Path;

/// The folder in which the unit `lastwords-bundle.service` saves the bundle of each kernel.
const BUNDLES: &str = "/var/lib/lastwords/bundles";
/// The first kernel with persistent instances.
const FIRST: (u32, u32) = (6, 12);
/// Bytes for each CPU below which an instance keeps little.
const SMALL: u64 = 128 << 10;
/// Bytes for each CPU, and for all together at least, that `--kernel-args` asks for.
const EACH: u64 = 2 << 20;
const LEAST: u64 = 12 << 20;
/// The alignment of a range: a huge page.
const ALIGN: u64 = 2 << 20;

/// What the checks look at.
struct Machine {
    release: String,
    command_line: String,
    iomem: String,
    cpus: u64,
    has_bundle: bool,
    has_pmem: bool,
}

impl Machine {
    fn this() -> Self {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let entries = std::fs::read_dir("/dev").into_iter().flatten().flatten();
        let has_pmem = entries.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().starts_with("pmem"));
        Self {
            has_bundle: Path::new(BUNDLES).join(format!("{release}.bundle")).is_file(),
            release,
            command_line: read("/proc/cmdline").unwrap_or_default(),
            iomem: read("/proc/iomem").unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64),
            has_pmem,
        }
    }
}

pub(super) fn check() -> Vec<Finding> {
    findings(&Machine::this())
}

/// The kernel arguments that give this machine a persistent instance, and a remark on them.
pub(super) fn kernel_args() -> (String, Option<&'static str>) {
    args(&Machine::this())
}

fn findings(machine: &Machine) -> Vec<Finding> {
    let bundle = match machine.has_bundle {
        true => Finding::good("bundle", format!("{BUNDLES} has one for this kernel")),
        false => Finding::partial(
            "bundle",
            format!(
                "{BUNDLES} has none for this kernel: after a reboot into another kernel, events have no formats and no symbols"
            ),
            format!("lastwords bundle save -o {BUNDLES}/{}.bundle", machine.release),
        ),
    };
    let memory = match machine.has_pmem {
        true => Finding::good("persistent memory", "/dev has a pmem device: sessions on it outlive a reboot"),
        false => Finding::partial(
            "persistent memory",
            "/dev has no pmem device: sessions in memory end with a reboot",
            "an NVDIMM, or the kernel argument memmap=SIZE!ADDRESS, which makes RAM a pmem device",
        ),
    };
    vec![instance(machine), bundle, memory]
}

/// The persistent trace instance that the kernel was started with.
fn instance(machine: &Machine) -> Finding {
    const CHECK: &str = "persistent trace";
    let mend = || format!("restart with: {}", args(machine).0);
    if version(&machine.release) < FIRST {
        let (major, minor) = FIRST;
        let found = format!("Linux {} keeps no trace across a reboot", machine.release);
        return Finding::partial(CHECK, found, format!("Linux {major}.{minor} or newer"));
    }
    let words = || machine.command_line.split_whitespace();
    let instance = words().filter_map(|word| word.strip_prefix("trace_instance=")).find_map(|value| {
        let (name, place) = value.split(',').next()?.split_once('@')?;
        Some((name.split('^').next()?, place))
    });
    let Some((name, place)) = instance else {
        return Finding::partial(CHECK, "no trace instance outlives a reboot", mend());
    };
    let reserved = words().filter_map(|word| word.strip_prefix("reserve_mem=")).find_map(|value| {
        let mut parts = value.split(':');
        let (size, _, label) = (parts.next()?, parts.next()?, parts.next()?);
        (label == place).then(|| bytes(size))?
    });
    let size = reserved.or_else(|| bytes(place.split_once(':')?.1));
    let Some(size) = size else {
        let found = format!("instance {name} is to be at {place}, and no reserve_mem= has that name");
        return Finding::partial(CHECK, found, mend());
    };
    let each = size.checked_div(machine.cpus).unwrap_or(0);
    if each < SMALL {
        let found = format!("instance {name} has {} KiB for each of {} CPUs", each >> 10, machine.cpus);
        return Finding::partial(CHECK, found, mend());
    }
    if reserved.is_some() && !words().any(|word| word == "nokaslr") {
        let found = format!(
            "instance {name} is in memory that the kernel reserves anew at each boot: with a random address of the kernel it can lie elsewhere, \
             and the events are not found"
        );
        return Finding::partial(CHECK, found, mend());
    }
    Finding::good(
        CHECK,
        format!("instance {name} has {} KiB for each of {} CPUs, at a stable address", each >> 10, machine.cpus),
    )
}

/// Major and minor version of a release.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Bytes, as the kernel reads them: decimal or hexadecimal, with K, M or G.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(['K', 'k', 'M', 'm', 'G', 'g']);
    let number = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    };
    let shift = match text.get(digits.len()..)?.to_ascii_uppercase().as_str() {
        "" => 0,
        "K" => 10,
        "M" => 20,
        "G" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

fn args(machine: &Machine) -> (String, Option<&'static str>) {
    let size = machine.cpus.saturating_mul(EACH).max(LEAST).next_multiple_of(ALIGN);
    let mib = size >> 20;
    match free(&machine.iomem, size).filter(|_| cfg!(target_arch = "x86_64")) {
        Some(address) => {
            let args = format!("memmap={mib}M${address:#x} trace_instance=boot_map@{address:#x}:{mib}M");
            (args, Some("GRUB takes the dollar sign as `\\\\\\$` in /etc/default/grub"))
        }
        None => {
            let remark = "no free range is known: as root, on x86-64, /proc/iomem tells one, and the address of the kernel may stay random";
            (format!("nokaslr reserve_mem={mib}M:4096:trace trace_instance=boot_map@trace"), Some(remark))
        }
    }
}

/// The highest address in the largest range of RAM from which on so many bytes are used for nothing, by the text of `/proc/iomem`.
fn free(iomem: &str, size: u64) -> Option<u64> {
    let row = |line: &str| {
        let (range, what) = line.trim_start().split_once(" : ")?;
        let (begin, last) = range.split_once('-')?;
        let [begin, last] = [begin, last].map(|address| u64::from_str_radix(address, 16).ok());
        Some((begin?..last?.checked_add(1)?, line.starts_with(' '), what.to_owned()))
    };
    let rows: Vec<(Range<u64>, bool, String)> = iomem.lines().filter_map(row).collect();
    let ram = rows.iter().filter(|(_, is_inside, what)| !is_inside && what == "System RAM");
    let (ram, ..) = ram.max_by_key(|(range, ..)| range.end.saturating_sub(range.start))?;
    let mut end = ram.end;
    loop {
        let begin = end.checked_sub(size)? / ALIGN * ALIGN;
        let taken = rows.iter().filter(|(range, is_inside, _)| {
            *is_inside && range.start < begin.saturating_add(size) && range.end > begin
        });
        match taken.map(|(range, ..)| range.start).min() {
            _ if begin < ram.start || begin == 0 => return None,
            Some(below) => end = below.min(end.saturating_sub(1)),
            None => return Some(begin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verbs::doctor::Status;

    const IOMEM: &str = "00001000-0009ffff : System RAM\n00100000-7fffffff : System RAM\n  01000000-02ffffff : Kernel code\n\
                         100000000-27fffffff : System RAM\n  27f000000-27fffffff : Crash kernel\n";

    fn machine(command_line: &str) -> Machine {
        Machine {
            release: "6.12.107-amd64".into(),
            command_line: command_line.into(),
            iomem: IOMEM.into(),
            cpus: 4,
            has_bundle: false,
            has_pmem: true,
        }
    }

    fn status(machine: &Machine) -> (Status, String) {
        let finding = instance(machine);
        (finding.status, finding.found)
    }

    #[test]
    fn instances_are_judged_by_the_command_line() {
        let (bad, found) = status(&machine("quiet"));
        assert!(bad == Status::Partial && found.contains("no trace instance"), "{found}");
        let (random, found) = status(&machine("reserve_mem=12M:4096:trace trace_instance=boot_map@trace"));
        assert!(random == Status::Partial && found.contains("elsewhere"), "{found}");
        let fixed = "nokaslr reserve_mem=12M:4096:trace trace_instance=boot_map^traceoff@trace,sched";
        assert_eq!(
            status(&machine(fixed)),
            (Status::Good, "instance boot_map has 3072 KiB for each of 4 CPUs, at a stable address".into())
        );
        assert_eq!(status(&machine("trace_instance=b@0x284500000:12M")).0, Status::Good);
        let (small, found) = status(&machine("trace_instance=b@0x284500000:0x40000"));
        assert!(small == Status::Partial && found.contains("64 KiB"), "{found}");
        let (lost, found) = status(&machine("reserve_mem=12M:4096:other trace_instance=b@trace"));
        assert!(lost == Status::Partial && found.contains("no reserve_mem="), "{found}");
        let old = Machine { release: "6.1.0-40-amd64".into(), ..machine("") };
        assert!(status(&old).1.contains("keeps no trace"));
    }

    #[test]
    fn a_free_range_is_below_what_is_used() {
        assert_eq!(free(IOMEM, 12 << 20), Some(0x2_7f00_0000 - (12 << 20)));
        assert_eq!(free(IOMEM, 1 << 40), None);
        assert_eq!(free("00000000-00000000 : System RAM\n", 12 << 20), None);
        if cfg!(target_arch = "x86_64") {
            assert_eq!(args(&machine("")).0, "memmap=12M$0x27e400000 trace_instance=boot_map@0x27e400000:12M");
            let given = args(&machine("")).0;
            assert_eq!(status(&machine(&given)).0, Status::Good);
        }
        let hidden = Machine { iomem: String::new(), cpus: 16, ..machine("") };
        assert_eq!(args(&hidden).0, "nokaslr reserve_mem=32M:4096:trace trace_instance=boot_map@trace");
        assert_eq!(status(&Machine { command_line: args(&hidden).0, ..hidden }).0, Status::Good);
    }

    #[test]
    fn a_missing_bundle_is_told_with_its_command() {
        let findings = findings(&machine(""));
        let bundle = findings.iter().find(|finding| finding.check == "bundle").unwrap();
        assert_eq!(
            bundle.mend.as_deref(),
            Some("lastwords bundle save -o /var/lib/lastwords/bundles/6.12.107-amd64.bundle")
        );
        assert!(findings.iter().any(|finding| finding.check == "persistent memory" && finding.status == Status::Good));
    }
}
