//! Follows an instance of the running kernel through tracefs: gives the events of its rings in
//! steps, each event once.
//!
//! Reading `trace_pipe_raw` removes events from the ring, as reading `trace_pipe` does: no file of
//! tracefs, and no mapping of a ring, gives events in steps without removing them. No file is kept
//! open between two steps, so that the instance can be removed. Each step reads the rings' clock
//! before the rings. An event that is later than that reading is kept for the next step, because
//! another CPU may have earlier ones. Losses are those of the kernel's counters.

use anyhow::Context;
use lastwords_ftrace::dat;
use lastwords_ftrace::{Array, CpuRing, HeaderPage, Ring, Stats, SubBufferInfo, Tracing, page};
use lastwords_open::{
    Bundle, Opened, Options, Shortage, instance_name, options_on, tracefs_folder, tracer_real_time,
};
use lastwords_trace::evidence::{Cause, Evidence, Gap, Verdict};
use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most bytes of sub-buffers that a step reads of a CPU. The rest stays in the ring until the next
/// step.
const MOST: usize = 16 << 20;
/// `O_NONBLOCK`.
const NONBLOCK: i32 = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();

/// An instance that is followed.
pub(crate) struct TailedInstance {
    folder: PathBuf,
    name: String,
    /// The description of the events, without arrays.
    tracing: Tracing,
    array: Settings,
    cpus: Vec<Cpu>,
    /// Bytes of a sub-buffer.
    size: usize,
    /// Events behind this time are kept for the next step; none in the last one.
    bound: Option<u64>,
    /// The folder is gone.
    is_over: bool,
}

/// The settings of an instance.
struct Settings {
    tracer: String,
    clock: String,
    options: Vec<String>,
}

/// The ring of a CPU.
struct Cpu {
    number: u32,
    /// Sub-buffers that were read and not yet delivered, the oldest first.
    pages: VecDeque<Page>,
    /// Counters at the last step that told of them, and now.
    told: Stats,
    now: Stats,
    /// A sub-buffer was read before. What is missing before the first one may have been
    /// overwritten before anybody followed.
    has_begun: bool,
}

/// A sub-buffer as it was read.
#[derive(Clone)]
struct Page {
    bytes: Arc<[u8]>,
    committed: usize,
    /// Bytes of events that were delivered.
    consumed: usize,
    missed: Option<Option<u64>>,
}

impl TailedInstance {
    /// Begins to follow the instance in a folder of tracefs.
    ///
    /// # Errors
    /// Its files cannot be read.
    pub(crate) fn begin(folder: &Path) -> anyhow::Result<Self> {
        let name = instance_name(folder);
        let mut instance = Self {
            folder: folder.to_owned(),
            name,
            tracing: Bundle::of_running_tracer(None)?.tracing(),
            array: Settings { tracer: String::new(), clock: String::new(), options: Vec::new() },
            cpus: Vec::new(),
            size: 0,
            bound: None,
            is_over: false,
        };
        instance.array = instance.settings()?;
        let kib = instance
            .read("buffer_subbuf_size_kb")
            .ok()
            .and_then(|text| text.trim().parse::<usize>().ok());
        instance.size = kib.map_or_else(rustix::param::page_size, |kib| kib.saturating_mul(1024));
        let per_cpu = folder.join("per_cpu");
        let entries = std::fs::read_dir(&per_cpu).with_context(|| per_cpu.display().to_string())?;
        let number = |entry: std::fs::DirEntry| {
            entry.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()
        };
        let mut numbers: Vec<u32> = entries.filter_map(|entry| number(entry.ok()?)).collect();
        numbers.sort_unstable();
        for number in numbers {
            let stats = dat::counters(&instance.read(&format!("per_cpu/cpu{number}/stats"))?);
            let (pages, has_begun) = (VecDeque::new(), false);
            instance.cpus.push(Cpu { number, pages, told: stats, now: stats, has_begun });
        }
        Ok(instance)
    }

    /// Returns the name of the instance; `top` of the top folder.
    #[must_use]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Returns true if the instance is gone.
    #[must_use]
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Returns its folder in tracefs.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns true if the instance's clock can be related to those of others.
    pub(crate) fn has_real_time(&self) -> bool {
        tracer_real_time(&self.array.clock).is_some()
    }

    /// Returns the error of an instance that cannot be followed together with others.
    pub(crate) fn unrelated(&self) -> anyhow::Error {
        let (name, clock, file) = (&self.name, &self.array.clock, self.folder.join("trace_clock"));
        anyhow::anyhow!(
            "instance {name}: nothing relates its clock {clock} to those of the others: follow it alone, or choose another clock with `echo mono > {}`, which empties its ring",
            file.display()
        )
    }

