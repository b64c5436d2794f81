//! The project's own commands: `cargo xtask VERB`. One module a verb; other verbs are rigs, which
//! are programs of `proof/`.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Result;

use args::Given;

mod args;
mod rigs;
mod setup;
mod test;
mod tidy;

/// A verb of this program itself: its name, its help and what it does.
type Verb = (&'static str, &'static str, fn(&Given) -> Result<()>);

const VERBS: &[Verb] = &[
    (
        "tidy",
        "Check what the compiler does not: the crate graph, sizes, where `unsafe` stands, left-overs\n\nUsage: cargo xtask tidy",
        |_| tidy::run(),
    ),
    ("setup", setup::HELP, |given| setup::run(given.has("check"), false)),
    ("test", test::HELP, test::run),
];

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    if words.is_empty() {
        eprint!("{}", help());
        return ExitCode::from(2);
    }
    match run(&words) {
        Err(error) if error.is::<lexopt::Error>() => {
            eprintln!(
                "error: {error}\n\n`cargo xtask --help` and `cargo xtask VERB --help` say what there is."
            );
            ExitCode::from(2)
        }
        done => rig::exit(done),
    }
}

fn run(words: &[OsString]) -> Result<()> {
    let [first, rest @ ..] = words else { return Ok(()) };
    match VERBS.iter().find(|(name, ..)| first == name) {
        Some((_, help, run)) => match args::parse(help, rest)? {
            Some(given) => return run(&given),
            None => println!("{help}"),
        },
        None if first == "help" && !rest.is_empty() => {
            return run(&[rest, &["--help".into()]].concat());
        }
        None if first == "help" || first == "--help" || first == "-h" => print!("{}", help()),
        None if first.as_encoded_bytes().starts_with(b"-") => {
            return Err(lexopt::Error::from(format!("no option `{}`", first.display())).into());
        }
        None => return rigs::become_rig(words),
    }
    Ok(())
}

fn help() -> String {
    let first = |help: &'static str| help.lines().next().unwrap_or_default();
    let verbs = VERBS.iter().map(|(name, help, _)| (*name, first(help)));
    let verbs = verbs.chain([("help", "Print this, or the help of a verb")]);
    let verbs: String = verbs.map(|(name, what)| format!("  {name:<15} {what}\n")).collect();
    let about =
        "The project's own checks, set-up and test runs\n\nUsage: cargo xtask <VERB> [OPTIONS]";
    format!("{about}\n\nVerbs:\n{verbs}\n{}\n", rigs::help())
}
