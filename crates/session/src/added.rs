//! Channels that were created while the session recorded: what their creation left, and the losses
//! that only they have.

use super::end::End;
use super::info::{ChannelInfo, Info};
use super::layout::Control;
use super::region::Region;
use lastwords_bytes::Budget;
use lastwords_image::Image;
use lastwords_trace::evidence::{Cause, Evidence, Gap};
use std::collections::BTreeMap;

/// Removes the streams that belong to no channel, because their creator died before it published
/// the channel. Returns a note about them. A stream in which anything was recorded stays.
pub(super) fn remove_unfinished(
    streams: &mut BTreeMap<u32, Region>,
    info: &Info,
    image: &dyn Image,
    budget: &Budget,
) -> Option<String> {
    let is_in = |index: u32, channel: &ChannelInfo| {
        index.checked_sub(channel.first_stream).is_some_and(|place| place < channel.streams)
    };
    let is_empty = |region: &Region| {
        let control = Control::read(image, region, budget);
        control.is_ok_and(|control| {
            control.half.iter().all(|half| half.reserve == 0 && half.attempt == 0)
        })
    };
    let before = streams.len();
    streams.retain(|index, region| {
        let is_claimed = !region.is_added
            || info.channels.is_empty()
            || info.channels.iter().any(|c| is_in(*index, c));
        is_claimed || !is_empty(region)
    });
    let removed = before.saturating_sub(streams.len());
    (removed > 0).then(|| {
        format!("{removed} streams belong to no channel: its creation was not finished, and nothing was recorded in it")
    })
}

/// Tells of channels that are not in a snapshot, of a creation that is not finished, and of events
/// that processes lost because they had not mapped a channel yet. `ends` has the ends of a read in
/// steps, each with its region.
pub(super) fn tell<'a>(
    info: &Info,
    reads_snapshot: bool,
    ends: Option<impl Iterator<Item = (&'a Region, Option<End>)>>,
    evidence: &mut Evidence,
) {
    if info.creates_channel {
        let what = "a process was creating a channel: it is there as a whole, or not at all";
        evidence.notes.push(what.to_owned());
    }
    // By index of the channel's first stream.
    let since: Option<BTreeMap<u32, u64>> = ends.map(|ends| {
        ends.filter_map(|(region, end)| Some((region.index, end?.unattached))).collect()
    });
    for channel in info.channels.iter().filter(|channel| channel.is_added) {
        let ChannelInfo { id, name, .. } = channel;
        if !channel.alive {
            evidence.notes.push(format!(
                "channel {id} ({name}): its creation was not finished, nothing was recorded in it"
            ));
        }
        if reads_snapshot && channel.snapshots == info.snapshot.taken {
            evidence.notes.push(format!(
                "channel {id} ({name}) was created after the snapshot, which has nothing of it"
            ));
        }
        let lost = match &since {
            Some(since) => since.get(&channel.first_stream).copied().unwrap_or(0),
            None => channel.unattached,
        };
        if lost > 0 {
            let place =
                format!("channel {id} ({name}), in processes that had not mapped its rings");
            evidence.gaps.push(Gap::new(None, Cause::Refused, place).with_events(Some(lost)));
        }
    }
}
