//! Makes file names from names of sessions.

use std::collections::BTreeSet;

/// The longest name, in characters, before a number is added to it.
const LONGEST: usize = 100;

/// The file names that were given out in one folder.
#[derive(Debug, Default)]
pub struct FileNames(BTreeSet<String>);

impl FileNames {
    /// Returns a name for a file or folder that it has not returned before.
    ///
    /// `session` may come from a damaged image. The result has only letters, digits, `.`, `_` and
    /// `-`, so it stays in its folder.
    pub fn unique(&mut self, session: &str) -> String {
        let safe = |c: char| {
            if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' }
        };
        let mut name: String = session.chars().take(LONGEST).map(safe).collect();
        if name.is_empty() || name.starts_with(['.', '-']) {
            name.insert(0, '_');
        }
        let mut unique = name.clone();
        let mut count = 1_u64;
        while !self.0.insert(unique.clone()) {
            count = count.saturating_add(1);
            unique = format!("{name}-{count}");
        }
        unique
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_folder_and_differ() {
        let mut names = FileNames::default();
        assert_eq!(names.unique("app"), "app");
        assert_eq!(names.unique("app"), "app-2");
        assert_eq!(names.unique("../../etc/passwd"), "_.._.._etc_passwd");
        assert_eq!(names.unique(""), "_");
        assert_eq!(names.unique("a\u{1b}[31m"), "a__31m");
    }
}
