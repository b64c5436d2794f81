//! Times that count from the first event of a trace.

use lastwords_trace::text::put_seconds;

/// Appends the time before a reading of the clock, in nanoseconds if that is what the clock counts:
/// ` -0.003200000`. Otherwise it appends the number of readings. The text is at least `width`
/// characters long.
pub(crate) fn time_before(out: &mut Vec<u8>, time: u64, before: i64, in_ns: bool, width: usize) {
    let since = i128::from(time).saturating_sub(before.into());
    let mut text = Vec::new();
    match i64::try_from(since) {
        Ok(since) if in_ns => put_seconds(since, &mut text),
        _ => text.extend_from_slice(since.to_string().as_bytes()),
    }
    out.extend(std::iter::repeat_n(b' ', width.saturating_sub(text.len())));
    out.extend_from_slice(&text);
}
