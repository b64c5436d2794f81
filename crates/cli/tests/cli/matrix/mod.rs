//! The matrix of sources and formats: each pair is written and equals the truth, as a reader that
//! shares no code with ours finds it, or is refused before anything is written. The table is
//! `docs/MATRIX.md`. To write it anew:
//!
//!     LASTWORDS_GOLDEN=write cargo test -p lastwords-cli --test cli matrix

mod babeltrace;
mod dumps;
mod event;
mod json;
mod kernel;
pub(crate) mod made;
mod made_dat;
mod otlp;
pub(crate) mod perfetto;
mod sources;
mod span_slices;
mod spans;
mod table;
pub(crate) mod tables;
mod typed;

use crate::lttng::files;
use crate::support::{Place, Ran};
use event::{Event, compare};
use sources::{Part, Source, Style, Truth, sources};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const FORMATS: [&str; 7] = ["ctf", "ctf2", "json", "text", "trace-dat", "perfetto", "otlp"];

/// Readers, as the table names them.
const BABELTRACE: &str = "babeltrace2";
const TRACE_CMD: &str = "trace-cmd";
const KERNEL: &str = "the kernel";
const TRACE_PROCESSOR: &str = "trace_processor";
const JSON: &str = "serde_json";
const PROTOBUF: &str = "protobuf";
const LINES: &str = "lines";
const OPENTELEMETRY: &str = "opentelemetry-proto";

/// A pair of source and format.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Cell {
    /// It is written, and this reader found the truth in it.
    Equal(String),
    /// It is not written, and this is what stderr says.
    Refused(String),
}

/// Verbs and formats.
fn columns() -> Vec<(&'static str, &'static str)> {
    let both =
        ["recover", "convert"].into_iter().flat_map(|verb| FORMATS.map(|format| (verb, format)));
    both.chain([("report", "text")]).collect()
}

/// Runs a verb on a source and judges what it wrote.
fn cell(place: &Place, source: &Source, verb: &str, format: &str) -> Result<Cell, String> {
    let out = format!("{verb}-{format}");
    let inputs = source.inputs.iter().map(String::as_str);
    let mut args: Vec<&str> = [verb, "--strict"].into_iter().chain(inputs).collect();
    if verb != "report" {
        args.extend(["--to", format, "-o", &out]);
    }
    let ran = place.run(&args);
    if ran.status == 1 {
        let is_written = place.at(&out).exists();
        return match ran.out.is_empty() && !is_written {
            true => Ok(Cell::Refused(why(&ran.err))),
            false => {
                Err(format!("it was refused after something was written: {}{}", ran.out, ran.err))
            }
        };
    }
    let judged =
        account(source, &ran, verb).and_then(|()| judge(place, source, verb, format, &ran, &out));
    if verb != "report" {
        remove(&place.at(&out));
    }
    judged.map(Cell::Equal)
}

/// The error in what was said on stderr, without the notes before it.
fn why(said: &str) -> String {
    let lines: Vec<&str> = said.lines().skip_while(|line| !line.starts_with("error: ")).collect();
    lines.join("\n").trim_start_matches("error: ").to_owned()
}

