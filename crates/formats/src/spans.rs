//! The events of sessions that report changes of spans.

/// The change of a span that an event reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The span was opened.
    New,
    /// A thread entered the span.
    Enter,
    /// A thread left the span.
    Exit,
    /// The span was closed.
    Close,
}

impl Step {
    /// Returns the step and the name of the span, if the event with this name is of a span.
    #[must_use]
    pub fn of(event: &str) -> Option<(Self, &str)> {
        let (step, name) = event.strip_prefix("span:")?.split_once(' ')?;
        let step = match step {
            "new" => Self::New,
            "enter" => Self::Enter,
            "exit" => Self::Exit,
            "close" => Self::Close,
            _ => return None,
        };
        Some((step, name))
    }
}
