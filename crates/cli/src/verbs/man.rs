//! Implements `lastwords man`: writes manual pages from the description of the command line.

use crate::exit::Outcome;
use crate::say;
use anyhow::Context;
use roff::{Roff, bold, roman};
use std::path::{Path, PathBuf};

/// The arguments of `man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "To read one: man -l DIR/lastwords-recover.1")]
pub(crate) struct Args {
    /// The folder for the pages; it is made if it is missing
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

/// Variables of the environment.
const ENVIRONMENT: &[(&str, &str)] = &[
    ("LASTWORDS_DIR", "The folder of the sessions."),
    ("XDG_RUNTIME_DIR", "Without LASTWORDS_DIR, sessions are in its folder lastwords."),
    ("LASTWORDS_STATE", "The folder of saved bundles; /var/lib/lastwords by default."),
    (
        "PAGER, LESS",
        "The program that shows long output on a terminal, less by default, and its options. Empty or cat: none.",
    ),
    ("NO_COLOR, TERM", "No colour if NO_COLOR is set and not empty, or TERM is dumb."),
    ("TZ", "The time zone of times of day, unless --utc is given."),
];
/// Files that verbs read or write without being told to.
const FILES: &[(&str, &str)] = &[
    ("$XDG_RUNTIME_DIR/lastwords, /dev/shm/lastwords-UID", "Sessions of this user, a folder each."),
    ("/var/lib/lastwords", "Bundles that describe a kernel's events, for a ring buffer that outlives it."),
    ("/sys/kernel/tracing", "The kernel's tracer."),
    ("/proc/sys/kernel/core_pattern", "Where core-helper is installed."),
];
/// The exit statuses of the program, and what each means.
const STATUS: &[(&str, &str)] = &[
    ("0", "Done."),
    ("1", "An error occurred, a named input could not be read, or no event matched."),
    ("2", "Wrong usage."),
    ("3", "Events were lost, and --strict was given."),
];

/// Writes the pages.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let folder = &args.output;
    crate::output::check_is_no_file(folder)?;
    std::fs::create_dir_all(folder).with_context(|| format!("{}: cannot create the folder", folder.display()))?;
    let mut command = crate::args::command();
    command.build();
    let pages = pages(&command, folder)?;
    say::line(format_args!("{pages} pages in {}", folder.display()));
    Ok(Outcome::Done)
}

/// Writes the page of a command and those of its subcommands. Returns the number of pages.
fn pages(command: &clap::Command, folder: &Path) -> anyhow::Result<usize> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let path = folder.join(format!("{name}.1"));
    let mut page = Vec::new();
    write_page(command, &mut page)?;
    std::fs::write(&path, page).with_context(|| format!("{}: cannot write", path.display()))?;
    let mut count = 1;
    for verb in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        count += pages(verb, folder)?;
    }
    Ok(count)
}

fn write_page(command: &clap::Command, out: &mut Vec<u8>) -> std::io::Result<()> {
    let man = clap_mangen::Man::new(command.clone());
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    if command.get_arguments().any(|arg| !arg.is_hide_set()) {
        man.render_options_section(out)?;
    }
    if command.get_subcommands().any(|verb| !verb.is_hide_set()) {
        man.render_subcommands_section(out)?;
    }
    let mut more = Roff::new();
    if let Some(help) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        more.control("SH", ["NOTES AND EXAMPLES"]);
        paragraphs(&mut more, &help.to_string());
    }
    for (title, entries) in [("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES), ("EXIT STATUS", STATUS)] {
        more.control("SH", [title]);
        for (word, text) in entries {
            more.control("TP", []).text([bold(*word)]).text([roman(*text)]);
        }
    }
    more.control("SH", ["SEE ALSO"]).text([roman(see_also(command))]);
    more.to_writer(out)?;
    if command.get_version().is_some() { man.render_version_section(out) } else { Ok(()) }
}

/// Writes text, in which lines that begin with two spaces are commands.
fn paragraphs(page: &mut Roff, text: &str) {
    let mut was_command = false;
    for line in text.lines() {
        let is_command = line.starts_with("  ");
        if is_command != was_command {
            page.control(if is_command { "nf" } else { "fi" }, []);
        }
        if line.is_empty() {
            page.control("PP", []);
        } else {
            page.text([roman(line)]);
        }
        was_command = is_command;
    }
    if was_command {
        page.control("fi", []);
    }
}

/// The page above this one and those beside it, and the tools that read what this one writes.
fn see_also(command: &clap::Command) -> String {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name());
    let above = name.rsplit_once('-').map(|_| "lastwords(1)".to_owned());
    let below = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    let below = below.map(|verb| format!("{}(1)", verb.get_display_name().unwrap_or_else(|| verb.get_name())));
    let others = ["babeltrace2(1)", "trace-cmd(1)", "crash(8)", "systemd-coredump(8)"].map(str::to_owned);
    above.into_iter().chain(below).chain(others).collect::<Vec<_>>().join(", ")
}
