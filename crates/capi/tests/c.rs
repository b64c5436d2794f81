//! The example in C, compiled as C and as C++ without a warning, installed as a user would, killed, and read back.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(command: &mut Command) -> Output {
    let out = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

/// Installs what cargo builds to a folder.
fn install(prefix: &Path) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let target = std::env::current_exe().expect("this program");
    let target = target.ancestors().nth(3).expect("the target folder");
    run(Command::new(env!("CARGO"))
        .args(["build", "-p", "lastwords-capi", "--target-dir"])
        .arg(target)
        .current_dir(root));
    run(Command::new(root.join("install.sh")).arg(prefix).arg(target.join("debug")));
}

fn compile(compiler: &str, flags: &[&str], prefix: &Path, to: &str) -> PathBuf {
    let program = prefix.join(to);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/hello.c");
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

#[test]
fn killed_and_read_back() {
    let prefix = tempfile::tempdir().expect("a folder");
    install(prefix.path());
    let c = compile("cc", &["-std=c11", "-O2"], prefix.path(), "hello-c");
    let cpp = compile("c++", &["-x", "c++", "-std=c++17", "-O2"], prefix.path(), "hello-cpp");
    for program in [c, cpp] {
        let out = Command::new(&program)
            .arg("kill")
            .env("LD_LIBRARY_PATH", prefix.path().join("lib"))
            .env("LASTWORDS_DIR", prefix.path().join("sessions"))
            .output()
            .expect("the example runs");
        let said = String::from_utf8(out.stdout).expect("text");
        let (folder, steps) = said.split_once('\n').expect("a folder and steps");
        let sessions = lastwords_testkit::naive::read(Path::new(folder)).expect("readable");
        // Every step that was reported, and the four events behind them.
        assert_eq!(steps.lines().count(), 1000, "{}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(sessions[0].events().len(), 1004);
    }
}
