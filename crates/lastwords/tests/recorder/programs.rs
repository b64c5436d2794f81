//! Random programs of spans and events of `tracing`, run by several threads: the layer and the
//! subscriber record the same, and it is what a plain model says.
#![cfg(feature = "tracing")]

use crate::common::plain;
use crate::support;
use std::collections::BTreeSet;
use std::path::Path;
use std::pin::Pin;
use std::sync::mpsc;
use std::task::{Context, Poll, Waker};

use lastwords::Session;
use lastwords_testkit::random::{Random, setting};
use tracing::field::Empty;
use tracing::{Dispatch, Instrument as _, Span, debug_span, info, info_span, warn, warn_span};
use tracing_subscriber::layer::SubscriberExt as _;

/// Threads of a program.
const THREADS: usize = 3;
/// Steps of a program.
const STEPS: usize = 300;

/// The parent of a span or an event.
#[derive(Debug, Clone, Copy)]
enum Parent {
    Contextual,
    Root,
    /// A span, by its number.
    Span(usize),
}

/// A step of a program. Spans are numbered in the order in which they are opened.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// Opens a span of one of three kinds.
    New(usize, Parent),
    Clone(usize),
    /// Drops a handle of the span.
    Drop(usize),
    Enter(usize),
    Exit(usize),
    Record(usize, u64),
    FollowsFrom(usize, usize),
    Event(u64, Parent),
    /// Makes a task of a handle of the span.
    Spawn(usize),
    /// Polls a task, which records an event.
    Poll(usize),
    /// Drops a task.
    Finish(usize),
    /// Ends the session and begins another.
    NextSession,
}

/// A program: each step and the thread that takes it.
type Program = Vec<(usize, Step)>;

/// A span as the model knows it.
#[derive(Debug, Clone, Default)]
struct Modelled {
    name: &'static str,
    /// Fields as the table of open spans has them.
    fields: String,
    /// Handles that the program has, those of tasks included.
    handles: usize,
    /// Handles of the program, and of open spans inside of this one.
    references: usize,
    parent: Option<usize>,
    /// It was opened in the session of now.
    is_listed: bool,
    records: usize,
}

/// A model of `tracing`, written from its documentation and from ours.
struct Model {
    spans: Vec<Modelled>,
    stacks: [Vec<usize>; THREADS],
    /// The spans of tasks; none once a task is dropped.
    tasks: Vec<Option<usize>>,
    enter_and_exit: bool,
    lines: Vec<String>,
    /// The lines and open spans of each session.
    sessions: Vec<(Vec<String>, Vec<String>)>,
}

impl Model {
    fn id(span: Option<usize>) -> usize {
        span.map_or(0, |number| number + 1)
    }

    /// The innermost span of the thread. One that was entered again counts where it was entered
    /// first.
    fn top(&self, thread: usize) -> Option<usize> {
        let stack = &self.stacks[thread];
        (0..stack.len()).rev().find(|at| !stack[..*at].contains(&stack[*at])).map(|at| stack[at])
    }

    fn parent(&self, thread: usize, parent: Parent) -> Option<usize> {
        match parent {
            Parent::Contextual => self.top(thread),
            Parent::Root => None,
            Parent::Span(number) => Some(number),
        }
    }

    fn enter(&mut self, thread: usize, span: usize) {
        self.stacks[thread].push(span);
        self.span_line("enter", span, "");
    }

    fn exit(&mut self, thread: usize, span: usize) {
        if let Some(at) = self.stacks[thread].iter().rposition(|inside| *inside == span) {
            self.stacks[thread].remove(at);
        }
        self.span_line("exit", span, "");
    }

    fn span_line(&mut self, what: &str, span: usize, fields: &str) {
        if self.enter_and_exit || !["enter", "exit"].contains(&what) {
            let name = self.spans[span].name;
            self.lines.push(format!(
                "span:{what} recorder::programs::{name}{fields} span_id={}",
                span + 1
            ));
        }
    }

    fn event(&mut self, thread: usize, what: &str, parent: Parent) {
        let span = self.parent(thread, parent).filter(|number| self.spans[*number].references > 0);
        let inside = span.map(|number| {
            let Modelled { name, fields, is_listed, .. } = &self.spans[number];
            let fields = if *is_listed && !fields.is_empty() {
                format!("{{{fields}}}")
            } else {
                String::new()
            };
            format!(
                " span={:?} span_id={}",
                format!("recorder::programs::{name}{fields}"),
                number + 1
            )
        });
        self.lines.push(format!("recorder::programs:{what}{}", inside.unwrap_or_default()));
    }

