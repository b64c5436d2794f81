//! Names for paths that are no regular files.

use std::fs::FileType;
use std::os::unix::fs::FileTypeExt;

/// Describes the kind of a path that is no regular file; `None` for a regular file. Call it before
/// opening a path: opening a FIFO waits for a writer that may never come.
#[must_use]
pub fn irregular(kind: FileType) -> Option<&'static str> {
    match kind {
        kind if kind.is_file() => None,
        kind if kind.is_dir() => Some("a folder, no regular file"),
        kind if kind.is_symlink() => Some("a symbolic link, no regular file"),
        kind if kind.is_fifo() => Some("a FIFO, no regular file"),
        kind if kind.is_socket() => Some("a socket, no regular file"),
        _ => Some("a device, no regular file"),
    }
}

#[cfg(test)]
mod tests {
    use super::irregular;
    use std::path::Path;

    #[test]
    fn kinds() {
        let kind =
            |path: &str| irregular(Path::new(path).symlink_metadata().expect("there").file_type());
        assert_eq!(kind("/proc/self/exe"), Some("a symbolic link, no regular file"));
        assert_eq!(kind("/proc"), Some("a folder, no regular file"));
        assert_eq!(kind("/dev/null"), Some("a device, no regular file"));
        assert_eq!(kind("/proc/self/stat"), None);
    }
}
