//! Machines that end in ways that the lab chooses, and what `lastwords why` says of it in the next
//! boot.
//!
//! The application of the guest records in persistent memory, which outlives each end. The guest's
//! memory is a file, so that ramoops, which keeps the kernel's log in reserved memory, has after a
//! reset what a machine would have; after a loss of power the file is empty. Each boot asks `why`
//! how the last one ended, and ends in the next way of the plan. A verdict is right, unknown or
//! wrong; none may be wrong.

pub(crate) mod here;
mod plan;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::compare::Rows;
use super::nvdimm::memory::{Files, Memory};
use super::nvdimm::{MEMORY, archive};
use super::qemu::{Config, Guest};
use super::{Arch, Setup, qemu};
use plan::{CAUSES, End, Worth};

/// The name of the scenario, and what it does.
pub(super) const NAME: &str = "why";
pub(super) const WHAT: &str =
    "machines that panic, hang, are restarted, reset and switched off: what `why` says of each";

/// Address and bytes of the memory of ramoops. A word that the host writes for the guest is after
/// it.
const RAMOOPS: u64 = 0x0800_0000;
const MAILBOX: u64 = RAMOOPS + (1 << 20);
/// Until a boot has come as far as it is waited for.
const BOOT: Duration = Duration::from_secs(600);

/// The counts of a cause: right, unknown, wrong.
type Counts = [u32; 3];

/// Runs it on one kernel.
pub(super) fn run(setup: &Setup<'_>, rows: &mut Rows) -> Result<()> {
    let Setup { store, kernel, lastwords, folder, count } = *setup;
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let seed = since.as_nanos() as u64;
    let plan = plan::make(count, seed);
    println!("seed {seed}, {} ends", plan.len());
    let files = Files::make(Memory::Dax, folder)?;
    let modules = [Memory::Dax.modules(), &["ramoops", "softdog", "loop"]].concat();
    let init = include_bytes!("../guest/why.sh");
    let mut archive = archive(store, kernel, init, &modules, lastwords, folder)?;
    archive.program("plan", plan.iter().map(End::line).collect::<String>().as_bytes());
    let initramfs = archive.write(folder)?;
    let arguments = format!(
        "loglevel=3 panic=1 no_timer_check memmap=2M${RAMOOPS:#x} lab.ramoops={RAMOOPS:#x} lab.mailbox={MAILBOX:#x}"
    );
    let (more, program) = (files.of_qemu(), qemu(store, Arch::Amd64)?);
    let config = Config {
        arguments: &arguments,
        memory: MEMORY,
        cpus: 2,
        reboots: true,
        more: &more,
        ..Config::new(Arch::Amd64, &program, [&kernel.image, &initramfs, folder])
    };
    let machine = Machine { guest: Guest::start(&config)?, config, ram: &files.ram };
    let mut table = vec![Counts::default(); CAUSES.len()];
    let outcome = machine.end_all(&plan, &mut table);
    // Also those that were judged before one fell short.
    show(&table, rows);
    outcome
}

/// Prints the table, and adds a row for each cause: no verdict is wrong, and what can be proven is
/// proven.
fn show(table: &[Counts], rows: &mut Rows) {
    println!("{:<28} {:>6} {:>8} {:>6}", "cause", "right", "unknown", "wrong");
    for (cause, [right, unknown, wrong]) in CAUSES.iter().zip(table) {
        println!("{:<28} {right:>6} {unknown:>8} {wrong:>6}", cause.what);
    }
    for (cause, [right, unknown, wrong]) in CAUSES.iter().zip(table) {
        let detail = format!("{right} right, {unknown} unknown, {wrong} wrong");
        rows.row(cause.is_met([*right, *unknown, *wrong]), cause.what, &detail);
    }
}

/// The guest, and what it is started with.
struct Machine<'a> {
    guest: Guest,
    config: Config<'a>,
    ram: &'a Path,
}

