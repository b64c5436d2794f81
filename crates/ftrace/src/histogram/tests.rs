use super::*;

/// A text as the kernel prints it.
fn text(trigger: &str, rows: &str, totals: (u64, u64, u64)) -> String {
    let (hits, entries, dropped) = totals;
    format!(
        "# event histogram\n#\n# trigger info: {trigger} [active]\n#\n\n{rows}\n\
         Totals:\n    Hits: {hits}\n    Entries: {entries}\n    Dropped: {dropped}\n"
    )
}

fn only(trigger: &str, row: &str) -> Row {
    let histograms = parse(&text(trigger, row, (1, 1, 0))).unwrap();
    assert!(histograms[0].is_whole(), "{histograms:?}");
    histograms[0].rows[0].clone()
}

fn keys(trigger: &str, row: &str) -> Vec<Key> {
    only(trigger, row).keys.into_iter().map(|(_, key)| key).collect()
}

fn named(name: &str, number: u64) -> Key {
    Key::Named { name: name.to_owned(), number }
}

#[test]
fn keys_are_read_by_their_modifiers() {
    let hits = "hitcount:          1\n";
    for (words, row, expected) in [
        ("pid", "pid:       1234 ", Key::Number(1234)),
        ("ret", "ret: 18446744073709551614 ", Key::Number(u64::MAX - 1)),
        ("addr.hex", "addr: ffff8880 ", Key::Number(0xffff_8880)),
        (
            "ip.sym",
            "ip: [ffffffff81a2b3c4] vfs_read                                      ",
            named("vfs_read", 0xffff_ffff_81a2_b3c4),
        ),
        (
            "ip.sym-offset",
            "ip: [ffffffff81a2b3c4] vfs_read+0x14/0x80 [some]                               ",
            named("vfs_read+0x14/0x80 [some]", 0xffff_ffff_81a2_b3c4),
        ),
        ("common_pid.execname", "common_pid: a [b] c }      [        17] ", named("a [b] c }", 17)),
        ("id.syscall", "id: sys_openat                    [257] ", named("sys_openat", 257)),
        ("len.log2", "len: ~ 2^6  ", Key::Power(6)),
        ("len.log2", "len: ~ 2^12 ", Key::Power(12)),
        ("len.buckets=100", "len: ~ 200-299 ", Key::Range { first: 200, last: 299 }),
        ("common_cpu", "common_cpu:          1 ", Key::Number(1)),
    ] {
        let row = format!("{{ {row}}} {hits}");
        let trigger = format!("hist:keys={words}:vals=hitcount:sort=hitcount:size=2048");
        assert_eq!(keys(&trigger, &row), [expected], "{row}");
    }
}

#[test]
fn texts_may_look_like_keys_and_rows() {
    let trigger = "hist:keys=filename,pid:vals=hitcount:sort=hitcount:size=2048 if pid > 1";
    for name in ["1234", "a, b: 2", "a }", "} hitcount:          7", "a\nb", " 9"] {
        let row = format!("{{ filename: {name:<50}, pid:         17 }} hitcount:          1\n");
        assert_eq!(
            keys(trigger, &row),
            [Key::Text(name.trim_end().to_owned()), Key::Number(17)],
            "{row}"
        );
    }
    let long = "x".repeat(50) + "  ";
    let row = format!("{{ filename: {long}, pid:         17 }} hitcount:          1\n");
    assert_eq!(keys(trigger, &row)[0], Key::Text(long));
    // What looks like a row of its own cannot be told from one, but the totals can.
    let forged = "x, pid:          1 } hitcount:          9\n{ filename: y";
    let row = format!("{{ filename: {forged:<50}, pid:         17 }} hitcount:          1\n");
    assert!(!parse(&text(trigger, &row, (1, 1, 0))).unwrap()[0].is_whole());
}

#[test]
fn stacks_are_lists_of_functions() {
    let frames = "         vfs_read+0x1/0x2\n         ksys_read+0x3/0x4\n";
    let stack = Key::Stack(vec!["vfs_read+0x1/0x2".to_owned(), "ksys_read+0x3/0x4".to_owned()]);
    for name in ["stacktrace", "common_stacktrace"] {
        let trigger = format!("hist:keys={name}:vals=hitcount:sort=hitcount:size=2048");
        let row = format!("{{ {name}:\n{frames}}} hitcount:         17\n");
        let row = only(&trigger, &row);
        assert_eq!(row.keys, [(name.to_owned(), stack.clone())]);
        assert_eq!(row.values, [("hitcount".to_owned(), Value::Number(17))]);
    }
    let trigger = "hist:keys=common_stacktrace,pid:vals=hitcount:sort=hitcount:size=2048";
    let row = format!("{{ common_stacktrace:\n{frames}, pid:          5}} hitcount:          1\n");
    assert_eq!(keys(trigger, &row), [stack, Key::Number(5)]);
}

#[test]
fn values_are_read_in_the_forms_of_old_and_new_kernels() {
    let trigger = "hist:keys=pid:vals=hitcount,len,addr.hex,len.percent,len.graph:sort=len.descending:size=64";
    let number = |name: &str, number| (name.to_owned(), Value::Number(number));
    let word = |name: &str, word: &str| (name.to_owned(), Value::Text(word.to_owned()));
    let row = "{ pid:          1 } hitcount:         10 len:        170 addr:         b0 len (%):  12.34 len:                   ##\n";
    assert_eq!(
        only(trigger, row).values,
        [
            number("hitcount", 10),
            number("len", 170),
            number("addr", 0xb0),
            word("len (%)", "12.34"),
            word("len", "##"),
        ]
    );
    let row = "{ pid:          1 } hitcount:         10  len:        170  addr:         b0\n";
    assert_eq!(
        only(trigger, row).values,
        [number("hitcount", 10), number("len", 170), number("addr", 0xb0)]
    );
    let trigger = "hist:keys=pid:vals=len.graph,len:nohitcount:sort=len:size=64";
    let row = "{ pid:          1 } len:                      len:          3\n";
    assert_eq!(only(trigger, row).values, [word("len", ""), number("len", 3)]);
}

