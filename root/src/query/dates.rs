//! Dates as people write them, each the half-open interval [start, end) that it covers, in microseconds since 1970 UTC.
//!
//! Why intervals: a date-only bound that becomes one instant loses or doubles a day around midnight, and a zone that
//! skips midnight has no such instant at all. Here `2024-03-31` is the time from its first moment in the zone to the
//! first moment of the next day: 23, 24 or 25 hours, or none at all where a zone skipped the day.
//!
//! Read: `2024`, `2024-03`, `2024-03-31`, `2024-03-31T12:30[:15[.123456]]` with `Z`, `+02:00` or the request's zone,
//! `now`, `today`, and both with steps: `now-7d`, `now+1h-30m`, `today-1M` (s, m, h, d, w, M, y; days and longer by
//! the zone's calendar). Years 0000 to 9999, all of them: arithmetic is this file's own where the calendar library's
//! instants end (late on 9999-12-30).

use canopy_common::error::Failure;
use jiff::{
    Span, Timestamp, ZonedDateTime,
    civil::{Date, DateTime, Time},
    fmt::temporal::DateTimeParser,
    tz::{TimeZone, TimeZoneDatabase},
};

use super::target::short;

/// Microseconds of a second.
const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;
/// Most steps after `now`.
const MAX_STEPS: usize = 8;

/// A stretch of time, microseconds; `end` is not part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    /// First microsecond.
    pub start: i64,
    /// First microsecond after it.
    pub end: i64,
}

/// Reads the `tz` parameter: an IANA name, `UTC` or a fixed offset such as `-05:00`. Empty: UTC. The zones are those
/// built in, so that every root reads a date alike whatever its machine has installed.
pub fn time_zone(name: &str) -> Result<TimeZone, Failure> {
    if name.is_empty() || name.eq_ignore_ascii_case("z") {
        return Ok(TimeZone::UTC);
    }
    let bad = || {
        let name = short(name);
        Failure::invalid("tz", format!("{name:?} is no time zone; write Europe/Berlin, UTC or -05:00"))
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "/_-+:".contains(c);
    if name.len() > 64 || !name.chars().all(plain) {
        return Err(bad());
    }
    DateTimeParser::new().parse_time_zone_with(&TimeZoneDatabase::bundled(), name).map_err(|_| bad())
}

/// Reads a date. The error says what would be right.
pub fn interval(text: &str, zone: &TimeZone, now_us: i64) -> Result<Interval, String> {
    let bad = || {
        format!(
            "{:?} is no date; write 2024, 2024-03, 2024-03-31, 2024-03-31T12:30:00Z or now-7d",
            short(text)
        )
    };
    let text = text.trim();
    if text.len() > 64 || !text.is_ascii() {
        return Err(bad());
    }
    let relative = |word: &str| {
        let head = text.get(..word.len())?;
        head.eq_ignore_ascii_case(word).then(|| &text[word.len()..])
    };
    let found = if let Some(steps) = relative("now") {
        stepped(steps, zone, now_us).map(|at| Interval { start: at, end: at + 1 })
    } else if let Some(steps) = relative("today") {
        stepped(steps, zone, now_us).and_then(|at| whole_day(at, zone))
    } else {
        absolute(text, zone)
    };
    found.ok_or_else(bad)
}

/// `2024` to `2024-03-31T12:30:15.5+02:00`.
fn absolute(text: &str, zone: &TimeZone) -> Option<Interval> {
    let (date, clock) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let mut parts = date.split('-');
    let year = digits(parts.next()?, 4, 9999)?;
    let month = parts.next().map(|part| digits(part, 2, 12)).map_or(Some(None), |m| m.map(Some))?;
    let day = parts.next().map(|part| digits(part, 2, 31)).map_or(Some(None), |d| d.map(Some))?;
    if parts.next().is_some() {
        return None;
    }
    let first = Date::new(year as i16, month.unwrap_or(1) as i8, day.unwrap_or(1) as i8).ok()?;
    match (clock, month, day) {
        (Some(clock), _, Some(_)) => moment(first, clock, zone),
        (None, None, _) => {
            Some(Interval { start: midnight(year, 1, 1, zone)?, end: midnight(year + 1, 1, 1, zone)? })
        }
        (None, Some(month), None) => {
            let (next_year, next) = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
            Some(Interval {
                start: midnight(year, month, 1, zone)?,
                end: midnight(next_year, next, 1, zone)?,
            })
        }
        (None, Some(_), Some(_)) => day_of(first, zone),
        (Some(_), _, None) => None,
    }
}

fn day_of(date: Date, zone: &TimeZone) -> Option<Interval> {
    let start = midnight(date.year().into(), date.month().into(), date.day().into(), zone)?;
    let end = match date.tomorrow() {
        Ok(next) => midnight(next.year().into(), next.month().into(), next.day().into(), zone)?,
        Err(_) => midnight(10_000, 1, 1, zone)?,
    };
    Some(Interval { start, end })
}

/// A date with a clock time: as long as its last written place (a minute, a second, a fraction).
fn moment(date: Date, clock: &str, zone: &TimeZone) -> Option<Interval> {
    let (clock, offset) = split_offset(clock)?;
    let (clock, fraction) = clock.split_once('.').map_or((clock, None), |(clock, part)| (clock, Some(part)));
    let mut parts = clock.split(':');
    let hour = digits(parts.next()?, 2, 24)?;
    let minute = digits(parts.next()?, 2, 59)?;
    let second = parts.next().map(|part| digits(part, 2, 60)).map_or(Some(None), |s| s.map(Some))?;
    if parts.next().is_some() || (fraction.is_some() && second.is_none()) {
        return None;
    }
    let (sub, length) = match (fraction, second) {
        (Some(fraction), _) => micros(fraction)?,
        (None, Some(_)) => (0, SECOND),
        (None, None) => (0, 60 * SECOND),
    };
    let second = second.unwrap_or(0);
    if hour == 24 && (minute, second, sub) != (0, 0, 0) {
        return None;
    }
    let whole = days(date.year().into(), date.month().into(), date.day().into()) * DAY;
    let of_day = (hour * 3600 + minute * 60) * SECOND;
    let tail = second * SECOND + sub; // a leap second is the first of the next minute
    let start = match offset {
        Some(offset) => whole + of_day - offset + tail,
        None if hour == 24 => day_of(date, zone)?.end,
        None => local(date.to_datetime(Time::new(hour as i8, minute as i8, 0, 0).ok()?), zone) + tail,
    };
    Some(Interval { start, end: start + length })
}

/// Splits `Z` or `±hh:mm` off; the offset in microseconds, `None` when there is none.
fn split_offset(clock: &str) -> Option<(&str, Option<i64>)> {
    if let Some(rest) = clock.strip_suffix(['Z', 'z']) {
        return Some((rest, Some(0)));
    }
    let Some(at) = clock.find(['+', '-']) else { return Some((clock, None)) };
    let (clock, offset) = clock.split_at(at);
    let (hours, minutes) = match offset[1..].split_once(':') {
        Some(pair) => pair,
        None if offset.len() == 5 => offset[1..].split_at(2),
        None => (&offset[1..], "00"),
    };
    let length = (digits(hours, 2, 23)? * 3600 + digits(minutes, 2, 59)? * 60) * SECOND;
    Some((clock, Some(if offset.starts_with('-') { -length } else { length })))
}

/// A fraction of a second: its microseconds and the length of its last place, at least one microsecond.
fn micros(fraction: &str) -> Option<(i64, i64)> {
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = &fraction[..fraction.len().min(6)];
    let length = 10_i64.pow(6 - kept.len() as u32);
    Some((kept.parse::<i64>().ok()? * length, length))
}

/// Exactly `width` digits, at most `most`.
fn digits(text: &str, width: usize, most: i64) -> Option<i64> {
    let plain = text.len() == width && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|value| plain && *value <= most)
}

