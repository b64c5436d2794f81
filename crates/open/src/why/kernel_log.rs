//! Finds in a kernel's log what ended processes: the OOM killer, and faults that nobody handled.
//!
//! Sources of the texts: `mm/oom_kill.c` (`__oom_kill_process`), `arch/x86/mm/fault.c`
//! (`show_signal_msg`), `arch/x86/kernel/traps.c` (`show_signal`), Linux 6.12.

/// A line of a kernel's log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelLine {
    /// Time since boot by the kernel's clock, nanoseconds.
    pub time: u64,
    /// The text.
    pub text: String,
}

/// The longest log that is parsed, bytes of text.
const MOST_TEXT: usize = 64 << 20;

impl KernelLine {
    /// Parses a log: what `dmesg` prints, `journalctl -k -o short-monotonic`, or records of
    /// `/dev/kmsg`. Lines without a time since boot are left out, and so are lines that programs
    /// wrote into the log.
    #[must_use]
    pub fn parse_all(text: &str) -> Vec<Self> {
        let end = (0..=text.len().min(MOST_TEXT)).rev().find(|at| text.is_char_boundary(*at));
        let text = end.and_then(|end| text.get(..end)).unwrap_or_default();
        text.lines()
            .filter_map(|line| Self::of_record(line).or_else(|| Self::of_line(line)))
            .collect()
    }

    /// Parses a record of `/dev/kmsg`: `PRIORITY,SEQUENCE,MICROSECONDS,FLAGS;TEXT`. Priorities of 8
    /// and more are of programs.
    fn of_record(line: &str) -> Option<Self> {
        let (head, text) = line.split_once(';')?;
        let mut numbers = head.split(',');
        let mut number = || numbers.next()?.parse::<u64>().ok();
        let (priority, _, time) = (number()?, number()?, number()?);
        let time = time.checked_mul(1000)?;
        (priority < 8).then(|| Self { time, text: text.to_owned() })
    }

    /// Parses a line such as `[   12.345678] text` or `[   12.345678] host kernel: text`. `dmesg
    /// -x` puts `kern  :warn  : ` before it, pstore `<4>`, and kernels that log the caller
    /// `[    T1]` after the time.
    fn of_line(line: &str) -> Option<Self> {
        let (before, rest) = line.split_once('[')?;
        let before = before.trim();
        // Priorities of 8 and more are of programs.
        let is_of_kernel = |number: &str| number.parse::<u64>().is_ok_and(|number| number < 8);
        let priority = before.strip_prefix('<').and_then(|number| number.strip_suffix('>'));
        match priority {
            Some(number) if is_of_kernel(number) => {}
            None if before.is_empty() || before.starts_with("kern") => {}
            _ => return None,
        }
        let (time, text) = rest.split_once(']')?;
        let text = match text.strip_prefix('[').and_then(|caller| caller.split_once(']')) {
            Some((caller, text)) if caller.trim_start().starts_with(['T', 'C']) => text,
            _ => text,
        };
        let (seconds, micros) = time.trim().split_once('.')?;
        let micros = micros.parse::<u64>().ok().filter(|_| micros.len() == 6)?;
        let time = seconds.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros)?;
        let text = text.trim_start();
        let text = match text.split_once(" kernel: ") {
            Some((host, text)) if !host.contains(' ') => text,
            _ => text,
        };
        Some(Self { time: time.checked_mul(1000)?, text: text.to_owned() })
    }
}

/// The end of a process as the kernel's log tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// The OOM killer kills all processes of the control group of this path.
    GroupKilled(String),
    /// The OOM killer killed the process of this id.
    Killed(u32),
    /// A thread of this id had a fault that nobody handled, for which it gets this signal.
    Fault(u32, u8),
}

/// The words before the id of a process that the OOM killer killed.
const KILLED: &str = "Killed process ";
/// The words at the beginning of such a line.
const OUT_OF_MEMORY: [&str; 2] = ["Out of memory", "Memory cgroup out of memory"];
/// The words around the path of a control group whose processes are killed (`mm/memcontrol.c`,
/// `mem_cgroup_print_oom_group`).
const GROUP: [&str; 2] = ["Tasks in ", " are going to be killed due to memory.oom.group set"];
/// The words after `NAME[ID]` in the line of a fault that nobody handled, and the signal.
const FAULTS: [(&str, u8); 5] = [
    (": segfault at ", 11),
    (" general protection fault ip:", 11),
    (" trap invalid opcode ip:", 4),
    (" trap divide error ip:", 8),
    (" trap stack segment ip:", 7),
];

/// Returns what a line tells of the end of a process.
pub(super) fn told(text: &str) -> Option<Told> {
    let [before, after] = GROUP;
    if let Some(path) = text.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)) {
        return Some(Told::GroupKilled(path.to_owned()));
    }
    if OUT_OF_MEMORY.iter().any(|words| text.starts_with(words)) {
        let (_, rest) = text.split_once(KILLED)?;
        let (pid, name) = rest.split_once(' ')?;
        return pid.parse().ok().filter(|_| name.starts_with('(')).map(Told::Killed);
    }
    FAULTS.iter().find_map(|(words, signal)| {
        let (head, _) = text.split_once(words)?;
        let (_, tid) = head.strip_suffix(']')?.rsplit_once('[')?;
        Some(Told::Fault(tid.parse().ok()?, *signal))
    })
}

