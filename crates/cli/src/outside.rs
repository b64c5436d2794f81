//! Reads what this machine knows besides the input: its boot, the kernel's log, pstore.

use anyhow::Context;
use lastwords_folders::CONTROL_GROUPS;
use lastwords_open::why::{KernelLine, OomKills, Outside, PstoreRecord};
use rustix::fs::{Mode, OFlags};
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// The kernel's log, a record for each read.
const KMSG: &str = "/dev/kmsg";
/// The folders of the records that earlier boots left: the kernel's, and the one to which
/// systemd-pstore moves them at the next boot, with their dates.
const PSTORE: [&str; 2] = ["/sys/fs/pstore", "/var/lib/systemd/pstore"];
/// The levels of folders in the second one: the record's date, and its number.
const PSTORE_LEVELS: u32 = 2;
/// The longest record of [`KMSG`] (`PRINTKRB_RECORD_MAX` and its head), bytes.
const RECORD: usize = 8192;
/// Most records that are read.
const MOST_RECORDS: usize = 1 << 20;
/// The folder of the hardware watchdogs.
const WATCHDOGS: &str = "/sys/class/watchdog";
/// Set in a watchdog's `bootstatus` if it reset the machine before this boot (`WDIOF_CARDRESET` of
/// linux/watchdog.h).
const CARD_RESET: u32 = 0x20;
/// Most bytes of a record of pstore that are read.
const MOST_PSTORE: u64 = 1 << 20;

/// Reads what is known of this machine.
pub(crate) fn here() -> Outside {
    let boot_id = lastwords::internals::liveness::boot_id();
    let (kernel_log, no_kernel_log) = match kernel_log() {
        Ok(lines) => (lines, None),
        Err(error) => (Vec::new(), Some(format!("{KMSG}: {error}"))),
    };
    Outside {
        boot_id: Some(boot_id).filter(|id| *id != [0; 16]),
        hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        kernel_log,
        no_kernel_log,
        pstore: PSTORE.iter().flat_map(|at| pstore(Path::new(at), PSTORE_LEVELS)).collect(),
        watchdogs: watchdogs(Path::new(WATCHDOGS)),
        control_groups: Some(CONTROL_GROUPS.into()),
        ..Outside::default()
    }
}

/// Reads what is known of this machine, and what a user names besides.
///
/// # Errors
/// The given log or control group cannot be read.
pub(crate) fn read(log: Option<&Path>, cgroup: Option<&Path>) -> anyhow::Result<Outside> {
    let given = log.map(|path| {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        let lines = KernelLine::parse_all(&String::from_utf8_lossy(&bytes));
        let why = "no line begins with a time since boot; `dmesg` or `journalctl -k -o short-monotonic` prints it";
        anyhow::ensure!(!lines.is_empty(), "{}: {why}", path.display());
        anyhow::Ok(lines)
    });
    let (given_log, cgroup) =
        (given.transpose()?.unwrap_or_default(), cgroup.map(oom_kills).transpose()?);
    Ok(Outside { given_log, cgroup, ..here() })
}

/// Reads the counter of a control group, of either version.
fn oom_kills(folder: &Path) -> anyhow::Result<OomKills> {
    OomKills::read(folder).with_context(|| {
        format!("{}: no control group whose OOM kills are counted", folder.display())
    })
}

