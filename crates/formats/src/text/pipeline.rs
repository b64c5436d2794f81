//! Batches become text on several threads, and come back in order.

use super::babeltrace;
use super::batch::Batch;
use super::columns;
use super::page::Page;
use std::collections::VecDeque;
use std::io::{Error, Write};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Makes the lines of a batch, in one of the styles.
pub(super) enum Formatter<'p, 't> {
    Babeltrace(babeltrace::Lines<'p, 't>),
    Columns(columns::Lines<'p, 't>),
}

impl Formatter<'_, '_> {
    /// Appends a line for each event.
    pub(super) fn put(&mut self, batch: &mut Batch, page: &mut Page) {
        match self {
            Self::Babeltrace(lines) => lines.put(batch, page),
            Self::Columns(lines) => lines.put(batch, page),
        }
    }
}

/// A batch and its text.
#[derive(Default)]
struct Sheet {
    batch: Batch,
    text: Page,
}

/// A sheet without text, and whom it goes back to.
struct Job {
    sheet: Sheet,
    reply: SyncSender<Sheet>,
}

/// Where batches wait for a thread.
pub(super) struct Queue(Mutex<Receiver<Job>>);

impl Queue {
    /// Makes text as long as there is somebody who sends batches.
    pub(super) fn work(&self, mut formatter: Formatter<'_, '_>) {
        loop {
            let job = self.0.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Job { mut sheet, reply }) = job else { return };
            formatter.put(&mut sheet.batch, &mut sheet.text);
            // Whoever waits has ended where writing failed.
            let _ = reply.send(sheet);
        }
    }
}

/// Takes the line of an event and its time, nanoseconds; returns false where it wants no more.
pub(super) type PutLine<'o> = dyn FnMut(i64, &[u8]) -> bool + 'o;

/// Where the text goes.
pub(super) enum Out<'o> {
    /// All of it, one piece behind the other.
    File(&'o mut dyn Write),
    /// Each line with its time: batches have one event then.
    Lines(&'o mut PutLine<'o>),
}

/// The way of batches to where the text goes.
pub(super) struct Pipeline<'p, 't, 'o> {
    out: Out<'o>,
    way: Way<'p, 't>,
    /// Sheets to be used again.
    spares: Vec<Sheet>,
    /// Bytes written.
    bytes: u64,
}

enum Way<'p, 't> {
    /// At once.
    Here(Box<Formatter<'p, 't>>),
    /// Through threads; those that are under way, the oldest first, and how many there may be.
    Threads { jobs: SyncSender<Job>, waiting: VecDeque<Receiver<Sheet>>, most: usize },
}

impl<'p, 't, 'o> Pipeline<'p, 't, 'o> {
    /// Without threads.
    pub(super) fn here(formatter: Formatter<'p, 't>, out: Out<'o>) -> Self {
        Self { out, way: Way::Here(Box::new(formatter)), spares: Vec::new(), bytes: 0 }
    }

    /// With so many threads, each of which is to [`Queue::work`].
    pub(super) fn threads(threads: usize, out: Out<'o>) -> (Self, Queue) {
        let most = threads.saturating_mul(2);
        let (jobs, queue) = sync_channel(most);
        let way = Way::Threads { jobs, waiting: VecDeque::new(), most };
        (Self { out, way, spares: Vec::new(), bytes: 0 }, Queue(Mutex::new(queue)))
    }

    /// Bytes written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether batches go to other threads.
    pub(super) fn has_threads(&self) -> bool {
        matches!(self.way, Way::Threads { .. })
    }

    /// Takes the events of a batch, which is empty then.
    ///
    /// # Errors
    /// The text cannot be written.
    pub(super) fn put(&mut self, batch: &mut Batch) -> Result<(), Error> {
        let mut sheet = self.spares.pop().unwrap_or_default();
        std::mem::swap(batch, &mut sheet.batch);
        match &mut self.way {
            Way::Here(formatter) => {
                formatter.put(&mut sheet.batch, &mut sheet.text);
                self.written(sheet)
            }
            Way::Threads { jobs, waiting, most } => {
                let (reply, done) = sync_channel(1);
                jobs.send(Job { sheet, reply }).map_err(Error::other)?;
                waiting.push_back(done);
                let full = waiting.len() >= *most;
                self.take(full)
            }
        }
    }

    /// Writes all that is under way.
    ///
    /// # Errors
    /// The text cannot be written.
    pub(super) fn drain(&mut self) -> Result<(), Error> {
        while let Way::Threads { waiting, .. } = &self.way
            && !waiting.is_empty()
        {
            self.take(true)?;
        }
        Ok(())
    }

    /// Writes what is ready; the oldest in any case, where `wait` says so.
    fn take(&mut self, mut wait: bool) -> Result<(), Error> {
        while let Way::Threads { waiting, .. } = &mut self.way
            && let Some(oldest) = waiting.front()
        {
            let sheet = match oldest.try_recv() {
                Ok(sheet) => sheet,
                Err(TryRecvError::Empty) if !wait => break,
                _ => oldest.recv().map_err(Error::other)?,
            };
            waiting.pop_front();
            wait = false;
            self.written(sheet)?;
        }
        Ok(())
    }

    /// Writes the text of a sheet, which is a spare one then.
    fn written(&mut self, mut sheet: Sheet) -> Result<(), Error> {
        match &mut self.out {
            Out::File(out) => out.write_all(sheet.text.text())?,
            Out::Lines(put) => {
                let time = sheet.batch.records.first().map(|record| record.nanoseconds);
                if time.is_some_and(|time| !put(time, sheet.text.text())) {
                    return Err(std::io::ErrorKind::BrokenPipe.into());
                }
            }
        }
        self.bytes = self.bytes.saturating_add(sheet.text.text().len() as u64);
        sheet.text.clear();
        sheet.batch.restart(None);
        self.spares.push(sheet);
        Ok(())
    }
}
