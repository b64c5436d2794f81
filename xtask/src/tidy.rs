//! `cargo xtask tidy`: the rules of the project that no compiler checks. Each finding is
//! `file:line: message`.
//!
//! The rules' data stand in [`rules`]; each check is a pure function from a text (or from cargo's
//! metadata) to findings, so that its tests need no checkout.

use std::fmt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use proc_macro2::TokenStream;

mod graph;
mod layers;
mod left_overs;
mod readers;
mod rules;
mod sizes;
mod unsafety;

/// One breach of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Finding {
    file: String,
    line: usize,
    message: String,
}

impl Finding {
    fn new(file: &str, line: usize, message: impl Into<String>) -> Self {
        Self { file: file.into(), line, message: message.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// A text file of the project, its path relative to the top folder.
struct Text<'a> {
    path: &'a str,
    text: &'a str,
}

impl Text<'_> {
    fn has_extension(&self, extensions: &[&str]) -> bool {
        self.path.rsplit_once('.').is_some_and(|(_, e)| extensions.contains(&e))
    }
}

/// Checks the checkout; an error if anything was found.
pub(crate) fn run() -> Result<()> {
    let root = rig::root();
    let packages = graph::packages(&root)?;
    let mut findings = graph::check(&packages);
    let mut files = Vec::new();
    list(&root, "", &mut files)?;
    files.sort();
    for path in &files {
        // A file that is not UTF-8 is a fixture, not a text.
        let Ok(text) = std::fs::read_to_string(root.join(path)) else { continue };
        check_text(&Text { path, text: &text }, &packages, &mut findings);
    }
    findings.extend(unsafety::stale(&files));
    findings.sort();
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => Ok(()),
        n => bail!("tidy: {n} finding{} in {} files", if n == 1 { "" } else { "s" }, files.len()),
    }
}

fn check_text(text: &Text<'_>, packages: &[graph::Package], findings: &mut Vec<Finding>) {
    left_overs::check(text, findings);
    layers::check(text, findings);
    if !text.has_extension(&["rs"]) {
        return;
    }
    let tokens = match text.text.parse::<TokenStream>() {
        Ok(tokens) => tokens,
        Err(error) => {
            return findings.push(Finding::new(
                text.path,
                error.span().start().line,
                format!("no Rust: {error}"),
            ));
        }
    };
    sizes::check(text, &tokens, findings);
    unsafety::check_root(text, &tokens, packages, findings);
    readers::check_root(text, &tokens, packages, findings);
    unsafety::check_tokens(text, &tokens, findings);
    left_overs::check_tokens(text, &tokens, findings);
}

/// Lists the files under `folder` (relative to `root`, empty for the root), without what builds and
/// tools leave behind.
fn list(root: &Path, folder: &str, files: &mut Vec<String>) -> Result<()> {
    let at = root.join(folder);
    for entry in std::fs::read_dir(&at)
        .with_context(|| format!("{}: cannot list the folder", at.display()))?
    {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if folder.is_empty() { name.clone() } else { format!("{folder}/{name}") };
        // In a worktree of git, `.git` is a file.
        if rules::SKIPPED.contains(&name.as_str()) {
            continue;
        }
        let kind = entry.file_type()?;
        if kind.is_dir() && !name.ends_with(".ctf") {
            list(root, &path, files)?;
        } else if kind.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_compilers_do() {
        assert_eq!(Finding::new("a/b.rs", 3, "what").to_string(), "a/b.rs:3: what");
    }

    #[test]
    fn a_file_that_does_not_parse_is_a_finding() {
        let mut findings = Vec::new();
        let text = Text { path: "crates/session/src/a.rs", text: "fn a() {}\nfn (" };
        check_text(&text, &[], &mut findings);
        assert_eq!((findings.len(), findings[0].line), (1, 2), "{findings:?}");
    }

    #[test]
    fn lists_files_but_not_the_target_folder() {
        let mut files = Vec::new();
        list(&rig::root(), "xtask", &mut files).unwrap();
        assert!(files.contains(&"xtask/src/tidy.rs".to_string()));
        assert!(files.iter().all(|f| !f.contains("/target/")));
    }
}
