//! Compiles programs as C and as C++ without a warning against the library as a user would install
//! it, and checks what is recovered of them.

mod fields;
mod hostile;
mod link;
mod record;
mod services;
mod session;
mod threads;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{LazyLock, Mutex};

fn run(command: &mut Command) -> Output {
    let out = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

/// The programs that the tests run: the command line, and those of the guides.
const PROGRAMS: [&str; 4] = ["lastwords", "shop", "server", "logging"];

/// The folder with the library and the programs, which cargo builds once for all tests. With
/// `--workspace`, what they depend on has the features that `cargo test --workspace` gave it, and
/// is not built a second time.
static BUILT: LazyLock<PathBuf> = LazyLock::new(|| {
    let target = std::env::current_exe().expect("this program");
    let target = target.ancestors().nth(3).expect("the target folder");
    run(Command::new(env!("CARGO"))
        .args(["build", "--workspace", "--lib"])
        .args(PROGRAMS.iter().flat_map(|name| ["--bin", name]))
        .arg("--target-dir")
        .arg(target)
        .current_dir(env!("CARGO_MANIFEST_DIR")));
    target.join("debug")
});

/// The folder in which the library is installed, once for all tests.
static PREFIX: LazyLock<PathBuf> = LazyLock::new(|| install("prefix"));

/// Installs the library to a new folder with this name.
fn install(name: &str) -> PathBuf {
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if prefix.exists() {
        std::fs::remove_dir_all(&prefix).expect("the folder of an earlier run goes");
    }
    run(Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("install.sh"))
        .arg(&prefix)
        .arg(&*BUILT));
    prefix
}

/// Compiles a source and links it with the installed library. Each program is made once for all
/// tests.
fn compile(compiler: &str, flags: &[&str], source: &str) -> PathBuf {
    static MADE: Mutex<Option<HashMap<String, PathBuf>>> = Mutex::new(None);
    let mut made = MADE.lock().expect("no test failed here");
    let made = made.get_or_insert_default();
    let count = made.len();
    let compiled = made.entry(format!("{compiler} {flags:?} {source}")).or_insert_with(|| {
        let program = PREFIX.join(format!("program-{count}"));
        run(Command::new(compiler)
            .args(flags)
            .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-D_GNU_SOURCE", "-I"])
            .arg(PREFIX.join("include"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(source))
            .arg("-L")
            .arg(PREFIX.join("lib"))
            .args(["-llastwords", "-lpthread", "-o"])
            .arg(&program));
        program
    });
    compiled.clone()
}

/// Compilers and flags, C before C++: the oldest standards that the header supports, and others.
const COMPILERS: [(&str, &[&str]); 4] = [
    ("cc", &["-std=c99", "-O2"]),
    ("cc", &["-std=c11", "-O0"]),
    ("c++", &["-x", "c++", "-std=c++11", "-O2"]),
    ("c++", &["-x", "c++", "-std=c++20", "-O3"]),
];

/// Returns the command of a compiled program whose sessions are in the folder.
fn program(sessions: &Path, program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("LD_LIBRARY_PATH", PREFIX.join("lib"))
        .env("LASTWORDS_DIR", sessions.join("sessions"));
    command
}

/// Returns the lines that a compiled program prints.
fn said(sessions: &Path, compiled: &Path, args: &[&str]) -> Vec<String> {
    let out = String::from_utf8(run(program(sessions, compiled).args(args)).stdout).expect("text");
    out.lines().map(str::to_owned).collect()
}

/// Returns what the command line prints.
fn lastwords(args: &[&str]) -> String {
    String::from_utf8(run(Command::new(BUILT.join("lastwords")).args(args)).stdout).expect("text")
}

/// Returns the report of each event, from its name on.
fn reported(args: &[&str]) -> Vec<String> {
    let text = lastwords(&[&["report"], args].concat());
    let from_name = |line: &str| {
        // Each line begins with time, level, CPU, and in most channels the thread.
        let (_, rest) = line.split_once("] ").expect("a CPU");
        rest.trim_start_matches(|letter: char| letter.is_ascii_digit()).trim_start().to_owned()
    };
    text.lines().map(from_name).collect()
}
