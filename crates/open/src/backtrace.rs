//! Writes panics and signals with their backtraces for people.

use crate::crash::Function;
use crate::crash::{Crash, Frame};
use crate::escape;
use crate::why::{Cause, OtherCrash, Verdict};
use std::fmt::Write as _;
use std::io::{self, Write};

/// The lines of a backtrace that are written.
const SHOWN: usize = 30;
/// The frames of a recursion that are looked for.
const MOST_REPEATED: usize = 8;
/// The addresses in the command line for `addr2line`.
const ADDRESSES: usize = 20;

/// Beginnings of the names of functions that no reader of a backtrace looks for: the standard
/// library, the runtime of tokio, and the recorder.
const RUNTIME: [&str; 12] = [
    "std::",
    "core::",
    "alloc::",
    "lastwords::",
    "lastwords_",
    "tokio::",
    "__rust",
    "rust_begin_unwind",
    "_start",
    "__libc_start",
    "start_thread",
    "__clone",
];
/// Beginnings of the places of sources, as [`place`] returns them, whose functions are part of the
/// runtime: many have names without a path.
const RUNTIME_SOURCES: [&str; 2] = ["library/", "tokio-1."];
/// Beginnings of the file names of modules whose functions are part of the runtime.
const RUNTIME_MODULES: [&str; 4] = ["libc.so", "libpthread.so", "ld-linux", "libgcc_s.so"];

/// Writes a verdict on a session for people: the crashes that were recorded, with their backtraces,
/// then the cause of death in one line. `time` formats nanoseconds since the epoch.
///
/// Frames of the runtime between others share a line, except the innermost frame, and frames that
/// repeat themselves are written once, with their number. Frames without names are followed by the
/// command that names them.
///
/// # Errors
/// `out` cannot be written.
pub fn write_verdict(
    verdict: &Verdict,
    time: &dyn Fn(i64) -> String,
    out: &mut dyn Write,
) -> io::Result<()> {
    let at = |crash: &Crash| format!(", at {}", time(crash.nanoseconds()));
    let put_backtrace = |crash: &Crash, out: &mut dyn Write| {
        if crash.backtrace.is_empty() {
            return Ok(());
        }
        writeln!(out, "  backtrace of {}, innermost first:", crash.event)?;
        crash.backtrace_lines().iter().try_for_each(|line| writeln!(out, "  {line}"))
    };
    for OtherCrash { crash, fate, .. } in &verdict.others {
        writeln!(out, "  {}{}; {fate}", crash.summary(), at(crash))?;
        put_backtrace(crash, out)?;
    }
    verdict.crash.iter().try_for_each(|crash| put_backtrace(crash, out))?;
    if !verdict.is_death() {
        return Ok(());
    }
    let what = if verdict.cause == Cause::Unknown { "cause unknown" } else { "cause of death" };
    let at = verdict.crash.as_ref().map_or_else(String::new, at);
    writeln!(out, "  {what}: {}{at}", verdict.sentence)
}

impl Crash {
    /// Returns the backtrace as lines for people, and the commands that name what has no name.
    #[must_use]
    pub fn backtrace_lines(&self) -> Vec<String> {
        lines(&self.backtrace, self.event.ends_with(":signal"))
    }
}

/// Returns the lines of frames. The innermost one has its own line if the program was in it
/// (`keeps_first`): that of a panic is the hook's.
fn lines(frames: &[Frame], keeps_first: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let mut depth = 0;
    while let Some(frame) = frames.get(depth) {
        let folded = (depth..frames.len()).take_while(|depth| is_runtime(frames, *depth)).count();
        if (depth > 0 || !keeps_first) && folded > 1 {
            lines.push(format!("      ... {folded} frames of the runtime"));
            depth = depth.saturating_add(folded);
        } else if let Some((period, times)) = repeated(frames, depth) {
            for (at, frame) in frames.iter().enumerate().skip(depth).take(period) {
                lines.extend(of_frame(at, frame));
            }
            let what = if period == 1 { "frame".to_owned() } else { format!("{period} frames") };
            lines.push(format!("      ... {what} repeated {times} times"));
            depth = depth.saturating_add(period.saturating_mul(times));
        } else {
            lines.extend(of_frame(depth, frame));
            depth = depth.saturating_add(1);
        }
    }
    let more = lines.len().saturating_sub(SHOWN);
    lines.truncate(SHOWN);
    if more > 0 {
        lines.push(format!("  ... and {more} more; `inspect --json` lists all"));
    }
    lines.extend(commands(frames).into_iter().map(|command| format!("  {command}")));
    lines
}

