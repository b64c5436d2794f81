//! The crates: what each may use, and the fields that every manifest carries.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Finding, rules};

/// The facts of a package that the checks need.
#[derive(Debug, Clone, Default)]
pub(super) struct Package {
    /// Its name without `lastwords-`.
    pub(super) name: String,
    /// Path of its manifest, relative to the top folder.
    pub(super) manifest: String,
    /// The manifest.
    pub(super) text: String,
    /// Crates of the workspace that it uses, not counting dev-dependencies.
    pub(super) uses: Vec<String>,
    /// Root files of its libraries and programs, relative to the top folder.
    pub(super) roots: Vec<String>,
    pub(super) version: String,
    pub(super) licence: Option<String>,
    pub(super) description: Option<String>,
}

/// Asks cargo for the packages of the workspace.
pub(super) fn packages(root: &Path) -> Result<Vec<Package>> {
    let metadata = rig::programs::metadata()?;
    let packages = array(&metadata["packages"]);
    let relative = |path: &Value| {
        let path = Path::new(text(path));
        path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
    };
    let short =
        |name: &Value| text(name).strip_prefix("lastwords-").unwrap_or(text(name)).to_string();
    let read = |p: &Value| -> Result<Package> {
        let is_ours =
            |d: &&Value| d["kind"] != "dev" && packages.iter().any(|p| p["name"] == d["name"]);
        let is_other = |kind: &Value| {
            ["test", "bench", "example", "custom-build"].iter().any(|other| kind == other)
        };
        let is_root = |target: &&Value| !array(&target["kind"]).iter().any(is_other);
        let manifest = text(&p["manifest_path"]);
        Ok(Package {
            name: short(&p["name"]),
            manifest: relative(&p["manifest_path"]),
            text: std::fs::read_to_string(manifest).with_context(|| manifest.to_owned())?,
            uses: array(&p["dependencies"])
                .iter()
                .filter(is_ours)
                .map(|d| short(&d["name"]))
                .collect(),
            roots: array(&p["targets"])
                .iter()
                .filter(is_root)
                .map(|target| relative(&target["src_path"]))
                .collect(),
            version: text(&p["version"]).to_owned(),
            licence: p["license"].as_str().map(str::to_owned),
            description: p["description"].as_str().map(str::to_owned),
        })
    };
    ensure!(!packages.is_empty(), "cargo metadata: no packages");
    packages.iter().map(read).collect()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Checks the graph and the manifests.
pub(super) fn check(packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in packages {
        check_uses(package, &mut findings);
        check_fields(package, packages, &mut findings);
    }
    for (name, _) in rules::GRAPH {
        if !packages.iter().any(|p| p.name == *name) {
            findings.push(Finding::new(
                "Cargo.toml",
                1,
                format!("tidy's graph has `{name}`, the workspace has not"),
            ));
        }
    }
    findings
}

fn check_uses(package: &Package, findings: &mut Vec<Finding>) {
    let Some((_, may)) = rules::GRAPH.iter().find(|(name, _)| *name == package.name) else {
        let message =
            format!("`{}` is not in the crate graph: give it a row in tidy's rules", package.name);
        findings.push(Finding::new(&package.manifest, 1, message));
        return;
    };
    for used in &package.uses {
        if !may.split(' ').any(|name| name == used) {
            let may = if may.is_empty() { "none of ours".into() } else { may.replace(' ', ", ") };
            let message = format!("`{}` may not use `{used}`: it may use {may}", package.name);
            findings.push(Finding::new(
                &package.manifest,
                line_of_dependency(&package.text, used),
                message,
            ));
        }
    }
}

/// The line of the manifest that names the dependency; the first where it cannot be seen.
fn line_of_dependency(manifest: &str, short: &str) -> usize {
    let long = format!("lastwords-{short}");
    let named = |line: &str| {
        let key = line.split(['=', '.']).next().unwrap_or_default().trim().trim_matches('"');
        let key = key.trim_start_matches('[').trim_end_matches(']');
        key == short || key == long
    };
    manifest.lines().position(named).map_or(1, |i| i + 1)
}

fn check_fields(package: &Package, packages: &[Package], findings: &mut Vec<Finding>) {
    let mut find = |message: String| findings.push(Finding::new(&package.manifest, 1, message));
    if !takes_workspace_lints(&package.text) {
        find("`[lints] workspace = true` is missing".into());
    }
    if package.licence.as_deref() != Some(rules::LICENCE) {
        find(format!(
            "license is {:?}, expected {:?}",
            package.licence.as_deref().unwrap_or(""),
            rules::LICENCE
        ));
    }
    if package.description.as_deref().unwrap_or("").trim().is_empty() {
        find("description is missing".into());
    }
    if let Some(first) = packages.first().filter(|first| first.version != package.version) {
        find(format!(
            "version is {}, `{}` has {}: use `version.workspace = true`",
            package.version, first.name, first.version
        ));
    }
}

fn takes_workspace_lints(manifest: &str) -> bool {
    let mut section = "";
    manifest.lines().map(str::trim).any(|line| {
        if line.starts_with('[') {
            section = line;
        }
        let tight: String = line.chars().filter(|c| !c.is_whitespace()).collect();
        tight == "lints.workspace=true" || (section == "[lints]" && tight == "workspace=true")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINTS: &str = "[lints]\nworkspace = true\n";

    fn package(name: &str, uses: &[&str]) -> Package {
        Package {
            name: name.into(),
            manifest: format!("crates/{name}/Cargo.toml"),
            text: LINTS.into(),
            uses: uses.iter().map(|u| (*u).to_string()).collect(),
            version: "0.1.0".into(),
            licence: Some(rules::LICENCE.into()),
            description: Some("what it is".into()),
            ..Package::default()
        }
    }

    /// Findings that concern `name`, without those on crates that the small graph lacks.
    fn found(packages: &[Package], name: &str) -> Vec<String> {
        let manifest = format!("crates/{name}/Cargo.toml");
        check(packages)
            .into_iter()
            .filter(|f| f.file == manifest)
            .map(|f| format!("{}: {}", f.line, f.message))
            .collect()
    }

    #[test]
    fn an_arrow_with_the_flow_passes() {
        let packages = [
            package("abi", &[]),
            package("ring", &["abi"]),
            package("session", &["image", "abi", "trace", "bytes"]),
        ];
        for p in &packages {
            assert_eq!(found(&packages, &p.name), Vec::<String>::new());
        }
    }

    #[test]
    fn an_arrow_back_is_found_at_its_line() {
        let mut session = package("session", &["ring"]);
        session.text = format!("{LINTS}[dependencies]\nlastwords-ring.workspace = true\n");
        assert_eq!(
            found(&[session], "session"),
            ["4: `session` may not use `ring`: it may use folders, ctf, image, abi, trace, bytes"]
        );
    }

    #[test]
    fn testkit_is_for_tests() {
        assert_eq!(found(&[package("session", &["testkit"])], "session").len(), 1);
        assert_eq!(
            found(&[package("testkit", &["abi"])], "testkit"),
            ["1: `testkit` may not use `abi`: it may use none of ours"]
        );
    }

    #[test]
    fn an_unknown_crate_is_found() {
        assert!(found(&[package("extra", &[])], "extra")[0].contains("not in the crate graph"));
    }

    #[test]
    fn fields_are_checked() {
        let mut p = package("abi", &[]);
        p.text = "[dependencies]\nworkspace = true\n".into();
        p.licence = Some("MIT".into());
        p.description = Some(" ".into());
        p.version = "0.2.0".into();
        assert_eq!(found(&[package("bytes", &[]), p], "abi").len(), 4);
    }

    #[test]
    fn lints_in_either_form() {
        assert!(takes_workspace_lints("[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"));
        assert!(takes_workspace_lints("lints.workspace = true\n"));
        assert!(!takes_workspace_lints("[lints.rust]\nunsafe_code = \"deny\"\n"));
    }

    #[test]
    fn the_line_of_a_dependency() {
        let manifest = "[dependencies]\nlibc = \"1\"\nlastwords-abi = { workspace = true }\nlastwords.workspace = true\n";
        assert_eq!(line_of_dependency(manifest, "abi"), 3);
        assert_eq!(line_of_dependency(manifest, "lastwords"), 4);
        assert_eq!(line_of_dependency(manifest, "session"), 1);
    }
}
