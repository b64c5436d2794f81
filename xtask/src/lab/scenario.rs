//! The scenarios. What the guest does in each stands in `guest/init.sh`.

/// How a scenario ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Tracing is stopped, the kernel prints its trace, then it panics.
    Stopped,
    /// The kernel panics while it traces, and prints its rings itself as it dies.
    Live,
    /// As stopped, and a crash kernel recovers from `/proc/vmcore`.
    Kdump,
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
}

const USUAL: &[&str] = &["elf", "kdump-zlib"];

const fn stopped(name: &'static str, arrays: &'static [&'static str], what: &'static str) -> Scenario {
    Scenario { name, what, end: End::Stopped, arrays, snapshots: &[], formats: USUAL, memory: 256 }
}

/// All of them.
pub(super) const SCENARIOS: &[Scenario] = &[
    stopped("nop", &["top"], "events of most subsystems, the ring wrapped"),
    stopped("function", &["top"], "the function tracer"),
    stopped("function_graph", &["top"], "the function_graph tracer"),
    Scenario {
        snapshots: &["top"],
        ..stopped("subbuf", &["top", "big"], "sub-buffers of 16 and 64 KB, where the kernel has them (from 6.8 on)")
    },
    stopped("instances", &["top", "errors", "calls"], "instances of several sizes, one without events"),
    Scenario {
        snapshots: &["top", "held"],
        ..stopped("snapshot", &["top", "held"], "snapshots of the top level and of an instance")
    },
    Scenario {
        end: End::Live,
        ..stopped("live-crash", &["top"], "tracing until the panic; the truth is what the dying kernel prints")
    },
    Scenario {
        formats: &["d31-zlib", "d31-lzo", "d31-zstd", "d31-flat", "d31-split"],
        ..stopped("excluded", &["top"], "dumps without free, cache, user and zero pages (makedumpfile -d 31)")
    },
    Scenario {
        end: End::Kdump,
        formats: &[],
        memory: 640,
        ..stopped("kdump", &["top"], "a crash kernel whose initramfs runs the static program on /proc/vmcore")
    },
];

/// The row of that name.
pub(super) fn find(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|s| s.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::dump;

    #[test]
    fn every_row_can_be_run() {
        for scenario in SCENARIOS {
            let alike = SCENARIOS.iter().filter(|s| s.name == scenario.name).count();
            assert_eq!(alike, 1, "{} is there {alike} times", scenario.name);
            assert!(scenario.formats.iter().all(|f| dump::FORMATS.iter().any(|known| known.name == *f)));
            assert!(scenario.snapshots.iter().all(|s| scenario.arrays.contains(s)));
            let script = include_str!("guest/init.sh");
            assert!(script.contains(&format!("\n{})", scenario.name)) || matches!(scenario.name, "excluded" | "kdump"));
        }
    }
}
