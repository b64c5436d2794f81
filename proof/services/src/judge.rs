//! Judges what is recovered of a dead service: cause, events, open spans, OTLP.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::service::{ANSWERED, Died, WAITING};
use crate::{End, Program};

/// The messages of an order, and whether the bank has to answer before.
const MESSAGES: [(&str, bool); 3] = [("received", false), ("charged", true), ("answered", true)];

/// Returns a line about what was right.
pub(crate) fn judge(program: &Program, lastwords: &Path, died: &Died, end: End) -> Result<String> {
    let run = |arguments: &[&str]| {
        rig::run_quietly(Command::new(lastwords).args(arguments).arg(&died.session))
    };
    let why: Value = serde_json::from_str(&run(&["why", "--json"])?).context("why --json")?;
    let why = &why["inputs"][0];
    let cause = cause(&why["verdict"], end)?;
    let events = events(program, &died.log, &run(&["report"])?).context("events")?;
    let spans = spans(program, why, end).context("open spans")?;
    let file = died.folder.join("recovered.otlp");
    run(&["convert", "-o", file.to_str().context("a path")?])?;
    let otlp = std::fs::read_to_string(&file).context("OTLP")?;
    let traces = otlp_ids(program, &died.log, &otlp).context("OTLP")?;
    Ok(format!("{cause}; {events} events, {spans} open spans, {traces} trace ids"))
}

/// Returns the cause of `why` in words.
fn cause(verdict: &Value, end: End) -> Result<String> {
    let expected = match end {
        End::Unknown => ("unknown", None),
        End::Recorded(number) => ("signal", Some(number)),
        End::Exits => ("good-order", None),
    };
    let found = (verdict["cause"].as_str().context("a cause")?, verdict["number"].as_u64());
    ensure!(found == expected, "the cause is {found:?}, expected {expected:?}");
    Ok(found.1.map_or_else(|| found.0.to_owned(), |number| format!("{} {number}", found.0)))
}

/// Compares the lines that a service logged of its orders with those of `report`: spans, message
/// and fields, in the same order. Returns their number.
fn events(program: &Program, log: &str, report: &str) -> Result<usize> {
    let logged: Vec<_> = log.lines().filter_map(|line| of_order(program, line, " ")).collect();
    let found: Vec<_> = report.lines().filter_map(|line| of_order(program, line, ": ")).collect();
    let expected = MESSAGES.len() * ANSWERED.count() + WAITING.len();
    ensure!(logged.len() == expected, "{} lines are logged, expected {expected}", logged.len());
    for (at, line) in logged.iter().enumerate() {
        let own = found.get(at);
        ensure!(own.is_some_and(|own| own.is(line)), "{line:?} is logged, recovered: {own:?}");
    }
    ensure!(found.len() == logged.len(), "{} recovered, {expected} logged", found.len());
    if program.name == "axum" {
        // The exporter prints the message as well.
        let requests = |text: &str, event: &str| text.matches(event).count();
        let logged = requests(log, "::on_request: started processing request");
        let recovered = requests(report, "::on_request:started processing request");
        ensure!(logged == recovered, "tower-http: {logged} logged, {recovered} recovered");
    }
    ensure!(!report.contains("not recorded"), "an event below the level is recorded");
    Ok(found.len())
}

/// A line about an order.
#[derive(Debug)]
struct Line {
    spans: String,
    message: String,
    fields: String,
}

impl Line {
    /// Returns true if this line is recovered of the logged one. An event has at most 184 bytes of
    /// its span: target, name and fields.
    fn is(&self, logged: &Self) -> bool {
        let is_span = match self.spans.split_once('…') {
            Some((before, after)) => {
                before.len() > 100
                    && logged.spans.starts_with(before)
                    && logged.spans.ends_with(after)
            }
            None => self.spans == logged.spans,
        };
        is_span && self.message == logged.message && self.fields == logged.fields
    }
}

/// Takes a line apart that has a message of an order. `between` is between message and fields.
fn of_order(program: &Program, line: &str, between: &str) -> Option<Line> {
    let spans = line.get(line.find(&format!("{}{{", program.request))?..)?;
    let (spans, event) = spans.split_once(&format!(": {}:", program.name))?;
    let (message, fields) = event.trim_start().split_once(between)?;
    let is_known = MESSAGES.iter().any(|(known, _)| *known == message);
    // `fmt` prints texts with quotation marks.
    is_known.then(|| Line {
        spans: spans.replace('"', ""),
        message: message.to_owned(),
        fields: fields.to_owned(),
    })
}

/// Compares the spans that were open with the orders that wait. Returns their number.
fn spans(program: &Program, why: &Value, end: End) -> Result<usize> {
    let open = why["open_spans"].as_array().context("open_spans")?;
    if end == End::Exits {
        ensure!(open.is_empty(), "a service that exits closes its spans: {open:?}");
        return Ok(0);
    }
    for order in WAITING {
        let find = |what: &str, is_own: &dyn Fn(&Value) -> bool| {
            let found: Vec<&Value> = open.iter().filter(|span| is_own(span)).collect();
            ensure!(found.len() == 1, "order {order}: {} open spans {what}", found.len());
            anyhow::Ok(found[0])
        };
        let charge = find("charge", &|span| {
            span["name"] == "charge" && span["fields"] == format!("order={order}")
        })?;
        let request = find("around it", &|span| span["id"] == charge["parent"])?;
        let fields = request["fields"].as_str().context("fields")?;
        // The table of open spans has no room for all fields of a span with many.
        let is_cut = fields.ends_with('…');
        let has_path = fields.split(' ').any(|own| own.ends_with(&format!("=/orders/{order}")));
        ensure!(
            request["name"] == program.request && (is_cut || has_path),
            "order {order}: the span around it is {request}"
        );
    }
    ensure!(open.len() == 2 * WAITING.len(), "{} spans are open", open.len());
    Ok(open.len())
}