    fn release(&mut self, span: usize) {
        let mut next = Some(span);
        while let Some(span) = next.take() {
            self.spans[span].references -= 1;
            if self.spans[span].references == 0 {
                self.span_line("close", span, "");
                next = self.spans[span].parent;
            }
        }
    }

    fn end_session(&mut self) {
        let is_inside = |number: usize| self.stacks.iter().any(|stack| stack.contains(&number));
        let open =
            self.spans.iter().enumerate().filter(|(_, span)| span.references > 0 && span.is_listed);
        let open = open.map(|(number, Modelled { name, fields, .. })| {
            format!(
                "recorder::programs|{name}|{fields}{}",
                if is_inside(number) { " entered" } else { "" }
            )
        });
        let open = open.collect();
        self.sessions.push((std::mem::take(&mut self.lines), open));
        self.spans.iter_mut().for_each(|span| span.is_listed = false);
    }

    fn take(&mut self, thread: usize, step: Step) {
        match step {
            Step::New(kind, parent) => {
                let parent = self.parent(thread, parent);
                let number = self.spans.len();
                let (name, fields, shown) = match kind {
                    0 => ("a", format!("n={number}"), format!(" n={number}")),
                    1 => ("b", format!("s=text-{number}"), format!(" s=\"text-{number}\"")),
                    _ => ("c", String::new(), String::new()),
                };
                let id = Self::id(parent);
                let held = parent.filter(|number| self.spans[*number].references > 0);
                held.into_iter().for_each(|number| self.spans[number].references += 1);
                let (handles, references, is_listed) = (1, 1, true);
                self.spans.push(Modelled {
                    name,
                    fields,
                    handles,
                    references,
                    parent: held,
                    is_listed,
                    records: 0,
                });
                let line = format!(
                    "span:new recorder::programs::{name}{shown} span_id={} parent_id={id}",
                    number + 1
                );
                self.lines.push(line);
            }
            Step::Clone(span) => {
                self.spans[span].handles += 1;
                self.spans[span].references += 1;
            }
            Step::Drop(span) => {
                self.spans[span].handles -= 1;
                self.release(span);
            }
            Step::Enter(span) => self.enter(thread, span),
            Step::Exit(span) => self.exit(thread, span),
            Step::Record(span, value) => {
                self.spans[span].records += 1;
                if self.spans[span].is_listed && self.spans[span].name != "a" {
                    let separator = if self.spans[span].fields.is_empty() { "" } else { " " };
                    self.spans[span].fields += &format!("{separator}later={value}");
                }
                // A span without the field is not asked.
                if self.spans[span].name != "a" {
                    self.span_line("record", span, &format!(" later={value}"));
                }
            }
            Step::FollowsFrom(..) => (),
            Step::Event(n, parent) => self.event(thread, &format!("tick n={n}"), parent),
            Step::Spawn(span) => self.tasks.push(Some(span)),
            Step::Poll(task) => {
                let span = self.tasks[task].expect("alive");
                self.enter(thread, span);
                self.event(thread, "polled", Parent::Contextual);
                self.exit(thread, span);
            }
            Step::Finish(task) => {
                let span = self.tasks[task].take().expect("alive");
                self.enter(thread, span);
                self.exit(thread, span);
                self.spans[span].handles -= 1;
                self.release(span);
            }
            Step::NextSession => self.end_session(),
        }
    }
}

/// Makes a program, and what each of its sessions must have in the end.
fn generate(seed: u64) -> (Program, Model) {
    let mut random = Random(seed);
    let mut model = Model {
        spans: Vec::new(),
        stacks: Default::default(),
        tasks: Vec::new(),
        enter_and_exit: seed.is_multiple_of(2),
        lines: Vec::new(),
        sessions: Vec::new(),
    };
    let mut program = Program::new();
    for step in 0..STEPS {
        let thread = random.index(THREADS);
        // Handles that are no task's.
        let in_tasks = |span: usize| model.tasks.iter().filter(|task| **task == Some(span)).count();
        let held: Vec<usize> =
            (0..model.spans.len()).filter(|n| model.spans[*n].handles > in_tasks(*n)).collect();
        let tasks: Vec<usize> =
            (0..model.tasks.len()).filter(|n| model.tasks[*n].is_some()).collect();
        let of = |random: &mut Random, from: &[usize]| from[random.index(from.len())];
        let parent = match random.index(4) {
            0 => Parent::Root,
            1 if !held.is_empty() => Parent::Span(of(&mut random, &held)),
            _ => Parent::Contextual,
        };
        let choice = random.index(if held.is_empty() { 4 } else { 20 });
        let taken = match choice {
            _ if step == STEPS / 2 => Step::NextSession,
            0 | 1 => Step::New(random.index(3), parent),
            2..4 => Step::Event(step as u64, parent),
            4 => Step::Clone(of(&mut random, &held)),
            5..8 => Step::Drop(of(&mut random, &held)),
            8..11 => Step::Enter(of(&mut random, &held)),
            11..14 => Step::Exit(of(&mut random, &held)),
            14 => match of(&mut random, &held) {
                span if model.spans[span].records < 4 => Step::Record(span, step as u64),
                span => Step::FollowsFrom(span, of(&mut random, &held)),
            },
            15 => Step::Spawn(of(&mut random, &held)),
            16 if !tasks.is_empty() => Step::Finish(of(&mut random, &tasks)),
            17.. if !tasks.is_empty() => Step::Poll(of(&mut random, &tasks)),
            _ => Step::Event(step as u64, parent),
        };
        model.take(thread, taken);
        program.push((thread, taken));
    }
    model.end_session();
    (program, model)
}

