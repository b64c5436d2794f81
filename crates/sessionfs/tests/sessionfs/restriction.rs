//! `set_event_pid`, `set_event_notrace_pid` and `tracing_cpumask`: generated sequences of writes to
//! these files, to `filter` and to `enable`, judged by a model that knows nothing of rules.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};

use crate::tree::{Place, TRUNCATE, WRITE};
use lastwords::{ChannelConfig, event};
use lastwords_sessionfs::{Access, Errno};
use lastwords_testkit::random::Random;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};

/// A thread that records two events for each number that it gets: `pids:one` with the number,
/// `pids:two` with the next one.
struct Worker {
    tid: u32,
    cpu: u32,
    numbers: Sender<u64>,
    done: Receiver<()>,
}

impl Worker {
    /// Starts a thread on a CPU.
    fn start(cpu: u32) -> Self {
        let (numbers, requests) = channel::<u64>();
        let (answer, done) = channel();
        let (told, tid) = channel();
        std::thread::spawn(move || {
            let mut own = CpuSet::new();
            own.set(cpu as usize);
            sched_setaffinity(None, &own).expect("a CPU of this process");
            told.send(gettid().as_raw_nonzero().get().cast_unsigned()).expect("the test waits");
            for number in requests {
                event!(pids, "one", number = number, by = "pids");
                // The names of these fields are those of contexts, which a restriction reads.
                event!(
                    pids,
                    "two",
                    number = number + 1,
                    by = "pids",
                    vtid = 7u64,
                    cpu_id = 99u64,
                    common_pid = 7u64
                );
                answer.send(()).expect("the test waits");
            }
        });
        Self { tid: tid.recv().expect("the thread starts"), cpu, numbers, done }
    }

    fn record(&self, number: u64) {
        self.numbers.send(number).expect("the thread lives");
        self.done.recv().expect("the thread records");
    }
}

/// Writes a text, as `echo TEXT > FILE` or `echo TEXT >> FILE` do. The threads of this process follow
/// at once.
fn write(place: &Place, path: &str, access: Access, text: &str) -> Result<(), Errno> {
    let file = place.tree.open(path, access);
    let written = file.and_then(|file| file.write(std::process::id(), text.as_bytes()));
    place.session.resume();
    written.map(drop)
}

/// The numbers in `trace`, which is cleared. Where all events are enabled, those of other tests, which
/// run in the same process, are in it too.
fn numbers(place: &Place) -> BTreeSet<u64> {
    let text = place.read("trace");
    drop(place.tree.open("trace", TRUNCATE).unwrap());
    let number =
        |line: &str| line.split(' ').find_map(|word| word.strip_prefix("number=")?.parse().ok());
    text.lines().filter(|line| line.contains(" by=pids")).filter_map(number).collect()
}

/// A condition on the number of an event.
type Condition = fn(u64) -> bool;

/// Conditions as filters and as functions.
const FILTERS: [(&str, Condition); 5] = [
    ("none", |_| true),
    ("number % 2 == 1", |_| true),
    ("(number & 4) == 0", |number| number & 4 == 0),
    ("number >= 40 || (number & 8) == 8", |number| number >= 40 || number & 8 == 8),
    ("(($ctx.vtid >= 0 && $ctx.vtid <= 1)) || number > 5", |number| number > 5),
];
const EVENTS: [&str; 2] = ["one", "two"];

/// The contents that the kernel's files would have.
struct Model {
    enabled: [bool; 2],
    filters: [usize; 2],
    lists: [BTreeSet<u32>; 2],
    cpus: BTreeSet<u32>,
}

impl Model {
    fn records(&self, event: usize, number: u64, worker: &Worker) -> bool {
        let [only, never] = &self.lists;
        self.enabled[event]
            && FILTERS[self.filters[event]].1(number)
            && (only.is_empty() || only.contains(&worker.tid))
            && !never.contains(&worker.tid)
            && self.cpus.contains(&worker.cpu)
    }
}