/// The first words of the line of a panic.
pub(super) const PANIC: &str = "Kernel panic - not syncing: ";
/// The first words of the lines of an oops: `arch/x86/mm/fault.c`, `lib/bug.c`, `arch/x86/kernel/dumpstack.c`.
const OOPS: [&str; 4] = ["BUG: ", "kernel BUG at ", "Oops: ", "general protection fault"];
/// The lines with which a kernel ends because a user asked for it: `kernel/reboot.c`, Linux 6.12.
const REBOOTS: [&str; 3] =
    ["reboot: Restarting system", "reboot: Power down", "reboot: System halted"];
/// The first words of the reason of the reset before a boot: `arch/x86/kernel/cpu/amd.c`, Linux
/// 6.16.
const RESET: &str = "x86/amd: Previous system reset reason ";

/// The end of a machine as the log of its kernel tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MachineEnd<'a> {
    /// A panic, and its words.
    Panic(&'a str),
    /// A user asked for it.
    Reboot,
}

/// Returns what a line tells of the end of the machine.
pub(super) fn machine_end(text: &str) -> Option<MachineEnd<'_>> {
    let is_reboot = REBOOTS.iter().any(|words| text.starts_with(words));
    let panic = text.strip_prefix(PANIC).map(MachineEnd::Panic);
    panic.or_else(|| is_reboot.then_some(MachineEnd::Reboot))
}

/// Returns true if a line is of an oops.
pub(super) fn is_oops(text: &str) -> bool {
    OOPS.iter().any(|words| text.starts_with(words))
}

/// Returns true if the line says why the processor was reset before the boot whose log has it.
pub(super) fn is_reset_reason(text: &str) -> bool {
    text.starts_with(RESET)
}

/// Formats a line as `dmesg` does.
pub(super) fn shown(line: &KernelLine) -> String {
    let KernelLine { time, text } = line;
    let (seconds, micros) = (time / 1_000_000_000, time % 1_000_000_000 / 1000);
    format!("[{seconds}.{micros:06}] {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_three_forms() {
        let line =
            |text: &str| KernelLine::parse_all(text).pop().map(|line| (line.time, line.text));
        let killed = "Out of memory: Killed process 5 (a b) total-vm:1kB";
        let expected = Some((12_345_678_000, killed.to_owned()));
        assert_eq!(line(&format!("[   12.345678] {killed}")), expected);
        assert_eq!(line(&format!("kern  :err   : [   12.345678] {killed}")), expected);
        assert_eq!(line(&format!("[   12.345678] host kernel: {killed}")), expected);
        assert_eq!(line(&format!("3,99,12345678,-;{killed}")), expected);
        assert_eq!(line(&format!("12,99,12345678,-;{killed}")), None, "of a program");
        assert_eq!(line(&format!("[Sun Nov 29 09:00:00 2026] {killed}")), None);
        assert_eq!(line(&format!("x [   12.345678] {killed}")), None);
        assert_eq!(line("[1.2] short"), None);
        assert_eq!(line(&format!("<3>[   12.345678] {killed}")), expected);
        assert_eq!(line(&format!("<3>[   12.345678][    T1] {killed}")), expected);
        assert_eq!(line(&format!("<12>[   12.345678] {killed}")), None, "of a program");
        assert_eq!(line("\u{e4}"), None);
    }

    #[test]
    fn a_line_names_its_process() {
        assert_eq!(
            told(
                "Memory cgroup out of memory: Killed process 22157 (shop) total-vm:2kB, anon-rss:1kB"
            ),
            Some(Told::Killed(22157))
        );
        assert_eq!(
            told("Out of memory (oom_kill_allocating_task): Killed process 7 (x) t"),
            Some(Told::Killed(7))
        );
        assert_eq!(told("note: Out of memory: Killed process 7 (x)"), None, "somebody quotes it");
        assert_eq!(told("Out of memory: Killed process seven (x)"), None);
        assert_eq!(
            told("my [odd] name[22469]: segfault at 0 ip 00007f sp 00007f error 4 in x[5,7+1]"),
            Some(Told::Fault(22469, 11))
        );
        assert_eq!(
            told(
                "traps: child[22490] general protection fault ip:7f sp:7f error:0 in libc.so.6[1,2+3]"
            ),
            Some(Told::Fault(22490, 11))
        );
        assert_eq!(
            told("traps: a[3] trap invalid opcode ip:1 sp:2 error:0"),
            Some(Told::Fault(3, 4))
        );
        assert_eq!(
            told("Tasks in /pods/a b are going to be killed due to memory.oom.group set"),
            Some(Told::GroupKilled("/pods/a b".to_owned()))
        );
        assert_eq!(told("x: Tasks in /a are going to be killed due to memory.oom.group set"), None);
        assert_eq!(told("usb 1-1: new device"), None);
    }

    #[test]
    fn a_line_tells_of_the_end_of_the_machine() {
        let ends = [
            (
                "Kernel panic - not syncing: Fatal exception",
                Some(MachineEnd::Panic("Fatal exception")),
            ),
            ("reboot: Restarting system with command 'bootloader'", Some(MachineEnd::Reboot)),
            ("reboot: Power down", Some(MachineEnd::Reboot)),
            ("reboot: machine restart", None),
            ("somebody says Kernel panic - not syncing: x", None),
        ];
        ends.iter().for_each(|(text, end)| assert_eq!(machine_end(text), *end, "{text}"));
        assert!(is_reset_reason(
            "x86/amd: Previous system reset reason [0x02000800]: hardware watchdog timer expired"
        ));
        assert!(!is_reset_reason("x86/amd: something else"));
        assert!(is_oops("BUG: kernel NULL pointer dereference, address: 0") && !is_oops("a BUG: "));
    }

    #[test]
    fn a_line_as_dmesg_shows_it() {
        let line = KernelLine { time: 12_000_345_999, text: "x".into() };
        assert_eq!(shown(&line), "[12.000345] x");
    }
}
