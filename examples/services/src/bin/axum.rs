//! The service of axum that the book shows: it logs with `fmt` and `EnvFilter`, and exports its
//! spans with OpenTelemetry. It serves until it is killed.
#![forbid(unsafe_code)]

use axum::Router;
use axum::extract::{Path, Request};
use axum::routing::get;
use opentelemetry::trace::{TraceContextExt as _, TracerProvider as _};
use opentelemetry_sdk::trace::SdkTracerProvider;
use std::time::Duration;
use tower_http::trace::TraceLayer;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, debug, info, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;
use tracing_subscriber::{EnvFilter, prelude::*};

#[tokio::main]
async fn main() -> std::io::Result<()> {
    lastwords::start("axum");
    let exporter = opentelemetry_stdout::SpanExporter::default();
    let provider = SdkTracerProvider::builder().with_simple_exporter(exporter).build();
    tracing_subscriber::registry()
        .with(EnvFilter::try_from_default_env().unwrap_or_else(|_| "info,tower_http=debug".into()))
        .with(tracing_subscriber::fmt::layer())
        .with(tracing_opentelemetry::layer().with_tracer(provider.tracer("axum")))
        .with(lastwords::layer())
        .init();

    let app = Router::new()
        .route("/orders/{id}", get(order))
        .layer(TraceLayer::new_for_http().make_span_with(request_span));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on {}", listener.local_addr()?);
    axum::serve(listener, app).await
}

fn request_span(request: &Request) -> Span {
    let path = request.uri().path();
    let span = info_span!("request", method = %request.method(), path, trace_id = Empty);
    let trace = span.context().span().span_context().trace_id();
    span.record("trace_id", trace.to_string());
    span
}

async fn order(Path(id): Path<u64>) -> String {
    info!(order = id, "received");
    charge(id).instrument(info_span!("charge", order = id)).await;
    info!(order = id, "answered");
    format!("order {id}\n")
}

/// Asks the bank, which never answers for some.
async fn charge(id: u64) {
    debug!(order = id, "not logged, and not recorded");
    let slow = if id.is_multiple_of(100) { 86_400_000 } else { 2 };
    tokio::time::sleep(Duration::from_millis(slow)).await;
    info!(order = id, "charged");
}
