//! Values that are recorded as the text that they are formatted to, and values of the standard library.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fmt::{self, Debug, Display, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::writer::INNER_NUL;
use super::{Element, Field, Out, Pieces, short};
use crate::session::registry::FieldType;

/// Most bytes of text that `?value` and `%value` are recorded as.
const ROOM: usize = 256;
/// Bytes of the longest address and port.
const ADDRESS_ROOM: usize = 64;
/// What stands at the end of text that was cut.
const CUT: &str = "…";

/// Formatted text of at most `N` bytes, on the stack. Text that does not fit is cut at a character, and `…` marks the cut.
#[derive(Clone, Copy)]
pub struct Formatted<const N: usize> {
    bytes: [u8; N],
    len: usize,
    is_cut: bool,
}

impl<const N: usize> Formatted<N> {
    #[inline]
    fn new(arguments: fmt::Arguments<'_>) -> Self {
        let mut text = Self { bytes: [0; N], len: 0, is_cut: false };
        // A value whose formatting fails is recorded as far as it went.
        let _ = text.write_fmt(arguments);
        text
    }

    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

impl<const N: usize> fmt::Write for Formatted<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = N - CUT.len() - self.len.min(N - CUT.len());
        if self.is_cut {
            return Ok(());
        }
        if text.len() <= room {
            self.put(text.as_bytes());
            return Ok(());
        }
        let len = (0..=room).rev().find(|len| text.is_char_boundary(*len)).unwrap_or(0);
        self.put(&text.as_bytes()[..len]);
        self.put(CUT.as_bytes());
        self.is_cut = true;
        Ok(())
    }
}

/// A field that is text, of these bytes, and is passed on as it is or as a reference.
macro_rules! text_of {
    ($([$($generic:tt)*] $T:ty, $short:ty, |$value:ident| $to_short:expr, $bytes:expr;)*) => { $(
        impl<$($generic)*> Field for $T {
            const TYPE: FieldType = FieldType::String;
            const FIXED: Option<usize> = None;
            const TEXT: bool = true;
            type Short<'a>
                = $short
            where
                Self: 'a;

            #[inline(always)]
            fn short(&self) -> Self::Short<'_> {
                let $value = self;
                $to_short
            }

            #[inline(always)]
            fn text(&self) -> &[u8] {
                let $value = self;
                $bytes
            }

            #[inline(always)]
            fn size(&self) -> usize {
                self.text().len() + 1
            }

            #[inline(always)]
            fn write(&self, out: &mut impl Out) {
                out.text(self.text());
            }

            fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
                out.0.source_text(self.text());
            }
        }
    )* };
}

// The bytes of a path are recorded as they are, whether they are UTF-8 or not.
text_of! {
    [const N: usize] Formatted<N>, Self, |value| *value, &value.bytes[..value.len];
    [] OsStr, &'a OsStr, |value| value, value.as_bytes();
    [] OsString, &'a OsStr, |value| value, value.as_bytes();
    [] Path, &'a OsStr, |value| value.as_os_str(), value.as_os_str().as_bytes();
    [] PathBuf, &'a OsStr, |value| value.as_os_str(), value.as_os_str().as_bytes();
    [] CStr, &'a CStr, |value| value, value.to_bytes();
    [] CString, &'a CStr, |value| value, value.to_bytes();
}

/// A field that is formatted once, when it is passed on.
macro_rules! formatted {
    ($([$($generic:tt)*] $T:ty, $room:expr, |$value:ident| $arguments:expr;)*) => { $(
        impl<$($generic)*> Field for $T {
            const TYPE: FieldType = FieldType::String;
            const FIXED: Option<usize> = None;
            const TEXT: bool = true;
            type Short<'a>
                = Formatted<{ $room }>
            where
                Self: 'a;

            #[inline]
            fn short(&self) -> Self::Short<'_> {
                let $value = self;
                Formatted::new($arguments)
            }

            fn size(&self) -> usize {
                self.short().size()
            }

            fn write(&self, out: &mut impl Out) {
                self.short().write(out);
            }
        }
    )* };
}

/// `?value`: see [`event!`](crate::event).
#[doc(hidden)]
pub struct Debugged<'v, T: ?Sized>(pub &'v T);

/// `%value`: see [`event!`](crate::event).
#[doc(hidden)]
pub struct Displayed<'v, T: ?Sized>(pub &'v T);

