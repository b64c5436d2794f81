//! The same session, given more than once: a folder and its copy, a core and the same core compressed.

use super::Input;
use crate::say;
use crate::table::plain;
use lastwords_trace::source::Source;
use std::collections::HashMap;

/// Leaves out what another copy of the same session has, too, so that no event stands twice. Copies of which each has
/// something of its own are all kept. Either is said.
pub(super) fn settle(inputs: Vec<Input>) -> Vec<Input> {
    let mut kept: Vec<Input> = Vec::new();
    for input in inputs {
        let Some(other) = kept.iter_mut().find(|other| is_same(other, &input)) else {
            kept.push(input);
            continue;
        };
        let name = plain(&input.session.info().name);
        if covers(&held(other), &held(&input)) {
            tell(&name, &input, other);
        } else if covers(&held(&input), &held(other)) {
            tell(&name, other, &input);
            *other = input;
        } else {
            say::note(format_args!(
                "session {name} is in {} and in {}, and each has what the other has not: events of both stand twice",
                other.from.display(),
                input.from.display()
            ));
            kept.push(input);
        }
    }
    kept
}

fn tell(name: &str, out: &Input, kept: &Input) {
    let (out, kept) = (out.from.display(), kept.from.display());
    say::note(format_args!("session {name} is in {out} and in {kept}, which has all of it: that one is read"));
}

/// Both have the UUID of one session.
fn is_same(one: &Input, other: &Input) -> bool {
    let [one, other] = [one, other].map(|input| input.session.info().uuid);
    one == other && one != [0; 16]
}

/// What is held of each sub-buffer: by the stream's instance and the sub-buffer's number, its bytes.
type Held = HashMap<(u64, u64), u64>;

fn held(input: &Input) -> Held {
    let source: &dyn Source = &*input.session;
    let instance = |stream: usize| source.streams().get(stream).map(|stream| stream.instance);
    let rows = source.evidence().sub_buffers.iter().filter(|row| row.content > 0);
    rows.filter_map(|row| Some(((instance(row.stream)?, row.sequence), row.content))).collect()
}

/// Each sub-buffer of `other` is in `one`, at least as far.
fn covers(one: &Held, other: &Held) -> bool {
    other.iter().all(|(key, content)| one.get(key).is_some_and(|own| own >= content))
}
