//! `list --all-namespaces`: sessions of containers, as root sees them from outside. As root only.

use crate::child::{EVENTS, Running, THREADS, start, wait_for};
use crate::support::{Place, assert_members, wait_until};
use lastwords_testkit::text::Text as _;
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// In a container: a `/dev/shm` of its own, a session whose process is killed, and one whose process
/// lives. It is process 1, or the child of process 1.
const TWO_SESSIONS: &str = r#"
    set -e
    mount -t tmpfs -o mode=1777 none /dev/shm
    LASTWORDS_TEST_TASK="shm wait $PLACE/dead" "$@" & dead=$!
    until [ -e "$PLACE/dead" ]; do sleep 0.02; done
    kill -9 $dead
    wait $dead || true
    LASTWORDS_TEST_TASK="shm wait $PLACE/live" exec "$@"
"#;

/// A container that ends with its value.
pub(crate) struct Container {
    unshare: Running,
    /// Process 1 of the container, as it is seen here.
    pub(crate) pid: u32,
    mount: u64,
}

impl Container {
    /// Starts a script in new namespaces, and waits until the file `ready` is there. The script gets
    /// the command of this program's `test`.
    pub(crate) fn start(
        how: &[&str],
        (script, test): (&str, &str),
        variables: &[(&str, &Path)],
        ready: &Path,
    ) -> Self {
        let mut command = Command::new(how[0]);
        command.args(&how[1..]).args(["sh", "-c", script, "sh"]);
        command.arg(std::env::current_exe().expect("this program's file"));
        command.args(["--exact", test, "--nocapture"]);
        command.env_remove("LASTWORDS_DIR").env_remove("XDG_RUNTIME_DIR");
        command.envs(variables.iter().copied()).stdout(Stdio::null());
        let unshare = Running::start(&mut command);
        wait_for(ready);
        // `setpriv` executes `unshare`, whose only child is process 1 of the container.
        let parent = unshare.pid();
        let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"));
        let pid = children.expect("its child").trim().parse().unwrap_or_default();
        let mount = std::fs::metadata(format!("/proc/{pid}/ns/mnt")).map_or(0, |meta| meta.ino());
        Self { unshare, pid, mount }
    }

    /// Starts one of the scripts of this file in a place.
    fn in_place(place: &Place, how: &[&str], script: &str, ready: &str) -> Self {
        let (host, variables) = (place.sessions(), place.path());
        let variables = [("PLACE", variables), ("HOST", host.as_path())];
        Self::start(how, (script, "child::child"), &variables, &place.at(ready))
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait(&mut self) {
        self.unshare.wait();
    }

    /// The sessions that a list has of the container.
    fn sessions<'l>(&self, list: &'l Value) -> Vec<&'l Value> {
        let all = list["sessions"].as_array().expect("sessions").iter();
        all.filter(|session| session["namespace"]["mount"] == self.mount).collect()
    }
}

pub(crate) const UNSHARE: [&str; 5] = ["unshare", "--mount", "--pid", "--fork", "--kill-child"];

/// Lists all, and returns the text and the data.
fn list(place: &Place) -> (String, Value) {
    (place.ok(&["list", "--all-namespaces"]), place.json(&["list", "--all-namespaces", "--json"]))
}

fn folder(session: &Value) -> &str {
    session["folder"].as_str().expect("a path")
}

