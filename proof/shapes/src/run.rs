//! Runs one shape: starts its program, kills it, and reads back the events that it recorded.

use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use rig::process::{Killed, wait_until};
use rig::scratch;

use super::build::Programs;
use super::form::Form;
use super::judge::{Report, Sum, WRITERS, judge};
use super::shape::{Format, Memory, Shape};
use super::{json, lines, pages, perfetto};

/// Longest wait for a program to stop.
const PATIENCE: Duration = Duration::from_secs(30);
/// A program is asked again after this time how far it is.
const PAUSE: Duration = Duration::from_micros(300);
/// Longest that a program records.
const LONGEST: Duration = Duration::from_millis(250);
/// Bytes of the file under sessions in persistent memory.
const MEMORY: u64 = 24 << 20;

/// The page through which a program reports.
struct Page(std::fs::File);

impl Page {
    fn create(path: &Path) -> Result<Self> {
        let mut options = std::fs::OpenOptions::new();
        let file =
            options.read(true).write(true).create_new(true).open(path).context("the page")?;
        file.set_len(4096)?;
        Ok(Self(file))
    }

    fn get(&self, index: u64) -> Result<u64> {
        let mut bytes = [0; 8];
        self.0.read_exact_at(&mut bytes, index * 8)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn set(&self, index: u64, value: u64) -> Result<()> {
        Ok(self.0.write_all_at(&value.to_ne_bytes(), index * 8)?)
    }
}

/// Runs a shape in a folder of its own, and judges what each of its formats has.
pub(super) fn run(programs: &Programs, shape: &Shape, folder: &Path, cpus: &[u32]) -> Result<Sum> {
    scratch::private(folder)?;
    let dir = folder.join("sessions");
    scratch::private(&dir)?;
    let page = Page::create(&folder.join("page"))?;
    let mut report = Report::default();
    for (thread, cpu) in report.cpus.iter_mut().enumerate() {
        let at = (shape.seed >> (8 * thread)) as usize % cpus.len();
        *cpu = shape.pinned.then_some(cpus[at]);
        page.set(12 + thread as u64, cpu.map_or(u64::MAX, u64::from))?;
    }
    if matches!(shape.memory, Memory::Dax | Memory::Physical) {
        // Room for all CPUs of this machine.
        let room = MEMORY
            + 4 * u64::from(shape.sub_buffers) * shape.sub_buffer_size * (cpus.len() as u64 + 2);
        let byte = if shape.fill { 0xaa } else { 0 };
        std::fs::write(folder.join("memory"), vec![byte; room.next_multiple_of(1 << 21) as usize])?;
    }
    let log = std::fs::File::create(folder.join("log"))?;
    let mut command = programs.command(shape);
    command.arg(shape.index.to_string()).arg(&dir).arg(folder.join("page"));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(folder);
    let mut child = Killed(command.spawn().context("cannot start the program")?);
    let said = || {
        let said = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        format!("the program said {said:?}")
    };
    wait_until(&mut child.0, PAUSE, || Ok(page.get(0)? != 0)).with_context(said)?;
    let session = scratch::only_folder(&dir)?;
    if shape.fill && !matches!(shape.memory, Memory::Dax | Memory::Physical) {
        fill(&session).context("cannot fill the rings with 0xAA")?;
    }
    page.set(1, 1)?;
    let begun = Instant::now();
    let has_recorded = || {
        let returned = page.get(2)?;
        Ok(returned >= shape.target || (returned > 0 && begun.elapsed() > LONGEST))
    };
    wait_until(&mut child.0, PAUSE, has_recorded).with_context(said)?;
    std::thread::sleep(Duration::from_micros(shape.delay));
    report.pid = child.0.id();
    let input = stop(shape, &mut child, &session, folder)?;
    for writer in 0..WRITERS {
        report.returned[writer] = page.get(2 + writer as u64)?;
        report.begun[writer] = page.get(6 + writer as u64)?;
    }
    report.tids = [page.get(10)?, page.get(11)?];
    if shape.discard {
        (report.lost, report.skipped) = lost(programs, folder, &input)?;
    }
    let mut sum = Sum::default();
    for format in &shape.formats {
        let one = judge_one(programs, shape, folder, &input, *format, &mut report);
        let one = one.with_context(|| format!("format {}", format.name()))?;
        sum.events += one.events;
        sum.values += one.values;
        sum.refused += one.refused;
    }
    Ok(sum)
}

fn judge_one(
    programs: &Programs,
    shape: &Shape,
    folder: &Path,
    input: &[String],
    format: Format,
    report: &mut Report,
) -> Result<Sum> {
    let events = read(programs, shape, folder, input, format)?;
    match judge(shape, format, &events, report) {
        Err(_) if !shape.discard && report.lost + report.skipped == 0 => {
            (report.lost, report.skipped) = lost(programs, folder, input)?;
            judge(shape, format, &events, report)
        }
        judged => judged,
    }
}

/// Ends or stops the program, and says where its session is to be read.
fn stop(shape: &Shape, child: &mut Killed, session: &Path, folder: &Path) -> Result<Vec<String>> {
    let text = |path: &Path| path.display().to_string();
    let pid = child.0.id().to_string();
    if !matches!(shape.memory, Memory::Memfd | Memory::Heap) {
        child.kill()?;
        return Ok(vec![text(session)]);
    }
    rig::run_quietly(Command::new("kill").args(["-STOP", &pid]))?;
    let begun = Instant::now();
    while !std::fs::read_to_string(format!("/proc/{pid}/stat"))?.contains(") T") {
        ensure!(begun.elapsed() < PATIENCE, "the program does not stop");
        std::thread::sleep(Duration::from_micros(200));
    }
    if !shape.core {
        return Ok(vec!["--pid".into(), pid]);
    }
    rig::run_quietly(Command::new("gcore").arg("-o").arg(folder.join("core")).arg(&pid))?;
    child.kill()?;
    Ok(vec![text(&folder.join(format!("core.{pid}")))])
}

/// Fills the data of all rings with 0xAA, before the first event: docs/ABI.md, section 7.
fn fill(session: &Path) -> Result<()> {
    let places = session.join("regions");
    let mut regions: Vec<(PathBuf, u64)> = Vec::new();
    if let Ok(text) = std::fs::read_to_string(&places) {
        for line in text.lines() {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            let [_, offset, _, path] = words[..] else { bail!("{}: {line}", places.display()) };
            regions.push((path.into(), offset.parse()?));
        }
    } else {
        for entry in std::fs::read_dir(session)?.flatten() {
            regions.push((entry.path(), 0));
        }
    }
    let mut filled = 0;
    for (path, offset) in regions {
        let mut options = std::fs::OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .open(&path)
            .with_context(|| path.display().to_string())?;
        let mut head = [0u8; 256];
        // Kind 3 is a stream: section 1.
        if file.read_exact_at(&mut head, offset).is_err()
            || !head.starts_with(b"\x89LASTWORDS")
            || head[20] != 3
        {
            continue;
        }
        let word = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().unwrap_or_default());
        let half = |at: usize| u32::from_ne_bytes(head[at..at + 4].try_into().unwrap_or_default());
        let len = word(128 + 16) * u64::from(half(128 + 24));
        for data in [word(128 + 48), word(128 + 56)] {
            let is_there = data != 0 && offset + data + len <= file.metadata()?.len();
            if is_there {
                file.write_all_at(&vec![0xaa; len as usize], offset + data)?;
                filled += 1;
            }
        }
    }
    ensure!(filled > 0, "no ring found in {}", session.display());
    Ok(())
}

