//! Names of the frames of backtraces from files with debug information: in folders (`--symbols`)
//! and from servers of debuginfod, for a stripped program that a SIGSEGV has killed.

use crate::child::{Running, TASK, task, wait_for};
use crate::dying::lock;
use crate::support::{Place, Ran, ran, tool};
use crate::view::head;
use crate::why::fault;
use lastwords::{Session, event};
use lastwords_testkit::text::Text as _;
use serde_json::Value;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A function that only debug information or a symbol table names.
const FUNCTION: &str = "symbols::deep_in_the_service";
/// A place in the source that only debug information names.
const SOURCE: &str = "tests/cli/symbols.rs:";

/// The program that dies.
#[test]
fn child() {
    let Some(ready) = task() else { return };
    let _session = Session::builder("svc").start().expect("a session");
    lastwords::crash::install_panic_hook();
    lastwords::crash::install_default_signal_handlers().expect("handlers");
    event!(svc, "began");
    // A panic that is survived has its backtrace, too.
    let _ = std::panic::catch_unwind(|| panic!("it was caught"));
    event!(svc, "went on");
    fs::write(ready, "ready").expect("the ready file");
    deep_in_the_service();
}

#[inline(never)]
fn deep_in_the_service() {
    fault();
    std::hint::black_box(());
}

/// A session of a stripped program that has died, and where its debug information is.
struct Dead {
    place: Place,
    debug: PathBuf,
    id: String,
}

impl Dead {
    fn new() -> Self {
        // A core helper that another test installs would see this program.
        let _alone = lock();
        let place = Place::new();
        let own = std::env::current_exe().expect("this program's file");
        let text = |path: &Path| path.to_str().expect("text").to_owned();
        let (svc, debug) = (place.at("svc"), place.at("kept.debug"));
        tool("objcopy", &["--only-keep-debug", &text(&own), &text(&debug)]);
        tool("objcopy", &["--strip-all", &text(&own), &text(&svc)]);
        let ready = place.at("ready");
        let mut command = Command::new(&svc);
        command.args(["--exact", "symbols::child", "--nocapture"]).current_dir(place.path());
        command.env("LASTWORDS_DIR", place.sessions()).env(TASK, &ready);
        let mut child = Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
        wait_for(&ready);
        child.wait();
        let report = place.json(&["inspect", "svc", "--json", "--no-symbols"]);
        let crashes = report["sessions"][0]["crashes"].as_array().expect("a list").clone();
        let mut frames = crashes.iter().flat_map(|crash| crash["backtrace"].as_array().unwrap());
        let is_own = |frame: &&Value| frame["module"] == text(&svc).as_str();
        let frame = frames.find(is_own).expect("a frame of it");
        let id = frame["build_id"].as_str().expect("a build ID").to_owned();
        Self { place, debug, id }
    }

    /// Runs `lastwords` with variables.
    fn run(&self, args: &[&str], variables: &[(&str, &str)]) -> Ran {
        let mut command = self.place.command();
        command.env("DEBUGINFOD_CACHE_PATH", self.place.at("cache"));
        command.args(args).envs(variables.iter().copied());
        ran(command.output().expect("it runs"))
    }

    /// A folder in which a file has a name.
    fn folder(&self, name: &str, file: &str, from: &Path) -> String {
        let path = self.place.at(name).join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(from, path).unwrap();
        name.to_owned()
    }

    /// Returns the output of `report`, `why` and the page, with the notes of each.
    fn said(&self, args: &[&str], variables: &[(&str, &str)]) -> [String; 3] {
        let run = |verb: &[&str]| {
            let ran = self.run(&[verb, args].concat(), variables);
            ran.has_status(0);
            ran
        };
        let (report, why) = (run(&["report", "svc"]), run(&["why", "svc"]));
        let page = run(&["view", "svc", "-o", "page.html"]);
        let html = fs::read_to_string(self.place.at("page.html")).unwrap();
        fs::remove_file(self.place.at("page.html")).unwrap();
        let died = ["deaths", "survived"].map(|of| head(&html)[of].to_string()).concat();
        [report.err, why.out + &why.err, died + &page.err]
    }
}

/// The answer of a server that is asked for the debug information of [`Dead`].
#[derive(Clone)]
enum Answer {
    File(PathBuf),
    NotFound,
    Nothing,
    /// The beginning of a file.
    Part,
}

/// A server of debuginfod.
struct Server {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn start(answer: Answer) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            let mut kept = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.expect("a connection");
                let Some(path) = path_of(&mut stream) else { continue };
                log.lock().unwrap().push(path);
                match &answer {
                    Answer::File(file) => {
                        let bytes = fs::read(file).expect("the file");
                        let head = format!(
                            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                            bytes.len()
                        );
                        // The reader may refuse it.
                        let _ = stream.write_all(head.as_bytes());
                        let _ = stream.write_all(&bytes);
                    }
                    Answer::NotFound => {
                        let head = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                        stream.write_all(head.as_bytes()).expect("sent");
                    }
                    Answer::Nothing => kept.push(stream),
                    Answer::Part => {
                        let head = "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nELF";
                        stream.write_all(head.as_bytes()).expect("sent");
                        kept.push(stream);
                    }
                }
            }
        });
        Self { url, asked }
    }

    /// Returns the requests since the last call, for one build.
    fn asked(&self, id: &str) -> Vec<String> {
        let mut asked = self.asked.lock().unwrap();
        asked.drain(..).filter(|path| path.contains(id)).collect()
    }
}

/// Reads the head of a request. Returns its path.
fn path_of(stream: &mut TcpStream) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    Some(head.strip_prefix("GET ")?.split(' ').next()?.to_owned())
}

