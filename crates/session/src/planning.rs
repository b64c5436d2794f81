//! Plans the streams of a session, in parallel if they are large.

use super::data::Stream as Data;
use super::end::End;
use super::freeze::Wanted;
use super::frozen::Frozen;
use super::info::Info;
use super::layout::{Control, ThreadTable};
use super::outcome::Outcome;
use super::plan::Planner;
use super::region::Region;
use super::schema;
use super::session::Options;
use lastwords_bytes::{Budget, Error};
use lastwords_ctf::session::ChannelDecoder;
use lastwords_folders::SnapshotState;
use lastwords_image::{Progress, Watch};
use lastwords_trace::evidence::Cause;
use lastwords_trace::parallel;
use std::sync::Arc;

/// Size of the streams, in bytes, from which planning on several threads is faster than on one.
const WORTH_THREADS: u64 = 1 << 20;

/// The plan of a stream, and the copy that was planned if the stream was being written.
type Planned = (Outcome, Option<Arc<Frozen>>);

/// The inputs of planning the streams of a session.
pub(super) struct Planning<'a> {
    pub(super) options: &'a Options<'a>,
    pub(super) budget: &'a Budget,
    pub(super) watch: Watch<'a>,
    /// The places of damaged sub-buffers are filled with those that were found without a region.
    pub(super) is_carved: bool,
    pub(super) info: &'a Info,
    pub(super) flip: Option<u32>,
    pub(super) resolved: &'a schema::Resolved,
    pub(super) threads: Option<(&'a Region, ThreadTable)>,
    /// For a consuming read: position where reading ends, by stream.
    pub(super) ends: Option<Vec<Option<End>>>,
}

impl Planning<'_> {
    /// Plans all streams, in parallel if they are large.
    pub(super) fn all(&self, data: &mut [Data]) -> Result<Vec<Outcome>, Error> {
        let held = data.iter().fold(0u64, |n, d| n.saturating_add(d.region.held));
        let threads = if held < WORTH_THREADS { 1 } else { parallel::cpus() };
        let total = Some(data.len() as u64);
        let plan = |index: usize, stream: &Data| {
            let outcome = self.one(stream, index);
            (self.watch)(Progress { what: "checking streams", done: index as u64, total });
            outcome
        };
        let planned = parallel::map(data, threads, plan);
        let place = |(stream, planned): (&mut Data, Result<Planned, Error>)| {
            let (outcome, frozen) = planned?;
            stream.frozen = frozen.or(stream.frozen.take());
            Ok(outcome)
        };
        data.iter_mut().zip(planned).map(place).collect()
    }

    fn decoder(&self, stream: &Data) -> (Option<usize>, Option<&ChannelDecoder>) {
        let position =
            self.resolved.schema.channels.iter().position(|c| c.id == stream.geometry.channel);
        (position, position.and_then(|p| self.resolved.decoders.get(p)?.as_ref()))
    }

    fn planner<'s>(&'s self, stream: &'s Data, index: usize) -> Planner<'s> {
        let (position, decoder) = self.decoder(stream);
        let thorough =
            position.and_then(|p| self.resolved.thorough.get(p).copied()).unwrap_or(true);
        Planner::new(stream, index, decoder, thorough, self.threads, self.budget)
    }

    /// Plans a stream to its newest event.
    fn whole(&self, stream: &Data, index: usize, is_late: bool) -> Result<Outcome, Error> {
        let planner = self.planner(stream, index).late(is_late);
        planner.run(|planner| self.halves(planner, stream))
    }

    /// Plans a stream, and cuts the plan to the window of the session's trigger.
    fn one(&self, stream: &Data, index: usize) -> Result<Planned, Error> {
        let (mut outcome, frozen) = self.uncut(stream, index)?;
        if let Some(window) = &self.info.window {
            let copy = Data { frozen: frozen.clone(), ..stream.clone() };
            window.cut(&copy, self.decoder(stream).1, &mut outcome, self.budget)?;
        }
        Ok((outcome, frozen))
    }

    fn uncut(&self, stream: &Data, index: usize) -> Result<Planned, Error> {
        let budget = self.budget;
        if let Some(ends) = &self.ends {
            return Ok((
                self.planner(stream, index).limit(ends.get(index).copied().flatten())?,
                None,
            ));
        }
        // Checksums come first where a window cuts packets, and where sub-buffers that were found
        // without a region fill the places of damaged ones.
        let is_late = self.options.late && self.info.window.is_none() && !self.is_carved;
        if !self.options.live {
            let outcome = self.whole(stream, index, is_late)?;
            let now = stream.control(budget).ok();
            let reserves = |c: &Control| c.half.map(|h| h.reserve);
            if now.is_none_or(|now| reserves(&now) == reserves(&outcome.control)) {
                return Ok((outcome, None));
            }
        }
        // The stream is being written: plan and deliver a copy.
        let wanted = Wanted { halves: &[0, 1], new_from: None, threads: self.threads };
        let frozen = match Frozen::file()
            .and_then(|file| Frozen::take(stream, &file, &wanted, budget))
        {
            Ok(frozen) => Some(Arc::new(frozen)),
            Err(error) if error.kind == lastwords_bytes::ErrorKind::Budget => return Err(error),
            // Without a copy, sub-buffers that writers overwrite before delivery are lost.
            Err(_) => None,
        };
        let copy = Data { frozen, ..stream.clone() };
        Ok((self.whole(&copy, index, false)?, copy.frozen))
    }

    /// Chooses the halves that are delivered, in order of delivery.
    fn halves(&self, planner: &mut Planner<'_>, stream: &Data) -> Vec<usize> {
        let control = planner.control;
        let produced =
            |half: usize| control.half.get(half).map_or(0, |h| h.position(&stream.geometry));
        let live = match self.flip {
            Some(flip) => ((flip ^ control.flip) & 1) as usize,
            None => usize::from(produced(1) > produced(0)),
        };
        let other = live ^ 1;
        let swapping = self.info.snapshot.is_swapping();
        // Positions of the live half are greater than all positions of the spare half: taking a
        // snapshot ensures that.
        let contradicted =
            !swapping && produced(other) > produced(live) && planner.is_in_use(other);
        if contradicted {
            let why = format!("half {live} is said to be live, but half {other} is newer");
            planner.out.notes.push(format!("{}: {why}", stream.region.place()));
            planner.gap(why, Cause::Damaged, None);
        }
        let (live, other) = if contradicted { (other, live) } else { (live, other) };
        match (self.options.snapshot, swapping) {
            (true, _) if self.info.snapshot.holds(stream.region.index, stream.geometry.cpu) => {
                vec![other]
            }
            (true, _)
                if self.info.snapshot.state == SnapshotState::Swapping
                    && planner.is_in_use(other) =>
            {
                vec![other]
            }
            (true, _) => Vec::new(),
            // The swap was not finished, so no reader can have read the snapshot: events from
            // before the swap belong to the trace.
            (false, true) if planner.is_in_use(other) => vec![other, live],
            (false, _) => vec![live],
        }
    }
}
