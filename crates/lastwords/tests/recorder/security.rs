//! Tests folders and files that others prepared: they are refused, never followed, and never block
//! the program. Also tests file systems that are full.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use crate::common::{
    child_dir, end_of, folder, is_root, kill_self, limit_address_space, numbers, plain, record,
    with_main,
};
use lastwords::{Error, Memory, Session};
use lastwords_control::{self, Handle};

fn start(dir: &Path) -> Result<Session, Error> {
    with_main("sec", dir).start()
}

fn fifo(path: &Path) {
    let path = CString::new(path.as_os_str().as_bytes()).expect("a path");
    // SAFETY: the argument is a C string.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

fn mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("chmod");
}

/// Returns true if the tests run as root, because only root may give files away and mount.
#[test]
fn what_stands_in_the_place_of_the_folder() {
    alone!(in dir);
    let real = dir.path().join("real");
    std::fs::create_dir(&real).expect("a folder");
    mode(&real, 0o700);
    let place = dir.path().join("place");

    symlink(&real, &place).expect("a link");
    let error = start(&place).expect_err("a link").to_string();
    assert!(error.contains("place") && error.contains("remove it"), "{error}");
    assert!(lastwords_control::list(Some(&place)).is_err());
    std::fs::remove_file(&place).expect("removed");

    symlink(dir.path().join("nowhere"), &place).expect("a dangling link");
    assert!(start(&place).is_err() && !dir.path().join("nowhere").exists());
    std::fs::remove_file(&place).expect("removed");

    fifo(&place);
    assert!(start(&place).is_err(), "a FIFO");
    std::fs::remove_file(&place).expect("removed");

    std::fs::write(&place, "x").expect("a file");
    assert!(start(&place).is_err(), "a file");
    assert_eq!(
        std::fs::read_dir(&real).expect("the folder").count(),
        0,
        "nothing was made behind the link"
    );
}

#[test]
fn a_folder_that_others_may_write() {
    alone!(in dir);
    for bits in [0o777, 0o770, 0o1777, 0o702] {
        mode(dir.path(), bits);
        let error = start(dir.path()).expect_err("others may write it");
        assert!(matches!(error, Error::Untrusted { .. }), "{error}");
    }
    mode(dir.path(), 0o755);
    drop(start(dir.path()).expect("others may look at names, not at sessions"));
}

#[test]
fn another_users_folder() {
    alone!();
    if !is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a folder");
    let place = dir.path().join("place");
    std::fs::create_dir(&place).expect("a folder");
    mode(&place, 0o700);
    std::os::unix::fs::chown(&place, Some(12345), None).expect("given away");
    let error = start(&place).expect_err("another's").to_string();
    assert!(error.contains("12345"), "{error}");
}

#[test]
fn a_base_folder_is_made_private() {
    alone!(in dir);
    let place = dir.path().join("place");
    let session = start(&place).expect("it starts");
    assert_eq!(std::fs::metadata(&place).expect("made").permissions().mode() & 0o777, 0o700);
    drop(session);
    let error = start(&dir.path().join("a/b/c")).expect_err("parents are not made").to_string();
    assert!(error.contains("parent"), "{error}");
}

#[test]
fn what_stands_in_the_place_of_a_region() {
    alone!(in dir);
    let session = start(dir.path()).expect("it starts");
    let path = folder(&session);
    let secret = dir.path().join("secret");
    std::fs::write(&secret, vec![7u8; 8192]).expect("a file");
    for name in ["session", "registry", "stream-0000"] {
        let file = path.join(name);
        let aside = path.join("aside");
        std::fs::rename(&file, &aside).expect("moved");

        symlink(&secret, &file).expect("a link");
        assert!(Handle::open(&path).is_err(), "{name}: a link");
        std::fs::remove_file(&file).expect("removed");

        fifo(&file);
        let error = Handle::open(&path).expect_err("a FIFO").to_string();
        assert!(error.contains(name) && error.contains("not a regular file"), "{error}");
        std::fs::remove_file(&file).expect("removed");

        for bytes in [vec![], vec![0u8; 100], vec![0u8; 4096], vec![0xffu8; 8192]] {
            std::fs::write(&file, bytes).expect("a file");
            let error = Handle::open(&path).expect_err("no region").to_string();
            assert!(error.contains(name), "{error}");
            std::fs::remove_file(&file).expect("removed");
        }
        std::fs::rename(&aside, &file).expect("moved back");
    }
    Handle::open(&path).expect("whole again");
    assert_eq!(std::fs::read(&secret).expect("the file"), vec![7u8; 8192]);
}

#[test]
fn damaged_headers_are_refused_with_their_place() {
    alone!(in dir);
    let session = start(dir.path()).expect("it starts");
    let path = folder(&session);
    drop(session);
    for name in ["session", "stream-0000"] {
        let file = path.join(name);
        let whole = std::fs::read(&file).expect("the region");
        // The test flips every bit of header and fixed part that the checksum or a comparison
        // covers.
        for at in (0..112).chain(128..192) {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (at % 8);
            std::fs::write(&file, &bytes).expect("written");
            let error = Handle::open(&path).expect_err("damaged").to_string();
            assert!(error.contains("offset"), "byte {at}: {error}");
        }
        std::fs::write(&file, &whole).expect("written");
    }
    Handle::open(&path).expect("whole again");
}

