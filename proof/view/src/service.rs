//! A service that dies in the middle of a request: threads serve requests in spans, one survives a
//! panic, and the last one aborts. The rig runs it as a process of its own.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use lastwords::Session;
use tracing::{error, info, info_span, warn};

use super::filters::Words;

/// The environment variable that makes the rig be the service, and its value if it records also
/// each entering and leaving of a span.
pub(super) const ENV: &str = "LASTWORDS_VIEW_SERVICE";
pub(super) const ENTERED: &str = "entered";
/// The order whose payment ends the service, and the one whose panic it survives.
pub(super) const FATAL: u64 = 202;
pub(super) const SURVIVED: u64 = 187;
/// Threads that serve.
const THREADS: u64 = 4;

/// The names and values of its events, of which filters are made.
pub(super) const WORDS: Words = Words {
    names: "order amount path level event comm pid tid status message span_id",
    texts: &[r#""error""#, r#""paid""#, r#""worker-1""#, r#""/orders/187/pay""#],
    globs: &[r#""*""#, r#""span:*""#, r#""worker-[12]""#, r#""*/pay""#, r#""*charge""#],
    numbers: "0 4 6 187 202 200 5000 1",
};

static NEXT: AtomicU64 = AtomicU64::new(150);

/// Serves until it dies.
pub(super) fn run() -> Result<()> {
    lastwords::crash::install_panic_hook();
    lastwords::crash::install_default_signal_handlers()?;
    let is_entered = std::env::var_os(ENV).is_some_and(|value| value == ENTERED);
    let _session = Session::builder(if is_entered { ENTERED } else { "orders" }).start()?;
    if is_entered {
        let subscriber = lastwords::layer::subscriber().with_enter_and_exit(true);
        tracing::subscriber::set_global_default(subscriber)?;
    } else {
        lastwords::layer::init().map_err(anyhow::Error::from_boxed)?;
    }
    info!(port = 8080, workers = THREADS, "listening");
    std::thread::scope(|scope| {
        for number in 0..THREADS {
            let worker = std::thread::Builder::new().name(format!("worker-{number}"));
            if let Err(error) = worker.spawn_scoped(scope, serve) {
                error!(%error, "no worker");
            }
        }
    });
    Ok(())
}

fn serve() {
    loop {
        let order = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = format!("/orders/{order}/pay");
        let request = info_span!("request", method = "POST", path, user = 7000 + order % 13);
        // The service answers 500 where a handler panics.
        let handle = AssertUnwindSafe(|| request.in_scope(|| pay(order)));
        let handled = std::panic::catch_unwind(handle);
        if handled.is_err() {
            error!(order, status = 500, "handler panicked");
        }
        std::thread::sleep(Duration::from_millis(order % 3));
    }
}

fn pay(order: u64) {
    let amount = (order * 37) % 9000;
    let _charge = info_span!("charge", order, amount, currency = "EUR").entered();
    info!(provider = "acme", "charging");
    std::thread::sleep(Duration::from_millis(2 + order % 5));
    assert!(order != SURVIVED, "an order has a customer");
    let answer = info_span!("gateway", attempt = 1, host = "acme.example").in_scope(|| {
        std::thread::sleep(Duration::from_millis(1 + order % 4));
        if order == FATAL {
            warn!(timeout_ms = 30, "no answer, retrying");
            std::thread::sleep(Duration::from_millis(12));
            error!(order, amount, code = "E_LEDGER", "ledger is inconsistent");
            std::process::abort();
        }
        order % 11
    });
    if answer == 0 {
        warn!(order, "slow answer");
    }
    info!(status = 200, "paid");
}
