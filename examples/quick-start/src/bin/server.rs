//! The tokio service of the README and the book. Each request is a task with a span. It logs with
//! `fmt`, and serves until it is killed.
#![forbid(unsafe_code)]

use std::time::Duration;
use tracing::{Instrument, info, info_span, warn};
use tracing_subscriber::prelude::*;

#[tokio::main]
async fn main() {
    lastwords::start("server");
    let log = tracing_subscriber::fmt::layer();
    tracing_subscriber::registry().with(log).with(lastwords::layer()).init();

    for id in 1u64.. {
        tokio::spawn(request(id).instrument(info_span!("request", id)));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn request(id: u64) {
    info!(path = "/index.html", "received");
    tokio::time::sleep(Duration::from_millis(20)).await;
    if id.is_multiple_of(50) {
        warn!(id, "the answer was slow");
    }
    info!(status = 200, "answered");
}
