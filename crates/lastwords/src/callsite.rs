//! Callsites: the static data of each `event!` and `mark!`, and the path from there into the rings.
//!
//! A disabled event is one load and one branch. A callsite makes itself known when it is first reached, whatever the state
//! of the sessions: types of the values are known there and nowhere before. From then on it is in a list, and whoever changes
//! rules, sessions or channels calls [`refresh_all`].

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64};

use lastwords_abi::header::LEN_COMPACT;
use lastwords_abi::session::context as bits;

use crate::context;
use crate::encode::writer::{Bytes, Pieces as PieceList, Words, has_no_nul};
use crate::encode::{Described, Given, Out, Pieces, Site, Values};
use crate::registry::EventDesc;
use crate::target::{self, MAX_TARGETS, TARGETS, Target};

/// [`Callsite::enabled`] before the callsite was first reached.
const UNKNOWN: u32 = u32::MAX;
/// Place of an id that was not given.
const NO_ID: u16 = u16::MAX;

/// The static data of a callsite.
#[derive(Debug)]
#[repr(C)]
pub struct Callsite {
    /// Bit per target that takes the event; [`UNKNOWN`] at first. Written under [`LOCK`].
    enabled: AtomicU32,
    /// 1 once `desc` and `next` hold. Written under [`LOCK`].
    known: AtomicU32,
    /// The target, where one alone takes the event, with its slot in the bits that its alignment leaves; null otherwise. One
    /// load from here leads to the target: see `lastwords_ring::reserve::quick` for why that counts. Written under [`LOCK`],
    /// after the target's id and before `enabled`.
    only: AtomicPtr<Target>,
    /// Id of the event in each target. Written under [`LOCK`], before the bit of `enabled`.
    ids: [AtomicU16; MAX_TARGETS],
    desc: AtomicPtr<EventDesc>,
    next: AtomicPtr<Callsite>,
}

/// The callsites that were reached, newest first.
static LIST: AtomicPtr<Callsite> = AtomicPtr::new(std::ptr::null_mut());
/// Held while callsites change: `pid << 32 | tid`, or 0.
static LOCK: AtomicU64 = AtomicU64::new(0);

impl Callsite {
    /// A callsite that was not reached yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            enabled: AtomicU32::new(UNKNOWN),
            known: AtomicU32::new(0),
            only: AtomicPtr::new(std::ptr::null_mut()),
            ids: [const { AtomicU16::new(NO_ID) }; MAX_TARGETS],
            desc: AtomicPtr::new(std::ptr::null_mut()),
            next: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    /// Not 0 when the event is to be recorded, or was never reached.
    #[inline(always)]
    pub fn enabled(&self) -> u32 {
        self.enabled.load(Acquire)
    }

    /// The target and the event's id there, where one target alone takes the event.
    #[inline(always)]
    pub(crate) fn only(&self) -> Option<(&'static Target, u16)> {
        let only = self.only.load(Acquire);
        let id = self.ids[only.addr() % MAX_TARGETS].load(Relaxed);
        let target = only.map_addr(|address| address - address % MAX_TARGETS);
        if target.is_null() || id == NO_ID {
            return None;
        }
        // SAFETY: targets are published whole and never freed, and `refresh` stored this one's address plus its slot.
        Some((unsafe { &*target }, id))
    }

    /// The target's handle and the event's id there, if it takes the event.
    fn target(&self, slot: usize) -> Option<(&'static Target, u16)> {
        // The target first: an id is cleared before its slot is given to another target.
        let target = TARGETS[slot].load(Acquire);
        let id = self.ids[slot].load(Relaxed);
        if target.is_null() || id == NO_ID {
            return None;
        }
        // SAFETY: targets are published whole and never freed.
        Some((unsafe { &*target }, id))
    }

