//! Lines of what was written into `trace_marker`, in the kernel's form: the writer's name and process, and
//! `tracing_mark_write: TEXT`. The event itself is of the process that records for the mount.

use std::io::{self, Write};

/// The place in a line where the event's name begins.
const EVENT: &str = ": ftrace:print: buf=";

/// Returns a line in the kernel's form; none if it is of another event. The line may end with a line break.
pub(crate) fn line(line: &str) -> Option<String> {
    let (head, fields) = line.split_once(EVENT)?;
    let (text, rest) = value(fields)?;
    let (pid, rest) = rest.strip_prefix(" pid=")?.split_once(" comm=")?;
    let (comm, end) = value(rest)?;
    // `TASK-PID [CPU] LEVEL TIME`: a task's name may have brackets, the rest has none but those of the CPU.
    let from_cpu = head.get(head.rfind(" [")?..)?;
    let comm = if comm.is_empty() { "<...>" } else { &comm };
    Some(format!("{comm:>16}-{pid:<7}{from_cpu}: tracing_mark_write: {text}{end}"))
}

/// Returns the text of a value, and what follows it. Text that is one plain word has no quotation marks.
fn value(field: &str) -> Option<(String, &str)> {
    match field.strip_prefix('"') {
        Some(text) => quoted(text),
        None => {
            let end = field.find([' ', '\n']).unwrap_or(field.len());
            field.split_at_checked(end).map(|(word, rest)| (word.to_owned(), rest))
        }
    }
}

/// Returns a text up to the quotation mark that ends it, and what follows. Escapes of control characters stay, so that a text is one line.
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
pub(crate) struct Marks<'a> {
    out: &'a mut dyn Write,
    /// The begin of a line whose end has not come.
    begun: Vec<u8>,
}

impl<'a> Marks<'a> {
    pub(crate) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, begun: Vec::new() }
    }
}

impl Write for Marks<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') else { return Ok(bytes.len()) };
        let rest = self.begun.split_off(end + 1);
        let whole = std::mem::replace(&mut self.begun, rest);
        let mut lines = Vec::with_capacity(whole.len());
        for one in whole.split_inclusive(|byte| *byte == b'\n') {
            match std::str::from_utf8(one).ok().and_then(line) {
                Some(mark) => lines.extend_from_slice(mark.as_bytes()),
                None => lines.extend_from_slice(one),
            }
        }
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
            format!("          lastwords-77 [001] INFO 1.000000: ftrace:print: buf=\"{buf}\" pid=42 comm=\"a [0] b\"\n")
        };
        let mark = line(&of(r#"hello \"world\" \\ \n pid=1"#)).unwrap();
        assert_eq!(
            mark,
            "         a [0] b-42      [001] INFO 1.000000: tracing_mark_write: hello \"world\" \\ \\n pid=1\n"
        );
        let word = line("x-1 [000] INFO 1.0: ftrace:print: buf=again pid=7 comm=sh\n").unwrap();
        assert_eq!(word, "              sh-7       [000] INFO 1.0: tracing_mark_write: again\n");
        assert_eq!(line("x-1 [000] INFO 1.0: shop:sale: text=\": ftrace:prin\"\n"), None);
        let mut out = Vec::new();
        let mut marks = Marks::new(&mut out);
        let text = format!("# head\n{}last", of("x"));
        text.as_bytes().chunks(7).for_each(|part| marks.write_all(part).unwrap());
        marks.flush().unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("# head\n ") && text.ends_with(": tracing_mark_write: x\nlast"), "{text}");
    }
}
