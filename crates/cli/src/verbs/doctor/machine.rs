//! Checks what the fast path needs: restartable sequences, a steady counter, resource limits. It
//! also checks huge pages for the huge back-end.

use super::{Finding, read};

pub(super) fn check() -> Vec<Finding> {
    let mut findings = vec![
        rseq(),
        guards(),
        clock(),
        huge_pages(read("/proc/meminfo").unwrap_or_default().as_str()),
    ];
    findings.extend(limits());
    findings
}

fn rseq() -> Finding {
    const CHECK: &str = "restartable sequences";
    if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
        let found = "not written for this architecture: sessions use the lockless reservation";
        return Finding::partial(CHECK, found, "").without_fix();
    }
    if lastwords::rseq_available() {
        return Finding::good(CHECK, "registered: the fast reservation works");
    }
    let found = "not registered in this thread: sessions use the lockless reservation, about three times slower";
    let tunables = std::env::var("GLIBC_TUNABLES").unwrap_or_default();
    if tunables.contains("glibc.pthread.rseq=0") {
        return Finding::partial(CHECK, found, "unset GLIBC_TUNABLES");
    }
    let fix =
        "a kernel of 4.18 or newer with CONFIG_RSEQ=y, and no seccomp filter that refuses rseq(2)";
    Finding::partial(CHECK, found, fix)
}

/// Checks whether the kernel marks the sessions of a process that dies.
fn guards() -> Finding {
    const CHECK: &str = "signs of death";
    if lastwords_control::can_be_guarded() {
        return Finding::good(
            CHECK,
            "the kernel marks a session when its process dies, in containers too",
        );
    }
    let found = "no robust futexes: processes of other pid namespaces are shown as unknown";
    Finding::partial(
        CHECK,
        found,
        "a seccomp filter that allows set_robust_list(2) and get_robust_list(2)",
    )
}

fn clock() -> Finding {
    const CHECK: &str = "clock";
    if cfg!(target_arch = "aarch64") {
        return Finding::good(CHECK, "the virtual counter is steady by architecture");
    }
    let flags = read("/proc/cpuinfo").unwrap_or_default();
    let flags = flags.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
    let source = read("/sys/devices/system/clocksource/clocksource0/current_clocksource")
        .unwrap_or_default();
    clock_of(has("constant_tsc") && has("nonstop_tsc"), &source)
}

fn clock_of(invariant: bool, source: &str) -> Finding {
    const CHECK: &str = "clock";
    if invariant {
        return Finding::good(
            CHECK,
            format!("the time stamp counter is invariant (kernel's clock source: {source})"),
        );
    }
    let found = format!(
        "the time stamp counter is not said to be invariant (kernel's clock source: {source}): sessions use \
         CLOCK_MONOTONIC, about 14 ns an event more"
    );
    Finding::partial(
        CHECK,
        found,
        "in a guest: pass the host's counter through (QEMU: -cpu host,+invtsc)",
    )
}

fn huge_pages(meminfo: &str) -> Finding {
    const CHECK: &str = "huge pages";
    let number = |key: &str| -> u64 {
        let line = meminfo.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
        line.split_whitespace().next().and_then(|n| n.parse().ok()).unwrap_or(0)
    };
    let (free, kib) = (number("HugePages_Free:"), number("Hugepagesize:"));
    if free > 0 {
        return Finding::good(CHECK, format!("{free} of {kib} KiB are free for the huge back-end"));
    }
    let found = "none is reserved: only the huge back-end needs them";
    Finding::off(CHECK, found, "sysctl -w vm.nr_hugepages=64")
}

/// Files that a program needs besides those of a session.
const SPARE_FILES: u64 = 64;

fn limits() -> Vec<Finding> {
    use rustix::process::{Resource, getrlimit};
    let cpus = lastwords_trace::parallel::cpus() as u64;
    let needed = 3 * (cpus + 1) + SPARE_FILES;
    let mut findings = Vec::new();
    let files = getrlimit(Resource::Nofile).current;
    findings.push(match files {
        Some(files) if files < needed => Finding::partial(
            "open files",
            format!("at most {files}, while a session of three channels on {cpus} CPUs is opened with about {needed}"),
            format!("ulimit -n {}", needed * 2),
        ),
        _ => Finding::good("open files", format!("enough for sessions on {cpus} CPUs")),
    });
    if let Some(bytes) = getrlimit(Resource::Fsize).current {
        let found = format!("files are limited to {bytes} bytes: larger rings cannot be made");
        findings.push(Finding::partial("file size", found, "ulimit -f unlimited"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn huge_pages_are_read_from_meminfo() {
        let some =
            huge_pages("MemTotal: 1 kB\nHugePages_Free:       3\nHugepagesize:       2048 kB\n");
        assert_eq!(
            (some.status, some.found.as_str()),
            (Status::Good, "3 of 2048 KiB are free for the huge back-end")
        );
        assert_eq!(huge_pages("HugePages_Free: 0\n").status, Status::Off);
    }

    #[test]
    fn a_counter_that_may_stop_is_told() {
        assert_eq!(clock_of(true, "tsc").status, Status::Good);
        assert!(clock_of(false, "hpet").fix.is_some());
    }
}