    /// The event's description, once the callsite is known.
    pub(crate) fn desc(&self) -> Option<&'static EventDesc> {
        if self.known.load(Acquire) == 0 {
            return None;
        }
        // SAFETY: `desc` was stored from a `&'static EventDesc` before `known`.
        Some(unsafe { &*self.desc.load(Relaxed) })
    }

    /// Makes the callsite known, then calls `record` for each target that takes the event.
    #[cold]
    #[inline(never)]
    pub(crate) fn each_target(&'static self, desc: &'static EventDesc, record: &mut dyn FnMut(&'static Target, u16)) {
        if self.known.load(Acquire) == 0 && !self.register(desc) {
            return;
        }
        let mut rest = self.enabled.load(Acquire);
        while rest != 0 {
            let slot = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            if let Some((target, id)) = self.target(slot) {
                record(target, id);
            }
        }
    }

    /// Puts the callsite on the list. False if the lock was not had: the event is not recorded, the next try may be.
    fn register(&'static self, desc: &'static EventDesc) -> bool {
        let Some(_guard) = Guard::take() else { return false };
        if self.known.load(Acquire) != 0 {
            return true;
        }
        self.desc.store(std::ptr::from_ref(desc).cast_mut(), Relaxed);
        self.refresh(desc);
        self.next.store(LIST.load(Relaxed), Relaxed);
        LIST.store(std::ptr::from_ref(self).cast_mut(), Release);
        self.known.store(1, Release);
        true
    }

    /// Judges each target anew; the caller holds [`LOCK`].
    fn refresh(&self, desc: &EventDesc) {
        let mut enabled = 0u32;
        let mut only = std::ptr::null_mut();
        for (slot, target) in TARGETS.iter().enumerate() {
            let target = target.load(Acquire);
            if target.is_null() {
                self.ids[slot].store(NO_ID, Relaxed);
                continue;
            }
            let address = target;
            // SAFETY: targets are published whole and never freed.
            let target = unsafe { &*target };
            if target::enabled(target, desc) && self.give_id(slot, target, desc) {
                enabled |= 1 << slot;
                only = address.map_addr(|address| address + slot);
            }
        }
        let only = if enabled.is_power_of_two() { only } else { std::ptr::null_mut() };
        self.only.store(only, Release);
        self.enabled.store(enabled, Release);
    }

    fn give_id(&self, slot: usize, target: &Target, desc: &EventDesc) -> bool {
        if self.ids[slot].load(Relaxed) == NO_ID {
            let Some(id) = target::register_event(target, desc) else { return false };
            self.ids[slot].store(id, Relaxed);
        }
        true
    }
}

impl Default for Callsite {
    fn default() -> Self {
        Self::new()
    }
}

/// Judges every callsite anew: after a change of rules, channels or sessions. A slot of [`TARGETS`] that was emptied may be
/// filled again only after a call in between.
pub(crate) fn refresh_all() {
    crate::crash::note_modules();
    let Some(_guard) = Guard::take() else { return };
    let mut next = LIST.load(Acquire);
    while !next.is_null() {
        // SAFETY: only `&'static Callsite`s are put on the list.
        let site = unsafe { &*next };
        // SAFETY: `desc` was stored from a `&'static EventDesc` before the callsite was put on the list.
        let desc = unsafe { &*site.desc.load(Relaxed) };
        site.refresh(desc);
        next = site.next.load(Relaxed);
    }
}

/// Holds [`LOCK`], with signals blocked: a handler that reaches a new callsite cannot wait for the thread it interrupted.
struct Guard {
    old_mask: libc::sigset_t,
}

impl Guard {
    /// None when this thread holds it already (a crash handler inside a refresh), or nobody lets go for a second.
    fn take() -> Option<Self> {
        let me = context::identity();
        let me = u64::from(me.pid) << 32 | u64::from(me.tid);
        let old_mask = block_signals();
        for _ in 0..20_000 {
            let Err(owner) = LOCK.compare_exchange(0, me, AcqRel, Relaxed) else { return Some(Self { old_mask }) };
            // The owner is a thread of the process that this one was forked from: it is not here.
            let gone = owner >> 32 != me >> 32;
            if gone && LOCK.compare_exchange(owner, me, AcqRel, Relaxed).is_ok() {
                return Some(Self { old_mask });
            }
            if owner == me {
                break;
            }
            // SAFETY: plain calls without memory but the local timespec.
            unsafe {
                libc::usleep(50);
            }
        }
        restore_signals(&old_mask);
        None
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        LOCK.store(0, Release);
        restore_signals(&self.old_mask);
    }
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: sigset_t is plain memory, filled by sigfillset and pthread_sigmask before use.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut old: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const all, &raw mut old);
        old
    }
}

fn restore_signals(old: &libc::sigset_t) {
    // SAFETY: `old` was filled by pthread_sigmask.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, old, std::ptr::null_mut());
    }
}

/// The description of a callsite's event: its names joined with the types of its values.
struct Description<S, V>(std::marker::PhantomData<(S, V)>);

impl<S: Site, V: Described<S>> Description<S, V> {
    const DESC: &'static EventDesc = &EventDesc {
        provider: S::PROVIDER,
        name: S::NAME,
        level: S::LEVEL,
        format: S::FORMAT,
        file: S::FILE,
        line: S::LINE,
        fields: V::FIELDS,
    };
}

