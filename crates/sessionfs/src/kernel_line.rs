//! Lines of `trace` and `trace_pipe` as the kernel writes them where the text of a session differs:
//! threads have the names that `saved_cmdlines` has, and what was written into `trace_marker` has
//! the writer's name and process, and `tracing_mark_write: TEXT`. The event itself is of the
//! process that records for the mount.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use lastwords_control::{Life, ProcessSummary};
use rustix::io::Errno;

use crate::buffer::Buffer;

/// The place in a line where the event's name begins.
const EVENT: &str = ": ftrace:print: buf=";

/// The kernel's word for a thread whose name is not known.
const UNNAMED: &str = "<...>-";

/// The names of the threads that live, by their ids. A thread that took its name has it in the
/// trace, too.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// The session's processes that live and have their ids here: the id of one that has ended may
    /// be another's now.
    processes: Vec<u32>,
    /// The threads that were looked up.
    found: RefCell<HashMap<i64, Option<String>>>,
}

impl Names {
    pub(crate) fn read(buffer: &Buffer) -> Result<Self, Errno> {
        let processes = buffer.details()?.processes.into_iter();
        let lives = |process: &ProcessSummary| process.is_here && process.life == Life::Alive;
        Ok(Self {
            processes: processes.filter(lives).map(|process| process.pid).collect(),
            found: RefCell::default(),
        })
    }

    /// Returns the names of all threads.
    pub(crate) fn all(&self) -> BTreeMap<i64, String> {
        let tasks = |pid: &u32| {
            std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten()
        };
        let ids = self
            .processes
            .iter()
            .flat_map(tasks)
            .filter_map(|task| task.file_name().to_str()?.parse().ok());
        ids.filter_map(|id| Some((id, self.name(id)?))).collect()
    }

    fn name(&self, id: i64) -> Option<String> {
        let comm = |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/task/{id}/comm")).ok();
        let look = || self.processes.iter().find_map(comm).map(|comm| comm.trim_end().to_owned());
        self.found.borrow_mut().entry(id).or_insert_with(look).clone()
    }

    /// Returns a line in the kernel's form. The line may end with a line break.
    pub(crate) fn line<'l>(&self, line: &'l [u8]) -> Cow<'l, [u8]> {
        let Ok(text) = std::str::from_utf8(line) else { return Cow::Borrowed(line) };
        let made = mark(text).or_else(|| self.named(text));
        made.map_or(Cow::Borrowed(line), |made| Cow::Owned(made.into_bytes()))
    }

    /// Returns the line of a thread whose name is known here alone.
    fn named(&self, line: &str) -> Option<String> {
        let rest = line.trim_start_matches(' ').strip_prefix(UNNAMED)?;
        let (id, _) = rest.split_once(' ')?;
        let name = self.name(id.parse().ok()?)?;
        Some(format!("{name:>16}-{rest}"))
    }
}

/// Returns a line of `trace_marker` in the kernel's form; none if it is of another event.
fn mark(line: &str) -> Option<String> {
    let (head, fields) = line.split_once(EVENT)?;
    let (text, rest) = value(fields)?;
    let (pid, rest) = rest.strip_prefix(" pid=")?.split_once(" comm=")?;
    let (comm, end) = value(rest)?;
    // `TASK-PID [CPU] LEVEL TIME`: a task's name may have brackets, the rest has none but those of
    // the CPU.
    let from_cpu = head.get(head.rfind(" [")?..)?;
    let comm = if comm.is_empty() { "<...>" } else { &comm };
    Some(format!("{comm:>16}-{pid:<7}{from_cpu}: tracing_mark_write: {text}{end}"))
}

/// Returns the text of a value, and what follows it. Text that is one plain word has no quotation
/// marks.
fn value(field: &str) -> Option<(String, &str)> {
    match field.strip_prefix('"') {
        Some(text) => quoted(text),
        None => {
            let end = field.find([' ', '\n']).unwrap_or(field.len());
            field.split_at_checked(end).map(|(word, rest)| (word.to_owned(), rest))
        }
    }
}

/// Returns a text up to the quotation mark that ends it, and what follows. Escapes of control
/// characters stay, so that a text is one line.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut plain = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((plain, text.get(at + 1..)?)),
            '\\' => match chars.next()?.1 {
                escaped @ ('"' | '\\') => plain.push(escaped),
                other => plain.extend(['\\', other]),
            },
            char => plain.push(char),
        }
    }
    None
}

/// Writes lines in the kernel's form into another writer.
pub(crate) struct Lines<'a> {
    out: &'a mut dyn Write,
    names: &'a Names,
    /// The begin of a line whose end has not come.
    begun: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(out: &'a mut dyn Write, names: &'a Names) -> Self {
        Self { out, names, begun: Vec::new() }
    }
}

impl Write for Lines<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(bytes.len());
        };
        let rest = self.begun.split_off(end + 1);
        let whole = std::mem::replace(&mut self.begun, rest);
        let mut lines = Vec::with_capacity(whole.len());
        whole
            .split_inclusive(|byte| *byte == b'\n')
            .for_each(|one| lines.extend_from_slice(&self.names.line(one)));
        self.out.write_all(&lines)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.write_all(&std::mem::take(&mut self.begun))?;
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_shown_as_by_the_kernel() {
        let of = |buf: &str| {
            format!(
                "          lastwords-77 [001] INFO 1.000000: ftrace:print: buf=\"{buf}\" pid=42 comm=\"a [0] b\"\n"
            )
        };
        let found = [(9, Some("worker".to_owned())), (8, None)].into();
        let names = Names { processes: Vec::new(), found: RefCell::new(found) };
        let line =
            |line: &str| String::from_utf8(names.line(line.as_bytes()).into_owned()).unwrap();
        let mark = line(&of(r#"hello \"world\" \\ \n pid=1"#));
        assert_eq!(
            mark,
            "         a [0] b-42      [001] INFO 1.000000: tracing_mark_write: hello \"world\" \\ \\n pid=1\n"
        );
        let word = line("x-1 [000] INFO 1.0: ftrace:print: buf=again pid=7 comm=sh\n");
        assert_eq!(word, "              sh-7       [000] INFO 1.0: tracing_mark_write: again\n");
        let same = [
            "x-1 [000] INFO 1.0: shop:sale: text=\": ftrace:prin\"\n",
            "           <...>-8  [000] INFO 1.0: shop:sale:\n",
        ];
        same.iter().for_each(|text| assert_eq!(line(text), *text));
        let named = line("           <...>-9       [000] INFO 1.0: shop:sale: text=x\n");
        assert_eq!(named, "          worker-9       [000] INFO 1.0: shop:sale: text=x\n");
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out, &names);
        let text = format!("# head\n{}last", of("x"));
        text.as_bytes().chunks(7).for_each(|part| lines.write_all(part).unwrap());
        lines.flush().unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(
            text.starts_with("# head\n ") && text.ends_with(": tracing_mark_write: x\nlast"),
            "{text}"
        );
    }
}
