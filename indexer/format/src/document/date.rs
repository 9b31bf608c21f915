//! Instants of documents as microseconds since 1970 UTC, exact for the years 0001 to 9999. Nanoseconds in 64 bits reach
//! from 1677 to 2262 only, and what lies outside wraps around in silence; microseconds hold every year a text can name
//! with four digits.
//!
//! Accepted: RFC 3339 (`2024-02-29T12:30:00.5+01:00`, a space instead of `T`, no zone reads as UTC), a date alone
//! (midnight UTC), and whole numbers, which are **seconds** since 1970. Milliseconds given by mistake lie beyond the year
//! 9999 (for all days since 1978) and are reported. Digits beyond microseconds are cut off.

use jiff::{
    SignedDuration,
    civil::{Date, DateTime, date},
};

const MICROS: i64 = 1_000_000;
/// Civil dates reach to the last day of 9999; the library's own instants end a day earlier.
const EPOCH: Date = date(1970, 1, 1);
/// 0001-01-01T00:00:00Z and 10000-01-01T00:00:00Z, seconds.
const FIRST: i64 = -62_135_596_800;
const BEHIND: i64 = 253_402_300_800;

/// Why a value is no instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wrong {
    /// Not a date at all, or one that no calendar has.
    NotADate,
    /// A date, but not of the years 0001 to 9999.
    OutOfRange,
}

/// Reads a text.
pub(super) fn parse(text: &str) -> Result<i64, Wrong> {
    let text = text.trim();
    let (date, time) = match text.find(['T', 't', ' ']) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let (sign, digits) = match date.as_bytes().first() {
        Some(b'-') => (-1, &date[1..]),
        Some(b'+') => (1, &date[1..]),
        _ => (1, date),
    };
    let mut parts = digits.split('-');
    let (year, month, day) = (parts.next(), parts.next(), parts.next());
    let (Some(year), Some(month), Some(day), None) = (year, month, day, parts.next()) else {
        return Err(Wrong::NotADate);
    };
    if !(4..=9).contains(&year.len()) {
        return Err(Wrong::NotADate);
    }
    let (year, month, day) = (sign * number(year, year.len())?, number(month, 2)?, number(day, 2)?);
    let (seconds, micros) = time.map_or(Ok((0, 0)), time_of_day)?;
    instant(midnight(year, month, day)? + seconds, micros)
}

/// Seconds since 1970 of the beginning of a day.
fn midnight(year: i64, month: i64, day: i64) -> Result<i64, Wrong> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return Err(Wrong::NotADate);
    }
    // A zone may lead from the last day of year 0 into the year 1.
    let year = i16::try_from(year).ok().filter(|year| (0..=9999).contains(year)).ok_or(Wrong::OutOfRange)?;
    let day = Date::new(year, month as i8, day as i8).map_err(|_| Wrong::NotADate)?;
    Ok(day.duration_since(EPOCH).as_secs())
}

/// Reads whole seconds since 1970.
pub(super) fn from_seconds(seconds: i64) -> Result<i64, Wrong> {
    instant(seconds, 0)
}

fn instant(seconds: i64, micros: i64) -> Result<i64, Wrong> {
    if (FIRST..BEHIND).contains(&seconds) { Ok(seconds * MICROS + micros) } else { Err(Wrong::OutOfRange) }
}

/// RFC 3339 text of an instant, with as many digits of the second as it has.
pub fn format(micros: i64) -> String {
    let instant = DateTime::from(EPOCH).checked_add(SignedDuration::from_micros(micros));
    instant.map_or_else(|_| micros.to_string(), |instant| format!("{instant}Z"))
}

fn number(text: &str, digits: usize) -> Result<i64, Wrong> {
    if text.len() != digits || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Wrong::NotADate);
    }
    text.parse().map_err(|_| Wrong::NotADate)
}

/// Seconds from midnight UTC (negative or above a day where the zone shifts it) and microseconds.
fn time_of_day(text: &str) -> Result<(i64, i64), Wrong> {
    let text = text.trim();
    let zone_at = text.find(['Z', 'z', '+', '-']).unwrap_or(text.len());
    let (clock, zone) = (text.get(..zone_at).unwrap_or_default(), text.get(zone_at..).unwrap_or_default());
    let (clock, fraction) =
        clock.trim_end().split_once('.').map_or((clock.trim_end(), None), |(a, b)| (a, Some(b)));
    let mut parts = clock.split(':');
    let mut next = |optional: bool| match parts.next() {
        Some(part) => number(part, 2),
        None if optional => Ok(0),
        None => Err(Wrong::NotADate),
    };
    let (hour, minute, second) = (next(false)?, next(false)?, next(fraction.is_none())?);
    // A leap second is the last second of its minute.
    if hour > 23 || minute > 59 || second > 60 || parts.next().is_some() {
        return Err(Wrong::NotADate);
    }
    let micros = match fraction {
        None => 0,
        Some(digits) if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            return Err(Wrong::NotADate);
        }
        Some(digits) => {
            digits.bytes().chain(std::iter::repeat(b'0')).take(6).fold(0, |n, d| n * 10 + i64::from(d - b'0'))
        }
    };
    Ok((hour * 3600 + minute * 60 + second.min(59) - offset(zone)?, micros))
}

/// Seconds that a zone is ahead of UTC: `Z`, `+01:00`, `+0100`, `+01`, or nothing.
fn offset(zone: &str) -> Result<i64, Wrong> {
    let sign = match zone.as_bytes().first() {
        None => return Ok(0),
        Some(b'Z' | b'z') if zone.len() == 1 => return Ok(0),
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => return Err(Wrong::NotADate),
    };
    let digits: String = zone[1..].chars().filter(|&c| c != ':').collect();
    let (hours, minutes) = match digits.len() {
        2 => (number(&digits, 2)?, 0),
        4 if digits.is_ascii() => (number(&digits[..2], 2)?, number(&digits[2..], 2)?),
        _ => return Err(Wrong::NotADate),
    };
    if hours > 23 || minutes > 59 {
        return Err(Wrong::NotADate);
    }
    Ok(sign * (hours * 3600 + minutes * 60))
}
