//! The layers inside a crate: a module uses only the layers that stand above it in
//! [`rules::LAYERS`].

use super::{Finding, Text, rules};

/// Finds `crate::LAYER` in a file of a layer that may not use it. Comments are not code.
pub(super) fn check(text: &Text<'_>, findings: &mut Vec<Finding>) {
    let Some((place, forbidden)) =
        rules::LAYERS.iter().find(|(place, _)| text.path.starts_with(place))
    else {
        return;
    };
    for (index, line) in text.text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for used in code.split("crate::").skip(1) {
            let name = used
                .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .next()
                .unwrap_or_default();
            if forbidden.contains(&name) {
                let message = format!("`crate::{name}` stands above {place}, which may not use it");
                findings.push(Finding::new(text.path, index + 1, message));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_of_a_higher_layer_is_found() {
        let lines = "use crate::process::identity;\n// crate::record is above\nlet x = crate::record::slot::y();\n";
        let mut findings = Vec::new();
        check(&Text { path: "crates/lastwords/src/session/mod.rs", text: lines }, &mut findings);
        assert_eq!(findings.iter().map(|f| f.line).collect::<Vec<_>>(), [3]);
        findings.clear();
        check(&Text { path: "crates/lastwords/src/handle.rs", text: lines }, &mut findings);
        assert!(findings.is_empty());
    }
}
