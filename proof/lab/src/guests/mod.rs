//! `lastwords record -A`: two guests on one network record each other, the one that booted late the
//! early one and the other way round, so that the difference of their clocks has both signs. Markers
//! that go to and fro are the truth of the order; trace-cmd and the library of KernelShark say the
//! order of the files.

mod judge;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::compare::Rows;
use super::qemu::{Config, Guest};
use super::{Arch, DISK, DISK_MODULES, Setup, add_programs, guest_base, qemu, unpack};
use rig::make_empty;

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "guests";
pub(super) const WHAT: &str = "`lastwords record -A`: two guests record each other; trace-cmd and KernelShark's library show their markers in order";

/// Megabytes of a guest's memory, and its CPUs.
const MEMORY: u32 = 768;
const CPUS: u32 = 2;
/// Modules for the network.
const NETWORK: &[&str] = &["failover", "net_failover", "virtio_net"];
/// Until a guest has booted, and until both have done all.
const BOOT: Duration = Duration::from_secs(600);
const LIMIT: Duration = Duration::from_secs(2400);

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    let initramfs = initramfs(setup)?;
    let mut early = Side::boot(setup, &initramfs, "early")?;
    let mut late = Side::boot(setup, &initramfs, "late")?;
    for side in [&mut late, &mut early] {
        side.guest.wait_for("LAB-TRUTH-DONE", LIMIT)?;
    }
    for side in [late, early] {
        let out = side.end()?;
        judge::side(&out, setup.lastwords, rows)?;
    }
    Ok(())
}

/// One of the two guests.
struct Side {
    guest: Guest,
    folder: PathBuf,
}

impl Side {
    /// Boots it. The early one has the server of their network.
    fn boot(setup: &Setup<'_>, initramfs: &Path, role: &str) -> Result<Self> {
        let folder = setup.folder.join(role);
        make_empty(&folder)?;
        let disk = folder.join("out.tar");
        File::create(&disk)?.set_len(DISK)?;
        let (wire, is_early) = (setup.folder.join("wire"), role == "early");
        let server = if is_early { "on" } else { "off" };
        let more = [
            "-netdev".to_owned(),
            format!("stream,id=net,server={server},addr.type=unix,addr.path={}", wire.display()),
            "-device".to_owned(),
            format!("virtio-net-pci,netdev=net,mac=52:54:00:00:00:0{}", u8::from(is_early)),
        ];
        let program = qemu(setup.store, Arch::Amd64)?;
        let config = Config {
            arguments: &format!("loglevel=4 panic=0 no_timer_check lab.role={role}"),
            memory: MEMORY,
            cpus: CPUS,
            more: &more,
            disks: std::slice::from_ref(&disk),
            ..Config::new(Arch::Amd64, &program, [&setup.kernel.image, initramfs, &folder])
        };
        let mut guest = Guest::start(&config)?;
        guest.wait_for("LAB-GUEST-READY", BOOT)?;
        Ok(Self { guest, folder })
    }

    /// Ends it, and returns the folder of what it has written to its disk.
    fn end(self) -> Result<PathBuf> {
        self.guest.quit()?;
        let disk = self.folder.join("out.tar");
        unpack(&disk, &self.folder)?;
        Ok(self.folder.join("out"))
    }
}

fn initramfs(setup: &Setup<'_>) -> Result<PathBuf> {
    let Setup { store, kernel, lastwords, folder, .. } = *setup;
    let modules = [DISK_MODULES, NETWORK].concat();
    let script = include_bytes!("../guest/guests.sh");
    let mut archive = guest_base(kernel, &store.busybox(Arch::Amd64)?, script, &modules)?;
    add_programs(&mut archive, folder, &[("lastwords", lastwords.to_path_buf())])?;
    archive.write(folder)
}
