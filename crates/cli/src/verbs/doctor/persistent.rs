//! Checks what a reboot would keep of the kernel's trace: a persistent trace instance, a bundle for
//! this kernel, and persistent memory.

use super::{Finding, read};
use lastwords_open::{PersistentInstance, bundle_folder, instance_arguments};
use std::path::Path;

/// The first kernel with persistent instances.
const FIRST: (u32, u32) = (6, 12);
/// The first kernel that copies a persistent instance into another one when it boots.
const FIRST_BACKUP: (u32, u32) = (7, 0);
/// The buffer size for each CPU, in bytes, below which an instance keeps little.
const SMALL: u64 = 128 << 10;

/// The facts about a machine that the checks use.
struct Machine {
    release: String,
    command_line: String,
    iomem: String,
    cpus: u64,
    has_bundle: bool,
    memory: PersistentMemory,
}

/// The devices of persistent memory, by their names in `/dev`.
#[derive(Default)]
struct PersistentMemory {
    /// Block devices whose file system can be mounted with `-o dax`.
    dax: Vec<String>,
    /// Block devices whose file system cannot: their namespace is in another mode than `fsdax`.
    not_dax: Vec<String>,
    /// Device-DAX nodes.
    nodes: Vec<String>,
}

impl PersistentMemory {
    /// Lists the devices in a folder like `/sys`.
    fn find(sys: &Path) -> Self {
        let names = |folder: &str, begin: &str| -> Vec<String> {
            let entries = std::fs::read_dir(sys.join(folder)).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
            let mut names: Vec<String> = names.filter(|name| name.starts_with(begin)).collect();
            names.sort();
            names
        };
        let is_dax = |name: &String| {
            read(sys.join("block").join(name).join("queue/dax")).is_none_or(|dax| dax != "0")
        };
        let (dax, not_dax) = names("block", "pmem").into_iter().partition(is_dax);
        Self { dax, not_dax, nodes: names("bus/dax/drivers/device_dax", "dax") }
    }

    fn finding(&self) -> Finding {
        const CHECK: &str = "persistent memory";
        let list = |names: &[String]| {
            names.iter().map(|name| format!("/dev/{name}")).collect::<Vec<_>>().join(", ")
        };
        let fsdax = "ndctl create-namespace -f -e NAMESPACE -m fsdax (`ndctl list` has its name), which erases what the namespace holds";
        match self {
            Self { dax, .. } if !dax.is_empty() => {
                let found = format!(
                    "{}: sessions in a file system that is mounted with `-o dax` outlive a reboot",
                    list(dax)
                );
                Finding::good(CHECK, found)
            }
            Self { nodes, .. } if !nodes.is_empty() => Finding::good(
                CHECK,
                format!("{}: a session in a device-DAX node outlives a reboot", list(nodes)),
            ),
            Self { not_dax, .. } if !not_dax.is_empty() => {
                let found = format!(
                    "{}: no file system there can be mounted with `-o dax`, so sessions end with a reboot",
                    list(not_dax)
                );
                Finding::partial(CHECK, found, fsdax)
            }
            _ => Finding::off(
                CHECK,
                "/dev has no pmem device: sessions in memory end with a reboot",
                "an NVDIMM, or the kernel argument memmap=SIZE!ADDRESS, which makes RAM a pmem device",
            ),
        }
    }
}

impl Machine {
    fn this() -> Self {
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        Self {
            has_bundle: bundle_folder().join(format!("{release}.bundle")).is_file(),
            release,
            command_line: read("/proc/cmdline").unwrap_or_default(),
            iomem: read("/proc/iomem").unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64),
            memory: PersistentMemory::find(Path::new("/sys")),
        }
    }
}

pub(super) fn check() -> Vec<Finding> {
    findings(&Machine::this())
}

/// Returns the kernel arguments that give this machine a persistent instance, and a remark on them.
pub(super) fn kernel_args() -> (String, &'static str) {
    arguments(&Machine::this())
}

