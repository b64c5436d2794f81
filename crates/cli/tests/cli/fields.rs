//! `report -F`: fields that the user chooses; and `--relative` for a kernel's trace. What is
//! printed is compared with the JSON lines, which another writer makes.

use crate::kinds::place;
use crate::recovery::killed;
use crate::support::{Place, event_lines, json_events};
use serde_json::Value;

/// The events of an input, as JSON; of a kernel those of the top level, as `report` prints them.
fn events(place: &Place, input: &str) -> Vec<Value> {
    let which: &[&str] = if input == "k.dat" { &["--instance", "top"] } else { &[] };
    json_events(&place.run(&[&["convert", input, "--to", "json", "-o", "-"], which].concat()).out)
}

/// The text of a value: a hyphen if it is not there, a label for an enumeration, braces around a
/// list.
fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() || text == "-" => format!("\"{text}\""),
        Value::String(text) => text.replace('\\', "\\\\").replace('\n', "\\n"),
        Value::Array(list) => {
            format!("{{{}}}", list.iter().map(text).collect::<Vec<_>>().join(","))
        }
        Value::Object(of) if of.contains_key("label") && of["label"].is_null() => {
            of["value"].to_string()
        }
        Value::Object(of) if of.contains_key("label") => text(&of["label"]),
        Value::Object(_) => panic!("a structure"),
        value => value.to_string(),
    }
}

/// A column, and its value in a line of JSON.
type Column = (&'static str, fn(&Value) -> Value);

fn check(place: &Place, input: &str, columns: &[Column]) {
    let all = events(place, input);
    assert!(all.len() > 3, "{input}");
    let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
    let expected =
        |json: &Value| columns.iter().map(|(_, value)| text(&value(json))).collect::<Vec<_>>();
    let expected: Vec<Vec<String>> = all.iter().map(expected).collect();
    for (at, name) in names.iter().enumerate() {
        assert!(expected.iter().any(|line| line[at] != "-"), "{input}: no event has {name}");
    }
    let printed = |args: &[&str]| -> Vec<Vec<String>> {
        let text = place.ok(&[&["report", input, "--utc"], args].concat());
        text.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    };
    assert_eq!(printed(&["-F", &names.join(",")]), expected, "{input}: {names:?}");
    // In another order, and only some events.
    let reversed: Vec<&str> = names.iter().rev().copied().collect();
    let last: Vec<Vec<String>> = expected[expected.len() - 3..]
        .iter()
        .map(|line| line.iter().rev().cloned().collect())
        .collect();
    let found = place.run(&["report", input, "--fields", &reversed.join(","), "--last", "3"]);
    let found: Vec<Vec<String>> =
        found.out.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect();
    assert_eq!(found, last, "{input}: {reversed:?}");
}

#[test]
fn fields_are_those_of_the_json_lines() {
    let place = place();
    let own: &[Column] = &[
        ("ticks", |json| json["ticks"].clone()),
        ("cpu", |json| json["cpu"].clone()),
        ("event", |json| json["event"].clone()),
        ("channel", |json| json["channel"].clone()),
        ("level", |json| json["level"].clone()),
        ("n", |json| json["fields"]["n"].clone()),
        ("three[1]", |json| json["fields"]["three"][1].clone()),
        ("three", |json| json["fields"]["three"].clone()),
        // Its elements are shown to base 16.
        ("list", |json| match &json["fields"]["list"] {
            Value::Array(list) => {
                list.iter().map(|n| format!("0x{:X}", n.as_u64().expect("a number"))).collect()
            }
            other => other.clone(),
        }),
        ("kind", |json| json["fields"]["kind"].clone()),
        ("$fields.yes", |json| json["fields"]["yes"].clone()),
        ("shard", |json| json["context"]["shard"].clone()),
        ("$ctx.shard", |json| json["context"]["shard"].clone()),
    ];
    check(&place, "a", own);
    check(&place, "ctf", own);
    check(
        &place,
        "k.dat",
        &[
            ("ticks", |json| json["ticks"].clone()),
            ("cpu", |json| json["cpu"].clone()),
            ("event", |json| json["event"].clone()),
            ("tid", |json| json["context"]["pid"].clone()),
            ("COMM", |json| json["context"]["comm"].clone()),
            ("$ctx.comm", |json| json["context"]["comm"].clone()),
            ("$fields.comm", |json| json["fields"]["comm"].clone()),
            ("msg", |json| json["fields"]["msg"].clone()),
            ("message", |json| json["context"]["text"].clone()),
            ("flags", |json| json["context"]["flags"].clone()),
        ],
    );
}

/// Nanoseconds of `[-]SECONDS.NNNNNNNNN`.
fn nanoseconds(time: &str) -> i64 {
    let (sign, magnitude) = time.strip_prefix('-').map_or((1, time), |magnitude| (-1, magnitude));
    let (seconds, fraction) = magnitude.split_once('.').unwrap_or_else(|| panic!("{time}"));
    assert_eq!(fraction.len(), 9, "{time}");
    sign * (seconds.parse::<i64>().unwrap() * 1_000_000_000 + fraction.parse::<i64>().unwrap())
}

#[test]
fn times_are_those_of_the_other_styles() {
    let place = killed();
    let lines = |args: &[&str]| -> Vec<String> {
        place.ok(&[&["report", "app", "--utc"], args].concat()).lines().map(str::to_owned).collect()
    };
    for relative in [&[][..], &["--relative"]] {
        let plain = lines(relative);
        let found = lines(&[relative, &["-F", "time,tid,event,message"]].concat());
        assert!(found.len() > 100 && found.len() == plain.len());
        for (plain, found) in plain.iter().zip(&found) {
            let [time, tid, event, message] = found.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{found}")
            };
            assert!(
                plain.starts_with(&format!("{time} ")) && plain.contains(tid),
                "{plain}\n{found}"
            );
            let begin =
                format!("{}: {message}", event.split_once(" {").map_or(event, |(name, _)| name));
            let marker = format!(": {message}");
            assert!(plain.contains(&begin) || plain.contains(&marker), "{plain}\n{found}");
        }
    }
    let times: Vec<i64> =
        lines(&["--relative", "-F", "time"]).iter().map(|time| nanoseconds(time)).collect();
    let deltas = lines(&["-F", "delta"]);
    assert_eq!(deltas[0], "-");
    let found: Vec<i64> = deltas[1..].iter().map(|delta| nanoseconds(delta)).collect();
    assert_eq!(found, times.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>());
}

