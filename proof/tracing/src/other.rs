//! A layer beside the recorder's, as applications have: it formats all values, and keeps data of
//! its own with each span.

use std::fmt::{self, Write as _};

use tracing_core::field::{Field, Visit};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// The layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Other;

/// All values of a span.
struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Other {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut text = Text(String::new());
        attributes.record(&mut text);
        if let Some(span) = context.span(id) {
            span.extensions_mut().replace(text);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        // A value whose formatting records an event must find the span's data free.
        let mut more = Text(String::new());
        values.record(&mut more);
        if let Some(span) = context.span(id)
            && let Some(text) = span.extensions_mut().get_mut::<Text>()
        {
            text.0.push_str(&more.0);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(of_span) = span.extensions().get::<Text>() {
                text.0.push_str(&of_span.0);
            }
        }
        std::hint::black_box(text.0);
    }
}
