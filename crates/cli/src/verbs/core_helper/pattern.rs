//! Composes the helper's `core_pattern`, and finds the old pattern in it.
//!
//! The old pattern stands in the new one as it was, behind the helper's own arguments. So the
//! kernel itself splits and expands it, with the rules of its version (core(5); fs/coredump.c), and
//! the helper gets the words as the old handler would have got them. The differences are handled
//! here: the kernel appends the process id to names of files (`core_uses_pid`), and does not split
//! them.

use anyhow::bail;

/// Largest number of bytes of a pattern (CORENAME_MAX_SIZE of fs/coredump.c, less a NUL).
const MOST: usize = 127;
/// The verb, as the kernel calls it.
const VERB: &str = "core-helper";
/// The arguments before the old pattern, if that was a pipe. Handles follow ([`Handle`]).
const PIPE: &str = "pipe %P %s %d";
/// The same if it was the name of a file; handle, `%c` and the process id follow.
const FILE: &str = "file %P %s %d";

/// The word after `%d`, without a space: whether the kernel gives the helper a handle of the
/// process (a pidfd; Linux 6.16 and newer, and some older kernels, such as Debian's 6.12). Other
/// kernels put nothing in the place of `%F`, so that one pattern serves all.
#[derive(Clone, Copy)]
enum Handle {
    /// The handle is for the helper.
    Own,
    /// The old handler asks for it too.
    Shared,
    /// The pattern has no room for it.
    None,
}

impl Handle {
    const ALL: [Self; 3] = [Self::Own, Self::Shared, Self::None];

    /// Returns the handle of the helper before this old pattern.
    fn before(old: &str) -> Self {
        let is_shared = old.starts_with('|') && has(old, 'F');
        if is_shared { Self::Shared } else { Self::Own }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Own => ",%F",
            Self::Shared => ",%F+",
            Self::None => "",
        }
    }
}

/// The socket of systemd-coredumpd.service (systemd 262 and newer, on Linux 6.19 and newer). Its
/// server takes no connection that another has accepted. systemd-coredump(8) names the command that
/// stops it; the pattern is then that of systemd's pipe.
const COREDUMPD: &str = "@@/run/systemd/coredumpd/kernel";

/// Returns the pattern that runs `program` and chains to `old`.
///
/// # Errors
/// The old pattern cannot be chained.
pub(super) fn compose(program: &str, old: &str) -> anyhow::Result<String> {
    check_socket(old)?;
    if !old.starts_with('|') {
        check_file(old)?;
    }
    let with_handle = composed(program, old, Handle::before(old));
    // A handle is worth less than an old pattern that is kept as it is.
    let pattern =
        if with_handle.len() > MOST { composed(program, old, Handle::None) } else { with_handle };
    if pattern.len() > MOST {
        bail!(
            "core_pattern would be {} bytes long, and the kernel takes {MOST}: `{pattern}`; copy the program to a shorter path, such as \
             /usr/bin/lastwords, and install that",
            pattern.len()
        );
    }
    Ok(pattern)
}

fn composed(program: &str, old: &str, handle: Handle) -> String {
    let handle = handle.text();
    match old.strip_prefix('|') {
        Some(handler) => {
            format!("|{program} {VERB} {PIPE}{handle} {}", handler.trim_matches(is_space))
        }
        None => {
            let pid = if has(old, 'p') { "-" } else { "%p" };
            format!("|{program} {VERB} {FILE}{handle} %c {pid} {old}").trim_end().to_owned()
        }
    }
}

/// Refuses a socket (`@PATH`, Linux 6.16; `@@PATH`, 6.17). The kernel connects to it as the dying
/// process, and the server knows the process by that connection alone (`SO_PEERPIDFD`): a core that
/// a helper passes on would be the helper's own. The server accepts the connection itself,
/// so that no helper can act before it.
fn check_socket(old: &str) -> anyhow::Result<()> {
    if !is_socket(old) {
        return Ok(());
    }
    let next = if old == COREDUMPD {
        "run `systemctl disable --now systemd-coredumpd.service` first, and systemd-coredump gets the cores through a pipe"
    } else {
        "set core_pattern to a file or a program first"
    };
    bail!(
        "core_pattern is `{old}`: the kernel sends cores to a socket, whose server learns from the connection which process dies, so that a \
         helper can neither stand before it nor pass a core on; {next}"
    )
}

/// Returns true for a pattern by which the kernel connects to a socket.
pub(crate) fn is_socket(pattern: &str) -> bool {
    pattern.starts_with('@')
}