#[test]
fn folders_with_debug_information_name_frames() {
    let dead = Dead::new();
    for text in dead.said(&[], &[]) {
        text.lacks(FUNCTION).has("svc+0x");
    }
    let (first, rest) = dead.id.split_at(2);
    let folders = [
        dead.folder("by-id", &format!(".build-id/{first}/{rest}.debug"), &dead.debug),
        dead.folder("by-name", "svc", &dead.debug),
        dead.folder("by-debug-name", "svc.debug", &dead.debug),
        dead.folder("of-server", &format!("buildid/{}/debuginfo", dead.id), &dead.debug),
        dead.folder("of-cache", &format!("{}/debuginfo", dead.id), &dead.debug),
    ];
    for (at, folder) in folders.iter().enumerate() {
        let args = ["--symbols", folder.as_str()];
        // All outputs for the first one; one output shows that the others are found.
        let texts = match at {
            0 => dead.said(&args, &[]).to_vec(),
            _ => vec![dead.run(&[&["why", "svc"][..], &args].concat(), &[]).out],
        };
        for text in texts {
            assert!(text.contains(FUNCTION) && text.contains(SOURCE), "{folder}: {text}");
            assert!(!text.contains("is not used"), "{folder}: {text}");
        }
    }
    // The panic that was survived has names, too.
    let report = dead.run(&["report", "svc", "--symbols", "by-id"], &[]).err;
    let (survived, fatal) = report.split_once("backtrace of crash:signal").expect(&report);
    assert!(survived.contains("symbols::child") && fatal.contains(FUNCTION), "{report}");
    // A file of another build is refused, and that is said.
    let other = dead.folder("other", "svc", Path::new("/bin/true"));
    for text in dead.said(&["--symbols", &other], &[]) {
        text.lacks(FUNCTION);
    }
    let err = dead.run(&["why", "svc", "--symbols", &other], &[]).err;
    err.has("other/svc is not used: the file is another now");
    err.has(&dead.id);
    dead.run(&["why", "svc", "--symbols", "nowhere"], &[])
        .has_status(1)
        .says("--symbols: nowhere: no such folder");
}

#[test]
fn a_server_names_frames() {
    let dead = Dead::new();
    let server = Server::start(Answer::File(dead.debug.clone()));
    let none = Server::start(Answer::NotFound);
    let urls = format!("{} {}/", none.url, server.url);
    let variables = [("DEBUGINFOD_URLS", urls.as_str())];
    for text in dead.said(&[], &variables) {
        text.has(FUNCTION).has(SOURCE);
    }
    // It was asked once; the next runs found it in the cache, where elfutils has it.
    let path = format!("/buildid/{}/debuginfo", dead.id);
    assert_eq!(server.asked(&dead.id), [path.as_str()]);
    assert_eq!(none.asked(&dead.id), [path.as_str()]);
    let cached = dead.place.at("cache").join(&dead.id).join("debuginfo");
    assert_eq!(fs::read(&cached).unwrap(), fs::read(&dead.debug).unwrap());
    // Nothing else is left there.
    assert_eq!(fs::read_dir(cached.parent().unwrap()).unwrap().count(), 1);
    // Without the program's file, the server is asked for the program as well.
    fs::remove_file(dead.place.at("svc")).unwrap();
    fs::remove_dir_all(dead.place.at("cache")).unwrap();
    let none = [("DEBUGINFOD_URLS", none.url.as_str())];
    dead.run(&["why", "svc"], &none).says("no symbols of ").does_not_print(FUNCTION);
    let variables = [("DEBUGINFOD_URLS", server.url.as_str())];
    dead.run(&["why", "svc"], &variables).out.has(FUNCTION);
    assert_eq!(server.asked(&dead.id), [path]);
}

#[test]
fn a_server_is_not_trusted() {
    let dead = Dead::new();
    let run = |server: &Server, more: &[(&str, &str)]| {
        let variables = [&[("DEBUGINFOD_URLS", server.url.as_str())][..], more].concat();
        let begun = Instant::now();
        let ran = dead.run(&["why", "svc"], &variables);
        ran.has_status(0).does_not_print(FUNCTION);
        ran.prints("SIGSEGV in thread ");
        assert!(begun.elapsed() < Duration::from_secs(30), "it waits");
        assert!(!dead.place.at("cache").join(&dead.id).exists(), "something is left in the cache");
        ran.err
    };
    // Nobody has it: each file is asked for once in a run, for two crashes.
    let none = Server::start(Answer::NotFound);
    run(&none, &[]);
    assert_eq!(none.asked(&dead.id), [format!("/buildid/{}/debuginfo", dead.id)]);
    // A file of another build.
    let other = Server::start(Answer::File("/bin/true".into()));
    run(&other, &[]).has(&other.url).has("the file is another now");
    // One that is no such file, or too large.
    let text = Server::start(Answer::File("/proc/self/status".into()));
    run(&text, &[]).has(&text.url);
    let large = Server::start(Answer::File(dead.debug.clone()));
    run(&large, &[("DEBUGINFOD_MAXSIZE", "1000")]).has("larger than 1000 bytes");
    // Servers that do not answer, or stop in the middle, are not asked again in a run.
    for answer in [Answer::Nothing, Answer::Part] {
        let silent = Server::start(answer);
        run(&silent, &[("DEBUGINFOD_TIMEOUT", "1")]).has(&silent.url);
        assert_eq!(silent.asked("/buildid/").len(), 1);
    }
    // Nobody listens there.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let gone = Server { url: format!("http://{gone}"), asked: Arc::default() };
    run(&gone, &[]).has(&gone.url);
}
