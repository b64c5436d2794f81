//! Pods as Kubernetes runs them: a container with process 1, a limit of memory, an `emptyDir` and a
//! user that is not root, which is killed by the OOM killer, by a probe, in a crash loop. What is
//! left is read on the host and beside it. As root only.

use crate::child::TASK;
use crate::dying::lock;
use crate::namespaces::{Container, UNSHARE};
use crate::support::{Place, Ran, assert_members, entries, folders, hooks, ran, stored};
use crate::why::{Cgroup, LIMIT};
use lastwords_testkit::text::Text as _;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// In a container: a volume is at /mnt, and sessions are in a folder of it.
const CONTAINER: &str = r#"
    set -e
    [ -z "$CGROUP" ] || echo $$ > "$CGROUP/cgroup.procs"
    mount --bind "$VOLUME" /mnt
    export LASTWORDS_DIR=/mnt/shop
    exec setpriv --reuid 65534 --regid 65534 --clear-groups "$@"
"#;

/// A pod: its volume, an `emptyDir` with `medium: Memory` as the kubelet makes it.
struct Pod {
    place: Place,
    volume: tempfile::TempDir,
}

impl Pod {
    fn new() -> Option<Self> {
        let place = Place::of_root(0o777)?;
        let volume = tempfile::tempdir_in("/dev/shm").expect("a tmpfs");
        fs::set_permissions(volume.path(), PermissionsExt::from_mode(0o777)).expect("for all");
        Some(Self { place, volume })
    }

    /// Starts the container with a task of `test`, and waits until it has recorded.
    fn start(&self, (test, task): (&str, &str), cgroup: &Path) -> Container {
        let ready = self.place.at("ready");
        let _ = fs::remove_file(&ready);
        let task = PathBuf::from(format!("{task} {}", ready.display()));
        let variables =
            [("CGROUP", cgroup), ("VOLUME", self.volume.path()), (TASK, task.as_path())];
        Container::start(&UNSHARE, (CONTAINER, test), &variables, &ready)
    }

    fn sessions(&self) -> PathBuf {
        self.volume.path().join("shop")
    }

    /// The folders of sessions.
    fn folders(&self) -> Vec<PathBuf> {
        folders(&self.sessions())
    }

    /// Runs `lastwords` in another container of the pod, as its user.
    fn beside(&self, folder: &str, args: &[&str]) -> Ran {
        let mut command = Command::new(UNSHARE[0]);
        command.args(&UNSHARE[1..]);
        command.args(["sh", "-c", &CONTAINER.replace("/mnt/shop", folder), "sh"]);
        command.arg(env!("CARGO_BIN_EXE_lastwords")).args(args);
        command.env("CGROUP", "").env("VOLUME", self.volume.path());
        ran(command.output().expect("unshare"))
    }

    /// The verdict on the only session, as the host's root has it.
    fn verdict(&self, args: &[&str]) -> serde_json::Value {
        let sessions = self.sessions();
        let args = [&["why", "--json", sessions.to_str().unwrap()], args].concat();
        self.place.json(&args)["inputs"][0]["verdict"].clone()
    }
}

#[test]
fn a_pod_that_runs_out_of_memory() {
    let (Some(pod), Some(cgroup)) = (Pod::new(), Cgroup::with_limit(LIMIT)) else { return };
    let mut container = pod.start(("why::child", "bare_memory"), &cgroup.0);
    fs::write(pod.place.at("ready.go"), "go").unwrap();
    container.wait();
    // A sixteenth of the limit, and the files that are no rings.
    let taken = stored(&pod.folders()[0]);
    assert!(taken <= LIMIT as u64 / 16 + (1 << 20), "{taken} bytes of {LIMIT}");
    let sessions = pod.sessions();
    let report = pod.place.ok(&["report", sessions.to_str().unwrap()]);
    assert_eq!(report.lines().count(), 9, "{report}");
    // The ids of the kernel's log are not those of the container: no cause, but hints.
    let verdict = pod.verdict(&[]);
    assert_eq!(verdict["cause"], "unknown", "{verdict:#}");
    let hint = "killed 1 process of the session's control group";
    assert!(verdict["hints"].to_string().contains(hint), "{verdict:#}");
    let verdict = pod.verdict(&["--cgroup", cgroup.0.to_str().unwrap()]);
    assert_eq!(verdict["cause"], "unknown", "{verdict:#}");
    let hint = "1 process of this control group was killed";
    assert!(verdict["hints"].to_string().contains(hint), "{verdict:#}");
}

