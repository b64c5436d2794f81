//! Gets debug information from debuginfod servers: by the build ID of a program, by HTTP.
//!
//! The variables of the environment and the cache are those of elfutils (`debuginfod-find(1)`), so
//! that other tools find what this program has fetched. Without `DEBUGINFOD_URLS`, no server is
//! asked. What a server sends is checked before it enters the cache: a file of another build is
//! refused.

use crate::progress::Progress;
use crate::table::plain;
use anyhow::{Context, bail, ensure};
use lastwords_open::{DebugFile, check_build_id};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tempfile::{NamedTempFile, TempDir};
use ureq::tls::{RootCerts, TlsConfig};

/// The servers, separated by spaces.
const URLS: &str = "DEBUGINFOD_URLS";
/// The seconds in which a server must answer, and go on with sending.
const TIMEOUT: &str = "DEBUGINFOD_TIMEOUT";
const DEFAULT_TIMEOUT: u64 = 90;
/// The seconds that a whole file may take. Without it, there is no limit.
const MAX_TIME: &str = "DEBUGINFOD_MAXTIME";
/// The bytes that a file may have.
const MAX_SIZE: &str = "DEBUGINFOD_MAXSIZE";
const DEFAULT_MAX_SIZE: u64 = 2 << 30;
/// The folder of the cache.
const CACHE: &str = "DEBUGINFOD_CACHE_PATH";
/// Most builds that a run asks for: they come from the recording.
const MOST_BUILDS: usize = 100;
/// The longest build ID, in digits.
const LONGEST_ID: usize = 128;
/// The part of a file that is read at once, bytes.
const CHUNK: usize = 64 << 10;

/// Gets files of builds. Nothing is asked twice in a run.
pub(crate) struct Client {
    urls: Vec<String>,
    cache: PathBuf,
    /// The folder of the cache, if it is removed when the program ends.
    _own: Option<TempDir>,
    timeout: Duration,
    max_time: Option<Duration>,
    max_size: u64,
    /// The files that were asked for, with the answers.
    answers: BTreeMap<(String, DebugFile), Result<Option<PathBuf>, String>>,
    /// Positions of the servers that cannot be reached, or do not answer in time.
    silent: BTreeSet<usize>,
}

/// A message of the thread of a download.
enum Step {
    /// The server has no such file.
    NotFound,
    /// The server sends a file of this size, if it says so.
    Begun(Option<u64>),
    /// So many bytes more have arrived.
    Arrived(u64),
    /// All has arrived.
    Done(NamedTempFile),
    /// The reason why it was given up.
    Failed(anyhow::Error),
}

impl Client {
    /// Makes a client as the environment says; none if it names no server.
    pub(crate) fn from_environment() -> Option<Self> {
        let urls = env::var(URLS).ok()?;
        let urls: Vec<String> = urls.split_whitespace().map(str::to_owned).collect();
        let number = |name: &str| env::var(name).ok()?.trim().parse::<u64>().ok();
        let positive = |name: &str| number(name).filter(|number| *number > 0);
        // Nobody else can have made a file in a folder of our own.
        let own = cache().is_none().then(tempfile::tempdir).transpose().ok()?;
        let cache = cache().or_else(|| Some(own.as_ref()?.path().to_owned()))?;
        (!urls.is_empty()).then(|| Self {
            urls,
            cache,
            _own: own,
            timeout: Duration::from_secs(positive(TIMEOUT).unwrap_or(DEFAULT_TIMEOUT)),
            max_time: positive(MAX_TIME).map(Duration::from_secs),
            max_size: positive(MAX_SIZE).unwrap_or(DEFAULT_MAX_SIZE),
            answers: BTreeMap::new(),
            silent: BTreeSet::new(),
        })
    }

    /// Returns a file of a build, from the cache or a server; none if no server has it.
    ///
    /// # Errors
    /// A server cannot be asked, or what it sends is refused, and no other server has the file.
    pub(crate) fn get(&mut self, id: &str, file: DebugFile) -> Result<Option<PathBuf>, String> {
        let key = (id.to_owned(), file);
        if let Some(answer) = self.answers.get(&key) {
            return answer.clone();
        }
        let answer = self.find(id, file);
        self.answers.insert(key, answer.clone());
        answer
    }