/// Returns how many frames from a depth on repeat themselves, and how many times they are there: a
/// recursion. Fewer than three times are no repetition.
fn repeated(frames: &[Frame], depth: usize) -> Option<(usize, usize)> {
    let rest = frames.get(depth..)?;
    (1..=MOST_REPEATED).find_map(|period| {
        let first = rest.get(..period)?;
        let times = rest
            .chunks_exact(period)
            .take_while(|next| first.iter().zip(*next).all(|(one, other)| is_equal(one, other)));
        let times = times.count();
        (times > 2).then_some((period, times))
    })
}

/// Returns true if a reader sees no difference between two frames but their depth.
fn is_equal(one: &Frame, other: &Frame) -> bool {
    match one.functions.is_empty() {
        true => one.address == other.address && other.functions.is_empty(),
        false => one.module == other.module && one.functions == other.functions,
    }
}

/// Returns the lines of a frame: one for each function that it is in.
fn of_frame(depth: usize, frame: &Frame) -> Vec<String> {
    if frame.functions.is_empty() {
        let place = match (&frame.module, &frame.offset) {
            (Some(module), Some(offset)) => format!(" {}+{offset}", escape(module)),
            _ => String::new(),
        };
        return vec![format!("{depth:>4}  {}{place}", frame.address)];
    }
    let line = |(position, function): (usize, &Function)| {
        let number = if position == 0 { format!("{depth:>4}") } else { "    ".to_owned() };
        let mut line = format!("{number}  {}", escape(&function.name));
        if let Some(file) = &function.file {
            let _ = write!(line, " at {}", escape(place(file)));
            let _ = function.line.map(|number| write!(line, ":{number}"));
        }
        line
    };
    frame.functions.iter().enumerate().map(line).collect()
}

/// Returns the place of a source in its crate or in the compiler's library: the path without the
/// folders of cargo's registry, or of the compiler's build.
fn place(file: &str) -> &str {
    let registry = file.split_once("/registry/src/").map(|(_, rest)| rest);
    let inside = registry.or_else(|| file.strip_prefix("/rustc/"));
    inside.and_then(|rest| rest.split_once('/')).map_or(file, |(_, place)| place)
}

/// Returns true if a source is of the standard library or of tokio.
fn is_of_runtime(file: &str) -> bool {
    let place = place(file);
    place != file && RUNTIME_SOURCES.iter().any(|beginning| place.starts_with(beginning))
}

/// Returns true if no reader of a backtrace looks for the frame at a depth.
fn is_runtime(frames: &[Frame], depth: usize) -> bool {
    let Some(frame) = frames.get(depth) else { return false };
    is_of_library(frame)
        || is_shim(frames, depth)
        || (!frame.functions.is_empty() && frame.functions.iter().all(is_runtime_function))
}

/// Returns true if the frame is in a module of the runtime.
fn is_of_library(frame: &Frame) -> bool {
    let module = frame.module_name().unwrap_or_default();
    RUNTIME_MODULES.iter().any(|beginning| module.starts_with(beginning))
}

/// Returns true if the function is part of the runtime.
fn is_runtime_function(function: &Function) -> bool {
    let name = function.name.trim_start_matches(['<', '&', '(', '*']).trim_start_matches("dyn ");
    RUNTIME.iter().any(|beginning| name.starts_with(beginning))
        || function.file.as_deref().is_some_and(is_of_runtime)
}

impl Frame {
    /// Returns the name of the file of the module.
    pub(crate) fn module_name(&self) -> Option<&str> {
        self.module.as_deref().and_then(|path| path.rsplit('/').next())
    }
}

impl Crash {
    /// Returns the names of the functions of the program in the call stack, innermost first, without
    /// those of the runtime. Functions that were inlined are among them. None stands for a frame
    /// without a name, with the file name of its module.
    pub(crate) fn own_functions(&self) -> Vec<(Option<&str>, Option<&str>)> {
        let frames = self.backtrace.iter().enumerate();
        let own = frames
            .filter(|(depth, frame)| !is_of_library(frame) && !is_shim(&self.backtrace, *depth));
        let functions = own.flat_map(|(_, frame)| {
            let named = frame.functions.iter().filter(|function| !is_runtime_function(function));
            let nameless = frame.functions.is_empty().then_some((None, frame.module_name()));
            nameless
                .into_iter()
                .chain(named.map(|function| (Some(function.name.as_str()), frame.module_name())))
        });
        functions.collect()
    }
}

/// Returns true if the frame is the function `main` with which the compiler begins a program in
/// Rust.
fn is_shim(frames: &[Frame], depth: usize) -> bool {
    let name = |depth: usize| Some(frames.get(depth)?.functions.last()?.name.as_str());
    let inner = depth.checked_sub(1).and_then(name);
    name(depth) == Some("main")
        && inner.is_some_and(|inner| inner.starts_with("std::rt::lang_start"))
}

