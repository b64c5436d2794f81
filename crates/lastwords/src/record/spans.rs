//! The table of open spans in shared memory: what a reader lists as open at death, even when the event of its opening was
//! overwritten long ago.
//!
//! An entry lies near the place that its id hashes to, so that entering, leaving and closing find it without a list. Where all
//! entries there are taken, the span is counted and not listed; what the dead left is taken over once `dead` knows of them.

mod dead;

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use lastwords_abi::spans::{CONTROL_OFF, SPAN_OPEN, SPANS_OFF, Span, SpansControl, TEXT_LEN};
use lastwords_ring::ClockKind;

pub(crate) use self::dead::look as look_for_dead;
use crate::process::identity;
use crate::session::shared::{self, SessionShared};

/// Entries that are looked at for one id.
const PROBES: usize = 32;

/// A span that opens.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening<'a> {
    pub(crate) id: u64,
    /// 0 = none.
    pub(crate) parent: u64,
    /// 1 to 5.
    pub(crate) level: u8,
    /// Target, 0x1f, name, 0x1f, fields; UTF-8.
    pub(crate) text: &'a [u8],
}

/// Whether a session of this process has a table.
pub(crate) fn are_listed() -> bool {
    tables().next().is_some()
}

/// Lists the span in every session of this process that has a table.
pub(crate) fn open(span: &Opening<'_>) {
    let me = identity::identity();
    let opener = me.word();
    for (session, table) in tables() {
        let Some(entry) = table.claim(span.id, session) else {
            table.control.dropped.fetch_add(1, Relaxed);
            dead::refused();
            continue;
        };
        // The entry is this thread's until `state` says that it is whole.
        entry.parent.store(span.parent, Relaxed);
        entry.opened.store(now(session), Relaxed);
        entry.opener.store(opener, Relaxed);
        entry.entered.store(0, Relaxed);
        entry.level.store(u32::from(span.level), Relaxed);
        entry.opener_start.store(identity::process_start(), Relaxed);
        let len = cut(span.text, TEXT_LEN);
        write_text(entry, 0, &span.text[..len]);
        entry.text_len.store(len as u32, Relaxed);
        entry.state.store(SPAN_OPEN, Release);
    }
}

/// Notes that this thread is in the span. One word has room for one thread: the first that is in it.
pub(crate) fn enter(id: u64) {
    change_entered(id, |me| (0, me));
}

/// Notes that this thread is in the span no longer; another that stands there stays.
pub(crate) fn leave(id: u64) {
    change_entered(id, |me| (me, 0));
}

/// Puts the second word where the first one stands.
fn change_entered(id: u64, words: impl Fn(u64) -> (u64, u64)) {
    let me = identity::identity();
    let (from, to) = words(me.word());
    each_entry(id, |entry| {
        // Another thread stands there, and stays.
        let _ = entry.entered.compare_exchange(from, to, Relaxed, Relaxed);
    });
}

/// Adds text to the fields of an open span.
pub(crate) fn append(id: u64, text: &[u8]) {
    each_entry(id, |entry| {
        let at = entry.text_len.load(Relaxed) as usize;
        let len = cut(text, TEXT_LEN.saturating_sub(at));
        write_text(entry, at, &text[..len]);
        // Behind the bytes: a reader never sees text that is not there.
        entry.text_len.store((at + len) as u32, Release);
    });
}

/// Takes the span off the tables.
pub(crate) fn close(id: u64) {
    each_entry(id, |entry| {
        entry.state.store(0, Relaxed);
        entry.id.store(0, Release);
    });
}

fn each_entry(id: u64, act: impl Fn(&Span)) {
    let pid = identity::identity().pid;
    for (_, table) in tables() {
        let mine = |entry: &&Span| {
            entry.id.load(Acquire) == id
                && entry.state.load(Acquire) == SPAN_OPEN
                && entry.opener.load(Relaxed) >> 32 == u64::from(pid)
        };
        if let Some(entry) = table.probe(id).find(mine) {
            act(entry);
        }
    }
}

