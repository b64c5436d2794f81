//! Parses values of options: numbers, ranges, globs.

use lastwords_render::select::is_well_formed;
use std::fmt::Display;
use std::ops::{Bound, RangeBounds};
use std::str::FromStr;

/// Parses a number of the command line.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let why = if is_number { "it is too large" } else { "not a number: give one such as 20" };
    text.parse().map_err(|_| why.to_owned())
}

/// Returns a parser of the numbers in a range, which has a first number.
pub(crate) fn within<T>(
    range: impl RangeBounds<T> + Clone,
) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: FromStr + PartialOrd + Display,
{
    move |text| {
        let number = number(text)?;
        match (range.contains(&number), range.start_bound(), range.end_bound()) {
            (true, ..) => Ok(number),
            (_, Bound::Included(first), Bound::Included(last)) => {
                Err(format!("give a number from {first} to {last}"))
            }
            (_, Bound::Included(first), _) => Err(format!("give {first} or more")),
            _ => Err("it is out of range".to_owned()),
        }
    }
}

/// Parses a glob, which must be well formed.
///
/// # Errors
/// A bracket has no end.
pub(crate) fn glob(text: &str) -> Result<String, String> {
    match is_well_formed(text) {
        _ if text.is_empty() => Err("it is empty: * matches all".to_owned()),
        true => Ok(text.to_owned()),
        false => {
            Err("the bracket has no end: [a-z] is one of these characters, [[] a bracket"
                .to_owned())
        }
    }
}

/// Checks a glob over the names of events, for rules and conditions. Those compare the whole
/// `provider:name`, so that a name alone becomes `*:name`, which is what it means for `report
/// --event`.
pub(crate) fn event_glob(text: &str) -> Result<String, String> {
    let glob = glob(text)?;
    Ok(if is_name(&glob) { format!("*:{glob}") } else { glob })
}

/// Returns true if a glob is a name alone: no provider, no wildcard.
pub(crate) fn is_name(glob: &str) -> bool {
    !glob.contains([':', '*', '?', '['])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_alone_is_one_of_any_provider() {
        for (text, glob) in
            [("order", "*:order"), ("shop:order", "shop:order"), ("*", "*"), ("o?der", "o?der")]
        {
            assert_eq!(event_glob(text).as_deref(), Ok(glob));
        }
        assert!(event_glob("[a").is_err());
    }

    #[test]
    fn a_bracket_without_its_end_is_refused() {
        assert!(glob("[a").is_err() && glob("a[!x]b[").is_err());
        assert_eq!(glob("[[]a[]x]").as_deref(), Ok("[[]a[]x]"));
    }
}