fn findings(machine: &Machine) -> Vec<Finding> {
    let bundles = bundle_folder();
    let bundles = bundles.display();
    let has_instance = PersistentInstance::of_command_line(&machine.command_line).is_some();
    let missing = if has_instance { Finding::partial } else { Finding::off };
    let bundle = match machine.has_bundle {
        true => Finding::good("bundle", format!("{bundles} has one for this kernel")),
        false => missing(
            "bundle",
            format!(
                "{bundles} has none for this kernel: after a reboot into another kernel, events have no formats and no symbols"
            ),
            format!("lastwords bundle save -o {bundles}/{}.bundle", machine.release),
        ),
    };
    [Some(instance(machine)), another_kernel(machine), Some(bundle), Some(machine.memory.finding())]
        .into_iter()
        .flatten()
        .collect()
}

/// Checks what becomes of a persistent instance when another kernel boots: where the layouts of the
/// ring differ, that kernel zeroes it.
fn another_kernel(machine: &Machine) -> Option<Finding> {
    const CHECK: &str = "persistent trace of another kernel";
    let PersistentInstance { name, .. } =
        PersistentInstance::of_command_line(&machine.command_line)?;
    let backup = format!("trace_instance=backup={name}");
    if machine
        .command_line
        .split_whitespace()
        .any(|word| word.split(',').next() == Some(backup.as_str()))
    {
        return Some(Finding::good(
            CHECK,
            format!("the kernel copies the events of instance {name} away when it boots"),
        ));
    }
    let found = format!(
        "the first boot of a kernel with another layout of the ring clears the events of instance {name}"
    );
    let once = "start the other kernel once without trace_instance= and with the same memmap=, and copy the memory \
                (docs/REBOOT-KERNEL.md)";
    if version(&machine.release) < FIRST_BACKUP {
        return Some(Finding::off(CHECK, found, once));
    }
    Some(Finding::partial(CHECK, found, format!("restart with {backup}, too; or {once}")))
}

/// Checks the persistent trace instance that the kernel was started with.
fn instance(machine: &Machine) -> Finding {
    const CHECK: &str = "persistent trace";
    let fix = || format!("restart with: {}", arguments(machine).0);
    if version(&machine.release) < FIRST {
        let (major, minor) = FIRST;
        let found = format!("Linux {} keeps no trace across a reboot", machine.release);
        return Finding::off(CHECK, found, format!("Linux {major}.{minor} or newer"));
    }
    let Some(instance) = PersistentInstance::of_command_line(&machine.command_line) else {
        return Finding::off(CHECK, "no trace instance outlives a reboot", fix());
    };
    let PersistentInstance { name, place, size, has_stable_address } = instance;
    let Some(size) = size else {
        let found =
            format!("instance {name} is to be at {place}, and no reserve_mem= has that name");
        return Finding::partial(CHECK, found, fix());
    };
    let each = size.checked_div(machine.cpus).unwrap_or(0);
    if each < SMALL {
        let found =
            format!("instance {name} has {} KiB for each of {} CPUs", each >> 10, machine.cpus);
        return Finding::partial(CHECK, found, fix());
    }
    if !has_stable_address {
        let found = format!(
            "instance {name} is in memory that the kernel reserves again at each boot. If the kernel loads at a random address, the memory can be elsewhere, \
             and the events are not found"
        );
        return Finding::partial(CHECK, found, fix());
    }
    Finding::good(
        CHECK,
        format!(
            "instance {name} has {} KiB for each of {} CPUs, at a stable address",
            each >> 10,
            machine.cpus
        ),
    )
}

