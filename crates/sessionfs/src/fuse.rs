//! Serves a tree to the kernel's FUSE.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags, RenameFlags, ReplyAttr,
    ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyWrite, Request,
    TimeOrNow, WriteFlags,
};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use crate::mutex::guard;
use crate::tree::{Access, Entry, OpenFile, Tree};

/// Nothing is cached: events, sessions and their state change without the kernel's knowledge.
const TTL: Duration = Duration::ZERO;

/// The names in an open folder, with their numbers.
type Names = Vec<(u64, FileType, String)>;

/// The file system.
pub(crate) struct Fuse {
    tree: Tree,
    uid: u32,
    gid: u32,
    since: SystemTime,
    inodes: Mutex<Inodes>,
    files: Mutex<HashMap<u64, Arc<OpenFile>>>,
    folders: Mutex<HashMap<u64, Arc<Names>>>,
    next: AtomicU64,
}

/// The numbers of paths. A path keeps its number.
#[derive(Default)]
struct Inodes {
    numbers: HashMap<Arc<str>, u64>,
    paths: HashMap<u64, Arc<str>>,
}

impl Inodes {
    fn number(&mut self, path: &str) -> u64 {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        let (number, path): (u64, Arc<str>) =
            (self.numbers.len() as u64 + INodeNo::ROOT.0 + 1, path.into());
        self.paths.insert(number, Arc::clone(&path));
        self.numbers.insert(path, number);
        number
    }
}

impl Fuse {
    pub(crate) fn new(tree: Tree) -> Self {
        Self {
            tree,
            uid: geteuid().as_raw(),
            gid: getegid().as_raw(),
            since: SystemTime::now(),
            inodes: Mutex::default(),
            files: Mutex::default(),
            folders: Mutex::default(),
            next: AtomicU64::new(1),
        }
    }

