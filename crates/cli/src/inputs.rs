//! What the words on the command line stand for.

use std::path::PathBuf;

/// The folder of all sessions: `$LASTWORDS_DIR`, else `$XDG_RUNTIME_DIR/lastwords`, else `/dev/shm/lastwords-UID`.
pub(crate) fn sessions_dir() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    set("LASTWORDS_DIR")
        .or_else(|| set("XDG_RUNTIME_DIR").map(|d| d.join("lastwords")))
        .unwrap_or_else(|| PathBuf::from(format!("/dev/shm/lastwords-{}", rustix::process::geteuid().as_raw())))
}
