//! `cargo xtask packages`: makes the packages, and has others judge and use them: lintian,
//! shellcheck, `rpm`, and a clean Debian in which they are installed, used and removed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use cargo_metadata::semver::Version;

use super::chroot::Chroot;
use super::{Built, Release, deb, linked, rpm};
use rig::scratch::Scratch;
use rig::{run_quietly, shown};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The suite of Debian in which the packages are installed; default: this machine's
    #[arg(long, value_name = "SUITE")]
    suite: Option<String>,
    /// The part of CI: with the programs that the tests have built
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    judge(args.suite.as_deref(), if args.quick { Built::tested } else { Built::build })
}

fn judge(suite: Option<&str>, build: fn() -> Result<Built>) -> Result<()> {
    ensure!(
        rig::is_root(),
        "the clean Debian is made and entered by root: run this command as root"
    );
    let release = Release { small: false, ..Release::of_workspace()? };
    let scratch = Scratch::create(&super::folder()?, ".testing")?;
    // The clean Debian is fetched while the packages are made.
    std::thread::scope(|scope| {
        let chroot = scope.spawn(|| timed("clean Debian", || Chroot::open(suite)));
        let debs = judged(&release, build, scratch.path())?;
        let chroot = chroot
            .join()
            .unwrap_or_else(|_| bail!("the thread that makes the clean Debian panicked"))?;
        timed("installed, used, removed", || chroot.run(scratch.path(), &debs))
    })
}

/// Makes the packages and has others judge them; returns those of Debian.
fn judged(release: &Release, build: fn() -> Result<Built>, scratch: &Path) -> Result<Vec<PathBuf>> {
    timed("crates that are linked in", check_linked)?;
    timed("shellcheck", check_scripts)?;
    let built = timed("build", build)?;
    let to = scratch.join("packages");
    std::fs::create_dir(&to)?;
    let debs = timed("deb", || deb::build(release, &built, scratch, &to))?;
    timed("deb again", || same_again(release, &built, scratch, &debs))?;
    timed("lintian", || lintian(&debs))?;
    let rpms = timed("rpm", || rpm::build(release, &built, scratch, &to))?;
    timed("rpm --root", || install_rpms(&rpms, scratch, release))?;
    Ok(debs)
}

/// Runs a part and prints how long it took.
fn timed<T>(what: &str, part: impl FnOnce() -> Result<T>) -> Result<T> {
    let begun = Instant::now();
    let done = part().with_context(|| what.to_string())?;
    println!("{what}: {:.1} s", begun.elapsed().as_secs_f64());
    Ok(done)
}

fn check_linked() -> Result<()> {
    let metadata = super::workspace()?;
    let package =
        metadata.packages.iter().find(|p| p.name == "lastwords").context("no package lastwords")?;
    let ours: Version = package.rust_version.clone().context("lastwords has no rust-version")?;
    let count = linked::check(&ours)?;
    println!("{count} crates: none needs a newer Rust than {ours}");
    Ok(())
}

/// The scripts that are shipped.
const SCRIPTS: &[&str] = &[
    "crates/capi/install.sh",
    "hooks/dracut/module-setup.sh",
    "hooks/dracut/save-trace-hook.sh",
    "hooks/initramfs-tools/lastwords",
    "hooks/initramfs-tools/lastwords-save-trace",
    "hooks/kdump/save-trace",
    "hooks/systemd/collect",
    "hooks/systemd/retain",
    "hooks/systemd/save-bundle",
    "hooks/systemd/save-last-boot",
    "hooks/systemd/common.sh",
    "hooks/systemd/sessions.sh",
    "proof/dist/src/chroot.sh",
    "proof/dist/src/debian/postinst",
    "proof/dist/src/debian/postrm",
    "proof/dist/src/debian/prerm",
];

fn check_scripts() -> Result<()> {
    let mut command = Command::new("shellcheck");
    // SC1091: initramfs-tools is not on every machine, so that its functions cannot be followed.
    run_quietly(
        command
            .current_dir(rig::root())
            .args(["-x", "-S", "warning", "-e", "SC1091"])
            .args(SCRIPTS),
    )
    .map(drop)
}

/// Debian's own judge of packages. Its errors fail; its warnings are printed.
fn lintian(debs: &[PathBuf]) -> Result<()> {
    let mut command = Command::new("lintian");
    command.args(["--fail-on", "error", "--tag-display-limit", "0", "--allow-root"]);
    // The tag asks for the number of Debian's own issue that asks for the package.
    command.args(["--suppress-tags", "initial-upload-closes-no-bugs"]).args(debs);
    let output = command.output().context("lintian")?;
    print!("{}", String::from_utf8_lossy(&output.stdout));
    if !output.status.success() {
        bail!(
            "{}: {}\n{}",
            shown(&command),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// The same program gives the same packages.
fn same_again(release: &Release, built: &Built, scratch: &Path, debs: &[PathBuf]) -> Result<()> {
    let to = scratch.join("again");
    std::fs::create_dir(&to)?;
    for (one, other) in debs.iter().zip(deb::build(release, built, scratch, &to)?) {
        let read = |path: &Path| std::fs::read(path).with_context(|| path.display().to_string());
        ensure!(
            read(one)? == read(&other)?,
            "{}: it has other bytes when it is made again",
            one.display()
        );
    }
    Ok(())
}

/// Installs the packages of rpm into a folder, with a database of its own, and runs the program
/// there.
fn install_rpms(rpms: &[PathBuf], scratch: &Path, release: &Release) -> Result<()> {
    let root = scratch.join("rpm-root");
    std::fs::create_dir(&root)?;
    let rpm = |words: &[&str]| {
        let mut command = Command::new("rpm");
        command.arg("--root").arg(&root).args(words);
        command
    };
    run_quietly(&mut rpm(&["--initdb"]))?;
    let query = |what: &str| run_quietly(rpm(&["-qp", what]).args(rpms));
    let requires = query("--requires")?;
    ensure!(requires.contains("libc.so.6("), "no package requires the C library: {requires}");
    ensure!(
        requires.contains("liblastwords0 = "),
        "the package for compilers does not require the library: {requires}"
    );
    ensure!(
        query("--provides")?.contains("liblastwords.so.0()"),
        "no package provides the library's soname"
    );
    // This machine's packages are Debian's, so rpm knows of no C library here, and no shell for
    // scripts is in the folder.
    run_quietly(rpm(&["-i", "--nodeps", "--noscripts", "--ignorearch"]).args(rpms))?;
    run_quietly(&mut rpm(&["-Va", "--nodeps", "--noscripts"]))?;
    let printed = run_quietly(Command::new(root.join("usr/bin/lastwords")).arg("--version"))?;
    ensure!(
        printed.trim() == format!("lastwords {}", release.version),
        "the installed program printed {printed:?}"
    );
    let files = query("-l")?;
    let words = "/usr/lib64/liblastwords.so.0 /usr/include/lastwords.h \
        /usr/share/man/man1/lastwords-report.1.gz";
    for path in words.split(' ') {
        ensure!(files.lines().any(|line| line == path), "no package has {path}:\n{files}");
    }
    let names = ["lastwords", "liblastwords0", "liblastwords-devel", "lastwords-debuginfo"];
    run_quietly(rpm(&["-e", "--nodeps", "--noscripts"]).args(names))?;
    let left: Vec<&str> =
        files.lines().filter(|path| root.join(path.trim_start_matches('/')).is_file()).collect();
    ensure!(left.is_empty(), "the removal left {}", left.join(", "));
    Ok(())
}
