//! The payload of an event of `tracing` under construction: the bytes of its values, and their
//! types.
//!
//! Nearly all events fit into the room. In an event that does not, each text gets a fair share of
//! the room: the values are measured ([`super::shares`]) and then written again. A text that is
//! longer than its share is cut, and `…` marks the cut. A number that finds no room is left out.
//! The recorder counts both.

use std::fmt::{self, Write as _};
use std::mem::MaybeUninit;

use super::class::Form;
use super::shown::{SHOWN_LEN, ShownRoom, replace_nuls};
use super::signature::{A_WORD, MASK_ROOM, MOST_FIELDS, Shape, Signature, Type};
use super::site::Site;
use crate::process::cut_len;
use crate::record::encode::CUT;
use crate::record::encode::writer::has_no_nul;
use crate::record::in_span::Shown;
use crate::record::slot::Flaws;

/// Largest size of a payload, in bytes. In memory, less than 4096 bytes are from the payload's
/// start to its last field: a CPU that loads a field waits for stores whose addresses differ from
/// the field's by a multiple of 4096, such as those of the first bytes.
const ROOM: usize = 3648;
/// Where the values end at most. Behind them is room for the span, its id and its parent's.
const END: usize = ROOM - SHOWN_LEN - 24;
/// Number of bytes that the values of an event have.
pub(super) const VALUES_ROOM: usize = END - MASK_ROOM;
/// Largest size of a piece of text that is copied without a call, in bytes.
const SHORT: usize = 64;

const _: () = assert!(
    size_of::<Payload>() < 4096 && VALUES_ROOM >= 3072 + 8 * 32,
    "texts of 3 KiB are not cut"
);

/// Payload bytes under construction, and their types.
pub(super) struct Payload {
    bytes: [MaybeUninit<u8>; ROOM],
    len: usize,
    pub(super) signature: Signature,
    pub(super) form: Form,
    /// A value did not fit, and no share was set: the values must be written again.
    pub(super) is_full: bool,
    /// All values are recorded as text.
    is_text: bool,
    /// Values that are not as they were given. If there are any, [`Form::HAS_FLAWS`] is set.
    pub(super) flaws: Flaws,
    /// Fields below this index may take the shortest way: those in the first word of the
    /// signature, or none.
    usual: usize,
    /// Largest size of a text; none before the values were measured.
    share: Option<usize>,
    /// Where the current text ends at most.
    text_end: usize,
    /// The current text does not fit.
    is_cut: bool,
    pub(super) site: &'static Site,
}

impl Payload {
    /// Makes a payload without values, and calls `act` with it. It is made where it stays, because
    /// a copy takes longer than an event.
    #[inline(always)]
    pub(super) fn with<T>(site: &'static Site, act: impl FnOnce(&mut Self) -> T) -> T {
        let mut new = Self::new(site);
        new.signature.make_room(site.fields);
        act(&mut new)
    }

    /// Makes a payload without values, whose signature has no room yet.
    #[inline(always)]
    fn new(site: &'static Site) -> Self {
        Self {
            bytes: [const { MaybeUninit::uninit() }; ROOM],
            len: MASK_ROOM,
            signature: Signature::empty(),
            form: Form(0),
            is_full: false,
            is_text: false,
            flaws: Flaws::default(),
            usual: site.usual,
            share: None,
            text_end: END,
            is_cut: false,
            site,
        }
    }

    /// Sets the largest size of texts. If `is_text`, all values are recorded as text. There are no
    /// values yet.
    pub(super) fn set_share(&mut self, share: usize, is_text: bool) {
        (self.share, self.is_text, self.usual) = (Some(share), is_text, 0);
    }

    pub(super) fn is_text(&self) -> bool {
        self.is_text
    }

    /// Returns the payload of an event of this shape: the bits of optional fields, and the values.
    #[inline(always)]
    pub(super) fn finish(&mut self, shape: &Shape) -> &[u8] {
        let start = MASK_ROOM - shape.mask_len().min(MASK_ROOM);
        if start < MASK_ROOM
            && let Some(room) = self.bytes.first_chunk_mut()
        {
            shape.put_mask(&self.signature, room);
        }
        // SAFETY: `put_mask` initialises the bytes in front of the values.
        unsafe { self.written(start, self.len) }
    }

    /// Returns the values. They are the whole payload if no field is optional.
    #[inline(always)]
    pub(super) fn all_values(&self) -> &[u8] {
        self.values(MASK_ROOM)
    }