/// Judges what a verb wrote; the readers.
fn judge(
    place: &Place,
    source: &Source,
    verb: &str,
    format: &str,
    ran: &Ran,
    out: &str,
) -> Result<String, String> {
    let outputs = if verb == "report" {
        let file = place.at("reported");
        std::fs::write(&file, &ran.out).unwrap();
        vec![file]
    } else {
        outputs(&place.at(out), format)
    };
    if format == "json" {
        let heads =
            outputs.iter().map(|file| json::says_losses(&std::fs::read_to_string(file).unwrap()));
        let losses = heads
            .map(|losses| losses.ok_or("JSON without a head"))
            .collect::<Result<Vec<_>, _>>()?;
        if losses.contains(&true) != (source.lost > 0) {
            return Err(format!(
                "{} events are lost, and the heads of JSON say {losses:?}",
                source.lost
            ));
        }
    }
    if format == "otlp" && otlp::says_losses(&outputs)? != (source.lost > 0) {
        return Err(format!("{} events are lost, and the verdicts of OTLP differ", source.lost));
    }
    if let Some(program) =
        std::env::var_os("LASTWORDS_TRACE_PROCESSOR").filter(|_| format == "perfetto")
    {
        outputs
            .iter()
            .try_for_each(|file| kernel::processor::accepts(Path::new(&program), file))?;
    }
    match &source.truth {
        Truth::Packets(parts)
            if verb == "recover" || format.starts_with("ctf") && parts.len() > 1 =>
        {
            each(place, source, parts, format, &outputs, &place.at(out))
        }
        Truth::Packets(parts) => {
            let events = parts.iter().flat_map(|part| part.events.clone()).collect();
            let style = if parts.len() > 1 { Style::Fields } else { parts[0].style.clone() };
            one(place, source, &Part { name: "", events, style }, format, &outputs)
                .map(str::to_owned)
        }
        Truth::Kernel(kernel) => kernel::judge(kernel, verb, format, &outputs).map(str::to_owned),
        Truth::Both(_, kernel) if format == "trace-dat" && verb == "convert" => {
            let is_named = ran.err.contains("error: session some is not in it");
            let reader = kernel::judge(kernel, verb, format, &outputs)?;
            is_named
                .then(|| format!("{reader}, without the session"))
                .ok_or("the session is left out silently".into())
        }
        Truth::Both(part, kernel) => {
            let (of_part, of_kernel) = match (format, outputs.as_slice()) {
                ("text" | "json", [merged]) => parted(place, part, merged)?,
                ("perfetto" | "otlp", [merged]) => (vec![merged.clone()], vec![merged.clone()]),
                (_, outputs) => {
                    outputs.iter().cloned().partition(|output| is_of(part, output, &place.at(out)))
                }
            };
            let reader = one(place, source, part, format, &of_part)?;
            let mut readers = vec![reader, kernel::judge(kernel, verb, format, &of_kernel)?];
            readers.dedup();
            Ok(readers.join(" and "))
        }
    }
}

/// The exit status and the words say whether something was lost.
fn account(source: &Source, ran: &Ran, verb: &str) -> Result<(), String> {
    let said = format!("{}{}", if verb == "report" { "" } else { &ran.out }, ran.err);
    let is_one = match &source.truth {
        Truth::Packets(parts) => parts.len() == 1,
        Truth::Kernel(_) => true,
        Truth::Both(..) => false,
    };
    let words = match (source.lost, verb) {
        (0, _) => "lost",
        (_, "report") => "with losses",
        (lost, _) if is_one => &format!("{lost} events lost"),
        _ => "events lost",
    };
    // One line of the account tells of a trace, and the instance `extra` of the kernel's trace lost
    // nothing.
    let is_none = |line: &str| line.contains("nothing lost") || line.contains("nothing else lost");
    let is_none_lost = said.lines().any(|line| is_none(line) && !line.contains("extra"));
    // A trace that was named and is left out is a loss, whose message is judged with what was
    // written.
    let is_left_out = ran.err.contains(" is not in it: ");
    let status = if source.lost == 0 && !is_left_out { 0 } else { 3 };
    let is_right = said.contains(words) && is_none_lost == (source.lost == 0);
    match ran.status == status && is_right {
        true => Ok(()),
        false => Err(format!(
            "{} events are lost, the exit status is {} and not {status}: {said}",
            source.lost, ran.status
        )),
    }
}

/// The files or folders that were written: `recover` makes a folder of them.
fn outputs(out: &Path, format: &str) -> Vec<PathBuf> {
    let mut found = files(out);
    if format.starts_with("ctf") {
        found.iter_mut().for_each(|file| assert!(file.pop()));
        found.dedup();
    }
    found
}

fn remove(path: &Path) {
    if path.is_dir() {
        std::fs::remove_dir_all(path).unwrap();
    } else {
        std::fs::remove_file(path).unwrap();
    }
}

/// Judges what `recover` wrote, a file or folder for each trace; the readers.
fn each(
    place: &Place,
    source: &Source,
    parts: &[Part],
    format: &str,
    outputs: &[PathBuf],
    out: &Path,
) -> Result<String, String> {
    let mut readers = Vec::new();
    for part in parts {
        let is_of_it = |output: &&PathBuf| parts.len() == 1 || is_of(part, output, out);
        let of_it: Vec<PathBuf> = outputs.iter().filter(is_of_it).cloned().collect();
        readers.push(one(place, source, part, format, &of_it)?);
    }
    match outputs.len() == parts.len() {
        true => {
            readers.dedup();
            Ok(readers.join(" and "))
        }
        false => Err(format!("{outputs:?} were written")),
    }
}

