//! Finds left-overs of unfinished work, and names of our own machines.

use proc_macro2::{TokenStream, TokenTree};

use super::{Finding, Text, rules};

/// Files whose text is searched for notes to oneself.
const SOURCES: &[&str] = &[
    "rs", "toml", "sh", "c", "h", "cc", "cpp", "hpp", "md", "yml", "yaml", "promela", "pml", "in",
];

/// Notes to oneself, in capitals.
const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME")];

/// Searches the lines.
pub(super) fn check(text: &Text<'_>, findings: &mut Vec<Finding>) {
    let is_source = text.has_extension(SOURCES) || text.path == ".ci/run";
    for (number, line) in (1..).zip(text.text.lines()) {
        let mut find = |message: String| findings.push(Finding::new(text.path, number, message));
        if is_source {
            for note in NOTES.iter().filter(|note| has_word(line, note)) {
                find(format!("`{note}`: do it, or open an issue"));
            }
        }
        let doc = line.trim_start();
        if (doc.starts_with("///") || doc.starts_with("//!"))
            && doc.contains(concat!("```", "ignore"))
        {
            find("an example that is not run: use `no_run`, `compile_fail` or `text`".into());
        }
        let (beside, may) = rules::BESIDE;
        let beside = Some(beside).filter(|_| !may.contains(&text.path));
        let places = rules::PLACES.iter().copied().chain(beside);
        for place in places.filter(|place| has_place(line, place)) {
            find(format!("`{place}` is a place of our own machines"));
        }
    }
}

/// Searches Rust code for calls of `todo!` and `unimplemented!`, and for tests that are not run.
pub(super) fn check_tokens(text: &Text<'_>, tokens: &TokenStream, findings: &mut Vec<Finding>) {
    walk(tokens.clone(), &mut |here, rest| {
        let TokenTree::Ident(ident) = here else { return };
        let line = ident.span().start().line;
        let called = matches!(rest.first(), Some(TokenTree::Punct(p)) if p.as_char() == '!');
        if called && (ident == "todo" || ident == "unimplemented") {
            let what = format!("`{ident}!`: do it, or return an error");
            findings.push(Finding::new(text.path, line, what));
        }
    });
    walk(tokens.clone(), &mut |here, rest| {
        let (TokenTree::Punct(hash), Some(TokenTree::Group(attribute))) = (here, rest.first())
        else {
            return;
        };
        if hash.as_char() == '#' && is_ignore(attribute.stream()) {
            let line = hash.span().start().line;
            findings.push(Finding::new(
                text.path,
                line,
                "a test that is not run: mend it or take it out",
            ));
        }
    });
}

/// `ignore`, `ignore = "why"`, or `cfg_attr(when, ignore)`.
fn is_ignore(attribute: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = attribute.into_iter().collect();
    match tokens.as_slice() {
        [TokenTree::Ident(name), ..] if name == "ignore" => true,
        [TokenTree::Ident(name), TokenTree::Group(group)] if name == "cfg_attr" => group
            .stream()
            .into_iter()
            .skip(1)
            .any(|t| matches!(t, TokenTree::Ident(i) if i == "ignore")),
        _ => false,
    }
}

/// Calls `visit` with every token and those that follow it in its group.
fn walk(tokens: TokenStream, visit: &mut impl FnMut(&TokenTree, &[TokenTree])) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        visit(token, tokens.get(index + 1..).unwrap_or_default());
        if let TokenTree::Group(group) = token {
            walk(group.stream(), visit);
        }
    }
}

/// `word` stands in `line` by itself, not as a part of a longer word.
fn has_word(line: &str, word: &str) -> bool {
    let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(word).any(|(at, _)| {
        let (before, after) =
            (line[..at].chars().next_back(), line[at + word.len()..].chars().next());
        !joins(before) && !joins(after)
    })
}

/// `place` begins in `line` where a path may begin.
fn has_place(line: &str, place: &str) -> bool {
    let joins =
        |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
    line.match_indices(place).any(|(at, _)| !joins(line[..at].chars().next_back()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let mut findings = Vec::new();
        check(&Text { path, text }, &mut findings);
        check_tokens(&Text { path, text }, &text.parse().unwrap_or_default(), &mut findings);
        findings.iter().map(|f| f.line).collect()
    }

    #[test]
    fn notes_to_oneself() {
        for note in NOTES {
            assert_eq!(lines("a.rs", &format!("fn a() {{}}\n// {note}: later\n")), [2]);
            assert_eq!(lines("a.rs", &format!("// {note}S and A{note}\n")), [0; 0]);
            assert_eq!(lines("fixture.bin", note), [0; 0]);
        }
    }

    #[test]
    fn unfinished_macros() {
        assert_eq!(
            lines("a.rs", "fn a() {\n    todo!()\n}\nfn b() {\n    c(unimplemented!(\"d\"));\n}\n"),
            [2, 5]
        );
        assert_eq!(
            lines("a.rs", "// todo!()\nconst A: &str = \"todo!()\";\nfn todo() {}\n"),
            [0; 0]
        );
    }

    #[test]
    fn tests_not_run() {
        assert_eq!(lines("a.rs", "#[test]\n#[ignore]\nfn a() {}\n"), [2]);
        assert_eq!(
            lines("a.rs", "mod b {\n    #[test]\n    #[ignore = \"slow\"]\n    fn a() {}\n}\n"),
            [3]
        );
        assert_eq!(lines("a.rs", "#[cfg_attr(miri, ignore)]\nfn a() {}\n"), [1]);
        assert_eq!(lines("a.rs", "#[test]\nfn ignore() {}\n"), [0; 0]);
        assert_eq!(lines("a.rs", concat!("/// ```", "ignore\n/// a\n/// ```\nfn a() {}\n")), [1]);
    }

    #[test]
    fn places_of_our_machines() {
        for place in rules::PLACES {
            assert_eq!(lines("a.md", &format!("see `{place}a`\n")), [1], "{place}");
            assert_eq!(lines("a.md", &format!("see net{place}a\n")), [0; 0], "{place}");
        }
        let (beside, may) = rules::BESIDE;
        assert_eq!(lines("a.md", beside), [1]);
        assert_eq!(lines(may[0], beside), [0; 0]);
    }
}