    /// Returns bytes that were written.
    ///
    /// # Safety
    /// The bytes from `from` to `to` are initialised.
    #[inline(always)]
    unsafe fn written(&self, from: usize, to: usize) -> &[u8] {
        let bytes = &self.bytes[from..to];
        // SAFETY: the caller guarantees that the bytes are initialised.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
    }

    /// Returns the values from an offset on.
    #[inline]
    fn values(&self, from: usize) -> &[u8] {
        // SAFETY: values begin behind the room for the mask, and are initialised before they are
        // added to `len`, by `put`, `write_cut` or the writer of a span's text.
        unsafe { self.written(from.max(MASK_ROOM), self.len) }
    }

    /// Appends the bytes if they end before `most`.
    #[inline(always)]
    fn put(&mut self, bytes: &[u8], most: usize) -> bool {
        let end = self.len + bytes.len();
        let Some(room) = self.bytes[..most].get_mut(self.len..end) else { return false };
        // SAFETY: `room` has as many bytes as `bytes`, and nobody else uses it.
        unsafe { lastwords_ring::copy(bytes.as_ptr(), room.as_mut_ptr().cast(), bytes.len()) };
        self.len = end;
        true
    }

    /// Appends a number that is no field of the callsite.
    #[inline]
    pub(super) fn number(&mut self, value: u64) {
        self.put(&value.to_ne_bytes(), ROOM);
    }

    /// Appends the span in which an event happened: its text, and its id. `write` writes the text
    /// into the room by [`show`](super::span_text::show); none if the event is in no span.
    #[inline]
    pub(super) fn span(&mut self, write: impl FnOnce(&mut ShownRoom) -> Option<Shown>) {
        // There always is room: see `END`.
        let Some(room) = self.bytes.get_mut(self.len..).and_then(|room| room.first_chunk_mut())
        else {
            return;
        };
        let Some(Shown { len, id, is_changed }) = write(room) else { return };
        self.len += len;
        self.put(&[0], ROOM);
        self.number(id);
        self.form.set(Form::HAS_SPAN);
        if is_changed {
            self.count_changed();
        }
    }

    /// Begins the value of a field. Returns false if the field must not be recorded: the
    /// description contains it already, there are too many fields, or the values must be written
    /// again.
    #[inline(always)]
    fn begin(&mut self, index: usize) -> bool {
        if index >= MOST_FIELDS {
            self.count_lost();
            return false;
        }
        let is_told = index < 64 && self.site.told >> index & 1 != 0;
        !is_told && !self.is_full
    }

    /// Ends the value of a field, which begins at `start`.
    #[inline(always)]
    fn end(&mut self, index: usize, start: usize, ty: Type) {
        if self.signature.has_from(index) {
            self.move_back(index, start);
        }
        if index >= A_WORD {
            // Fields of the first word do not come in order from now on.
            self.usual = 0;
        }
        self.signature.add(index, ty);
    }

    /// Moves the last value, which begins at `start`, to the place of its field. The value that the
    /// field had before is removed.
    #[cold]
    #[inline(never)]
    fn move_back(&mut self, index: usize, start: usize) {
        let (mut at, mut start) = (MASK_ROOM, start);
        for field in 0..index {
            at += self.signature.field(field).map_or(0, |ty| self.len_at(at, ty));
        }
        if let Some(ty) = self.signature.field(index) {
            let old = self.len_at(at, ty);
            self.bytes.copy_within(at + old..self.len, at);
            (self.len, start) = (self.len - old, start - old);
            self.signature.remove(index);
        }
        self.bytes[at..self.len].rotate_left(start - at);
    }

    /// Returns the size of the value that begins at an offset.
    fn len_at(&self, at: usize, ty: Type) -> usize {
        match ty.field().fixed_size() {
            Some(size) => size,
            None => self.values(at).iter().position(|byte| *byte == 0).map_or(0, |nul| nul + 1),
        }
    }

    /// Records a field that is a number or a truth. `value` is written as text if all values are.
    #[inline(always)]
    pub(super) fn scalar<const N: usize>(
        &mut self,
        index: usize,
        ty: Type,
        bytes: [u8; N],
        value: impl fmt::Display,
    ) {
        // Nearly all values come in order and fit.
        if index < self.usual && self.signature.is_behind_first(index) && self.put(&bytes, END) {
            self.signature.add_to_first(index, ty);
        } else {
            self.unusual_scalar(index, ty, bytes, value);
        }
    }