const LISTS: [&str; 2] = ["set_event_pid", "set_event_notrace_pid"];

/// Makes one change at random, of the session and of the model. Returns its words for a failure.
fn change(place: &Place, model: &mut Model, workers: &[Worker], random: &mut Random) -> String {
    let all: BTreeSet<u32> = workers.iter().map(|worker| worker.cpu).collect();
    let event = random.index(2);
    match random.index(7) {
        0 => {
            let (on, whole) = (random.index(2), random.index(3) == 0);
            let path = if whole {
                "events/enable".to_owned()
            } else {
                format!("events/pids/{}/enable", EVENTS[event])
            };
            assert_eq!(write(place, &path, TRUNCATE, &on.to_string()), Ok(()), "{path}");
            (0..2).filter(|at| whole || *at == event).for_each(|at| model.enabled[at] = on == 1);
            format!("{on} > {path}")
        }
        1 | 2 => {
            let filter = random.index(FILTERS.len());
            let whole = random.index(3) == 0;
            let path = if whole {
                "events/pids/filter".to_owned()
            } else {
                format!("events/pids/{}/filter", EVENTS[event])
            };
            let written = write(place, &path, TRUNCATE, FILTERS[filter].0);
            if filter == 1 {
                assert_eq!(written, Err(Errno::INVAL), "there is no such operator");
            } else {
                assert_eq!(written, Ok(()), "{path}");
                (0..2).filter(|at| whole || *at == event).for_each(|at| model.filters[at] = filter);
            }
            format!("{} > {path}", FILTERS[filter].0)
        }
        3..=5 => {
            let list = random.index(2);
            let mut words: Vec<String> = Vec::new();
            let access = if random.index(2) == 0 { WRITE } else { TRUNCATE };
            let mut expected =
                if access == WRITE { model.lists[list].clone() } else { BTreeSet::new() };
            for _ in 0..random.index(4) {
                let id = match random.index(5) {
                    0 => 1 + random.index(5) as u32,
                    _ => workers[random.index(workers.len())].tid,
                };
                let forms =
                    [format!("{id}"), format!("0x{id:x}"), format!("0{id:o}"), format!("+{id}")];
                words.push(forms[random.index(4)].clone());
                let _ = expected.insert(id);
            }
            let wrong = random.index(6) == 0;
            words.extend(wrong.then(|| "12x".to_owned()));
            let text = words.join(["\n", " ", "  "][random.index(3)]);
            // Truncation empties the list, whatever is written then.
            let truncated =
                if access == WRITE { model.lists[list].clone() } else { BTreeSet::new() };
            let result = if wrong { Err(Errno::INVAL) } else { Ok(()) };
            assert_eq!(write(place, LISTS[list], access, &format!("{text}\n")), result, "{text:?}");
            model.lists[list] = if wrong { truncated } else { expected };
            format!("{text:?} {} {}", if access == WRITE { ">>" } else { ">" }, LISTS[list])
        }
        _ => {
            let cpus: BTreeSet<u32> = all.iter().copied().filter(|_| random.index(3) > 0).collect();
            let mask = cpus.iter().fold(0u64, |mask, cpu| mask | 1 << cpu);
            assert_eq!(write(place, "tracing_cpumask", TRUNCATE, &format!("{mask:x}\n")), Ok(()));
            model.cpus = cpus;
            format!("{mask:x} > tracing_cpumask")
        }
    }
}

