//! How long a service asks to wait: in headers, in the state of its limits, in its words.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use regex::Regex;

use super::date;
use super::failure::pattern;

static SOON: LazyLock<Regex> = LazyLock::new(|| {
    pattern(&[
        r"(?:retry|try again|wait|reset) (?:in|after|for) ((?:\d+(?:\.\d+)?\s*[a-z]*[\s,]*(?:and\s+)?)+)",
    ])
});
static PART: LazyLock<Regex> = LazyLock::new(|| pattern(&[r"(\d+(?:\.\d+)?)\s*([a-z]*)"]));

/// The wait that the headers ask for; nothing when it is zero, negative or rubbish.
pub(super) fn wait_in_headers(get: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    let ms = get("retry-after-ms").and_then(|text| seconds(text.trim())).map(|wait| wait / 1000);
    let after = || {
        let text = get("retry-after")?;
        seconds(text.trim()).or_else(|| date::parse(text.trim())?.duration_since(SystemTime::now()).ok())
    };
    ms.or_else(after)
}

/// `in 11.054s`, `in 6m0s`, `in 250ms`, `after 20 seconds`, `in 3 days`; a unit that is none of time makes it no wait.
pub(super) fn wait_in_text(text: &str) -> Option<Duration> {
    let found = SOON.captures(text)?.get(1)?.as_str();
    let amounts = PART.captures_iter(found).map_while(|part| amount(&part[1], &part[2].to_lowercase()));
    let total: f64 = amounts.sum();
    seconds(&total.to_string())
}

