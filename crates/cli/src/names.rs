//! Names of files for names of sessions.

use std::collections::BTreeSet;

/// Longest name made.
const LONGEST: usize = 100;

/// The names given so far.
#[derive(Debug, Default)]
pub(crate) struct Taken(BTreeSet<String>);

impl Taken {
    /// A name for a file, from what an image calls a session: letters, digits, `.`, `_`, `-`; new each time.
    pub(crate) fn name(&mut self, session: &str) -> String {
        let safe = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
        let mut name: String = session.chars().take(LONGEST).map(safe).collect();
        if name.is_empty() || name.starts_with(['.', '-']) {
            name.insert(0, '_');
        }
        let mut new = name.clone();
        let mut count = 1;
        while !self.0.insert(new.clone()) {
            count += 1;
            new = format!("{name}-{count}");
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_in_the_folder_and_differ() {
        let mut taken = Taken::default();
        assert_eq!(taken.name("app"), "app");
        assert_eq!(taken.name("app"), "app-2");
        assert_eq!(taken.name("../../etc/passwd"), "_.._.._etc_passwd");
        assert_eq!(taken.name(""), "_");
        assert_eq!(taken.name("a\u{1b}[31m"), "a__31m");
    }
}