/// Events that the recorder counts as lost, and sub-buffers that it passed over.
fn lost(programs: &Programs, folder: &Path, input: &[String]) -> Result<(u64, u64)> {
    let mut command = Command::new(programs.lastwords());
    let text =
        rig::run_quietly(command.arg("inspect").args(input).arg("--json").current_dir(folder))?;
    let json: serde_json::Value = serde_json::from_str(&text)?;
    let streams =
        json["sessions"][0]["streams"].as_array().context("no streams in what inspect says")?;
    let sum = |names: &[&str]| {
        let of = |stream: &serde_json::Value| {
            names.iter().filter_map(|name| stream["lost"][name].as_u64()).sum::<u64>()
        };
        streams.iter().map(of).sum()
    };
    Ok((sum(&["full", "too_big", "no_entry", "busy", "lock"]), sum(&["skipped"])))
}

/// Whether a text may be empty: Babeltrace 2.0 shows the text of an older event in its place, 2.1
/// does not.
fn has_text(shape: &Shape) -> bool {
    let fields = shape.classes.iter().flat_map(|class| &class.fields).chain(&shape.user_contexts);
    fields.map(|field| &field.form).any(Form::is_text)
}

/// Recovers the session to a format and reads that.
fn read(
    programs: &Programs,
    shape: &Shape,
    folder: &Path,
    input: &[String],
    format: Format,
) -> Result<Vec<super::found::Event>> {
    let output = |command: &mut Command| -> Result<Vec<u8>> {
        let output = command.current_dir(folder).output().with_context(|| rig::shown(command))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {}\n{said}", rig::shown(command), output.status);
        Ok(output.stdout)
    };
    if format == Format::Babeltrace {
        let mut command = Command::new(programs.lastwords());
        command.arg("report").args(["--style", "babeltrace", "--no-pager"]).args(input);
        return lines::babeltrace(shape, format, &output(&mut command)?);
    }
    if format == Format::Pages {
        let [session] = input else { bail!("no folder of a session") };
        // Pages of 4 KiB hold the events of most shapes; those of 128 KiB hold all.
        let largest = shape
            .classes
            .iter()
            .map(|class| class.most() + 12 * class.fields.len() as u64)
            .max()
            .unwrap_or(0);
        let size = if largest < 4000 { 4 } else { 128 };
        return pages::read(shape, &programs.lastwords(), folder, session, size);
    }
    let to = folder.join(format!("out-{}", format.name()));
    let mut command = Command::new(programs.lastwords());
    command.arg("recover").args(input).arg("-o").arg(&to).args(["--to", format.name()]);
    output(&mut command)?;
    let path = scratch::only(&to)?;
    match format {
        Format::Json => json::read(shape, &std::fs::read(path)?),
        Format::Text => lines::text(shape, &std::fs::read(path)?),
        Format::Perfetto => perfetto::read(shape, &std::fs::read(path)?),
        Format::Ctf | Format::Ctf2 | Format::Babeltrace | Format::Pages => {
            let babeltrace = match format {
                Format::Ctf if !has_text(shape) => "babeltrace2".into(),
                _ => rig::bin().join("babeltrace2.1"),
            };
            let found = output(Command::new(babeltrace).args(["--color", "never"]).arg(&path))?;
            lines::babeltrace(shape, format, &found)
        }
    }
}
