//! Implements `lastwords man`: writes manual pages from the description of the command line.

use crate::exit::Outcome;
use crate::help;
use crate::say;
use anyhow::Context;
use roff::{Roff, bold, roman};
use std::path::{Path, PathBuf};

/// The arguments of `man`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The folder for the pages; it is made if it does not exist
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

/// Writes the pages.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let folder = &args.output;
    crate::output::check_is_no_file(folder)?;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("{}: cannot create the folder", folder.display()))?;
    // The verb `help` has no page.
    let mut command = crate::args::described().disable_help_subcommand(true);
    command.build();
    let pages = pages(&command, "", folder)?;
    say::line(format_args!("{pages} pages in {}", folder.display()));
    Ok(Outcome::Done)
}

/// Writes the page of a verb and those of the verbs below it. Returns the number of pages.
fn pages(command: &clap::Command, verb: &str, folder: &Path) -> anyhow::Result<usize> {
    let path = folder.join(format!("{}.1", page_name(verb)));
    let mut page = Vec::new();
    write_page(command, verb, &mut page)?;
    std::fs::write(&path, page).with_context(|| format!("{}: cannot write", path.display()))?;
    let mut count = 1;
    for own in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        count += pages(own, &help::below(verb, own.get_name()), folder)?;
    }
    Ok(count)
}

/// Returns the name of a verb's page.
fn page_name(verb: &str) -> String {
    format!("lastwords {verb}").trim_end().replace(' ', "-")
}

fn write_page(command: &clap::Command, verb: &str, out: &mut Vec<u8>) -> std::io::Result<()> {
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
        more.control("SH", ["NOTES"]);
        paragraphs(&mut more, &help.to_string());
    }
    let statuses = help::statuses(verb, command);
    for (title, entries) in [
        ("EXAMPLES", &help::examples::for_verb(verb)[..]),
        ("EXIT STATUS", &statuses),
        ("ENVIRONMENT", help::ENVIRONMENT),
        ("FILES", help::FILES),
    ] {
        more.control("SH", [title]);
        for (word, text) in entries {
            more.control("TP", []).text([bold(*word)]).text([roman(*text)]);
        }
    }
    more.control("SH", ["SEE ALSO"]).text([roman(see_also(command, verb))]);
    more.to_writer(out)?;
    if command.get_version().is_some() { man.render_version_section(out) } else { Ok(()) }
}

/// Writes text, in which empty lines separate paragraphs.
fn paragraphs(page: &mut Roff, text: &str) {
    for line in text.lines() {
        if line.is_empty() {
            page.control("PP", []);
        } else {
            page.text([roman(line)]);
        }
    }
}

/// Returns the page above this one, those below it, those that are related, and tools that read
/// what lastwords writes.
fn see_also(command: &clap::Command, verb: &str) -> String {
    let above = verb.rsplit_once(' ').map_or("", |(above, _)| above);
    let above = (!verb.is_empty()).then(|| page_name(above));
    let below = command.get_subcommands().filter(|own| !own.is_hide_set());
    let below = below.map(|own| page_name(&help::below(verb, own.get_name())));
    let related = help::related(verb).iter().map(|other| page_name(other));
    let own = above.into_iter().chain(below).chain(related).map(|page| format!("{page}(1)"));
    let others =
        ["babeltrace2(1)", "trace-cmd(1)", "crash(8)", "systemd-coredump(8)"].map(str::to_owned);
    own.chain(others).collect::<Vec<_>>().join(", ")
}