/// Parses the major and minor version of a release.
fn version(release: &str) -> (u32, u32) {
    let mut numbers =
        release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn arguments(machine: &Machine) -> (String, &'static str) {
    let (mut line, remark) = instance_arguments(machine.cpus, &machine.iomem);
    if version(&machine.release) >= FIRST_BACKUP {
        line.push_str(" trace_instance=backup=boot_map");
    }
    (line, remark)
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
            memory: PersistentMemory::default(),
        }
    }

    fn status(machine: &Machine) -> (Status, String) {
        let finding = instance(machine);
        (finding.status, finding.found)
    }

    #[test]
    fn instances_are_judged_by_the_command_line() {
        let (bad, found) = status(&machine("quiet"));
        assert!(bad == Status::Off && found.contains("no trace instance"), "{found}");
        let (random, found) =
            status(&machine("reserve_mem=12M:4096:trace trace_instance=boot_map@trace"));
        assert!(random == Status::Partial && found.contains("elsewhere"), "{found}");
        let fixed =
            "nokaslr reserve_mem=12M:4096:trace trace_instance=boot_map^traceoff@trace,sched";
        assert_eq!(
            status(&machine(fixed)),
            (
                Status::Good,
                "instance boot_map has 3072 KiB for each of 4 CPUs, at a stable address".into()
            )
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
    fn the_arguments_give_a_good_instance() {
        if cfg!(target_arch = "x86_64") {
            let given = arguments(&machine("")).0;
            assert_eq!(status(&machine(&given)).0, Status::Good);
        }
        let hidden = Machine { iomem: String::new(), cpus: 16, ..machine("") };
        assert_eq!(
            status(&Machine { command_line: arguments(&hidden).0, ..hidden }).0,
            Status::Good
        );
    }

    #[test]
    fn what_another_kernel_clears_is_told_with_the_way_that_keeps_it() {
        let line = "memmap=12M$0x284500000 trace_instance=boot_map@0x284500000:12M";
        let of = |release: &str, line: &str| {
            another_kernel(&Machine { release: release.into(), ..machine(line) })
        };
        assert!(of("6.12.107", "quiet").is_none());
        let old = of("6.12.107", line).unwrap();
        assert!(
            old.status == Status::Off
                && old.fix.unwrap().starts_with("start the other kernel once without")
        );
        assert!(
            of("7.0.13", line)
                .unwrap()
                .fix
                .unwrap()
                .contains("restart with trace_instance=backup=boot_map, too")
        );
        let both = format!("{line} trace_instance=backup=boot_map");
        assert_eq!(of("7.0.13", &both).unwrap().status, Status::Good);
        let given = arguments(&Machine { release: "7.0.13".into(), ..machine("") }).0;
        assert!(given.ends_with("trace_instance=backup=boot_map"), "{given}");
    }

    #[test]
    fn a_missing_bundle_is_told_with_its_command() {
        let of = |line: &str| findings(&machine(line));
        let bundle = |line: &str| of(line).into_iter().find(|f| f.check == "bundle").unwrap();
        let with_instance = "trace_instance=b@0x284500000:12M";
        assert_eq!(bundle(with_instance).status, Status::Partial);
        assert_eq!(bundle("").status, Status::Off);
        assert_eq!(
            bundle("").fix.as_deref(),
            Some("lastwords bundle save -o /var/lib/lastwords/bundles/6.12.107-amd64.bundle")
        );
        assert!(
            of("").iter().any(
                |finding| finding.check == "persistent memory" && finding.status == Status::Off
            )
        );
    }

    #[test]
    fn persistent_memory_is_good_only_with_dax() {
        let folder = tempfile::tempdir().unwrap();
        let sys = folder.path();
        let finding = || PersistentMemory::find(sys).finding();
        assert!(finding().found.contains("no pmem device"));
        let queue = |name: &str, dax: &str| {
            let queue = sys.join("block").join(name).join("queue");
            std::fs::create_dir_all(&queue).unwrap();
            std::fs::write(queue.join("dax"), dax).unwrap();
        };
        queue("vda", "0\n");
        queue("pmem0", "0\n");
        assert_eq!(finding().status, Status::Partial);
        assert!(finding().found.contains("/dev/pmem0: no file system"));
        assert!(finding().fix.unwrap().contains("fsdax"));
        std::fs::create_dir_all(sys.join("bus/dax/drivers/device_dax/dax1.0")).unwrap();
        assert!(finding().found.contains("/dev/dax1.0: a session in a device-DAX node"));
        queue("pmem1", "1\n");
        assert_eq!(finding().status, Status::Good);
        assert!(finding().found.starts_with("/dev/pmem1: sessions"), "{}", finding().found);
    }
}
