//! The service of actix that the book shows: it logs with `fmt` and `EnvFilter`, and
//! `tracing-actix-web` makes the spans of its requests. It serves until it is killed.
#![forbid(unsafe_code)]

use actix_web::{App, HttpServer, get, web};
use std::time::Duration;
use tracing::{Instrument as _, debug, info, info_span};
use tracing_actix_web::TracingLogger;
use tracing_subscriber::{EnvFilter, prelude::*};

#[actix_web::main]
async fn main() -> std::io::Result<()> {
    lastwords::start("actix");
    tracing_subscriber::registry()
        .with(EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into()))
        .with(tracing_subscriber::fmt::layer())
        .with(lastwords::layer())
        .init();

    let server = HttpServer::new(|| App::new().wrap(TracingLogger::default()).service(order));
    let server = server.workers(2).shutdown_timeout(1).bind("127.0.0.1:0")?;
    println!("listening on {}", server.addrs()[0]);
    server.run().await
}

#[get("/orders/{id}")]
async fn order(id: web::Path<u64>) -> String {
    let id = id.into_inner();
    info!(order = id, "received");
    charge(id).instrument(info_span!("charge", order = id)).await;
    info!(order = id, "answered");
    format!("order {id}\n")
}

/// Asks the bank, which never answers for some.
async fn charge(id: u64) {
    debug!(order = id, "not logged, and not recorded");
    let slow = if id.is_multiple_of(100) { 86_400_000 } else { 2 };
    actix_web::rt::time::sleep(Duration::from_millis(slow)).await;
    info!(order = id, "charged");
}
