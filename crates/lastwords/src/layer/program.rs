//! The subscriber of the whole program. There is one at most, and the program may install its own
//! at any time, so [`adopt`] does not take the place: it waits for the first event or span of
//! `tracing`. What the program has not installed by then would not have seen the event.
//!
//! `tracing` asks all dispatchers about a callsite when it is reached first, also those that are no
//! default, if there are several of them. So the subscriber that waits has a companion.

use std::error::Error;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use tracing_core::Dispatch;
use tracing_core::callsite::rebuild_interest_cache;
use tracing_core::dispatcher::{get_default, set_global_default};
use tracing_core::subscriber::NoSubscriber;
use tracing_log::LogTracer;
use tracing_log::log::{LevelFilter, max_level};

use super::{LastwordsSubscriber, interest, subscriber};
use crate::process::say;

/// What a program with a subscriber must write.
const ADD_THE_LAYER: &str = "add the layer to the program's subscriber: \
    `tracing_subscriber::registry().with(tracing_subscriber::fmt::layer()).with(lastwords::layer()).init()`";
/// What a program with a logger must write.
const WRAP_THE_LOGGER: &str =
    "install the program's logger with `lastwords::layer::init_logger(LOGGER)`";

/// True if the program uses a layer, subscriber or logger of this library. It orders no other
/// memory.
static IS_USED: AtomicBool = AtomicBool::new(false);
/// The subscriber that waits for the first event, and its companion.
static WAITING: Mutex<Option<[Dispatch; 2]>> = Mutex::new(None);

/// Notes that the program itself takes care of recording.
pub(super) fn is_used() {
    IS_USED.store(true, Relaxed);
}

/// Installs [`subscriber`] for the whole program, and sends the records of the `log` crate there
/// too. This is for programs that have no other subscriber, and want none:
///
/// ```no_run
/// lastwords::start("server");
/// # #[cfg(feature = "tracing")]
/// lastwords::layer::init()?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
///
/// # Errors
/// The program already has a subscriber or a logger. Then nothing is changed, and the error says
/// what to write instead.
pub fn init() -> Result<(), Box<dyn Error + Send + Sync>> {
    // A logger stays for the life of the program, so the subscriber's place is examined first.
    if has_subscriber() {
        return Err(format!("there is a subscriber for `tracing` already; {ADD_THE_LAYER}").into());
    }
    LogTracer::init()
        .map_err(|_| format!("there is a logger for `log` already; {WRAP_THE_LOGGER}"))?;
    set_global_default(Dispatch::new(subscriber()))?;
    Ok(())
}

/// Makes the subscriber that of the program when the program reaches its first event or span, if
/// it has no subscriber and no logger then. Says what to write if it has one.
pub(crate) fn adopt() {
    if IS_USED.load(Relaxed) {
        return;
    }
    if has_subscriber() || has_logger() {
        return advise();
    }
    let waiting =
        [Dispatch::new(LastwordsSubscriber::default()), Dispatch::new(NoSubscriber::new())];
    *WAITING.lock().unwrap_or_else(PoisonError::into_inner) = Some(waiting);
    // Callsites that were reached before are not reached for the first time again.
    rebuild_interest_cache();
}

/// Ends the waiting: a callsite is reached. A thread that comes here meanwhile waits, so that its
/// event finds the subscriber.
pub(super) fn settle() {
    let mut waiting = WAITING.lock().unwrap_or_else(PoisonError::into_inner);
    let Some([ours, _companion]) = waiting.take() else { return };
    // Without a subscriber, `tracing` passes events to a logger, which would miss them.
    let goes_to_a_logger = has_logger() && is_none_here();
    if !goes_to_a_logger && set_global_default(ours).is_ok() {
        return;
    }
    // `tracing` has asked the subscriber that goes now.
    interest::changed();
    advise();
}

/// Says what to write, unless the program has written it.
fn advise() {
    if IS_USED.load(Relaxed) {
        return;
    }
    match has_logger() && is_none_here() {
        true => say(format_args!("records of `log` are not recorded; {WRAP_THE_LOGGER}")),
        false => say(format_args!("`tracing` is not recorded; {ADD_THE_LAYER}")),
    }
}

/// Returns true if the whole program has a subscriber.
fn has_subscriber() -> bool {
    // This thread may have a default of its own. A new thread has that of the program.
    let other_has_one = || {
        let thread = std::thread::Builder::new().spawn(|| !is_none_here());
        thread.ok().and_then(|thread| thread.join().ok()).unwrap_or(true)
    };
    !is_none_here() && other_has_one()
}

/// Returns true if events of this thread go to no subscriber.
fn is_none_here() -> bool {
    get_default(|of| of.is::<NoSubscriber>())
}

/// Returns true if the program has a logger that takes any record.
fn has_logger() -> bool {
    max_level() != LevelFilter::Off
}
