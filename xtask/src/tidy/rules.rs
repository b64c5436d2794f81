//! The data of the rules: what may use what, how long things may be, where `unsafe` may stand.

/// The crate graph: each crate and the crates of ours that it may use (as normal or build
/// dependencies), in the order of the data's flow. ARCHITECTURE.md describes the crates.
/// `lastwords-NAME` is written `NAME`; spaces divide names.
pub(super) const GRAPH: &[(&str, &str)] = &[
    ("abi", ""),
    ("folders", "abi"),
    ("glob", ""),
    ("filter", "glob"),
    ("ring", "folders abi"),
    ("lastwords", "ring folders filter glob abi"),
    ("capi", "lastwords"),
    ("control", "lastwords ring folders abi"),
    ("bytes", ""),
    ("image", "bytes"),
    ("trace", "bytes"),
    ("kernel", "image bytes trace"),
    ("ctf", "trace bytes"),
    ("session", "folders ctf image abi trace bytes"),
    ("lttng", "ctf kernel image trace bytes"),
    ("bpf", "kernel image trace bytes"),
    ("ftrace", "filter glob bytes image trace kernel ctf"),
    ("perf", "kernel image trace bytes ftrace"),
    ("render", "ctf trace filter glob bytes"),
    (
        "open",
        "folders glob filter bytes image kernel trace ctf session lttng bpf ftrace perf render",
    ),
    ("arrow", "kernel trace ctf render open"),
    ("view", "bytes trace ctf render"),
    ("live", "folders lastwords control bytes trace ftrace session open"),
    ("sessionfs", "folders lastwords control filter glob trace ctf ftrace render open live"),
    ("stream", "abi lastwords control bytes trace ftrace render open"),
    ("tracefs", "glob ring bytes trace ftrace render open stream"),
    (
        "cli",
        "abi folders glob filter ring lastwords control bytes image kernel trace ctf session lttng bpf ftrace perf render open arrow live sessionfs stream tracefs view",
    ),
    ("testkit", ""),
    ("bench", "abi ring lastwords bytes image kernel trace session render testkit"),
    ("quick-start", "lastwords"),
    ("rust-app", "lastwords"),
    ("tokio-app", "lastwords"),
    ("proof-bench", "proof-rig testkit"),
    ("proof-book", "proof-rig"),
    ("proof-checks", "proof-rig"),
    ("proof-compare", "proof-rig proof-lab proof-persistence bytes kernel lttng ftrace testkit"),
    ("proof-crash-step", "proof-rig abi ring lastwords bytes image trace ctf session testkit"),
    ("proof-dist", "proof-rig proof-lab"),
    ("proof-exclude", "proof-rig testkit bytes image kernel bpf ftrace perf trace"),
    ("proof-ftracetest", "proof-rig lastwords control"),
    ("proof-hostile", "proof-rig bytes image kernel lttng ftrace testkit"),
    ("proof-kills", "proof-rig ring lastwords trace ctf session testkit"),
    ("proof-lab", "proof-rig ring lastwords testkit"),
    ("proof-persistence", "proof-rig ring lastwords bytes image trace ctf session testkit"),
    ("proof-python", "proof-rig"),
    ("proof-remove", "proof-rig testkit"),
    ("proof-rig", ""),
    ("proof-services", "proof-rig"),
    ("proof-shapes", "proof-rig testkit"),
    ("proof-surroundings", "proof-rig"),
    ("proof-tables", "proof-rig lastwords testkit"),
    ("proof-tracing", "proof-rig lastwords testkit"),
    ("proof-view", "filter lastwords proof-rig testkit"),
    ("xtask", "proof-rig"),
];

/// Layers inside a crate: the beginning of a path, and the modules of that crate which its files
/// may not use.
pub(super) const LAYERS: &[(&str, &[&str])] = &[
    ("crates/lastwords/src/process", &["session", "record", "layer", "crash", "handle", "start"]),
    ("crates/lastwords/src/session", &["record", "layer", "crash", "start"]),
    ("crates/lastwords/src/record", &["layer", "crash", "handle", "start"]),
];

/// Crates that read bytes of others: damaged memory, files of other programs.
pub(super) const READERS: &[&str] = &[
    "filter", "bytes", "image", "trace", "kernel", "ctf", "session", "lttng", "ftrace", "render",
    "view", "open", "stream",
];
/// Lints of clippy that the roots of [`READERS`] deny outside of tests. Cargo's `[workspace.lints]`
/// would deny them in tests and in all other crates too.
pub(super) const DENIED: &[&str] =
    &["indexing_slicing", "unwrap_used", "expect_used", "panic", "arithmetic_side_effects"];

/// Every crate's licence.
pub(super) const LICENCE: &str = "MIT OR Apache-2.0";

/// Most lines of a `.rs` file.
pub(super) const FILE_LINES: usize = 600;
/// Most lines of a function, from its signature to its closing brace.
pub(super) const FUNCTION_LINES: usize = 80;

/// Where `unsafe` may stand: the beginning of a path and the reason.
pub(super) const UNSAFE: &[(&str, &str)] = &[
    ("crates/ring/", "atomics over shared memory, restartable sequences"),
    ("crates/control/src/dead/", "flags of descriptors; tests that fill rings"),
    ("crates/lastwords/", "mappings, signal handlers, writes into reserved space"),
    ("crates/capi/", "the C boundary"),
    ("proof/crash-step/src", "the crash stepper: ptrace"),
    ("proof/persistence/src/mapped.rs", "the memory of a session that this process records"),
    (
        "proof/kills/src/child.rs",
        "a page shared with the children that are killed, their signal handlers",
    ),
    ("bench/", "the floors of the benches: clock reads and bare stores; the peers' own interfaces"),
];

/// Folders and files that are not ours to check: what builds, fuzzers and git leave.
pub(super) const SKIPPED: &[&str] = &["target", ".git", "artifacts", "corpus"];

/// The folder beside the checkout at the project's own place, and the files that may name it.
pub(super) const BESIDE: (&str, &[&str]) =
    (concat!("..", "/shared"), &[".ci/run", "proof/rig/src/lib.rs"]);

/// Places of our own machines, which no committed file names.
pub(super) const PLACES: &[&str] =
    &[concat!("/wo", "rk/"), concat!(".li", "brary"), concat!("issues", " show")];