/// The task of a program: whenever it is polled, it records an event and waits.
async fn task() {
    loop {
        info!("polled");
        let mut is_polled = false;
        std::future::poll_fn(|_| {
            if std::mem::replace(&mut is_polled, true) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// The spans and tasks of a program that runs.
#[derive(Default)]
struct Running {
    spans: Vec<Vec<Span>>,
    tasks: Vec<Option<Pin<Box<dyn Future<Output = ()> + Send>>>>,
}

fn open(kind: usize, number: usize, parent: Option<Option<&Span>>) -> Span {
    let s = format!("text-{number}");
    let s = s.as_str();
    match (kind, parent) {
        (0, None) => info_span!("a", n = number as u64),
        (1, None) => warn_span!("b", s, later = Empty),
        (_, None) => debug_span!("c", later = Empty),
        (kind, Some(parent)) => {
            let parent = parent.and_then(Span::id);
            match kind {
                0 => info_span!(parent: parent, "a", n = number as u64),
                1 => warn_span!(parent: parent, "b", s, later = Empty),
                _ => debug_span!(parent: parent, "c", later = Empty),
            }
        }
    }
}

impl Running {
    fn span(&self, span: usize) -> &Span {
        self.spans[span].last().expect("a handle")
    }

    fn parent(&self, parent: Parent) -> Option<Option<&Span>> {
        match parent {
            Parent::Contextual => None,
            Parent::Root => Some(None),
            Parent::Span(span) => Some(Some(self.span(span))),
        }
    }

    /// Takes the step, in its thread.
    fn take(&mut self, step: Step) {
        match step {
            Step::New(kind, parent) => {
                let span = open(kind, self.spans.len(), self.parent(parent));
                self.spans.push(vec![span]);
            }
            Step::Clone(span) => {
                let another = self.span(span).clone();
                self.spans[span].push(another);
            }
            Step::Drop(span) => drop(self.spans[span].pop()),
            Step::Enter(span) => self
                .span(span)
                .with_subscriber(|(id, recorder)| recorder.enter(id))
                .expect("enabled"),
            Step::Exit(span) => self
                .span(span)
                .with_subscriber(|(id, recorder)| recorder.exit(id))
                .expect("enabled"),
            Step::Record(span, value) => _ = self.span(span).record("later", value),
            Step::FollowsFrom(span, other) => _ = self.span(span).follows_from(self.span(other)),
            Step::Event(n, parent) => match self.parent(parent) {
                None => info!(n, "tick"),
                Some(parent) => warn!(parent: parent.and_then(Span::id), n, "tick"),
            },
            Step::Spawn(span) => {
                let span = self.spans[span].pop().expect("a handle");
                self.tasks.push(Some(Box::pin(task().instrument(span))));
            }
            Step::Poll(task) => {
                let task = self.tasks[task].as_mut().expect("alive").as_mut();
                assert!(task.poll(&mut Context::from_waker(Waker::noop())).is_pending());
            }
            Step::Finish(task) => drop(self.tasks[task].take()),
            Step::NextSession => unreachable!("not a thread's"),
        }
    }
}

fn session(dir: &Path, number: usize) -> Session {
    let main = plain("main").sub_buffers(8, 64 << 10);
    let builder = Session::builder(format!("session-{number}")).dir(dir).channel(main).spans(1024);
    builder.listen(false).start().expect("a session")
}

/// Runs the program with the recorder. Returns the lines and the open spans of each session.
fn run(program: &Program, recorder: &Dispatch) -> Vec<(Vec<String>, Vec<String>)> {
    let dir = tempfile::tempdir().expect("a folder");
    let (ready, is_ready) = mpsc::channel();
    let mut found = Vec::new();
    std::thread::scope(|scope| {
        let threads: [mpsc::Sender<(Step, Running)>; THREADS] = std::array::from_fn(|_| {
            let (sender, steps) = mpsc::channel::<(Step, Running)>();
            let ready = ready.clone();
            let work = move || {
                for (step, mut running) in steps {
                    running.take(step);
                    ready.send(running).expect("the program waits");
                }
            };
            scope.spawn(move || tracing::dispatcher::with_default(recorder, work));
            sender
        });
        let mut running = Some(Running::default());
        let mut now = Some(session(dir.path(), 0));
        let mut end = |session: Option<Session>| {
            let session = session.expect("a session");
            let folder = session.folder().expect("a folder").to_owned();
            let open = support::open_spans(&folder);
            drop(session);
            found.push((support::lines(&folder), open));
        };
        for &(thread, step) in program {
            if matches!(step, Step::NextSession) {
                end(now.take());
                now = Some(session(dir.path(), 1));
                continue;
            }
            threads[thread]
                .send((step, running.take().expect("it is here")))
                .expect("the thread waits");
            running = Some(is_ready.recv().expect("the thread takes the step"));
        }
        end(now.take());
        // Nobody records what is left.
        tracing::dispatcher::with_default(recorder, || drop(running));
        drop(threads);
    });
    found
}

/// Replaces ids of spans by their order of appearance, over all sessions.
fn renamed(sessions: &[(Vec<String>, Vec<String>)]) -> Vec<String> {
    support::with_ids_renamed(sessions.iter().flat_map(|(lines, _)| lines.clone()))
}

#[test]
fn layer_and_subscriber_record_what_the_model_says() {
    alone!();
    use lastwords::layer::{layer, subscriber};
    let first = setting("LASTWORDS_SEED", 1);
    for seed in first..first + 25 {
        let (program, model) = generate(seed);
        let on = model.enter_and_exit;
        let registry = tracing_subscriber::registry().with(layer().with_enter_and_exit(on));
        let recorders =
            [Dispatch::new(registry), Dispatch::new(subscriber().with_enter_and_exit(on))];
        for (recorder, name) in recorders.iter().zip(["layer", "subscriber"]) {
            let found = run(&program, recorder);
            let (found_lines, lines) = (renamed(&found), renamed(&model.sessions));
            let at = found_lines.iter().zip(&lines).take_while(|(a, b)| a == b).count();
            let [a, b] = [&found_lines, &lines].map(|lines| lines.get(at));
            assert_eq!(a, b, "{name}, seed {seed}, line {at}: {program:?}");
            let open = |sessions: &[(Vec<String>, Vec<String>)]| -> Vec<_> {
                sessions.iter().map(|(_, open)| open.clone()).collect()
            };
            assert_eq!(open(&found), open(&model.sessions), "{name}, seed {seed}: {program:?}");
        }
    }
}

/// Threads pass spans to each other and drop them whenever they like: each is closed once, by its
/// own id.
#[test]
fn spans_that_many_threads_drop_are_closed_once() {
    alone!(in dir);
    let main = plain("main").sub_buffers(8, 4 << 20);
    let builder = Session::builder("many").dir(dir.path()).channel(main).spans(0).listen(false);
    let session = builder.start().expect("a session");
    let recorder = Dispatch::new(lastwords::layer::subscriber());
    let (each, threads) = (5000, 4);
    std::thread::scope(|scope| {
        let (senders, receivers): (Vec<_>, Vec<_>) =
            (0..threads).map(|_| mpsc::channel::<Span>()).unzip();
        for (thread, spans) in receivers.into_iter().enumerate() {
            let next = senders[(thread + 1) % threads].clone();
            let recorder = &recorder;
            scope.spawn(move || {
                tracing::dispatcher::with_default(recorder, || {
                    for n in 0..each {
                        let span = info_span!("a", n);
                        let child = info_span!(parent: &span, "b");
                        // A thread that has ended takes none.
                        let _ = next.send(child.clone());
                        let _ = next.send(span);
                        drop(spans.try_recv());
                    }
                    drop(next);
                    spans.iter().for_each(drop);
                });
            });
        }
        drop(senders);
    });
    let lines = support::lines(session.folder().expect("a folder"));
    let id = |line: &String| -> u64 {
        let mut words = line.split(' ').filter_map(|word| word.strip_prefix("span_id="));
        words.next().and_then(|id| id.parse().ok()).expect("an id")
    };
    let of = |what: &str| -> Vec<u64> {
        lines.iter().filter(|line| line.starts_with(what)).map(id).collect()
    };
    let (opened, closed) = (of("span:new"), of("span:close"));
    assert_eq!((opened.len(), closed.len()), (2 * each * threads, 2 * each * threads));
    let [opened, closed] = [opened, closed].map(|ids| ids.into_iter().collect::<BTreeSet<_>>());
    assert_eq!((opened.len(), &opened), (2 * each * threads, &closed));
}