/// A byte at which the kernel splits a pattern.
fn is_space(byte: char) -> bool {
    matches!(byte, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// Checks that the name of a file comes out of a pipe's pattern as it went in.
fn check_file(old: &str) -> anyhow::Result<()> {
    let spaces = old.starts_with(' ') || old.ends_with(' ') || old.contains("  ");
    // The kernel takes byte 0xa0 for a space, which is also a part of letters in UTF-8.
    if spaces || old.chars().any(|c| c != ' ' && is_space(c)) || !old.is_ascii() {
        bail!(
            "core_pattern is `{old}`: the kernel would not give the name of this file to a helper as it is; set core_pattern to a name of \
             ASCII characters without spaces at its ends and without two spaces in a row first"
        );
    }
    Ok(())
}

/// Returns true if the pattern has `%` and this letter. With `%p`, the kernel does not append the
/// process id.
fn has(pattern: &str, letter: char) -> bool {
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        if character == '%' && characters.next() == Some(letter) {
            return true;
        }
    }
    false
}

/// Returns the program of a helper's pattern, and the old pattern in it; none if it is the pattern
/// of another.
pub(super) fn parse(pattern: &str) -> Option<(&str, String)> {
    let (program, rest) = pattern.strip_prefix('|')?.split_once(' ')?;
    let rest = rest.strip_prefix(VERB)?.strip_prefix(' ')?;
    if let Some(handler) = rest.strip_prefix(PIPE) {
        return Some((program, format!("|{}", behind_handle(handler, " ")?)));
    }
    let rest = behind_handle(rest.strip_prefix(FILE)?, " %c ")?;
    // An empty name leaves only the argument before it.
    let (_, file) = rest.split_once(' ').unwrap_or((rest, ""));
    Some((program, file.to_owned()))
}

/// Returns what is behind a handle, of whatever kind, and `next`.
fn behind_handle<'a>(text: &'a str, next: &str) -> Option<&'a str> {
    Handle::ALL.into_iter().find_map(|handle| text.strip_prefix(handle.text())?.strip_prefix(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: &str = "/usr/bin/lastwords";

    #[test]
    fn a_pattern_that_was_composed_has_the_old_one_in_it() {
        let patterns = [
            "core",
            "core.%p",
            "",
            "/var/crash/core.%e.%P.%%p",
            "a name of words",
            "|/usr/lib/systemd/systemd-coredump %P %u %g %s %t %c %h",
            "|/usr/share/apport/apport -p%p -s%s -c%c -d%d -P%P -u%u -g%g -F%F -- %E",
            "|/bin/handler",
        ];
        for old in patterns {
            let composed = compose(PROGRAM, old).unwrap();
            assert!(composed.len() <= MOST, "{composed}");
            assert_eq!(parse(&composed), Some((PROGRAM, old.to_owned())), "{composed}");
        }
        let file = "|/usr/bin/lastwords core-helper file %P %s %d,%F %c - core.%p";
        assert_eq!(compose(PROGRAM, "core.%p").unwrap(), file);
        assert!(
            compose(PROGRAM, "core.%%p").unwrap().contains(" %p core.%%p"),
            "no process id is in it"
        );
    }

    #[test]
    fn a_handle_is_asked_for_where_there_is_room() {
        let of = |old: &str| compose(PROGRAM, old).unwrap();
        assert!(
            of("|/bin/handler %P %F").contains(" %d,%F+ /bin/handler"),
            "the handler gets it too"
        );
        assert!(of("|/bin/handler %P %%F").contains(" %d,%F /bin/handler"), "it asks for none");
        for old in [format!("|/{} %p", "x".repeat(76)), format!("/{}.%p", "x".repeat(72))] {
            let composed = of(&old);
            assert!(composed.len() > MOST - ",%F".len() && composed.contains(" %d "), "{composed}");
            assert_eq!(parse(&composed), Some((PROGRAM, old)), "{composed}");
        }
    }

    #[test]
    fn what_cannot_be_chained_is_refused() {
        let long = format!("|/{} %p", "x".repeat(120));
        for old in [
            "@/run/coredump.socket",
            "a\tb",
            "two  spaces",
            " core",
            "core ",
            "kern-\u{e0}.%p",
            &long,
        ] {
            assert!(compose(PROGRAM, old).is_err(), "{old}");
        }
    }

    #[test]
    fn the_refusal_of_a_socket_says_what_to_do() {
        let why = |old: &str| compose(PROGRAM, old).unwrap_err().to_string();
        assert!(
            why(COREDUMPD).contains("`systemctl disable --now systemd-coredumpd.service`"),
            "{}",
            why(COREDUMPD)
        );
        for old in ["@/run/coredump.socket", "@@/run/lastwords"] {
            assert!(
                why(old).ends_with("; set core_pattern to a file or a program first"),
                "{}",
                why(old)
            );
        }
    }

    #[test]
    fn other_patterns_are_not_ours() {
        for pattern in
            ["core", "|/bin/handler %p", "|/bin/x core-helper", "|/bin/x core-helper remove", ""]
        {
            assert_eq!(parse(pattern), None, "{pattern}");
        }
    }
}