#[test]
fn several_histograms_have_their_events_and_totals() {
    let actions = "{ pid:          1 } hitcount:          2\n\tmax:         27  comm: sh\n";
    let two = [
        text("hist:one:keys=pid:vals=hitcount:sort=hitcount:size=2048", actions, (2, 1, 0)),
        text("hist:keys=pid:vals=hitcount:sort=hitcount:size=128", "", (0, 0, 3)),
    ]
    .join("\n\n");
    let all = heading("own", "sched:a") + &two + "\n" + &heading("more", "sched:b") + &two;
    let found = parse(&all).unwrap();
    let of = |h: &Histogram| (h.instance.clone(), h.event.clone(), h.hits, h.entries, h.dropped);
    let named = |i: &str, e: &str, hits, entries, dropped| {
        (i.to_owned(), e.to_owned(), hits, entries, dropped)
    };
    assert_eq!(
        found.iter().map(of).collect::<Vec<_>>(),
        [
            named("own", "sched:a", 2, 1, 0),
            named("own", "sched:a", 0, 0, 3),
            named("more", "sched:b", 2, 1, 0),
            named("more", "sched:b", 0, 0, 3),
        ]
    );
    assert_eq!(found[0].rows[0].more, ["max:         27  comm: sh"]);
    assert_eq!(found[0].state, "active");
    assert!(found[0].trigger.starts_with("hist:one:keys=pid"));
}

#[test]
fn what_is_no_histogram_is_refused() {
    let trigger = "hist:keys=pid:vals=hitcount:sort=hitcount:size=2048";
    for (text, line, why) in [
        ("some text\n".to_owned(), 1, "no line of a histogram"),
        (format!("# trigger info: {trigger} [active]\n#\n\n"), 1, "totals"),
        (text(trigger, "what\n", (1, 1, 0)), 6, "no row: what"),
        (text(trigger, "{ pid: one } hitcount: many\n", (1, 1, 0)), 6, "no row"),
    ] {
        let error = parse(&text).unwrap_err();
        assert!(error.line == line && error.why.contains(why), "{error}");
    }
    assert_eq!(parse("").unwrap(), []);
}

#[test]
fn a_text_that_was_read_is_displayed_as_it_was() {
    let pad = |text: &str, width: usize| format!("{text:<width$}");
    for (keys, values, row) in [
        ("pid", "hitcount", "{ pid:       1234 } hitcount:          3\n".to_owned()),
        (
            "sig,addr.hex",
            "hitcount,addr.hex",
            "{ sig:          9, addr: ffff8880 } hitcount:          3  addr:         b0\n".to_owned(),
        ),
        (
            "id.syscall,common_pid.execname",
            "hitcount",
            format!(
                "{{ id: {}[257], common_pid: {}[        17] }} hitcount:          1\n",
                pad("sys_openat", 30),
                pad("dd", 16)
            ),
        ),
        (
            "ip.sym,to.sym-offset",
            "hitcount",
            format!(
                "{{ ip: [ffffffff81a2b3c4] {}, to: [ffffffff81a2b3c4] {} }} hitcount:          1\n",
                pad("vfs_read", 45),
                pad("vfs_read+0x14/0x80 [some]", 55)
            ),
        ),
        (
            "len.log2,size.buckets=100",
            "hitcount",
            "{ len: ~ 2^6 , size: ~ 200-299 } hitcount:          1\n".to_owned(),
        ),
        (
            "filename",
            "hitcount,len.percent,len.graph",
            format!(
                "{{ filename: {} }} hitcount:          1  len (%):  12.34  len: {}\n",
                pad("/t/n1", 50),
                pad("##", 20)
            ),
        ),
        ("fd", "count", "{ fd:          1 }  count:      82920\n".to_owned()),
        (
            "common_stacktrace,pid",
            "hitcount",
            "{ common_stacktrace:\n         vfs_read+0x1/0x2\n, pid:          5} hitcount:          1\n"
                .to_owned(),
        ),
        (
            "pid:ts0=common_timestamp",
            "hitcount",
            "{ pid:          5 } hitcount:          1\n\tmax:         27  comm: sh\n".to_owned(),
        ),
    ] {
        let trigger = format!("hist:keys={keys}:vals={values}:sort=hitcount:size=2048 if pid > 1");
        let text = text(&trigger, &row, (3, 1, 2));
        let [histogram] = &parse(&text).unwrap()[..] else { panic!("{text}") };
        assert_eq!(histogram.to_string(), text);
    }
    let unknown = Histogram {
        trigger: "hist:keys=pid:vals=hitcount:sort=hitcount:size=128".to_owned(),
        rows: vec![Row {
            keys: vec![("pid".to_owned(), Key::Unknown)],
            values: vec![("hitcount".to_owned(), Value::Unknown)],
            more: Vec::new(),
        }],
        ..Histogram::default()
    };
    assert!(unknown.to_string().contains("{ pid:    unknown } hitcount:    unknown\n"));
}