    /// Records a field of a callsite with many fields, or one that does not come in order, does not
    /// fit or becomes text.
    #[cold]
    #[inline(never)]
    fn unusual_scalar<const N: usize>(
        &mut self,
        index: usize,
        ty: Type,
        bytes: [u8; N],
        value: impl fmt::Display,
    ) {
        if !self.begin(index) {
            return;
        }
        if self.is_text {
            return self.text(index, |payload| _ = write!(payload, "{value}"));
        }
        let start = self.len;
        match self.put(&bytes, END) {
            true => self.end(index, start, ty),
            false => self.overflow(),
        }
    }

    #[cold]
    fn count_lost(&mut self) {
        self.flaws.cut += 1;
        self.form.set(Form::HAS_FLAWS);
    }

    /// Counts a text in which NULs were replaced.
    #[cold]
    fn count_changed(&mut self) {
        self.flaws.changed += 1;
        self.form.set(Form::HAS_FLAWS);
    }

    /// Notes that a value found no room.
    #[cold]
    fn overflow(&mut self) {
        match self.share {
            Some(_) => self.count_lost(),
            None => (self.is_full, self.usual) = (true, 0),
        }
    }

    /// Records a field that is text.
    #[inline]
    pub(super) fn text(&mut self, index: usize, write: impl FnOnce(&mut Self)) {
        if !self.begin(index) {
            return;
        }
        let start = self.len;
        if let Some(share) = self.share {
            // The NUL needs a byte.
            self.text_end = (start + share).min(END - 1);
        }
        write(self);
        self.end_text(index, start);
    }

    /// Ends the text of a field, which begins at `start`.
    #[inline(never)]
    fn end_text(&mut self, index: usize, start: usize) {
        if self.is_cut && !self.mark_cut(start) {
            return;
        }
        let text = self.values(start);
        let has_nul = if text.len() < 8 { text.contains(&0) } else { !has_no_nul(text) };
        if has_nul {
            replace_nuls(&mut self.bytes[start..self.len]);
        }
        match self.put(&[0], END) {
            true => {
                if has_nul {
                    self.count_changed();
                }
                self.end(index, start, Type::Text);
            }
            false => {
                self.len = start;
                self.overflow();
            }
        }
    }

    /// Marks the cut of a text that begins at `start`. Returns false if the values must be written
    /// again, or if there is not even room for the mark: the text is left out then.
    #[cold]
    #[inline(never)]
    fn mark_cut(&mut self, start: usize) -> bool {
        self.is_cut = false;
        self.overflow();
        let room = self.text_end.saturating_sub(start);
        if self.is_full || room < CUT.len() {
            self.len = start;
            return false;
        }
        let most = room - CUT.len();
        self.len = start + cut_len(self.values(start), most);
        self.put(CUT.as_bytes(), self.text_end);
        true
    }

    /// Returns the current text, which begins at `start`.
    #[inline]
    pub(super) fn text_from(&self, start: usize) -> &[u8] {
        self.values(start)
    }

    #[inline]
    pub(super) fn here(&self) -> usize {
        self.len
    }

    /// Appends as much of the text as there is room for.
    #[inline]
    pub(super) fn write_cut(&mut self, text: &str) {
        // Formatting consists of short pieces, which are copied without a call, and of empty ones.
        if text.is_empty() {
            return;
        }
        if matches!(text.len(), 1..=SHORT)
            && !self.is_cut
            && let Some(room) = self.bytes[..self.text_end]
                .get_mut(self.len..)
                .and_then(|room| room.first_chunk_mut::<SHORT>())
        {
            // SAFETY: `room` has at least as many bytes as `text`, and nobody else uses it.
            unsafe { lastwords_ring::copy(text.as_ptr(), room.as_mut_ptr().cast(), text.len()) };
            self.len += text.len();
        } else {
            self.write_long(text);
        }
    }

    #[inline(never)]
    fn write_long(&mut self, text: &str) {
        if self.is_cut || self.put(text.as_bytes(), self.text_end) {
            return;
        }
        self.is_cut = true;
        let most = self.text_end.saturating_sub(self.len);
        self.put(&text.as_bytes()[..cut_len(text.as_bytes(), most)], self.text_end);
    }
}

impl fmt::Write for Payload {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write_cut(text);
        Ok(())
    }

    fn write_char(&mut self, character: char) -> fmt::Result {
        match self.bytes[..self.text_end].get_mut(self.len) {
            // Many values are formatted character by character.
            Some(byte) if character.is_ascii() && !self.is_cut => {
                byte.write(character as u8);
                self.len += 1;
            }
            _ => self.write_cut(character.encode_utf8(&mut [0; 4])),
        }
        Ok(())
    }
}
