//! The signature of a crash: one line that is equal for crashes of the same cause, as apport and
//! ABRT build it. It has the program or `kernel`, the cause, and the innermost functions, divided by
//! `|`. It has no addresses, offsets, line numbers, process ids or suffixes of compilers, so that it
//! is stable over builds of one source.

use super::{Cause, Verdict, signal_name};
use crate::{Crash, escape};

/// Most functions in a signature.
const FUNCTIONS: usize = 5;
/// What stands for a function without a name.
const NAMELESS: &str = "?";
/// The beginning of the line of a panic.
const PANIC: &str = "Kernel panic - not syncing: ";
/// Suffixes that compilers give to parts and copies of functions, each with a number or without.
const SUFFIXES: [&str; 7] =
    [".isra", ".constprop", ".part", ".cold", ".llvm", ".lto_priv", ".localalias"];
/// Functions with which kernels report a crash (x86, arm64): `arch/x86/mm/fault.c`,
/// `arch/x86/kernel/dumpstack.c`, `arch/arm64/mm/fault.c`, `arch/arm64/kernel/traps.c`,
/// `kernel/panic.c`, `kernel/watchdog.c`, Linux 6.12.
const REPORTING: [&str; 36] = [
    "dump_stack",
    "dump_stack_lvl",
    "dump_backtrace",
    "show_stack",
    "show_regs",
    "panic",
    "vpanic",
    "nmi_panic",
    "die",
    "__die",
    "__die_body",
    "die_addr",
    "die_kernel_fault",
    "oops_end",
    "oops_exit",
    "page_fault_oops",
    "kernelmode_fixup_or_oops",
    "bad_area_nosemaphore",
    "__bad_area_nosemaphore",
    "no_context",
    "do_user_addr_fault",
    "do_kern_addr_fault",
    "do_page_fault",
    "do_translation_fault",
    "do_mem_abort",
    "do_trap",
    "do_error_trap",
    "do_kernel_fault",
    "__do_kernel_fault",
    "fixup_exception",
    "handle_bug",
    "report_bug",
    "bug_handler",
    "brk_handler",
    "watchdog_timer_fn",
    "watchdog_overflow_callback",
];
/// Beginnings of the names of entries into the kernel by an exception.
const ENTRIES: [&str; 5] = ["exc_", "asm_exc_", "el1_", "el1h_", "el1t_"];

/// Returns the signature of the end of a session; none if nothing died. The frames should have
/// their names ([`Symbolizer`](crate::Symbolizer)): a frame without one is `?`, with its module.
#[must_use]
pub fn session_signature(verdict: &Verdict, program: &str) -> Option<String> {
    if !verdict.is_death() {
        return None;
    }
    let program = program.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(NAMELESS);
    let cause = match verdict.cause {
        Cause::Signal(Some(number)) => signal_name(number),
        Cause::Exit(status) => format!("exit {status}"),
        cause => cause.word().to_owned(),
    };
    let functions = verdict.crash.as_ref().map(functions).unwrap_or_default();
    let place = verdict.crash.as_ref().filter(|_| functions.is_empty()).and_then(source);
    Some(joined([escape(program), cause].into_iter().chain(functions).chain(place)))
}

fn joined(parts: impl IntoIterator<Item = String>) -> String {
    parts.into_iter().map(|part| part.replace('|', "/")).collect::<Vec<_>>().join("|")
}

/// Returns the innermost functions of the program.
fn functions(crash: &Crash) -> Vec<String> {
    let name = |(function, module): (Option<&str>, Option<&str>)| match function {
        Some(function) => escape(bare(function)),
        None => format!("{NAMELESS} in {}", escape(module.unwrap_or(NAMELESS))),
    };
    top(crash.own_functions().into_iter().map(name))
}

/// Returns the first functions. The frames of a recursion are one.
fn top(functions: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut top: Vec<String> = functions.into_iter().collect();
    top.dedup();
    top.truncate(FUNCTIONS);
    top
}

/// Returns the source file of a panic, without its folder and its line.
fn source(crash: &Crash) -> Option<String> {
    let (_, location) = crash.fields.iter().find(|(name, _)| name == "location")?;
    let file = location.rsplit('/').next()?.split(':').next()?;
    Some(escape(file)).filter(|file| !file.is_empty())
}

/// Returns the name of a function without the suffixes of compilers.
fn bare(name: &str) -> &str {
    let cut = SUFFIXES.iter().filter_map(|suffix| {
        let at = name.find(suffix)?;
        let rest = name.get(at.checked_add(suffix.len())?..)?;
        (rest.is_empty() || rest.starts_with('.')).then_some(at)
    });
    cut.min().and_then(|at| name.get(..at)).unwrap_or(name)
}

