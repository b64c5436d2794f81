//! Names of folders: `NAME-UNIQUE`.

use std::path::Path;

/// Digits of the unique part.
const DIGITS: usize = 16;

/// Returns the name of the session that has a folder of this name.
#[must_use]
pub fn name_of(folder: &str) -> &str {
    folder.rsplit_once('-').map_or(folder, |(name, _)| name)
}

/// Returns the end of the name of a session's folder: 16 hexadecimal digits, the first half of its
/// random UUID.
#[must_use]
pub fn unique_of(uuid: &[u8; 16]) -> String {
    uuid[..DIGITS / 2].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns true if the text is what [`unique_of`] returns for some UUID.
#[must_use]
pub fn is_unique(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Returns true if a path has the name of a session's folder. The folder of a session that is still
/// being created has a name that begins with a dot, and is none yet.
#[must_use]
pub fn is_session_folder(path: &Path) -> bool {
    let name =
        path.file_name().and_then(|name| name.to_str()).filter(|name| !name.starts_with('.'));
    name.and_then(|name| name.rsplit_once('-')).is_some_and(|(_, unique)| is_unique(unique))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_known_by_its_last_word() {
        let uuid = std::array::from_fn(|n| n as u8 * 17);
        let folder = format!("/run/a-b-{}", unique_of(&uuid));
        assert_eq!(folder, "/run/a-b-0011223344556677");
        assert!(is_session_folder(folder.as_ref()));
        assert_eq!(name_of("a-b-0011223344556677"), "a-b");
        for other in [
            "/run/0011223344556677",
            "/run/a-001122334455667",
            "/run/a-001122334455667g",
            "/",
            "a-",
            ".new-0011223344556677",
        ] {
            assert!(!is_session_folder(other.as_ref()), "{other}");
        }
    }
}
