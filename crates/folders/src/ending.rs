//! How and when a session ended.

use lastwords_abi::session as abi;
use lastwords_abi::session::{ENDING_NUMBER, ENDING_UNSEEN};
use std::path::Path;

/// The file in a folder of a session that was received over a network whose stream ended early. It
/// has the reason.
pub const ENDED_EARLY: &str = "ended-early";

/// Returns true if the folder is that of a received session whose stream ended early.
#[must_use]
pub fn is_cut(folder: &Path) -> bool {
    folder.join(ENDED_EARLY).exists()
}

/// Returns why it is not known how a session ended that was received over a network, or that a
/// trigger's snapshot was saved of; none if its sender saw its end, or if it is no such copy. `word` is [`abi::Control::ending`]; `is_cut`: its
/// stream ended early, as [`is_cut`] says of its folder.
#[must_use]
pub fn unseen_end(word: u32, is_cut: bool) -> Option<&'static str> {
    match is_cut {
        true => Some("its stream ended early"),
        false => (word & 0xff == ENDING_UNSEEN)
            .then_some("this copy was made before the session was seen to end"),
    }
}

/// How a session ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Its last handle was dropped in good order. The value is the exit status of the process, if
    /// the process exited later and could write it.
    Closed(Option<u8>),
    /// The application reported an error: `Session::finish` was given one.
    Error,
    /// A panic dropped its last handle, or ended the process.
    Panic,
    /// A fatal signal ended it. The value is the number of the signal, if it is known.
    Signal(Option<u8>),
    /// The process exited while the session was open. The value is the exit status, if the C
    /// library provides it.
    Exit(Option<u8>),
    /// The process is gone and has written nothing: SIGKILL, another signal without a handler,
    /// `_exit`, loss of power.
    Killed,
}

/// The end of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// How it ended.
    pub how: Ending,
    /// CLOCK_REALTIME at its end, in nanoseconds. For [`Ending::Killed`] it is the last time that
    /// the session was seen alive, within about a second if the session's thread listened.
    pub at: u64,
    /// The process that ended it; 0 if it is not known.
    pub pid: u32,
}

impl Ending {
    /// Returns the word that a process writes in the control area of the session (docs/ABI.md).
    #[must_use]
    pub fn word(self) -> u32 {
        let number =
            |number: Option<u8>| number.map_or(0, |number| ENDING_NUMBER | u32::from(number) << 8);
        match self {
            Self::Killed => abi::ENDING_NONE,
            Self::Closed(status) => abi::ENDING_CLOSED | number(status),
            Self::Error => abi::ENDING_ERROR,
            Self::Panic => abi::ENDING_PANIC,
            Self::Signal(signal) => abi::ENDING_SIGNAL | number(signal),
            Self::Exit(status) => abi::ENDING_EXIT | number(status),
        }
    }

    /// Returns how it ended in one word: `closed`, `error`, `panic`, `signal`, `exit` or `killed`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Closed(_) => "closed",
            Self::Error => "error",
            Self::Panic => "panic",
            Self::Signal(_) => "signal",
            Self::Exit(_) => "exit",
            Self::Killed => "killed",
        }
    }

    /// Returns the number of the signal, or the exit status.
    #[must_use]
    pub fn number(self) -> Option<u8> {
        match self {
            Self::Closed(number) | Self::Signal(number) | Self::Exit(number) => number,
            Self::Error | Self::Panic | Self::Killed => None,
        }
    }

    /// Returns the ending of a word; `None` if the word is empty, or unknown to this version.
    #[must_use]
    pub fn from_word(word: u32) -> Option<Self> {
        let number = (word & ENDING_NUMBER != 0).then_some((word >> 8) as u8);
        let known = [
            Self::Closed(number),
            Self::Error,
            Self::Panic,
            Self::Signal(number),
            Self::Exit(number),
        ];
        known.into_iter().find(|how| how.word() & 0xff == word & 0xff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_the_sender_did_not_see_is_unknown() {
        assert_eq!(Ending::from_word(ENDING_UNSEEN), None);
        assert!(
            unseen_end(ENDING_UNSEEN, false).is_some_and(|why| why.contains("was seen to end"))
        );
        let closed = Ending::Closed(None).word();
        assert_eq!([closed, 0].map(|word| unseen_end(word, false)), [None, None]);
        assert_eq!(unseen_end(closed, true), Some("its stream ended early"));
    }

    #[test]
    fn each_ending_comes_back_from_its_word() {
        let numbers = [None, Some(0), Some(1), Some(255)];
        let numbered = numbers.iter().flat_map(|number| {
            [Ending::Closed, Ending::Signal, Ending::Exit].map(|how| how(*number))
        });
        let all = numbered.chain([Ending::Error, Ending::Panic]);
        for how in all {
            assert_eq!(Ending::from_word(how.word()), Some(how));
        }
        assert_eq!(Ending::from_word(Ending::Killed.word()), None);
        assert_eq!(Ending::from_word(0x7f), None, "a later version's");
        assert_eq!(Ending::from_word(abi::ENDING_SIGNAL), Some(Ending::Signal(None)));
    }
}
