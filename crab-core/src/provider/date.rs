//! Dates as headers spell them.

use std::time::{Duration, SystemTime};

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// `Sun, 06 Nov 1994 08:49:37 GMT`, the one form that services send.
pub(super) fn parse(text: &str) -> Option<SystemTime> {
    let words: Vec<_> = text.split([' ', '-']).filter(|word| !word.is_empty()).collect();
    let [_, day, month, year, time, "GMT" | "UTC" | "+0000"] = words[..] else { return None };
    let month = MONTHS.iter().position(|name| name.eq_ignore_ascii_case(month))? as u64 + 1;
    moment((year.parse().ok()?, month, day.parse().ok()?), time)
}

/// `2026-08-01T12:00:00Z`, a fraction of a second left out.
pub(super) fn parse_rfc3339(text: &str) -> Option<SystemTime> {
    let text = text.strip_suffix('Z').or_else(|| text.strip_suffix("+00:00"))?;
    let (date, time) = text.split_once('T')?;
    let date: Vec<u64> = date.split('-').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [year, month @ 1..=12, day] = date[..] else { return None };
    moment((year, month, day), time.split('.').next()?)
}

fn moment((year, month, day): (u64, u64, u64), time: &str) -> Option<SystemTime> {
    if !(1..=31).contains(&day) || !(1970..=9999).contains(&year) {
        return None;
    }
    let clock: Vec<u64> = time.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [hour @ 0..24, minute @ 0..60, second @ 0..=60] = clock[..] else { return None };
    let seconds = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

/// Days since 1970. Years begin in March here, so that the leap day is the last of its year.
fn days(year: u64, month: u64, day: u64) -> u64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    year * 365 + leap_days + (153 * month + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, seconds: Option<u64>) {
        let time = seconds.map(|seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(parse(text), time, "{text}");
    }

    #[test]
    fn dates_are_read_and_rubbish_is_not() {
        check("Thu, 01 Jan 1970 00:00:00 GMT", Some(0));
        check("Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777));
        check("Thu, 29 Feb 2024 12:00:00 GMT", Some(1_709_208_000));
        check("Sun, 06 Nov 1994 25:49:37 GMT", None);
        check("soon", None);
        let seconds =
            |text: &str| Some(parse_rfc3339(text)?.duration_since(SystemTime::UNIX_EPOCH).ok()?.as_secs());
        assert_eq!(seconds("1994-11-06T08:49:37Z"), Some(784_111_777));
        assert_eq!(seconds("1994-11-06T08:49:37.5+00:00"), Some(784_111_777));
        assert_eq!(seconds("1994-13-06T08:49:37Z"), None);
        check("", None);
    }
}
