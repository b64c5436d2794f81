//! Implements `lastwords report --follow`: prints the events of sessions as they are recorded.

use super::{Args, zone};
use crate::account::LIMIT;
use crate::exit::{Facts, Outcome};
use crate::input::MOST_NOTES;
use crate::lines::Lines;
use crate::pager::Pager;
use crate::say;
use crate::select::Events;
use crate::stop::Stop;
use crate::table::plain;
use crate::text::{self, Form, LineStyle, unknown_fields};
use crate::traces::{Arrays, Traces};
use lastwords_open::{Account, Losses, accounts_after_reading};
use lastwords_render::missing::count;
use lastwords_render::text::chosen::Columns;
use std::collections::BTreeSet;
use std::time::Duration;

/// Prints the events that are there now, and takes those of instances out of their rings.
pub(super) fn once(args: &Args, columns: Option<&Columns>) -> anyhow::Result<Outcome> {
    let mut following = Following { events: args.events.clone(), ..Following::default() };
    args.input.follow(|| false, |traces| following.step(args, columns, traces))?;
    Ok(following.outcome(args))
}

/// Prints events as they are recorded.
pub(super) fn run(args: &Args, columns: Option<&Columns>) -> anyhow::Result<Outcome> {
    if args.style == Some(LineStyle::Babeltrace) {
        anyhow::bail!(
            "--style babeltrace shows times between events, which each step of --follow would begin anew; fields, ftrace and raw do not"
        );
    }
    if args.fields.iter().any(|name| name == "delta") {
        anyhow::bail!(
            "delta is the time since the line before, which each step of --follow would begin anew"
        );
    }
    let mut following = Following { events: args.events.clone(), ..Following::default() };
    let stop = Stop::on_signals()?;
    args.input.follow(|| stop.wait(INTERVAL), |traces| following.step(args, columns, traces))?;
    Ok(following.outcome(args))
}

/// Time between two looks at the sessions that are followed.
const INTERVAL: Duration = Duration::from_millis(100);

/// The state of `report --follow`.
#[derive(Default)]
struct Following {
    /// The selection; `--last` is for the first step only.
    events: Events,
    /// True after the first step.
    has_begun: bool,
    printed: u64,
    facts: Facts,
    /// Remarks that were printed.
    notes: BTreeSet<String>,
}

impl Following {
    /// Prints the events of a step, and what was lost since the step before. Returns whether
    /// anybody still reads.
    fn step(
        &mut self,
        args: &Args,
        columns: Option<&Columns>,
        traces: &mut Traces,
    ) -> anyhow::Result<bool> {
        traces.choose(Arrays::Top)?;
        let chosen = self.events.choose_unchecked(traces)?;
        let no_header = std::mem::replace(&mut self.has_begun, true);
        if !no_header {
            if let Err(error) = self.events.check_names(traces) {
                say::note(format_args!("so far, {error:#}"));
            }
            for unknown in columns
                .map_or(Ok(Vec::new()), |columns| unknown_fields(traces, &chosen, columns))?
            {
                say::note(format_args!("so far, {}", plain(&unknown)));
            }
            self.events = self.events.without_last();
        }
        let mut out = Pager::open(false);
        let form = Form {
            style: args.style,
            verbose: args.verbose,
            columns,
            zone: zone(args),
            no_header,
            ..Form::default()
        };
        let mut lines = Lines::new(&mut out, &args.grep, None);
        let mut result = text::write(traces, &chosen, &form, &mut lines)?;
        let matched = lines.finish()?;
        result.is_closed |= matched.is_none();
        let is_closed = !out.finish()? || result.is_closed;
        self.printed +=
            if args.grep.is_empty() { result.totals.events } else { matched.unwrap_or(0) };
        let mut accounts =
            accounts_after_reading(&traces.all, &result.totals, &result.notes.of_traces);
        for account in &mut accounts {
            account.spans = None;
            account
                .evidence
                .to_mut()
                .notes
                .retain(|note| self.notes.len() < MOST_NOTES && self.notes.insert(note.clone()));
        }
        let has_news = |account: &&Account<'_>| {
            account.has_losses()
                || !account.evidence.gaps.is_empty()
                || !account.evidence.notes.is_empty()
        };
        for account in accounts.iter().filter(has_news) {
            let mut text = Vec::new();
            account.write(LIMIT, &mut text)?;
            say::remark(text);
        }
        result.notes.print_undecoded();
        self.facts.losses.add(&Losses::from_accounts(&accounts));
        self.facts.failed |= result.notes.unreadable > 0;
        self.facts.worst_failure = self.facts.worst_failure.max(traces.worst_failure);
        Ok(!is_closed)
    }

    fn outcome(&self, args: &Args) -> Outcome {
        say::note(format_args!(
            "{} printed; {}",
            count(self.printed, "event"),
            self.facts.losses.words()
        ));
        Facts { strict: args.strict, ..self.facts }.outcome()
    }
}
