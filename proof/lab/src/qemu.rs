//! A guest under QEMU: started, watched through its console, stopped through QMP, and always ended
//! by who started it, also when that process is killed.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::Arch;
use super::packages::Program;
use rig::shown;

/// The machine that is started.
pub(super) struct Config<'a> {
    pub(super) arch: Arch,
    pub(super) qemu: &'a Program,
    pub(super) kernel: &'a Path,
    pub(super) initramfs: &'a Path,
    /// The kernel's command line but for the console.
    pub(super) arguments: &'a str,
    /// Megabytes.
    pub(super) memory: u32,
    pub(super) cpus: u32,
    /// More for QEMU's name of an x86_64 CPU.
    pub(super) more_cpu: &'a str,
    /// Each instruction takes a nanosecond of the guest's time, however long it takes here.
    pub(super) counts_instructions: bool,
    /// The machine stands still at the panic, before the panic's notifiers run.
    pub(super) pause_at_panic: bool,
    /// A reset starts the guest anew, and does not end QEMU.
    pub(super) reboots: bool,
    /// More of QEMU's command line, for example memory that is kept in a file.
    pub(super) more: &'a [String],
    /// Files that the guest writes to as disks.
    pub(super) disks: &'a [PathBuf],
    /// Where console, socket and errors go.
    pub(super) folder: &'a Path,
}

