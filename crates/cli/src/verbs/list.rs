//! Implements `lastwords list`: prints the sessions of this user, live and left over.

mod namespaces;

use crate::control::{self, state_word};
use crate::ended::{self, short_time, time};
use crate::exit::Outcome;
use crate::input::Input;
use crate::progress::human_bytes;
use crate::table::{Table, plain};
use crate::traces::Traces;
use anyhow::Context;
use lastwords::Ending;
use lastwords::Triggered;
use lastwords::rules::RuleSpec;
use lastwords_control::namespaces::look;
use lastwords_control::{self, ChannelSummary, Details, Handle, ProcessSummary, Summary};
use lastwords_control::{Evidence, Life};
use lastwords_live::unknown_end;
use lastwords_open::inspect::session::observed;
use lastwords_open::{EndedReport, Holds, chain, duration};
use lastwords_trace::source::Source as _;
use serde::Serialize;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::path::Path;

/// The arguments of `list`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
STATE is live, or how the session ended. SINCE is when the session began to be in this state: when a live one began, when another one \
ended or was last seen alive.")]
pub(crate) struct Args {
    /// A session whose channels, rules and events are printed
    ///
    /// If several sessions have the name, it is the newest one.
    #[arg(value_name = "SESSION", conflicts_with = "named")]
    session: Option<String>,

    /// The session's name or folder, as without --session
    #[arg(short = 's', long = "session", value_name = "SESSION")]
    named: Option<String>,

    /// The sessions of all containers: of every mount namespace
    ///
    /// The roots of all processes of /proc are searched, as far as this user may look into them:
    /// root sees all. In each, sessions are looked for in /dev/shm, in /run/user, and where the
    /// environment of its processes says (`LASTWORDS_DIR`, `XDG_RUNTIME_DIR`). `report`, `why`,
    /// `inspect` and `view` read a session by the path that is printed.
    #[arg(long, conflicts_with_all = ["session", "named"])]
    all_namespaces: bool,

    /// Print data instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    sessions: Vec<Value>,
}

/// Lists the sessions.
pub(crate) fn run(args: &Args) -> anyhow::Result<Outcome> {
    if args.all_namespaces {
        return namespaces::run(args.json);
    }
    let wanted = args.session.as_ref().or(args.named.as_ref());
    let summaries = match wanted {
        Some(word) => {
            let folder = control::newest_folder(word)?;
            let shown = || folder.display().to_string();
            if lastwords_folders::inside::split(&folder).is_some() {
                vec![look(&folder).with_context(shown)?.summary]
            } else {
                vec![Handle::open(&folder).with_context(shown)?.summary()]
            }
        }
        None => {
            if let Some(place) = lastwords_control::dirs::taken_by_another() {
                let place = plain(&place.display().to_string());
                crate::say::note(format_args!(
                    "{place} belongs to another user; sessions of this user are elsewhere"
                ));
            }
            newest_first(lastwords_control::list(None)?)
        }
    };
    if args.json {
        let report =
            Report { schema: "lastwords.list.v1", sessions: summaries.iter().map(data).collect() };
        crate::say::json(&report, false)?;
    } else if wanted.is_some() {
        crate::say::print(summaries.iter().map(details_text).collect::<String>());
    } else {
        crate::say::print(table(&summaries));
    }
    Ok(Outcome::Done)
}

/// Returns a table of sessions.
pub(crate) fn table(summaries: &[Summary]) -> String {
    if summaries.is_empty() {
        let bases: Vec<String> = lastwords_control::dirs::candidates()
            .iter()
            .map(|b| plain(&b.display().to_string()))
            .collect();
        return format!("no sessions in {}\n", bases.join(", "));
    }
    let mut table = Table::new(["STATE", "SINCE", "SIZE", "SESSION"]);
    let mut folders: Vec<String> = Vec::new();
    for summary in summaries {
        let parent = summary
            .folder
            .parent()
            .map(|parent| plain(&parent.display().to_string()))
            .unwrap_or_default();
        folders.extend((!folders.contains(&parent)).then_some(parent));
        let own = summary.folder.file_name().map(|name| name.to_string_lossy().into_owned());
        let own = own.unwrap_or_else(|| summary.name.clone());
        match &summary.details {
            Ok(d) => table.row([state_text(d), short_time(since(d)), human_bytes(d.bytes), own]),
            Err(why) => {
                table.row(["unreadable".into(), "-".into(), "-".into(), format!("{own}: {why}")])
            }
        }
    }
    let notes = summaries.iter().flat_map(|summary| {
        let own = summary
            .folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        summary.notes.iter().map(move |note| format!("{}: {}\n", plain(&own), plain(note)))
    });
    let notes: String = notes.collect();
    format!(
        "{}\n{notes}in {}; `lastwords list SESSION` tells more of one\n",
        table.render(),
        folders.join(", ")
    )
}

