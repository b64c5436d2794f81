//! Contexts: the values that precede each payload of a channel that requests them.

use std::borrow::Cow;
use std::sync::Arc;

use lastwords_abi::context as bits;
use lastwords_filter::Value;

use crate::process::identity::{Identity, identity};
use crate::record::encode::writer::Bytes;
use crate::record::encode::{Field, Out};
use crate::session::user_context::MAX_LEN;

pub use crate::process::identity::refresh_thread;
pub use crate::session::user_context::UserContext;

impl UserContext {
    /// Makes a context of this name. `read` returns its value. It runs in the recording thread at
    /// each event of the channel, perhaps inside a signal handler, so it must not allocate, lock,
    /// block or record.
    ///
    /// A type without a fixed size does not compile.
    pub fn new<F: Field>(name: &'static str, read: impl Fn() -> F + Send + Sync + 'static) -> Self {
        let size = const { F::FIXED.expect("a context has a fixed size") };
        let write = move |room: &mut [u8]| read().write(&mut Bytes::new(room));
        Self { name: Cow::Borrowed(name), ty: F::TYPE, size, read: Arc::new(write) }
    }
}

/// Returns the bytes of the contexts chosen by `mask` (bits of [`lastwords_abi::context`])
/// and of the user's.
#[must_use]
pub fn len(mask: u32, user: &[UserContext]) -> usize {
    let chosen = bits::KNOWN.iter().filter(|known| mask & known.bit != 0);
    let builtin: usize = chosen.map(|known| known.value.size()).sum();
    builtin + if mask & bits::USER == 0 { 0 } else { user.iter().map(|context| context.size).sum() }
}

/// Writes the contexts. The CPU is the current one; the thread may still move to another one before
/// the event is recorded.
#[inline(always)]
pub(crate) fn write(mask: u32, user: &[UserContext], out: &mut impl Out) {
    if mask & (bits::PID | bits::TID | bits::THREAD_NAME) != 0 {
        let me = identity();
        if mask & bits::PID != 0 {
            out.scalar(u64::from(me.pid), 4);
        }
        if mask & bits::TID != 0 {
            out.scalar(u64::from(me.tid), 4);
        }
        if mask & bits::THREAD_NAME != 0 {
            out.raw(&me.name);
        }
    }
    if mask & bits::CPU != 0 {
        out.scalar(u64::from(lastwords_ring::current_cpu()), 4);
    }
    if mask & bits::USER != 0 {
        write_user(user, out);
    }
}

/// Returns the value that a context has now in the thread `me`, as filters compare it; none if there
/// is no such context.
pub(crate) fn value(bit: u32, me: &Identity) -> Option<Value<'_>> {
    Some(match bit {
        bits::PID => Value::Signed(me.pid.cast_signed().into()),
        bits::TID => Value::Signed(me.tid.cast_signed().into()),
        bits::THREAD_NAME => {
            Value::Text(me.name.split(|byte| *byte == 0).next().unwrap_or_default())
        }
        bits::CPU => Value::Unsigned(lastwords_ring::current_cpu().into()),
        _ => return None,
    })
}

/// Room for a value. Callbacks of other languages store numbers there in memory order.
#[repr(align(16))]
struct Room([u8; MAX_LEN]);

#[inline(never)]
fn write_user(user: &[UserContext], out: &mut impl Out) {
    let mut room = Room([0; MAX_LEN]);
    for context in user {
        if let Some(room) = room.0.get_mut(..context.size) {
            (context.read)(room);
            out.raw(room);
        }
    }
}