#[test]
fn relative_times_of_a_kernel_are_differences_of_its_clock() {
    let place = place();
    let ticks: Vec<i64> =
        events(&place, "k.dat").iter().map(|json| json["ticks"].as_i64().unwrap()).collect();
    let newest = ticks.iter().max().unwrap();
    let expected: Vec<i64> = ticks.iter().map(|ticks| ticks - newest).collect();
    assert!(expected.len() > 3 && expected.contains(&0) && expected[0] < 0);
    let text = |args: &[&str]| place.ok(&[&["report", "k.dat", "--relative"], args].concat());
    let found: Vec<i64> = text(&["-F", "time"]).lines().map(nanoseconds).collect();
    assert_eq!(found, expected, "-F time");
    // In the kernel's own text, the time is the word before the first colon behind the CPU.
    for style in [&[][..], &["--style", "ftrace"], &["--style", "fields"]] {
        let lines = text(style);
        let of_line = |line: &str| {
            Some(line.split_once("] ")?.1.split(':').next()?.split(' ').next_back()?.to_owned())
        };
        let found: Vec<i64> =
            event_lines(&lines).filter_map(of_line).map(|time| nanoseconds(&time)).collect();
        assert_eq!(found, expected, "{style:?}\n{lines}");
        // All else is as without the option.
        let without = |text: &str| -> Vec<String> {
            let line = |line: &str| match line.split_once("] ") {
                Some((head, rest)) if !line.starts_with('#') => {
                    format!("{head}{}", rest.split_once(':').map_or(rest, |(_, rest)| rest))
                }
                _ => line.to_owned(),
            };
            text.lines().map(line).collect()
        };
        assert_eq!(
            without(&lines),
            without(&place.ok(&[&["report", "k.dat"], style].concat())),
            "{style:?}"
        );
    }
    // Readings of the clock in the raw style: the third word.
    let raw = text(&["--style", "raw"]);
    let of_line = |line: &str| line.split(' ').nth(2).and_then(|time| time.parse::<i64>().ok());
    let found: Vec<i64> = event_lines(&raw).filter_map(of_line).collect();
    assert_eq!(found, expected, "raw\n{raw}");
    let ran = place.run(&["report", "k.dat", "--relative", "--style", "latency"]);
    ran.has_status(1).says("--style latency has times of its own");
    let ran = place.run(&["report", "k.dat", "a", "--relative"]);
    ran.has_status(1).prints_nothing().says("the newest event of all is not known");
}

