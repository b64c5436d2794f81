//! trace-cmd in a mount namespace of its own, as a peer of what we record.
//!
//! In some virtual machines the kernel refuses to open the files of the function tracer, without
//! which trace-cmd does not record. It needs none of them for events, so that files of ours cover
//! them there. These are made in the current folder.

use std::path::Path;

/// The tracefs in which trace-cmd records.
#[derive(Debug, Clone, Copy)]
pub enum Tracing<'a> {
    /// An instance of the machine's tracefs, by its folder, which is made. trace-cmd removes only
    /// instances that it made itself, so that the caller removes the folder.
    Instance(&'a Path),
    /// A folder that takes the place of the machine's tracefs.
    Folder(&'a Path),
}

/// trace-cmd takes the first tracefs in the list of mounts.
const COVER: &str = r#"
    set -e
    umount /sys/kernel/debug/tracing 2>/dev/null || true
    cover() {
        test -e "$1" || return 0
        echo "$2" > "cover.${1##*/}"
        mount --bind "$PWD/cover.${1##*/}" "$1"
    }
    cover /proc/sys/kernel/ftrace_enabled 1
"#;
const INSTANCE: &str = r#"
    mkdir -p "$0"
    for file in set_ftrace_filter set_ftrace_notrace set_ftrace_pid; do cover "$0/$file" 'no pid'; done
    exec trace-cmd "$@"
"#;
const FOLDER: &str = r#"
    mount --bind "$0" /sys/kernel/tracing
    exec trace-cmd "$@"
"#;

/// Returns the words of a command that runs `trace-cmd`; its arguments follow them. Root alone can
/// run the command.
///
/// ```
/// use lastwords_testkit::trace_cmd::{Tracing, words};
/// let words = words(Tracing::Folder("/tmp/t".as_ref()));
/// assert_eq!((words[0].as_str(), words[5].as_str()), ("unshare", "/tmp/t"));
/// ```
pub fn words(tracing: Tracing<'_>) -> [String; 6] {
    let (script, folder) = match tracing {
        Tracing::Instance(folder) => (INSTANCE, folder),
        Tracing::Folder(folder) => (FOLDER, folder),
    };
    let [unshare, mount, sh, c] = ["unshare", "--mount", "sh", "-c"].map(str::to_owned);
    [unshare, mount, sh, c, format!("{COVER}{script}"), folder.display().to_string()]
}
