//! Packages of Fedora, RHEL, SUSE and their like, made by `rpmbuild`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::contents::{self, System};
use super::tree::Tree;
use super::{Built, Release};
use rig::{make_empty, run_quietly};

/// Makes the four packages in `to`; returns their files.
pub(super) fn build(
    release: &Release,
    built: &Built,
    scratch: &Path,
    to: &Path,
) -> Result<Vec<PathBuf>> {
    let tree = |name: &str| Tree::create(scratch.join(name));
    let (program, run_time, development, debug) =
        (tree("rpm-program")?, tree("rpm-library")?, tree("rpm-devel")?, tree("rpm-debug")?);
    contents::program(&program, &debug, System::Rpm, &built.program)?;
    contents::library(&built.libraries, System::Rpm, &run_time, &development, &debug)?;
    contents::debug(&debug, System::Rpm, "lastwords-debuginfo")?;
    let top = scratch.join("rpmbuild");
    make_empty(&top)?;
    let spec = top.join("lastwords.spec");
    std::fs::write(&spec, spec_text(release, [&program, &run_time, &development, &debug])?)?;
    let mut command = Command::new("rpmbuild");
    command
        .args(["-bb", "--quiet", "--target", "x86_64"])
        .env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    command.arg("--define").arg(format!("_topdir {}", top.display()));
    command
        .arg("--define")
        .arg(format!("_binary_payload {}", if release.small { "w7.xzdio" } else { "w1.gzdio" }));
    run_quietly(command.arg(&spec))?;
    let made = top.join("RPMS/x86_64");
    let mut files = Vec::new();
    for entry in std::fs::read_dir(&made).with_context(|| made.display().to_string())? {
        let path = entry?.path();
        let at = to.join(path.file_name().context("a package has a name")?);
        std::fs::rename(&path, &at).with_context(|| at.display().to_string())?;
        files.push(at);
    }
    files.sort();
    ensure!(files.len() == 4, "rpmbuild made {} packages instead of 4: {files:?}", files.len());
    Ok(files)
}

/// The spec file. Nothing is built by it: the trees are copied.
fn spec_text(release: &Release, trees: [&Tree; 4]) -> Result<String> {
    let mut text = include_str!("rpm/lastwords.spec").replace("@VERSION@", &release.version);
    let copies: String = trees
        .iter()
        .map(|tree| format!("cp -a {}/. %{{buildroot}}/\n", tree.root().display()))
        .collect();
    text = text.replace("@COPIES@", &copies);
    let sections = ["", "-n liblastwords0", "-n liblastwords-devel", "debuginfo"];
    for (section, tree) in sections.iter().zip(trees) {
        writeln!(text, "\n%files {section}")?;
        for path in tree.files()? {
            writeln!(
                text,
                "{}/{path}",
                if path.starts_with("usr/share/licenses/") { "%license " } else { "" }
            )?;
        }
        if section.is_empty() {
            text.push_str("%dir /usr/lib/lastwords\n%dir /usr/lib/dracut/modules.d/95lastwords\n");
        }
    }
    Ok(text)
}