impl<'a> Config<'a> {
    /// A guest of one CPU and 512 MB without disks, which ends at its first reset. The paths are
    /// those of kernel, initramfs and folder.
    pub(super) fn new(
        arch: Arch,
        qemu: &'a Program,
        [kernel, initramfs, folder]: [&'a Path; 3],
    ) -> Self {
        Self {
            arch,
            qemu,
            kernel,
            initramfs,
            arguments: "",
            memory: 512,
            cpus: 1,
            more_cpu: "",
            counts_instructions: false,
            pause_at_panic: false,
            reboots: false,
            more: &[],
            disks: &[],
            folder,
        }
    }
}

/// A running guest.
pub(super) struct Guest {
    child: Child,
    qmp: BufReader<UnixStream>,
    console: PathBuf,
    errors: PathBuf,
}

/// How often the console is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Until QEMU answers.
const START: Duration = Duration::from_secs(20);
/// Until an answer of QMP comes, dumps included.
const ANSWER: Duration = Duration::from_secs(120);

impl Guest {
    /// Starts it.
    pub(super) fn start(config: &Config<'_>) -> Result<Self> {
        let (console, socket) = (config.folder.join("console"), config.folder.join("qmp"));
        let errors = config.folder.join("qemu-errors");
        for old in [&console, &socket] {
            if old.exists() {
                std::fs::remove_file(old).with_context(|| old.display().to_string())?;
            }
        }
        let mut command = emulator(config.qemu)?;
        command.args(config.arch.machine());
        command.arg("-cpu").arg(match config.arch {
            Arch::Amd64 => format!("{}{}", config.arch.cpu(), config.more_cpu),
            Arch::Arm64 => config.arch.cpu().to_string(),
        });
        match config.counts_instructions {
            true => command.args(["-accel", "tcg", "-icount", "shift=0,sleep=off"]),
            false => command.args(["-accel", "tcg,thread=multi"]),
        };
        command.args(["-smp", &config.cpus.to_string()]);
        command.args(["-m", &config.memory.to_string(), "-display", "none", "-nodefaults"]);
        if !config.reboots {
            command.arg("-no-reboot");
        }
        command.args(config.more);
        command.arg("-kernel").arg(config.kernel).arg("-initrd").arg(config.initramfs);
        command.arg("-append").arg(format!(
            "console={} {}",
            config.arch.console(),
            config.arguments
        ));
        command.args(["-device", "vmcoreinfo", "-serial", &format!("file:{}", console.display())]);
        command.args(["-qmp", &format!("unix:{},server=on,wait=off", socket.display())]);
        for (index, disk) in config.disks.iter().enumerate() {
            command.args([
                "-drive",
                &format!("file={},if=none,id=d{index},format=raw", disk.display()),
            ]);
            command.args(["-device", &format!("virtio-blk-pci,drive=d{index}")]);
        }
        if config.pause_at_panic {
            command.args(["-device", "pvpanic-pci", "-action", "panic=pause"]);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&errors)?);
        let mut child = command.spawn().with_context(|| shown(&command))?;
        match connect(&socket, &mut child, &errors) {
            Ok(qmp) => Ok(Self { child, qmp, console, errors }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    /// Waits until the console shows `text`.
    pub(super) fn wait_for(&mut self, text: &str, limit: Duration) -> Result<()> {
        self.wait_until(&format!("`{text}`"), limit, false, |console| console.contains(text))
    }

    /// Waits until the console has `what`. A guest that may not panic ends the wait by a panic.
    pub(super) fn wait_until(
        &mut self,
        what: &str,
        limit: Duration,
        may_panic: bool,
        is_there: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let begin = Instant::now();
        loop {
            let console = self.console();
            if is_there(&console) {
                return Ok(());
            }
            if let Some(line) = console.lines().find(|l| l.contains("LAB-FAILED")) {
                bail!("the guest says: {line}");
            }
            if !may_panic && console.contains("end Kernel panic") {
                bail!("the guest panicked before it said {what}\n{}", tail(&console));
            }
            self.check_alive()?;
            if begin.elapsed() > limit {
                bail!("no {what} from the guest in {} s\n{}", limit.as_secs(), tail(&console));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until the guest ends QEMU by a reset of the machine; what the console has shown.
    pub(super) fn wait_for_end(mut self, limit: Duration) -> Result<String> {
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begin.elapsed() > limit {
                bail!("the guest does not end in {} s\n{}", limit.as_secs(), tail(&self.console()));
            }
            std::thread::sleep(LOOK);
        }
        Ok(self.console())
    }

    /// Waits until the machine is no longer running by itself.
    pub(super) fn wait_paused(&mut self, limit: Duration) -> Result<()> {
        let begin = Instant::now();
        loop {
            let status = self.qmp("query-status", json!({}))?;
            if status["running"] == json!(false) {
                return Ok(());
            }
            if begin.elapsed() > limit {
                bail!(
                    "no panic in {} s (is the module pvpanic-pci there?)\n{}",
                    limit.as_secs(),
                    tail(&self.console())
                );
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until all CPUs of an x86_64 machine have halted for good: no interrupt wakes them.
    pub(super) fn wait_halted(&mut self, limit: Duration) -> Result<()> {
        let begin = Instant::now();
        loop {
            let command = json!({"command-line": "info registers -a"});
            let registers = self.qmp("human-monitor-command", command)?;
            if are_halted(registers.as_str().unwrap_or_default()) {
                return Ok(());
            }
            if begin.elapsed() > limit {
                bail!("no halt in {} s\n{}", limit.as_secs(), tail(&self.console()));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// Returns the text of the console so far.
    pub(super) fn console(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.console).unwrap_or_default()).into_owned()
    }

    /// Runs a command of the QEMU Machine Protocol.
    pub(super) fn qmp(&mut self, command: &str, arguments: Value) -> Result<Value> {
        execute(&mut self.qmp, command, arguments)
    }

    /// Ends it in good order, so that its files are whole.
    pub(super) fn quit(mut self) -> Result<()> {
        // It may be gone before it has answered.
        let asked = self.qmp("quit", json!({}));
        let begin = Instant::now();
        while self.child.try_wait()?.is_none() {
            if begin.elapsed() > START {
                asked.context("QMP quit")?;
                bail!("QEMU did not end in {} s", START.as_secs());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn check_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => {
                let errors = std::fs::read_to_string(&self.errors).unwrap_or_default();
                bail!("QEMU ended: {status}\n{errors}{}", tail(&self.console()))
            }
        }
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns true if these registers of all CPUs, as QEMU's monitor prints them, are of CPUs that are
/// halted and take no interrupts.
fn are_halted(registers: &str) -> bool {
    const INTERRUPTS: u64 = 1 << 9;
    let mut cpus = registers.lines().filter(|line| line.contains("HLT=")).peekable();
    let flags = |line: &str| {
        let (_, rest) = line.split_once("RFL=")?;
        u64::from_str_radix(rest.split(' ').next()?, 16).ok()
    };
    let is_halted = |line: &str| {
        line.contains("HLT=1") && flags(line).is_some_and(|flags| flags & INTERRUPTS == 0)
    };
    cpus.peek().is_some() && cpus.all(is_halted)
}

/// QEMU itself, with its firmware, which packages of their own have. The kernel ends QEMU together
/// with the thread that starts it.
fn emulator(qemu: &Program) -> Result<Command> {
    let loader = qemu.command()?;
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(loader.get_program()).args(loader.get_args());
    for folder in ["usr/share/qemu", "usr/share/seabios"] {
        command.arg("-L").arg(qemu.root.join(folder));
    }
    Ok(command)
}

fn connect(socket: &Path, child: &mut Child, errors: &Path) -> Result<BufReader<UnixStream>> {
    let begin = Instant::now();
    let stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(error) => {
                if let Some(status) = child.try_wait()? {
                    bail!(
                        "QEMU ended: {status}\n{}",
                        std::fs::read_to_string(errors).unwrap_or_default()
                    );
                }
                if begin.elapsed() > START {
                    return Err(error).with_context(|| socket.display().to_string());
                }
                std::thread::sleep(LOOK);
            }
        }
    };
    stream.set_read_timeout(Some(ANSWER))?;
    let mut qmp = BufReader::new(stream);
    qmp.read_line(&mut String::new()).context("QMP's greeting")?;
    execute(&mut qmp, "qmp_capabilities", json!({}))?;
    Ok(qmp)
}

fn execute(qmp: &mut BufReader<UnixStream>, command: &str, arguments: Value) -> Result<Value> {
    let request = json!({ "execute": command, "arguments": arguments });
    writeln!(qmp.get_mut(), "{request}").with_context(|| format!("QMP {command}"))?;
    loop {
        let mut line = String::new();
        if qmp.read_line(&mut line).with_context(|| format!("QMP {command}"))? == 0 {
            bail!("QMP {command}: QEMU is gone");
        }
        let answer: Value =
            serde_json::from_str(&line).with_context(|| format!("QMP {command}: {line}"))?;
        if let Some(value) = answer.get("return") {
            return Ok(value.clone());
        }
        if let Some(error) = answer.get("error") {
            bail!("QMP {command}: {error}");
        }
    }
}

/// The last lines.
fn tail(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_halted_if_no_interrupt_wakes_them() {
        let cpu = |flags: &str, halted| {
            format!(
                "CPU#0\nRAX=0\nRIP=0 RFL={flags} [---Z-P-] CPL=0 II=0 A20=1 SMM=0 HLT={halted}\n"
            )
        };
        let (idle, off, busy) = (cpu("00000246", 1), cpu("00000046", 1), cpu("00000046", 0));
        assert!(are_halted(&format!("{off}{off}")));
        for other in [format!("{off}{idle}"), format!("{busy}{off}"), String::new()] {
            assert!(!are_halted(&other), "{other}");
        }
    }
}
