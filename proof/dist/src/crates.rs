//! `cargo xtask crates`: what crates.io would get of each crate: its metadata, its page, its
//! licences, and the packed files.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::{DependencyKind, Metadata, Package};

use rig::run_quietly;

/// The most bytes of a packed crate that crates.io takes.
const LIMIT: u64 = 10 << 20;
/// Files that each packed crate must have.
const FILES: &[&str] = &["Cargo.toml", "LICENSE-APACHE", "LICENSE-MIT", "README.md"];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build each crate from its packed files, as `cargo publish` does: minutes
    #[arg(long)]
    verify: bool,
    /// Check the whole workspace with the oldest Rust that `rust-version` names; rustup must have
    /// it: minutes
    #[arg(long)]
    oldest: bool,
    /// Compare the public items of each library with those of a commit or tag; needs
    /// cargo-semver-checks: minutes
    #[arg(long, value_name = "REVISION")]
    since: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let metadata = super::workspace()?;
    let published: Vec<&Package> =
        metadata.packages.iter().filter(|package| is_published(package)).collect();
    let faults: Vec<String> =
        published.iter().flat_map(|package| faults(package, &metadata)).collect();
    ensure!(faults.is_empty(), "{}", faults.join("\n"));
    pack(&published, args.verify)?;
    for package in &published {
        check_packed(package, &metadata)?;
    }
    println!("{} crates are complete", published.len());
    if args.oldest {
        check_oldest(&published)?;
    }
    match &args.since {
        Some(revision) => check_since(&published, revision),
        None => Ok(()),
    }
}

fn is_published(package: &Package) -> bool {
    package.publish.as_ref().is_none_or(|registries| !registries.is_empty())
}

/// Returns the faults of the manifest of a crate that is published.
fn faults(package: &Package, metadata: &Metadata) -> Vec<String> {
    let mut faults = Vec::new();
    let mut find = |fault: String| faults.push(format!("{}: {fault}", package.manifest_path));
    let known = |name: &str| metadata.packages.iter().find(|other| other.name == name);
    if package.description.as_deref().is_none_or(str::is_empty) || package.license.is_none() {
        find("`description` or `license` is missing".into());
    }
    if package.rust_version.is_none() {
        find("`rust-version` is missing".into());
    }
    if package.readme.is_none() {
        find("`readme` is missing".into());
    }
    if package.keywords.is_empty() || package.keywords.len() > 5 || package.categories.is_empty() {
        find("`keywords` has 1 to 5 words, `categories` at least one".into());
    }
    for dependency in &package.dependencies {
        let Some(other) = known(&dependency.name) else { continue };
        let has_version = dependency.req != cargo_metadata::semver::VersionReq::STAR;
        match (is_published(other), dependency.kind == DependencyKind::Development) {
            (false, false) => {
                find(format!("it depends on {}, which is not published", dependency.name))
            }
            // cargo removes a development dependency without a version when it packs, and looks for
            // others on crates.io.
            (false, true) if has_version => {
                find(format!("{} is not published: it must have no `version`", dependency.name))
            }
            (true, false) if !has_version => {
                find(format!("{} needs a `version` beside its `path`", dependency.name))
            }
            _ => {}
        }
    }
    faults
}

fn pack(published: &[&Package], verify: bool) -> Result<()> {
    let mut command = Command::new(rig::cargo());
    command.current_dir(rig::root()).args(["package", "--quiet", "--allow-dirty", "--locked"]);
    if !verify {
        command.arg("--no-verify");
    }
    for package in published {
        command.args(["-p", package.name.as_str()]);
    }
    run_quietly(&mut command).map(drop)
}

/// The packed crate has all files, and is small enough.
fn check_packed(package: &Package, metadata: &Metadata) -> Result<()> {
    let name = format!("{}-{}", package.name, package.version);
    let packed = metadata.target_directory.join("package").join(format!("{name}.crate"));
    let size = packed.metadata().with_context(|| packed.to_string())?.len();
    ensure!(size <= LIMIT, "{packed}: {size} bytes, crates.io takes {LIMIT}");
    let listed = run_quietly(Command::new("tar").arg("-tzf").arg(&packed))?;
    for file in FILES {
        let file = format!("{name}/{file}");
        ensure!(listed.lines().any(|line| line == file), "{packed}: {file} is missing");
    }
    Ok(())
}

fn check_oldest(published: &[&Package]) -> Result<()> {
    let version = published
        .first()
        .and_then(|package| package.rust_version.clone())
        .context("no rust-version")?;
    let toolchain = format!("+{}.{}", version.major, version.minor);
    let mut command = Command::new("cargo");
    // The cargo that runs us has set its own compiler in the environment.
    command.current_dir(rig::root()).arg(&toolchain).args([
        "check",
        "--workspace",
        "--all-targets",
        "--locked",
    ]);
    command
        .args(["--target-dir", "target/oldest"])
        .env_remove("RUSTC")
        .env_remove("CARGO")
        .env_remove("RUSTUP_TOOLCHAIN");
    let status = command.status().context("cargo")?;
    if !status.success() {
        bail!(
            "cargo {toolchain} check: {status}; `rustup toolchain install {}` adds the toolchain",
            &toolchain[1..]
        );
    }
    Ok(())
}

fn check_since(published: &[&Package], revision: &str) -> Result<()> {
    let program = || {
        let mut command = Command::new(rig::cargo());
        command.current_dir(rig::root()).arg("semver-checks");
        command
    };
    run_quietly(program().arg("--version"))
        .context("`cargo install cargo-semver-checks --locked` installs it")?;
    let mut command = program();
    command.args(["--baseline-rev", revision]);
    for package in
        published.iter().filter(|package| package.targets.iter().any(|target| target.is_lib()))
    {
        command.args(["-p", package.name.as_str()]);
    }
    let status = command.status().context("cargo")?;
    ensure!(
        status.success(),
        "cargo semver-checks: {status}: the version does not tell what has changed since {revision}, see above"
    );
    Ok(())
}