/// Records the values of a callsite; called by the macros when `enabled` is not 0.
#[inline(always)]
pub fn record<S: Site, V: Given + Described<S>>(_: &S, site: &'static Callsite, values: V) {
    if let Some((target, id)) = site.only() {
        record_to(target, id, values.short());
    } else {
        record_cold::<S, V, _>(site, values.short());
    }
}

/// Makes a callsite known before it is reached: one that a signal handler reaches.
pub(crate) fn prime<S: Site, V: Described<S>>(site: &'static Callsite) {
    if site.known.load(Acquire) == 0 {
        site.register(Description::<S, V>::DESC);
    }
}

/// Several targets, or the first time.
#[cold]
#[inline(never)]
fn record_cold<S: Site, V: Described<S>, W: Values + Copy>(site: &'static Callsite, values: W) {
    site.each_target(Description::<S, V>::DESC, &mut |target, id| record_to(target, id, values));
}

/// Records a payload whose bytes are ready.
#[cfg(feature = "tracing")]
#[inline]
pub(crate) fn record_bytes<V: Values + Copy>(site: &'static Callsite, desc: &'static EventDesc, values: V) {
    if let Some((target, id)) = site.only() {
        record_to(target, id, values);
    } else if site.enabled() != 0 {
        site.each_target(desc, &mut |target, id| record_to(target, id, values));
    }
}

/// Records one payload in one target.
#[inline(always)]
pub(crate) fn record_to<V: Values + Copy>(target: &'static Target, id: u16, values: V) {
    match target.contexts {
        0 => record_body(target, id, values),
        bits::TID => record_with_tid(target, id, values.again()),
        _ => record_with_contexts(target, id, values.again()),
    }
}

/// The thread id, which most channels ask for, in front of the values: a payload like any other.
#[derive(Clone, Copy)]
struct WithTid<V>(u32, V);

impl<V: Values> Values for WithTid<V> {
    const FIXED: Option<usize> = match V::FIXED {
        Some(size) => Some(size + 4),
        None => None,
    };
    const HEAD: Option<usize> = match V::HEAD {
        Some(size) => Some(size + 4),
        None => None,
    };

    #[inline(always)]
    fn size(&self) -> usize {
        4 + self.1.size()
    }

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        out.scalar(u64::from(self.0), 4);
        self.1.write(out);
    }

    #[inline(always)]
    fn write_head(&self, out: &mut impl Out) {
        out.scalar(u64::from(self.0), 4);
        self.1.write_head(out);
    }

    #[inline(always)]
    fn last_text(&self) -> &[u8] {
        self.1.last_text()
    }

    #[inline]
    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        out.scalar(u64::from(self.0), 4);
        self.1.pieces(out);
    }
}

#[inline(never)]
pub(crate) fn record_with_tid<V: Values + Copy>(target: &'static Target, id: u16, values: V) {
    record_body(target, id, WithTid(context::identity().tid, values));
}

/// Records a payload as it is.
#[inline(always)]
fn record_body<V: Values + Copy>(target: &'static Target, id: u16, values: V) {
    match const { words_of(V::FIXED) } {
        0 => record_exact::<0, V>(target, id, &values),
        1..=3 => match const { framed_words_of(V::FIXED) } {
            2 => record_framed::<2, V>(target, id, &values),
            3 => record_framed::<3, V>(target, id, &values),
            _ => record_exact::<3, V>(target, id, &values),
        },
        4 => record_exact::<4, V>(target, id, &values),
        5 => record_exact::<5, V>(target, id, &values),
        6 => record_exact::<6, V>(target, id, &values),
        7 => record_exact::<7, V>(target, id, &values),
        8 => record_exact::<8, V>(target, id, &values),
        _ => record_short(target, id, values),
    }
}

/// A payload whose size is only known now: most often a number or two and a text.
#[inline(always)]
fn record_short<V: Values + Copy>(target: &'static Target, id: u16, values: V) {
    if !record_head_and_text(target, id, values) {
        record_of_any_size(target, id, values.again());
    }
}

/// Numbers and then one text, 8 bytes or more of it and no NUL: copied from where they are. False for all other payloads.
#[inline(always)]
fn record_head_and_text<V: Values + Copy>(target: &'static Target, id: u16, values: V) -> bool {
    let words = const { framed_words_of(V::HEAD) };
    if words > 3 {
        return false;
    }
    let text = values.last_text();
    if text.len() < 8 || !has_no_nul(text) {
        return false;
    }
    match words {
        2 => record_text::<2, V>(target, id, values, text),
        _ => record_text::<3, V>(target, id, values, text),
    }
    true
}

