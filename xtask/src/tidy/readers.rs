//! Crates that read bytes of others deny what may panic on them: [`rules::DENIED`], at their roots.

use proc_macro2::TokenStream;

use super::graph::Package;
use super::unsafety::{Attribute, attributes, each_ident};
use super::{Finding, Text, rules};

/// Where the file is the root of one of [`rules::READERS`], checks that it denies all of
/// [`rules::DENIED`] outside of tests.
pub(super) fn check_root(
    text: &Text<'_>,
    tokens: &TokenStream,
    packages: &[Package],
    findings: &mut Vec<Finding>,
) {
    let is_root = |package: &&Package| package.roots.iter().any(|root| root == text.path);
    let is_reader = |package: &Package| rules::READERS.contains(&package.name.as_str());
    if !packages.iter().find(is_root).is_some_and(is_reader) {
        return;
    }
    let denied: Vec<Vec<String>> = attributes(tokens).iter().map(idents).collect();
    let is_denied = |lint: &str| {
        denied.iter().any(|words| {
            ["not", "test", "deny", lint].iter().all(|word| words.iter().any(|w| w == word))
        })
    };
    for lint in rules::DENIED.iter().filter(|lint| !is_denied(lint)) {
        let message = format!(
            "`#![cfg_attr(not(test), deny(clippy::{lint}))]` is missing: the crate reads bytes of others"
        );
        findings.push(Finding::new(text.path, 1, message));
    }
}

/// The words of an attribute that depends on a condition.
fn idents((name, arguments): &Attribute) -> Vec<String> {
    let mut words = Vec::new();
    if name == "cfg_attr" {
        each_ident(arguments.clone(), &mut |ident| words.push(ident.to_string()));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(name: &str, text: &str) -> Vec<String> {
        let (path, mut findings) = ("crates/x/src/lib.rs", Vec::new());
        let package = Package { name: name.into(), roots: vec![path.into()], ..Package::default() };
        check_root(&Text { path, text }, &text.parse().unwrap(), &[package], &mut findings);
        findings.into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn readers_deny_what_may_panic() {
        let all: Vec<String> = rules::DENIED.iter().map(|lint| format!("clippy::{lint}")).collect();
        let root =
            |lints: &[String]| format!("#![cfg_attr(not(test), deny({}))]", lints.join(", "));
        assert_eq!(found("render", &root(&all)), Vec::<String>::new());
        assert_eq!(found("render", &root(&all[1..])).len(), 1);
        assert_eq!(found("render", &root(&all).replace("deny", "warn")).len(), rules::DENIED.len());
        assert_eq!(found("cli", ""), Vec::<String>::new());
    }
}
