//! Implements `kernel hist`: the histograms of an instance of the kernel's tracer, or of a file.

use crate::exit::Outcome;
use crate::histograms::{One, safe};
use crate::say;
use crate::stop::Stop;
use anyhow::{Context, bail, ensure};
use lastwords_ftrace::histogram::{self, Histogram};
use lastwords_render::missing::count;
use std::path::Path;
use std::time::Duration;

/// The name of the layout (docs/JSON.md).
const SCHEMA: &str = "lastwords.histograms.v1";

/// All histograms of an instance or file.
#[derive(serde::Serialize)]
struct Histograms<'a> {
    schema: &'static str,
    source: &'a str,
    histograms: Vec<One>,
}

/// The arguments of `kernel hist`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "The text is the kernel's (Documentation/trace/histogram.rst), with the names of instance and event before it. \
Reading it changes nothing: the histograms go on counting."
)]
pub(crate) struct Args {
    /// An instance of the kernel's tracer, or a file FILE.hist
    ///
    /// By default, it is the only instance of `lastwords` that has histograms.
    #[arg(value_name = "INSTANCE|FILE")]
    what: Option<String>,

    /// Print them again at this interval: 500ms, 1s
    ///
    /// Ctrl-C or the end of the instance ends this.
    #[arg(short, long, value_name = "TIME", value_parser = crate::moment::length)]
    interval: Option<Duration>,

    /// Print rows as data
    ///
    /// docs/JSON.md describes it. With --interval, each reading is one line.
    #[arg(long)]
    json: bool,
}

/// Prints histograms.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if let Some(file) = args.what.as_deref().filter(|what| is_file(what)) {
        ensure!(
            args.interval.is_none(),
            "--interval: {file} is a file: its histograms do not change"
        );
        let bytes = std::fs::read(file).with_context(|| file.to_owned())?;
        let text = String::from_utf8_lossy(&bytes);
        print(args, file, &text)?;
        return Ok(Outcome::Done);
    }
    let instance = match &args.what {
        Some(name) => name.clone(),
        None => only_instance()?,
    };
    ensure!(
        lastwords_tracefs::has_instance(&instance),
        "{instance}: there is no such instance of the kernel's tracer, and no such file"
    );
    let stop = Stop::on_signals()?;
    loop {
        let text = lastwords_tracefs::histograms(&instance)?;
        if text.is_empty() {
            bail!(
                "instance {instance}: no trigger makes a histogram: `lastwords record -e EVENT -R hist:keys=KEY`"
            );
        }
        print(args, &instance, &text)?;
        let Some(interval) = args.interval else { return Ok(Outcome::Done) };
        if !stop.wait(interval) || !lastwords_tracefs::has_instance(&instance) {
            return Ok(Outcome::Done);
        }
    }
}

/// Returns true if a word names a file and no instance.
fn is_file(word: &str) -> bool {
    word.contains('/') || !lastwords_tracefs::has_instance(word) && Path::new(word).is_file()
}

/// Returns the only instance with histograms of which a journal is there.
fn only_instance() -> anyhow::Result<String> {
    let mut names = Vec::new();
    for folder in lastwords_control::dirs::candidates() {
        for journal in lastwords_tracefs::journal::list(&folder)? {
            names.extend(journal.with_histograms().map(str::to_owned));
        }
    }
    names.sort();
    names.dedup();
    match names.as_slice() {
        [name] => Ok(name.clone()),
        [] => bail!(
            "no instance of lastwords has histograms: name an instance of the kernel's tracer, or a file"
        ),
        _ => bail!("{} instances have histograms; name one: {}", names.len(), names.join(", ")),
    }
}

fn print(args: &Args, from: &str, text: &str) -> anyhow::Result<()> {
    let histograms = histogram::parse(text).with_context(|| from.to_owned())?;
    tell_doubts(from, &histograms);
    match args.json {
        true => {
            let histograms = histograms.into_iter().map(One::from).collect();
            say::json(
                &Histograms { schema: SCHEMA, source: from, histograms },
                args.interval.is_some(),
            )
        }
        false => {
            // Texts in keys may be of others.
            text.lines().for_each(|line| say::own(safe(line)));
            Ok(())
        }
    }
}

/// Warns of histograms whose rows are not those that the kernel counted.
fn tell_doubts(from: &str, histograms: &[Histogram]) {
    for histogram in histograms.iter().filter(|histogram| !histogram.is_whole()) {
        say::warning(format_args!(
            "{from}: {}: {} read, and the kernel has {}: a text in a key may look like a row",
            histogram.event,
            count(histogram.rows.len() as u64, "row"),
            histogram.entries
        ));
    }
}

/// Prints on stderr what the saved file of a recording has. Returns true if occurrences were
/// dropped.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn tell(file: &Path) -> anyhow::Result<bool> {
    let shown = file.display().to_string();
    let bytes = std::fs::read(file).with_context(|| shown.clone())?;
    let histograms =
        histogram::parse(&String::from_utf8_lossy(&bytes)).with_context(|| shown.clone())?;
    tell_doubts(&shown, &histograms);
    for histogram in &histograms {
        let Histogram { event, hits, entries, dropped, .. } = histogram;
        say::said(format_args!(
            "{shown}: histogram of {event}: {}, {}; {}",
            count(*entries, "row"),
            count(*hits, "hit"),
            if *dropped == 0 { "nothing dropped".to_owned() } else { format!("{dropped} dropped") }
        ));
        if *dropped > 0 {
            say::warning(format_args!(
                "{event}: {} had no room in the histogram: make it larger by `:size=N`",
                count(*dropped, "occurrence")
            ));
        }
    }
    Ok(histograms.iter().any(|histogram| histogram.dropped > 0))
}
