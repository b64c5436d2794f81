//! Values that are recorded as text, which is formatted on the stack.

use std::fmt::{self, Debug, Display, Write as _};
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use super::{Field, Out, as_short, short, text};
use crate::process::cut_len;
use crate::session::desc::FieldType;

/// Largest size of the text of `?value` and `%value`, in bytes.
const ROOM: usize = 256;
/// Size of the longest address with a port, in bytes.
const ADDRESS_ROOM: usize = 64;
/// The end of a text that was cut.
pub(crate) const CUT: &str = "…";

/// Formatted text of at most `N` bytes, on the stack. Text that does not fit is cut at a character,
/// and `…` marks the cut.
#[derive(Clone, Copy)]
pub struct Formatted<const N: usize> {
    bytes: [MaybeUninit<u8>; N],
    /// Number of bytes that are initialised.
    len: usize,
    is_cut: bool,
}

impl<const N: usize> Formatted<N> {
    /// Returns an empty text. A constant would be copied, with bytes that mean nothing.
    #[inline(always)]
    pub(crate) fn empty() -> Self {
        Self { bytes: [const { MaybeUninit::uninit() }; N], len: 0, is_cut: false }
    }

    #[inline]
    pub(crate) fn new(arguments: fmt::Arguments<'_>) -> Self {
        let mut text = Self::empty();
        // If formatting fails, the part written so far is recorded.
        let _ = text.write_fmt(arguments);
        text
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        let bytes = &self.bytes[..self.len];
        // SAFETY: `put` has initialised these bytes.
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
    }

    /// Returns true if some text found no room.
    #[cfg(feature = "tracing")]
    #[inline(always)]
    pub(crate) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Appends UTF-8 text.
    #[inline]
    pub(crate) fn push(&mut self, text: &[u8]) {
        if self.is_cut {
            return;
        }
        let most = N - CUT.len() - self.len;
        if text.len() <= most {
            self.put(text);
        } else {
            self.put(&text[..cut_len(text, most)]);
            self.put(CUT.as_bytes());
            self.is_cut = true;
        }
    }

    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        let room = &mut self.bytes[self.len..self.len + bytes.len()];
        // SAFETY: `room` has as many bytes as `bytes`, and nobody else uses it.
        unsafe { lastwords_ring::copy(bytes.as_ptr(), room.as_mut_ptr().cast(), bytes.len()) };
        self.len += bytes.len();
    }
}

impl<const N: usize> fmt::Write for Formatted<N> {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

/// The value of `?value`: see [`event!`](crate::event).
#[doc(hidden)]
pub struct Debugged<'v, T: ?Sized>(pub &'v T);

/// The value of `%value`: see [`event!`](crate::event).
#[doc(hidden)]
pub struct Displayed<'v, T: ?Sized>(pub &'v T);

text!([const N: usize] Formatted<N>, (Self), |value| value.as_bytes(), #[inline(always)] fn is_cut(&self) -> bool { self.is_cut };);

// The value is formatted once, when it is passed on.
as_short! {
    FieldType::String, None;
    ['v, T: Debug + ?Sized] Debugged<'v, T>, Formatted<ROOM>, |value| Formatted::new(format_args!("{:?}", value.0));
    ['v, T: Display + ?Sized] Displayed<'v, T>, Formatted<ROOM>, |value| Formatted::new(format_args!("{}", value.0));
    [] IpAddr, Formatted<ADDRESS_ROOM>, |value| Formatted::new(format_args!("{value}"));
    [] Ipv4Addr, Formatted<ADDRESS_ROOM>, |value| Formatted::new(format_args!("{value}"));
    [] Ipv6Addr, Formatted<ADDRESS_ROOM>, |value| Formatted::new(format_args!("{value}"));
    [] SocketAddr, Formatted<ADDRESS_ROOM>, |value| Formatted::new(format_args!("{value}"));
    [] SocketAddrV4, Formatted<ADDRESS_ROOM>, |value| Formatted::new(format_args!("{value}"));
    [] SocketAddrV6, Formatted<ADDRESS_ROOM>, |value| Formatted::new(format_args!("{value}"));
}
