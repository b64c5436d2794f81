//! Finds the last events that a selection wants, and passes over the packets before them.

use crate::choose::{Chosen, Filter, Passed};
use crate::select::Selection;
use lastwords_ctf::read::{
    Cut, Due, Error, Loss, Place, Reader, Sink, Skip, Tail, Trace, Watch, run, unwatched,
};
use lastwords_trace::clock::Rounding;

/// How many times as much is read if what was read had too few events.
const MORE: u64 = 8;

/// Some traces, and the selection that chooses among their streams.
#[derive(Clone, Copy)]
struct Inputs<'t> {
    traces: &'t [Trace],
    selection: &'t Selection,
    rounding: Rounding,
}

impl<'t> Inputs<'t> {
    fn chosen(self, watch: Watch<'t>) -> Chosen<'t> {
        Chosen::new(self.traces, self.selection, self.rounding, watch)
    }
}

impl<'t> Chosen<'t> {
    /// Returns the streams that `selection` wants. If `selection` wants only the last events, the
    /// streams begin with packets before these. All packets are read once before that, without an
    /// order, so that every loss and fault is found.
    pub(crate) fn last(
        traces: &'t [Trace],
        selection: &'t Selection,
        rounding: Rounding,
        watch: Watch<'t>,
    ) -> Self {
        let inputs = Inputs { traces, selection, rounding };
        let Some(last) = selection.last else { return inputs.chosen(watch) };
        let begun = if selection.unread_before { inputs.foretold(last) } else { None };
        match begun.or_else(|| inputs.read(last)) {
            Some(begun) => inputs.begin(begun, watch),
            None => inputs.whole(last, watch),
        }
    }

    /// Returns the streams that `selection` wants, from their beginnings. If it wants only the last
    /// events, all events are counted first.
    pub(crate) fn counted(
        traces: &'t [Trace],
        selection: &'t Selection,
        rounding: Rounding,
        watch: Watch<'t>,
    ) -> Self {
        let inputs = Inputs { traces, selection, rounding };
        match selection.last {
            Some(last) => inputs.whole(last, watch),
            None => inputs.chosen(watch),
        }
    }
}

/// A cut behind which the last events are.
struct Begun {
    passed: Passed,
    /// Number of events to skip behind the cut.
    to_skip: u64,
}

impl<'t> Inputs<'t> {
    /// Returns all of the streams.
    fn whole(self, last: u64, watch: Watch<'t>) -> Chosen<'t> {
        let mut chosen = self.chosen(watch);
        let count = self.count(None);
        chosen.filter.to_skip = count.events.saturating_sub(last);
        chosen
    }

    /// Returns the streams behind a cut.
    fn begin(self, begun: Begun, watch: Watch<'t>) -> Chosen<'t> {
        let mut chosen = self.chosen(watch);
        pass_over(&mut chosen, &begun.passed.skips);
        chosen.filter.to_skip = begun.to_skip;
        Chosen { passed: begun.passed, ..chosen }
    }

    /// Finds the last events after all packets were read.
    fn read(self, last: u64) -> Option<Begun> {
        let readers = self.chosen(&unwatched).readers;
        self.search(&Tail::read(self.traces, &readers, self.rounding)?, last, true)
    }

    /// Finds the last events by what is known of packets before they are read.
    fn foretold(self, last: u64) -> Option<Begun> {
        let mut readers = self.chosen(&unwatched).readers;
        self.search(&Tail::foretell(&mut readers), last, false)
    }

    /// Searches for the last events from the end.
    fn search(self, tail: &Tail, last: u64, is_checked: bool) -> Option<Begun> {
        // The event before the last ones is wanted too: events that are not counted stand between
        // it and them.
        let enough = last.saturating_add(1);
        let mut events = enough;
        loop {
            let cut = tail.cut(events)?;
            let count = self.count(Some(&cut));
            if count.is_contradicted && !is_checked {
                return None;
            }
            if count.behind >= enough && !count.is_doubtful {
                let passed = Passed { skips: cut.skips, is_checked };
                return Some(Begun { passed, to_skip: count.events.saturating_sub(last) });
            }
            events = events.saturating_mul(MORE);
        }
    }

    /// Counts the wanted events behind a cut.
    fn count(self, cut: Option<&Cut>) -> Count<'t> {
        let mut chosen = self.chosen(&unwatched);
        if let Some(cut) = cut {
            pass_over(&mut chosen, &cut.skips);
        }
        let Chosen { mut readers, filter, .. } = chosen;
        let cut = cut.map(|cut| cut.behind);
        let mut count =
            Count { filter, cut, events: 0, behind: 0, is_doubtful: false, is_contradicted: false };
        run(&mut readers, &mut count);
        count
    }
}

/// Passes over packets of each stream.
fn pass_over(chosen: &mut Chosen<'_>, skips: &[Skip]) {
    chosen.readers.iter_mut().zip(skips).for_each(|((_, reader), skip)| reader.pass_over(*skip));
    if skips.iter().any(|skip| skip.packets > 0) {
        chosen.filter.begin_late();
    }
}

/// Counts wanted events.
struct Count<'t> {
    filter: Filter<'t>,
    /// The place behind which no event is missing; none if none is missing at all.
    cut: Option<Place>,
    events: u64,
    /// Number of events behind the cut.
    behind: u64,
    /// Earlier events decide whether an event behind the cut is wanted.
    is_doubtful: bool,
    /// An event is not between the begin and the end of its packet.
    is_contradicted: bool,
}

impl Sink for Count<'_> {
    fn event(&mut self, stream: usize, reader: &mut Reader<'_>, event: &Due) -> bool {
        if let Some(cut) = self.cut {
            let place = reader.place().map(|(_, entry)| entry);
            self.is_contradicted |=
                place.is_some_and(|entry| !(entry.begin..=entry.end).contains(&event.clock));
            if self.filter.wants(stream, reader, event) {
                let count = self.filter.count(stream);
                let is_behind = event.is_behind(cut);
                self.events = self.events.saturating_add(count);
                self.behind = self.behind.saturating_add(if is_behind { count } else { 0 });
                self.is_doubtful |= is_behind && self.filter.is_doubtful();
            }
        } else if self.filter.wants(stream, reader, event) {
            self.events = self.events.saturating_add(self.filter.count(stream));
        }
        !self.is_doubtful
    }

    fn packet(&mut self, _: usize, _: &mut Reader<'_>) {}

    fn loss(&mut self, _: usize, _: &mut Reader<'_>, _: Loss) {}

    fn fault(&mut self, _: usize, _: Error) {}
}