/// Returns a command line for each module whose frames have no names.
fn commands(frames: &[Frame]) -> Vec<String> {
    let mut modules: Vec<(&str, Vec<&str>)> = Vec::new();
    let unnamed = frames.iter().enumerate().filter(|(_, frame)| frame.functions.is_empty());
    for (_, frame) in unnamed.filter(|(depth, _)| !is_runtime(frames, *depth)) {
        let (Some(module), Some(offset)) = (&frame.module, &frame.offset) else { continue };
        match modules.iter_mut().find(|(known, _)| known == module) {
            Some((_, offsets)) => offsets.push(offset),
            None => modules.push((module, vec![offset])),
        }
    }
    let command = |(module, mut offsets): (&str, Vec<&str>)| {
        offsets.truncate(ADDRESSES);
        format!("the names: addr2line -Cfipe {} {}", escape(module), offsets.join(" "))
    };
    modules.into_iter().map(command).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(name: &str) -> Frame {
        let function = |name: &str| Function { name: name.to_owned(), file: None, line: None };
        let functions = name.split('|').filter(|name| !name.is_empty()).map(function).collect();
        let (module, offset) = (Some("/bin/svc".to_owned()), Some("0x10".to_owned()));
        Frame { address: "0x5010".to_owned(), module, offset, build_id: None, functions }
    }

    fn written(names: &[&str], keeps_first: bool) -> String {
        let frames: Vec<Frame> = names.iter().map(|name| frame(name)).collect();
        lines(&frames, keeps_first).iter().map(|line| format!("  {line}\n")).collect()
    }

    #[test]
    fn frames_of_the_runtime_share_a_line() {
        let names = [
            "core::ptr::read|svc::load",
            "<&dyn core::ops::Fn<()>>::call",
            "std::a",
            "svc::main",
            "std::rt::lang_start::<()>",
            "main",
        ];
        let text = "     0  core::ptr::read\n        svc::load\n        ... 2 frames of the runtime\n     3  svc::main\n        ... 2 frames of the runtime\n";
        assert_eq!(written(&names, true).replace("          svc", "        svc"), text);
        assert!(written(&["std::a", "std::b", "x"], false).starts_with("        ... 2 frames"));
        assert!(
            written(&["std::a", "std::b", "x"], true).starts_with("     0  std::a\n     1  std::b"),
            "one frame is not folded"
        );
        assert!(
            written(&["app", "main"], true).contains("main"),
            "a program in C has its own main"
        );
    }

    #[test]
    fn sources_are_named_by_their_crates() {
        let tokio = "/root/.cargo/registry/src/index.crates.io-19/tokio-1.54.1/src/park.rs";
        let from = |file: &str| {
            let mut frame = frame("block_on<svc::main>");
            frame.functions[0].file = Some(file.to_owned());
            frame
        };
        let axum = from("/home/a/registry/src/mirror-1/axum-0.8.1/src/serve.rs");
        let own = from("/home/a/tokio-1.0/src/main.rs");
        let frames = [from(tokio), from("/rustc/59807/library/core/src/f.rs"), axum, own];
        assert_eq!(
            lines(&frames, false),
            [
                "      ... 2 frames of the runtime",
                "   2  block_on<svc::main> at axum-0.8.1/src/serve.rs",
                "   3  block_on<svc::main> at /home/a/tokio-1.0/src/main.rs",
            ]
        );
    }

    #[test]
    fn frames_of_a_recursion_are_counted() {
        let text = |names: &[&str]| written(names, true);
        let deep = ["svc::deep"; 30];
        let text_of = text(&[&["svc::leaf"][..], deep.as_slice(), &["svc::main"]].concat());
        let expected = "     0  svc::leaf\n     1  svc::deep\n        ... frame repeated 30 times\n    31  svc::main\n";
        assert_eq!(text_of, expected);
        let mutual = ["svc::even", "svc::odd"].repeat(10);
        let text_of = text(&mutual);
        assert!(text_of.contains("... 2 frames repeated 10 times"), "{text_of}");
        assert_eq!(text_of.matches("svc::odd").count(), 1, "{text_of}");
        // Two equal frames are no recursion, and frames of several lines are several frames.
        assert!(!text(&["svc::a", "svc::a", "svc::b"]).contains("repeated"));
        let mut frames: Vec<Frame> = ["svc::a"; 5].map(frame).to_vec();
        for (line, frame) in (1..).zip(&mut frames) {
            frame.functions[0].line = Some(line);
        }
        assert_eq!(lines(&frames, true).len(), 5);
    }

    #[test]
    fn frames_without_names_have_a_command() {
        let text = written(&["", "svc::main", ""], true);
        assert!(text.contains("0x5010 /bin/svc+0x10"), "{text}");
        assert!(text.ends_with("    the names: addr2line -Cfipe /bin/svc 0x10 0x10\n"), "{text}");
    }
}