/// The clock of the session, ticks.
fn now(session: &SessionShared) -> u64 {
    session.view().clock_kind().map_or(0, ClockKind::now)
}

/// Bytes of `text` that fit into `room`, cut at a character.
fn cut(text: &[u8], room: usize) -> usize {
    let mut len = text.len().min(room);
    // A byte 10xxxxxx continues a character.
    while len < text.len() && len > 0 && text[len] & 0xc0 == 0x80 {
        len -= 1;
    }
    len
}

fn write_text(entry: &Span, at: usize, bytes: &[u8]) {
    debug_assert!(at + bytes.len() <= TEXT_LEN);
    // SAFETY: the range lies in the entry's text (callers cut it), in shared memory that is mapped read-write; only the thread
    // that claimed the entry writes there, and readers in other processes expect bytes of any value.
    unsafe {
        let text = std::ptr::addr_of!(entry.text).cast_mut().cast::<u8>().add(at);
        text.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
    }
}

/// A session's table.
#[derive(Clone, Copy)]
struct Table {
    control: &'static SpansControl,
    entries: &'static [Span],
}

fn tables() -> impl Iterator<Item = (&'static SessionShared, Table)> {
    shared::all().filter_map(|session| {
        let mapping = session.regions.spans.as_ref()?;
        let most = (mapping.len() as usize).checked_sub(SPANS_OFF)? / size_of::<Span>();
        // SAFETY: a spans region that was checked when it was mapped, mapped for the life of the process; control and
        // entries lie in it, aligned as the region is, and change by atomics only (text aside, which is not read here).
        unsafe {
            let control = &*mapping.as_ptr().add(CONTROL_OFF).cast::<SpansControl>();
            let len = most.min(control.capacity as usize);
            let entries = std::slice::from_raw_parts(mapping.as_ptr().add(SPANS_OFF).cast::<Span>(), len);
            Some((session, Table { control, entries }))
        }
    })
}

impl Table {
    /// The entries where the id may be.
    fn probe(&self, id: u64) -> impl Iterator<Item = &'static Span> + use<> {
        let entries = self.entries;
        let from = (id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
        let count = PROBES.min(entries.len());
        (0..count).map(move |step| &entries[from.wrapping_add(step) % entries.len()])
    }

    /// A free entry for the id, or one whose process is known to be dead.
    fn claim(&self, id: u64, session: &SessionShared) -> Option<&'static Span> {
        let is_free = |entry: &&Span| entry.id.load(Relaxed) == 0;
        let free = |entry: &&Span| is_free(entry) && entry.id.compare_exchange(0, id, AcqRel, Relaxed).is_ok();
        self.probe(id).find(free).or_else(|| self.take_over(id, session))
    }

    #[cold]
    fn take_over(&self, id: u64, session: &SessionShared) -> Option<&'static Span> {
        if session.view().is_foreign() {
            // Process ids of other namespaces say nothing here.
            return None;
        }
        let entry = self.probe(id).find(|entry| {
            let opener = entry.opener.load(Acquire);
            let start = entry.opener_start.load(Relaxed);
            // Ids of spans are small numbers that are equal in many processes: the opener tells who was here first.
            entry.state.load(Acquire) == SPAN_OPEN
                && dead::is_known((opener >> 32) as u32, start)
                && entry.opener.compare_exchange(opener, 0, AcqRel, Relaxed).is_ok()
        })?;
        entry.state.store(0, Release);
        entry.id.store(id, Release);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::cut;

    #[test]
    fn text_is_cut_at_a_character() {
        assert_eq!(cut("aé".as_bytes(), 2), 1);
        assert_eq!(cut("aé".as_bytes(), 3), 3);
        assert_eq!(cut("aé".as_bytes(), 0), 0);
        assert_eq!(cut(b"abc", 9), 3);
    }
}
