//! The lines of `report`: those that match `--grep`, times before the end, and colours on request.

use crate::recovery::killed;
use crate::support::Place;

fn lines(place: &Place, options: &[&str]) -> Vec<String> {
    place.ok(&[&["report", "app", "--utc"], options].concat()).lines().map(str::to_owned).collect()
}

#[test]
fn grep_prints_the_lines_that_grep_prints() {
    let place = killed();
    let all = lines(&place, &[]);
    assert!(all.len() > 100, "{}", all.len());
    let ends =
        |digit: char| all.iter().filter(|line| line.ends_with(digit)).cloned().collect::<Vec<_>>();
    let sevens = ends('7');
    assert!(!sevens.is_empty() && sevens.len() < all.len());
    assert_eq!(lines(&place, &["--grep", "7$"]), sevens);
    assert_eq!(lines(&place, &["-g", "7$", "--last", "3"]), sevens[sevens.len() - 3..]);
    assert_eq!(lines(&place, &["-g", "7$", "-g", "^[0-9:.]+ "]), sevens);
    let none = place.run(&["report", "app", "--grep", "no such text"]);
    none.has_status(1).prints_nothing();
    none.says(&format!("none of {} events matches --grep", all.len()));
    place.run(&["report", "app", "--grep", "("]).has_status(2);
    let coloured = place.ok(&["--color", "always", "report", "app", "--utc", "-g", "7$"]);
    let lines: Vec<&str> = coloured.lines().collect();
    assert_eq!(lines.len(), sevens.len());
    assert!(
        lines.iter().all(|line| line.contains("\u{1b}[") && line.contains("7\u{1b}[0m")),
        "{}",
        lines[0]
    );
}

#[test]
fn relative_times_count_to_the_newest_event() {
    let place = killed();
    let nanoseconds = |time: &str| {
        let (rest, fraction) = time.split_once('.').unwrap();
        let seconds = rest.split(':').fold(0, |sum, part| sum * 60 + part.parse::<i64>().unwrap());
        seconds * 1_000_000_000 + fraction.parse::<i64>().unwrap()
    };
    let times: Vec<i64> = lines(&place, &[])
        .iter()
        .map(|line| nanoseconds(line.split(' ').next().unwrap()))
        .collect();
    let newest = times.iter().max().unwrap();
    let relative = lines(&place, &["--relative"]);
    assert_eq!(relative.len(), times.len());
    for (line, time) in relative.iter().zip(&times) {
        let (sign, magnitude) = match line.split(' ').next().unwrap().split_once('-') {
            Some((_, magnitude)) => (-1, magnitude.to_owned()),
            None => (1, line.split(' ').next().unwrap().to_owned()),
        };
        assert_eq!(sign * nanoseconds(&magnitude), time - newest, "{line}");
    }
}
