//! Changes of a session's rules, while its processes record by them.

use std::sync::atomic::Ordering::Acquire;

use lastwords_abi::session::Control;

use crate::session::Error;
use crate::session::rules::{Line, RuleSpec, write};
use crate::session::session_region::{SessionRegion, locked};

/// Appends a rule, removes those that it shadows, and notifies all processes of the session.
pub(crate) fn add(view: &SessionRegion, rule: &RuleSpec) -> Result<(), Error> {
    change(view, |rules| rule.clone().add_to(rules))
}

/// Replaces the rules in one step by those that `edit` makes of them, and notifies all processes of
/// the session.
pub(crate) fn change(
    view: &SessionRegion,
    edit: impl FnOnce(&mut Vec<RuleSpec>),
) -> Result<(), Error> {
    let tables = view.rules();
    let Control { rules, namespaces, .. } = view.control();
    let changed = locked(&rules.lock, namespaces, || {
        // The holder of the lock is the only writer.
        let old = tables.current(rules.turn.load(Acquire)).lines();
        let mut specs: Vec<RuleSpec> = old.iter().map(|line| line.spec.clone()).collect();
        edit(&mut specs);
        // A filter of a later version is kept as its words, because this version cannot compile it.
        let line = |spec: &RuleSpec| match old.iter().find(|line| line.spec == *spec) {
            Some(line) => Ok(line.clone()),
            None if spec.pattern.is_empty() => {
                let remedy = "use 1 to 112 bytes without NUL";
                Err(Error::unsupported("pattern", "it has 0 bytes", remedy))
            }
            None => Line::new(spec),
        };
        write(tables, &specs.iter().map(line).collect::<Result<Vec<_>, _>>()?)
    });
    changed.map_err(|owner| Error::Busy { what: "the list of rules", owner })??;
    view.announce();
    Ok(())
}

/// Replaces all rules of a channel that is not in use yet by its first ones, without notifying
/// processes. `before` come before all other rules, so that these decide; `behind` come behind
/// them.
pub(crate) fn begin_channel(
    view: &SessionRegion,
    channel: u32,
    before: &[RuleSpec],
    behind: &[RuleSpec],
) -> Result<(), Error> {
    let own = |rules: &[RuleSpec]| rules.iter().map(Line::new).collect::<Result<Vec<_>, _>>();
    let (before, behind) = (own(before)?, own(behind)?);
    let tables = view.rules();
    let written = locked(&tables.rules.lock, &view.control().namespaces, || {
        let mut others = tables.current(tables.rules.turn.load(Acquire)).lines();
        others.retain(|old| old.spec.channel != Some(channel));
        write(tables, &[before, others, behind].concat())
    });
    written.map_err(|owner| Error::Busy { what: "the list of rules", owner })?
}
