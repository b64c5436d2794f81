//! `list --all-namespaces`: the sessions of all containers.

use super::{data, rank, since, state_text};
use crate::ended::short_time;
use crate::exit::Outcome;
use crate::progress::human_bytes;
use crate::say;
use crate::table::{Table, plain};
use lastwords_control::namespaces::{self, Found, Namespace, Namespaces};
use lastwords_render::missing::count;
use serde_json::{Value, json};

/// Prints the sessions of all mount namespaces.
pub(super) fn run(as_json: bool) -> anyhow::Result<Outcome> {
    let mut found = namespaces::list()?;
    for namespace in &mut found.all {
        namespace.sessions.sort_by_key(|found| rank(&found.summary));
    }
    if as_json {
        say::json(&report(&found), false)?;
    } else {
        say::print(text(&found));
    }
    if found.refused > 0 {
        let count = found.refused;
        let why = match rustix::process::geteuid().is_root() {
            true => "the system refuses it",
            false => "root may look into all",
        };
        say::note(format_args!("processes that were not looked into: {count}; {why}"));
    }
    if found.has_more {
        say::note("there are more namespaces than are looked at");
    }
    Ok(Outcome::Done)
}

fn text(found: &Namespaces) -> String {
    let mut text = String::new();
    let is_shown = |own: &&Namespace| !own.sessions.is_empty() || !own.notes.is_empty();
    for namespace in found.all.iter().filter(is_shown) {
        text.push_str(&format!("{}\n", header(namespace)));
        let mut table = Table::new(["STATE", "SINCE", "SIZE", "USER", "SESSION"]).indent(2);
        for session in &namespace.sessions {
            table.row(row(session));
        }
        if !namespace.sessions.is_empty() {
            text.push_str(&table.render());
        }
        for note in &namespace.notes {
            text.push_str(&format!("  {}\n", plain(note)));
        }
        text.push('\n');
    }
    let (all, sessions) =
        (found.all.len(), found.all.iter().map(|own| own.sessions.len() as u64).sum());
    let (all, sessions) = (count(all as u64, "mount namespace"), count(sessions, "session"));
    format!("{text}{sessions} in {all}; `lastwords why PATH` explains the end of one\n")
}

/// Returns the line about a namespace: its oldest process, and what containers are called by.
fn header(namespace: &Namespace) -> String {
    let Namespace { mount, is_own, pid, program, .. } = namespace;
    if *is_own {
        return format!("this mount namespace, {mount}");
    }
    let mut line = format!("mount namespace {mount}: process {pid} ({})", plain(program));
    if let Some(inside) = namespace.pid_inside.filter(|inside| inside != pid) {
        line.push_str(&format!(", {inside} inside"));
    }
    if let Some(inode) = namespace.pid_namespace {
        line.push_str(&format!("; pid namespace {inode}"));
    }
    if let Some(cgroup) = &namespace.cgroup {
        line.push_str(&format!("; cgroup {}", plain(cgroup)));
    }
    line
}

fn row(found: &Found) -> [String; 5] {
    let summary = &found.summary;
    let folder = plain(&summary.folder.display().to_string());
    let owner = found.owner.to_string();
    match &summary.details {
        Ok(details) => {
            let mut state = state_text(details);
            let outside: Vec<String> = found.pids.values().map(u32::to_string).collect();
            let is_same = found.pids.iter().all(|(inside, outside)| inside == outside);
            if details.ended.is_none() && !is_same {
                state.push_str(&format!(" (outside {})", outside.join(",")));
            }
            [state, short_time(since(details)), human_bytes(details.bytes), owner, folder]
        }
        Err(why) => {
            let folder = format!("{folder}: {}", plain(why));
            ["unreadable".into(), "-".into(), "-".into(), owner, folder]
        }
    }
}

fn report(found: &Namespaces) -> Value {
    let session = |namespace: &Namespace, found: &Found| {
        let mut value = data(&found.summary);
        value["owner"] = json!(found.owner);
        value["pids_outside"] = json!(found.pids);
        value["namespace"] = json!({
            "mount": namespace.mount, "is_own": namespace.is_own, "pid": namespace.pid,
            "pid_inside": namespace.pid_inside, "pid_namespace": namespace.pid_namespace,
            "program": namespace.program, "cgroup": namespace.cgroup,
        });
        value
    };
    let sessions: Vec<Value> = found
        .all
        .iter()
        .flat_map(|namespace| namespace.sessions.iter().map(move |own| session(namespace, own)))
        .collect();
    let notes: Vec<Value> = found
        .all
        .iter()
        .flat_map(|own| own.notes.iter().map(|note| json!({ "mount": own.mount, "note": note })))
        .collect();
    json!({
        "schema": "lastwords.list.v1", "sessions": sessions, "namespaces": found.all.len(),
        "refused_processes": found.refused, "namespace_notes": notes,
    })
}