/// Checks that the files show what the model has.
fn check_files(place: &Place, model: &Model, workers: &[Worker], told: &str) {
    for (name, ids) in LISTS.iter().zip(&model.lists) {
        assert_eq!(
            place.read(name),
            ids.iter().map(|id| format!("{id}\n")).collect::<String>(),
            "{told}"
        );
    }
    for (at, event) in EVENTS.iter().enumerate() {
        assert_eq!(
            place.read(&format!("events/pids/{event}/enable")),
            format!("{}\n", u8::from(model.enabled[at])),
            "{told}"
        );
        assert_eq!(
            place.read(&format!("events/pids/{event}/filter")),
            format!("{}\n", FILTERS[model.filters[at]].0),
            "{told}"
        );
    }
    let mask = u64::from_str_radix(place.read("tracing_cpumask").trim(), 16).unwrap();
    let shown: BTreeSet<u32> =
        workers.iter().map(|worker| worker.cpu).filter(|cpu| mask >> cpu & 1 == 1).collect();
    assert_eq!(shown, model.cpus, "{told}");
}

/// A list that is too long is refused, and changes nothing.
fn refuses_what_is_too_long(place: &Place) {
    drop(place.tree.open(LISTS[0], TRUNCATE).unwrap());
    assert_eq!(write(place, LISTS[0], TRUNCATE, "1 2 5"), Ok(()));
    let many: String = (0..400).map(|id| format!("{} ", 100 + 2 * id)).collect();
    assert_eq!(write(place, LISTS[0], WRITE, &many), Err(Errno::NOSPC));
    assert!(
        place
            .read("error_log")
            .contains("set_event_pid: error: the filters of the events leave no room")
    );
    assert_eq!(place.read(LISTS[0]), "1\n2\n5\n");
    assert_eq!(write(place, LISTS[0], WRITE, "1073741824"), Err(Errno::PERM));
    assert_eq!(
        write(place, "tracing_cpumask", TRUNCATE, "ffffffff,ffffffff"),
        Err(Errno::OVERFLOW)
    );
    assert_eq!(write(place, "tracing_cpumask", TRUNCATE, "x"), Err(Errno::INVAL));
    assert_eq!(write(place, "options/event-fork", TRUNCATE, "1"), Err(Errno::OPNOTSUPP));
    assert_eq!(write(place, "options/event-fork", TRUNCATE, "0"), Ok(()));
}

