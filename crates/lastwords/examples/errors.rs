//! Fails twice and goes on: each error leaves a snapshot of the moments before it, as a session of
//! its own.
//!
//!     cargo run --example errors
//!     lastwords list
//!     lastwords report errors.snapshot-1

use std::time::Duration;

use lastwords::condition::Condition;
use lastwords::{Session, event};

pub(crate) fn main() -> Result<(), lastwords::Error> {
    // Errors of the payment service fire a trigger by themselves. A slow request calls
    // `lastwords::trigger`.
    let failed = Condition::on("shop:payment").with_filter("status >= 500");
    let session = Session::builder("errors").snapshot(true).trigger_on(failed).start()?;
    for request in 0..3000u64 {
        event!(shop, "request", request);
        let status = if request == 1000 { 503u16 } else { 200 };
        event!(shop, "payment", request, status);
        let took = Duration::from_millis(if request == 1001 { 2500 } else { 5 });
        if took > Duration::from_secs(1) {
            lastwords::trigger("slow request");
        }
    }
    println!("{}", session.folder().unwrap_or("".as_ref()).display());
    // The end of the session waits until both snapshots are saved.
    session.close();
    Ok(())
}
