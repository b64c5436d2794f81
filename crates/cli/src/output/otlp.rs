//! Writes OTLP: the events and spans, and for each trace the verdict on its end and its losses.

use super::to_file;
use super::write::{Writing, Written};
use crate::verdict::{has_ended, verdict};
use lastwords_ctf::Totals;
use lastwords_ftrace::ctf::Form;
use lastwords_open::accounts_after_reading;
use lastwords_render::events::Note;
use lastwords_render::otlp::{self, Input};

impl Writing<'_, '_> {
    pub(super) fn otlp(&self) -> Written {
        let all = &self.traces.all;
        let open_spans = self.traces.open_spans();
        let selection = self.chosen.once();
        self.events(Form::Lines, false, &selection, |traces, positions, selection, watch, take| {
            let trace = |at: &Option<usize>| at.and_then(|at| all.get(at));
            let is_ended = |trace| has_ended(self.traces, trace);
            let ended: Vec<bool> =
                positions.iter().map(|at| trace(at).is_some_and(is_ended)).collect();
            let input = Input { traces, open_spans: &open_spans, ended: &ended };
            to_file(self.path, |out| {
                let (mut unreadable, mut read) = (0, Vec::new());
                let written = otlp::write(input, selection, out, watch, &mut |note| {
                    match &note {
                        Note::Read(at, totals) => {
                            let position = positions.get(*at).copied().flatten();
                            read.extend(position.map(|position| (position, *totals)));
                        }
                        Note::Fault(_) => unreadable += 1,
                        _ => {}
                    }
                    take(note);
                });
                let mut written = written?;
                let totals =
                    Totals { faults: written.totals.faults.max(unreadable), ..written.totals };
                let accounts = accounts_after_reading(all, &totals, &read);
                for (at, position) in positions.iter().enumerate() {
                    let of = position.and_then(|at| Some((all.get(at)?, accounts.get(at)?)));
                    let Some((trace, account)) = of else { continue };
                    let verdict = verdict(self.traces, trace, account);
                    written.verdict(at, &verdict, out)?;
                }
                Ok(written.totals)
            })
        })
    }
}
