//! The scripts that root runs beside other users (`hooks`): they write through no name that another
//! user has made, and print on one line what another user named. As root only.

use crate::recovery::killed;
use crate::support::{NOBODY, Place, Ran, entries, hooks, make_folder, ran, small, tool};
use lastwords_testkit::text::Text as _;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Folders that only root may change.
const VICTIM: &str = "root's own file\n";

/// A place that all may search, with a file of root's; none where the test is not run by root.
fn place() -> Option<Place> {
    let place = Place::of_root(0o755)?;
    fs::write(place.at("victim"), VICTIM).unwrap();
    fs::set_permissions(place.at("victim"), Permissions::from_mode(0o600)).unwrap();
    Some(place)
}

/// A link of the other user.
fn their_link(to: &Path, path: &Path) {
    symlink(to, path).unwrap();
    lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
}

/// The folders that are in a folder and were not there before.
fn new_folders(folder: &Path, before: &[PathBuf]) -> Vec<PathBuf> {
    entries(folder).into_iter().filter(|path| !before.contains(path)).collect()
}

/// Checks that root alone can read the files of a folder and the folder.
fn is_roots_alone(folder: &Path) {
    let all = std::iter::once(folder.to_owned()).chain(new_folders(folder, &[]));
    for path in all {
        let meta = path.symlink_metadata().unwrap();
        assert!(
            meta.uid() == 0 && meta.mode() & 0o077 == 0,
            "{}: {:o}",
            path.display(),
            meta.mode()
        );
    }
}

/// Runs the script of a crash kernel with a shell; what it recovers is a session.
fn save_trace(place: &Place, shell: &[&str], crash: &str) -> Ran {
    let programs = place.at("programs");
    if !programs.exists() {
        fs::create_dir(&programs).unwrap();
        symlink(env!("CARGO_BIN_EXE_lastwords"), programs.join("lastwords")).unwrap();
        small(place, "dead", 1);
    }
    let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new(shell[0]);
    command.args(&shell[1..]);
    command.arg(hooks().join("kdump/save-trace")).env("PATH", path).env("TZ", "UTC");
    command.env("LASTWORDS_CRASH_DIR", place.at(crash)).env("LASTWORDS_SAVED", place.at("saved"));
    command.env("LASTWORDS_VMCORE", place.at("dead")).env("LASTWORDS_MEMORY_KB", "4000000");
    let ran = ran(command.output().expect("a shell: cargo xtask setup"));
    assert_eq!(ran.status, 0, "the dump goes on: {ran:?}");
    assert_eq!(fs::read_to_string(place.at("victim")).unwrap(), VICTIM, "{ran:?}");
    ran
}

const SHELLS: [&[&str]; 2] = [&["sh"], &["busybox", "sh"]];

#[test]
fn a_crash_kernel_writes_through_no_name_of_another_user() {
    let Some(place) = place() else { return };
    for (number, shell) in SHELLS.into_iter().enumerate() {
        let crash = format!("crash-{number}");
        make_folder(&place.at(&crash), 0o1777, 0);
        // Another user makes the folders of the next two minutes, which all may write, with links.
        let times = tool(
            "sh",
            &[
                "-c",
                "now=$(date +%s); for i in $(seq 0 120); do TZ=UTC date -d @$((now + i)) +%Y%m%d%H%M%S; done",
            ],
        );
        for (i, time) in times.out.lines().enumerate() {
            let path = place.at(&crash).join(format!("lastwords-{time}"));
            match i % 3 {
                0 => their_link(&place.at("nowhere"), &path),
                _ => {
                    make_folder(&path, 0o777, NOBODY);
                    ["report", "metadata", "trace.dat"]
                        .iter()
                        .for_each(|n| their_link(&place.at("victim"), &path.join(n)));
                }
            }
        }
        let before = entries(&place.at(&crash));
        let ran = save_trace(&place, shell, &crash);
        let new = new_folders(&place.at(&crash), &before);
        assert_eq!(new.len(), 1, "{ran:?}");
        is_roots_alone(&new[0]);
        assert!(
            fs::metadata(new[0].join("report")).unwrap().len() > 0
                && new_folders(&new[0], &[]).len() > 1
        );
        assert_eq!(
            fs::read_to_string(place.at("saved")).unwrap(),
            format!("{}\n", new[0].display()),
            "{ran:?}"
        );
        // A second hook of the same crash kernel does not save it again.
        save_trace(&place, shell, &crash).err.has("already");
        fs::remove_file(place.at("saved")).unwrap();
    }
}