    fn path(&self, inode: INodeNo) -> Result<Arc<str>, Errno> {
        if inode == INodeNo::ROOT {
            return Ok("".into());
        }
        guard(&self.inodes).paths.get(&inode.0).cloned().ok_or(Errno::NOENT)
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> Result<String, Errno> {
        let (parent, name) = (self.path(parent)?, name.to_str().ok_or(Errno::NOENT)?);
        Ok(if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") })
    }

    fn attributes(&self, inode: u64, entry: Entry) -> FileAttr {
        let kind = if entry.is_folder { FileType::Directory } else { FileType::RegularFile };
        let since = if self.since > UNIX_EPOCH { self.since } else { UNIX_EPOCH };
        FileAttr {
            ino: INodeNo(inode),
            size: 0,
            blocks: 0,
            atime: since,
            mtime: since,
            ctime: since,
            crtime: since,
            kind,
            perm: entry.mode,
            nlink: if entry.is_folder { 2 } else { 1 },
            uid: self.uid,
            gid: self.gid,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        }
    }

    fn look(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let path = self.child(parent, name)?;
        let entry = self.tree.entry(&path)?;
        let inode = guard(&self.inodes).number(&path);
        Ok(self.attributes(inode, entry))
    }

    fn attributes_of(&self, inode: INodeNo) -> Result<FileAttr, Errno> {
        Ok(self.attributes(inode.0, self.tree.entry(&self.path(inode)?)?))
    }

    fn open_file(&self, inode: INodeNo, flags: OpenFlags) -> Result<u64, Errno> {
        let mode = flags.acc_mode();
        let access = Access {
            read: mode != OpenAccMode::O_WRONLY,
            write: mode != OpenAccMode::O_RDONLY,
            truncate: has(flags, OFlags::TRUNC),
        };
        let file = self.tree.open(&self.path(inode)?, access)?;
        let handle = self.next.fetch_add(1, Relaxed);
        guard(&self.files).insert(handle, Arc::new(file));
        Ok(handle)
    }

    fn open_folder(&self, inode: INodeNo) -> Result<u64, Errno> {
        let path = self.path(inode)?;
        let mut names: Names =
            vec![(inode.0, FileType::Directory, ".".into()), (1, FileType::Directory, "..".into())];
        let listed = self.tree.list(&path)?;
        let mut inodes = guard(&self.inodes);
        for (name, entry) in listed {
            let kind = if entry.is_folder { FileType::Directory } else { FileType::RegularFile };
            let inode = inodes.number(&if path.is_empty() {
                name.clone()
            } else {
                format!("{path}/{name}")
            });
            names.push((inode, kind, name));
        }
        drop(inodes);
        let handle = self.next.fetch_add(1, Relaxed);
        guard(&self.folders).insert(handle, Arc::new(names));
        Ok(handle)
    }

    fn file(&self, handle: FileHandle) -> Option<Arc<OpenFile>> {
        guard(&self.files).get(&handle.0).cloned()
    }
}

fn errno(errno: Errno) -> fuser::Errno {
    fuser::Errno::from_i32(errno.raw_os_error())
}

fn has(flags: OpenFlags, wanted: OFlags) -> bool {
    OFlags::from_bits_retain(flags.0.cast_unsigned()).contains(wanted)
}

/// Returns true if the thread that made a request has a signal to handle. The kernel waits for the
/// answer before it lets the thread handle one, so that a read that waits must look for it.
fn is_interrupted(tid: u32) -> bool {
    let Ok(status) = std::fs::read_to_string(format!("/proc/{tid}/status")) else {
        return tid != 0;
    };
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    };
    (mask("SigPnd") | mask("ShdPnd")) & !mask("SigBlk") != 0
}

impl Filesystem for Fuse {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Opening with truncation is one request, as the kernel's own tracefs sees it.
        config
            .add_capabilities(InitFlags::FUSE_ATOMIC_O_TRUNC)
            .map_err(|_| io::Error::from(Errno::NOSYS))
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.look(parent, name) {
            Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn getattr(&self, _: &Request, inode: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attributes_of(inode) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        inode: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        _size: Option<u64>,
        _atime: Option<TimeOrNow>,
        _mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        if mode.is_some() || uid.is_some() || gid.is_some() {
            return reply.error(fuser::Errno::EPERM);
        }
        match self.attributes_of(inode) {
            Ok(attributes) => reply.attr(&TTL, &attributes),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        _mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let made = self.child(parent, name).and_then(|path| self.tree.make_folder(&path));
        match made.and_then(|()| self.look(parent, name)) {
            Ok(attributes) => reply.entry(&TTL, &attributes, Generation(0)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.child(parent, name).and_then(|path| self.tree.remove_folder(&path)) {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn mknod(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        reply.error(fuser::Errno::EACCES);
    }

    fn create(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _mode: u32,
        _umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        reply.error(fuser::Errno::EACCES);
    }

    fn unlink(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(fuser::Errno::EPERM);
    }

    fn rename(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: INodeNo,
        _: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        reply.error(fuser::Errno::EPERM);
    }

    fn open(&self, _: &Request, inode: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.open_file(inode, flags) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::FOPEN_DIRECT_IO),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let Some(file) = self.file(handle) else { return reply.error(fuser::Errno::EBADF) };
        let (tid, waits) = (request.pid(), !has(flags, OFlags::NONBLOCK));
        let is_waiting = waits && file.waits();
        let read = move || match file.read(offset, size as usize, waits, &|| is_interrupted(tid)) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(errno(error)),
        };
        if !is_waiting {
            return read();
        }
        // A reader that waits must not keep others from being served. If no thread can be made, the
        // reply is dropped, which is EIO.
        drop(std::thread::Builder::new().name("trace_pipe".into()).spawn(read));
    }

    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        _offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = self.file(handle).ok_or(Errno::BADF);
        match file.and_then(|file| file.write(request.pid(), data)) {
            Ok(taken) => reply.written(u32::try_from(taken).unwrap_or(u32::MAX)),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let file = guard(&self.files).remove(&handle.0);
        drop(file);
        reply.ok();
    }

    fn opendir(&self, _: &Request, inode: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.open_folder(inode) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(errno(error)),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let Some(names) = guard(&self.folders).get(&handle.0).cloned() else {
            return reply.error(fuser::Errno::EBADF);
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        for (at, (inode, kind, name)) in names.iter().enumerate().skip(from) {
            if reply.add(INodeNo(*inode), at as u64 + 1, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        guard(&self.folders).remove(&handle.0);
        reply.ok();
    }
}
