//! Names of events as names of folders. A marker's name is its format string, which may contain any
//! character.

/// Largest length of a file name, in bytes.
const MOST: usize = 255;

/// Returns the name of the folder of a provider or an event. A slash, a percent sign, a control
/// character, and a dot at the beginning are written as `%` and two hexadecimal digits for each
/// byte. A name that is too long is cut.
pub(crate) fn folder(name: &str) -> String {
    let mut folder = String::new();
    for (at, c) in name.char_indices() {
        let mut bytes = [0; 4];
        let is_escaped = c.is_control() || matches!(c, '/' | '%') || c == '.' && at == 0;
        let piece = match is_escaped {
            true => c.encode_utf8(&mut bytes).bytes().map(|byte| format!("%{byte:02X}")).collect(),
            false => c.to_string(),
        };
        if folder.len() + piece.len() > MOST {
            break;
        }
        folder.push_str(&piece);
    }
    if folder.is_empty() { "%".to_owned() } else { folder }
}

/// Appends a suffix to the name of a folder, which is cut where it would be too long.
pub(crate) fn with_suffix(folder: &str, suffix: &str) -> String {
    let room = MOST.saturating_sub(suffix.len());
    let end =
        (0..=room.min(folder.len())).rev().find(|at| folder.is_char_boundary(*at)).unwrap_or(0);
    format!("{}{suffix}", &folder[..end])
}

/// Splits `provider:name` at the first colon that is not a part of `::`, which stands between the
/// modules of a provider.
pub(crate) fn split(full: &str) -> Option<(&str, &str)> {
    let bytes = full.as_bytes();
    let is_colon = |at: usize| bytes.get(at) == Some(&b':');
    let is_single =
        |at: &usize| is_colon(*at) && !is_colon(at + 1) && !at.checked_sub(1).is_some_and(is_colon);
    let at = (0..bytes.len()).find(is_single)?;
    Some((&full[..at], &full[at + 1..]))
}

/// Returns a glob that matches this text alone.
pub(crate) fn glob_of(text: &str) -> String {
    let escape =
        |c: char| if matches!(c, '*' | '?' | '[') { format!("[{c}]") } else { c.to_string() };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_file_names() {
        assert_eq!(folder("sale"), "sale");
        assert_eq!(folder("a/b {x}%\n"), "a%2Fb {x}%25%0A");
        assert_eq!(
            (folder(".."), folder(".a."), folder("")),
            ("%2E.".into(), "%2Ea.".into(), "%".into())
        );
        assert!(folder(&"é/".repeat(200)).len() <= MOST);
    }

    #[test]
    fn modules_are_a_part_of_the_provider() {
        assert_eq!(split("shop:sale"), Some(("shop", "sale")));
        assert_eq!(split("a::b:c: {}"), Some(("a::b", "c: {}")));
        assert_eq!((split("a::b"), split("a")), (None, None));
        assert_eq!(split(":x"), Some(("", "x")));
    }

    #[test]
    fn a_glob_of_a_name_matches_that_name_alone() {
        let glob = glob_of("a*[b]?");
        assert!(lastwords_glob::matches(&glob, "a*[b]?"), "{glob}");
        assert!(
            !lastwords_glob::matches(&glob, "axx[b]?") && !lastwords_glob::matches(&glob, "a*b?"),
            "{glob}"
        );
    }
}