#[test]
fn a_crash_kernel_makes_missing_folders_but_follows_no_link_of_another_user() {
    let Some(place) = place() else { return };
    for (number, shell) in SHELLS.into_iter().enumerate() {
        let root = format!("root-{number}");
        make_folder(&place.at(&root), 0o755, 0);
        save_trace(&place, shell, &format!("{root}/var/crash"));
        assert_eq!(new_folders(&place.at(&root).join("var/crash"), &[]).len(), 1);
        fs::remove_file(place.at("saved")).unwrap();
        // All may write above the folder, so that another user has made it: a link to a folder of
        // root's.
        let [open, private] = [format!("open-{number}"), format!("private-{number}")];
        make_folder(&place.at(&open), 0o1777, 0);
        make_folder(&place.at(&private), 0o700, 0);
        their_link(&place.at(&private), &place.at(&open).join("crash"));
        let ran = save_trace(&place, shell, &format!("{open}/crash"));
        ran.says("the trace is not saved");
        assert!(!place.at("saved").exists(), "{ran:?}");
        assert!(new_folders(&place.at(&private), &[]).is_empty());
    }
}

/// Runs a script of the units, for two minutes at most.
fn unit(place: &Place, script: &str, more: &[(&str, &Path)]) -> Ran {
    let mut command = Command::new("timeout");
    command
        .args(["120", "sh"])
        .arg(hooks().join("systemd").join(script))
        .env("LASTWORDS_LIBRARY", hooks().join("systemd"));
    command.env("LASTWORDS_PROGRAM", env!("CARGO_BIN_EXE_lastwords")).current_dir(place.path());
    let all = [
        ("LASTWORDS_PLACES", place.at("places/*")),
        ("LASTWORDS_REPORTS", place.at("reports")),
        ("LASTWORDS_CORES", place.at("cores")),
        ("LASTWORDS_STATE", place.at("state")),
    ];
    command.envs(all).envs(more.iter().copied());
    ran(command.output().unwrap())
}

