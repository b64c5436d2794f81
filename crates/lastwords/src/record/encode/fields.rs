//! The types of values that an event can carry.

use std::borrow::Cow;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{Field, Out, Pieces, as_short, copied, short, text};
use crate::session::desc::FieldType;

mod sealed {
    /// Plain memory: every byte is initialised, and there is no padding.
    pub trait Plain: Copy + 'static {}
}

/// A number or bool of fixed size, recorded as it is in memory. Arrays and slices consist of these.
pub trait Element: sealed::Plain {
    /// Type of one element for a reader.
    const TYPE: FieldType;
    /// Type of a slice of elements for a reader.
    const SLICE: FieldType = FieldType::Sequence(&Self::TYPE);
    /// Returns the value's bytes as the low bytes of a word.
    fn word(self) -> u64;
}

/// An integer, which [`hex`] accepts.
pub trait Integer: Element {
    /// Type in base 16 for a reader.
    const HEX: FieldType;
}

macro_rules! element {
    ([$($generic:tt)*] $T:ty, $ty:expr, |$value:ident| $word:expr $(, $slice:expr)?) => {
        impl<$($generic)*> sealed::Plain for $T {}
        impl<$($generic)*> Element for $T {
            const TYPE: FieldType = $ty;
            $(const SLICE: FieldType = $slice;)?
            #[inline(always)]
            fn word(self) -> u64 {
                let $value = self;
                $word
            }
        }
        copied! {
            [$($generic)*] $T, $ty, Some(size_of::<$T>()), |value, out| out.scalar(value.word(), size_of::<$T>());
        }
    };
}

macro_rules! integer {
    ($($T:ident $bits:ident $class:ident $($slice:expr)?;)*) => { $(
        element!(
            [] $T, FieldType::$class { bytes: size_of::<$T>() as u8, base: 10 }, |value| value as $bits as u64 $(, $slice)?
        );
        impl Integer for $T {
            const HEX: FieldType = FieldType::$class { bytes: size_of::<$T>() as u8, base: 16 };
        }
    )* };
}

integer! {
    u8 u8 Unsigned FieldType::Bytes;
    u16 u16 Unsigned;
    u32 u32 Unsigned;
    u64 u64 Unsigned;
    usize usize Unsigned;
    i8 u8 Signed;
    i16 u16 Signed;
    i32 u32 Signed;
    i64 u64 Signed;
    isize usize Signed;
}
element!([] f32, FieldType::Float { bytes: 4 }, |value| u64::from(value.to_bits()));
element!([] f64, FieldType::Float { bytes: 8 }, |value| value.to_bits());
element!([] bool, FieldType::Bool, |value| u64::from(value));
element!([T: Integer] Hex<T>, T::HEX, |value| value.0.word());

/// An integer shown in base 16; see [`hex`].
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Hex<T>(T);

/// Marks an integer to be shown in base 16.
#[inline(always)]
pub fn hex<T: Integer>(value: T) -> Hex<T> {
    Hex(value)
}

const ADDRESS: FieldType = FieldType::Unsigned { bytes: size_of::<usize>() as u8, base: 16 };

copied! {
    [T] *const T, ADDRESS, Some(size_of::<usize>()), |value, out| out.scalar(value.addr() as u64, size_of::<usize>());
    [T] *mut T, ADDRESS, Some(size_of::<usize>()), |value, out| out.scalar(value.addr() as u64, size_of::<usize>());
    [] char, FieldType::String, None, |value, out| out.text(value.encode_utf8(&mut [0; 4]).as_bytes());
    // The value becomes a sequence of one element, or of none.
    [T: Element] Option<T>, FieldType::Sequence(&T::TYPE), None, |value, out| {
        out.scalar(u64::from(value.is_some()), 4);
        if let Some(value) = value {
            out.scalar(value.word(), size_of::<T>());
        }
    };
    // The value becomes two numbers, so that no value is too large: whole seconds, and nanoseconds from 0 to
    // 999,999,999.
    [] Duration, FieldType::Array { count: 2, element: &<u64 as Element>::TYPE }, Some(16), |value, out| {
        out.scalar(value.as_secs(), 8);
        out.scalar(u64::from(value.subsec_nanos()), 8);
    };
    // The value becomes whole seconds since 1970, rounded down, and nanoseconds from 0 to 999,999,999 to add.
    [] SystemTime, FieldType::Array { count: 2, element: &<i64 as Element>::TYPE }, Some(16), |value, out| {
        let (seconds, nanoseconds) = since_1970(*value);
        out.scalar(seconds, 8);
        out.scalar(u64::from(nanoseconds), 8);
    };
}

