//! Tests the flags of pkg-config: programs that are built with them run, are killed and are read
//! back.

use std::path::Path;
use std::process::Command;

use super::{PREFIX, install, program, run};

/// Builds the example only with the flags of pkg-config for that prefix, kills it, and reads it
/// back.
fn killed_and_read_back(prefix: &Path, compiler: &[&str], pkg_config: &[&str]) {
    let flags = run(Command::new("pkg-config")
        .args(pkg_config)
        .args(["--cflags", "--libs", "lastwords"])
        .env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")));
    let flags = String::from_utf8(flags.stdout).expect("text");
    let compiled = prefix.join("hello");
    run(Command::new(compiler[0])
        .args(&compiler[1..])
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/hello.c"))
        .args(["-x", "none"])
        .args(flags.split_whitespace())
        .arg("-o")
        .arg(&compiled));
    let needed = run(Command::new("readelf").arg("-d").arg(&compiled)).stdout;
    let is_shared = String::from_utf8_lossy(&needed).contains("liblastwords.so.0");
    assert_eq!(is_shared, pkg_config.is_empty(), "{compiler:?} {flags}");
    let sessions = tempfile::tempdir().expect("a folder");
    let out = program(sessions.path(), &compiled).arg("kill").output().expect("the example runs");
    let said = String::from_utf8(out.stdout).expect("text");
    let (folder, steps) = said.split_once('\n').expect("a folder and steps");
    let found = lastwords_testkit::naive::read(Path::new(folder)).expect("readable");
    // The output has every reported step, the four events after them, and the error a second time
    // from its channel.
    assert_eq!(steps.lines().count(), 1000, "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(found[0].events().len(), 1005, "{compiler:?}");
}

#[test]
fn with_the_shared_library() {
    killed_and_read_back(&PREFIX, &["cc"], &[]);
    killed_and_read_back(&PREFIX, &["c++", "-x", "c++", "-std=c++17", "-O2"], &[]);
}

#[test]
fn without_any_shared_library() {
    let prefix = install("static");
    killed_and_read_back(&prefix, &["cc", "-static"], &["--static"]);
    // This package is for static linking only; the C library is the shared one.
    for name in ["liblastwords.so", "liblastwords.so.0"] {
        std::fs::remove_file(prefix.join("lib").join(name)).expect("it was installed");
    }
    killed_and_read_back(&prefix, &["cc"], &["--static"]);
}