#[test]
fn names_of_other_users_make_no_lines_in_the_log() {
    let Some(place) = place() else { return };
    make_folder(&place.at("places"), 0o755, 0);
    make_folder(&place.at("places/app"), 0o700, NOBODY);
    let forged = "x\n<0>sshd[1]: Accepted password for root\n\u{1b}[2J\u{202e}-0123456789abcdef";
    make_folder(&place.at("places/app").join(forged), 0o700, NOBODY);
    make_folder(&place.at("places/app/-rf-00000000000000ab"), 0o700, NOBODY);
    let collected = unit(&place, "collect", &[]);
    assert_eq!(collected.out.lines().count(), 2, "{collected:?}");
    let retained = unit(&place, "retain", &[]);
    let dead = killed();
    let made = new_folders(&dead.sessions(), &[]).into_iter().find(|path| path.is_dir()).unwrap();
    // A session's folder ends in digits of its UUID.
    let unique = made.to_str().unwrap().rsplit_once('-').unwrap().1;
    let session = place.at("places/app").join(format!("y\n<0>error: z-{unique}"));
    fs::rename(&made, &session).unwrap();
    tool("chown", &["-R", &format!("{NOBODY}:{NOBODY}"), session.to_str().unwrap()]);
    // Many years later.
    make_folder(&place.at("programs"), 0o755, 0);
    fs::write(place.at("programs/date"), "#!/bin/sh\necho 9999999999\n").unwrap();
    fs::set_permissions(place.at("programs/date"), Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", place.at("programs").display(), std::env::var("PATH").unwrap());
    let removed = unit(&place, "retain", &[("PATH", Path::new(&path))]);
    assert!(!session.exists(), "{removed:?}");
    let input =
        fs::read_to_string(place.at("reports").join(format!("{NOBODY}-0123456789abcdef/input")))
            .unwrap();
    assert_eq!(input.lines().count(), 1);
    for line in [&collected, &retained, &removed]
        .iter()
        .flat_map(|ran| ran.out.lines().chain(ran.err.lines()))
    {
        let is_ours =
            line.starts_with(place.path().to_str().unwrap()) || line.starts_with("error: ");
        assert!(is_ours && line.chars().all(|c| !c.is_control() && c != '\u{202e}'), "{line:?}");
    }
    is_roots_alone(&place.at("reports"));
}

#[test]
fn what_is_in_a_users_folder_is_read_with_that_users_rights() {
    let Some(place) = place() else { return };
    let as_whom = |places: &Path| {
        let log = place.at("log");
        fs::write(&log, "").unwrap();
        fs::set_permissions(&log, Permissions::from_mode(0o666)).unwrap();
        let program = place.at("program");
        fs::write(&program, format!("#!/bin/sh\nid -u >> {}\n", log.display())).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        unit(&place, "retain", &[("LASTWORDS_PLACES", places), ("LASTWORDS_PROGRAM", &program)])
            .has_status(0);
        fs::read_to_string(log).unwrap()
    };
    // As /run/user/UID/lastwords: the user may mount a file system there, which says that it is
    // root's.
    make_folder(&place.at("user"), 0o755, NOBODY);
    make_folder(&place.at("user/lastwords"), 0o755, 0);
    make_folder(&place.at("user/lastwords/a-0123456789abcdef"), 0o755, 0);
    assert_eq!(as_whom(&place.at("user/lastwords")), format!("{NOBODY}\n"));
    // As /dev/shm/lastwords-UID: a link to a folder of root's, in which the user has made a
    // session.
    make_folder(&place.at("shm"), 0o1777, 0);
    make_folder(&place.at("shm/b-0123456789abcdef"), 0o755, NOBODY);
    their_link(&place.at("shm"), &place.at("shm/lastwords-1"));
    assert_eq!(as_whom(&place.at("shm/lastwords-1")), "");
}

/// A core has what its process wrote, and root alone may read it.
#[test]
fn cores_are_read_by_nobody_who_could_change_a_file() {
    let Some(place) = place() else { return };
    make_folder(&place.at("places"), 0o755, 0);
    make_folder(&place.at("cores"), 0o700, 0);
    let core = place.at("cores/core.app.1000.0123.7.zst");
    fs::write(&core, "the process's own bytes").unwrap();
    fs::set_permissions(&core, Permissions::from_mode(0o600)).unwrap();
    fs::write(place.at("roots"), "as it was").unwrap();
    let program = place.at("program");
    let script = "#!/bin/sh\nid -u\nfor last do :; done\ncat \"$last\"\necho changed > roots\n";
    fs::write(&program, script).unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let collected = unit(&place, "collect", &[("LASTWORDS_PROGRAM", &program)]);
    let report = place.at("reports").join(core.file_name().unwrap()).join("report");
    let read = fs::read_to_string(&report).unwrap();
    assert_eq!(read, "65534\nthe process's own bytes", "{collected:?}");
    assert_eq!(fs::read_to_string(place.at("roots")).unwrap(), "as it was");
    is_roots_alone(&place.at("reports"));
}

/// The core helper's copy of a session has the digits of the session, whose own folder is empty.
#[test]
fn a_copy_has_a_report_of_its_own() {
    let Some(place) = place() else { return };
    make_folder(&place.at("places"), 0o755, 0);
    make_folder(&place.at("places/z"), 0o755, 0);
    let names = ["a-0123456789abcdef", "a.dead-7-0123456789abcdef", "a.dead-x-0123456789abcdee"];
    names.iter().for_each(|name| make_folder(&place.at("places/z").join(name), 0o755, 0));
    let program = place.at("program");
    fs::write(&program, "#!/bin/sh\nfor last; do :; done\necho \"$last\"\n").unwrap();
    fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    unit(&place, "collect", &[("LASTWORDS_PROGRAM", &program)]).has_status(0);
    let reports = ["0-0123456789abcdef", "0-0123456789abcdef.dead-7", "0-0123456789abcdee"]
        .map(|name| fs::read_to_string(place.at("reports").join(name).join("report")).expect(name));
    for (name, report) in names.iter().zip(reports) {
        assert!(report.ends_with(&format!("/{name}\n")), "{name}: {report}");
    }
}

/// A user may stop what reads the user's sessions, keep its output open, and write into it: the
/// sessions of others have their reports all the same, and the user's own ones have their limits.
#[test]
fn a_user_holds_up_nobody() {
    let Some(place) = place() else { return };
    make_folder(&place.at("places"), 0o755, 0);
    let folders = [("a", NOBODY), ("z", 0)].map(|(name, owner)| {
        let path = place.at("places").join(name);
        make_folder(&path, 0o755, owner);
        (path, owner)
    });
    for (path, owner) in &folders {
        for session in ["x-0123456789abcdef", "y-0123456789abcdee"] {
            make_folder(&path.join(session), 0o755, *owner);
        }
    }
    let program = place.at("program");
    let be = |commands: &str| {
        let text =
            format!("#!/bin/sh\n[ \"$(id -u)\" != 0 ] || {{ echo fine; exit; }}\n{commands}\n");
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    };
    be("kill -STOP $PPID\nsleep 30 &\nexec 2> /dev/null\nyes\nsleep 30");
    let reports = place.at("reports");
    let run = |script: &str, seconds: &str| {
        let more = [
            ("LASTWORDS_PROGRAM", program.as_path()),
            ("LASTWORDS_SECONDS", Path::new(seconds)),
            ("LASTWORDS_KB", Path::new("1024")),
        ];
        unit(&place, script, &more)
    };
    // All time of the user is gone after the first session, whose report has no end.
    let no_room = "takes more than the 256 KiB that are left";
    let ran = run("collect", "1");
    ran.has_status(1).says(no_room).says("the sessions of user 65534 take more than 1 s");
    let report = |name: &str| reports.join(name).join("report");
    for name in ["0-0123456789abcdef", "0-0123456789abcdee"] {
        assert_eq!(fs::read_to_string(report(name)).unwrap(), "fine\n");
    }
    // In the next run there is time, but no room.
    be("yes");
    let again = run("collect", "60");
    again.has_status(1).says(&format!("y-0123456789abcdee {no_room}"));
    for name in ["65534-0123456789abcdef", "65534-0123456789abcdee"] {
        assert!(!reports.join(name).exists(), "{ran:?}{again:?}");
    }
    // A report that fits has its place, until the quarter is used up.
    be("head -c 250000 /dev/zero");
    run("collect", "60").has_status(1).says("those of user 65534 a quarter");
    assert_eq!(fs::metadata(report("65534-0123456789abcdef")).unwrap().len(), 250_000);
    assert!(!reports.join("65534-0123456789abcdee").exists());
    // An old session; what removes it writes lines of its own.
    be("[ $1 = list ] && echo '        \"at_ns\": \"1000000000\"' || printf 'a\\n<0>forged\\n'");
    let ran = run("retain", "60");
    ran.has_status(0);
    assert_eq!((ran.out, ran.err), ("a?<0>forged\n".repeat(2), String::new()));
}

#[test]
fn nothing_is_saved_where_another_user_could_have_made_the_folder() {
    let Some(place) = place() else { return };
    make_folder(&place.at("tmp"), 0o1777, 0);
    make_folder(&place.at("private"), 0o700, 0);
    make_folder(&place.at("open"), 0o777, 0);
    their_link(&place.at("private"), &place.at("tmp/link"));
    their_link(&place.at("private/made"), &place.at("tmp/nowhere"));
    make_folder(&place.at("tmp/theirs"), 0o755, NOBODY);
    for (script, variable, below) in [
        ("collect", "LASTWORDS_REPORTS", ""),
        ("save-bundle", "LASTWORDS_STATE", "bundles"),
        ("save-last-boot", "LASTWORDS_STATE", "last-boot"),
    ] {
        for bad in
            ["tmp/link", "tmp/link/x", "tmp/nowhere", "tmp/theirs", "tmp/theirs/x", "open/x", "tmp"]
        {
            // The scripts make a folder below their state, which is private.
            if bad == "tmp" && !below.is_empty() {
                continue;
            }
            let ran = unit(&place, script, &[(variable, &place.at(bad))]);
            assert_ne!(ran.status, 0, "{script} {bad}: {ran:?}");
            assert!(new_folders(&place.at("private"), &[]).is_empty(), "{script} {bad}: {ran:?}");
        }
        assert!(
            new_folders(&place.at("tmp/theirs"), &[]).is_empty()
                && new_folders(&place.at("open"), &[]).is_empty()
        );
    }
    // Root's own folder, and root's link to it, are good.
    symlink(place.at("private"), place.at("own-link")).unwrap();
    unit(&place, "collect", &[("LASTWORDS_REPORTS", &place.at("own-link/reports"))]).has_status(0);
    is_roots_alone(&place.at("private/reports"));
}

#[test]
fn each_service_has_a_sandbox() {
    let mut services = entries(&hooks().join("systemd"));
    services.retain(|path| path.extension().is_some_and(|e| e == "service"));
    assert_eq!(services.len(), 4);
    for service in services {
        let text = fs::read_to_string(&service).unwrap();
        let words = "SyslogLevelPrefix=no NoNewPrivileges=yes PrivateTmp=yes PrivateNetwork=yes \
            ProtectSystem=strict ProtectHome= CapabilityBoundingSet=CAP_ \
            RestrictAddressFamilies=AF_UNIX SystemCallFilter=@system-service \
            SystemCallArchitectures=native MemoryDenyWriteExecute=yes RestrictNamespaces=yes \
            RestrictSUIDSGID=yes ProtectKernelModules=yes UMask=0077";
        for setting in words.split(' ') {
            assert!(
                text.lines().any(|line| line.starts_with(setting)),
                "{}: {setting}",
                service.display()
            );
        }
    }
}
