//! The scenarios. What the guest does in each stands in `guest/init.sh`.

/// How a scenario ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Tracing is stopped, the kernel prints its trace, then it panics.
    Stopped,
    /// The kernel panics while it traces, and prints its rings itself as it dies.
    Live,
    /// As stopped, and before the panic our program reads the living kernel's `/proc/kcore`.
    Kcore,
    /// As stopped, and a crash kernel recovers from `/proc/vmcore`.
    Kdump,
}

impl End {
    /// How the guest's command line names it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Live => "live",
            Self::Kcore => "kcore",
            Self::Kdump => "kdump",
        }
    }
}

/// A row of [`SCENARIOS`].
#[derive(Debug)]
pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    pub(super) end: End,
    /// The arrays that must have events.
    pub(super) arrays: &'static [&'static str],
    /// Those of them whose snapshot must have events.
    pub(super) snapshots: &'static [&'static str],
    /// The dumps that are made where the user names none.
    pub(super) formats: &'static [&'static str],
    /// Megabytes of memory.
    pub(super) memory: u32,
    /// CPUs.
    pub(super) cpus: u32,
    /// More for QEMU's name of an x86_64 CPU.
    pub(super) more_cpu: &'static str,
    /// More for the kernel's command line.
    pub(super) arguments: &'static str,
    /// Modules that the guest loads, with those that they need.
    pub(super) modules: &'static [&'static str],
    /// It has the devices of [`wide::devices`](super::wide::devices).
    pub(super) is_wide: bool,
}

const USUAL: &[&str] = &["elf", "kdump-zlib"];
const ONE: &[&str] = &["elf"];
/// Tracing from the boot on.
const BOOT: &str = "trace_buf_size=200k trace_clock=mono trace_options=sym-offset,stacktrace,record-tgid \
                    trace_event=sched:sched_switch,irq:*,printk:* trace_instance=early,sched:sched_waking,timer:hrtimer_start";

const fn stopped(
    name: &'static str,
    arrays: &'static [&'static str],
    what: &'static str,
) -> Scenario {
    let (end, formats, memory, cpus) = (End::Stopped, USUAL, 256, 2);
    let (snapshots, more_cpu, arguments, modules, is_wide) = (&[], "", "", &[], false);
    Scenario {
        name,
        what,
        end,
        arrays,
        snapshots,
        formats,
        memory,
        cpus,
        more_cpu,
        arguments,
        modules,
        is_wide,
    }
}

/// One that is dumped in one form.
const fn one(name: &'static str, arrays: &'static [&'static str], what: &'static str) -> Scenario {
    Scenario { formats: ONE, ..stopped(name, arrays, what) }
}

/// All of them.
pub(super) const SCENARIOS: &[Scenario] = &[
    stopped("nop", &["top"], "events of most subsystems, the ring wrapped"),
    stopped("function", &["top"], "the function tracer"),
    stopped("function_graph", &["top"], "the function_graph tracer"),
    Scenario {
        snapshots: &["top"],
        ..stopped(
            "subbuf",
            &["top", "big"],
            "sub-buffers of 16 and 64 KB, where the kernel has them (from 6.8 on)",
        )
    },
    stopped(
        "instances",
        &["top", "errors", "calls"],
        "instances of several sizes, one without events",
    ),
    Scenario {
        snapshots: &["top", "held"],
        ..stopped("snapshot", &["top", "held"], "snapshots of the top level and of an instance")
    },
    one("all", &["top"], "every event that the kernel has, in one large ring"),
    one(
        "options",
        &["top", "latency", "verbose", "symbols", "bare"],
        "trace options that shape the text",
    ),
    one(
        "probes",
        &["top"],
        "kprobes, uprobes, fprobes, event probes, synthetic events, raw markers",
    ),
    one("clocks", &["top", "counter", "boot"], "an instance with each clock"),
    one(
        "arguments",
        &["top"],
        "the function tracer with arguments, where the kernel has them (from 6.15 on)",
    ),
    one("graph-options", &["top"], "the function_graph tracer with all of its options"),
    one("stacks", &["top"], "the function tracer with a stack for each function"),
    Scenario {
        modules: &["xfs", "kvm", "btrfs"],
        ..one("modules", &["top"], "events and functions of modules")
    },
    Scenario {
        memory: 2048,
        modules: super::wide::MODULES,
        is_wide: true,
        ..one(
            "wide",
            &["top", "rare"],
            "every event that the kernel and its drivers have, with their devices (flavour amd64)",
        )
    },
    Scenario {
        cpus: 4,
        ..one("unplugged", &["top"], "four CPUs, one of them taken offline before the crash")
    },
    Scenario { arguments: "nokaslr", ..one("nokaslr", &["top"], "a kernel where it was linked") },
    Scenario {
        more_cpu: ",la57=off",
        memory: 5120,
        ..one(
            "large",
            &["top"],
            "memory above 4 GB, page tables of four levels (else there are five)",
        )
    },
    one("latency", &["top"], "the tracers wakeup_rt, osnoise and hwlat (flavour rt-amd64)"),
    one("timerlat", &["top"], "the tracer timerlat (flavour rt-amd64)"),
    one("block", &["top", "plain"], "the tracer blk"),
    one("block-classic", &["top"], "the tracer blk with its own lines"),
    one("mmiotrace", &["top"], "the tracer mmiotrace"),
    Scenario {
        memory: 512,
        cpus: 8,
        ..one(
            "sizes",
            &["top", "tiny", "uneven", "masked", "mine", "refusing", "paused"],
            "rings of one page to 64 MB, on eight CPUs",
        )
    },
    Scenario {
        cpus: 1,
        arguments: BOOT,
        ..one(
            "boot",
            &["top"],
            "one CPU, tracing from the boot on, with an instance where the kernel has them (from 6.4 on)",
        )
    },
    Scenario {
        end: End::Live,
        ..stopped(
            "live-crash",
            &["top"],
            "tracing until the panic; the truth is what the dying kernel prints",
        )
    },
    Scenario {
        formats: &["d31-zlib", "d31-lzo", "d31-zstd", "d31-flat", "d31-split"],
        ..stopped(
            "excluded",
            &["top"],
            "dumps without free, cache, user and zero pages (makedumpfile -d 31)",
        )
    },
    Scenario {
        end: End::Kcore,

        ..one("kcore", &["top"], "the static program on the running kernel's /proc/kcore")
    },
    Scenario {
        end: End::Kdump,
        formats: &[],
        memory: 640,
        ..stopped(
            "kdump",
            &["top"],
            "a crash kernel whose initramfs runs the static program on /proc/vmcore",
        )
    },
];

/// The row of that name.
pub(super) fn find(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|s| s.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dump;

    /// Those that do in the guest what the script does for all others.
    const SHARED: &[&str] = &["excluded", "kcore", "kdump", "nokaslr", "large"];

    #[test]
    fn every_row_can_be_run() {
        for scenario in SCENARIOS {
            let alike = SCENARIOS.iter().filter(|s| s.name == scenario.name).count();
            assert_eq!(alike, 1, "{} is there {alike} times", scenario.name);
            assert!(
                scenario.formats.iter().all(|f| dump::FORMATS.iter().any(|known| known.name == *f))
            );
            assert!(scenario.snapshots.iter().all(|s| scenario.arrays.contains(s)));
            let script = include_str!("guest/init.sh");
            assert!(
                script.contains(&format!("\n{})", scenario.name))
                    || SHARED.contains(&scenario.name)
            );
        }
    }
}