/// What OTLP has of an order.
#[derive(Default)]
struct Order {
    /// The ids of the traces of its records and spans.
    traces: BTreeSet<String>,
    /// The names of its records and spans, sorted.
    names: Vec<String>,
}

/// Compares the ids in OTLP with those that the service logged and exported. Returns their number.
fn otlp_ids(program: &Program, log: &str, otlp: &str) -> Result<usize> {
    let orders = orders(otlp)?;
    let logged: BTreeMap<u64, String> = log.lines().filter_map(logged_id).collect();
    let waiting = WAITING.into_iter().map(|order| (order, false));
    let expected: Vec<(u64, bool)> = ANSWERED.map(|order| (order, true)).chain(waiting).collect();
    ensure!(orders.len() == expected.len(), "{} orders", orders.len());
    let mut all = BTreeSet::new();
    for (order, is_answered) in expected {
        let found = orders.get(&order).with_context(|| format!("order {order} is missing"))?;
        let messages = MESSAGES.iter().filter(|(_, after)| is_answered || !after);
        let mut names: Vec<String> = messages.map(|(name, _)| (*name).to_owned()).collect();
        let spans = [program.request, "charge"];
        names.extend(spans.map(|span| format!("{}::{span}", target(program, span))));
        names.sort();
        ensure!(found.names == names, "order {order}: {:?}, expected {names:?}", found.names);
        let ids: Vec<&String> = found.traces.iter().collect();
        ensure!(ids.len() == 1, "order {order}: several traces: {ids:?}");
        let id = logged.get(&order);
        ensure!(id.is_some() == program.has_opentelemetry, "order {order}: it logged {id:?}");
        ensure!(id.is_none_or(|id| ids[0] == id), "order {order}: {ids:?}, it logged {id:?}");
        all.insert(ids[0].clone());
    }
    ensure!(all.len() == orders.len(), "two orders have the same trace");
    let exported: BTreeSet<&str> = log
        .lines()
        .filter_map(|line| line.trim().strip_prefix("TraceId")?.split_once(':'))
        .map(|(_, id)| id.trim())
        .collect();
    let answered: BTreeSet<&str> =
        logged.iter().filter(|(order, _)| ANSWERED.contains(order)).map(|(_, id)| &**id).collect();
    ensure!(exported == answered, "exported: {exported:?}, recovered: {answered:?}");
    Ok(all.len())
}

/// Returns the module of a span.
fn target(program: &Program, span: &str) -> &'static str {
    match (program.name, span) {
        ("actix", "HTTP request") => "tracing_actix_web::root_span_builder",
        ("actix", _) => "actix",
        _ => "axum",
    }
}

/// Returns the order and the id of the trace in a line of the log, if it has both.
fn logged_id(line: &str) -> Option<(u64, String)> {
    let after = |before: &str| {
        let rest = line.split_once(before)?.1;
        Some(rest.split(['"', '}', ' ']).next()?.to_owned())
    };
    Some((after("order=")?.parse().ok()?, after("trace_id=\"")?))
}

/// Returns the records and spans of each order in lines of OTLP.
fn orders(otlp: &str) -> Result<BTreeMap<u64, Order>> {
    let mut orders: BTreeMap<u64, Order> = BTreeMap::new();
    for line in otlp.lines() {
        let line: Value = serde_json::from_str(line).context("a line of OTLP")?;
        for (of, scope, members) in
            [("resourceLogs", "scopeLogs", "logRecords"), ("resourceSpans", "scopeSpans", "spans")]
        {
            let lists = list(&line[of]).iter().flat_map(|own| list(&own[scope]));
            for member in lists.flat_map(|own| list(&own[members])) {
                let Some(order) = order(member) else { continue };
                let order = orders.entry(order).or_default();
                let name = member["name"].as_str().or(member["body"]["stringValue"].as_str());
                order.names.push(name.context("a name")?.to_owned());
                order.traces.insert(member["traceId"].as_str().unwrap_or("none").to_owned());
            }
        }
    }
    orders.values_mut().for_each(|order| order.names.sort());
    Ok(orders)
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the order of a record or span: its field `order`, or the path of its request.
fn order(member: &Value) -> Option<u64> {
    list(&member["attributes"]).iter().find_map(|attribute| {
        let value = &attribute["value"];
        match attribute["key"].as_str()? {
            "order" => value["intValue"].as_str()?.parse().ok(),
            "path" | "http.target" => {
                value["stringValue"].as_str()?.strip_prefix("/orders/")?.parse().ok()
            }
            _ => None,
        }
    })
}