/// Of two containers, one of them of another user with a user namespace: the dead and the live
/// session, and what the verbs that read say of them.
#[test]
fn sessions_of_containers_are_listed_and_read() {
    let (Some(one), Some(two)) = (Place::of_root(0o777), Place::of_root(0o777)) else { return };
    let of_user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let with_user = [&of_user[..], &UNSHARE, &["--user", "--map-root-user"]].concat();
    let containers = [
        (Container::in_place(&one, &UNSHARE, TWO_SESSIONS, "live"), 0),
        (Container::in_place(&two, &with_user, TWO_SESSIONS, "live"), 65534),
    ];
    let (text, data) = list(&one);
    for (container, owner) in &containers {
        let sessions = container.sessions(&data);
        let states: Vec<&str> = sessions.iter().filter_map(|own| own["state"].as_str()).collect();
        assert_eq!(states, ["live", "left-over"], "{text}");
        let about = &sessions[0]["namespace"];
        assert_members(about, &json!({ "pid": container.pid, "pid_inside": 1 }));
        assert!(about["cgroup"].as_str().is_some_and(|path| path.starts_with('/')), "{about}");
        // Process 1 of the container is known by its id here.
        assert_eq!(sessions[0]["pids_outside"]["1"], container.pid, "{}", sessions[0]);
        text.has(&format!("live 1 (outside {})", container.pid));
        for (session, cause) in sessions.iter().zip(["alive", "unknown"]) {
            let path = folder(session);
            path.starts(&format!("/proc/{}/root/dev/shm/", container.pid));
            assert!(session["owner"] == *owner && text.contains(path), "{session} {text}");
            let events = one.ok(&["report", path]).lines().count() as u64;
            assert_eq!(events, EVENTS * THREADS, "{path}");
            let why = one.json(&["why", "--json", path]);
            assert_eq!(why["inputs"][0]["verdict"]["cause"], cause, "{why}");
            let shown = one.ok(&["list", path]);
            assert!(shown.contains("app::test: tick") || shown.contains("test:tick"), "{shown}");
            // A container's session is only read.
            one.run(&["stop", path]).has_status(1).says("only read");
        }
        // The folder of sessions is an input, too.
        let base = Path::new(folder(sessions[0])).parent().unwrap().to_str().unwrap();
        let events = one.ok(&["report", base]).lines().count() as u64;
        assert_eq!(events, 2 * EVENTS * THREADS, "{base}");
    }
}

/// A container whose names lead to the host: to a session there, and to what is no session.
const HOSTILE: &str = r#"
    set -e
    mount -t tmpfs -o mode=1777 none /dev/shm
    cd /dev/shm
    ln -s "$HOST" lastwords-0
    ln -s /etc lastwords-1
    mkdir -m 700 lastwords-2
    for session in "$HOST"/app-*; do ln -s "$session" lastwords-2; done
    # A session in a folder that others may write.
    mkdir -m 777 lastwords-3
    chmod 777 lastwords-3
    cp -r "$HOST"/app-* lastwords-3
    mkdir -m 700 lastwords-4 lastwords-4/link-0123456789abcdef lastwords-4/zero-0123456789abcdef
    ln -s /etc/shadow lastwords-4/link-0123456789abcdef/session
    mknod lastwords-4/zero-0123456789abcdef/session c 1 5
    mkdir -m 700 lastwords-4/pipe-0123456789abcdef lastwords-4/other-0123456789abcdef
    mkfifo lastwords-4/pipe-0123456789abcdef/session
    cp "$HOST"/app-*/session lastwords-4/other-0123456789abcdef
    chown 65534 lastwords-4/other-0123456789abcdef/session
    # A session with a name that would forge lines.
    name=$(printf 'app\033[31m\nlive 1 0 B x-0123456789abcdef')
    mkdir -m 700 lastwords-5
    cp -r "$HOST"/app-* "lastwords-5/$name"
    export LASTWORDS_DIR=/dev/shm/lastwords-6
    mkdir -m 700 lastwords-6
    cp -r /dev/shm/lastwords-3/app-* lastwords-6/env-0123456789abcdef
    touch "$PLACE/made"
    exec sleep 60
"#;

