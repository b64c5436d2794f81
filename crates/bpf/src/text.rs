//! Writes programs, maps and their contents as text.

use crate::{Bpf, Content, Map, Positions, Program, Record, State};
use std::fmt::{self, Write as _};
use std::io::{self, Write};

/// Bytes on a line of data.
const LINE: usize = 16;

impl Bpf<'_> {
    /// Writes all programs and maps, with what is in the maps, as text. `plain` escapes names and
    /// values, which are of others.
    ///
    /// # Errors
    /// `out` cannot be written.
    pub fn write(&mut self, plain: &dyn Fn(&str) -> String, out: &mut dyn Write) -> io::Result<()> {
        for program in &self.programs {
            writeln!(out, "{}", plain(&program.to_string()))?;
        }
        for map in self.maps.clone() {
            writeln!(out, "{}", plain(&map.to_string()))?;
            let take = &mut |content| write_content(&content, plain, out);
            if !self.content(&map, take)? {
                writeln!(out, "  maps of this kind are not read")?;
            }
        }
        Ok(())
    }
}

/// One line. The names in it are those of others, and are not escaped.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {}: {}", self.id, self.kind)?;
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        write!(f, ", tag {}", self.tag)?;
        if let Some(function) = &self.attached_to {
            write!(f, ", for {function}")?;
        }
        if !self.links.is_empty() {
            write!(f, ", linked by {}", self.links.join(" and "))?;
        }
        let ids: Vec<String> = self.maps.iter().map(ToString::to_string).collect();
        match ids.as_slice() {
            [] => Ok(()),
            [id] => write!(f, ", map {id}"),
            ids => write!(f, ", maps {}", ids.join(", ")),
        }
    }
}

/// One line. The name in it is that of others, and is not escaped.
impl fmt::Display for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "map {}: {}", self.id, self.kind)?;
        if !self.name.is_empty() {
            write!(f, " {}", self.name)?;
        }
        let Self { key_size, value_size, max_entries, .. } = self;
        match self.kind.as_str() {
            "ringbuf" | "user_ringbuf" => write!(f, ", {max_entries} bytes"),
            _ => write!(
                f,
                ", keys of {key_size} bytes, values of {value_size}, at most {max_entries}"
            ),
        }
    }
}

fn write_content(
    content: &Content,
    plain: &dyn Fn(&str) -> String,
    out: &mut dyn Write,
) -> io::Result<()> {
    match content {
        Content::Positions(Positions { consumer, producer, overwritten_to, .. }) => {
            let known = |at: Option<u64>| at.map_or_else(|| "?".to_owned(), |at| at.to_string());
            let overwritten = overwritten_to.map(|at| format!(", overwritten to {at}"));
            let consumer = known(*consumer);
            let overwritten = overwritten.unwrap_or_default();
            writeln!(out, "  consumed to {consumer}{overwritten}, produced to {producer}")
        }
        Content::Record(record) => write_record(record, out),
        Content::Entry(entry) => {
            let cpu = entry.cpu.map_or_else(String::new, |cpu| format!(" CPU {cpu}"));
            writeln!(
                out,
                "  {}{cpu}: {}",
                plain(&entry.key.to_string()),
                plain(&entry.value.to_string())
            )
        }
        Content::Zeros(first, last) => writeln!(out, "  {first} to {last}: zero"),
    }
}

fn write_record(record: &Record, out: &mut dyn Write) -> io::Result<()> {
    let state = match record.state {
        State::Committed => "",
        State::InFlight => ", in flight",
        State::Discarded => ", discarded",
    };
    writeln!(out, "  {}: {} bytes{state}", record.position, record.len)?;
    for (line, bytes) in record.bytes.chunks(LINE).enumerate() {
        let mut hex = String::new();
        for byte in bytes {
            // A String takes everything.
            let _ = write!(hex, "{byte:02x} ");
        }
        let text: String = bytes.iter().map(|byte| printable(*byte)).collect();
        writeln!(out, "    {:04x}  {hex:48} |{text}|", line.saturating_mul(LINE))?;
    }
    Ok(())
}

fn printable(byte: u8) -> char {
    if matches!(byte, b' '..=b'~') { byte.into() } else { '.' }
}