/// Returns true if the output is that of this trace: `recover` and `convert` name it after the
/// trace.
fn is_of(part: &Part, output: &Path, out: &Path) -> bool {
    let below = output.strip_prefix(out).ok().and_then(|below| below.components().next());
    below.is_some_and(|name| Path::new(&name).file_stem().is_some_and(|stem| stem == part.name))
}

/// The lines of a session in a merged file, and those of a kernel's trace, each as a file. A head
/// of JSON is in both.
fn parted(
    place: &Place,
    part: &Part,
    merged: &Path,
) -> Result<(Vec<PathBuf>, Vec<PathBuf>), String> {
    let text = std::fs::read_to_string(merged).map_err(|e| e.to_string())?;
    let own = json::traces(&text)
        .and_then(|traces| traces.iter().position(|t| t.text("name") == Some(part.name)));
    let (mut session, mut kernel) = (String::new(), String::new());
    for (at, line) in text.lines().enumerate() {
        let is_head = own.is_some() && at == 0;
        // In text, the kernel's trace is behind the session.
        let is_of_session =
            own.map_or(at < part.events.len(), |own| json::trace_of(line) == Some(own));
        for (to, has_it) in [(&mut session, is_of_session), (&mut kernel, !is_of_session)] {
            if has_it || is_head {
                *to += &format!("{line}\n");
            }
        }
    }
    let write = |name: &str, text: String| {
        std::fs::write(place.at(name), text).unwrap();
        vec![place.at(name)]
    };
    Ok((write("of-session", session), write("of-kernel", kernel)))
}

/// Judges the one file or folder that was written of a trace, or of several; the reader.
fn one(
    place: &Place,
    source: &Source,
    part: &Part,
    format: &str,
    outputs: &[PathBuf],
) -> Result<&'static str, String> {
    let [output] = outputs else {
        return Err(format!("{outputs:?} were written of {}", part.name));
    };
    let mut truth = part.events.clone();
    let file = || std::fs::read(output).map_err(|e| e.to_string());
    let text = || String::from_utf8(file()?).map_err(|e| e.to_string());
    match format {
        "ctf" | "ctf2" => {
            compare(truth, &babeltrace::events(output)?, true)?;
            Ok(BABELTRACE)
        }
        "json" => {
            compare(truth, &json::events(&text()?)?, true)?;
            Ok(JSON)
        }
        "otlp" => {
            otlp::compare_packets(truth, outputs)?;
            Ok(OPENTELEMETRY)
        }
        "perfetto" => {
            for event in &mut truth {
                event.fields = event.contexts.drain(..).chain(event.fields.drain(..)).collect();
            }
            compare(truth, &perfetto::events(&file()?), false)?;
            Ok(PROTOBUF)
        }
        "trace-dat" => {
            made_dat::compare(truth, output)?;
            Ok(TRACE_CMD)
        }
        "text" => match &part.style {
            Style::Fields => {
                lines(&truth, &text()?)?;
                Ok(LINES)
            }
            Style::Babeltrace(Some(folder)) => {
                same_text(&babeltrace::text(folder)?, &text()?)?;
                Ok(BABELTRACE)
            }
            Style::Babeltrace(None) => {
                let inputs = source.inputs.iter().map(String::as_str);
                place.ok(&["recover", "-o", "recovered"]
                    .into_iter()
                    .chain(inputs)
                    .collect::<Vec<_>>());
                let expected = babeltrace::text(&outputs_of_one(&place.at("recovered")))?;
                remove(&place.at("recovered"));
                same_text(&expected, &text()?)?;
                Ok(BABELTRACE)
            }
        },
        other => Err(format!("{other} was written")),
    }
}

