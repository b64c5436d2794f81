//! Formats batches of events on several threads, and writes the text in order.

use super::babeltrace;
use super::batch::Batch;
use super::columns;
use crate::events::Out;
use lastwords_trace::text::page::Page;
use std::collections::VecDeque;
use std::io::Error;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Formats the events of a batch in one of the styles.
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
struct FormattedBatch {
    batch: Batch,
    text: Page,
}

/// A batch to format, and the channel that returns it with its text.
struct Job {
    formatted: FormattedBatch,
    reply: SyncSender<FormattedBatch>,
}

/// The batches that wait for a thread.
pub(super) struct Queue(Mutex<Receiver<Job>>);

impl Queue {
    /// Formats batches until the sender of the batches is dropped.
    pub(super) fn work(&self, mut formatter: Formatter<'_, '_>) {
        loop {
            let job = self.0.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let Ok(Job { mut formatted, reply }) = job else { return };
            formatter.put(&mut formatted.batch, &mut formatted.text);
            // The receiver is gone if writing has failed.
            let _ = reply.send(formatted);
        }
    }
}

/// Formats batches and writes their text.
pub(super) struct Pipeline<'p, 't, 'o> {
    out: Out<'o>,
    mode: Mode<'p, 't>,
    /// Buffers to be used again.
    spares: Vec<FormattedBatch>,
    /// Number of bytes written.
    bytes: u64,
}

enum Mode<'p, 't> {
    /// Each batch is formatted on the caller's thread.
    Inline(Box<Formatter<'p, 't>>),
    /// Batches are formatted on other threads. At most `limit` batches wait for their text, the
    /// oldest first.
    Threads { jobs: SyncSender<Job>, waiting: VecDeque<Receiver<FormattedBatch>>, limit: usize },
}

impl<'p, 't, 'o> Pipeline<'p, 't, 'o> {
    /// Returns a pipeline without threads.
    pub(super) fn inline(formatter: Formatter<'p, 't>, out: Out<'o>) -> Self {
        Self { out, mode: Mode::Inline(Box::new(formatter)), spares: Vec::new(), bytes: 0 }
    }

    /// Returns a pipeline for this number of threads. The caller must start the threads; each must
    /// call [`Queue::work`].
    pub(super) fn threads(threads: usize, out: Out<'o>) -> (Self, Queue) {
        let limit = threads.saturating_mul(2);
        let (jobs, queue) = sync_channel(limit);
        let mode = Mode::Threads { jobs, waiting: VecDeque::new(), limit };
        (Self { out, mode, spares: Vec::new(), bytes: 0 }, Queue(Mutex::new(queue)))
    }

    /// Returns the number of bytes written.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes the events of a batch, and leaves the batch without events.
    ///
    /// # Errors
    /// The text cannot be written.
    pub(super) fn put(&mut self, batch: &mut Batch) -> Result<(), Error> {
        let mut formatted = self.spares.pop().unwrap_or_default();
        std::mem::swap(batch, &mut formatted.batch);
        match &mut self.mode {
            Mode::Inline(formatter) => {
                formatter.put(&mut formatted.batch, &mut formatted.text);
                self.write(formatted)
            }
            Mode::Threads { jobs, waiting, limit } => {
                let (reply, done) = sync_channel(1);
                jobs.send(Job { formatted, reply }).map_err(Error::other)?;
                waiting.push_back(done);
                let full = waiting.len() >= *limit;
                self.write_ready(full)
            }
        }
    }

    /// Waits for the text of all batches, and writes it.
    ///
    /// # Errors
    /// The text cannot be written.
    pub(super) fn drain(&mut self) -> Result<(), Error> {
        while let Mode::Threads { waiting, .. } = &self.mode
            && !waiting.is_empty()
        {
            self.write_ready(true)?;
        }
        Ok(())
    }

    /// Writes the text that is ready. If `wait` is true, waits for the text of the oldest batch.
    fn write_ready(&mut self, mut wait: bool) -> Result<(), Error> {
        while let Mode::Threads { waiting, .. } = &mut self.mode
            && let Some(oldest) = waiting.front()
        {
            let formatted = match oldest.try_recv() {
                Ok(formatted) => formatted,
                Err(TryRecvError::Empty) if !wait => break,
                _ => oldest.recv().map_err(Error::other)?,
            };
            waiting.pop_front();
            wait = false;
            self.write(formatted)?;
        }
        Ok(())
    }

    /// Writes the text of a batch, and keeps the buffers as spares. Lines are written one by one:
    /// the batch then has one event.
    fn write(&mut self, mut formatted: FormattedBatch) -> Result<(), Error> {
        if let Some(record) = formatted.batch.records.first() {
            self.out.put(record.nanoseconds, formatted.text.text())?;
        }
        self.bytes = self.bytes.saturating_add(formatted.text.used() as u64);
        formatted.text.clear();
        formatted.batch.restart(None);
        self.spares.push(formatted);
        Ok(())
    }
}
