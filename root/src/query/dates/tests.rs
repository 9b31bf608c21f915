//! Days as long as their zone makes them, years to both ends, and steps from the clock.

use super::*;

const HOUR: i64 = 3600 * SECOND;

fn zone(name: &str) -> TimeZone {
    time_zone(name).unwrap()
}

fn read(text: &str, tz: &str) -> Interval {
    interval(text, &zone(tz), 0).unwrap_or_else(|e| panic!("{text} in {tz}: {e}"))
}

fn at(text: &str) -> i64 {
    read(text, "UTC").start
}

#[test]
fn a_day_is_as_long_as_its_zone_makes_it() {
    let table = [
        ("2013-03-07", "UTC", "2013-03-07T00:00:00Z", 24),
        ("2013-03-07", "-05:00", "2013-03-07T05:00:00Z", 24),
        ("2024-03-31", "Europe/Berlin", "2024-03-30T23:00:00Z", 23),
        ("2024-10-27", "Europe/Berlin", "2024-10-26T22:00:00Z", 25),
        // clocks went from 00:00 to 01:00: the day begins at one
        ("2022-03-22", "Asia/Tehran", "2022-03-21T20:30:00Z", 23),
        ("2022-09-21", "Asia/Tehran", "2022-09-20T19:30:00Z", 25),
        ("2026-03-22", "Asia/Tehran", "2026-03-21T20:30:00Z", 24),
        ("2018-11-04", "America/Sao_Paulo", "2018-11-04T03:00:00Z", 23),
        ("2011-12-29", "Pacific/Apia", "2011-12-29T10:00:00Z", 24),
        ("2011-12-31", "Pacific/Apia", "2011-12-30T10:00:00Z", 24),
        ("2013-03-07", "Pacific/Apia", "2013-03-06T10:00:00Z", 24),
    ];
    for (text, tz, start, hours) in table {
        let day = read(text, tz);
        assert_eq!((day.start, (day.end - day.start) / HOUR), (at(start), hours), "{text} in {tz}");
    }
}

#[test]
fn a_day_that_a_zone_skipped_is_empty_and_its_neighbours_touch() {
    let [before, skipped, after] =
        ["2011-12-29", "2011-12-30", "2011-12-31"].map(|day| read(day, "Pacific/Apia"));
    assert_eq!(skipped.start, skipped.end);
    assert_eq!((before.end, skipped.end), (after.start, after.start));
}

#[test]
fn days_tile_months_and_months_tile_years_in_every_zone() {
    for tz in
        ["UTC", "-05:00", "+14:00", "Asia/Tehran", "Pacific/Apia", "America/New_York", "Australia/Lord_Howe"]
    {
        for year in [1883, 1969, 2011, 2024, 2026, 9999] {
            let mut expected = read(&format!("{year:04}"), tz).start;
            for month in 1..=12 {
                let whole = read(&format!("{year:04}-{month:02}"), tz);
                assert_eq!(whole.start, expected, "{year}-{month} {tz}");
                for day in 1..=31 {
                    let text = format!("{year:04}-{month:02}-{day:02}");
                    let Ok(found) = interval(&text, &zone(tz), 0) else { continue };
                    assert_eq!(found.start, expected, "{text} {tz}");
                    assert!(found.end >= found.start && found.end - found.start <= 25 * HOUR, "{text} {tz}");
                    expected = found.end;
                }
                assert_eq!(whole.end, expected, "{year}-{month} {tz}");
            }
            assert_eq!(read(&format!("{year:04}"), tz).end, expected, "{year} {tz}");
        }
    }
}

#[test]
fn dates_of_any_year_are_exact() {
    let table = [
        ("0000-01-01", -62_167_219_200),
        ("0001-01-01", -62_135_596_800),
        ("1677-09-20", -9_223_459_200),
        ("1900-01-01", -2_208_988_800),
        ("1969-12-31", -86_400),
        ("2038-01-19T03:14:08Z", 2_147_483_648),
        ("2262-04-12", 9_223_372_800),
        ("9999-12-31", 253_402_214_400),
        ("9999-12-31T23:59:59Z", 253_402_300_799),
    ];
    for (text, seconds) in table {
        assert_eq!(read(text, "UTC").start, seconds * SECOND, "{text}");
    }
    assert_eq!(read("9999", "UTC").end, 253_402_300_800 * SECOND);
    assert_eq!(read("9999-12-31", "-05:00").end, (253_402_300_800 + 5 * 3600) * SECOND);
}

