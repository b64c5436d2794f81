//! Keeps the open files of a helper from the programs that it starts.

/// Makes all files from descriptor 3 on close when this process executes a program. A helper of the
/// kernel may have got files that are meant for it alone, such as the kernel's handle on the dying
/// process. Kernels before 5.11 cannot do this; then nothing is done.
pub fn close_files_at_exec() {
    // SAFETY: the call only changes the close-on-exec flags of descriptors. It closes none, so that
    // their owners keep them.
    unsafe { libc::syscall(libc::SYS_close_range, 3u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
}

/// Keeps one open file for the program that this process executes next, after
/// [`close_files_at_exec`]. A number without an open file changes nothing.
pub fn keep_file_at_exec(number: i32) {
    // SAFETY: the call only changes the close-on-exec flag of a descriptor, if there is one of this
    // number.
    unsafe { libc::fcntl(number, libc::F_SETFD, 0) };
}
