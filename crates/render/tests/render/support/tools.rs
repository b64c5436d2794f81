//! The installed babeltrace2.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The output of babeltrace2.
pub struct Printed {
    pub out: Vec<u8>,
    pub err: String,
    pub success: bool,
}

/// Prints a trace with a babeltrace2 program.
pub fn babeltrace(program: &Path, trace: &Path) -> Printed {
    let output = Command::new(program)
        .env("TZ", "UTC")
        .arg("--color=never")
        .arg(trace)
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}; `cargo xtask setup` installs it", program.display()));
    Printed {
        out: output.stdout,
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
        success: output.status.success(),
    }
}

/// Returns the path of the system's babeltrace2.
pub fn babeltrace20() -> PathBuf {
    PathBuf::from("babeltrace2")
}

/// Returns the path of a babeltrace2 of version 2.1 or newer: `$BABELTRACE21`, or else the one that
/// `cargo xtask setup` unpacked, or else the system's if it is new enough.
pub fn babeltrace21() -> PathBuf {
    if let Some(path) = std::env::var_os("BABELTRACE21") {
        return path.into();
    }
    let unpacked =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/bin/babeltrace2.1");
    if unpacked.exists() {
        return unpacked;
    }
    babeltrace20()
}