#[test]
fn a_pod_that_a_probe_kills() {
    let Some(pod) = Pod::new() else { return };
    let mut container = pod.start(("child::child", "shm tick"), Path::new(""));
    pod.beside("/mnt/shop", &["list"]).has_status(0).prints("live ");
    let pid = Pid::from_raw(container.pid.cast_signed()).expect("a process");
    kill_process(pid, Signal::TERM).expect("sent");
    // Process 1 has no handler, so that the signal does nothing, and the grace period passes.
    std::thread::sleep(Duration::from_millis(500));
    kill_process(pid, Signal::KILL).expect("it lives");
    container.wait();
    pod.beside("/mnt/shop", &["list"]).has_status(0).prints("killed ");
    let verdict = pod.verdict(&[]);
    assert_eq!(verdict["cause"], "unknown", "{verdict:#}");
    assert!(verdict["sentence"].as_str().unwrap().starts_with("killed by SIGKILL"), "{verdict:#}");
    let sessions = pod.sessions();
    let report = pod.place.ok(&["report", "-e", "test:tick", sessions.to_str().unwrap()]);
    let ticks = report.lines().filter_map(|line| {
        line.split_once("sequence=")?.1.split_whitespace().next()?.parse::<u64>().ok()
    });
    let ticks: Vec<u64> = ticks.collect();
    // It ticked while it did not end.
    assert!(ticks.len() > 100 && ticks.windows(2).all(|two| two[1] == two[0] + 1), "{report}");
}

#[test]
fn a_pod_in_a_crash_loop() {
    let Some(pod) = Pod::new() else { return };
    // A core helper that another test installs writes exit records for processes that cannot.
    let _alone = lock();
    let mut starts: Vec<PathBuf> = Vec::new();
    for _ in 0..12 {
        pod.start(("why::child", "abort"), Path::new("")).wait();
        let new: Vec<PathBuf> =
            pod.folders().into_iter().filter(|folder| !starts.contains(folder)).collect();
        let [new] = new.as_slice() else { panic!("{new:?}") };
        starts.push(new.clone());
    }
    // Five that ended stay beside the one that begins: the first and the newest.
    let mut kept = pod.folders();
    let mut expected = [&starts[..1], &starts[7..]].concat();
    kept.sort();
    expected.sort();
    assert_eq!(kept, expected, "{starts:#?}");
    for folder in &kept {
        let verdict = pod.place.json(&["why", "--json", folder.to_str().unwrap()]);
        let verdict = &verdict["inputs"][0]["verdict"];
        assert_members(verdict, &json!({ "cause": "signal", "number": 6 }));
        verdict["evidence"][0]["text"].as_str().unwrap().starts("`signal 11`");
        assert!(verdict["evidence"].to_string().contains("gets no SIGABRT"), "{verdict:#}");
    }
    // A DaemonSet runs this on the host's folder of the volumes.
    let host = Place::new();
    let hooks = hooks();
    let mut collect = Command::new("sh");
    collect.arg(hooks.join("systemd/collect")).env("LASTWORDS_PLACES", pod.sessions());
    collect.env("LASTWORDS_LIBRARY", library(&host, &hooks));
    collect.env("LASTWORDS_PROGRAM", env!("CARGO_BIN_EXE_lastwords"));
    collect.env("LASTWORDS_REPORTS", host.at("reports")).env("LASTWORDS_CORES", host.at("cores"));
    ran(collect.output().expect("sh")).has_status(0);
    assert_eq!(entries(&host.at("reports")).len(), kept.len());
}

/// Makes the folder in which the scripts are as the package installs them.
pub(crate) fn library(place: &Place, hooks: &Path) -> PathBuf {
    let library = place.at("library");
    fs::create_dir(&library).unwrap();
    for script in ["common.sh", "sessions.sh"] {
        fs::copy(hooks.join("systemd").join(script), library.join(script)).unwrap();
    }
    library
}

/// The volume itself belongs to root and all may write there, so that it is no folder of sessions.
#[test]
fn sessions_are_in_a_folder_of_the_volume() {
    let Some(pod) = Pod::new() else { return };
    pod.beside("/mnt", &["list"]).has_status(1).says("it belongs to user 0, not to user 65534");
}
