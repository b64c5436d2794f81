//! A file of a FUSE file system that never answers a read. Whoever reads it, also through a
//! mapping, waits in a state in which signals do not end him.

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};

const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const RELEASE: u32 = 18;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
const FORGET: u32 = 2;
const ENOSYS: i32 = 38;
/// Size of the file.
const SIZE: u64 = 1 << 20;

/// The mounted file. Dropped, all who wait for it get errors.
pub(crate) struct Silent(PathBuf);

impl Silent {
    pub(crate) fn mount(path: &Path) -> Self {
        fs::write(path, "").expect("a file");
        let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
            .expect("FUSE");
        let data =
            format!("fd={},rootmode=100666,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        let data = CString::new(data).expect("text");
        mount(
            "silent",
            path,
            "fuse",
            MountFlags::NOSUID | MountFlags::NODEV,
            Some(data.as_c_str()),
        )
        .expect("mounted");
        let device = File::from(device);
        std::thread::spawn(move || serve(device));
        Self(path.to_owned())
    }
}

impl Drop for Silent {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::FORCE | UnmountFlags::DETACH);
    }
}

/// Answers requests until the file system is unmounted, but no reads.
fn serve(mut device: File) {
    let mut request = vec![0; 1 << 20];
    while let Ok(len) = device.read(&mut request) {
        if len < 40 {
            return;
        }
        let word = |at: usize| u32::from_ne_bytes(*request[at..].first_chunk().expect("a header"));
        let answer = match word(4) {
            READ | FORGET => continue,
            INIT => Ok(init()),
            GETATTR => Ok(attributes()),
            OPEN => Ok(vec![0; 16]),
            RELEASE | FLUSH => Ok(Vec::new()),
            _ => Err(-ENOSYS),
        };
        let (error, body) = answer.map_or_else(|error| (error, Vec::new()), |body| (0, body));
        let head = [
            &(16 + body.len() as u32).to_ne_bytes()[..],
            &i32::to_ne_bytes(error),
            &request[8..16],
        ]
        .concat();
        if device.write_all(&[head, body].concat()).is_err() {
            return;
        }
    }
}

/// `struct fuse_init_out` of linux/fuse.h.
fn init() -> Vec<u8> {
    let mut body: Vec<u8> = [7u32, 31, 1 << 16, 0].map(u32::to_ne_bytes).concat();
    body.extend([12u16, 10].map(u16::to_ne_bytes).concat());
    body.extend([1u32 << 16, 1].map(u32::to_ne_bytes).concat());
    body.resize(64, 0);
    body
}

/// `struct fuse_attr_out`: a file that everybody may read and write.
fn attributes() -> Vec<u8> {
    let mut body: Vec<u8> =
        [3600u64, 0, 1, SIZE, SIZE / 512, 0, 0, 0].map(u64::to_ne_bytes).concat();
    body.extend([0u32, 0, 0, 0o100_666, 1, 0, 0, 0, 4096, 0].map(u32::to_ne_bytes).concat());
    body
}
