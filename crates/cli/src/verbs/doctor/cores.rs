//! Checks what a process core would keep of a session: where cores go, how large they may be, and
//! which mappings they have.

use super::{Finding, read};
use crate::verbs::core_helper::{CORE_PATTERN, Helper, PIPE_LIMIT, WANTED_LIMIT, is_socket};
use std::path::Path;

pub(super) fn check() -> Vec<Finding> {
    let pattern = read(CORE_PATTERN).unwrap_or_default();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Core).current;
    let helper = Helper::parse(&pattern);
    let mut findings = vec![self::helper(helper.as_ref(), &read(PIPE_LIMIT).unwrap_or_default())];
    // Behind the helper, cores go where the old pattern says, with the limit that it means for
    // them.
    let pattern = helper.map_or(pattern, |helper| helper.old);
    findings.extend([target(&pattern), size(&pattern, limit)]);
    let filter = read("/proc/self/coredump_filter").unwrap_or_default();
    match u32::from_str_radix(&filter, 16) {
        Ok(bits) => findings.push(kept(bits)),
        Err(_) => findings.push(
            Finding::partial(
                "core filter",
                format!("/proc/self/coredump_filter is {filter:?}: not a number"),
                "",
            )
            .without_fix(),
        ),
    }
    findings
}

/// Checks whether the helper is installed that keeps the sessions of processes which a signal
/// kills.
fn helper(helper: Option<&Helper>, pipe_limit: &str) -> Finding {
    const CHECK: &str = "core helper";
    match helper {
        Some(Helper { program, .. }) if !Path::new(program).exists() => Finding::partial(
            CHECK,
            format!("installed, but {program} does not exist: no core is kept"),
            "lastwords core-helper remove",
        ),
        Some(_) if pipe_limit == "0" => Finding::partial(
            CHECK,
            format!(
                "installed, but {PIPE_LIMIT} is 0: the kernel does not wait for the helper, and small cores are lost"
            ),
            format!("sysctl -w kernel.core_pipe_limit={WANTED_LIMIT}"),
        ),
        Some(Helper { program, .. }) => Finding::good(
            CHECK,
            format!(
                "{program}: the sessions of a process that a signal kills are kept, also those on its heap{}",
                few(pipe_limit)
            ),
        ),
        None => Finding::off(
            CHECK,
            "not installed: heap and memfd sessions of a killed process are only in its core; those in shared memory stay",
            "lastwords core-helper install",
        ),
    }
}

/// Says how many helpers the kernel lets run at the same time, where these are fewer than `install`
/// sets.
fn few(pipe_limit: &str) -> String {
    match pipe_limit.parse::<u32>() {
        Ok(limit @ 1..WANTED_LIMIT) => {
            format!(
                "; the kernel drops the core and the sessions of a process that dies while {limit} helpers run ({PIPE_LIMIT})"
            )
        }
        _ => String::new(),
    }
}

/// Checks where core dumps are written (core(5)).
fn target(pattern: &str) -> Finding {
    const CHECK: &str = "cores";
    let fix = "sysctl -w kernel.core_pattern=/var/crash/core.%e.%p (sessions in shared memory need no core)";
    if let Some(handler) = pattern.strip_prefix('|') {
        let program = handler.split_whitespace().next().unwrap_or_default();
        if !Path::new(program).exists() {
            return Finding::partial(
                CHECK,
                format!("piped to {program}, which is not there: no core is kept"),
                fix,
            );
        }
        let how = if program.ends_with("systemd-coredump") {
            "take one out with: coredumpctl -o CORE dump PID; and read it, or its .zst, as it is"
        } else {
            "see its manual for where it leaves them"
        };
        return Finding::good(CHECK, format!("piped to {program}: {how}"));
    }
    if is_socket(pattern) {
        let found = format!(
            "sent to the socket {}: see its server's manual",
            pattern.trim_start_matches('@')
        );
        return Finding::good(CHECK, found);
    }
    if pattern.is_empty() {
        return Finding::off(CHECK, "core_pattern is empty: no core is written", fix);
    }
    let parent = Path::new(pattern)
        .parent()
        .filter(|p| pattern.starts_with('/') && !p.to_string_lossy().contains('%'));
    match parent {
        Some(parent) if !parent.is_dir() => {
            let found = format!("written to {pattern}, but {} is no folder", parent.display());
            Finding::partial(CHECK, found, format!("mkdir -p {}", parent.display()))
        }
        Some(_) => Finding::good(CHECK, format!("written to {pattern}")),
        None => {
            Finding::good(CHECK, format!("written to `{pattern}` in the folder the process is in"))
        }
    }
}

