//! `cargo xtask bench shapes`: what events of many shapes cost, as multiples of the floor, which
//! runs in the same process by turns.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::floors::{Limit, Verdict};
use super::programs::Programs;
use super::stats::quantile;
use super::{Judging, report};

use rig::run_quietly;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Samples of each shape, of 1000 events; the shortest counts
    #[arg(long, value_name = "N", default_value_t = 300)]
    rounds: u32,
    /// The CPU [default: the last that we may use]
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    #[command(flatten)]
    judging: Judging,
}

/// The floors of shapes with a name. The worst shape of a row counts.
const ROWS: &[(&str, f64)] = &[
    ("a last text of 0 to 7 bytes", 1.5),
    ("a text to 32 bytes, then numbers", 2.0),
    ("two texts to 20 bytes", 2.2),
    ("8 words", 1.7),
];

/// A shape that was measured.
struct Shape {
    row: String,
    types: String,
    bytes: u64,
    /// Its session has more kinds of events than the compact header has ids, and this event came
    /// late.
    is_wide: bool,
    /// Time of an event, divided by that of the floor.
    cost: f64,
}

pub(super) fn run(args: &Args) -> Result<()> {
    eprintln!("building");
    let programs = Programs::build()?;
    let cpu = args
        .cpu
        .map_or_else(|| Ok(rig::workers::allowed_cpus()?.pop().unwrap_or(0)), anyhow::Ok)?;
    let text = run_quietly(Command::new(&programs.bench).args([
        "shapes",
        &cpu.to_string(),
        &args.rounds.to_string(),
    ]))?;
    let data: Value =
        serde_json::from_str(&text).context("what `lastwords-bench shapes` printed")?;
    let shapes =
        data["shapes"].as_array().into_iter().flatten().map(shape).collect::<Result<Vec<_>>>()?;
    println!(
        "seed {}, {} samples of each shape, as multiples of the floor F",
        data["seed"], args.rounds
    );
    let verdicts = verdicts(&shapes);
    print!("{}", table(&shapes));
    print!("{}", report::floors(&verdicts));
    args.judging.end(
        json!({"schema": 1, "bench": "shapes", "seed": data["seed"], "shapes": data["shapes"]}),
        &verdicts,
    )
}

fn shape(data: &Value) -> Result<Shape> {
    let number =
        |key: &str| data[key].as_f64().with_context(|| format!("no number `{key}` in {data}"));
    let word = |key: &str| data[key].as_str().unwrap_or_default().to_owned();
    Ok(Shape {
        row: word("row"),
        types: word("types"),
        bytes: number("bytes")? as u64,
        is_wide: data["wide"] == true,
        cost: number("ticks")? / number("floor")?,
    })
}

/// The costs of the generated shapes, from the least to the most.
fn generated(shapes: &[Shape], is_wide: bool) -> Vec<&Shape> {
    let mut chosen: Vec<&Shape> =
        shapes.iter().filter(|shape| shape.row.is_empty() && shape.is_wide == is_wide).collect();
    chosen.sort_by(|a, b| a.cost.total_cmp(&b.cost));
    chosen
}

fn costs(shapes: &[&Shape]) -> Vec<f64> {
    shapes.iter().map(|shape| shape.cost).collect()
}

fn verdicts(shapes: &[Shape]) -> Vec<Verdict> {
    let mut worst = BTreeMap::<&str, f64>::new();
    for shape in shapes.iter().filter(|shape| !shape.is_wide) {
        let cost = worst.entry(&shape.row).or_default();
        *cost = cost.max(shape.cost);
    }
    let rows = ROWS
        .iter()
        .map(|&(row, limit)| Verdict::new(row, Limit::AtMost(limit), worst.get(row).copied()));
    let costs = costs(&generated(shapes, false));
    let part = |part| (!costs.is_empty()).then(|| quantile(&costs, part));
    rows.chain([
        Verdict::new("generated shapes, median", Limit::AtMost(1.8), part(0.5)),
        Verdict::new("generated shapes, 95th of 100", Limit::AtMost(3.0), part(0.95)),
    ])
    .collect()
}

/// The curves, and the shapes that cost most.
fn table(shapes: &[Shape]) -> String {
    let mut lines = Vec::new();
    for (is_wide, what) in [(false, "generated shapes"), (true, "the same, with ids over 28")] {
        let chosen = generated(shapes, is_wide);
        let costs = costs(&chosen);
        if costs.is_empty() {
            continue;
        }
        let marks = [
            ("p5", 0.05),
            ("p25", 0.25),
            ("median", 0.5),
            ("p75", 0.75),
            ("p95", 0.95),
            ("max", 1.0),
        ];
        let curve =
            marks.map(|(name, part)| format!("{name} {:.2}", quantile(&costs, part))).join("  ");
        lines.push(format!("{what} ({}): {curve}", costs.len()));
        let worst = chosen.iter().rev().take(5);
        lines.extend(
            worst.map(|shape| {
                format!("    {:.2}  {} bytes: {}", shape.cost, shape.bytes, shape.types)
            }),
        );
    }
    lines.push(String::new());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(row: &str, cost: f64) -> Shape {
        Shape { row: row.into(), types: "u32".into(), bytes: 4, is_wide: false, cost }
    }

    #[test]
    fn the_worst_shape_of_a_row_counts() {
        let shapes = [
            shape("8 words", 1.2),
            shape("8 words", 1.8),
            shape("", 1.0),
            shape("", 2.0),
            shape("", 9.0),
        ];
        let verdicts = verdicts(&shapes);
        let value = |what: &str| {
            verdicts.iter().find(|verdict| verdict.what == what).and_then(|verdict| verdict.value)
        };
        assert_eq!(value("8 words"), Some(1.8));
        assert_eq!(value("generated shapes, median"), Some(2.0));
        assert!(!verdicts[0].is_met(), "a row that was not measured");
        assert!(table(&shapes).contains("median 2.00"));
    }
}
