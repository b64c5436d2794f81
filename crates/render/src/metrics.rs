//! Shows counters and histograms of sessions in the text format of Prometheus
//! (prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4).

use lastwords_trace::metrics::{Histogram, Labels, Metrics};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// The session of counters and histograms.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// Its name.
    pub session: &'a str,
    /// Its UUID, in hexadecimal digits.
    pub uuid: &'a str,
}

/// The metric with the time of the numbers, of sessions whose numbers are a copy.
const AS_OF: &str = "lastwords_as_of_timestamp_seconds";
/// Labels that the series themselves have.
const RESERVED: [&str; 3] = ["session", "uuid", "le"];

/// Name and kind of a metric: a histogram may have the name of a counter.
type Key<'a> = (&'a str, bool);

/// Writes the counters and histograms of sessions in the text format of Prometheus. Every series
/// has the label `session`, and `uuid` if there are several sessions.
///
/// Names are made valid: other characters become `_`, and a name that another metric has then gets
/// one more. A label `session`, `uuid` or `le` of the program becomes `exported_session` and so on, and
/// one that begins with `__` becomes `exported__` and so on. Prometheus itself has values as floats, and
/// rounds those above 2^53.
///
/// The time of numbers that are a copy ([`Metrics::as_of`]) is a gauge of its own,
/// `lastwords_as_of_timestamp_seconds`. No sample has a timestamp: collectors of text files refuse
/// those, and Prometheus does not take samples that are older than its newest block.
///
/// ```
/// use lastwords_render::metrics::{Origin, prometheus};
/// use lastwords_trace::metrics::{Counter, Metrics};
///
/// let labels = vec![("method".to_owned(), "GET".to_owned())];
/// let counters = vec![Counter { name: "http.requests".to_owned(), labels, value: 42 }];
/// let metrics = Metrics { counters, ..Metrics::default() };
/// let mut text = Vec::new();
/// prometheus(&[(Origin { session: "shop", uuid: "1a5e" }, &metrics)], &mut text)?;
/// let expected = "\
/// ## TYPE http_requests counter
/// http_requests{session=\"shop\",method=\"GET\"} 42
/// ";
/// assert_eq!(String::from_utf8_lossy(&text), expected);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// The output cannot be written.
pub fn prometheus(sessions: &[(Origin<'_>, &Metrics)], out: &mut dyn Write) -> io::Result<()> {
    let names = names(sessions);
    for ((name, is_histogram), shown) in &names {
        let kind = if *is_histogram { "histogram" } else { "counter" };
        writeln!(out, "# TYPE {shown} {kind}")?;
        for (origin, metrics) in sessions {
            let series = |labels| series(origin, sessions.len() > 1, labels);
            if *is_histogram {
                let own = metrics.histograms.iter().filter(|one| one.name == *name);
                own.map(|one| (one, series(&one.labels)))
                    .try_for_each(|(one, labels)| histogram(shown, &labels, one, out))?;
            } else {
                for one in metrics.counters.iter().filter(|one| one.name == *name) {
                    writeln!(out, "{shown}{{{}}} {}", series(&one.labels), one.value)?;
                }
            }
        }
    }
    as_of(sessions, out)
}

/// Writes when copies of numbers were made.
fn as_of(sessions: &[(Origin<'_>, &Metrics)], out: &mut dyn Write) -> io::Result<()> {
    let times = sessions.iter().filter(|(_, metrics)| !metrics.is_empty());
    let times = times.filter_map(|(origin, metrics)| Some((origin, metrics.as_of?)));
    for (at, (origin, time)) in times.enumerate() {
        if at == 0 {
            writeln!(out, "# HELP {AS_OF} When the numbers of the session were copied.")?;
            writeln!(out, "# TYPE {AS_OF} gauge")?;
        }
        let labels = series(origin, sessions.len() > 1, &Labels::new());
        let (seconds, rest) = (time / 1_000_000_000, time % 1_000_000_000);
        writeln!(out, "{AS_OF}{{{labels}}} {seconds}.{rest:09}")?;
    }
    Ok(())
}

fn histogram(
    name: &str,
    labels: &str,
    histogram: &Histogram,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut below = 0u64;
    for bucket in &histogram.buckets {
        below = below.saturating_add(bucket.count);
        writeln!(out, "{name}_bucket{{{labels},le=\"{}\"}} {below}", bucket.high)?;
    }
    let count = histogram.count();
    writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {count}")?;
    // A sum that is not known is left out.
    if let Some(sum) = histogram.sum {
        writeln!(out, "{name}_sum{{{labels}}} {sum}")?;
    }
    writeln!(out, "{name}_count{{{labels}}} {count}")
}

/// Returns the labels of a series.
fn series(origin: &Origin<'_>, has_uuid: bool, labels: &Labels) -> String {
    let mut pairs = vec![("session".to_owned(), origin.session)];
    pairs.extend(has_uuid.then(|| ("uuid".to_owned(), origin.uuid)));
    let mut used: BTreeSet<String> = RESERVED.map(str::to_owned).into();
    for (key, value) in labels {
        let mut key = valid(key, false);
        if RESERVED.contains(&key.as_str()) {
            key = format!("exported_{key}");
        }
        // Prometheus reserves names that begin so.
        let reserved =
            |key: String| if key.starts_with("__") { format!("exported{key}") } else { key };
        key = reserved(key);
        while !used.insert(key.clone()) {
            key = reserved(key + "_");
        }
        pairs.push((key, value));
    }
    let pairs = pairs.into_iter().map(|(key, value)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{key}=\"{value}\"")
    });
    pairs.collect::<Vec<_>>().join(",")
}

/// Returns a valid name for each metric, all of them different. Names that are valid stay where
/// they can.
fn names<'a>(sessions: &[(Origin<'_>, &'a Metrics)]) -> BTreeMap<Key<'a>, String> {
    let keys = sessions.iter().flat_map(|(_, metrics)| {
        let counters = metrics.counters.iter().map(|one| (one.name.as_str(), false));
        counters.chain(metrics.histograms.iter().map(|one| (one.name.as_str(), true)))
    });
    let keys: BTreeSet<Key<'_>> = keys.collect();
    let is_valid = |(name, _): &Key<'_>| valid(name, true) == *name;
    let (first, then): (Vec<_>, Vec<_>) = keys.into_iter().partition(is_valid);
    let mut used = BTreeSet::from([AS_OF.to_owned()]);
    let mut names = BTreeMap::new();
    for key in first.into_iter().chain(then) {
        let mut name = valid(key.0, true);
        // A histogram has series of further names. Clients of Prometheus name the series of a counter
        // `_total`, whether it ends in that or not.
        let all = |name: &str| {
            let base = if key.1 { name } else { name.strip_suffix("_total").unwrap_or(name) };
            let ends: &[&str] =
                if key.1 { &["", "_bucket", "_sum", "_count"] } else { &["", "_total"] };
            ends.iter().map(|end| format!("{base}{end}")).collect::<Vec<_>>()
        };
        while all(&name).iter().any(|one| used.contains(one)) {
            name.push('_');
        }
        used.extend(all(&name));
        names.insert(key, name);
    }
    names
}

/// Replaces what Prometheus does not allow in the name of a metric, or of a label.
fn valid(name: &str, is_metric: bool) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || (is_metric && c == ':');
    let name: String = name.chars().map(|c| if is_allowed(c) { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
        return format!("_{name}");
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use lastwords_trace::metrics::{Bucket, Counter};

    #[test]
    fn names_and_labels_are_valid_and_differ() {
        let counter = |name: &str, labels: &[(&str, &str)]| Counter {
            name: name.to_owned(),
            labels: labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            value: 1,
        };
        let buckets = vec![Bucket { low: 8, high: 8, count: 3 }];
        let histogram = |name: &str| Histogram {
            name: name.to_owned(),
            labels: Vec::new(),
            buckets: buckets.clone(),
            sum: None,
            in_flight: 0,
        };
        let metrics = Metrics {
            counters: vec![
                counter("a.b", &[]),
                counter("a_b", &[("le", "1"), ("x-y", "a\\b\"c\nd"), ("x.y", "é")]),
                counter("h_count", &[]),
                counter("9", &[("session", "own")]),
            ],
            histograms: vec![histogram("a_b"), histogram("h")],
            ..Metrics::default()
        };
        let mut text = Vec::new();
        let shop = Origin { session: "shop", uuid: "u" };
        prometheus(&[(shop, &metrics)], &mut text).expect("memory");
        let expected = r#"# TYPE _9 counter
_9{session="shop",exported_session="own"} 1
# TYPE a_b__ counter
a_b__{session="shop"} 1
# TYPE a_b counter
a_b{session="shop",exported_le="1",x_y="a\\b\"c\nd",x_y_="é"} 1
# TYPE a_b_ histogram
a_b__bucket{session="shop",le="8"} 3
a_b__bucket{session="shop",le="+Inf"} 3
a_b__count{session="shop"} 3
# TYPE h histogram
h_bucket{session="shop",le="8"} 3
h_bucket{session="shop",le="+Inf"} 3
h_count{session="shop"} 3
# TYPE h_count_ counter
h_count_{session="shop"} 1
"#;
        assert_eq!(String::from_utf8_lossy(&text), expected);
    }

    #[test]
    fn copies_have_their_times() {
        let counter = |name: &str| Counter { name: name.to_owned(), labels: Vec::new(), value: 1 };
        let as_of = |as_of| Metrics { counters: vec![counter(AS_OF)], as_of, ..Metrics::default() };
        let all = [as_of(Some(1_764_520_000_000_000_007)), as_of(None), as_of(Some(5))];
        let origin = |uuid| Origin { session: "shop", uuid };
        let mut text = Vec::new();
        let sessions: Vec<_> = ["a", "b", "c"].map(origin).into_iter().zip(&all).collect();
        prometheus(&sessions, &mut text).expect("memory");
        let expected = r#"# TYPE lastwords_as_of_timestamp_seconds_ counter
lastwords_as_of_timestamp_seconds_{session="shop",uuid="a"} 1
lastwords_as_of_timestamp_seconds_{session="shop",uuid="b"} 1
lastwords_as_of_timestamp_seconds_{session="shop",uuid="c"} 1
# HELP lastwords_as_of_timestamp_seconds When the numbers of the session were copied.
# TYPE lastwords_as_of_timestamp_seconds gauge
lastwords_as_of_timestamp_seconds{session="shop",uuid="a"} 1764520000.000000007
lastwords_as_of_timestamp_seconds{session="shop",uuid="c"} 0.000000005
"#;
        assert_eq!(String::from_utf8_lossy(&text), expected);
    }
}
