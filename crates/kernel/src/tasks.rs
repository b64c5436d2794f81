//! Reads the tasks that existed, and the task names that ftrace saved.

use crate::btf::MemberKind;
use crate::{Error, Kernel, Object};
use lastwords_bytes::Error as BytesError;
use lastwords_trace::tracer::Process;
use std::collections::HashSet;

/// Most tasks that are returned.
const TASKS_MAX: usize = 1 << 20;
/// Upper limit of task numbers (`PID_MAX_LIMIT`).
const PIDS_MAX: u64 = 1 << 22;
/// Value of an empty slot in `saved_cmdlines` (`NO_CMDLINE_MAP`).
const EMPTY: u64 = 0xffff_ffff;
/// Number of pid slots; the lower bits of a pid choose its slot (`PID_MAX_DEFAULT`).
const PID_SLOTS: u64 = 0x8000;

/// The name of a task whose name is not known.
pub const NAMELESS: &str = "<...>";

/// A task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Number of the task.
    pub pid: u32,
    /// Number of the task's thread group.
    pub tgid: u32,
    /// Name of the task, at most 15 bytes; [`NAMELESS`] if it is not known.
    pub comm: String,
    /// Address of its `struct task_struct`.
    pub place: u64,
}

/// `PF_KTHREAD` (`include/linux/sched.h`).
pub(crate) const KERNEL_THREAD: u64 = 0x0020_0000;

/// A list of rows, and the errors that made it incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing<T> {
    /// The rows that were found.
    pub rows: Vec<T>,
    /// Reasons why rows are missing; empty if none is known to be missing.
    pub missing: Vec<Error>,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), missing: Vec::new() }
    }
}

impl Kernel {
    /// Returns all tasks and threads; `init_task` (the idle task of the first CPU) comes first.
    #[must_use]
    pub fn tasks(&self) -> Listing<Task> {
        let mut found = Listing::default();
        if let Err(error) = self.walk_tasks(&mut found) {
            found.missing.push(error);
        }
        found
    }

    fn walk_tasks(&self, found: &mut Listing<Task>) -> Result<(), Error> {
        let init = self.variable("init_task", "task_struct")?;
        self.add(init, found);
        let (leaders, hole) = self.entries(init.at("tasks")?.place(), "task_struct", "tasks")?;
        found.missing.extend(hole);
        for leader in leaders {
            if let Err(error) = self.walk_threads(leader, found) {
                found.missing.push(error);
            }
            if found.rows.len() >= TASKS_MAX {
                break;
            }
        }
        Ok(())
    }

    fn walk_threads(&self, leader: Object<'_>, found: &mut Listing<Task>) -> Result<(), Error> {
        let before = found.rows.len();
        let head = leader.pointer("signal").and_then(|signal| signal.at("thread_head"));
        let threads =
            head.and_then(|head| self.entries(head.place(), "task_struct", "thread_node"));
        let (threads, hole) = threads.unwrap_or_else(|error| (Vec::new(), Some(error)));
        threads.iter().for_each(|thread| self.add(*thread, found));
        if found.rows.len() == before
            && !threads.iter().any(|thread| thread.place() == leader.place())
        {
            self.add(leader, found);
        }
        hole.map_or(Ok(()), Err)
    }

    /// Adds a task, or the reason why it or its name is not known.
    fn add(&self, object: Object<'_>, found: &mut Listing<Task>) {
        let wrong = |what| Error::from(BytesError::value("task_struct", object.place(), 0, what));
        let numbers = || match (object.fit("pid")?, object.fit("tgid")?) {
            // The idle task is the first. Zero is of a page that reads as zero.
            (0, _) | (_, 0) if !found.rows.is_empty() => Err(wrong("a task with a number")),
            numbers => Ok(numbers),
        };
        let (pid, tgid) = match numbers() {
            Ok(numbers) => numbers,
            Err(error) => return found.missing.push(error),
        };
        // A task may have an empty name.
        let comm = object.text("comm").and_then(|comm| match object.at("comm")?.place() {
            at if comm.is_empty() && self.is_zero_page(at) => Err(wrong("the name of a task")),
            _ => Ok(comm),
        });
        let comm = comm.unwrap_or_else(|error| {
            found.missing.push(error);
            NAMELESS.to_owned()
        });
        found.rows.push(Task { pid, tgid, comm, place: object.place() });
    }

    /// Returns the parent, the user and the start of a task.
    ///
    /// # Errors
    /// The image lacks the task's memory.
    pub fn lineage(&self, task: &Task) -> Result<Process, Error> {
        let object = self.object("task_struct", task.place)?;
        let parent =
            object.pointer_or_null("real_parent")?.map_or(Ok(0), |parent| parent.fit("tgid"))?;
        // Linux 5.5 renamed the member.
        let started =
            if object.has("start_boottime") { "start_boottime" } else { "real_start_time" };
        Ok(Process {
            parent,
            uid: object.pointer("cred")?.fit("uid.val")?,
            is_kernel_thread: object.u64("flags")? & KERNEL_THREAD != 0,
            started: object.u64(started)?,
        })
    }

