//! One contender of `cargo xtask bench record`, alone in its process; and a stop-watch for other
//! programs.
//!
//! ```text
//! lastwords-bench list                                   the contenders that are built in
//! lastwords-bench generate DIR EVENTS                   leave a session of ours with so many events in a folder
//! lastwords-bench NAME PAYLOAD EVENTS CPU[,CPU...]       run one, print a line of JSON
//! lastwords-bench server RECORDER REQUESTS              serve so many requests, print the CPU time of one as JSON
//! lastwords-bench calls RECORDER REQUESTS               make the calls of so many requests, print the time of one as JSON
//! lastwords-bench shapes CPU ROUNDS                      time events of many shapes beside the floor, print them as JSON
//! lastwords-bench aborts EVENTS                         count aborted sections and time their events, print a table
//! lastwords-bench measure CPU PROGRAM [ARGUMENT...]      run a program on one CPU, print a line of JSON
//! ```
//!
//! The contenders written in C (`bench/c/`) take the same command line and print the same line.
#![deny(unsafe_code)]

use std::process::ExitCode;

mod aborts;
mod contenders;
mod job;
mod machine;
mod measure;
mod sections;
mod server;
mod shapes;

/// The result of a contender or of the stop-watch. The error is a text for the person at the
/// terminal.
type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lastwords-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<()> {
    match arguments {
        [verb] if verb == "list" => {
            contenders::ALL.iter().for_each(|contender| println!("{}", contender.name));
            Ok(())
        }
        [verb, dir, events] if verb == "generate" => {
            contenders::lastwords::generate(std::path::Path::new(dir), events.parse()?)
        }
        [verb, recorder, requests] if verb == "server" => server::run(recorder, requests),
        [verb, recorder, requests] if verb == "calls" => server::calls(recorder, requests),
        [verb, address, requests] if verb == "client" => server::client(address, requests),
        [verb, events] if verb == "aborts" => aborts::run(events),
        [verb, trouble, area, events] if verb == "aborts-here" => {
            aborts::here(trouble, area, events)
        }
        [verb, cpu, rounds] if verb == "shapes" => shapes::run(cpu, rounds),
        [verb, cpu, program, rest @ ..] if verb == "measure" => {
            println!(
                "{}",
                measure::run(if cpu == "all" { None } else { Some(cpu.parse()?) }, program, rest)?
            );
            Ok(())
        }
        [name, rest @ ..] => {
            let Some(contender) = contenders::ALL.iter().find(|contender| contender.name == *name)
            else {
                return Err(format!(
                    "no contender `{name}`: `list` prints those that are built in"
                )
                .into());
            };
            println!("{}", (contender.run)(&job::Job::parse(rest)?)?);
            Ok(())
        }
        [] => Err("expected `list`, `measure` or a contender's name".into()),
    }
}