    fn read(&self, file: &str) -> anyhow::Result<String> {
        let path = self.folder.join(file);
        let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn settings(&self) -> anyhow::Result<Settings> {
        let clocks = self.read("trace_clock")?;
        let chosen = |word: &&str| word.starts_with('[');
        let clock = clocks
            .split_whitespace()
            .find(chosen)
            .unwrap_or_default()
            .trim_matches(['[', ']'])
            .to_owned();
        let options = options_on(&self.read("trace_options")?);
        Ok(Settings { tracer: self.read("current_tracer")?.trim().to_owned(), clock, options })
    }

    /// Reads what is in the rings; returns true if there is anything to deliver. In the last step,
    /// all of it is.
    ///
    /// # Errors
    /// A ring cannot be read.
    pub(crate) fn look(&mut self, is_last: bool) -> anyhow::Result<bool> {
        if !self.folder.join("per_cpu").is_dir() {
            self.is_over = true;
        }
        self.bound = if is_last || self.is_over { None } else { self.now() };
        for at in 0..self.cpus.len() {
            if self.is_over {
                break;
            }
            self.fill(at)?;
        }
        let (layout, order, bound) =
            (self.tracing.header_page, self.tracing.byte_order, self.bound);
        let is_due = |page: &Page| page.cut(bound, layout, order) > page.consumed;
        let has_losses = |cpu: &Cpu| cpu.losses() != Stats::default();
        Ok(self.cpus.iter().any(|cpu| has_losses(cpu) || cpu.pages.front().is_some_and(is_due)))
    }

    /// Returns the reading of the rings' clock; none if the kernel does not tell it.
    fn now(&self) -> Option<u64> {
        let cpu = self.cpus.first()?.number;
        let text = self.read(&format!("per_cpu/cpu{cpu}/stats")).ok()?;
        let word = text.lines().find_map(|line| line.strip_prefix("now ts:"))?.trim().to_owned();
        match word.split_once('.') {
            Some((seconds, micros)) => {
                let micros = seconds
                    .parse::<u64>()
                    .ok()?
                    .checked_mul(1_000_000)?
                    .checked_add(micros.parse().ok()?)?;
                micros.checked_mul(1000)
            }
            None => word.parse().ok(),
        }
    }

    /// Reads the sub-buffers of a CPU.
    fn fill(&mut self, at: usize) -> anyhow::Result<()> {
        let (layout, order) = (self.tracing.header_page, self.tracing.byte_order);
        let Some(number) = self.cpus.get(at).map(|cpu| cpu.number) else { return Ok(()) };
        let path = self.folder.join(format!("per_cpu/cpu{number}/trace_pipe_raw"));
        let opened = OpenOptions::new().read(true).custom_flags(NONBLOCK).open(&path);
        let mut raw: File = match (opened, self.folder.is_dir()) {
            (Ok(raw), _) => raw,
            (Err(_), false) => return Ok(()),
            (Err(error), true) => return Err(error).with_context(|| path.display().to_string()),
        };
        let Some(cpu) = self.cpus.get_mut(at) else { return Ok(()) };
        let size = self.size;
        let mut bytes = vec![0; size];
        let mut shortage = Shortage::default();
        for _ in 0..MOST.checked_div(size).unwrap_or(1).max(1) {
            bytes.fill(0);
            match raw.read(&mut bytes) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::OutOfMemory && shortage.wait() => continue,
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            }
            shortage.end();
            let head =
                page::header(&bytes, layout, order).with_context(|| path.display().to_string())?;
            let (committed, bytes) = (head.committed, Arc::from(bytes.as_slice()));
            let missed = head.missed.filter(|_| cpu.has_begun);
            cpu.has_begun = true;
            cpu.pages.push_back(Page { bytes, committed, consumed: 0, missed });
        }
        // What is overwritten until now and was not read will not be read.
        if let Ok(text) = self.read(&format!("per_cpu/cpu{number}/stats"))
            && let Some(cpu) = self.cpus.get_mut(at)
        {
            cpu.now = dat::counters(&text);
        }
        Ok(())
    }

    /// Adds what is to be delivered in this step.
    ///
    /// # Errors
    /// The description of new events cannot be read.
    pub(crate) fn step(
        &mut self,
        options: &Options<'_>,
        opened: &mut Opened,
    ) -> anyhow::Result<()> {
        let ring = self.ring();
        if ring.has_other_events(&self.tracing) && !self.is_over {
            self.tracing = Bundle::of_running_tracer(None)?.tracing();
        }
        if let Ok(comms) = std::fs::read_to_string(tracefs_folder()?.join("saved_cmdlines")) {
            self.tracing.comms = dat::comms(&comms);
        }
        if let Ok(settings) = self.settings() {
            self.array = settings;
        }
        let Settings { tracer, clock, options: set } = &self.array;
        let array = Array {
            tracer: Some(tracer.clone()),
            clock: dat::clock(clock),
            options: Some(set.clone()),
            tracer_options: set.clone(),
            is_on: Some(true),
            ..Array::unknown(&self.name, Arc::new(ring))
        };
        let tracing = Tracing {
            arrays: vec![array],
            real_time: tracer_real_time(clock),
            ..self.tracing.clone()
        };
        let notes = vec![format!(
            "{}: events leave its ring as they are printed, as with trace_pipe",
            self.name
        )];
        opened.add_instance(&self.folder, tracing, notes, options);
        Ok(())
    }

