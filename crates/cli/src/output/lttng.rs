//! Writes sessions of LTTng that were recovered: a CTF folder for each.

use super::{Done, Format, Job, Line};
use crate::progress::Shared;
use crate::traces::Traces;
use lastwords_lttng::Session;
use lastwords_open::{FileNames, Losses, LttngFolder};
use lastwords_render::Totals;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The names of the folders of sessions. Traces of one session share a folder if their folders
/// below it differ.
struct SessionFolders<'a> {
    names: &'a mut FileNames,
    by_session: BTreeMap<String, (String, BTreeSet<String>)>,
}

impl SessionFolders<'_> {
    /// Returns the folder of a trace, relative to the output.
    fn name(&mut self, session: &Session) -> String {
        let below = format!("{}/{}", session.domain.word(), session.folder);
        let existing = self.by_session.get_mut(&session.name);
        let shared = existing
            .and_then(|(name, folders)| folders.insert(below.clone()).then(|| name.clone()));
        let name = shared.unwrap_or_else(|| {
            let name = self.names.unique(&session.name);
            self.by_session
                .insert(session.name.clone(), (name.clone(), BTreeSet::from([below.clone()])));
            name
        });
        format!("{name}/{below}")
    }
}

/// Writes sessions, a CTF folder each, into `folder`. The metadata have the version that was asked
/// for, or else that of the tracer.
pub(super) fn write(
    job: &Job<'_>,
    sessions: &Traces,
    folder: &Path,
    names: &mut FileNames,
    done: &mut Done,
) -> anyhow::Result<()> {
    let mut folders = SessionFolders { names, by_session: BTreeMap::new() };
    let version = job.to.and_then(Format::ctf_version);
    for trace in &sessions.all {
        let Some(lttng) = trace.lttng() else { continue };
        let session = &lttng.session;
        let mut account = trace.account();
        let bar = Shared::new(&session.name, session.bytes());
        let written =
            lttng.write_folder(folder, &folders.name(session), version, &|bytes| bar.add(bytes))?;
        drop(bar);
        let LttngFolder { path, totals, version_error } = written;
        if let Some(error) = version_error {
            account
                .evidence
                .to_mut()
                .notes
                .push(format!("the metadata stay in the version of the tracer: {error}"));
        }
        let accounts = [account];
        job.account(&Traces::new(vec![trace.clone()]), &accounts, done);
        let Totals { streams, packets, bytes, .. } = totals;
        let line = Line {
            path,
            session: session.name.clone(),
            from: trace.origin.path.clone(),
            events: lttng.events,
            streams,
            packets,
            bytes,
            losses: Losses::from_accounts(&accounts),
            ..Line::default()
        };
        job.add_line(line, done);
    }
    Ok(())
}