/// Sorts sessions: live ones, ended ones, unreadable ones. Live and ended sessions are sorted from
/// the newest to the oldest.
pub(crate) fn newest_first(mut summaries: Vec<Summary>) -> Vec<Summary> {
    summaries.sort_by_key(rank);
    summaries
}

/// Returns the key by which sessions are sorted: live ones first, then the newest.
fn rank(summary: &Summary) -> Reverse<Option<(bool, u64)>> {
    let details = summary.details.as_ref();
    Reverse(details.map(|details| (details.ended.is_none(), since(details))).ok())
}

/// Returns when a session ended, or when it was created if it is live. The time is CLOCK_REALTIME
/// in ns.
fn since(details: &Details) -> u64 {
    details.ended.map_or(details.created, |ended| ended.at)
}

/// Returns how the session ended, or which processes record in it.
fn state_text(details: &Details) -> String {
    if details.unseen_end.is_some() {
        return "end unknown".to_owned();
    }
    let Some(ended) = &details.ended else {
        let stopped = if details.recording { "" } else { ", stopped" };
        let pids = pids(details);
        return format!("{} {pids}{stopped}", state_word(details.state));
    };
    let panics = match details.panics {
        0 => String::new(),
        _ if ended.how == Ending::Panic => String::new(),
        1 => ", 1 panic".into(),
        panics => format!(", {panics} panics"),
    };
    format!("{}{panics}", ended::how(ended))
}

fn pids(details: &Details) -> String {
    let pids: Vec<String> =
        details.processes.iter().map(|process| process.pid.to_string()).collect();
    if pids.is_empty() { "-".into() } else { pids.join(",") }
}

fn details_text(summary: &Summary) -> String {
    let d = match &summary.details {
        Ok(details) => details,
        Err(why) => return format!("{}: {}\n", plain(&summary.name), plain(why)),
    };
    let mut text = format!(
        "{} ({}), {}\n",
        plain(&summary.name),
        state_text(d),
        plain(&summary.folder.display().to_string())
    );
    text.push_str(&format!(
        "made {} by process {} ({}); {} reservation, {} back-end, snapshots {}\n",
        time(d.created),
        d.creator,
        plain(&d.program),
        d.reservation,
        d.backend,
        d.snapshot.word()
    ));
    if let Some(ended) = &d.ended {
        text.push_str(&(ended::line(ended) + "\n"));
    }
    if let Some(why) = unknown_end(d) {
        text.push_str(&format!("end unknown: {}\n", plain(&why)));
    }
    let Triggered { fired, limited, waiting, saved, failed, replaced } = d.triggered;
    if fired > 0 || replaced > 0 {
        text.push_str(&format!(
            "triggers fired: {fired}, {limited} above the limit, {waiting} waiting; snapshots saved: {saved}; could not be saved: {failed}\n"
        ));
        if replaced > 0 {
            text.push_str(&format!(
                "latencies: {replaced} starts were replaced before their end came, because too many waited\n"
            ));
        }
    }
    if d.panics > 0 {
        text.push_str(&format!("panics seen: {}\n", d.panics));
    }
    if d.removed > 0 {
        text.push_str(&format!("retention removed {} ended sessions when it began\n", d.removed));
    }
    summary.notes.iter().for_each(|note| text.push_str(&format!("{}\n", plain(note))));
    let opened = open(&summary.folder);
    let trace = opened
        .as_ref()
        .ok()
        .and_then(|traces| traces.all.iter().find(|trace| trace.session().is_some()));
    let observed = trace.map(observed).unwrap_or_default();
    let holds = |channel: u32| {
        Some(duration(
            Holds::of_channel(trace?.session()?.session.info(), channel, &observed)?.seconds,
        ))
    };
    let columns =
        ["CHANNEL", "MODE", "SUB-BUFFERS", "BYTES EACH", "STREAMS", "KINDS", "RECORDS", "HOLDS"];
    let mut channels = Table::new(columns).indent(2);
    for c in &d.channels {
        let mode = if c.overwrites { "overwrite" } else { "discard" };
        let numbers = [c.sub_buffers.into(), c.sub_buffer_size, c.streams.into(), c.events.into()];
        let yes = if c.recording { "yes" } else { "no" };
        let numbers = numbers.map(|n: u64| n.to_string());
        let holds = holds(c.id).unwrap_or_else(|| "-".into());
        channels.row(
            [c.name.clone(), mode.into()].into_iter().chain(numbers).chain([yes.into(), holds]),
        );
    }
    text.push_str(&channels.render());
    for rule in &d.rules {
        text.push_str(&format!("  rule: {}\n", rule_text(rule, &d.channels)));
    }
    text.push_str(&events(&opened));
    text
}

