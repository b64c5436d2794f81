//! Programs in C, compiled as C and as C++ without a warning against the library as a user would install it, and what is
//! recovered of them.

mod fields;
mod record;
mod session;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(command: &mut Command) -> Output {
    let out = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

/// Has cargo build a package; the folder where it lies.
fn build(package: &str) -> PathBuf {
    let target = std::env::current_exe().expect("this program");
    let target = target.ancestors().nth(3).expect("the target folder");
    run(Command::new(env!("CARGO"))
        .args(["build", "-p", package, "--target-dir"])
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR")));
    target.join("debug")
}

/// Installs what cargo builds to a folder.
fn install(prefix: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    run(Command::new(root.join("install.sh")).arg(prefix).arg(build("lastwords-capi")));
}

/// Compiles a source and links it with the library as installed.
fn compile(compiler: &str, flags: &[&str], prefix: &Path, source: &str, to: &str) -> PathBuf {
    let program = prefix.join(to);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    let mut command = Command::new(compiler);
    command.args(flags).args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-D_GNU_SOURCE"]);
    run(command
        .arg("-I")
        .arg(prefix.join("include"))
        .arg(source)
        .arg("-L")
        .arg(prefix.join("lib"))
        .args(["-llastwords", "-o"])
        .arg(&program));
    program
}

/// Compilers and flags, C before C++: the oldest standards that the header is for, and others.
const COMPILERS: [(&str, &[&str]); 4] = [
    ("cc", &["-std=c99", "-O2"]),
    ("cc", &["-std=c11", "-O0"]),
    ("c++", &["-x", "c++", "-std=c++11", "-O2"]),
    ("c++", &["-x", "c++", "-std=c++20", "-O3"]),
];

/// What a compiled program prints, its sessions being in the folder `sessions` of the prefix.
fn said(prefix: &Path, program: &Path, args: &[&str]) -> Vec<String> {
    let mut command = Command::new(program);
    command.env("LD_LIBRARY_PATH", prefix.join("lib")).env("LASTWORDS_DIR", prefix.join("sessions"));
    let out = String::from_utf8(run(command.args(args)).stdout).expect("text");
    out.lines().map(str::to_owned).collect()
}

/// What the command line prints.
fn lastwords(args: &[&str]) -> String {
    String::from_utf8(run(Command::new(build("lastwords-cli").join("lastwords")).args(args)).stdout).expect("text")
}

/// What is reported of each event, from its name on.
fn reported(args: &[&str]) -> Vec<String> {
    let text = lastwords(&[&["report"], args].concat());
    let from_name = |line: &str| {
        // Time, level, CPU, and in most channels the thread.
        let (_, rest) = line.split_once("] ").expect("a CPU");
        rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim_start().to_owned()
    };
    text.lines().map(from_name).collect()
}
