//! Results as tables and as data.

use std::fmt::Write;

use serde_json::{Value, json};

use super::contenders::Payload;
use super::floors::{Limit, Verdict};
use super::results::{Results, Samples};
use super::stats::Spread;

/// Everything that `bench record` prints.
pub(super) fn table(results: &Results, verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for threads in [1, 2] {
        for payload in Payload::ALL {
            let rows: Vec<&Samples> = results
                .samples
                .iter()
                .filter(|s| s.threads == threads && s.payload == payload)
                .collect();
            group(&mut text, results, threads, payload, &rows);
        }
    }
    for (name, why) in &results.missing {
        let _ = writeln!(text, "{name}: not measured: {why}");
    }
    text + &floors(verdicts)
}

fn group(
    text: &mut String,
    results: &Results,
    threads: usize,
    payload: Payload,
    rows: &[&Samples],
) {
    if rows.is_empty() {
        return;
    }
    let title = format!("{threads} thread{}, {payload}", if threads == 1 { "" } else { "s" });
    let _ = writeln!(
        text,
        "{title:<45} ns an event, {} time, {} rounds",
        results.clock.name(),
        results.rounds
    );
    let heads = ["min", "p25", "median", "p75", "max", "x F"];
    let _ = writeln!(text, "{:<25}{}", "", heads.map(|head| format!("{head:>9}")).concat());
    for samples in rows {
        let Some(spread) = Spread::from_samples(&samples.nanoseconds) else { continue };
        let numbers = [spread.min, spread.p25, spread.median, spread.p75, spread.max];
        let _ = write!(
            text,
            "{:<25}{}",
            samples.contender.name,
            numbers.map(|n| format!("{n:>9.2}")).concat()
        );
        let ratio = results
            .floor(threads)
            .map_or_else(String::new, |floor| format!("{:.2}", spread.median / floor));
        let _ = writeln!(text, "{ratio:>9}  {}", samples.contender.what);
    }
    text.push('\n');
}

/// The floors, a line each.
pub(super) fn floors(verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for verdict in verdicts {
        let value =
            verdict.value.map_or_else(|| "not measured".into(), |value| format!("{value:.3}"));
        let word = match verdict.limit {
            Limit::Reported => "reported",
            _ if verdict.is_met() => "met",
            _ => "NOT MET",
        };
        let _ = writeln!(
            text,
            "{:<45} {value:>12}  {:<8} {word}",
            verdict.what,
            verdict.limit.to_string()
        );
    }
    text
}

pub(super) fn verdict_data(verdicts: &[Verdict]) -> Value {
    let one = |verdict: &Verdict| {
        let limit = verdict.limit.to_string();
        json!({
            "what": verdict.what,
            "limit": limit,
            "value": verdict.value,
            "met": verdict.is_met(),
        })
    };
    verdicts.iter().map(one).collect()
}

pub(super) fn spread_data(spread: Spread) -> Value {
    let Spread { min, p25, median, p75, max } = spread;
    json!({ "min": min, "p25": p25, "median": median, "p75": p75, "max": max })
}
