//! `unsafe` stays in the places of [`rules::UNSAFE`]; every other crate forbids it at its root.

use proc_macro2::{TokenStream, TokenTree};

use super::graph::Package;
use super::{Finding, Text, rules};

/// Finds the word `unsafe` in code, macro bodies and attributes included; comments and strings are
/// not code.
pub(super) fn check_tokens(text: &Text<'_>, tokens: &TokenStream, findings: &mut Vec<Finding>) {
    if rules::UNSAFE.iter().any(|(place, _)| text.path.starts_with(place)) {
        return;
    }
    each_ident(tokens.clone(), &mut |ident| {
        if ident == "unsafe" {
            let message = "`unsafe` may not stand here: the places are in tidy's rules";
            findings.push(Finding::new(text.path, ident.span().start().line, message));
        }
    });
}

/// Where the file is a crate's root, checks that it forbids `unsafe`, or denies it where one module
/// is excepted.
pub(super) fn check_root(
    text: &Text<'_>,
    tokens: &TokenStream,
    packages: &[Package],
    findings: &mut Vec<Finding>,
) {
    let Some(package) = packages.iter().find(|p| p.roots.iter().any(|r| r == text.path)) else {
        return;
    };
    let folder = package.manifest.strip_suffix("Cargo.toml").unwrap_or(&package.manifest);
    if rules::UNSAFE.iter().any(|(place, _)| *place == folder) {
        return;
    }
    let partly = rules::UNSAFE.iter().any(|(place, _)| place.starts_with(folder));
    let enough: &[&str] = if partly { &["forbid", "deny"] } else { &["forbid"] };
    if !attributes(tokens).iter().any(|attribute| sets_unsafe_code(attribute, enough)) {
        let level = enough.last().copied().unwrap_or_default();
        findings.push(Finding::new(text.path, 1, format!("`#![{level}(unsafe_code)]` is missing")));
    }
}

/// Places of the rules in which no file is.
pub(super) fn stale(files: &[String]) -> Vec<Finding> {
    let is_stale = |place: &str| !files.iter().any(|file| file.starts_with(place));
    let stale = rules::UNSAFE.iter().filter(|(place, _)| is_stale(place));
    let message =
        |place| format!("`unsafe` may stand in {place}, which is not there: remove the row");
    stale.map(|(place, _)| Finding::new("xtask/src/tidy/rules.rs", 1, message(place))).collect()
}

fn sets_unsafe_code((name, arguments): &Attribute, levels: &[&str]) -> bool {
    let mut named = false;
    each_ident(arguments.clone(), &mut |ident| named |= ident == "unsafe_code");
    named && levels.contains(&name.as_str())
}

/// The name of an attribute, and what stands in its parentheses.
pub(super) type Attribute = (String, TokenStream);

/// The attributes with arguments, `#![name(...)]`, with which a file begins.
pub(super) fn attributes(file: &TokenStream) -> Vec<Attribute> {
    let is = |token: Option<TokenTree>, sign| matches!(token, Some(TokenTree::Punct(p)) if p.as_char() == sign);
    let mut tokens = file.clone().into_iter();
    let mut found = Vec::new();
    while is(tokens.next(), '#') && is(tokens.next(), '!') {
        let Some(TokenTree::Group(attribute)) = tokens.next() else { break };
        let attribute: Vec<TokenTree> = attribute.stream().into_iter().collect();
        if let [TokenTree::Ident(name), TokenTree::Group(arguments)] = attribute.as_slice() {
            found.push((name.to_string(), arguments.stream()));
        }
    }
    found
}

/// Calls `visit` with every identifier and keyword.
pub(super) fn each_ident(tokens: TokenStream, visit: &mut impl FnMut(&proc_macro2::Ident)) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => visit(&ident),
            TokenTree::Group(group) => each_ident(group.stream(), visit),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(path: &str, text: &str) -> Vec<usize> {
        let mut findings = Vec::new();
        check_tokens(&Text { path, text }, &text.parse().unwrap(), &mut findings);
        findings.iter().map(|f| f.line).collect()
    }

    fn roots(folder: &str, text: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        let path = format!("{folder}/src/lib.rs");
        let manifest = format!("{folder}/Cargo.toml");
        let package = Package {
            name: folder.into(),
            manifest,
            roots: vec![path.clone()],
            ..Package::default()
        };
        check_root(&Text { path: &path, text }, &text.parse().unwrap(), &[package], &mut findings);
        findings
    }

    #[test]
    fn found_in_code_macros_and_attributes() {
        let text = "fn a() {\n    unsafe { b() }\n}\nmacro_rules! c {\n    () => { unsafe { b() } };\n}\n#[unsafe(no_mangle)]\nfn d() {}\n";
        assert_eq!(tokens("crates/session/src/a.rs", text), [2, 5, 7]);
        assert_eq!(tokens("crates/image/src/other.rs", "unsafe fn a() {}"), [1]);
    }

    #[test]
    fn not_found_in_comments_strings_and_lints() {
        let text = "#![forbid(unsafe_code)]\n//! unsafe\n// unsafe\nconst A: &str = \"unsafe\";\n";
        assert_eq!(tokens("crates/session/src/a.rs", text), [0; 0]);
    }

    #[test]
    fn the_places_that_may() {
        let words = "crates/ring/src/a.rs crates/ring/tests/a.rs proof/kills/src/child.rs \
            proof/crash-step/src/a.rs";
        for path in words.split(' ') {
            assert_eq!(tokens(path, "unsafe fn a() {}"), [0; 0], "{path}");
        }
    }

    #[test]
    fn roots_forbid() {
        assert_eq!(roots("crates/session", "#![no_std]\n#![forbid(unsafe_code)]\n"), []);
        assert_eq!(
            roots("crates/session", "#![deny(unsafe_code)]\n")[0].message,
            "`#![forbid(unsafe_code)]` is missing"
        );
        assert_eq!(
            roots("crates/session", "#![cfg_attr(not(test), forbid(unsafe_code))]\n").len(),
            1
        );
        assert_eq!(roots("crates/session", "//! Nothing.\n").len(), 1);
        assert_eq!(
            roots("crates/session", "//! Nothing.\nfn a() {\n#![forbid(unsafe_code)]\n}\n").len(),
            1
        );
        assert_eq!(roots("crates/session", "#[forbid(unsafe_code)]\nmod a {}\n").len(), 1);
    }

    #[test]
    fn roots_with_an_excepted_module_deny() {
        assert_eq!(roots("proof/kills", "#![deny(unsafe_code)]\n"), []);
        assert_eq!(
            roots("proof/kills", "//! Nothing.\n")[0].message,
            "`#![deny(unsafe_code)]` is missing"
        );
        assert_eq!(roots("crates/ring", "//! Nothing.\n"), []);
    }

    #[test]
    fn a_place_without_a_file_is_told() {
        let files: Vec<String> =
            rules::UNSAFE.iter().skip(1).map(|(place, _)| format!("{place}a.rs")).collect();
        let found = stale(&files);
        assert_eq!(found.len(), 1);
        assert!(found[0].message.contains(rules::UNSAFE[0].0), "{found:?}");
    }
}
