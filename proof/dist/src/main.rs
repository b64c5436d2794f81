//! `cargo xtask dist`: what users install, in `target/dist`: packages for Debian and for rpm's
//! systems, tarballs with a static program, a bill of materials, and the checksums of all.
//!
//! The same sources, toolchain and commit give the same bytes: times come from `SOURCE_DATE_EPOCH`,
//! else from the commit.
#![forbid(unsafe_code)]

mod chroot;
mod contents;
mod crates;
mod deb;
mod linked;
mod packages;
mod rpm;
mod tarball;
mod tree;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use lastwords_proof_lab::static_build;

use rig::run_quietly;
use rig::scratch::Scratch;

#[derive(Parser)]
#[command(
    bin_name = "cargo xtask dist",
    args_conflicts_with_subcommands = true,
    about = "Make what users install, in `target/dist`: packages, static tarballs, a bill of materials, checksums"
)]
struct Args {
    #[command(subcommand)]
    part: Option<Part>,
    /// Make this alone (may be given several times); without it, all
    #[arg(long, value_enum, value_name = "KIND")]
    only: Vec<Kind>,
}

#[derive(Subcommand)]
enum Part {
    /// Check what crates.io would get of each crate
    Crates(crates::Args),
    /// Make Debian's package of a program: for tests in guests
    #[command(hide = true)]
    ForGuest {
        /// The program
        program: PathBuf,
        /// The folder of the package
        to: PathBuf,
    },
    /// Make the packages of Debian and rpm; install, use and remove them in a clean Debian (as
    /// root)
    Packages(packages::Args),
    /// Build `lastwords` without shared libraries, for a crash kernel's initramfs
    Static(static_build::Args),
}

