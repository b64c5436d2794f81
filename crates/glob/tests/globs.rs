//! Globs compared with a table, and with another way to match: a set of places in the glob.
#![forbid(unsafe_code)]

use lastwords_glob::{is_well_formed, matches, matches_chars};
use proptest::prelude::*;

#[test]
fn brackets_have_their_ends() {
    for glob in ["", "*", "a]", "[a]", "[]x]", "[!]x]", "[[]", "a[b-d]e[^f]", "ä[ö-ü]*"] {
        assert!(is_well_formed(glob), "{glob}");
    }
    for glob in ["[", "[a", "a[", "[]", "[!]", "[^", "[a][b", "[a]x[]"] {
        assert!(!is_well_formed(glob), "{glob}");
    }
}

#[test]
fn globs() {
    let cases = [
        ("*", "a:b", true),
        ("a:*", "ab:b", false),
        ("*:b?", "x:bc", true),
        ("*:b?", "x:b", false),
        ("*:?", "x:ä", true),
        ("net:[rt]x", "net:tx", true),
        ("net:[!rt]x", "net:tx", false),
        ("net:[^rt]x", "net:ax", true),
        ("net:[a-m]*", "net:open", false),
        ("net:[a-mo]*", "net:open", true),
        ("[ä-ö]", "ö", true),
        ("*", "", true),
        ("**x", "x", true),
        ("*aab", "aaaab", true),
        ("a*b*c", "aXbYbZc", true),
        ("a*b*c", "aXbYbZ", false),
        ("*[0-9]", "x12", true),
        ("[x", "[x", true),
        ("[]x]", "]", true),
        ("[!]x]", "]", false),
        ("[]-a]", "^", true),
        ("[a-]", "-", true),
        ("[z-a]", "m", false),
        ("[]", "[]", true),
        ("[!]", "[!]", true),
        ("", "", true),
        ("", "a", false),
    ];
    for (glob, name, expected) in cases {
        assert_eq!(matches(glob, name), expected, "{glob} on {name}");
    }
}

/// A part of a glob that matches one character, or a star.
enum Token {
    Star,
    Any,
    Class(bool, Vec<(char, char)>),
}

fn tokens(glob: &[char]) -> Vec<Token> {
    let (mut tokens, mut at) = (Vec::new(), 0);
    while at < glob.len() {
        let c = glob[at];
        at += 1;
        tokens.push(match c {
            '*' => Token::Star,
            '?' => Token::Any,
            '[' => {
                let is_negated = matches!(glob.get(at), Some('!' | '^'));
                let first = at + usize::from(is_negated);
                match (first + 1..glob.len()).find(|end| glob[*end] == ']') {
                    None => Token::Class(false, vec![('[', '[')]),
                    Some(end) => {
                        let mut members = Vec::new();
                        let mut from = first;
                        while from < end {
                            let is_range = from + 2 < end && glob[from + 1] == '-';
                            members
                                .push((glob[from], glob[if is_range { from + 2 } else { from }]));
                            from += if is_range { 3 } else { 1 };
                        }
                        at = end + 1;
                        Token::Class(is_negated, members)
                    }
                }
            }
            c => Token::Class(false, vec![(c, c)]),
        });
    }
    tokens
}

/// Returns true if the tokens match all of the name. It tries every length for each star.
fn naive(tokens: &[Token], name: &[char]) -> bool {
    match (tokens, name) {
        ([], _) => name.is_empty(),
        ([Token::Star, rest @ ..], _) => (0..=name.len()).any(|taken| naive(rest, &name[taken..])),
        (_, []) => false,
        ([Token::Any, rest @ ..], [_, more @ ..]) => naive(rest, more),
        ([Token::Class(is_negated, members), rest @ ..], [c, more @ ..]) => {
            members.iter().any(|(low, high)| (low..=high).contains(&c)) != *is_negated
                && naive(rest, more)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]
    #[test]
    fn as_the_naive_way(glob in "[ab*?:ä\\[\\]!^-]{0,9}", name in "[ab:ä\\[\\]!-]{0,7}", cut in any::<prop::sample::Index>()) {
        let (tokens, chars) = (tokens(&glob.chars().collect::<Vec<_>>()), name.chars().collect::<Vec<_>>());
        let expected = naive(&tokens, &chars);
        prop_assert_eq!(matches(&glob, &name), expected);
        let at = cut.index(chars.len() + 1);
        prop_assert_eq!(matches_chars(&glob, chars[..at].iter().chain(&chars[at..]).copied()), expected);
    }
}
