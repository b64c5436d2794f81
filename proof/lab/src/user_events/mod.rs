//! User events (CONFIG_USER_EVENTS, which kernels of Debian do not have): out of the dump of a
//! guest, and recorded by `lastwords record`. A program of ours registers events of all kinds of
//! fields and writes them on all CPUs. The kernel's text, trace-cmd, babeltrace2 and the numbers
//! that the program wrote judge.

mod judge;

use std::fs::File;
use std::path::Path;

use anyhow::Result;

use super::compare::{self, Ours, Rows};
use super::qemu::Config;
use super::record::{More, run_guest};
use super::static_build::of_c;
use super::{Arch, DISK, DISK_MODULES, QEMU_MODULES, Setup, dump, guest_base, unpack};

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "user-events";
pub(super) const WHAT: &str = "user events of a program, out of a dump and recorded, beside the kernel's text and trace-cmd (--kernel with a .deb of a kernel with CONFIG_USER_EVENTS)";

const CPUS: u32 = 2;
/// The dumps: with all pages, and without those that makedumpfile leaves out.
const FORMATS: &[&str] = &["elf", "d31-zlib"];
/// How the kernel allocates the fields of user events, whose numbers of elements it never sets: with
/// zeros, and with what an earlier owner of the memory may have left. Only with zeros can formats be
/// compared.
const MEMORIES: &[(&str, &str)] = &[("zeroed", "init_on_alloc=1"), ("poisoned", "slab_debug=P")];

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    let writer = of_c(setup.folder.join("writer"), &["user_events/writer.c"])?;
    for (memory, argument) in MEMORIES {
        let folder = setup.folder.join(memory);
        std::fs::create_dir_all(&folder)?;
        let setup = Setup { folder: &folder, ..*setup };
        rows.part(memory, |rows| out_of_dump(&setup, &writer, argument, rows));
    }
    let more = More { programs: vec![("writer", writer)], ..More::default() };
    run_guest(setup, include_bytes!("../guest/user-events.sh"), &more)?;
    judge::recordings(&setup.folder.join("out"), setup.lastwords, rows)
}

fn out_of_dump(setup: &Setup<'_>, writer: &Path, argument: &str, rows: &mut Rows) -> Result<()> {
    let Setup { store, kernel, lastwords, folder, .. } = *setup;
    let modules = [DISK_MODULES, QEMU_MODULES].concat();
    let init = include_bytes!("../guest/init.sh");
    let mut archive = guest_base(kernel, &store.busybox(Arch::Amd64)?, init, &modules)?;
    archive.copy("bin/writer", writer)?;
    let initramfs = archive.write(folder)?;
    let disk = folder.join("truth.tar");
    File::create(&disk)?.set_len(DISK)?;
    let qemu = super::qemu(store, Arch::Amd64)?;
    let arguments =
        format!("loglevel=4 panic=0 no_timer_check lab.scenario={NAME} lab.end=stopped {argument}");
    let config = Config {
        arguments: &arguments,
        cpus: CPUS,
        disks: std::slice::from_ref(&disk),
        ..Config::new(Arch::Amd64, &qemu, [&kernel.image, &initramfs, folder])
    };
    let (dumps, _) = dump::of_panic(&config, store, FORMATS)?;
    unpack(&disk, folder)?;
    let (truth, ours) = (folder.join("truth"), Ours { program: lastwords });
    for dump in &dumps {
        compare::texts(rows, &ours, dump, &truth)?;
        compare::counts(rows, &ours, dump, &truth)?;
        rows.part(dump.format, |rows| judge::dump(rows, &ours, dump, &truth));
        if argument.starts_with("init_on_alloc") {
            compare::trace_dat(rows, &ours, dump, &truth)?;
        }
    }
    Ok(())
}