    /// Returns what is to be delivered as a ring.
    fn ring(&self) -> StepRing {
        let (layout, order, bound) =
            (self.tracing.header_page, self.tracing.byte_order, self.bound);
        let mut ring = StepRing { cpus: Vec::new(), pages: Vec::new(), overwritten: Vec::new() };
        for cpu in &self.cpus {
            let mut pages = Vec::new();
            for page in &cpu.pages {
                let committed = page.cut(bound, layout, order);
                if committed > page.consumed {
                    pages.push(Page { committed, ..page.clone() });
                }
                if committed < page.committed {
                    break;
                }
            }
            let count = |page: &Page| page.events(layout, order).count() as u64;
            let entries = pages.iter().map(count).fold(0, u64::saturating_add);
            // Nothing is lost where a ring overwrites what nobody reads, but this one is read.
            let Stats { overrun, .. } = cpu.losses();
            ring.overwritten.push(overrun);
            let stats = Stats { entries, overrun: 0, ..cpu.losses() };
            let sub_buffer_size = u32::try_from(self.size).unwrap_or(u32::MAX);
            ring.cpus.push(CpuRing {
                cpu: cpu.number,
                sub_buffers: pages.len(),
                sub_buffer_size,
                stats,
            });
            ring.pages.push(pages);
        }
        ring
    }

    /// Drops what was delivered.
    pub(crate) fn done(&mut self) {
        let (layout, order, bound) =
            (self.tracing.header_page, self.tracing.byte_order, self.bound);
        for cpu in &mut self.cpus {
            cpu.told = cpu.now;
            while let Some(page) = cpu.pages.front_mut() {
                let cut = page.cut(bound, layout, order);
                if cut < page.committed {
                    if cut > page.consumed {
                        (page.consumed, page.missed) = (cut, None);
                    }
                    break;
                }
                cpu.pages.pop_front();
            }
        }
    }
}

impl Cpu {
    /// Returns the losses since the step that told of them last, by the kernel's counters.
    fn losses(&self) -> Stats {
        Stats {
            overrun: self.now.overrun.saturating_sub(self.told.overrun),
            commit_overrun: self.now.commit_overrun.saturating_sub(self.told.commit_overrun),
            dropped: self.now.dropped.saturating_sub(self.told.dropped),
            ..Stats::default()
        }
    }
}

impl Page {
    /// Returns the bytes of events up to a time.
    fn cut(
        &self,
        bound: Option<u64>,
        layout: HeaderPage,
        order: lastwords_bytes::ByteOrder,
    ) -> usize {
        let Some(bound) = bound else { return self.committed };
        let mut end = 0;
        for event in page::Events::new(&self.bytes, layout, order, self.committed) {
            match event {
                Ok(event) if event.time > bound => return end,
                Ok(event) => {
                    end = event
                        .payload
                        .end
                        .next_multiple_of(4)
                        .saturating_sub(layout.data_offset as usize)
                }
                Err(_) => break,
            }
        }
        self.committed
    }

    /// Returns the events that were not yet delivered.
    fn events(
        &self,
        layout: HeaderPage,
        order: lastwords_bytes::ByteOrder,
    ) -> impl Iterator<Item = page::Event> {
        let begin = (layout.data_offset as usize).saturating_add(self.consumed);
        let all = page::Events::new(&self.bytes, layout, order, self.committed).flatten();
        all.filter(move |event| event.payload.start >= begin)
    }
}

/// The sub-buffers of a step.
struct StepRing {
    cpus: Vec<CpuRing>,
    pages: Vec<Vec<Page>>,
    /// Events of each CPU that were overwritten before they could be read.
    overwritten: Vec<u64>,
}

impl StepRing {
    /// Returns true if an event is of a kind that the description lacks.
    fn has_other_events(&self, tracing: &Tracing) -> bool {
        let is_other = |page: &Page| {
            let mut events = page.events(tracing.header_page, tracing.byte_order);
            events.any(|event| {
                let id = page::short(&page.bytes, event.payload.start, tracing.byte_order);
                !tracing.formats.contains_key(&id)
            })
        };
        self.pages.iter().flatten().any(is_other)
    }
}

impl Ring for StepRing {
    fn cpus(&self) -> &[CpuRing] {
        &self.cpus
    }

    fn sub_buffer(&self, cpu: usize, index: usize, bytes: &mut Vec<u8>) -> SubBufferInfo {
        bytes.clear();
        let Some(page) = self.pages.get(cpu).and_then(|pages| pages.get(index)) else {
            return SubBufferInfo::MISSING;
        };
        bytes.extend_from_slice(&page.bytes);
        let Page { committed, consumed, missed, .. } = *page;
        SubBufferInfo { committed, consumed, missed, verdict: Verdict::Committed }
    }

    fn evidence(&self) -> Evidence {
        let gap = |(stream, events): (usize, &u64)| {
            let place = "before they could be read".to_owned();
            let gap = Gap::new(Some(stream), Cause::Unread, place).with_events(Some(*events));
            Some(gap).filter(|_| *events > 0)
        };
        let rows = self.overwritten.iter().enumerate();
        Evidence { gaps: rows.filter_map(gap).collect(), ..Evidence::default() }
    }
}