    /// Returns the task names that ftrace saved, in the order of `saved_cmdlines`: pid and name.
    #[must_use]
    pub fn saved_cmdlines(&self) -> Listing<(u32, String)> {
        let mut found = Listing::default();
        if let Err(error) = self.walk_cmdlines(&mut found) {
            found.missing.push(error);
        }
        found
    }

    fn walk_cmdlines(&self, found: &mut Listing<(u32, String)>) -> Result<(), Error> {
        let table = match self.pointer("savedcmd")? {
            // The kernel sets it at boot. Zero is of a page that reads as zero.
            0 => return Err(BytesError::value("savedcmd", 0, 0, "the address of the names").into()),
            place => self.object("saved_cmdlines_buffer", place)?,
        };
        // From Linux 6.9 on, the names are an array at the end of the structure.
        let names = match table.member("saved_cmdlines")?.kind {
            MemberKind::Pointer => table.address("saved_cmdlines")?,
            _ => table.at("saved_cmdlines")?.place(),
        };
        let name_len = self.types.member("task_struct", "comm")?.size;
        let pids = table.address("map_cmdline_to_pid")?;
        let count = table.u64("cmdline_num")?.min(PIDS_MAX);
        if count == 0 || pids == 0 {
            return Err(
                BytesError::value("saved_cmdlines", table.place(), 0, "a table of names").into()
            );
        }
        self.budget().steps("saved_cmdlines", count)?;
        let slots = table.at("map_pid_to_cmdline")?.place();
        let number = |place: u64, index: u64| {
            self.memory
                .number(place.wrapping_add(index.wrapping_mul(4)), 4)
                .map_err(Error::hole("saved_cmdlines"))
        };
        // One of a kind: a page has hundreds.
        let mut told = HashSet::new();
        let mut wrong = |at: u64, what| {
            let error = Error::from(BytesError::value("saved_cmdlines", at, 0, what));
            told.insert(what).then_some(error)
        };
        for index in 0..count {
            let pid = number(pids, index)?;
            if pid == EMPTY {
                continue;
            }
            // The idle tasks' names are not saved. Zero is of a page that reads as zero.
            if pid == 0 {
                found.missing.extend(wrong(
                    pids.wrapping_add(index.wrapping_mul(4)),
                    "a task with a number",
                ));
                continue;
            }
            // A later task may have taken the pid slot or the place of the name.
            let slot = pid & (PID_SLOTS - 1);
            let owner = number(slots, slot)?;
            if owner != index {
                let at = slots.wrapping_add(slot.wrapping_mul(4));
                if owner == 0 && self.is_zero_page(at) {
                    found.missing.extend(wrong(at, "the place of a name"));
                }
                continue;
            }
            let place = names.wrapping_add(index.wrapping_mul(name_len));
            let name = self.memory.text(place, usize::try_from(name_len).unwrap_or(16));
            match name.map_err(Error::hole("saved_cmdlines"))? {
                name if name.is_empty() => found.missing.extend(wrong(place, "a name")),
                name => found.rows.push((u32::try_from(pid).unwrap_or_default(), name)),
            }
        }
        Ok(())
    }

    /// Returns true if the page of 4 KiB that contains an address reads as zero: a zero in it may be
    /// the value, or the page is missing.
    #[must_use]
    pub fn is_zero_page(&self, address: u64) -> bool {
        let mut page = [0xff; 4096];
        self.memory.read(address & !4095, &mut page).is_ok() && page.iter().all(|byte| *byte == 0)
    }

    /// Returns the thread groups by pid that ftrace saved (option `record-tgid`) in `saved_tgids`;
    /// empty if there are none.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn saved_tgids(&self) -> Result<Vec<(u32, u32)>, Error> {
        let Some(place) = self.kallsyms().find("tgid_map") else { return Ok(Vec::new()) };
        let table = self.memory.pointer(place).map_err(Error::hole("tgid_map"))?;
        if table == 0 {
            return Ok(Vec::new());
        }
        let word = self.memory.word_size().into();
        let last = self.number("tgid_map_max", word).unwrap_or(PID_SLOTS).min(PIDS_MAX);
        self.budget().steps("tgid_map", last)?;
        let mut rows = Vec::new();
        let mut part = [0u8; 4096];
        // Read page by page: the table is large and nearly empty.
        let (mut at, end) = (table, table.wrapping_add(last.saturating_add(1).saturating_mul(4)));
        while at < end {
            let len = 4096u64.saturating_sub(at & 4095).min(end.wrapping_sub(at));
            let piece =
                part.get_mut(..usize::try_from(len).unwrap_or_default()).unwrap_or_default();
            self.memory.read(at, piece).map_err(Error::hole("tgid_map"))?;
            let first = at.wrapping_sub(table) >> 2;
            let reader = lastwords_bytes::Reader::new("tgid_map", piece, self.memory.byte_order());
            let groups = (0..piece.len() / 4)
                .map(|index| reader.u32_at(index.saturating_mul(4)).unwrap_or_default());
            let pids = (first..).filter_map(|pid| u32::try_from(pid).ok());
            rows.extend(pids.zip(groups).filter(|(_, group)| *group != 0));
            at = at.wrapping_add(len);
        }
        Ok(rows)
    }
}
