//! Ids and times as session files write them.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Letters and digits without those that people mix up (i, l, o, u).
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The present time, RFC 3339, UTC, with milliseconds.
pub fn now() -> String {
    rfc3339(SystemTime::now())
}

/// A time as RFC 3339, UTC, with milliseconds. Times before 1970 read as 1970.
pub fn rfc3339(time: SystemTime) -> String {
    let utc = Utc::of(time);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second, utc.millis
    )
}

/// A time as file names have it, such as `20261130T235959Z`.
pub fn file_time(time: SystemTime) -> String {
    let utc = Utc::of(time);
    format!(
        "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
        utc.year, utc.month, utc.day, utc.hour, utc.minute, utc.second
    )
}

/// A new id: twelve letters and digits. They are spread evenly, so that three or four of them mostly name one session.
pub fn id() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    let nanos = since_1970(SystemTime::now()).as_nanos();
    // The keys of `RandomState` come from the system once a thread and differ at each call; time, process and counter
    // keep two processes apart that got the same ones.
    let mut bits = RandomState::new().hash_one((nanos, std::process::id(), count));
    let letter = |_| {
        let letter = ALPHABET[(bits % 32) as usize];
        bits /= 32;
        char::from(letter)
    };
    (0..12).map(letter).collect()
}

fn since_1970(time: SystemTime) -> std::time::Duration {
    time.duration_since(UNIX_EPOCH).unwrap_or_default()
}

struct Utc {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
    millis: u32,
}

impl Utc {
    fn of(time: SystemTime) -> Self {
        let since = since_1970(time);
        let seconds = since.as_secs();
        let (year, month, day) = date(seconds / 86_400);
        Self {
            year,
            month,
            day,
            hour: seconds / 3_600 % 24,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            millis: since.subsec_millis(),
        }
    }
}

/// Year, month and day of a day counted from 1970-01-01.
///
/// Counted in years that begin in March, the leap day is the last of its year and the months before it have a fixed
/// rhythm of 153 days in five months.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_FROM_MARCH_0000: u64 = 719_468;
    let days = days + DAYS_FROM_MARCH_0000;
    let (era, in_era) = (days / 146_097, days % 146_097);
    let year_of_era = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
    let in_year = in_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::time::Duration;

    use super::*;

    #[track_caller]
    fn check(seconds: u64, millis: u64, expected: &str) {
        let time = UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_millis(millis);
        assert_eq!(rfc3339(time), expected);
    }

    #[test]
    fn times_are_the_dates_of_the_calendar() {
        check(0, 0, "1970-01-01T00:00:00.000Z");
        check(951_782_399, 7, "2000-02-28T23:59:59.007Z");
        check(951_782_400, 0, "2000-02-29T00:00:00.000Z");
        check(951_868_800, 0, "2000-03-01T00:00:00.000Z");
        check(1_709_164_800, 0, "2024-02-29T00:00:00.000Z");
        check(1_735_689_599, 999, "2024-12-31T23:59:59.999Z");
        check(1_740_787_200, 0, "2025-03-01T00:00:00.000Z");
        check(1_796_083_199, 120, "2026-11-30T23:59:59.120Z");
        check(4_107_542_400, 0, "2100-03-01T00:00:00.000Z");
    }

    #[test]
    fn a_clock_before_1970_does_not_panic() {
        assert_eq!(rfc3339(UNIX_EPOCH - Duration::from_secs(5)), "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn file_names_have_no_colons() {
        assert_eq!(file_time(UNIX_EPOCH + Duration::from_secs(1_796_083_199)), "20261130T235959Z");
    }

    #[test]
    fn ids_differ() {
        let ids: HashSet<String> = (0..20_000).map(|_| id()).collect();
        assert_eq!(ids.len(), 20_000);
        assert!(ids.iter().all(|id| id.len() == 12 && id.bytes().all(|b| ALPHABET.contains(&b))));
    }
}
