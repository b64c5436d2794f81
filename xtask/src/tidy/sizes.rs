//! Checks that no file has more than [`rules::FILE_LINES`] lines and no function more than
//! [`rules::FUNCTION_LINES`].

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::{Finding, Text, rules};

/// Checks one file.
pub(super) fn check(text: &Text<'_>, tokens: &TokenStream, findings: &mut Vec<Finding>) {
    let lines = text.text.lines().count();
    if lines > rules::FILE_LINES {
        let message = format!("{lines} lines: a file has {} at most", rules::FILE_LINES);
        findings.push(Finding::new(text.path, rules::FILE_LINES + 1, message));
    }
    let mut functions = Vec::new();
    find(tokens.clone(), &mut functions);
    for Function { name, line, lines } in
        functions.into_iter().filter(|f| f.lines > rules::FUNCTION_LINES)
    {
        let message =
            format!("`{name}` has {lines} lines: a function has {} at most", rules::FUNCTION_LINES);
        findings.push(Finding::new(text.path, line, message));
    }
}

struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Finds the functions with a body, inner ones and those that macros define included. `fn` without
/// a name is a type.
fn find(tokens: TokenStream, functions: &mut Vec<Function>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => find(group.stream(), functions),
            TokenTree::Ident(word)
                if word == "fn" && !matches!(tokens.get(index + 1), Some(TokenTree::Group(_))) =>
            {
                // A macro's `$name` is two tokens.
                let name = tokens
                    .iter()
                    .skip(index + 1)
                    .find(|token| matches!(token, TokenTree::Ident(_)));
                let line = word.span().start().line;
                if let Some((name, end)) =
                    name.zip(body(tokens.get(index + 1..).unwrap_or_default()))
                {
                    functions.push(Function {
                        name: name.to_string(),
                        line,
                        lines: end - line + 1,
                    });
                }
            }
            _ => {}
        }
    }
}

/// The last line of the body, which is the first block outside of angle brackets; `None` where `;`
/// ends the signature.
fn body(signature: &[TokenTree]) -> Option<usize> {
    let (mut depth, mut before) = (0, ' ');
    for token in signature {
        let sign = if let TokenTree::Punct(sign) = token { sign.as_char() } else { ' ' };
        match token {
            TokenTree::Group(group) if depth == 0 && group.delimiter() == Delimiter::Brace => {
                return Some(group.span_close().end().line);
            }
            _ if sign == ';' && depth == 0 => return None,
            _ if sign == '<' => depth += 1,
            _ if sign == '>' && before != '-' => depth -= 1,
            _ => {}
        }
        before = sign;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        let tokens = text.parse().unwrap();
        check(&Text { path: "crates/a/src/b.rs", text }, &tokens, &mut findings);
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
        assert_eq!(found(&format!("fn a() {{\n    if b {{\n{long}}}\n}}\n")).len(), 2);
        assert_eq!(found(&format!("macro_rules! a {{\n    () => {{\n{long}}}\n}}\n")).len(), 1);
    }

    #[test]
    fn the_body_is_behind_all_of_the_signature() {
        for signature in [
            "long<const N: usize>() -> A<{ 1 }>",
            "long() -> impl Fn() -> A<B<{ N > 1 }>> where C: D",
            "long(a: fn() -> u8)",
            "$name()",
        ] {
            let long = function(rules::FUNCTION_LINES + 1).replace("long()", signature);
            let findings = found(&long);
            assert_eq!(findings.iter().map(|f| f.line).collect::<Vec<_>>(), [3], "{signature}");
            assert_eq!(found(&function(rules::FUNCTION_LINES).replace("long()", signature)), []);
        }
        let body = "    a\n".repeat(rules::FUNCTION_LINES + 1);
        assert_eq!(
            found(&format!("trait A {{\n    fn a();\n    const B: C = {{\n{body}}};\n}}\n")),
            []
        );
        assert_eq!(
            found(&format!("struct A {{\n    a: fn() -> u8,\n}}\nimpl A {{\n{body}}}\n")),
            []
        );
    }

    #[test]
    fn the_limit_of_a_file() {
        assert_eq!(found(&"// a line\n".repeat(rules::FILE_LINES)), []);
        assert_eq!(found(&"// a line\n".repeat(rules::FILE_LINES + 1)).len(), 1);
    }
}