/// Seconds.
fn amount(number: &str, unit: &str) -> Option<f64> {
    const DAY: f64 = 86_400.0;
    let factor = match unit {
        "" | "s" | "sec" | "secs" | "second" | "seconds" => 1.0,
        "ms" | "msec" | "millis" | "millisecond" | "milliseconds" => 0.001,
        "m" | "min" | "mins" | "minute" | "minutes" => 60.0,
        "h" | "hr" | "hrs" | "hour" | "hours" => 3_600.0,
        "d" | "day" | "days" => DAY,
        "w" | "week" | "weeks" => 7.0 * DAY,
        "mo" | "month" | "months" => 30.0 * DAY,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

pub(super) fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok().filter(|wait| !wait.is_zero())
}

/// The wait until the limit that is used up begins anew, for services that say nothing else.
pub(super) fn wait_for_limit(get: impl Fn(&str) -> Option<String>) -> Option<Duration> {
    const PAIRS: [(&str, &str); 8] = [
        ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
        ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
        ("x-ratelimit-remaining-tokens-minute", "x-ratelimit-reset-tokens-minute"),
        ("x-ratelimit-remaining", "x-ratelimit-reset"),
        ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
        ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
        ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
        ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
    ];
    let used_up = PAIRS.iter().filter(|(left, _)| get(left).is_some_and(|left| left.trim() == "0"));
    let waits = used_up.filter_map(|(_, reset)| until_reset(get(reset)?.trim()));
    waits.chain(get("ratelimit").as_deref().and_then(of_policy)).max()
}

/// `6ms`, `17.39s`, `1m30s`, bare seconds, a moment as RFC 3339 or as milliseconds since 1970.
fn until_reset(text: &str) -> Option<Duration> {
    /// More seconds than anybody would ask to wait are a moment.
    const MOMENT: f64 = 1e9;
    if let Ok(number) = text.parse::<f64>() {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?;
        let moment = || Duration::try_from_secs_f64(number / 1_000.0).ok()?.checked_sub(since_1970);
        return if number > MOMENT { moment() } else { seconds(text) };
    }
    if let Some(moment) = date::parse_rfc3339(text) {
        return moment.duration_since(SystemTime::now()).ok();
    }
    wait_in_text(&format!("retry in {text}"))
}

/// `"api";r=0;t=295`: nothing left, and so many seconds to go.
fn of_policy(text: &str) -> Option<Duration> {
    let field =
        |name: &str| text.split(';').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='));
    field("r").filter(|left| *left == "0").and(field("t")).and_then(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check_wait(text: &str, ms: Option<u64>) {
        assert_eq!(wait_in_text(text), ms.map(Duration::from_millis), "{text}");
    }

    #[test]
    fn waits_are_found_in_texts() {
        check_wait("Please try again in 11.054s. Visit", Some(11_054));
        check_wait("Please retry in 48.9s.", Some(48_900));
        check_wait("Please try again in 6m0s.", Some(360_000));
        check_wait("Please try again in 7m66.5s", Some(486_500));
        check_wait("Please try again in 250ms.", Some(250));
        check_wait("retry after 20 seconds", Some(20_000));
        check_wait("try again in 2 minutes", Some(120_000));
        check_wait("try again in 1h", Some(3_600_000));
        check_wait("try again in 1 hour and 5 minutes", Some(3_900_000));
        check_wait("try again in 3 days", Some(3 * 86_400_000));
        check_wait("try again in 2 months", Some(60 * 86_400_000));
        check_wait("try again after 20 requests", None);
        check_wait("try again in 20s, 3 requests left", Some(20_000));
        check_wait("try again in a moment", None);
        check_wait("slow down", None);
    }

    #[test]
    fn waits_are_found_in_headers() {
        let wait = |name: &'static str, value: &str| {
            let value = value.to_owned();
            wait_in_headers(move |asked| (asked == name).then(|| value.clone()))
        };
        assert_eq!(wait("retry-after-ms", "20"), Some(Duration::from_millis(20)));
        assert_eq!(wait("retry-after", "1.5"), Some(Duration::from_millis(1500)));
        for rubbish in ["0", "-5", "soon", "", "NaN", "inf", "1e300", "Wed, 21 Oct 2015 07:28:00 GMT"] {
            assert_eq!(wait("retry-after", rubbish), None, "{rubbish}");
        }
        let far = wait("retry-after", "Wed, 21 Oct 2999 07:28:00 GMT");
        assert!(far.is_some_and(|wait| wait > Duration::from_secs(86_400)));
        let info = serde_json::json!([{"error": {"message": "quota", "details": [{"retryDelay": "48s"}]}}]);
        let said = crate::provider::failure::Said::read(&info, Some(429));
        assert_eq!(said.wait, Some(Duration::from_secs(48)));
    }

    #[test]
    fn a_limit_that_is_used_up_tells_when_it_begins_anew() {
        let wait = |headers: &[(&str, &str)]| {
            let get = |name: &str| {
                headers.iter().find(|(own, _)| *own == name).map(|(_, value)| (*value).to_owned())
            };
            wait_for_limit(get)
        };
        let requests =
            |reset| wait(&[("x-ratelimit-remaining-requests", "0"), ("x-ratelimit-reset-requests", reset)]);
        assert_eq!(requests("6ms"), Some(Duration::from_millis(6)));
        assert_eq!(requests("17.39s"), Some(Duration::from_millis(17_390)));
        assert_eq!(requests("1m30s"), Some(Duration::from_secs(90)));
        assert_eq!(requests("7"), Some(Duration::from_secs(7)));
        assert_eq!(requests("soon"), None);
        assert!(requests("2999-01-01T00:00:00Z").is_some_and(|wait| wait > Duration::from_secs(86_400)));
        assert!(requests("32503680000000").is_some_and(|wait| wait > Duration::from_secs(86_400)));
        assert_eq!(requests("2001-01-01T00:00:00Z"), None);
        assert_eq!(
            wait(&[("x-ratelimit-remaining-requests", "5"), ("x-ratelimit-reset-requests", "7")]),
            None
        );
        assert_eq!(wait(&[("ratelimit", "\"api\";r=0;t=295")]), Some(Duration::from_secs(295)));
        assert_eq!(wait(&[("ratelimit", "\"api\";r=9;t=295")]), None);
    }
}
