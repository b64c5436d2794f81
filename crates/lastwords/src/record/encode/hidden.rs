//! Values that are hidden at the callsite.

use std::fmt::{self, Debug, Display};

use super::{Field, Out, short, text};
use crate::session::desc::FieldType;
use crate::session::hidden::{Mark, Way};

/// The fact that a value is secret; see [`secret`].
#[derive(Clone, Copy)]
pub struct Secret(Mark);

/// A keyed hash of a value; see [`hashed`].
#[derive(Clone, Copy)]
pub struct Hashed(Mark);

/// Hides a value: the event has the field, and `<secret>` instead of the value, which is never
/// written anywhere.
///
/// ```
/// # let (user, password) = ("Ada", String::from("sesame"));
/// lastwords::event!(auth, "login", user, password = lastwords::secret(&password));
/// ```
///
/// It is `Display` and `Debug` too, for events of `tracing` and for logs:
/// `info!(password = %secret(&password))`.
#[inline(always)]
pub fn secret<T>(_value: T) -> Secret {
    Secret(Mark::secret())
}

/// Replaces a value by a keyed hash of its text, such as `#1f3a9c04d2e85b67`: equal values can be
/// found, but nobody can try a list of values without the key.
///
/// ```
/// # let user = "Ada";
/// lastwords::event!(auth, "login", user = lastwords::hashed(user));
/// ```
///
/// The hash is SipHash with a random key, which is in the memory of the process and of its forked
/// children only. So hashes can be compared within all sessions and snapshots of one process, and
/// not with those of another process or of a later run. A core dump of the process has the key (and
/// probably the values). If the system gives no random bytes, `<secret>` is recorded instead. The
/// text is that of `Display`: `hashed(7)` equals `hashed("7")`.
#[inline]
pub fn hashed<T: Display>(value: T) -> Hashed {
    Hashed(Mark::new(Way::Hashed, format_args!("{value}")))
}

text! {
    [] Secret, (Self), |value| value.0.as_bytes();
    [] Hashed, (Self), |value| value.0.as_bytes();
}

/// Shows values by their marks.
macro_rules! shown {
    ($($T:ty),*) => { $(
        impl Display for $T {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Display::fmt(&self.0, f)
            }
        }

        impl Debug for $T {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                Display::fmt(&self.0, f)
            }
        }
    )* };
}
shown!(Secret, Hashed);