/// The call stack of a kernel's crash, as its log has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelFrames {
    /// The names of the functions, innermost first.
    pub functions: Vec<String>,
    /// The line `Hardware name: …` without these words.
    pub hardware: Option<String>,
}

/// Returns the call stack of a crash in a kernel's log. `panic` and `oops` are what
/// [`Kernel::crash`](lastwords_kernel::Kernel::crash) found in the same log: the stack of the oops
/// is wanted, and without an oops that of the panic.
#[must_use]
pub fn kernel_frames<'l>(
    log: impl IntoIterator<Item = &'l str>,
    panic: Option<&str>,
    oops: Option<&str>,
) -> KernelFrames {
    let lines: Vec<&str> = log.into_iter().flat_map(|text| text.split('\n')).collect();
    let mut found = KernelFrames::default();
    let is_panic = |line: &&str| line.strip_prefix(PANIC).is_some_and(|text| Some(text) == panic);
    let of_panic = lines.iter().rposition(is_panic);
    let before = lines.get(..of_panic.unwrap_or(lines.len())).unwrap_or_default();
    let of_oops = oops.and_then(|oops| before.iter().rposition(|line| *line == oops));
    let hardware = |line: &&str| Some(line.split_once("Hardware name: ")?.1.trim().to_owned());
    let Some(begin) = of_oops.or(of_panic) else {
        found.hardware = lines.iter().find_map(|line| dmi(line));
        return found;
    };
    let rest = lines.get(begin..).unwrap_or_default();
    found.hardware =
        rest.iter().find_map(hardware).or_else(|| lines.iter().find_map(|line| dmi(line)));
    let trace = rest.iter().position(|line| is_head(line));
    let registers = rest.get(..trace.unwrap_or(rest.len())).unwrap_or_default();
    let at = of_oops.and_then(|_| registers.iter().find_map(|line| instruction(line)));
    let stack = trace.and_then(|at| rest.get(at.checked_add(1)?..)).unwrap_or_default();
    let is_end = |line: &str| line.trim() == "</TASK>";
    let frames =
        stack.iter().take_while(|line| !is_end(line) && (is_mark(line) || frame(line).is_some()));
    let reporting = |name: &&str| !is_reporting(name);
    let mut functions: Vec<&str> = at.into_iter().collect();
    functions.extend(
        frames.filter(|line| !line.trim_start().starts_with("? ")).filter_map(|l| frame(l)),
    );
    found.functions =
        functions.into_iter().filter(reporting).map(|name| escape(bare(name))).collect();
    found.functions.dedup();
    found
}

/// Returns the hardware in the line that a kernel prints when it boots.
fn dmi(line: &str) -> Option<String> {
    // Another line has the version of SMBIOS.
    let hardware = line.strip_prefix("DMI: ").filter(|text| text.contains(", BIOS "))?;
    Some(hardware.trim().to_owned())
}

fn is_head(line: &str) -> bool {
    line.trim().eq_ignore_ascii_case("call trace:")
}

/// Returns true for `<TASK>`, `</IRQ>` and the like.
fn is_mark(line: &str) -> bool {
    let line = line.trim();
    line.starts_with('<') && line.ends_with('>')
}

/// Returns the function at the instruction pointer: `RIP: 0010:name+0x1/0x2`, `pc : name+0x1/0x2`.
fn instruction(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let rest = match line.strip_prefix("RIP: ") {
        Some(rest) => rest.split_once(':').map_or(rest, |(_, rest)| rest),
        None => line.strip_prefix("pc : ")?,
    };
    frame(rest)
}

/// Returns the function of a frame: `[<address>] ? name+0x1/0x2 [module]`.
fn frame(line: &str) -> Option<&str> {
    let line = line.trim();
    let line = match line.strip_prefix("[<") {
        Some(rest) => rest.split_once(">]")?.1.trim_start(),
        None => line,
    };
    let word = line.strip_prefix("? ").unwrap_or(line).split_whitespace().next()?;
    let (name, offset) = word.split_once("+0x")?;
    (offset.contains("/0x") && !name.is_empty()).then_some(name)
}

fn is_reporting(name: &str) -> bool {
    let name = bare(name);
    REPORTING.contains(&name) || ENTRIES.iter().any(|entry| name.starts_with(entry))
}

