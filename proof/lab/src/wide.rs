//! Devices and drivers of the scenario `wide`: disks with file systems, a network, sound, a
//! display.

use std::fs::File;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::packages::Store;
use rig::run_quietly;

/// Drivers that have events of their own, for [`devices`] or for nothing but memory.
pub(super) const MODULES: &[&str] = &[
    "xfs",
    "btrfs",
    "ext4",
    "f2fs",
    "nvme",
    "virtio_scsi",
    "sd_mod",
    "xhci_pci",
    "usb_storage",
    "9p",
    "9pnet_virtio",
    "e1000e",
    "snd_hda_intel",
    "snd_hda_codec_generic",
    "virtio_gpu",
    "virtio_balloon",
    "vivid",
    "mac80211_hwsim",
    "kvm_amd",
    "zram",
    "msr",
    "scsi_debug",
    "bridge",
    "nfsd",
    "cifs",
    "fuse",
    "cachefiles",
    "i2c_dev",
    "gpio_sim",
    "amdgpu",
];

/// Events whose lines differ from the kernel's, and why: the rows of docs/MATRIX.md.
pub(super) const UNLIKE: &[(&str, &str)] = &[
    ("initcall_finish", "in the form `fields`, 7.3 says `UNKNOWN TYPE 21`; we print its fields"),
    ("nvme_setup_cmd", "the command is decoded by functions of the driver; its bytes are shown"),
    ("writeback_sb_inodes_requeue", "`age` counts up to the time of reading"),
    ("writeback_single_inode", "`age` counts up to the time of reading"),
    ("writeback_single_inode_start", "`age` counts up to the time of reading"),
    ("xhci_handle_event", "`xhci_decode_trb`: the four words of the request are shown"),
    ("xhci_handle_transfer", "`xhci_decode_trb`: the four words of the request are shown"),
    ("xhci_queue_trb", "`xhci_decode_trb`: the four words of the request are shown"),
    ("xhci_ring_ep_doorbell", "`xhci_decode_doorbell`: its two numbers are shown"),
];

/// The suite of the programs that make file systems.
const SUITE: &str = "trixie";
/// Package, program and options that make a file system, and the disk's megabytes.
const FILE_SYSTEMS: &[(&str, &str, &str, &[&str], u64)] = &[
    ("btrfs", "btrfs-progs", "usr/sbin/mkfs.btrfs", &["-q"], 256),
    ("xfs", "xfsprogs", "usr/sbin/mkfs.xfs", &["-q"], 320),
    ("ext4", "e2fsprogs", "usr/sbin/mkfs.ext4", &["-q"], 64),
    ("f2fs", "f2fs-tools", "usr/sbin/mkfs.f2fs", &["-q"], 128),
];

/// Makes disks in the folder, and returns what QEMU's command line gets for all devices.
pub(super) fn devices(store: &Store, folder: &Path) -> Result<Vec<String>> {
    let mut words = Vec::new();
    for (name, package, program, options, megabytes) in FILE_SYSTEMS {
        let disk = folder.join(format!("{name}.disk"));
        File::create(&disk)?.set_len(megabytes << 20)?;
        let program = store.program(package, SUITE, program)?;
        run_quietly(program.command()?.args(*options).arg(&disk))
            .with_context(|| format!("a disk with {name}"))?;
        words.push(format!("-drive file={},if=none,id={name},format=raw", disk.display()));
    }
    let share = folder.join("share");
    std::fs::create_dir_all(&share)?;
    std::fs::write(share.join("file"), "of the host\n")?;
    words.push(format!("-fsdev local,id=share,path={},security_model=none", share.display()));
    words.extend(DEVICES.iter().map(ToString::to_string));
    Ok(words.iter().flat_map(|word| word.split(' ')).map(str::to_string).collect())
}

const DEVICES: &[&str] = &[
    "-device nvme,drive=btrfs,serial=1",
    "-device virtio-scsi-pci",
    "-device scsi-hd,drive=xfs",
    "-device qemu-xhci",
    "-device usb-storage,drive=ext4",
    "-device nvme,drive=f2fs,serial=2",
    "-device virtio-9p-pci,fsdev=share,mount_tag=share",
    "-netdev user,id=net",
    "-device e1000e,netdev=net",
    "-audiodev none,id=quiet",
    "-device intel-hda",
    "-device hda-duplex,audiodev=quiet",
    "-device virtio-balloon-pci",
    "-device virtio-rng-pci",
];

#[cfg(test)]
mod tests {
    /// The page lists these events and no others.
    #[test]
    fn the_page_has_the_list() {
        let page = include_str!("../../../docs/MATRIX.md");
        let (_, list) = page.split_once("<!-- unlike -->").expect("the list");
        let rows: Vec<&str> = list.lines().filter(|line| line.starts_with("| `")).collect();
        let ours: Vec<String> =
            super::UNLIKE.iter().map(|(event, why)| format!("| `{event}` | {why} |")).collect();
        assert_eq!(rows, ours);
    }
}