fn rule_text(rule: &RuleSpec, channels: &[ChannelSummary]) -> String {
    let verb = if rule.enable { "enable" } else { "disable" };
    let name = |id| {
        channels
            .iter()
            .find(|c| c.id == id)
            .map_or_else(|| format!("channel {id}"), |c| c.name.clone())
    };
    let channel = rule.channel.map_or_else(String::new, |id| format!(" in {}", name(id)));
    let level =
        rule.level.map_or_else(String::new, |level| format!(" up to {}", level_word(level as u8)));
    let filter =
        rule.filter.as_deref().map_or_else(String::new, |filter| format!(" if {}", plain(filter)));
    format!("{verb} {}{channel}{level}{filter}", plain(&rule.pattern))
}

fn level_word(level: u8) -> String {
    ["error", "warn", "info", "debug", "trace"]
        .get(usize::from(level).wrapping_sub(1))
        .map_or_else(|| level.to_string(), ToString::to_string)
}

/// Opens the session of a folder, as readers do.
fn open(folder: &Path) -> anyhow::Result<Traces> {
    Input::of_session(&folder.to_string_lossy(), false).find(Ok)
}

/// Returns the events that the registry describes, one per line, or the reason why they cannot be
/// read.
fn events(opened: &anyhow::Result<Traces>) -> String {
    let traces = match opened {
        Ok(traces) => traces,
        Err(why) => return format!("  events: {}\n", chain(why)),
    };
    let mut text = String::new();
    for found in traces.sessions() {
        for channel in &found.session.schema().channels {
            for event in &channel.events {
                let location = if event.location.is_empty() {
                    String::new()
                } else {
                    format!("  {}", plain(&event.location))
                };
                let level = level_word(event.level);
                text.push_str(&format!(
                    "  {}: {} ({level}){location}\n",
                    plain(&channel.name),
                    plain(&event.name)
                ));
            }
        }
    }
    text
}

fn data(summary: &Summary) -> Value {
    let d = match &summary.details {
        Ok(d) => d,
        Err(why) => {
            return json!({ "name": summary.name, "folder": summary.folder, "unreadable": why });
        }
    };
    let life = |life: &Life| match life {
        Life::Alive => "alive",
        Life::Dead => "dead",
        Life::Unknown => "unknown",
    };
    let evidence = |evidence: &Evidence| match evidence {
        Evidence::Boot => "boot",
        Evidence::Guard => "guard",
        Evidence::Lock => "lock",
        Evidence::Proc => "proc",
        Evidence::None => "none",
    };
    let process = |p: &ProcessSummary| json!({ "pid": p.pid, "life": life(&p.life), "known_by": evidence(&p.evidence) });
    let processes: Vec<Value> = d.processes.iter().map(process).collect();
    let channel = |c: &ChannelSummary| {
        json!({
            "id": c.id, "name": c.name, "recording": c.recording, "mode": if c.overwrites { "overwrite" } else { "discard" },
            "sub_buffers": c.sub_buffers, "sub_buffer_size": c.sub_buffer_size, "streams": c.streams, "events": c.events,
        })
    };
    let t = &d.triggered;
    let rule = |r: &RuleSpec| json!({ "enable": r.enable, "channel": r.channel, "level": r.level.map(|level| level as u8), "pattern": r.pattern, "filter": r.filter });
    json!({
        "name": summary.name,
        "folder": summary.folder,
        "uuid": d.uuid.iter().map(|b| format!("{b:02x}")).collect::<String>(),
        "state": state_word(d.state),
        "recording": d.recording,
        "creator": d.creator,
        "program": d.program,
        "uid": d.uid,
        "created_ns": d.created.to_string(),
        "scope": if d.is_users { "user" } else { "process" },
        "back_end": d.backend,
        "reservation": d.reservation,
        "snapshot": d.snapshot.word(),
        "bytes": d.bytes,
        "ended": d.ended.map(EndedReport),
        "unknown_end": unknown_end(d),
        "panics": d.panics,
        "triggers": { "fired": t.fired, "limited": t.limited, "waiting": t.waiting, "saved": t.saved, "failed": t.failed, "replaced": t.replaced },
        "retention_removed": d.removed,
        "notes": summary.notes,
        "processes": processes,
        "channels": d.channels.iter().map(channel).collect::<Vec<_>>(),
        "rules": d.rules.iter().map(rule).collect::<Vec<_>>(),
    })
}