#[inline(always)]
fn record_text<const W: usize, V: Values + Copy>(target: &'static Target, id: u16, values: V, text: &[u8]) {
    let head = framed::<W>(|out| values.write_head(out));
    let size = LEN_COMPACT + const { head_len::<V>() };
    if !target.channel.record_framed_text(id, &head, size, text) {
        // What is lost is counted in the stream.
        let _ = target.channel.record_unframed(id, head, size, Some(text));
    }
}

/// Bytes of the head; 0 where there is none.
const fn head_len<V: Values>() -> usize {
    match V::HEAD {
        Some(len) => len,
        None => 0,
    }
}

/// Words, 2 at least, of an event of fixed size, or of the part of it that is; a large number for all others.
const fn framed_words_of(fixed: Option<usize>) -> usize {
    match fixed {
        Some(..=12) => 2,
        Some(size) => (LEN_COMPACT + size).div_ceil(8),
        None => usize::MAX,
    }
}

#[inline(always)]
fn record_framed<const W: usize, V: Values>(target: &'static Target, id: u16, values: &V) {
    let words = framed::<W>(|out| values.write(out));
    let size = LEN_COMPACT + values.size();
    if !target.channel.record_framed(id, &words, size) {
        // What is lost is counted in the stream.
        let _ = target.channel.record_unframed(id, words, size, None);
    }
}

/// An event without what is behind its fixed part: a place for the header, then what `write` writes.
#[inline(always)]
fn framed<const W: usize>(write: impl FnOnce(&mut Words<'_, W>)) -> [u64; W] {
    let mut words = [0; W];
    let mut out = Words::new(&mut words);
    out.scalar(0, LEN_COMPACT);
    write(&mut out);
    out.finish();
    words
}

/// Words of a payload of fixed size; a large number for all others.
const fn words_of(fixed: Option<usize>) -> usize {
    match fixed {
        Some(size) => size.div_ceil(8),
        None => usize::MAX,
    }
}

#[inline(always)]
fn record_exact<const W: usize, V: Values>(target: &'static Target, id: u16, values: &V) {
    record_words::<W, V>(target, id, values, values.size());
}

/// Contexts in front of the values.
struct WithContexts<'a, V>(&'a Target, V);

impl<V: Values> Values for WithContexts<'_, V> {
    const FIXED: Option<usize> = None;

    fn size(&self) -> usize {
        self.0.contexts_len.saturating_add(self.1.size())
    }

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        context::write(self.0.contexts, &self.0.user_contexts, out);
        self.1.write(out);
    }

    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        context::write(self.0.contexts, &self.0.user_contexts, out);
        self.1.pieces(out);
    }
}

#[inline(never)]
fn record_with_contexts<V: Values>(target: &'static Target, id: u16, values: V) {
    let values = WithContexts(target, values);
    record_sized(target, id, &values, values.size());
}

/// Takes a copy of the references, so that those of the fast path need no memory.
#[inline(never)]
fn record_of_any_size<V: Values + Copy>(target: &'static Target, id: u16, values: V) {
    record_sized(target, id, &values, values.size());
}

/// A payload of a size that is only known now, or of many words.
#[inline(never)]
fn record_sized<V: Values>(target: &'static Target, id: u16, values: &V, size: usize) {
    match size {
        0..=64 => record_words::<8, V>(target, id, values, size),
        65..=128 => record_words::<16, V>(target, id, values, size),
        129..=256 => record_words::<32, V>(target, id, values, size),
        257..=2048 => record_buffered(target, id, values),
        _ => record_pieces(target, id, values),
    }
}

#[inline(always)]
fn record_words<const W: usize, V: Values>(target: &'static Target, id: u16, values: &V, size: usize) {
    let mut words = [0; W];
    let mut out = Words::new(&mut words);
    values.write(&mut out);
    out.finish();
    // What is lost is counted in the stream.
    let _ = target.channel.record_fixed(id, &words, size);
}

#[inline(never)]
fn record_buffered<V: Values>(target: &'static Target, id: u16, values: &V) {
    let mut buffer = [0u8; 2048];
    let mut bytes = Bytes::new(&mut buffer);
    values.write(&mut bytes);
    if let Some(payload) = bytes.finish() {
        let _ = target.channel.record_parts(id, &[payload]);
    }
}

#[inline(never)]
fn record_pieces<V: Values>(target: &'static Target, id: u16, values: &V) {
    let mut pieces = Pieces(PieceList::new());
    values.pieces(&mut pieces);
    if pieces.0.finish(|parts| target.channel.record_parts(id, parts)).is_none() {
        target.lost_too_big();
    }
}