/// Returns seconds and nanoseconds since 1970. Linux has the seconds in 64 bits, signed, so none of
/// these operations wraps.
#[inline]
fn since_1970(time: SystemTime) -> (u64, u32) {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => (since.as_secs(), since.subsec_nanos()),
        Err(before) => match (before.duration().as_secs(), before.duration().subsec_nanos()) {
            (seconds, 0) => (seconds.wrapping_neg(), 0),
            (seconds, nanoseconds) => {
                (seconds.wrapping_neg().wrapping_sub(1), 1_000_000_000 - nanoseconds)
            }
        },
    }
}

/// Returns the memory of plain elements.
#[inline(always)]
pub(crate) fn memory<T: Element>(elements: &[T]) -> &[u8] {
    // SAFETY: `Plain` is sealed and only implemented for integers (also as `Hex`), floats and bool:
    // all their bytes are initialised, and u8 has no alignment. The length is that of the slice in
    // bytes, the lifetime that of the slice.
    unsafe { core::slice::from_raw_parts(elements.as_ptr().cast::<u8>(), size_of_val(elements)) }
}

impl<T: Element, const N: usize> Field for [T; N] {
    const TYPE: FieldType = FieldType::Array { count: N as u32, element: &T::TYPE };
    const FIXED: Option<usize> = Some(size_of::<[T; N]>());
    short!(&Self);

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        out.raw(memory(self));
    }

    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        out.source(memory(self));
    }
}

impl<T: Element> Field for [T] {
    const TYPE: FieldType = T::SLICE;
    const FIXED: Option<usize> = None;
    short!(&[T]);

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        // A slice with more elements than a u32 can count is larger than any sub-buffer, so the
        // ring refuses it.
        out.scalar(u64::from(self.len() as u32), 4);
        out.raw(memory(self));
    }

    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        out.scalar(u64::from(self.len() as u32), 4);
        out.source(memory(self));
    }
}

/// Three texts that are recorded as one.
#[derive(Debug, Clone, Copy)]
pub struct Joined<'a>(pub(crate) [&'a str; 3]);

impl<'t> Joined<'t> {
    /// Returns `None` or `Some(TEXT)` as text.
    fn option(text: Option<&'t str>) -> Self {
        Self(text.map_or(["None", "", ""], |text| ["Some(", text, ")"]))
    }
}

impl Field for Joined<'_> {
    const TYPE: FieldType = FieldType::String;
    const FIXED: Option<usize> = None;
    short!(Self);

    #[inline]
    fn write(&self, out: &mut impl Out) {
        self.0.iter().for_each(|part| out.part_of_text(part.as_bytes()));
        out.raw(&[0]);
    }

    fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
        self.0.iter().for_each(|part| out.source_text(part.as_bytes()));
        out.raw(&[0]);
    }
}

// The bytes of a path are recorded without changes, whether they are UTF-8 or not.
text! {
    [] str, (&str), |value| value.as_bytes();
    [] OsStr, (&OsStr), |value| value.as_bytes();
    [] CStr, (&CStr), |value| value.to_bytes();
}

as_short! {
    FieldType::String, None;
    [] String, &'a str, |value| value;
    [] Box<str>, &'a str, |value| value;
    ['t] Cow<'t, str>, &'a str, |value| value;
    [] Arc<str>, &'a str, |value| value;
    [] OsString, &'a OsStr, |value| value;
    [] Path, &'a OsStr, |value| value.as_os_str();
    [] PathBuf, &'a OsStr, |value| value.as_os_str();
    [] CString, &'a CStr, |value| value;
    ['t] Option<&'t str>, Joined<'a>, |value| Joined::option(*value);
    [] Option<String>, Joined<'a>, |value| Joined::option(value.as_deref());
}
as_short!(T::SLICE, None; [T: Element] Vec<T>, &'a [T], |value| value;);
as_short!(T::TYPE, T::FIXED; [T: Field + ?Sized] &mut T, T::Short<'a>, |value| T::short(value););