fn main() -> ExitCode {
    let args = Args::parse();
    rig::exit(match &args.part {
        None => run(&args),
        Some(Part::Crates(args)) => crates::run(args),
        Some(Part::ForGuest { program, to }) => package_of_debian(program, to).map(drop),
        Some(Part::Packages(args)) => packages::run(args),
        Some(Part::Static(args)) => static_build::run(args),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// Packages of Debian: the program, the C library, its files for compilers, and debug files
    Deb,
    /// The same for rpm
    Rpm,
    /// A static program for `x86_64`, with pages, completions and hooks; its debug file apart
    #[value(name = "tarball-x86_64")]
    TarballX86,
    /// The same for `aarch64`
    #[value(name = "tarball-aarch64")]
    TarballAarch64,
    /// The crates that are linked in, as CycloneDX
    Sbom,
}

/// The facts of a release that all its files have.
struct Release {
    version: String,
    /// Seconds: the time of all files.
    epoch: u64,
    /// Who made the package: a name and an address.
    maintainer: String,
    homepage: Option<String>,
    /// Packages are compressed well; without it, quickly, for tests.
    small: bool,
}

impl Release {
    fn of_workspace() -> Result<Self> {
        let metadata = workspace()?;
        let package = metadata
            .packages
            .iter()
            .find(|p| p.name == "lastwords-cli")
            .context("no package lastwords-cli")?;
        let author = package.authors.first().context("lastwords-cli names no author")?;
        let own = format!("{author} <lastwords@example.org>");
        Ok(Self {
            version: package.version.to_string(),
            epoch: epoch()?,
            maintainer: std::env::var("LASTWORDS_MAINTAINER").unwrap_or(own),
            small: true,
            homepage: package.homepage.clone().or_else(|| package.repository.clone()),
        })
    }

    /// The version of Debian's packages: ours, and which packaging of it this is.
    fn debian(&self) -> String {
        format!("{}-1", self.version)
    }
}

/// The programs and libraries that packages hold.
struct Built {
    program: PathBuf,
    /// The folder of the C libraries.
    libraries: PathBuf,
}

impl Built {
    fn build() -> Result<Self> {
        Ok(Self {
            program: rig::programs::lastwords()?,
            libraries: rig::programs::build("lastwords-capi")?,
        })
    }

    /// The same of the build of the tests.
    fn tested() -> Result<Self> {
        Ok(Self { program: rig::programs::tested()?, libraries: rig::programs::debug()? })
    }
}

/// Makes what was asked for.
fn run(args: &Args) -> Result<()> {
    let wanted = if args.only.is_empty() { Kind::value_variants() } else { &args.only[..] };
    let release = Release::of_workspace()?;
    let to = folder()?;
    let scratch = Scratch::create(&to, ".making")?;
    for kind in wanted {
        for file in make(*kind, &release, scratch.path(), &to)? {
            println!("{} ({} bytes)", file.display(), file.metadata()?.len());
        }
    }
    println!("{}", sums(&to)?.display());
    Ok(())
}

fn make(kind: Kind, release: &Release, scratch: &Path, to: &Path) -> Result<Vec<PathBuf>> {
    match kind {
        Kind::Deb => deb::build(release, &Built::build()?, scratch, to),
        Kind::Rpm => rpm::build(release, &Built::build()?, scratch, to),
        Kind::TarballX86 => tarball::build(release, "x86_64-unknown-linux-gnu", scratch, to),
        Kind::TarballAarch64 => tarball::build(release, "aarch64-unknown-linux-gnu", scratch, to),
        Kind::Sbom => {
            let file = to.join(format!("lastwords-{}.cdx.json", release.version));
            std::fs::write(&file, linked::sbom(&host()?, release.epoch)?)
                .with_context(|| file.display().to_string())?;
            Ok(vec![file])
        }
    }
}

/// Debian's package of `program`, in `to`: for tests in guests.
fn package_of_debian(program: &Path, to: &Path) -> Result<PathBuf> {
    let scratch = Scratch::create(&folder()?, ".for-guests")?;
    let release = Release { small: false, ..Release::of_workspace()? };
    let debug = tree::Tree::create(scratch.path().join("debug"))?;
    deb::program(&release, program, &debug, scratch.path(), to)
}

/// Where everything goes. Files of earlier commands stay.
fn folder() -> Result<PathBuf> {
    let to = rig::root().join("target/dist");
    std::fs::create_dir_all(&to).with_context(|| to.display().to_string())?;
    Ok(to)
}

/// Writes `SHA256SUMS` of all files in the folder, for `sha256sum -c`.
fn sums(folder: &Path) -> Result<PathBuf> {
    let file = folder.join("SHA256SUMS");
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = entry.file_name().into_string().ok().context("a name that is not UTF-8")?;
        if entry.file_type()?.is_file() && name != "SHA256SUMS" {
            names.push(name);
        }
    }
    names.sort();
    ensure!(!names.is_empty(), "{}: there is nothing to sum", folder.display());
    let text = run_quietly(Command::new("sha256sum").current_dir(folder).args(names))?;
    std::fs::write(&file, text).with_context(|| file.display().to_string())?;
    Ok(file)
}

fn workspace() -> Result<cargo_metadata::Metadata> {
    let mut command = cargo_metadata::MetadataCommand::new();
    command
        .cargo_path(rig::cargo())
        .current_dir(rig::root())
        .no_deps()
        .exec()
        .context("cargo metadata")
}

/// The version of the workspace.
fn version() -> Result<String> {
    let metadata = workspace()?;
    Ok(metadata
        .packages
        .iter()
        .find(|p| p.name == "lastwords")
        .context("no package lastwords")?
        .version
        .to_string())
}

/// The time of all files, in seconds since 1970: `SOURCE_DATE_EPOCH`, else when the commit was
/// made.
fn epoch() -> Result<u64> {
    if let Ok(set) = std::env::var("SOURCE_DATE_EPOCH") {
        return set
            .parse()
            .with_context(|| format!("SOURCE_DATE_EPOCH is {set:?}, expected seconds since 1970"));
    }
    let printed = run_quietly(Command::new("git").current_dir(rig::root()).args([
        "log",
        "-1",
        "--format=%ct",
    ]));
    let printed = printed.context("the commit's time cannot be had: set SOURCE_DATE_EPOCH")?;
    printed.trim().parse().with_context(|| format!("git log printed {printed:?}"))
}

/// The toolchain's own target.
fn host() -> Result<String> {
    static_build::host()
}
