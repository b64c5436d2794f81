//! The words behind a verb. The help of a verb is the table of its options, too. An error of
//! [`lexopt`] ends the program with status 2.

use std::ffi::OsString;

use lexopt::Arg::{Long, Short};

/// The options that were given, without their dashes, with their values.
#[derive(Debug, Default)]
pub(crate) struct Given(Vec<(String, String)>);

impl Given {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(given, _)| given == name)
    }

    /// The values of an option, in the order in which they were given.
    pub(crate) fn values(&self, name: &str) -> Vec<String> {
        self.0.iter().filter(|(given, _)| given == name).map(|(_, value)| value.clone()).collect()
    }
}

/// Reads the words behind a verb; `None` where they ask for its help. An option is a line of the
/// help that begins with `--NAME`, with `--NAME <VALUE>`, or with `--NAME <VALUE>...` if it may be
/// given several times.
pub(crate) fn parse(help: &str, words: &[OsString]) -> Result<Option<Given>, lexopt::Error> {
    let mut given = Given::default();
    let mut parser = lexopt::Parser::from_args(words);
    while let Some(word) = parser.next()? {
        let option = match word {
            Short('h') | Long("help") => return Ok(None),
            Long(name) => lines(help).find(|(known, _)| *known == name),
            _ => None,
        };
        let Some((name, rest)) = option else { return Err(word.unexpected()) };
        if given.has(name) && !rest.contains(">...") {
            return Err(format!("`--{name}` is given twice").into());
        }
        let value = if rest.starts_with('<') { parser.value()? } else { OsString::new() };
        given.0.push((name.to_owned(), value.to_string_lossy().into_owned()));
    }
    Ok(Some(given))
}

/// The names of the options in a help, each with what stands behind it.
fn lines(help: &str) -> impl Iterator<Item = (&str, &str)> {
    help.lines().filter_map(|line| line.trim_start().strip_prefix("--")?.split_once(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: &str = "Run\n\n  --step <NAME>...  This step\n  --full            All, with --part\n  --part <NAME>     A part\n  -h, --help  This";

    fn read(words: &[&str]) -> Result<Option<Given>, lexopt::Error> {
        parse(HELP, &words.iter().map(Into::into).collect::<Vec<_>>())
    }

    #[test]
    fn values_in_their_order() {
        let given = read(&["--step=a", "--step", "b"]).unwrap().unwrap();
        assert_eq!(given.values("step"), ["a", "b"]);
        assert!(given.has("step") && !given.has("full"));
        assert!(read(&["--full", "-h"]).unwrap().is_none() && read(&["--help"]).unwrap().is_none());
    }

    #[test]
    fn wrong_words_are_named() {
        for words in [
            &["--fast"][..],
            &["--full=1"],
            &["--step"],
            &["--full", "--full"],
            &["--part=a", "--part=b"],
        ] {
            let said = read(words).unwrap_err().to_string();
            assert!(said.contains(words[0].split('=').next().unwrap()), "{words:?}: {said}");
        }
        assert!(read(&["fast"]).unwrap_err().to_string().contains("fast"));
    }
}