#[test]
fn links_in_a_session_are_removed_not_followed() {
    alone!(in dir);
    let precious = dir.path().join("precious");
    std::fs::create_dir(&precious).expect("a folder");
    std::fs::write(precious.join("file"), "x").expect("a file");
    let base = dir.path().join("base");
    let session = start(&base).expect("it starts");
    let path = folder(&session);
    symlink(&precious, path.join("link")).expect("a link");
    session.remove();
    assert!(!path.exists() && precious.join("file").exists());
    symlink(&precious, base.join("evil-0123456789abcdef")).expect("a link");
    assert!(lastwords_control::destroy(&base.join("evil-0123456789abcdef")).is_err());
    assert_eq!(lastwords_control::list(Some(&base)).expect("the list").len(), 0);
    assert!(precious.join("file").exists());
}

#[test]
fn a_memfd_of_a_reused_process_id_is_not_taken() {
    alone!(in dir);
    let builder = || with_main("reuse", dir.path()).backend(Memory::Memfd);
    let (first, second) =
        (builder().start().expect("it starts"), builder().start().expect("it starts"));
    let file = |session: &Session| folder(session).join("regions");
    std::fs::copy(file(&second), file(&first)).expect("copied");
    let error = Handle::open(&folder(&first)).expect_err("another session").to_string();
    assert!(error.contains("another"), "{error}");
    // No other file in a line is accepted either.
    std::fs::write(file(&first), format!("session 0 4096 /proc/{}/fd/0\n", std::process::id()))
        .expect("written");
    assert!(Handle::open(&folder(&first)).is_err());
    std::fs::write(file(&first), "session 0 18446744073709551615 /etc/passwd\n\nx y z\n")
        .expect("written");
    assert!(Handle::open(&folder(&first)).is_err());
}

/// A small tmpfs, which is unmounted at the end.
struct Mount(tempfile::TempDir);

impl Mount {
    fn new(size: &str) -> Option<Self> {
        let dir = tempfile::tempdir().ok().filter(|_| is_root())?;
        let options = format!("size={size},mode=0700");
        let mut mount = std::process::Command::new("mount");
        let done = mount.args(["-t", "tmpfs", "-o", &options, "none"]).arg(dir.path()).status();
        done.is_ok_and(|status| status.success()).then_some(Self(dir))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        drop(std::process::Command::new("umount").arg("-l").arg(self.0.path()).status());
    }
}

#[test]
fn a_full_file_system_is_an_error_at_the_start() {
    alone!();
    let Some(mount) = Mount::new("4m") else { return };
    let dir = mount.0.path();
    let big = Session::builder("big").dir(dir).channel(plain("main").sub_buffers(8, 1 << 20));
    let error = big.clone().start().expect_err("no room").to_string();
    assert!(error.contains("fallocate") && error.contains("make room"), "{error}");
    assert_eq!(std::fs::read_dir(dir).expect("the folder").count(), 0, "nothing is left behind");
    let huge = big.backend(Memory::Huge).start().expect_err("no room").to_string();
    assert!(huge.contains("make room"), "{huge}");
    // A session that fitted once fits again: the failed starts freed their memory.
    let fits = || with_main("fits", dir);
    let session = fits().start().expect("it fits");
    record(0..100_000);
    let mut filler = vec![0u8; 1 << 20];
    filler.fill(1);
    let mut at = 0;
    while std::fs::write(dir.join(format!("filler-{at}")), &filler).is_ok() {
        at += 1;
    }
    let error = session.enable_snapshots().expect_err("no room for the spare").to_string();
    assert!(error.contains("make room"), "{error}");
    assert!(session.snapshot(lastwords::snapshot::Rings::All).is_err());
    record(100_000..200_000);
    assert_eq!(
        numbers(&folder(&session)).last(),
        Some(&199_999),
        "recording goes on in a full file system"
    );
    for i in 0..=at {
        drop(std::fs::remove_file(dir.join(format!("filler-{i}"))));
    }
    session.enable_snapshots().expect("room again");
    session.snapshot(lastwords::snapshot::Rings::All).expect("a snapshot");
    record(0..100_000);
}

/// Starts a session that takes about this many MiB, whether they fit or not.
fn of_size(dir: &Path, memory: Memory, mib: u32) -> Result<Session, Error> {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    let channel = plain("main").sub_buffers((mib / cpus).max(2).next_power_of_two(), 1 << 20);
    Session::builder("sized").dir(dir).backend(memory).channel(channel).snapshot(true).start()
}

#[test]
fn child_starts_what_does_not_fit() {
    let Some(dir) = child_dir() else { return };
    let memory = match std::env::var("MEMORY").expect("which").as_str() {
        "heap" => Memory::Heap,
        "shm" => Memory::Shm,
        _ => Memory::Memfd,
    };
    limit_address_space(128 << 20);
    for _ in 0..3 {
        assert!(of_size(&dir, memory.clone(), 256).is_err());
    }
    of_size(&dir, memory, 16).expect("it fits").remove();
    kill_self();
}

#[test]
fn a_start_that_failed_gives_its_memory_back() {
    alone!();
    use std::os::unix::process::ExitStatusExt as _;
    for memory in ["heap", "shm", "memfd"] {
        let dir = tempfile::tempdir().expect("a folder");
        let status = end_of("child_starts_what_does_not_fit", dir.path(), &[("MEMORY", memory)]);
        assert_eq!(status.signal(), Some(libc::SIGKILL), "{memory}: {status}");
    }
}