#[test]
fn names_of_a_container_lead_nowhere_else() {
    let Some(place) = Place::of_root(0o777) else { return };
    let mut app = start(&place, "shm", "wait");
    app.kill();
    let hosts = place.session();
    let name = hosts.file_name().unwrap().to_str().unwrap();
    let container = Container::in_place(&place, &UNSHARE, HOSTILE, "made");
    let (text, data) = list(&place);
    text.lacks("\u{1b}").lacks("\nlive 1 0 B");
    let sessions = container.sessions(&data);
    let root = format!("/proc/{}/root/dev/shm", container.pid);
    let found = |base: &str| -> Vec<&Value> {
        let base = format!("{root}/{base}/");
        sessions.iter().copied().filter(|own| folder(own).starts_with(&base)).collect()
    };
    // The first link leads to a folder that is the host's, too, and is listed there, or in the
    // container by its own path.
    for none in ["lastwords-1", "lastwords-2", "lastwords-3"] {
        assert!(found(none).is_empty(), "{none}: {text}");
    }
    let refused = found("lastwords-4");
    assert_eq!(refused.len(), 4, "{text}");
    for session in refused {
        let why = session["unreadable"].as_str().expect("it cannot be read");
        let expected = match session["name"].as_str().expect("a name") {
            "link" => "symbolic link",
            "other" => "belongs to user 65534",
            _ => "no regular file",
        };
        assert!(why.contains(expected), "{session}");
        place.run(&["report", folder(session)]).has_status(1).prints_nothing();
    }
    for base in ["lastwords-5", "lastwords-6"] {
        let [session] = found(base)[..] else { panic!("{base}: {text}") };
        let events = place.ok(&["report", folder(session)]).lines().count() as u64;
        assert_eq!(events, EVENTS * THREADS, "{session}");
    }
    // By its path, a link leads to no session of the host either.
    for path in [format!("{root}/lastwords-2/{name}"), format!("{root}/lastwords-3/{name}")] {
        place.run(&["report", &path]).has_status(1).prints_nothing();
        place.run(&["list", &path]).has_status(1).prints_nothing();
    }
    place.run(&["report", &format!("{root}/lastwords-1/passwd/../shadow")]).has_status(1);
}

/// The place of the host is hidden in the container, so that a link to it leads to nothing there.
#[test]
fn a_link_to_the_hosts_sessions_is_resolved_in_the_container() {
    let Some(place) = Place::of_root(0o777) else { return };
    let mut app = start(&place, "shm", "wait");
    app.kill();
    let hosts = place.session();
    let name = hosts.file_name().unwrap().to_str().unwrap();
    let script = r#"
        set -e
        mount -t tmpfs -o mode=1777 none /dev/shm
        ln -s "$HOST" /dev/shm/lastwords-0
        exec 3> "$PLACE/made"
        mount -t tmpfs none /tmp
        exec sleep 60
    "#;
    if !place.path().starts_with("/tmp") {
        return;
    }
    let container = Container::in_place(&place, &UNSHARE, script, "made");
    let path = format!("/proc/{}/root/dev/shm/lastwords-0/{name}", container.pid);
    // Resolved as usual, the path leads to the host's session.
    assert!(Path::new(&path).join("session").exists(), "{path}");
    let hidden = || std::fs::read_dir(format!("/proc/{}/root/tmp", container.pid)).unwrap().count();
    wait_until("the place is hidden", || hidden() == 0);
    let (text, data) = list(&place);
    assert!(container.sessions(&data).is_empty(), "{text}");
    for verb in ["report", "why", "list", "inspect"] {
        place.run(&[verb, &path]).has_status(1).prints_nothing();
    }
}

/// A file system of a container that never answers costs its namespace only.
#[test]
fn a_file_system_that_hangs_does_not_stop_the_list() {
    let Some(place) = Place::of_root(0o777) else { return };
    if !Path::new("/dev/fuse").exists() {
        return;
    }
    let script = r#"
        set -e
        exec 3<> /dev/fuse
        mount -i -t fuse -o fd=3,rootmode=40000,user_id=0,group_id=0 hangs /dev/shm
        touch "$PLACE/made"
        exec sleep 60
    "#;
    let hanging = Container::in_place(&place, &UNSHARE, script, "made");
    let two = Place::of_root(0o777).expect("root");
    let container = Container::in_place(&two, &UNSHARE, TWO_SESSIONS, "live");
    let (text, data) = list(&place);
    assert_eq!(container.sessions(&data).len(), 2, "{text}");
    let notes = data["namespace_notes"].as_array().expect("notes");
    let of_it = notes.iter().find(|note| note["mount"] == hanging.mount).expect("a note");
    assert!(of_it["note"].as_str().is_some_and(|note| note.contains("did not answer")), "{of_it}");
}
