//! Checks that no file has more than [`rules::FILE_LINES`] lines and no function more than [`rules::FUNCTION_LINES`].
//! Exceptions are rows with a reason.

use std::collections::BTreeSet;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{Finding, Text, rules};

/// The exceptions that were needed, so that those which no longer are can be found.
#[derive(Debug, Default)]
pub(super) struct Used(BTreeSet<(String, String)>);

/// Checks one file.
pub(super) fn check(text: &Text<'_>, syntax: &syn::File, used: &mut Used, findings: &mut Vec<Finding>) {
    let lines = text.text.lines().count();
    if lines > rules::FILE_LINES {
        if rules::LONG_FILES.iter().any(|(path, _)| *path == text.path) {
            used.0.insert((text.path.into(), String::new()));
        } else {
            let message = format!("{lines} lines: a file has {} at most", rules::FILE_LINES);
            findings.push(Finding::new(text.path, rules::FILE_LINES + 1, message));
        }
    }
    let mut functions = Functions::default();
    functions.visit_file(syntax);
    for function in functions.0.iter().filter(|f| f.lines > rules::FUNCTION_LINES) {
        if rules::LONG_FUNCTIONS.iter().any(|(path, name, _)| *path == text.path && *name == function.name) {
            used.0.insert((text.path.into(), function.name.clone()));
        } else {
            let message = format!(
                "`{}` has {} lines: a function has {} at most",
                function.name,
                function.lines,
                rules::FUNCTION_LINES
            );
            findings.push(Finding::new(text.path, function.line, message));
        }
    }
}

/// Exceptions that nothing needs any more.
pub(super) fn stale(used: &Used) -> Vec<Finding> {
    let files = rules::LONG_FILES.iter().map(|(path, _)| (*path, ""));
    let functions = rules::LONG_FUNCTIONS.iter().map(|(path, name, _)| (*path, *name));
    files
        .chain(functions)
        .filter(|(path, name)| !used.0.contains(&((*path).to_string(), (*name).to_string())))
        .map(|(path, name)| {
            Finding::new(
                "xtask/src/tidy/rules.rs",
                1,
                format!("the exception for {path} {name} is not needed any more"),
            )
        })
        .collect()
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

#[derive(Default)]
struct Functions(Vec<Function>);

impl Functions {
    fn add(&mut self, signature: &syn::Signature, block: &syn::Block) {
        let line = signature.span().start().line;
        let end = block.brace_token.span.close().end().line;
        self.0.push(Function { name: signature.ident.to_string(), line, lines: end - line + 1 });
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        let syntax = syn::parse_file(text).unwrap();
        check(&Text { path: "crates/a/src/b.rs", text }, &syntax, &mut Used::default(), &mut findings);
        findings
    }

    /// A function of `lines` lines, documented.
    fn function(lines: usize) -> String {
        format!("/// What\n/// it does.\nfn long() {{\n{}}}\n", "    call();\n".repeat(lines - 2))
    }

    #[test]
    fn the_limit_of_a_function() {
        assert_eq!(found(&function(rules::FUNCTION_LINES)), []);
        let findings = found(&function(rules::FUNCTION_LINES + 1));
        assert_eq!(findings.len(), 1);
        assert_eq!(findings[0].line, 3);
        assert_eq!(findings[0].message, "`long` has 81 lines: a function has 80 at most");
    }

    #[test]
    fn methods_and_inner_functions_count() {
        let long = function(rules::FUNCTION_LINES + 1);
        assert_eq!(found(&format!("impl A {{\n{long}}}\n")).len(), 1);
        assert_eq!(found(&format!("trait A {{\n{long}}}\n")).len(), 1);
        assert_eq!(found(&format!("mod a {{\n{long}}}\n")).len(), 1);
    }

    #[test]
    fn the_limit_of_a_file() {
        assert_eq!(found(&"// a line\n".repeat(rules::FILE_LINES)), []);
        assert_eq!(found(&"// a line\n".repeat(rules::FILE_LINES + 1)).len(), 1);
    }

    #[test]
    fn every_exception_has_a_reason() {
        assert!(rules::LONG_FILES.iter().all(|(_, reason)| !reason.is_empty()));
        assert!(rules::LONG_FUNCTIONS.iter().all(|(_, _, reason)| !reason.is_empty()));
    }

    #[test]
    fn an_exception_not_used_is_stale() {
        assert_eq!(stale(&Used::default()).len(), rules::LONG_FILES.len() + rules::LONG_FUNCTIONS.len());
    }
}
