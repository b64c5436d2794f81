//! The connections of an agent whose first message has not come. Only so many wait at a time, and
//! whoever reaches the agent can make as many. So the newest one always gets a place: the peer that
//! has the most connections loses its oldest one.

use lastwords_stream::{Line, Peer, ReadEnd, Result};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most connections at a time whose first message has not come.
pub(super) const MOST: usize = 16;

/// The connections that wait.
#[derive(Debug, Default)]
pub(super) struct Newcomers(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// By the number of the connection, so that the oldest is the first.
    waiting: BTreeMap<u64, (Peer, ReadEnd)>,
    next: u64,
}

/// The place of a connection, which is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place<'a> {
    newcomers: &'a Newcomers,
    number: u64,
}

impl Newcomers {
    /// Gives a connection a place, if need be that of another one, whose wait for a message ends.
    ///
    /// # Errors
    /// The peer has gone, or no file descriptor is left.
    pub(super) fn enter(&self, line: &Line) -> Result<Place<'_>> {
        let (peer, read_end) = line.origin()?;
        Ok(self.admit(peer, read_end))
    }

    fn admit(&self, peer: Peer, read_end: ReadEnd) -> Place<'_> {
        let state = &mut *self.lock();
        if state.waiting.len() >= MOST {
            state.evict();
        }
        let number = state.next;
        state.next = number.saturating_add(1);
        state.waiting.insert(number, (peer, read_end));
        Place { newcomers: self, number }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn evict(&mut self) {
        let mut counts = BTreeMap::<Peer, usize>::new();
        for (peer, _) in self.waiting.values() {
            let count = counts.entry(*peer).or_default();
            *count = count.saturating_add(1);
        }
        let oldest_of_most =
            |(number, (peer, _)): &(&u64, &(Peer, ReadEnd))| (counts.get(peer), Reverse(**number));
        let chosen = self.waiting.iter().max_by_key(oldest_of_most).map(|(number, _)| *number);
        if let Some((_, read_end)) = chosen.and_then(|number| self.waiting.remove(&number)) {
            read_end.close();
        }
    }
}

impl Place<'_> {
    /// Frees the place. Returns false if another connection has taken it before.
    pub(super) fn leave(self) -> bool {
        self.newcomers.lock().waiting.remove(&self.number).is_some()
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.newcomers.lock().waiting.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_stream::Listener;

    #[test]
    fn the_oldest_connection_of_the_peer_with_most_gives_way() {
        let listener = Listener::new(&"tcp:127.0.0.1:0".parse().unwrap()).unwrap();
        let line = Line::connect(listener.address(), "a test").unwrap();
        let newcomers = Newcomers::default();
        let enter = |peer| newcomers.admit(peer, line.origin().unwrap().1);
        let host = enter(Peer::Vsock(2));
        let others: Vec<_> = (0..100).map(|_| enter(Peer::Vsock(9))).collect();
        assert_eq!(newcomers.lock().waiting.len(), MOST);
        let stayed: Vec<bool> = others.into_iter().map(Place::leave).collect();
        let expected: Vec<bool> = (0..100).map(|number| number >= 100 - (MOST - 1)).collect();
        assert_eq!(stayed, expected);
        assert!(host.leave());
        // Of peers that have as many, the oldest.
        let one_each: Vec<_> = (0..=MOST).map(|cid| enter(Peer::Vsock(cid as u32))).collect();
        let stayed: Vec<bool> = one_each.into_iter().map(Place::leave).collect();
        assert!(!stayed[0] && stayed[1..].iter().all(|stayed| *stayed));
        drop(enter(Peer::Unix));
        assert!(newcomers.lock().waiting.is_empty());
    }
}
