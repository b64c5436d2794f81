//! Completes words in shells: the verbs and options, the names of sessions and of the kernel's
//! trace instances, and paths.
//!
//! The script of a shell (`lastwords completions SHELL`) calls the program with the variable
//! [`VARIABLE`] and the words of the command line, and the program prints what the last word may
//! become.

use clap::Command;
use clap_complete::CompleteEnv;
use clap_complete::engine::{
    ArgValueCandidates, ArgValueCompleter, CompletionCandidate, PathCompleter, ValueCompleter as _,
};
use lastwords_control::{self, Summary};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::Write;

/// The variable in which the script of a shell names that shell.
const VARIABLE: &str = "LASTWORDS_COMPLETE";
/// Zsh runs the script as a function when a word is completed for the first time.
const FIRST_IN_ZSH: &[u8] =
    b"if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _clap_dynamic_completer_lastwords \"$@\"; fi\n";

/// Answers the script of a shell, and ends the process then. Returns if no script has asked.
pub(crate) fn answer() {
    CompleteEnv::with_factory(command)
        .var(VARIABLE)
        .bin("lastwords")
        .completer("lastwords")
        .complete();
}

/// Writes the script of a shell.
pub(crate) fn script(shell: &str, out: &mut dyn Write) -> std::io::Result<()> {
    let shells = clap_complete::env::Shells::builtins();
    let shell = shells.completer(shell).ok_or_else(|| std::io::Error::other("no such shell"))?;
    shell.write_registration(VARIABLE, "lastwords", "lastwords", "lastwords", out)?;
    if shell.name() == "zsh" { out.write_all(FIRST_IN_ZSH) } else { Ok(()) }
}

/// The command with what completes its arguments, by the names of their values.
fn command() -> Command {
    with_completers(crate::args::command())
}

fn with_completers(command: Command) -> Command {
    let command = command.mut_args(|arg| {
        let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
        match (value.as_deref(), arg.get_id().as_str()) {
            (Some("INPUT" | "GOOD" | "BAD"), _) => arg.add(ArgValueCompleter::new(inputs)),
            (Some("SESSION"), _) => arg.add(ArgValueCandidates::new(sessions)),
            (Some("GLOB"), "sessions") => arg.add(ArgValueCandidates::new(names)),
            _ => arg,
        }
    });
    command.mut_subcommands(with_completers)
}

/// The sessions, each name once.
fn sessions() -> Vec<CompletionCandidate> {
    let mut all: Vec<Summary> = lastwords_control::list(None).unwrap_or_default();
    let mut seen = BTreeSet::new();
    all.retain(|session| seen.insert(session.name.clone()));
    let candidate = |session: Summary| {
        let state =
            session.details.map_or("gone", |details| crate::control::state_word(details.state));
        CompletionCandidate::new(session.name).help(Some(state.into()))
    };
    all.into_iter().map(candidate).collect()
}

/// The sessions, and the trace instances of the running kernel.
fn names() -> Vec<CompletionCandidate> {
    let folder = lastwords_open::tracefs_folder().map(|folder| folder.join("instances"));
    let entries = folder.ok().and_then(|folder| std::fs::read_dir(folder).ok());
    let instances = entries.into_iter().flatten().filter_map(Result::ok);
    let instance = |name| CompletionCandidate::new(name).help(Some("trace instance".into()));
    sessions().into_iter().chain(instances.map(|entry| instance(entry.file_name()))).collect()
}

/// The sessions and instances whose names begin like the word, and paths.
fn inputs(word: &OsStr) -> Vec<CompletionCandidate> {
    let word_bytes = word.as_encoded_bytes();
    let begins =
        |name: &CompletionCandidate| name.get_value().as_encoded_bytes().starts_with(word_bytes);
    names().into_iter().filter(begins).chain(PathCompleter::any().complete(word)).collect()
}