/// Checks the size limit of core dumps, in bytes. Without a limit, they are unlimited.
fn size(pattern: &str, limit: Option<u64>) -> Finding {
    const CHECK: &str = "core size";
    // A handler program receives the whole core whatever the limit is, unless the limit is 1
    // (core(5)). A socket always does.
    if is_socket(pattern) || pattern.starts_with('|') && limit != Some(1) {
        return Finding::good(CHECK, "not limited: cores go to a program");
    }
    match limit {
        None => Finding::good(CHECK, "unlimited"),
        Some(limit) => Finding::off(
            CHECK,
            format!(
                "limited to {limit} bytes in this shell: heap and memfd sessions of what it starts would not be in a \
                 core; those in shared memory need none"
            ),
            "ulimit -c unlimited",
        ),
    }
}

/// Bits of `coredump_filter` (core(5)), and the back-end whose buffers are in such mappings.
const FILTER: [(u32, &str); 5] = [
    (0, "heap (private memory)"),
    (1, "memfd (and unlinked files)"),
    (3, "shared-memory files"),
    (6, "huge pages (shared)"),
    (8, "DAX (shared)"),
];
/// The bits that make heap and memfd sessions recoverable from a core.
const WANTED: u32 = 0b11;

fn kept(bits: u32) -> Finding {
    const CHECK: &str = "core filter";
    let (mut in_core, mut out) = (Vec::new(), Vec::new());
    for (bit, what) in FILTER {
        if bits >> bit & 1 == 1 { in_core.push(what) } else { out.push(what) }
    }
    let list = |what: &[&str]| if what.is_empty() { "nothing".to_owned() } else { what.join(", ") };
    let found = format!(
        "{bits:#x}: a core keeps the buffers of: {}; not of: {}",
        list(&in_core),
        list(&out)
    );
    if bits & WANTED == WANTED {
        return Finding::good(CHECK, found);
    }
    Finding::partial(
        CHECK,
        found,
        format!("echo {:#x} > /proc/self/coredump_filter", bits | WANTED),
    )
}

#[cfg(test)]
mod tests {
    use super::super::Status;
    use super::*;

    #[test]
    fn the_default_filter_keeps_heap_and_memfd() {
        let finding = kept(0x33);
        assert_eq!(finding.status, Status::Good);
        assert!(
            finding.found.contains(
                "keeps the buffers of: heap (private memory), memfd (and unlinked files);"
            )
        );
        assert!(finding.found.contains("not of: shared-memory files"));
        assert_eq!(kept(0x31).fix.as_deref(), Some("echo 0x33 > /proc/self/coredump_filter"));
    }

    #[test]
    fn a_limit_counts_for_files_not_for_handlers() {
        assert_eq!(size("core", Some(0)).status, Status::Off);
        assert_eq!(size("core", None).status, Status::Good);
        assert_eq!(size("|/bin/cat", Some(0)).status, Status::Good);
        assert_eq!(size("|/bin/cat", Some(1)).status, Status::Off);
        assert_eq!(size("@@/run/socket", Some(0)).status, Status::Good);
    }

    #[test]
    fn the_helper_is_there_or_not() {
        let finding = |program: &str, limit: &str| {
            helper(Some(&Helper { program: program.into(), old: "core".into() }), limit)
        };
        assert_eq!(finding("/proc/self/exe", "16").status, Status::Good);
        assert!(finding("/proc/self/exe", "16").found.contains("while 16 helpers run"));
        assert!(!finding("/proc/self/exe", "1024").found.contains("helpers run"));
        assert_eq!(
            finding("/proc/self/exe", "0").fix.as_deref(),
            Some("sysctl -w kernel.core_pipe_limit=1024")
        );
        assert_eq!(
            finding("/no/such/program", "16").fix.as_deref(),
            Some("lastwords core-helper remove")
        );
        assert_eq!(helper(None, "0").status, Status::Off);
        assert_eq!(helper(None, "0").fix.as_deref(), Some("lastwords core-helper install"));
    }

    #[test]
    fn where_cores_go() {
        assert_eq!(target("core").status, Status::Good);
        assert_eq!(target("|/no/such/handler %p").status, Status::Partial);
        assert_eq!(
            target("/no/such/folder/core.%p").fix.as_deref(),
            Some("mkdir -p /no/such/folder")
        );
        assert_eq!(target("").status, Status::Off);
        assert_eq!(
            target("@@/run/socket").found,
            "sent to the socket /run/socket: see its server's manual"
        );
    }
}
