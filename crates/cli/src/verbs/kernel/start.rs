//! Implements `kernel start`: sets up an instance of the kernel's tracer and leaves it recording.

use crate::exit::Outcome;
use crate::say;
use crate::verbs::record::{BufferOptions, ProbeOptions, ProcessOptions, has_events};
use anyhow::bail;
use lastwords_tracefs::{Plan, Recording};

/// The arguments of `kernel start`.
#[derive(Debug, clap::Args)]
#[command(
    after_long_help = "The options are those of `lastwords record`. The rings keep the newest events until `kernel extract` saves them. \
What is changed is noted in the folder of the user's sessions before, so that `kernel reset` finds it, also after this command was killed."
)]
pub(super) struct Args {
    #[command(flatten)]
    own: BufferOptions,

    #[command(flatten)]
    probes: ProbeOptions,

    /// With -P, record also the children
    #[arg(short = 'c', long, help_heading = "Functions, processes, CPUs")]
    children: bool,

    /// A full ring discards new events, not the oldest ones
    #[arg(long)]
    discard: bool,

    /// The name of the kernel's trace instance
    ///
    /// By default, it is lastwords. An instance that exists is used with its events and settings
    /// and those that are given here, and `reset` restores its settings.
    #[arg(long, value_name = "NAME")]
    instance: Option<String>,
}

/// Starts to record.
pub(super) fn run(args: &Args) -> anyhow::Result<Outcome> {
    let definitions = args.probes.definitions();
    let is_adopted = args.instance.as_deref().is_some_and(lastwords_tracefs::has_instance);
    if !is_adopted
        && definitions.is_empty()
        && args.own.others.is_empty()
        && !args.own.all().any(has_events)
    {
        bail!("nothing to record: name events with -e, a tracer with -p, or a probe");
    }
    let processes = ProcessOptions::without_command(args.children);
    processes.check(args.own.all().map(|own| &own.choice))?;
    args.own.all().for_each(|own| own.choice.tell_other_threads());
    let main = &args.own.main;
    let journals = lastwords_control::dirs::make_base()?;
    let plan = Plan {
        instance: args.instance.clone(),
        events: main.events.rules.clone(),
        tracer: main.plugin.clone(),
        choice: processes.choice(&main.choice),
        buffers: args.own.buffers(&processes),
        definitions,
        size: main.size,
        clock: main.clock.clone(),
        discard: args.discard,
        stays: true,
        output: journals.join("extract.dat"),
        journals,
        ..Plan::default()
    };
    let mut recording = Recording::begin(&plan)?;
    // No process stays to save snapshots, so the news of them goes nowhere.
    recording.start(Box::new(|_| {}))?;
    let instance = recording.instance().to_owned();
    recording.leave()?;
    say::note(format_args!(
        "recording in the instance {instance} until `lastwords kernel stop`; `lastwords kernel extract` saves it"
    ));
    Ok(Outcome::Done)
}