#[test]
fn a_moment_lasts_as_long_as_its_last_written_place() {
    let table = [
        ("2024-05-06T07:08", 60 * SECOND),
        ("2024-05-06T07:08:09", SECOND),
        ("2024-05-06t07:08:09.5z", SECOND / 10),
        ("2024-05-06T07:08:09.123456+02:00", 1),
        ("2024-05-06T07:08:09.123456789Z", 1),
        ("2024-05-06 07:08:09-0530", SECOND),
    ];
    for (text, length) in table {
        let found = read(text, "UTC");
        assert_eq!(found.end - found.start, length, "{text}");
    }
    assert_eq!(at("2024-05-06T07:08:09+02:00"), at("2024-05-06T05:08:09Z"));
    assert_eq!(read("2024-05-06T07:08:09", "-05:00").start, at("2024-05-06T12:08:09Z"));
    // inside a gap: the moment after it
    assert_eq!(read("2024-03-31T02:30:00", "Europe/Berlin").start, at("2024-03-31T01:30:00Z"));
    assert_eq!(at("2024-05-06T24:00:00Z"), at("2024-05-07"));
    assert_eq!(at("2016-12-31T23:59:60Z"), at("2017-01-01"));
}

#[test]
fn steps_from_the_clock_go_by_the_calendar_of_the_zone() {
    let now = at("2024-03-31T12:00:00Z");
    let step = |text: &str, tz: &str| interval(text, &zone(tz), now).unwrap();
    assert_eq!(step("now", "UTC"), Interval { start: now, end: now + 1 });
    assert_eq!(step("now-7d", "UTC").start, at("2024-03-24T12:00:00Z"));
    assert_eq!(step("now-1d", "Europe/Berlin").start, at("2024-03-30T13:00:00Z"));
    assert_eq!(step("NOW-24h", "Europe/Berlin").start, at("2024-03-30T12:00:00Z"));
    assert_eq!(step("now-1M", "UTC").start, at("2024-02-29T12:00:00Z"));
    assert_eq!(step("now-1y+2w-3h+4m-5s", "UTC").start, at("2023-04-14T09:03:55Z"));
    let today = step("today", "Europe/Berlin");
    assert_eq!((today.start, today.end), (at("2024-03-30T23:00:00Z"), at("2024-03-31T22:00:00Z")));
    assert_eq!(step("today-1d", "UTC").start, at("2024-03-30"));
}

#[test]
fn nonsense_is_refused_with_an_example() {
    let long = "9".repeat(10_000);
    let table = [
        "",
        "yesterday",
        "2024-13",
        "2024-02-30",
        "24-01-01",
        "2024-1-1",
        "2024-01-01T",
        "2024-01-01T25:00",
        "2024-01-01T10",
        "2024-01-01T10:00:00.",
        "2024-01-01T10:00.5",
        "2024-01T10:00",
        "now-",
        "now-7",
        "now-7x",
        "now7d",
        "now-99999999999d",
        "now-1000000y",
        "now-1d-1d-1d-1d-1d-1d-1d-1d-1d",
        "-2024",
        "+2024-01-01",
        "2024-01-01-01",
        "２０２４",
        "2024-01-01T10:00+",
        "2024-01-01T10:00+9:00",
        "2024-01-01T24:01",
        "today!",
        "nowé",
        long.as_str(),
    ];
    for text in table {
        let reason = interval(text, &TimeZone::UTC, 0).expect_err(text);
        assert!(reason.contains("2024-03-31") && reason.len() < 300, "{reason}");
    }
    assert!(interval("now", &TimeZone::UTC, i64::MAX).is_err());
}

#[test]
fn zones_come_from_the_built_in_list() {
    for good in ["", "UTC", "utc", "Z", "-05:00", "+14", "Asia/Tehran", "pacific/apia"] {
        assert!(time_zone(good).is_ok(), "{good}");
    }
    for bad in ["Mars/Olympus", "5", "EST5EDT,M3.2.0,M11.1.0", "../../etc/passwd", "+99:00", "\0", " UTC"] {
        let failure = time_zone(bad).expect_err(bad);
        assert_eq!(failure.field.as_deref(), Some("tz"));
    }
}