formatted! {
    ['v, T: Debug + ?Sized] Debugged<'v, T>, ROOM, |value| format_args!("{:?}", value.0);
    ['v, T: Display + ?Sized] Displayed<'v, T>, ROOM, |value| format_args!("{}", value.0);
    [] IpAddr, ADDRESS_ROOM, |value| format_args!("{value}");
    [] Ipv4Addr, ADDRESS_ROOM, |value| format_args!("{value}");
    [] Ipv6Addr, ADDRESS_ROOM, |value| format_args!("{value}");
    [] SocketAddr, ADDRESS_ROOM, |value| format_args!("{value}");
    [] SocketAddrV4, ADDRESS_ROOM, |value| format_args!("{value}");
    [] SocketAddrV6, ADDRESS_ROOM, |value| format_args!("{value}");
}

/// Whole seconds, and nanoseconds from 0 to 999,999,999: two numbers, so that no value is too large.
impl Field for Duration {
    const TYPE: FieldType = FieldType::Array { count: 2, element: &<u64 as Element>::TYPE };
    const FIXED: Option<usize> = Some(16);
    short!(Self);

    #[inline(always)]
    fn size(&self) -> usize {
        16
    }

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        out.scalar(self.as_secs(), 8);
        out.scalar(u64::from(self.subsec_nanos()), 8);
    }
}

/// Whole seconds since 1970, rounded down, and nanoseconds from 0 to 999,999,999 after them.
impl Field for SystemTime {
    const TYPE: FieldType = FieldType::Array { count: 2, element: &<i64 as Element>::TYPE };
    const FIXED: Option<usize> = Some(16);
    short!(Self);

    #[inline(always)]
    fn size(&self) -> usize {
        16
    }

    #[inline]
    fn write(&self, out: &mut impl Out) {
        // Linux has the seconds in 64 bits, signed: none of these wraps.
        let (seconds, nanoseconds) = match self.duration_since(UNIX_EPOCH) {
            Ok(since) => (since.as_secs(), since.subsec_nanos()),
            Err(before) => match (before.duration().as_secs(), before.duration().subsec_nanos()) {
                (seconds, 0) => (seconds.wrapping_neg(), 0),
                (seconds, nanoseconds) => (seconds.wrapping_neg().wrapping_sub(1), 1_000_000_000 - nanoseconds),
            },
        };
        out.scalar(seconds, 8);
        out.scalar(u64::from(nanoseconds), 8);
    }
}

/// A sequence of one value, or of none.
impl<T: Element> Field for Option<T> {
    const TYPE: FieldType = FieldType::Sequence(&T::TYPE);
    const FIXED: Option<usize> = None;
    short!(Self);

    #[inline(always)]
    fn size(&self) -> usize {
        4 + self.map_or(0, |_| size_of::<T>())
    }

    #[inline(always)]
    fn write(&self, out: &mut impl Out) {
        out.scalar(u64::from(self.is_some()), 4);
        if let Some(value) = self {
            out.scalar(value.word(), size_of::<T>());
        }
    }
}

/// The text `None`, or `Some(TEXT)`.
macro_rules! optional_text {
    ($($T:ty),*) => { $(
        impl Field for Option<$T> {
            const TYPE: FieldType = FieldType::String;
            const FIXED: Option<usize> = None;
            type Short<'a>
                = Option<&'a str>
            where
                Self: 'a;

            #[inline(always)]
            fn short(&self) -> Self::Short<'_> {
                self.as_deref()
            }

            #[inline]
            fn size(&self) -> usize {
                self.as_deref().map_or("None\0".len(), |text| "Some()\0".len() + text.len())
            }

            #[inline]
            fn write(&self, out: &mut impl Out) {
                let Some(text) = self.as_deref() else { return out.text(b"None") };
                out.raw(b"Some(");
                for (at, run) in text.as_bytes().split(|byte| *byte == 0).enumerate() {
                    if at > 0 {
                        out.raw(&[INNER_NUL]);
                    }
                    out.raw(run);
                }
                out.text(b")");
            }

            fn pieces<'a>(&'a self, out: &mut Pieces<'a>) {
                let Some(text) = self.as_deref() else { return out.text(b"None") };
                out.raw(b"Some(");
                for (at, run) in text.as_bytes().split(|byte| *byte == 0).enumerate() {
                    if at > 0 {
                        out.raw(&[INNER_NUL]);
                    }
                    out.0.source(run);
                }
                out.text(b")");
            }
        }
    )* };
}
optional_text!(&str, String);