#[test]
fn unknown_fields_are_refused_and_empty_ones_are_told() {
    let place = place();
    for (input, names, near) in [
        ("a", "time,shrad", "no event has a field shrad; did you mean shard?"),
        ("ctf", "time,shrad", "no event has a field shrad; did you mean shard?"),
        ("k.dat", "time,nxet", "no event has a field nxet"),
        ("k.dat", "time,ipp,cmm", "no event has a field ipp"),
        ("a", "mesage", "no event has a field mesage; did you mean message?"),
    ] {
        let ran = place.run(&["report", input, "-F", names]);
        ran.has_status(1).prints_nothing().says(near);
    }
    // The field is known, and no event that was selected has it.
    let ran = place.run(&["report", "k.dat", "-F", "event,msg", "-e", "wake"]);
    ran.has_status(0).says("--fields: none of 3 events has msg");
    assert_eq!(ran.out, "sched:wake\t-\n".repeat(3));
    for wrong in [
        &["-F", ""][..],
        &["-F", "time,,cpu"],
        &["-F", "a b"],
        &["-F", "n == 1"],
        &["-F", "time", "--style", "raw"],
        &["--separator", ","],
        &["-F", "time", "--separator", "\u{1b}"],
    ] {
        place.run(&[&["report", "a"], wrong].concat()).has_status(2).prints_nothing();
    }
    for verb in ["convert", "recover"] {
        let ran = place.run(&[verb, "a", "--to", "json", "-o", "out", "-F", "time"]);
        ran.has_status(2).says("only `report` prints chosen fields");
    }
}

#[test]
fn separators_in_values_are_told_from_others() {
    let place = place();
    let line = |args: &[&str]| place.ok(&[&["report", "k.dat", "-e", "print"], args].concat());
    assert_eq!(line(&["-F", "tid,message", "--separator", ","]), "7,do_work: hello\n");
    assert_eq!(line(&["-F", "tid,message", "--separator", ": "]), "7: \"do_work: hello\"\n");
    assert_eq!(line(&["-F", "tid, event", "--separator", "\\t|"]), "7\t|ftrace:print\n");
    // Traces of several kinds have one timeline, and each line all columns.
    let ran = place.run(&["report", "a", "k.dat", "-F", "trace,event,n,tid"]);
    ran.has_status(0);
    let (own, kernel) = (events(&place, "a").len(), events(&place, "k.dat").len());
    assert_eq!(ran.out.lines().count(), own + kernel);
    assert_eq!(ran.out.lines().filter(|line| line.starts_with("ftrace\t")).count(), kernel);
    assert!(ran.out.lines().all(|line| line.split('\t').count() == 4));
}

#[test]
fn a_follower_prints_fields() {
    let place = killed();
    let followed = place.ok(&["report", "app", "--follow", "-F", "event,sequence"]);
    assert_eq!(followed, place.ok(&["report", "app", "-F", "event,sequence"]));
    place.run(&["report", "app", "--follow", "-F", "delta"]).has_status(1).says("would begin anew");
}

/// The number of a system call is shown by its name, if the machine has a call of that number.
#[test]
fn system_calls_by_name() {
    let place = Place::new();
    let long = "integer { size = 64; align = 8; signed = true; }";
    let event = |id: u16, name: &str| {
        format!("event {{ name = \"{name}\"; id = {id}; fields := struct {{ {long} id; }}; }};\n")
    };
    let write = |folder: &str, machine: &str| {
        let metadata = format!(
            "/* CTF 1.8 */ trace {{ major = 1; minor = 8; byte_order = le; }};
            env {{ machine = \"{machine}\"; }};
            clock {{ name = mono; freq = 1000000000; absolute = TRUE; }};
            stream {{ event.header := struct {{ integer {{ size = 16; align = 8; }} id;
                integer {{ size = 64; align = 8; map = clock.mono.value; }} timestamp; }}; }};
            {}{}{}",
            event(0, "raw_syscalls:sys_enter"),
            event(1, "raw_syscalls:sys_exit"),
            event(2, "other:sys_enter")
        );
        let calls = [(0u16, 61i64), (1, 257), (0, 100_000), (1, -1), (2, 61)];
        let bytes = (1u64..).zip(calls).flat_map(|(time, (id, call))| {
            [&id.to_le_bytes()[..], &time.to_le_bytes(), &call.to_le_bytes()].concat()
        });
        std::fs::create_dir(place.at(folder)).unwrap();
        std::fs::write(place.at(folder).join("metadata"), metadata).unwrap();
        std::fs::write(place.at(folder).join("stream"), bytes.collect::<Vec<u8>>()).unwrap();
    };
    write("x86", "x86_64");
    write("arm", "aarch64");
    write("s390", "s390x");
    let calls =
        |folder: &str| place.ok(&["report", folder, "-F", "syscall,id", "--separator", " "]);
    let rest = "100000 100000\n-1 -1\n- 61\n";
    assert_eq!(calls("x86"), format!("wait4 61\nopenat 257\n{rest}"));
    assert_eq!(calls("arm"), format!("getdents64 61\n257 257\n{rest}"));
    assert_eq!(calls("s390"), format!("61 61\n257 257\n{rest}"));
}
