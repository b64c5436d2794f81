//! The examples of all verbs. `-h`, `--help` and the manual pages show them from this table.

/// A command line, and what it does.
pub(crate) type Example = (&'static str, &'static str);

/// The examples of each verb and of each verb below a verb: after the line that names the verb, a
/// line for each command, with what it does behind a `#`.
const EXAMPLES: &str = include_str!("examples.txt");

/// Returns all verbs that have examples, with their lines. The empty name is the program.
fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    let section = |text: &'static str| {
        let (verb, lines) = text.split_once(":\n")?;
        Some((verb.strip_prefix("lastwords")?.trim_start(), lines))
    };
    // These verbs are left out with their features.
    const NEED: [(&str, bool); 2] =
        [("ingest", cfg!(feature = "arrow")), ("watch-guest", cfg!(feature = "guests"))];
    let is_there = |(verb, _): &(&str, &str)| !NEED.contains(&(*verb, false));
    EXAMPLES.split("\n\n").filter_map(section).filter(is_there)
}

/// Returns the examples of a verb.
pub(crate) fn for_verb(verb: &str) -> Vec<Example> {
    let lines = sections().find(|(name, _)| *name == verb).map_or("", |(_, lines)| lines);
    lines.lines().filter_map(|line| line.trim_start().split_once("  # ")).collect()
}

/// Formats examples for a terminal: the commands in one column, what they do in the next.
pub(crate) fn text(examples: &[Example]) -> String {
    let width = examples.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    let lines = examples.iter().map(|(command, what)| format!("\n  {command:width$}  {what}"));
    format!("Examples:{}", lines.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    /// Splits a command as a shell does: at spaces outside of quotes. What follows a pipe, `>` or
    /// `&&` is not part of it.
    fn words(command: &str) -> Vec<String> {
        let (mut words, mut word, mut is_word, mut quoted) =
            (Vec::new(), String::new(), false, false);
        for letter in command.chars() {
            match letter {
                '\'' => (quoted, is_word) = (!quoted, true),
                '|' | '>' | '&' if !quoted => break,
                ' ' if !quoted => {
                    if std::mem::take(&mut is_word) {
                        words.push(std::mem::take(&mut word));
                    }
                }
                letter => {
                    word.push(letter);
                    is_word = true;
                }
            }
        }
        words.extend(is_word.then_some(word));
        words
    }

    fn paths(command: &clap::Command, above: &str, found: &mut Vec<String>) {
        found.push(above.to_owned());
        for verb in command.get_subcommands().filter(|verb| !verb.is_hide_set()) {
            paths(verb, format!("{above} {}", verb.get_name()).trim_start(), found);
        }
    }

    #[test]
    fn each_verb_has_examples_and_no_other_has() {
        let mut verbs = Vec::new();
        paths(&crate::args::described(), "", &mut verbs);
        for verb in &verbs {
            assert!((1..=3).contains(&for_verb(verb).len()), "examples of {verb:?}");
        }
        for (verb, lines) in sections() {
            assert!(verbs.iter().any(|known| known == verb), "there is no verb {verb:?}");
            assert_eq!(for_verb(verb).len(), lines.lines().count(), "{verb:?}");
        }
        assert_eq!(sections().count(), verbs.len());
    }

    #[test]
    fn each_example_is_a_command_of_its_verb() {
        for (verb, _) in sections() {
            let examples = for_verb(verb);
            for (command, what) in &examples {
                assert!(command.starts_with(format!("lastwords {verb}").trim_end()), "{command}");
                assert!(!what.is_empty() && !what.ends_with('.'), "{what}");
                if let Err(error) = crate::args::Args::try_parse_from(words(command)) {
                    panic!("{command}: {error}");
                }
            }
            let text = text(&examples);
            assert!(text.lines().all(|line| line.len() <= 100), "{text}");
        }
    }

    #[test]
    fn words_are_those_of_a_shell() {
        assert_eq!(words("a 'b c|' --d='e' '' | f"), ["a", "b c|", "--d=e", ""]);
    }
}
