//! Texts of the help and the manual pages besides the options: notes, exit statuses, examples,
//! environment, files, related pages. Each text has one place; `-h`, `--help` and the pages are
//! made from it.
//!
//! `-h` has one line for each option (the first paragraph of its text), a short note (`after_help`)
//! and the examples. `--help` has all paragraphs, all notes (`after_long_help`), the exit statuses
//! and the examples.

pub(crate) mod examples;

use clap::Command;

/// Where the folder `docs` can be read on the network: `LASTWORDS_DOCS_URL` when the program is built.
/// This is the only place that has the address (docs/RELEASE.md).
const DOCS: Option<&str> = option_env!("LASTWORDS_DOCS_URL");

/// Says where the pages are that help and messages name, if `url` has them.
fn documents(url: Option<&str>) -> String {
    let place = match url.map(|url| url.trim_end_matches('/')).filter(|url| !url.is_empty()) {
        Some(url) => format!("at {url}/NAME.md"),
        None => "in the sources".to_owned(),
    };
    format!("A page that is named docs/NAME.md is {place}.")
}

/// Variables of the environment. The book has the same table
/// (`book/src/reference/command-line.md`).
pub(crate) const ENVIRONMENT: &[(&str, &str)] = &[
    ("LASTWORDS_DIR", "The folder of the sessions."),
    ("XDG_RUNTIME_DIR", "Without LASTWORDS_DIR, sessions are in its folder lastwords."),
    (
        "LASTWORDS",
        "Settings of the sessions that programs begin, such as shop=warn,size=16M. Programs read it; this command does not.",
    ),
    (
        "LASTWORDS_SECRET, LASTWORDS_HASHED",
        "Globs over the names of fields whose values programs hide. Programs read them; this command does not.",
    ),
    (
        "DEBUGINFOD_URLS, DEBUGINFOD_CACHE_PATH, DEBUGINFOD_TIMEOUT, DEBUGINFOD_MAXTIME, DEBUGINFOD_MAXSIZE",
        "The servers that are asked for debug information, the cache, and limits, as debuginfod-find(1) has them. Without DEBUGINFOD_URLS, no server is asked.",
    ),
    ("LASTWORDS_STATE", "The folder of saved bundles; /var/lib/lastwords by default."),
    (
        "PAGER, LESS",
        "The program that shows long output on a terminal, less by default, and its options. If PAGER is empty or cat, no program is started.",
    ),
    (
        "NO_COLOR, TERM",
        "The output has no colour if NO_COLOR is set and not empty, or if TERM is dumb.",
    ),
    ("TZ", "The time zone of times of day, unless --utc is given."),
];

/// Files that verbs read or write although no argument names them.
pub(crate) const FILES: &[(&str, &str)] = &[
    ("$XDG_RUNTIME_DIR/lastwords, /dev/shm/lastwords-UID", "Sessions of this user, a folder each."),
    (
        "/var/lib/lastwords",
        "Bundles that describe a kernel's events, for a ring buffer that outlives it.",
    ),
    ("/sys/kernel/tracing", "The kernel's tracer."),
    ("/proc/sys/kernel/core_pattern, core_pipe_limit", "Where core-helper is installed."),
    ("/run/lastwords-core-helper", "What helpers that run at the same time share, for root."),
];

/// An exit status, and what it means.
type Status = (&'static str, &'static str);

/// The columns of the texts that are made here. Clap wraps wider texts, but does not indent them.
const WIDTH: usize = 95;

const DONE: Status = ("0", "The command is done.");
const ERROR: Status = ("1", "An error occurred.");
const READ_ERROR: Status =
    ("1", "An error occurred, a named input could not be read, or no event matched.");
const USAGE: Status = ("2", "The command line is wrong.");
const LOSSES: Status = (
    "3",
    "--strict was given, and events were lost: discarded, damaged or missing. Events that an overwriting ring gave up do not count.",
);

/// The exit statuses of verbs where they mean something else.
const OTHER_STATUSES: &[(&str, &[Status])] = &[
    (
        "core-helper status",
        &[
            ("0", "The helper is installed."),
            ("1", "The helper is not installed or loses cores, or an error occurred."),
        ],
    ),
    (
        "demo",
        &[
            ("0", "No committed event is missing, and no event was invented."),
            ("1", "A committed event is missing, an event was invented, or an error occurred."),
        ],
    ),
    (
        "doctor",
        &[
            ("0", "Sessions can be recorded and recovered on this machine."),
            (
                "1",
                "Sessions cannot be recorded or recovered on this machine, or an error occurred.",
            ),
        ],
    ),
    (
        "receive",
        &[
            ("1", "A stream could not be saved, or another error occurred."),
            ("3", "--strict was given, and a stream ended early or events were lost."),
        ],
    ),
    (
        "record",
        &[
            (
                "0",
                "The recording is saved or sent. COMMAND, if there is one, ended with 0, or a signal ended the recording before it.",
            ),
            ("1", "The recording failed."),
            (
                "N",
                "COMMAND's own exit status, if it is not 0; 128 plus the signal's number if a signal ended it. It takes precedence over 3.",
            ),
        ],
    ),
];