fn outputs_of_one(out: &Path) -> PathBuf {
    let found = outputs(out, "ctf");
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

fn same_text(expected: &str, found: &str) -> Result<(), String> {
    let differ = expected.lines().zip(found.lines()).find(|(expected, found)| expected != found);
    match differ {
        Some((expected, found)) => Err(format!("expected\n  {expected}\nfound\n  {found}")),
        None if expected.lines().count() != found.lines().count() => {
            Err(format!("{} lines, not {}", found.lines().count(), expected.lines().count()))
        }
        None => Ok(()),
    }
}

/// Compares lines of the style `fields` with those that the truth makes: time, CPU, name, fields
/// and contexts.
fn lines(truth: &[Event], text: &str) -> Result<(), String> {
    let mut sorted: Vec<&Event> = truth.iter().collect();
    sorted.sort_by_key(|event| event.ns);
    let expected: Vec<String> = sorted.iter().map(|event| line(event)).collect();
    let found: Vec<String> = text.lines().map(parts).collect::<Result<_, _>>()?;
    same_text(&expected.join("\n"), &found.join("\n"))
}

fn line(event: &Event) -> String {
    let second = event.ns / 1_000_000_000 % 86_400;
    let (hours, minutes, seconds) = (second / 3600, second / 60 % 60, second % 60);
    let cpu = event.cpu.map_or("---".to_owned(), |cpu| format!("{cpu:03}"));
    let mut line = format!(
        "{hours:02}:{minutes:02}:{seconds:02}.{:09} [{cpu}] {}:",
        event.ns % 1_000_000_000,
        event.name
    );
    for (name, value) in event.fields.iter().chain(&event.contexts) {
        write!(line, " {name}={}", value.plain()).unwrap();
    }
    line
}

/// The same parts of a line as it was found; numbers become decimal.
fn parts(line: &str) -> Result<String, String> {
    let cut = || {
        let (head, rest) = line.split_once('[')?;
        let (cpu, rest) = rest.split_once("] ")?;
        let time = head.split_whitespace().find(|word| word.contains('.'))?;
        let name = rest
            .split_whitespace()
            .position(|word| word.ends_with(':') && word.matches(':').count() == 2)?;
        let event = rest.splitn(name + 1, ' ').last()?;
        let mut words = event.split("0x");
        let mut decimal = words.next()?.to_owned();
        for word in words {
            let end = word.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(word.len());
            write!(decimal, "{}{}", u64::from_str_radix(&word[..end], 16).ok()?, &word[end..])
                .ok()?;
        }
        Some(format!("{time} [{cpu}] {decimal}"))
    };
    cut().ok_or_else(|| format!("the line {line}"))
}

/// Judges all pairs of these sources; what is wrong goes to `wrong`. The rows, by verb and format
/// in the order of [`columns`].
fn rows(
    place: &Place,
    sources: &[Source],
    wrong: &mut String,
) -> Vec<(&'static str, Vec<Option<Cell>>)> {
    let row = |source: &Source| {
        let cell = |(verb, format)| {
            let cell = cell(place, source, verb, format);
            cell.map_err(|why| writeln!(wrong, "== {}, {verb} {format}: {why}", source.name)).ok()
        };
        (source.name, columns().into_iter().map(cell).collect())
    };
    sources.iter().map(row).collect()
}

#[test]
fn matrix_of_sources_and_formats() {
    let mut wrong = String::new();
    let [whole, lossy] = [false, true].map(|is_lossy| {
        let place = Place::new();
        rows(&place, &sources(&place, is_lossy), &mut wrong)
    });
    for ((name, whole), (_, lossy)) in whole.iter().zip(&lossy) {
        for ((column, whole), lossy) in columns().iter().zip(whole).zip(lossy) {
            if whole != lossy {
                writeln!(wrong, "== {name}, {column:?}: {whole:?}, and with losses {lossy:?}")
                    .unwrap();
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    table::compare("made", &whole);
}

/// The dumps are too large for the repository. Without them, the page must have their rows, with
/// cells of the two kinds.
#[test]
fn matrix_of_dumps() {
    let Some(cases) = std::env::var_os("LASTWORDS_CASES") else {
        return table::is_complete("dumps", dumps::COUNT);
    };
    let place = Place::new();
    let sources = dumps::sources(&place, Path::new(&cases));
    assert_eq!(sources.len(), dumps::COUNT);
    let mut wrong = String::new();
    let rows = rows(&place, &sources, &mut wrong);
    assert!(wrong.is_empty(), "{wrong}");
    table::compare("dumps", &rows);
}
