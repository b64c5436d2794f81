//! The registry region: descriptions of events, appended while the session lives.
//!
//! Order: [`RegionHeader`](crate::region::RegionHeader) at 0, [`RegistryControl`] at
//! [`CONTROL_OFF`], records from [`RECORDS_OFF`]. A record is a [`RecordHeader`] and `len - 16`
//! bytes of body, padded to 8. Records are appended under [`RegistryControl::lock`], and exist when
//! [`RegistryControl::end`] has passed them.
//!
//! Bodies are sequences of: `u8`, `u16`, `u32`, `u64` native-endian, packed; `str` = u16 length and
//! UTF-8 bytes.

use crate::sync::AtomicU64;

/// Offset of [`RegistryControl`].
pub const CONTROL_OFF: usize = 128;
/// Offset of the first record.
pub const RECORDS_OFF: usize = 192;

/// The words of a registry that writers change.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct RegistryControl {
    /// Held while a record is appended. See [`crate::session::OwnerLock`].
    pub lock: AtomicU64,
    /// Offset in the region behind the last record; stored last.
    pub end: AtomicU64,
    /// Records that found no room.
    pub dropped: AtomicU64,
    /// Names of threads that were left out, because the registry was half full or its lock was not
    /// to be had.
    pub names_dropped: AtomicU64,
    /// Values of `tracing` that were cut or left out, because an event has room for a limited
    /// number of bytes.
    pub values_cut: AtomicU64,
    /// Offset of the record from which a writer looks for a thread's name to replace. It is
    /// changed under `lock`.
    pub names_at: AtomicU64,
    /// Largest id of a thread whose name was replaced by that of another thread, or 0. A name that
    /// is written for an id up to this ends with `|...`: events of an earlier thread with the same
    /// id may be there. It is changed under `lock`.
    pub names_replaced: AtomicU64,
    /// Texts in which a NUL was replaced by 0x1a, because a text ends at its first NUL. 0 in
    /// sessions of recorders that did not count them.
    pub values_changed: AtomicU64,
}
const _: () = assert!(size_of::<RegistryControl>() == 64 || cfg!(loom));

/// Begins each record.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct RecordHeader {
    /// Bytes of header and body, padding excluded.
    pub len: u32,
    /// One of `KIND_`.
    pub kind: u16,
    /// 0, or [`REPLACED`].
    pub flags: u16,
    /// [`crate::region::checksum`] of the body.
    pub check: u64,
}
/// Size of [`RecordHeader`].
pub const RECORD_HEADER_LEN: usize = 16;
const _: () = assert!(size_of::<RecordHeader>() == RECORD_HEADER_LEN);

/// Value of [`RecordHeader::flags`] while a thread's name is replaced in place: body and checksum
/// may not fit each other.
pub const REPLACED: u16 = 1;

/// An event class. Body: channel u16, id u16, level u8, field count u8, provider str, name str,
/// format str (markers: the format string, else empty), source file str, source line u32, then each
/// field: name str, type (below).
pub const KIND_EVENT: u16 = 1;
/// A user-defined context of a channel. Body: channel u16, index u16, name str, type. Only
/// fixed-size types.
pub const KIND_CONTEXT: u16 = 2;
/// A module mapped in a process. Body: pid u32, base u64 (load bias), start u64, end u64 (mapped
/// text), build id str (bytes, not text), path str.
pub const KIND_MODULE: u16 = 3;
/// A property of the trace (CTF `env`). Body: key str, value str.
pub const KIND_ENV: u16 = 4;
/// An event class of more than 255 fields. The body is that of [`KIND_EVENT`], but with the field
/// count as u16.
pub const KIND_EVENT_MANY: u16 = 5;
/// A property whose key is this and a thread id in base 10 has the thread's name as its value. The
/// id may begin with zeros. A thread id that was used again has a record for each name, unless
/// [`RegistryControl::names_dropped`] counts it. When names have half of the registry, the record
/// of a thread that has ended is replaced by one of equal length.
pub const ENV_THREAD: &str = "thread_";
/// Key of the property with the time that the machine had slept when the session began: the
/// nanoseconds that CLOCK_BOOTTIME was ahead of CLOCK_MONOTONIC, in decimal digits. It is not there
/// if that was less than a millisecond.
pub const ENV_SLEPT: &str = "slept_ns";
/// Key of the property with the value of the environment variable `LASTWORDS`, if it has directives
/// for events.
pub const ENV_ASKED: &str = "LASTWORDS";
/// Key of the property with the control group of the process that created the session, if its OOM
/// kills are counted: `id=INODE ns=INODE oom_kill=COUNT path=PATH`, the inodes of the group's folder
/// and of the namespace of its path. A session of several processes has none.
pub const ENV_CONTROL_GROUP: &str = "control_group";
/// Key of the property that says which directives of that variable were ignored, and why.
pub const ENV_IGNORED: &str = "LASTWORDS_IGNORED";

/// Field types: one byte, then what the line says.
pub mod field {
    /// Unsigned integer; then bytes u8 (1, 2, 4, 8), base u8 (10 or 16).
    pub const UNSIGNED: u8 = 1;
    /// Signed integer; then bytes u8, base u8.
    pub const SIGNED: u8 = 2;
    /// IEEE float; then bytes u8 (4 or 8).
    pub const FLOAT: u8 = 3;
    /// One byte, 0 or 1.
    pub const BOOL: u8 = 4;
    /// UTF-8 up to and with a NUL. An inner NUL of the source was replaced by 0x1a (SUB).
    pub const STRING: u8 = 5;
    /// u32 count, then that many elements; then the element's type (scalar).
    pub const SEQUENCE: u8 = 6;
    /// Elements only; then count u32, then the element's type (scalar).
    pub const ARRAY: u8 = 7;
    /// Enumeration; then the container (UNSIGNED or SIGNED with bytes and base), label count u16,
    /// each label: value u64 (sign-extended), str.
    pub const ENUM: u8 = 8;
    /// Fixed-size text, NUL-padded; then bytes u32.
    pub const TEXT: u8 = 9;
    /// Raw bytes: u32 count, then that many bytes, shown in hexadecimal.
    pub const BYTES: u8 = 10;
    /// A field that an event may lack; then the type of its value: a scalar, STRING or TEXT. The
    /// payload of a class with such fields begins with a bit for each of them, in their order,
    /// padded to whole bytes: 1 if the event has the field. The first bit is the lowest of its byte
    /// in little endian, and the highest in big endian. A field that the event lacks takes no
    /// bytes.
    pub const OPTIONAL: u8 = 11;
}

/// Severity of an event, as in tracing: most severe first.
pub mod level {
    /// Error.
    pub const ERROR: u8 = 1;
    /// Warning.
    pub const WARN: u8 = 2;
    /// Information.
    pub const INFO: u8 = 3;
    /// Debug.
    pub const DEBUG: u8 = 4;
    /// Trace.
    pub const TRACE: u8 = 5;
}
