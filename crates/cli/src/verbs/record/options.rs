//! The options `-e`, `-f`, `-R` and `-v` of `record`. A filter belongs to the events before it, as in
//! trace-cmd, so their order on the command line counts, which clap's derived parsers do not see.

use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command, Error, FromArgMatches};
use lastwords_tracefs::Rule;

/// The events to record, each with its filter.
#[derive(Debug, Clone, Default)]
pub(in crate::verbs) struct EventOptions {
    pub(in crate::verbs) rules: Vec<Rule>,
}

const EVENT: &str = "event";
const FILTER: &str = "filter";
const TRIGGER: &str = "trigger";
const LEAVE_OUT: &str = "leave-out";

impl FromArgMatches for EventOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let with_places = |name: &str| {
            let places = matches.indices_of(name).into_iter().flatten();
            let texts = matches.get_many::<String>(name).into_iter().flatten();
            places.zip(texts.cloned()).collect::<Vec<_>>()
        };
        let events = with_places(EVENT);
        // All events after the first `-v` are left out.
        let left_out = matches.indices_of(LEAVE_OUT).and_then(|mut places| places.next());
        let mut rules: Vec<Rule> = events
            .iter()
            .map(|(place, pattern)| Rule {
                pattern: pattern.clone(),
                is_left_out: left_out.is_some_and(|left_out| left_out < *place),
                ..Rule::default()
            })
            .collect();
        // The rule of the last event before a place.
        let before = |option: &str, place: usize, text: &str| {
            let at = events.iter().rposition(|(event, _)| *event < place);
            at.ok_or_else(|| {
                let kind = ErrorKind::MissingRequiredArgument;
                Error::raw(kind, format!("--{option} {text:?} has no --event before it\n"))
            })
        };
        for (place, trigger) in with_places(TRIGGER) {
            rules[before(TRIGGER, place, &trigger)?].triggers.push(trigger);
        }
        for (place, filter) in with_places(FILTER) {
            let rule = &mut rules[before(FILTER, place, &filter)?];
            if !rule.filter.is_empty() {
                let text = format!("--event {} has two filters; join them with &&\n", rule.pattern);
                return Err(Error::raw(ErrorKind::ArgumentConflict, text));
            }
            rule.filter = filter;
        }
        Ok(Self { rules })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for EventOptions {
    fn augment_args(command: Command) -> Command {
        command
            .arg(
                Arg::new(EVENT)
                    .short('e')
                    .long("event")
                    .value_name("EVENT")
                    .action(ArgAction::Append)
                    .help("Record these events: SYSTEM:EVENT, a name, or `all`")
                    .long_help(
                        "Record these events\n\nEVENT is SYSTEM:EVENT, where both may be globs (`syscalls:*`), the name of a system or \
                         of an event, or `all`.",
                    ),
            )
            .arg(
                Arg::new(FILTER)
                    .short('f')
                    .long("filter")
                    .value_name("FILTER")
                    .action(ArgAction::Append)
                    .help("The kernel's filter for the events of the last --event")
                    .long_help(
                        "The kernel's filter for the events of the last --event\n\nAn example is `prev_pid != 0`. All events of the \
                         --event before this option must have the fields of the filter.",
                    ),
            )
            .arg(
                Arg::new(TRIGGER)
                    .short('R')
                    .long("trigger")
                    .value_name("TRIGGER")
                    .action(ArgAction::Append)
                    .help("A trigger of the kernel for the events of the last --event")
                    .long_help(
                        "A trigger of the kernel for the events of the last --event\n\n`snapshot if prev_pid == 1` saves the rings of \
                         each such moment in FILE.snapshot-1, FILE.snapshot-2 and so on, while recording goes on. `traceoff if ret < 0` ends the tracing and, without COMMAND, the recording. \
                         `hist:keys=next_comm` counts the events by key in a histogram, which `lastwords kernel hist` shows and FILE.hist gets at the end. \
                         `stacktrace` and the kernel's other triggers work as the kernel describes them.",
                    ),
            )
            .arg(
                // An option, whose place clap knows, and no flag.
                Arg::new(LEAVE_OUT)
                    .short('v')
                    .long(LEAVE_OUT)
                    .action(ArgAction::Append)
                    .num_args(0)
                    .default_missing_value("true")
                    .help("Do not record the events of each --event after this")
                    .long_help(
                        "Do not record the events of each --event after this\n\nTheir triggers work: `-v -e sched:sched_switch -R hist:keys=next_comm` \
                         makes a histogram and records no event. `-e sched -v -e 'sched_stat*'` records all events of sched but these.",
                    ),
            )
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
