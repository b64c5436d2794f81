//! Counters and histograms for people: tables, and words about them.

use crate::ended;
use crate::say;
use crate::table::{Table, plain};
use lastwords_open::Trace;
use lastwords_render::missing::count;
use lastwords_trace::metrics::{Bucket, Labels, Metrics};
use std::path::Path;

/// Returns how many counters and histograms a trace has, in words; none without any.
pub(crate) fn of_trace(trace: &Trace) -> Option<String> {
    words(metrics_of(trace)?)
}

/// Notes that an output (`place`) does not have the counters and histograms (`what`) of a session.
pub(crate) fn note_left_out(place: &Path, what: &str, session: &str) {
    say::note(format_args!(
        "{}: {what} of session {} are not in it: `lastwords counters` prints them, `recover --to ctf` keeps them",
        plain(&place.to_string_lossy()),
        plain(session)
    ));
}

/// Returns how many counters and histograms there are, in words; none without any.
pub(crate) fn words(metrics: &Metrics) -> Option<String> {
    let of = |number: usize, what| (number > 0).then(|| count(number as u64, what));
    let words = [of(metrics.counters.len(), "counter"), of(metrics.histograms.len(), "histogram")];
    let words: Vec<String> = words.into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join(" and "))
}

/// Returns the counters and histograms of a session; none of another trace.
pub(crate) fn metrics_of(trace: &Trace) -> Option<&Metrics> {
    Some(&trace.session()?.session.info().metrics)
}

/// Returns the counters and histograms of a session as tables, which are empty if there are none.
pub(crate) fn text(metrics: &Metrics, indent: usize) -> String {
    let mut counters = Table::new(["COUNTER", "VALUE"]).indent(indent);
    for one in &metrics.counters {
        counters.row([named(&one.name, &one.labels), one.value.to_string()]);
    }
    let head = ["HISTOGRAM", "VALUES", "SUM", "50%", "90%", "99%", "LARGEST"];
    let mut histograms = Table::new(head).indent(indent);
    let mut in_flight = String::new();
    for one in &metrics.histograms {
        let name = named(&one.name, &one.labels);
        if one.in_flight > 0 {
            let (blanks, values) = (" ".repeat(indent), count(one.in_flight, "value"));
            in_flight += &format!("{blanks}{name}: {values} in flight, which the sum may lack\n");
        }
        let bucket = |bucket: Option<Bucket>| bucket.map_or_else(|| "-".to_owned(), range);
        let part = |thousandths| bucket(one.quantile(thousandths));
        histograms.row([
            name,
            one.count().to_string(),
            one.sum.map_or_else(|| "unknown".to_owned(), |sum| sum.to_string()),
            part(500),
            part(900),
            part(990),
            bucket(one.buckets.last().copied()),
        ]);
    }
    let as_of = metrics.as_of.filter(|_| !metrics.is_empty()).map(|time| {
        format!("{}as of {}\n", " ".repeat(indent), ended::date_and_time(time.cast_signed()))
    });
    let tables = [counters, histograms];
    let shown = tables.iter().filter(|table| !table.is_empty()).map(Table::render);
    as_of.into_iter().chain(shown).chain([in_flight]).collect()
}

fn range(bucket: Bucket) -> String {
    match bucket {
        Bucket { low, high, .. } if low == high => low.to_string(),
        Bucket { low, high, .. } => format!("{low}..{high}"),
    }
}

fn named(name: &str, labels: &Labels) -> String {
    let labels: Vec<String> =
        labels.iter().map(|(key, value)| format!("{}={:?}", plain(key), plain(value))).collect();
    let name = plain(name);
    if labels.is_empty() { name } else { format!("{name}{{{}}}", labels.join(",")) }
}
