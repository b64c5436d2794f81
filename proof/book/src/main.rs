//! `cargo xtask book`: builds the book, checks its links, and runs the commands of the book and of
//! the README.
//!
//! The commands of a page run in one shell, in a folder of their own, with sessions of their own.
//! Where a page shows output, it is compared; `[..]` stands for any characters of a line, a line
//! `...` for any lines. Programs that are shown are parts of files that are compiled. [`page`] has
//! the comments by which a page says what a block needs. What is not run is counted and printed
//! with its reason.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Parser;

mod compare;
mod links;
mod mdbook;
mod needs;
mod page;
mod run;

use page::Page;
use run::{Counts, Place};

use rig::scratch::{Scratch, files_below};

/// Pages that run at a time. They wait more than they compute.
const AT_A_TIME: usize = 4;
/// The programs that pages may run: those of the repository.
const PROGRAMS: &[&str] =
    &["lastwords", "shop", "server", "layers", "logging", "triggers", "heap", "counted"];

/// Build the book, check its links, run the commands of the book and of the README
#[derive(Parser)]
#[command(bin_name = "cargo xtask book")]
struct Args {
    /// Run only the pages whose path has this part (may be given several times); do not build the
    /// book
    #[arg(value_name = "PART")]
    only: Vec<String>,
}

fn main() -> ExitCode {
    rig::exit(run(&Args::parse()))
}

/// Checks the book and the README.
fn run(args: &Args) -> Result<()> {
    let root = rig::root();
    let book = root.join("book/src");
    let mut paths = vec![root.join("README.md")];
    collect(&book, &mut paths)?;
    let is_wanted = |path: &&PathBuf| {
        let path = path.to_string_lossy();
        args.only.is_empty() || args.only.iter().any(|part| path.contains(part.as_str()))
    };
    let pages =
        paths.iter().filter(is_wanted).map(|path| Page::read(path)).collect::<Result<Vec<_>>>()?;
    ensure!(!pages.is_empty(), "no page has {} in its path", args.only.join(" or "));
    if args.only.is_empty() {
        check_summary(&pages, &book)?;
        let count = links::check(&[&*paths, &documents(&root)?].concat())?;
        println!("{count} links lead to a file or a heading");
        println!("built: {}", mdbook::build()?.display());
    }
    run_pages(&pages)
}

/// Adds the pages of a folder and of those below it.
fn collect(folder: &Path, paths: &mut Vec<PathBuf>) -> Result<()> {
    let is_page = |path: &PathBuf| path.extension().is_some_and(|ending| ending == "md");
    paths.extend(files_below(folder)?.into_iter().filter(is_page));
    Ok(())
}

/// Returns the other documents, whose links are checked too.
fn documents(root: &Path) -> Result<Vec<PathBuf>> {
    let mut paths =
        vec![root.join("ARCHITECTURE.md"), root.join("CONTRIBUTING.md"), root.join("CHANGELOG.md")];
    collect(&root.join("docs"), &mut paths)?;
    Ok(paths)
}

/// Fails if a page of the book is not in its table of contents.
fn check_summary(pages: &[Page], book: &Path) -> Result<()> {
    let summary = book.join("SUMMARY.md");
    let listed =
        pages.iter().find(|page| page.path == summary).context("book/src/SUMMARY.md is missing")?;
    let listed: BTreeSet<PathBuf> = listed.links.iter().map(|link| book.join(link)).collect();
    let of_book = pages
        .iter()
        .map(|page| &page.path)
        .filter(|path| path.starts_with(book) && **path != summary);
    let absent: Vec<String> = of_book
        .filter(|path| !listed.contains(*path))
        .map(|path| path.display().to_string())
        .collect();
    ensure!(absent.is_empty(), "not in book/src/SUMMARY.md: {}", absent.join(", "));
    Ok(())
}

/// Runs the commands of the pages, and prints how many ran.
fn run_pages(pages: &[Page]) -> Result<()> {
    let scratch = Scratch::create(&std::env::temp_dir(), "lastwords-book")?;
    let place = prepare(scratch.path())?;
    let begin = Instant::now();
    let work = |at: u64| Ok(run::run(&pages[at as usize], &place));
    let done = rig::workers::each(AT_A_TIME, 0..pages.len() as u64, work)?;
    println!("{} pages took {:.1} s", pages.len(), begin.elapsed().as_secs_f64());
    summarize(done.into_iter())
}

fn summarize(done: impl Iterator<Item = Result<Counts>>) -> Result<()> {
    let mut all = Counts::default();
    let mut failures = Vec::new();
    for counts in done {
        match counts {
            Ok(counts) => {
                all.commands += counts.commands;
                all.compared += counts.compared;
                all.programs += counts.programs;
                for (why, count) in counts.not_run {
                    *all.not_run.entry(why).or_default() += count;
                }
            }
            Err(error) => failures.push(format!("{error:#}")),
        }
    }
    let Counts { commands, compared, programs, not_run } = all;
    println!(
        "{commands} commands ran, the output of {compared} was compared; {programs} programs are parts of compiled files"
    );
    println!("{} blocks were not run:", not_run.values().sum::<usize>());
    for (why, count) in not_run {
        println!("{count:>5}  {why}");
    }
    if !failures.is_empty() {
        bail!("{} pages failed:\n{}", failures.len(), failures.join("\n\n"));
    }
    Ok(())
}

/// Builds the programs that the pages run, and lays them out.
fn prepare(scratch: &Path) -> Result<Place> {
    let root = rig::root();
    let built = rig::programs::debug()?;
    let target = rig::programs::target()?;
    let (bin, prefix) = (scratch.join("bin"), scratch.join("prefix"));
    std::fs::create_dir(&bin)?;
    for name in PROGRAMS {
        std::os::unix::fs::symlink(built.join(name), bin.join(name))?;
    }
    rig::run_quietly(Command::new(root.join("crates/capi/install.sh")).arg(&prefix).arg(&built))?;
    let pkg_config = prefix.join("lib/pkgconfig");
    let projects = target.join("book/projects");
    rig::make_empty(&projects)?;
    std::os::unix::fs::symlink(&root, projects.join("lastwords"))?;
    Ok(Place { scratch: scratch.to_path_buf(), bin, pkg_config, target, projects })
}
