//! Which events a recording has.

/// Events to record.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rule {
    /// `SYSTEM:EVENT`, where both may be globs; or one glob, for the name of a system or of an
    /// event; or `all`.
    pub pattern: String,
    /// The kernel's filter expression; empty for none.
    pub filter: String,
    /// The kernel's triggers for each of the events, in the order in which they are set.
    pub triggers: Vec<String>,
    /// The events are not recorded, even if an earlier rule selects them. Their triggers work.
    pub is_left_out: bool,
}