/// Returns the signature of the end of a kernel; none if nothing proves that it died.
#[must_use]
pub fn kernel_signature(
    verdict: &Verdict,
    panic: Option<&str>,
    oops: Option<&str>,
    frames: &KernelFrames,
) -> Option<String> {
    if !verdict.is_death() {
        return None;
    }
    let reason = oops.or(panic).map(reason).unwrap_or_default();
    let head = ["kernel".to_owned(), verdict.cause.word().to_owned(), reason];
    Some(joined(head.into_iter().chain(top(frames.functions.iter().cloned()))))
}

/// Returns the reason of a panic or an oops without what differs between two crashes: addresses,
/// numbers, and the options of the kernel.
fn reason(text: &str) -> String {
    let text = text.split(['[', '\n']).next().unwrap_or_default().trim();
    let is_part = |c: char| c.is_ascii_alphanumeric();
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let len = rest.find(|c: char| !is_part(c)).unwrap_or(rest.len()).max(c.len_utf8());
        let (word, after) = rest.split_at_checked(len).unwrap_or((rest, ""));
        let has_digit = word.bytes().any(|byte| byte.is_ascii_digit());
        let digits = word.strip_prefix("0x").unwrap_or(word);
        let is_number = has_digit
            && (word.starts_with(|c: char| c.is_ascii_digit())
                || digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        out.push_str(if is_number { "#" } else { word });
        rest = after;
    }
    escape(&out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Frame, Function};

    /// An oops of Linux 6.12 on x86, and the same one of another build: other addresses, offsets,
    /// registers, process and suffixes of the compiler.
    fn log(build: u64) -> Vec<String> {
        let (offset, pid) = (0x10 + build * 0x33, 700 + build);
        let suffix = [".isra.0", ""][build as usize % 2];
        let lines = [
            "DMI: QEMU Standard PC (i440FX + PIIX, 1996), BIOS 1.16.2-debian-1.16.2-1 04/01/2014".to_owned(),
            "BUG: kernel NULL pointer dereference, address: 0000000000000007".to_owned(),
            "Call Trace:".to_owned(),
            " survived_one+0x1/0x2".to_owned(),
            format!("BUG: kernel NULL pointer dereference, address: {:016x}", build * 8),
            "#PF: supervisor write access in kernel mode".to_owned(),
            format!("CPU: {build} UID: 0 PID: {pid} Comm: sh Not tainted"),
            "Hardware name: QEMU Standard PC (i440FX + PIIX, 1996), BIOS 1.16.2-debian-1.16.2-1 04/01/2014".to_owned(),
            format!("RIP: 0010:frob{suffix}+{offset:#x}/0x90 [crasher]"),
            format!("RAX: {build:016x}"),
            "Call Trace:".to_owned(),
            " <TASK>".to_owned(),
            format!(" ? __die+{offset:#x}/0x70"),
            format!(" asm_exc_page_fault+{offset:#x}/0x30"),
            format!(" frob_all+{offset:#x}/0x40 [crasher]"),
            format!(" frob_all+{offset:#x}/0x40 [crasher]"),
            format!(" vfs_write+{offset:#x}/0x500"),
            format!(" ksys_write+{offset:#x}/0xe0"),
            format!(" do_syscall_64+{offset:#x}/0x190"),
            format!(" entry_SYSCALL_64_after_hwframe+{offset:#x}/0x7e"),
            " </TASK>".to_owned(),
            "Modules linked in: crasher".to_owned(),
            "Kernel panic - not syncing: Fatal exception".to_owned(),
            " after_the_panic+0x1/0x2".to_owned(),
        ];
        lines.to_vec()
    }

    fn of_kernel(build: u64) -> (String, KernelFrames) {
        let log = log(build);
        let (panic, oops) = ("Fatal exception", log[4].clone());
        let frames = kernel_frames(log.iter().map(String::as_str), Some(panic), Some(&oops));
        let verdict = Verdict::new(Cause::KernelPanic, "it panicked");
        let signature = kernel_signature(&verdict, Some(panic), Some(&oops), &frames);
        (signature.unwrap(), frames)
    }

    #[test]
    fn two_builds_of_a_kernel_have_one_signature() {
        let (one, frames) = of_kernel(0);
        assert_eq!(
            one,
            "kernel|kernel-panic|BUG: kernel NULL pointer dereference, address: #|frob|frob_all|vfs_write|ksys_write|do_syscall_64"
        );
        assert_eq!(of_kernel(1).0, one);
        assert!(frames.hardware.unwrap().starts_with("QEMU Standard PC"));
    }

    #[test]
    fn a_panic_without_an_oops_has_the_stack_behind_it() {
        let log = [
            "sysrq: Trigger a crash",
            "Kernel panic - not syncing: sysrq triggered crash",
            "CPU: 0 UID: 0 PID: 1 Comm: init",
            "Call Trace:",
            " <TASK>",
            " panic+0x35d/0x3b0",
            " ? guess+0x1/0x2",
            " sysrq_handle_crash+0x1a/0x20",
            " __handle_sysrq+0xa3/0x1b0",
            " </TASK>",
            " elsewhere+0x1/0x2",
        ];
        let frames = kernel_frames(log, Some("sysrq triggered crash"), None);
        assert_eq!(frames.functions, ["sysrq_handle_crash", "__handle_sysrq"]);
        let verdict = Verdict::new(Cause::KernelPanic, "");
        let signature = kernel_signature(&verdict, Some("sysrq triggered crash"), None, &frames);
        let expected =
            "kernel|kernel-panic|sysrq triggered crash|sysrq_handle_crash|__handle_sysrq";
        assert_eq!(signature.as_deref(), Some(expected));
        let unknown = Verdict::new(Cause::Unknown, "");
        assert_eq!(kernel_signature(&unknown, None, None, &frames), None);
    }

    #[test]
    fn arm64_and_old_kernels_are_read() {
        let log = [
            "Unable to handle kernel NULL pointer dereference at virtual address 0000000000000000",
            "pc : frob+0x10/0x20 [crasher]",
            "lr : other+0x10/0x20",
            "Call trace:",
            " frob+0x10/0x20 [crasher]",
            " [<ffff000008080000>] el0_svc+0x8/0xc",
        ];
        let frames = kernel_frames(log, None, Some(log[0]));
        assert_eq!(frames.functions, ["frob", "el0_svc"]);
        assert_eq!(frames.hardware, None);
        let booted = ["DMI: SMBIOS 2.8 present.", "DMI: QEMU PC, BIOS 1.16 04/01/2014"];
        let frames = kernel_frames(booted, None, None);
        assert_eq!(frames.hardware.as_deref(), Some("QEMU PC, BIOS 1.16 04/01/2014"));
    }

    #[test]
    fn numbers_are_left_out_of_reasons() {
        for (text, expected) in [
            ("Oops: 0002 [#1] PREEMPT SMP NOPTI", "Oops: #"),
            (
                "watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [a:1]",
                "watchdog: BUG: soft lockup - CPU## stuck for #!",
            ),
            (
                "general protection fault, address 0xdead000000000100",
                "general protection fault, address #",
            ),
            ("x86 é", "x86 é"),
        ] {
            assert_eq!(reason(text), expected);
        }
    }

    fn frame_of(names: &[&str], offset: u32) -> Frame {
        let function =
            |name: &&str| Function { name: (*name).to_owned(), file: None, line: Some(offset) };
        Frame {
            address: format!("{offset:#x}"),
            module: Some("/opt/svc/bin/svc".to_owned()),
            offset: Some(format!("{offset:#x}")),
            build_id: Some(format!("{offset:x}")),
            functions: names.iter().map(function).collect(),
        }
    }

    fn of_session(frames: Vec<Frame>) -> String {
        let mut crash =
            Crash::made("crash:panic", &[("location", "/home/a/svc/src/main.rs:14:20")], 1, 0);
        crash.backtrace = frames;
        let mut verdict = Verdict::new(Cause::Signal(Some(11)), "");
        verdict.crash = Some(crash);
        session_signature(&verdict, "/opt/svc/bin/svc").unwrap()
    }

    #[test]
    fn two_builds_of_a_program_have_one_signature() {
        // The second build has other addresses, and inlines one function into another.
        let one = of_session(vec![
            frame_of(&["std::panicking::begin"], 1),
            frame_of(&["svc::load"], 2),
            frame_of(&["svc::run"], 3),
            frame_of(&["svc::main"], 4),
            frame_of(&["std::rt::lang_start::<()>"], 5),
            frame_of(&["main"], 6),
        ]);
        let other = of_session(vec![
            frame_of(&["core::panicking::panic", "svc::load.llvm.1234", "svc::run"], 70),
            frame_of(&["svc::main"], 80),
        ]);
        assert_eq!(one, "svc|SIGSEGV|svc::load|svc::run|svc::main");
        assert_eq!(other, one);
    }

    #[test]
    fn what_has_no_name_is_no_name() {
        assert_eq!(of_session(vec![frame_of(&[], 1)]), "svc|SIGSEGV|? in svc");
        assert_eq!(of_session(Vec::new()), "svc|SIGSEGV|main.rs");
        let deep = vec![frame_of(&["svc::deep"], 3); 50];
        assert_eq!(of_session(deep), "svc|SIGSEGV|svc::deep");
        let alive = Verdict::new(Cause::Alive, "");
        assert_eq!(session_signature(&alive, "svc"), None);
    }
}
