//! A guest whose kernel keeps a trace instance in memory that a reboot does not clear, booted
//! twice.
//!
//! The guest's memory is a file. The first boot records until the host stops the machine. The host
//! takes the region of the instance out of the file, may damage it, and puts it into the memory of
//! a second machine, before that machine starts: the kernel of the second machine finds what a
//! reset would have left. So one first boot serves many second boots, also with another kernel or
//! with the region at another address. Each boot has its own address randomisation.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use super::packages::{Kernel, Program, Store};
use super::qemu::Config;
use super::{Arch, DISK, DISK_MODULES, add_programs, boot, guest_base, qemu, unpack};
use rig::make_empty;

/// The kernel of CI: the oldest that has such a ring, which Debian's stable suite has.
pub const QUICK: &str = "6.12";
/// Address of the region in the first boot.
pub const PLACE: u64 = 0x1000_0000;
/// Another address that is free.
pub const OTHER_PLACE: u64 = 0x1800_0000;
/// Bytes of the region.
pub const SIZE: usize = 4 << 20;
/// Megabytes of the guest's memory.
const MEMORY: u32 = 512;
/// Bytes of the disk that the guest reads, so that a module has something to do.
const READ_DISK: u64 = 64 << 20;
/// Modules that have events of their own, or that are in the stacks of events.
const TRACED_MODULES: &[&str] = &["watchdog", "softdog"];

/// A kernel and the folder of its boots.
pub struct Reboot {
    store: Store,
    kernel: Kernel,
    qemu: Program,
    folder: PathBuf,
}

/// The traces that a first boot leaves.
pub struct First {
    /// The bytes of the region when the machine stopped.
    pub region: Vec<u8>,
    /// The folder with the text that the first boot itself printed, and the files of a bundle.
    pub tree: PathBuf,
}

impl Reboot {
    /// Fetches a kernel and the emulator where they are not kept. With `kept`, the files of earlier
    /// boots stay.
    pub fn new(want: &str, kept: bool) -> Result<Self> {
        let store = Store::open()?;
        let kernel = store.kernel(want, Arch::Amd64, None)?;
        let qemu = qemu(&store, Arch::Amd64)?;
        let folder = store.runs().join(format!("{}-reboot", kernel.release));
        if !kept {
            make_empty(&folder)?;
        }
        Ok(Self { store, kernel, qemu, folder })
    }

    /// The kernel's release.
    pub fn release(&self) -> &str {
        &self.kernel.release
    }

    /// The folder of all files of the boots.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Reads the region and the files that an earlier first boot left.
    pub fn kept(&self) -> Result<First> {
        let path = self.folder.join("region");
        let region =
            std::fs::read(&path).with_context(|| format!("{}: --keep keeps it", path.display()))?;
        Ok(First { region, tree: self.folder.join("first-boot/first") })
    }

    /// Boots for the first time and records, with so many rounds of work before the boot prints its
    /// own text.
    pub fn first(&self, rounds: u32) -> Result<First> {
        let memory = self.folder.join("memory");
        File::create(&memory)?.set_len(u64::from(MEMORY) << 20)?;
        let initramfs = self.initramfs(true, None)?;
        let more = format!("lab.part=first lab.rounds={rounds}");
        let folder = self.folder.join("first-boot");
        self.boot(&memory, PLACE, &initramfs, &more, "LAB-FIRST-DONE", &folder)?;
        let mut region = vec![0; SIZE];
        File::open(&memory)?.read_exact_at(&mut region, PLACE)?;
        std::fs::remove_file(&memory).with_context(|| memory.display().to_string())?;
        Ok(First { region, tree: folder.join("first") })
    }

    /// Boots with a region in memory. The folder `second` in the folder that is returned has what
    /// the kernel kept of it, and with `describe` the files of a bundle; with our program in the
    /// guest, the folder `live` has what our program printed of the instance.
    pub fn second(
        &self,
        name: &str,
        region: &[u8],
        place: u64,
        describe: bool,
        ours: Option<&Path>,
    ) -> Result<PathBuf> {
        let memory = self.folder.join("memory-second");
        let file = File::create(&memory)?;
        file.set_len(u64::from(MEMORY) << 20)?;
        file.write_all_at(region, place)?;
        let initramfs = self.initramfs(false, ours)?;
        let folder = self.folder.join(name);
        let more = format!("lab.part=second lab.describe={}", u8::from(describe));
        self.boot(&memory, place, &initramfs, &more, "LAB-SECOND-DONE", &folder)?;
        std::fs::remove_file(&memory).with_context(|| memory.display().to_string())?;
        Ok(folder)
    }

    fn initramfs(&self, is_first: bool, ours: Option<&Path>) -> Result<PathBuf> {
        let busybox = self.store.busybox(Arch::Amd64)?;
        // In another order, so that each module has another address than in the first boot.
        let modules =
            if is_first { [DISK_MODULES, TRACED_MODULES] } else { [TRACED_MODULES, DISK_MODULES] }
                .concat();
        let mut archive =
            guest_base(&self.kernel, &busybox, include_bytes!("guest/reboot.sh"), &modules)?;
        if let Some(ours) = ours {
            add_programs(&mut archive, &self.folder, &[("lastwords", ours.to_path_buf())])?;
        }
        archive.write(&self.folder)
    }

    /// Boots on a memory, waits until the guest says `ready`, stops the machine, and unpacks what
    /// the guest wrote.
    fn boot(
        &self,
        memory: &Path,
        place: u64,
        initramfs: &Path,
        more: &str,
        ready: &str,
        folder: &Path,
    ) -> Result<()> {
        make_empty(folder)?;
        let disks = [folder.join("written.tar"), folder.join("read.img")];
        for (disk, len) in disks.iter().zip([DISK, READ_DISK]) {
            File::create(disk)?.set_len(len)?;
        }
        let mib = SIZE >> 20;
        let arguments = format!(
            "loglevel=4 panic=0 no_timer_check memmap={mib}M${place:#x} trace_instance=boot_map@{place:#x}:{mib}M {more}"
        );
        let backend = format!(
            "memory-backend-file,id=ram,share=on,mem-path={},size={MEMORY}M",
            memory.display()
        );
        let more = ["-object", &backend, "-machine", "memory-backend=ram"].map(str::to_string);
        let config = Config {
            arguments: &arguments,
            memory: MEMORY,
            cpus: 2,
            more: &more,
            disks: &disks,
            ..Config::new(Arch::Amd64, &self.qemu, [&self.kernel.image, initramfs, folder])
        };
        let mut guest = boot(&config, ready)?;
        guest.qmp("stop", json!({}))?;
        guest.quit()?;
        let [written, read] = &disks;
        unpack(written, folder)?;
        std::fs::remove_file(read).with_context(|| read.display().to_string())?;
        for part in ["first", "second"] {
            split_formats(&folder.join(part))?;
        }
        Ok(())
    }
}

/// Makes a file of each format in the file `formats` of a folder: `head -v` has put a line with the
/// name before each.
fn split_formats(folder: &Path) -> Result<()> {
    let Ok(formats) = std::fs::read_to_string(folder.join("formats")) else { return Ok(()) };
    for part in formats.split("==> events/").skip(1) {
        let (name, text) = part.split_once(" <==\n").context("a line with the name of a format")?;
        let path = folder.join("events").join(name);
        std::fs::create_dir_all(path.parent().context("a format in a folder")?)?;
        std::fs::write(&path, format!("{}\n", text.trim_end()))
            .with_context(|| path.display().to_string())?;
    }
    Ok(())
}
