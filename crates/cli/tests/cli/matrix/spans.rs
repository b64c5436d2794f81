//! Spans in Perfetto's traces.

use super::event::Value;
use super::kernel::processor;
use super::perfetto;
use crate::support::Place;
use lastwords_testkit::put::Order;
use lastwords_testkit::random::Random;
use lastwords_testkit::samples;
use lastwords_testkit::session::Span;
use std::collections::BTreeSet;
use std::path::Path;

/// Spans that were open at the end, and whose opening the ring does not have, are slices in
/// Perfetto: each once, from its opening on, on a track of its own, under the process that opened
/// it.
#[test]
fn perfetto_has_the_spans_that_were_open() {
    let place = Place::new();
    let mut random = Random(7);
    let mut below = |most: u64| random.below(most);
    for round in 0..8 {
        let mut session = samples::numbered(Order::Little, round);
        let spans = 0..below(12);
        session.spans = spans
            .map(|id| Span {
                id: id + 1,
                parent: below(id + 1),
                opened: 1 + below(1 << 40),
                opener: (4242 + below(2)) << 32 | (4243 + below(3)),
                entered: 0,
                level: 1 + below(5) as u32,
                text: [
                    "shop".to_owned(),
                    ["outer", "inner"][below(2) as usize].to_owned(),
                    format!("order={id}"),
                ],
            })
            .collect();
        // The clock's zero is at this time (`ClockSpec::default`).
        let time = |span: &Span| 1_700_000_000_000_000_000 + i128::from(span.opened);
        let expected: BTreeSet<_> =
            session.spans.iter().map(|span| (span.id, time(span), span.text.clone())).collect();
        session.image().write_folder(&place.at(&format!("s{round}"))).unwrap();
        let file = format!("{round}.pftrace");
        place.ok(&["recover", &format!("./s{round}"), "--to", "perfetto", "-o", &file]);
        let begins = perfetto::begins(&std::fs::read(place.at(&file)).unwrap());
        let tracks: BTreeSet<u64> = begins.iter().map(|(track, _)| *track).collect();
        let found: BTreeSet<_> = begins
            .iter()
            .map(|(_, event)| {
                let note = |wanted: &str| {
                    &event.fields.iter().find(|(name, _)| name == wanted).expect(wanted).1
                };
                let (Value::Number(id), Value::Text(fields)) = (note("span_id"), note("fields"))
                else {
                    panic!("{event:?}")
                };
                let (target, name) = event.name.split_once("::").expect("a target and a name");
                (*id as u64, event.ns, [target.to_owned(), name.to_owned(), fields.clone()])
            })
            .collect();
        assert_eq!(found, expected, "round {round}");
        assert_eq!((begins.len(), tracks.len()), (expected.len(), expected.len()), "round {round}");
        if let Some(program) = std::env::var_os("LASTWORDS_TRACE_PROCESSOR") {
            let (program, file) = (Path::new(&program), place.at(&file));
            processor::accepts(program, &file).unwrap();
            let mut names: Vec<String> =
                session.spans.iter().map(|span| format!("shop::{}", span.text[1])).collect();
            names.sort();
            assert_eq!(processor::endless_slices(program, &file).unwrap(), names, "round {round}");
        }
        let only = format!("only-{file}");
        let (from, inner) = (format!("./s{round}"), "span:new shop::inner");
        place.run(&["recover", &from, "--to", "perfetto", "-e", inner, "-o", &only]);
        let begins = perfetto::begins(&std::fs::read(place.at(&only)).unwrap_or_default());
        let wanted = session.spans.iter().filter(|span| span.text[1] == "inner").count();
        assert_eq!(
            begins.len(),
            if place.at(&only).exists() { wanted } else { 0 },
            "round {round}"
        );
    }
}
