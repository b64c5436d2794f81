//! Contexts: what is written before each payload of a channel that asks for it.
//!
//! Process id, thread id and thread name are read once a thread and kept in thread-local storage without a destructor; a
//! forked child reads them anew.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use lastwords_abi::session::context as bits;

use crate::record::encode::writer::Bytes;
use crate::record::encode::{Field, Out};
use crate::session::registry::FieldType;

/// Bytes of the thread name context.
const NAME_LEN: usize = 16;

/// What a thread's events say of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    /// Value of [`FORKS`] for which this holds; 0 = not read yet.
    forks: u32,
    /// Process id, as the process sees it.
    pub(crate) pid: u32,
    /// Thread id.
    pub(crate) tid: u32,
    /// Thread name, NUL-padded.
    pub(crate) name: [u8; NAME_LEN],
}

/// One more than the forks between the process that first asked and this one.
static FORKS: AtomicU32 = AtomicU32::new(1);

thread_local! {
    static IDENTITY: Cell<Identity> = const { Cell::new(Identity { forks: 0, pid: 0, tid: 0, name: [0; NAME_LEN] }) };
}

extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Sees to it that forked children read their own ids. Called when a session is begun.
pub(crate) fn watch_forks() {
    static WATCH: Once = Once::new();
    WATCH.call_once(|| {
        // SAFETY: `forked` is an extern "C" function that lives as long as the process and only adds to an atomic.
        unsafe {
            libc::pthread_atfork(None, None, Some(forked));
        }
    });
}

/// This thread, from the cache.
#[inline]
pub(crate) fn identity() -> Identity {
    let cached = IDENTITY.get();
    if cached.forks == FORKS.load(Ordering::Relaxed) { cached } else { read_identity() }
}

#[cold]
fn read_identity() -> Identity {
    let mut name = [0u8; NAME_LEN];
    // SAFETY: PR_GET_NAME writes at most 16 bytes to the buffer given; getpid and gettid take nothing.
    let (pid, tid) = unsafe {
        libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
        (libc::getpid(), libc::syscall(libc::SYS_gettid))
    };
    let identity = Identity { forks: FORKS.load(Ordering::Relaxed), pid: pid as u32, tid: tid as u32, name };
    IDENTITY.set(identity);
    identity
}

/// Start time of this process, clock ticks since boot: read once, and once more in a forked child.
#[cfg(feature = "tracing")]
pub(crate) fn process_start() -> u64 {
    use std::sync::atomic::AtomicU64;
    static START: AtomicU64 = AtomicU64::new(0);
    static READ: AtomicU32 = AtomicU32::new(0);
    let forks = FORKS.load(Ordering::Relaxed);
    if READ.load(Ordering::Acquire) != forks {
        START.store(lastwords_ring::os::start_time(identity().pid), Ordering::Relaxed);
        READ.store(forks, Ordering::Release);
    }
    START.load(Ordering::Relaxed)
}

/// Reads this thread's name and ids anew: after a change of name, which is not noticed otherwise.
pub fn refresh_thread() {
    read_identity();
}

/// Writes the value of now to the room, which has its size.
type Read = dyn Fn(&mut [u8]) + Send + Sync;

/// A context that the application defines: a value of fixed size, read when an event is recorded.
#[derive(Clone)]
pub struct UserContext {
    name: Cow<'static, str>,
    ty: FieldType,
    size: usize,
    read: Arc<Read>,
}

impl UserContext {
    /// A context of this name, whose value `read` gives. `read` runs in the recording thread at each event of the channel,
    /// perhaps inside a signal handler: it must not allocate, lock, block or record.
    ///
    /// A type without a fixed size does not compile.
    pub fn new<F: Field>(name: &'static str, read: impl Fn() -> F + Send + Sync + 'static) -> Self {
        let size = const {
            match F::FIXED {
                Some(size) => size,
                None => panic!("a context has a fixed size"),
            }
        };
        let write = move |room: &mut [u8]| read().write(&mut Bytes::new(room));
        Self { name: Cow::Borrowed(name), ty: F::TYPE, size, read: Arc::new(write) }
    }

    /// A context whose type is only known now, for other languages: `read` writes the value to zeroed bytes, of the type's size
    /// and aligned for any type. None where the type has no fixed size. As for [`UserContext::new`] besides.
    pub fn of_type(
        name: impl Into<Cow<'static, str>>,
        ty: FieldType,
        read: impl Fn(&mut [u8]) + Send + Sync + 'static,
    ) -> Option<Self> {
        let write = move |room: &mut [u8]| {
            room.fill(0);
            read(room);
        };
        Some(Self { name: name.into(), ty, size: ty.fixed_size()?, read: Arc::new(write) })
    }

    /// Name of the field.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How its bytes are read.
    #[must_use]
    pub fn ty(&self) -> FieldType {
        self.ty
    }

    /// Bytes of the value.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }
}

impl fmt::Debug for UserContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserContext").field("name", &self.name).field("ty", &self.ty).finish_non_exhaustive()
    }
}

/// Most bytes of the contexts of a channel.
pub const MAX_LEN: usize = 192;

/// Bytes of the contexts chosen by `mask` (bits of [`lastwords_abi::session::context`]) and of the user's.
#[must_use]
pub fn len(mask: u32, user: &[UserContext]) -> usize {
    let fixed = [(bits::PID, 4), (bits::TID, 4), (bits::THREAD_NAME, NAME_LEN), (bits::CPU, 4)];
    let builtin: usize = fixed.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, len)| len).sum();
    builtin + if mask & bits::USER == 0 { 0 } else { user.iter().map(UserContext::size).sum() }
}

/// Writes the contexts; the CPU is the one of now, which the record can still leave.
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
        out.scalar(u64::from(lastwords_ring::cpu::current()), 4);
    }
    if mask & bits::USER != 0 {
        write_user(user, out);
    }
}

/// Room for a value; callbacks of other languages store numbers there as they are.
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
