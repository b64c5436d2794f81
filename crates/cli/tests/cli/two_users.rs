//! Two users: neither gets anything of the other, and neither can give the other anything. As root
//! only.

use crate::child::start;
use crate::mount::Mount;
use crate::support::{NOBODY, Place, make_folder, ran};
use lastwords_testkit::text::Text as _;
use std::process::{Command, Stdio};

/// The preparation that each command needs: the other user's sessions in `theirs`, and a device
/// that the other user may open, in a mount namespace of its own.
const BEGIN: &str = r#"
    set -e
    mknod device c 10 229
    chmod 666 device
    mount --bind device /dev/fuse
    as_other() { LASTWORDS_DIR=$PWD/theirs setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; }
    refused() {
        if "$@" > out 2>&1; then echo "not refused: $*"; cat out; exit 1; fi
    }
"#;

/// A session and a mount of the other user.
const THEIR_MOUNT: &str = r#"
    mkfifo hold
    as_other "$PROGRAM" mount-recorder make theirs < hold > made &
    exec 9> hold
    until grep -q ok made; do sleep 0.02; done
    as_other "$PROGRAM" mount d
    as_other sh -c 'echo mine > d/trace_marker; grep -q mine d/trace'
    # The other user's mount gives root nothing, and takes nothing from root.
    refused cat d/trace
    refused ls d/events
    refused sh -c 'echo 0 > d/tracing_on'
    refused "$PROGRAM" mount e theirs/theirs-*
    grep -q 'belongs to' out
    LASTWORDS_DIR=$PWD/theirs refused "$PROGRAM" mount e
    # Root's sessions give the other user nothing.
    refused as_other "$PROGRAM" mount e sessions/app-*
    refused as_other sh -c "LASTWORDS_DIR=$PWD/sessions '$PROGRAM' mount e"
    refused as_other sh -c "LASTWORDS_DIR=$PWD/sessions '$PROGRAM' mount-recorder make planted < /dev/null | grep -qx ok"
    refused as_other "$PROGRAM" umount m
    as_other sh -c 'grep -q mine d/trace && test $(cat d/tracing_on) = 1 && ! ls d/instances | grep .'
    as_other "$PROGRAM" umount d
    exec 9>&-
    wait
"#;

/// The machine's tracing needs privileges.
const THEIR_RECORD: &str = r#"
    refused as_other "$PROGRAM" record -e sched:sched_switch -o theirs/out.dat -- true
    cat out
    refused as_other ls /sys/kernel/tracing/instances
    test ! -e theirs/out.dat
"#;

fn script(place: &Place, script: &str) -> String {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &[BEGIN, script].concat()]);
    command.current_dir(place.path()).stdin(Stdio::null());
    command.env("LASTWORDS_DIR", place.sessions()).env("PROGRAM", env!("CARGO_BIN_EXE_lastwords"));
    let ran = ran(command.output().expect("unshare"));
    ran.has_status(0);
    ran.out
}

/// A place whose folder all may search, with folders of the other user.
fn place() -> Option<Place> {
    let place = Place::of_root(0o755)?;
    for name in ["theirs", "d", "e"] {
        make_folder(&place.at(name), 0o700, NOBODY);
    }
    Some(place)
}

#[test]
fn mounts_give_other_users_nothing() {
    let Some(place) = place() else { return };
    let _app = start(&place, "shm", "wait");
    let mount = Mount::start(&place);
    script(&place, THEIR_MOUNT);
    assert_eq!(mount.ok("ls instances; cat tracing_on"), "1\n");
}

#[test]
fn record_needs_privileges() {
    let Some(place) = place() else { return };
    if !std::path::Path::new("/sys/kernel/tracing/instances").is_dir() {
        return;
    }
    script(&place, THEIR_RECORD).has("not for this user");
}
