//! The options of `record` that belong to one instance of the kernel's tracer. As in trace-cmd,
//! those after a `-B NAME` are for the instance NAME, those after an `-A NAME@ADDRESS` for that guest,
//! and those before the first for the main one.
//!
//! Clap's derived parsers do not see the order of options. So the command line is parsed once with
//! each option allowed several times, and then the words of each instance alone.

use super::bytes;
use super::choice::{ChoiceOptions, ProcessOptions};
use super::options::EventOptions;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use lastwords_tracefs::Buffer;
use std::ffi::OsString;

/// The options of one instance.
#[derive(Debug, Clone, clap::Args)]
pub(in crate::verbs) struct OfOne {
    #[command(flatten)]
    pub(in crate::verbs) events: EventOptions,

    /// The kernel's tracer: function, function_graph, ...
    ///
    /// /sys/kernel/tracing/available_tracers has all names.
    #[arg(short, long, value_name = "PLUGIN")]
    pub(in crate::verbs) plugin: Option<String>,

    /// The size of the ring of each CPU
    ///
    /// By default, it is 8M, or that of an instance that exists.
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub(in crate::verbs) size: Option<u64>,

    /// The clock of the events
    ///
    /// Only with mono, mono_raw and boot, events can be shown in one timeline with those of
    /// applications. By default, it is mono, or the clock of an instance that exists.
    #[arg(short = 'C', long, value_name = "CLOCK")]
    pub(in crate::verbs) clock: Option<String>,

    #[command(flatten)]
    pub(in crate::verbs) choice: ChoiceOptions,
}

/// The options of all instances.
#[derive(Debug, Clone)]
pub(in crate::verbs) struct BufferOptions {
    /// Those before the first `-B`.
    pub(in crate::verbs) main: OfOne,
    /// The names of the others, with their options.
    pub(in crate::verbs) others: Vec<(String, OfOne)>,
    /// Those of guests, in the order of `-A`.
    pub(in crate::verbs) guests: Vec<OfOne>,
}

const BUFFER: &str = "buffer";
/// The option of `record` after which those of a guest stand.
pub(super) const AGENT: &str = "agent";

impl BufferOptions {
    /// Returns the other instances for the plan.
    pub(in crate::verbs) fn buffers(&self, processes: &ProcessOptions) -> Vec<Buffer> {
        let of = |(name, options): &(String, OfOne)| Buffer {
            name: name.clone(),
            events: options.events.rules.clone(),
            tracer: options.plugin.clone(),
            size: options.size,
            clock: options.clock.clone(),
            choice: processes.choice(&options.choice),
        };
        self.others.iter().map(of).collect()
    }

    /// Returns the options of each instance.
    pub(in crate::verbs) fn all(&self) -> impl Iterator<Item = &OfOne> {
        [&self.main].into_iter().chain(self.others.iter().map(|(_, options)| options))
    }
}

/// Returns the parser of the options of one instance.
fn of_one() -> Command {
    OfOne::augment_args(Command::new("record").no_binary_name(true).disable_help_flag(true))
}

/// Returns the words of all options of one instance that are on the command line, with their
/// places.
fn words(matches: &ArgMatches) -> Vec<(usize, OsString)> {
    let mut words = Vec::new();
    for arg in of_one().get_arguments() {
        let id = arg.get_id().as_str();
        if matches.value_source(id) != Some(ValueSource::CommandLine) {
            continue;
        }
        let places = matches.indices_of(id).into_iter().flatten();
        let name = arg.get_long().unwrap_or(id);
        let has_none = arg.get_num_args().is_some_and(|values| !values.takes_values());
        if has_none || !arg.get_action().takes_values() {
            words.extend(places.map(|place| (place, format!("--{name}").into())));
            continue;
        }
        let values = matches.get_raw(id).into_iter().flatten();
        words.extend(places.zip(values).map(|(place, value)| {
            let mut word = OsString::from(format!("--{name}="));
            word.push(value);
            (place, word)
        }));
    }
    words.sort();
    words
}

/// Returns the places where the options of another instance begin, with its name, or of a guest.
fn sections(matches: &ArgMatches) -> Result<Vec<(usize, Option<&String>)>, Error> {
    let places = matches.indices_of(BUFFER).into_iter().flatten();
    let names = matches.get_many::<String>(BUFFER).into_iter().flatten();
    let mut sections: Vec<(usize, Option<&String>)> = places.zip(names.map(Some)).collect();
    // Only `record` has guests.
    if matches.try_contains_id(AGENT).unwrap_or(false) {
        let guests: Vec<usize> = matches.indices_of(AGENT).into_iter().flatten().collect();
        let first = guests.first().copied().unwrap_or(usize::MAX);
        if let Some((_, Some(name))) = sections.iter().find(|(place, _)| *place > first) {
            let text = format!(
                "--buffer {name} is after --agent: an agent records in one instance; give it before\n"
            );
            return Err(Error::raw(ErrorKind::ArgumentConflict, text));
        }
        sections.extend(guests.into_iter().map(|place| (place, None)));
    }
    sections.sort();
    Ok(sections)
}

impl FromArgMatches for BufferOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let sections = sections(matches)?;
        let words = words(matches);
        let parse = |begin: usize, end: usize| {
            let own = words.iter().filter(|(place, _)| (begin..end).contains(place));
            let matches = of_one().try_get_matches_from(own.map(|(_, word)| word))?;
            OfOne::from_arg_matches(&matches)
        };
        let end = |at: usize| sections.get(at).map_or(usize::MAX, |(place, _)| *place);
        let (mut others, mut guests): (Vec<(String, OfOne)>, _) = (Vec::new(), Vec::new());
        for (at, (place, name)) in sections.iter().enumerate() {
            let own = parse(*place, end(at + 1))?;
            match name {
                None => guests.push(own),
                Some(name) if others.iter().any(|(other, _)| other == *name) => {
                    let text = format!("--buffer {name} is given twice\n");
                    return Err(Error::raw(ErrorKind::ArgumentConflict, text));
                }
                Some(name) => others.push(((*name).clone(), own)),
            }
        }
        Ok(Self { main: parse(0, end(0))?, others, guests })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for BufferOptions {
    fn augment_args(command: Command) -> Command {
        let several = |arg: &Arg| {
            let own = arg.clone().action(ArgAction::Append);
            if arg.get_action().takes_values() {
                return own;
            }
            // Clap knows the places of options alone, so that a flag becomes one without a value.
            let own = own.num_args(0).value_parser(clap::value_parser!(bool));
            own.default_missing_value("true").default_value("false")
        };
        let own = of_one();
        let command = command.args(own.get_arguments().map(several));
        command.arg(
            Arg::new(BUFFER)
                .short('B')
                .long(BUFFER)
                .value_name("NAME")
                .action(ArgAction::Append)
                .help("Record in one more instance, with the options after this one")
                .long_help(
                    "Record in one more instance\n\nThe options for events, tracer, functions, processes, CPUs, ring and clock that follow are \
                     for the instance NAME, until the next --buffer. All instances are in one file. One that exists is used as --instance uses it.",
                ),
        )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