/// An event that a trigger enables is restricted, too.
fn restricts_what_a_trigger_enables(place: &Place, first: &Worker, second: &Worker) {
    for (file, text) in
        [("tracing_cpumask", "3"), (LISTS[1], ""), (LISTS[0], &first.tid.to_string())]
    {
        assert_eq!(write(place, file, TRUNCATE, text), Ok(()), "{file}");
    }
    write(place, "events/pids/filter", TRUNCATE, "0").unwrap();
    write(place, "events/enable", TRUNCATE, "0").unwrap();
    write(place, "events/pids/one/trigger", TRUNCATE, "enable_event:pids:two").unwrap();
    second.record(2);
    while place.read("events/pids/two/enable") != "1*\n" {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    drop(numbers(place));
    place.session.resume();
    first.record(10);
    second.record(20);
    assert_eq!(numbers(place), BTreeSet::from([11]));
}

#[test]
fn writes_lead_to_what_a_model_says() {
    let place = &Place::new("pids", ChannelConfig::new("main"));
    let allowed = sched_getaffinity(None).unwrap();
    let cpus: Vec<u32> = (0..32).filter(|cpu| allowed.is_set(*cpu as usize)).collect();
    let workers: Vec<Worker> =
        (0..4).map(|at| Worker::start(cpus[at % cpus.len().min(2)])).collect();
    workers.iter().for_each(|worker| worker.record(0));
    let all = || workers.iter().map(|worker| worker.cpu).collect();
    let mut model =
        Model { enabled: [true; 2], filters: [0; 2], lists: Default::default(), cpus: all() };
    let seed =
        std::env::var("LASTWORDS_SEED").map_or(20_261_126, |seed| seed.parse().expect("a number"));
    let mut random = Random(seed);
    let (mut recorded, mut refused, mut steps) = (0, 0, Vec::new());
    drop(numbers(place));
    for step in 0..250 {
        steps.push(change(place, &mut model, &workers, &mut random));
        let told = format!(
            "seed {seed}, step {step}, the last steps {:#?}",
            &steps[steps.len().saturating_sub(8)..]
        );
        let mut expected = BTreeSet::new();
        for (at, worker) in workers.iter().enumerate() {
            let number = 2 * (at + 4 * random.index(7)) as u64;
            worker.record(number);
            let is_recorded = |event: &usize| model.records(*event, number + *event as u64, worker);
            let found: Vec<u64> =
                (0..2usize).filter(is_recorded).map(|event| number + event as u64).collect();
            (recorded, refused) = (recorded + found.len(), refused + 2 - found.len());
            expected.extend(found);
        }
        assert_eq!(numbers(place), expected, "{told}");
        check_files(place, &model, &workers, &told);
    }
    assert!(recorded > 150 && refused > 500, "{recorded} recorded, {refused} refused");
    println!("{recorded} events recorded, {refused} refused");
    refuses_what_is_too_long(place);
    restricts_what_a_trigger_enables(place, &workers[0], &workers[1]);
}

/// An instance of the machine's tracefs, in which nothing is enabled; none if this is not root or
/// there is no tracefs.
struct Kernel(PathBuf);

impl Kernel {
    fn new() -> Option<Self> {
        let folder = PathBuf::from(format!(
            "/sys/kernel/tracing/instances/lastwords-pids-{}",
            std::process::id()
        ));
        std::fs::create_dir(&folder).ok().map(|()| Self(folder))
    }

    fn read(&self, file: &str) -> String {
        std::fs::read_to_string(self.0.join(file)).unwrap()
    }

    fn write(&self, file: &str, access: Access, text: &str) -> Result<(), Errno> {
        let opened = std::fs::OpenOptions::new()
            .write(true)
            .truncate(access.truncate)
            .open(self.0.join(file));
        let written = opened.and_then(|mut file| file.write_all(text.as_bytes()));
        written.map_err(|error| {
            Errno::from_raw_os_error(error.raw_os_error().expect("an error of the system"))
        })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn words_and_errors_are_those_of_the_kernel() {
    let Some(kernel) = Kernel::new() else { return };
    let place = &Place::new("words", ChannelConfig::new("main"));
    event!(words, "one", number = 0u64);
    let all = place.read("tracing_cpumask");
    // A machine may have room for more CPUs than it has. Then the kernel's masks are longer.
    let is_same_length = kernel.read("tracing_cpumask") == all;
    let ids = [
        "1\n",
        "2 3",
        "0x10 010",
        "+7",
        "\n",
        "  ",
        "0",
        "5 4 5",
        "x",
        "1 x",
        "-1",
        "08",
        "1073741823",
        "1073741824",
    ];
    let masks = [
        "1\n",
        "0",
        " 1",
        "1 ",
        &all,
        "\n",
        "x",
        "0x1",
        "-1",
        "1,",
        ",1 ,",
        "1\n2",
        "1,x",
        "123456789",
        "ffffffff,ffffffff,ffffffff",
    ];
    let percents = ["0\n", "100", "+7", "010", "101", "-1", "x", "0x10", " 5", "5 ", "5\n\n", "\n"];
    let files: [(&str, &[&str]); 4] = [
        (LISTS[0], &ids),
        (LISTS[1], &ids),
        ("tracing_cpumask", &masks),
        ("buffer_percent", &percents),
    ];
    for (file, texts) in
        files.into_iter().filter(|(file, _)| is_same_length || *file != "tracing_cpumask")
    {
        for (access, text) in texts.iter().flat_map(|text| [(TRUNCATE, text), (WRITE, text)]) {
            let told = format!("{text:?} to {file}, {access:?}");
            assert_eq!(
                write(place, file, access, text),
                kernel.write(file, access, text),
                "{told}"
            );
            assert_eq!(place.read(file), kernel.read(file), "{told}");
        }
    }
}