/// The pages that are related to a verb's, besides those above and below it.
const RELATED: &[(&str, &[&str])] = &[
    ("demo", &["doctor", "report", "recover"]),
    ("recover", &["report", "inspect", "convert", "view"]),
    ("convert", &["recover", "report", "view"]),
    #[cfg(feature = "arrow")]
    ("ingest", &["convert", "why", "report"]),
    ("sql", &["convert", "report", "mcp"]),
    ("mcp", &["why", "sql"]),
    ("report", &["recover", "inspect", "view", "list"]),
    ("view", &["report", "convert", "inspect"]),
    ("inspect", &["report", "recover", "list"]),
    ("counters", &["inspect", "report", "top"]),
    ("why", &["report", "view", "diff"]),
    ("diff", &["why", "report", "inspect"]),
    ("record", &["receive", "restore", "kernel hist", "kernel agent", "report", "view"]),
    ("receive", &["record", "report"]),
    ("restore", &["record", "report"]),
    #[cfg(feature = "guests")]
    ("watch-guest", &["recover", "why", "report"]),
    ("kernel", &["record", "restore", "report"]),
    ("kernel start", &["kernel show", "kernel extract", "kernel reset", "record"]),
    ("kernel stop", &["kernel restart", "kernel extract"]),
    ("kernel restart", &["kernel stop", "kernel start"]),
    ("kernel show", &["kernel extract", "report"]),
    ("kernel extract", &["kernel show", "kernel reset", "report"]),
    ("kernel reset", &["kernel start", "restore"]),
    ("kernel hist", &["record"]),
    ("kernel agent", &["record", "report"]),
    ("list", &["inspect", "top", "destroy"]),
    ("top", &["list", "inspect", "report"]),
    ("enable", &["disable", "channel", "list"]),
    ("disable", &["enable", "channel", "list"]),
    ("channel", &["enable", "list", "top"]),
    ("channel create", &["enable", "list", "top"]),
    ("start", &["stop", "list"]),
    ("stop", &["start", "list", "clear"]),
    ("snapshot", &["report", "recover", "trigger"]),
    ("snapshot enable", &["snapshot take", "snapshot disable"]),
    ("snapshot disable", &["snapshot enable", "snapshot take"]),
    ("snapshot take", &["snapshot enable", "snapshot record", "report"]),
    ("snapshot record", &["snapshot enable", "snapshot take", "recover"]),
    ("trigger", &["snapshot", "report", "enable"]),
    ("trigger fire", &["trigger add", "trigger watch", "snapshot enable"]),
    ("trigger add", &["trigger list", "trigger remove", "trigger watch", "snapshot enable"]),
    ("trigger list", &["trigger add", "trigger remove"]),
    ("trigger remove", &["trigger add", "trigger list"]),
    ("trigger watch", &["trigger add", "trigger fire", "report"]),
    ("clear", &["stop", "report", "list"]),
    ("destroy", &["list", "stop"]),
    ("mount", &["umount", "list", "report"]),
    ("umount", &["mount", "list"]),
    ("core-helper", &["doctor", "list", "report"]),
    ("core-helper install", &["core-helper remove", "core-helper status"]),
    ("core-helper remove", &["core-helper install", "core-helper status"]),
    ("core-helper status", &["core-helper install", "core-helper remove", "doctor"]),
    ("bundle", &["report", "recover", "doctor"]),
    ("bundle save", &["bundle pack", "report", "recover"]),
    ("bundle pack", &["bundle save", "report", "recover"]),
    ("doctor", &["core-helper", "bundle", "demo"]),
    ("completions", &["man"]),
    ("man", &["completions"]),
];

/// Returns the exit statuses of a verb.
pub(crate) fn statuses(verb: &str, command: &Command) -> Vec<Status> {
    let has = |name: &str| command.get_arguments().any(|arg| arg.get_long() == Some(name));
    let reads = verb.is_empty() || command.get_arguments().any(|arg| arg.get_id() == "inputs");
    let mut all = vec![DONE, if reads { READ_ERROR } else { ERROR }, USAGE];
    all.extend((verb.is_empty() || has("strict")).then_some(LOSSES));
    let others =
        OTHER_STATUSES.iter().find(|(name, _)| *name == verb).map_or(&[][..], |(_, others)| others);
    for other in others {
        match all.iter_mut().find(|(code, _)| *code == other.0) {
            Some(status) => *status = *other,
            None => all.push(*other),
        }
    }
    all
}

/// Returns the verbs whose pages are related to a verb's.
pub(crate) fn related(verb: &str) -> &'static [&'static str] {
    RELATED.iter().find(|(name, _)| *name == verb).map_or(&[], |(_, related)| related)
}