impl Machine<'_> {
    /// Ends the machine in all ways of the plan, and counts the verdicts.
    fn end_all(mut self, plan: &[End], table: &mut [Counts]) -> Result<()> {
        for (boot, end) in plan.iter().enumerate() {
            self = self.end(boot, end)?;
            let said = self.said(boot).with_context(|| format!("boot {boot}, {end:?}"))?;
            let (worth, words) = plan::judge(end, &said)?;
            println!("{boot}: {} {}: {worth:?}: {words}", CAUSES[end.cause].name, end.variant);
            if worth == Worth::Wrong {
                println!("{said}");
            }
            table[end.cause][worth as usize] += 1;
        }
        self.guest.quit()
    }

    /// Ends a boot. The machine that is returned is in the next boot, or on its way to it.
    fn end(mut self, boot: usize, end: &End) -> Result<Self> {
        // A panic may come before the console has shown its announcement: then the next boot speaks.
        let [ends, said] = ["ENDS", "SAID"].map(|mark| format!("WHY-{mark} {boot} "));
        let is_there = |console: &str| console.contains(&ends) || console.contains(&said);
        self.guest.wait_until(&ends, BOOT, true, is_there)?;
        match (CAUSES[end.cause].name, end.variant) {
            ("oops", variant) => self.patch(boot, variant)?,
            ("reboot", "oopsed") => self.patch(boot, "null")?,
            ("reset", _) => {
                self.guest.qmp("system_reset", json!({}))?;
            }
            ("reboot", "poweroff") => {
                self.guest.wait_for_end(BOOT)?;
                self.guest = Guest::start(&self.config)?;
            }
            ("reboot", "halt") => {
                let halted = "System halted";
                self.guest.wait_until(halted, BOOT, true, |console| console.contains(halted))?;
                // The kernel keeps its log after it said so.
                self.guest.wait_halted(BOOT)?;
                self.guest.quit()?;
                self.guest = Guest::start(&self.config)?;
            }
            ("cut", _) => {
                self.guest.quit()?;
                let ram = File::options().write(true).open(self.ram)?;
                ram.set_len(0)?;
                ram.set_len(u64::from(MEMORY) << 20)?;
                self.guest = Guest::start(&self.config)?;
            }
            _ => {}
        }
        Ok(self)
    }

    /// Writes other code where a function of the guest's kernel begins that was never called: QEMU
    /// has not translated it yet.
    fn patch(&mut self, boot: usize, variant: &str) -> Result<()> {
        let asked = self.line(&format!("WHY-PATCH {boot} "))?;
        let words: Vec<&str> = asked.split(' ').collect();
        let hex = |at: usize| -> Result<u64> {
            let word = words.get(at).with_context(|| format!("the guest says: {asked}"))?;
            u64::from_str_radix(word, 16).with_context(|| format!("the guest says: {asked}"))
        };
        let place = hex(1)? + hex(3)?.wrapping_sub(hex(2)?);
        let code: &[u8] = match variant {
            "ud2" => &[0x0f, 0x0b],
            // mov 0, %rax
            "null" => &[0x48, 0x8b, 0x04, 0x25, 0, 0, 0, 0],
            // mov $0xdead000000000000, %rax; mov (%rax), %rax
            _ => &[0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0xad, 0xde, 0x48, 0x8b, 0x00],
        };
        ensure!(place < u64::from(MEMORY) << 20, "the guest says: {asked}");
        let ram = File::options().write(true).open(self.ram)?;
        ram.write_all_at(code, place)?;
        ram.write_all_at(&(boot as u32 + 1).to_le_bytes(), MAILBOX)?;
        Ok(())
    }

    /// Returns what the next boot says of the one that ended.
    fn said(&mut self, boot: usize) -> Result<String> {
        self.line(&format!("WHY-SAID {boot} "))
    }

    /// Waits until the guest has printed what it marks so, and returns it.
    fn line(&mut self, mark: &str) -> Result<String> {
        let find = |console: &str| {
            let (_, rest) = console.rsplit_once(mark)?;
            Some(rest.split_once(" WHY-END")?.0.to_owned())
        };
        self.guest.wait_until(mark, BOOT, true, |console| find(console).is_some())?;
        find(&self.guest.console()).context("the console went")
    }
}
