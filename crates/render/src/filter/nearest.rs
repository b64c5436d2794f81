//! Finds the names that someone may have meant.

use std::collections::BTreeSet;

/// Most names that are proposed.
const MOST: usize = 3;
/// Most characters of a name that are compared.
const LONGEST: usize = 64;

/// Returns the known names that are nearest to `wanted`, the nearest first: those that differ in
/// few characters, or in case, or that begin or end like it.
pub(super) fn names(wanted: &str, known: &BTreeSet<String>) -> Vec<String> {
    let limit = wanted.chars().count().div_ceil(4).min(2);
    let lower = wanted.to_lowercase();
    let mut near: Vec<(usize, &String)> = Vec::new();
    for name in known {
        let other = name.to_lowercase();
        let is_part = lower.len() > 2
            && (other.contains(&lower) || (other.len() > 2 && lower.contains(&other)));
        let steps = if other == lower { 0 } else { distance(&lower, &other) };
        if steps <= limit || is_part {
            near.push((if is_part { steps.min(limit) } else { steps }, name));
        }
    }
    near.sort();
    near.into_iter().take(MOST).map(|(_, name)| name.clone()).collect()
}

/// Returns the number of characters to insert, remove, replace or swap with a neighbour to get from
/// one text to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) =
        (a.chars().take(LONGEST).collect(), b.chars().take(LONGEST).collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, of_a) in a.iter().enumerate() {
        let mut next = vec![i.saturating_add(1)];
        for (j, of_b) in b.iter().enumerate() {
            let at = |row: &[usize], at: usize| row.get(at).copied().unwrap_or(usize::MAX);
            let replaced = at(&row, j).saturating_add(usize::from(of_a != of_b));
            let removed = at(&row, j.saturating_add(1)).min(at(&next, j)).saturating_add(1);
            let is_swapped = i > 0
                && j > 0
                && a.get(i.wrapping_sub(1)) == Some(of_b)
                && b.get(j.wrapping_sub(1)) == Some(of_a);
            let swapped = if is_swapped {
                at(&before, j.wrapping_sub(1)).saturating_add(1)
            } else {
                usize::MAX
            };
            next.push(replaced.min(removed).min(swapped));
        }
        before = std::mem::replace(&mut row, next);
    }
    row.last().copied().unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors() {
        let known =
            ["prev_comm", "next_comm", "prev_pid", "flags", "cpu"].map(str::to_owned).into();
        assert_eq!(names("prev_com", &known), ["prev_comm"]);
        assert_eq!(names("perv_comm", &known), ["prev_comm"]);
        assert_eq!(names("PREV_PID", &known), ["prev_pid"]);
        assert_eq!(names("comm", &known), ["next_comm", "prev_comm"]);
        assert_eq!(names("upc", &known), ["cpu"; 0]);
        assert_eq!(names("cup", &known), ["cpu"]);
        assert_eq!(names("xyzzy", &known), ["cpu"; 0]);
        assert_eq!(
            [
                distance("", "ab"),
                distance("ab", ""),
                distance("kitten", "sitting"),
                distance("ab", "ba")
            ],
            [2, 2, 3, 1]
        );
    }
}