/// Returns the name of a verb below another.
pub(crate) fn below(verb: &str, name: &str) -> String {
    format!("{verb} {name}").trim_start().to_owned()
}

/// Adds exit statuses and examples to the help of a command and of all commands below it.
pub(crate) fn complete(command: Command) -> Command {
    complete_verb(command, "")
}

fn complete_verb(mut command: Command, verb: &str) -> Command {
    let examples = examples::for_verb(verb);
    if examples.is_empty() {
        return command;
    }
    let examples = examples::text(&examples);
    let note = command.get_after_help().map(ToString::to_string);
    let notes = command.get_after_long_help().map(ToString::to_string).or_else(|| note.clone());
    let notes = match (verb, notes) {
        ("", Some(notes)) => Some(format!("{notes}\n\n{}", documents(DOCS))),
        (_, notes) => notes,
    };
    let statuses = Some(statuses_text(verb, &command));
    let join =
        |parts: [Option<String>; 3]| parts.into_iter().flatten().collect::<Vec<_>>().join("\n\n");
    command = command
        .after_help(join([note, None, Some(examples.clone())]))
        .after_long_help(join([notes, statuses, Some(examples)]));
    command.mut_subcommands(|own| {
        let name = below(verb, own.get_name());
        complete_verb(own, &name)
    })
}

/// Formats exit statuses for a terminal.
fn statuses_text(verb: &str, command: &Command) -> String {
    let mut text = "Exit status:".to_owned();
    for (code, meaning) in statuses(verb, command) {
        let mut line = format!("  {code} ");
        for word in meaning.split(' ') {
            if line.len() + 1 + word.len() > WIDTH {
                text += &format!("\n{line}");
                line = "    ".to_owned();
            }
            line += &format!(" {word}");
        }
        text += &format!("\n{line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(command: &'a Command, verb: &str) -> Option<&'a Command> {
        verb.split_whitespace().try_fold(command, |command, word| command.find_subcommand(word))
    }

    fn each(command: &Command, verb: &str, see: &mut impl FnMut(&Command, &str)) {
        see(command, verb);
        for own in command.get_subcommands().filter(|own| !own.is_hide_set()) {
            each(own, &below(verb, own.get_name()), see);
        }
    }

    #[test]
    fn short_help_has_one_line_for_each_option_and_long_help_has_more() {
        let mut command = crate::args::command().term_width(100);
        command.build();
        each(&command, "", &mut |own, verb| {
            let short = own.clone().render_help().to_string();
            let (_, options) = short.split_once("\n\n").expect("a usage");
            let options = options.split("\nExamples:\n").next().unwrap_or("");
            for line in options.lines() {
                assert!(
                    !line.starts_with("        ") && line.len() <= 100,
                    "{verb}: not one line: {line:?}\n{short}"
                );
            }
            let long = own.clone().render_long_help().to_string();
            assert!(
                verb.split(' ').any(|word| word == "help")
                    || long.lines().count() > short.lines().count() + 3,
                "{verb}\n{long}"
            );
        });
    }

    #[test]
    fn tables_name_verbs() {
        let command = crate::args::described();
        for (verb, related) in RELATED {
            assert!(find(&command, verb).is_some(), "there is no verb {verb}");
            for other in *related {
                assert!(
                    find(&command, other).is_some() && other != verb,
                    "{verb}: there is no verb {other}"
                );
            }
        }
        for (verb, _) in OTHER_STATUSES {
            assert!(find(&command, verb).is_some(), "there is no verb {verb}");
        }
        each(&command, "", &mut |_, verb| {
            assert!(verb.is_empty() || !super::related(verb).is_empty(), "{verb}")
        });
    }

    #[test]
    fn help_says_where_the_documents_are() {
        assert_eq!(
            documents(Some("https://example.org/docs/")),
            "A page that is named docs/NAME.md is at https://example.org/docs/NAME.md."
        );
        assert_eq!(documents(Some("")), documents(None));
        let help = crate::args::command().render_long_help().to_string().replace("\n", " ");
        assert!(help.contains("A page that is named docs/NAME.md is "), "{help}");
    }

    #[test]
    fn a_status_is_that_of_its_verb() {
        let command = crate::args::described();
        let of = |verb: &str| statuses(verb, find(&command, verb).expect("a verb"));
        assert_eq!(of("report"), [DONE, READ_ERROR, USAGE, LOSSES]);
        assert_eq!(of("stop"), [DONE, ERROR, USAGE]);
        assert_eq!(
            of("record").iter().map(|(code, _)| *code).collect::<Vec<_>>(),
            ["0", "1", "2", "3", "N"]
        );
        for verb in ["demo", "doctor", "core-helper status"] {
            assert!(!of(verb).contains(&DONE) && !of(verb).contains(&ERROR), "{verb}");
        }
    }
}
