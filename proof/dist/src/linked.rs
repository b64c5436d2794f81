//! The crates that are linked into what is shipped: their list for an SBOM, and the texts of their
//! licences.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use serde_json::{Value, json};

use rig::run_quietly;

/// Returns cargo's metadata of the packages for the target, as `Cargo.lock` has them.
fn metadata(target: &str) -> Result<Metadata> {
    MetadataCommand::new()
        .cargo_path(rig::cargo())
        .current_dir(rig::root())
        .other_options(["--locked", "--filter-platform", target].map(str::to_string))
        .exec()
        .context("cargo metadata")
}

/// The packages that are linked into a package, it included, and what each of them uses directly.
fn linked<'a>(
    metadata: &'a Metadata,
    name: &str,
) -> Result<BTreeMap<&'a PackageId, BTreeSet<&'a PackageId>>> {
    let resolve = metadata.resolve.as_ref().context("cargo metadata resolved nothing")?;
    let root = metadata.workspace_packages().into_iter().find(|p| p.name == name);
    let root = &root.with_context(|| format!("no package {name}"))?.id;
    let (mut found, mut left) = (BTreeMap::new(), vec![root]);
    while let Some(id) = left.pop() {
        if found.contains_key(id) {
            continue;
        }
        let node = resolve
            .nodes
            .iter()
            .find(|node| node.id == *id)
            .context("a package that is not resolved")?;
        // Build scripts and procedural macros run on the machine that builds; only normal
        // dependencies are linked.
        let normal = |dep: &&cargo_metadata::NodeDep| {
            dep.dep_kinds.iter().any(|k| k.kind == DependencyKind::Normal)
        };
        let uses: BTreeSet<&PackageId> = node
            .deps
            .iter()
            .filter(normal)
            .map(|dep| &dep.pkg)
            .filter(|id| !is_macro(&metadata[*id]))
            .collect();
        left.extend(&uses);
        found.insert(id, uses);
    }
    Ok(found)
}

fn is_macro(package: &Package) -> bool {
    package.targets.iter().any(cargo_metadata::Target::is_proc_macro)
}

/// The bill of materials (CycloneDX 1.5, JSON) of the program and the C library. It is the same for
/// the same `Cargo.lock` and target, and for the same `epoch` (seconds).
pub(super) fn sbom(target: &str, epoch: u64) -> Result<String> {
    let metadata = metadata(target)?;
    let mut all = linked(&metadata, "lastwords-cli")?;
    all.extend(linked(&metadata, "lastwords-capi")?);
    let mut packages: Vec<(&Package, &BTreeSet<&PackageId>)> =
        all.iter().map(|(id, uses)| (&metadata[*id], uses)).collect();
    packages.sort_by_key(|(package, _)| (package.name.to_string(), package.version.clone()));
    let sums = checksums(&rig::root().join("Cargo.lock"))?;
    let components = packages
        .iter()
        .map(|(package, _)| component(package, &sums))
        .collect::<Result<Vec<_>>>()?;
    let dependencies: Vec<Value> = packages
        .iter()
        .map(|(package, uses)| {
            let mut uses: Vec<String> = uses.iter().map(|id| reference(&metadata[*id])).collect();
            uses.sort();
            json!({ "ref": reference(package), "dependsOn": uses })
        })
        .collect();
    let time = run_quietly(
        std::process::Command::new("date")
            .args(["-u", "+%Y-%m-%dT%H:%M:%SZ", "-d"])
            .arg(format!("@{epoch}")),
    )?;
    let version = super::version()?;
    let document = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": time.trim(),
            "component": {
                "type": "application", "bom-ref": format!("lastwords@{version}#{target}"), "name": "lastwords", "version": version,
                "licenses": [{ "expression": "MIT OR Apache-2.0" }],
                "properties": [{ "name": "target", "value": target }],
            },
        },
        "components": components,
        "dependencies": dependencies,
    });
    Ok(serde_json::to_string_pretty(&document)? + "\n")
}