    fn find(&mut self, id: &str, file: DebugFile) -> Result<Option<PathBuf>, String> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if id.is_empty() || id.len() > LONGEST_ID || !id.bytes().all(is_digit) {
            return Err("the build ID is none that a server can be asked for".to_owned());
        }
        let cached = self.cache.join(id).join(file.word());
        if check_build_id(&cached, id).is_ok() {
            return Ok(Some(cached));
        }
        if self.answers.len() >= MOST_BUILDS {
            return Err(format!("no server is asked for more than {MOST_BUILDS} files"));
        }
        let mut reasons = Vec::new();
        for at in 0..self.urls.len() {
            if self.silent.contains(&at) {
                continue;
            }
            match self.ask(at, id, file) {
                Ok(None) => {}
                Ok(Some(arrived)) => match self.keep(&arrived, id, file) {
                    Ok(path) => return Ok(Some(path)),
                    Err(why) => reasons.push(format!("{}: {why:#}", plain(&self.urls[at]))),
                },
                Err(why) => reasons.push(format!("{}: {why:#}", plain(&self.urls[at]))),
            }
        }
        // A folder with files of other tools stays.
        let _ = std::fs::remove_dir(self.cache.join(id));
        if reasons.is_empty() { Ok(None) } else { Err(reasons.join("; ")) }
    }

    /// Asks a server for a file. A server that does not answer in time is not asked again.
    fn ask(
        &mut self,
        at: usize,
        id: &str,
        file: DebugFile,
    ) -> anyhow::Result<Option<NamedTempFile>> {
        let base = self.urls[at].trim_end_matches('/');
        let url = format!("{base}/buildid/{id}/{}", file.word());
        let folder = self.cache.join(id);
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let to = NamedTempFile::new_in(&folder).with_context(|| folder.display().to_string())?;
        let temporary = to.path().to_owned();
        let (timeout, max_size) = (self.timeout, self.max_size);
        let (tell, told) = sync_channel(16);
        // The thread may wait for a server that does not answer: nobody waits for the thread.
        std::thread::spawn(move || {
            let last = match download(&url, timeout, max_size, to, &tell) {
                Ok(Some(file)) => Step::Done(file),
                Ok(None) => Step::NotFound,
                Err(why) => Step::Failed(why),
            };
            // Nobody listens any more if it took too long.
            let _ = tell.send(last);
        });
        let what = format!("{} of {}", file.word(), id.get(..8).unwrap_or(id));
        let answer = self.listen(&told, &what);
        if answer.is_err() {
            self.silent.insert(at);
            // The thread may never come to remove it.
            let _ = std::fs::remove_file(temporary);
        }
        answer?
    }

    /// Waits for a download, and shows its progress. The outer error is that of a server that does
    /// not answer in time.
    fn listen(
        &self,
        told: &Receiver<Step>,
        what: &str,
    ) -> anyhow::Result<anyhow::Result<Option<NamedTempFile>>> {
        let begun = Instant::now();
        let (mut progress, mut done) = (None, 0);
        loop {
            let left = self.max_time.map(|most| most.saturating_sub(begun.elapsed()));
            let wait = left.map_or(self.timeout, |left| left.min(self.timeout));
            match told.recv_timeout(wait) {
                Ok(Step::NotFound) => return Ok(Ok(None)),
                Ok(Step::Done(file)) => return Ok(Ok(Some(file))),
                Ok(Step::Begun(size)) => progress = Some(Progress::new(what, size.unwrap_or(0))),
                Ok(Step::Arrived(bytes)) => {
                    done += bytes;
                    progress.iter_mut().for_each(|progress: &mut Progress| progress.set(done));
                }
                Ok(Step::Failed(why)) if is_silence(&why) => return Err(why),
                Ok(Step::Failed(why)) => return Ok(Err(why)),
                Err(RecvTimeoutError::Timeout) if left.is_some_and(|left| left.is_zero()) => {
                    bail!("it took longer than {MAX_TIME}");
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("no answer for {} s ({TIMEOUT})", self.timeout.as_secs());
                }
                Err(RecvTimeoutError::Disconnected) => bail!("the download ended without a result"),
            }
        }
    }

    /// Puts a file that has arrived into the cache, if it is of the build that was asked for.
    fn keep(&self, arrived: &NamedTempFile, id: &str, file: DebugFile) -> anyhow::Result<PathBuf> {
        check_build_id(arrived.path(), id).map_err(anyhow::Error::msg)?;
        let path = self.cache.join(id).join(file.word());
        std::fs::rename(arrived.path(), &path).with_context(|| path.display().to_string())?;
        Ok(path)
    }
}

/// Returns the folder of the cache, as elfutils chooses it; none if the user has no home.
fn cache() -> Option<PathBuf> {
    let named = |name: &str| env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from);
    let home = || named("HOME").map(|home| home.join(".cache"));
    let base = || named("XDG_CACHE_HOME").or_else(home);
    named(CACHE).or_else(|| Some(base()?.join("debuginfod_client")))
}

/// Returns true if the server could not be reached: it would not answer the next question either.
fn is_silence(why: &anyhow::Error) -> bool {
    use ureq::Error;
    matches!(
        why.downcast_ref::<Error>(),
        Some(Error::Timeout(_) | Error::HostNotFound | Error::ConnectionFailed | Error::Io(_))
    )
}

/// Downloads a file; none if the server does not have it.
fn download(
    url: &str,
    timeout: Duration,
    max_size: u64,
    mut to: NamedTempFile,
    tell: &SyncSender<Step>,
) -> anyhow::Result<Option<NamedTempFile>> {
    // Fails only if a provider is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let config = ureq::Agent::config_builder()
        .tls_config(tls)
        .timeout_connect(Some(timeout))
        .timeout_recv_response(Some(timeout))
        .http_status_as_error(false)
        .user_agent(concat!("lastwords/", env!("CARGO_PKG_VERSION")))
        .build();
    let mut response = ureq::Agent::new_with_config(config).get(url).call()?;
    match response.status().as_u16() {
        200 => {}
        404 => return Ok(None),
        status => bail!("HTTP status {status}"),
    }
    let size = response.body().content_length();
    ensure!(size.is_none_or(|size| size <= max_size), "larger than {max_size} bytes ({MAX_SIZE})");
    tell.send(Step::Begun(size))?;
    let mut body = response.body_mut().as_reader();
    let (mut chunk, mut arrived) = (vec![0; CHUNK], 0);
    loop {
        let count = body.read(&mut chunk)?;
        if count == 0 {
            break;
        }
        arrived += count as u64;
        ensure!(arrived <= max_size, "larger than {max_size} bytes ({MAX_SIZE})");
        to.write_all(&chunk[..count])?;
        tell.send(Step::Arrived(count as u64))?;
    }
    to.flush()?;
    Ok(Some(to))
}