/// First moment of a day in a zone. The year may be 10,000 (the end of 9999).
fn midnight(year: i64, month: i64, day: i64, zone: &TimeZone) -> Option<i64> {
    match Date::new(year.try_into().ok()?, month as i8, day as i8) {
        Ok(date) => Some(local(date.to_datetime(Time::midnight()), zone)),
        Err(_) if year == 10_000 => Some(days(year, month, day) * DAY - last_offset(zone)),
        Err(_) => None,
    }
}

/// A local time in a zone; inside a gap the moment after it, of two the earlier.
fn local(at: DateTime, zone: &TimeZone) -> i64 {
    if let Ok(zoned) = at.to_zoned_datetime(zone.clone()) {
        return zoned.timestamp().as_microsecond();
    }
    let whole = days(at.year().into(), at.month().into(), at.day().into()) * DAY;
    let clock = (i64::from(at.hour()) * 3600 + i64::from(at.minute()) * 60 + i64::from(at.second())) * SECOND;
    whole + clock - last_offset(zone)
}

/// Offset of a zone where instants of the calendar library end, microseconds.
fn last_offset(zone: &TimeZone) -> i64 {
    i64::from(zone.to_offset(Timestamp::MAX).seconds()) * SECOND
}

/// Days since 1970-01-01 of a Gregorian date. The year is counted from March, so that the leap day is its last.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let century_cycle = year.div_euclid(400);
    let year_of_cycle = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_cycle = year_of_cycle * 365 + year_of_cycle / 4 - year_of_cycle / 100 + day_of_year;
    century_cycle * 146_097 + day_of_cycle - 719_468
}

/// The clock after steps such as `-7d+1h`.
fn stepped(mut steps: &str, zone: &TimeZone, now_us: i64) -> Option<i64> {
    let now = Timestamp::from_microsecond(now_us).ok()?;
    let mut at: ZonedDateTime = now.to_zoned_datetime(zone.clone());
    for _ in 0..MAX_STEPS {
        let Some(sign) = steps.chars().next() else { return Some(at.timestamp().as_microsecond()) };
        let end = steps.find(|c: char| c.is_ascii_alphabetic())?;
        let amount: i64 = steps.get(1..end)?.parse().ok().filter(|n: &i64| (0..=1_000_000).contains(n))?;
        let amount = match sign {
            '+' => amount,
            '-' => -amount,
            _ => return None,
        };
        let span = match steps.as_bytes().get(end)? {
            b's' => Span::new().try_seconds(amount),
            b'm' => Span::new().try_minutes(amount),
            b'h' => Span::new().try_hours(amount),
            b'd' => Span::new().try_days(amount),
            b'w' => Span::new().try_weeks(amount),
            b'M' => Span::new().try_months(amount),
            b'y' => Span::new().try_years(amount),
            _ => return None,
        };
        at = at.checked_add(span.ok()?).ok()?;
        steps = &steps[end + 1..];
    }
    steps.is_empty().then(|| at.timestamp().as_microsecond())
}

fn whole_day(at: i64, zone: &TimeZone) -> Option<Interval> {
    let at = Timestamp::from_microsecond(at).ok()?.to_zoned_datetime(zone.clone());
    day_of(at.date(), zone)
}

#[cfg(test)]
mod tests;