fn component(package: &Package, sums: &BTreeMap<(String, String), String>) -> Result<Value> {
    let licence = package
        .license
        .as_ref()
        .with_context(|| format!("{} {} has no licence", package.name, package.version))?;
    // Old manifests divide licences by a slash, which SPDX writes as OR.
    let licence = licence.replace(" / ", " OR ").replace('/', " OR ");
    let mut value = json!({
        "type": "library", "bom-ref": reference(package), "name": package.name.as_str(), "version": package.version.to_string(),
        "purl": reference(package), "licenses": [{ "expression": licence }],
    });
    if package.source.is_some() {
        let sum = sums.get(&(package.name.to_string(), package.version.to_string()));
        let sum = sum.with_context(|| {
            format!("Cargo.lock has no checksum of {} {}", package.name, package.version)
        })?;
        value["hashes"] = json!([{ "alg": "SHA-256", "content": sum }]);
    }
    Ok(value)
}

/// The package URL, which also names the package inside the document.
fn reference(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

/// The checksums of `Cargo.lock` by name and version.
fn checksums(lock: &Path) -> Result<BTreeMap<(String, String), String>> {
    let text = std::fs::read_to_string(lock).with_context(|| lock.display().to_string())?;
    Ok(parse_lock(&text))
}

fn parse_lock(text: &str) -> BTreeMap<(String, String), String> {
    let packages = text.split("[[package]]").skip(1);
    let sum = |package: &str| {
        let field = |name: &str| {
            let value =
                package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "));
            Some(value?.trim_matches('"').to_string())
        };
        Some(((field("name")?, field("version")?), field("checksum")?))
    };
    packages.filter_map(sum).collect()
}

/// The licences and notices of all crates of others that are linked into a package.
pub(super) fn notices(name: &str) -> Result<String> {
    let metadata = metadata(&super::host()?)?;
    let linked = linked(&metadata, name)?;
    let mut packages: Vec<&Package> =
        linked.keys().map(|id| &metadata[*id]).filter(|p| p.source.is_some()).collect();
    packages.sort_by_key(|package| (package.name.to_string(), package.version.clone()));
    ensure!(!packages.is_empty(), "{name}: no crate of others is linked in");
    let mut text = String::new();
    for package in packages {
        let licence = package.license.as_deref().unwrap_or_default();
        writeln!(text, "{} {} ({licence})\n", package.name, package.version)?;
        let folder = package.manifest_path.parent().context("a manifest has a folder")?;
        for notice in texts_of(folder.as_std_path())? {
            writeln!(text, "{}\n", notice.trim_end())?;
        }
        writeln!(text, "{}", "-".repeat(80))?;
    }
    Ok(text)
}

/// The files of a crate that tell its licence. Of the common texts that a crate gives a choice of,
/// all are kept.
fn texts_of(folder: &Path) -> Result<Vec<String>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)
        .with_context(|| format!("{}: `cargo fetch` gets it", folder.display()))?
    {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        if ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE"]
            .iter()
            .any(|begin| name.starts_with(begin))
            && path.is_file()
        {
            paths.push(path);
        }
    }
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read_to_string(path).with_context(|| path.display().to_string()))
        .collect()
}

/// Fails if a linked crate needs a newer compiler than ours says. Licences are checked by `cargo
/// xtask deny`.
pub(super) fn check(ours: &cargo_metadata::semver::Version) -> Result<usize> {
    let metadata = metadata(&super::host()?)?;
    let mut all = linked(&metadata, "lastwords-cli")?;
    all.extend(linked(&metadata, "lastwords-capi")?);
    let mut faults = Vec::new();
    for package in all.keys().map(|id| &metadata[*id]) {
        if let Some(needs) = package.rust_version.as_ref().filter(|needs| *needs > ours) {
            faults.push(format!(
                "{} {}: needs Rust {needs}, `rust-version` is {ours}",
                package.name, package.version
            ));
        }
    }
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    Ok(all.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_a_lock_file() {
        let text = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.0.0\"\nchecksum = \"ab\"\n\n[[package]]\nname = \"own\"\nversion = \"2.0.0\"\n";
        let sums = parse_lock(text);
        assert_eq!(sums.len(), 1);
        assert_eq!(sums[&("a".to_string(), "1.0.0".to_string())], "ab");
    }
}