/// Reads the log of the running kernel.
fn kernel_log() -> std::io::Result<Vec<KernelLine>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::open(KMSG, flags, Mode::empty())?;
    let (mut record, mut text) = (vec![0; RECORD], String::new());
    for _ in 0..MOST_RECORDS {
        match rustix::io::read(&file, &mut record) {
            Ok(len) => {
                text.push_str(&String::from_utf8_lossy(&record[..len]));
                text.push('\n');
            }
            // Records were overwritten while this one was to be read.
            Err(rustix::io::Errno::PIPE) => {}
            Err(rustix::io::Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(KernelLine::parse_all(&text))
}

/// Reads the records of pstore in a folder, and in folders below it down to a level. Those that
/// cannot be read are left out.
fn pstore(folder: &Path, levels: u32) -> Vec<PstoreRecord> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let is_folder = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(is_folder);
    let record = |entry: fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        let file = fs::File::open(entry.path()).ok()?;
        let written = file.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        let mut text = Vec::new();
        file.take(MOST_PSTORE).read_to_end(&mut text).ok()?;
        Some(PstoreRecord {
            name,
            written: u64::try_from(written.as_nanos()).ok(),
            text: String::from_utf8_lossy(&text).into_owned(),
        })
    };
    let mut records: Vec<PstoreRecord> = files.into_iter().filter_map(record).collect();
    if let Some(below) = levels.checked_sub(1) {
        records.extend(folders.iter().flat_map(|folder| pstore(&folder.path(), below)));
    }
    records.sort_by(|a, b| a.name.cmp(&b.name));
    records
}

/// Returns the names of the watchdogs that reset the machine before this boot.
fn watchdogs(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: fs::DirEntry| {
        let fact = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
        let status: u32 = fact("bootstatus")?.trim().parse().ok()?;
        (status & CARD_RESET != 0).then(|| {
            let identity = fact("identity").unwrap_or_default();
            format!("{} ({})", entry.file_name().to_string_lossy(), identity.trim())
        })
    };
    let mut names: Vec<String> = entries.filter_map(name).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchdogs_that_reset_the_machine() {
        let folder = tempfile::tempdir().unwrap();
        for (name, status) in [("watchdog1", "0\n"), ("watchdog0", "33\n"), ("watchdog2", "x")] {
            let own = folder.path().join(name);
            fs::create_dir(&own).unwrap();
            fs::write(own.join("bootstatus"), status).unwrap();
            fs::write(own.join("identity"), "iTCO_wdt\n").unwrap();
        }
        assert_eq!(watchdogs(folder.path()), ["watchdog0 (iTCO_wdt)"]);
        assert!(watchdogs(Path::new("/nowhere")).is_empty());
    }

    #[test]
    fn records_of_pstore() {
        let folder = tempfile::tempdir().unwrap();
        let text = "Panic#1 Part1\n<0>[ 9.1] Kernel panic - not syncing: x\n";
        fs::write(folder.path().join("dmesg-efi-2"), text).unwrap();
        fs::write(folder.path().join("dmesg-efi-1"), "Oops#1 Part1\n").unwrap();
        // As systemd-pstore moves them: DATE/NUMBER/NAME.
        let moved = folder.path().join("1795000000/001");
        fs::create_dir_all(moved.join("deeper")).unwrap();
        fs::write(moved.join("dmesg-efi-3"), text).unwrap();
        fs::write(moved.join("deeper/dmesg-efi-4"), text).unwrap();
        let records = pstore(folder.path(), PSTORE_LEVELS);
        assert_eq!(
            records.iter().map(|r| r.name.as_str()).collect::<Vec<_>>(),
            ["dmesg-efi-1", "dmesg-efi-2", "dmesg-efi-3"]
        );
        assert_eq!(records[1].reason(), Some("Kernel panic - not syncing: x"));
        assert_eq!(records[0].reason(), None);
        assert!(records[0].written.is_some());
        assert!(pstore(Path::new("/nowhere"), 0).is_empty());
    }

    #[test]
    fn a_given_log_must_have_times() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "Nov 29 09:00:00 host kernel: x\n").unwrap();
        let error = read(Some(file.path()), None).unwrap_err().to_string();
        assert!(error.contains("short-monotonic"), "{error}");
        fs::write(file.path(), "[    1.000000] x\n").unwrap();
        assert_eq!(read(Some(file.path()), None).unwrap().given_log.len(), 1);
        assert!(read(Some(Path::new("/nowhere")), None).is_err());
    }
}
