//! Dates of any year are found and shown as they were given, and days are those of the zone that was asked for, also
//! where it has no midnight or no such day.

use canopy_tests::api::Answered;

use crate::{
    cases::{self, DATES},
    world::{World, with_world},
};

async fn filtered(world: &World, filter: &str, zone: &str) -> Answered {
    let mut asked = vec![("filter", filter), ("k", "100"), ("timeout_ms", "60000"), ("sort", "published")];
    if !zone.is_empty() {
        asked.push(("tz", zone));
    }
    world.flat.root().search("cases", &asked).await.ok()
}

#[test]
fn any_year_is_stored_found_and_shown() {
    with_world(|world| async {
        for (name, date) in DATES {
            for filter in [
                format!("published:{date}"),
                format!("published:[{date} TO {date}]"),
                format!("published:>={date}"),
            ] {
                let answered = filtered(world, &filter, "").await;
                assert!(
                    answered.keys().contains(&cases::key(name).as_str()),
                    "{filter}: {:?}",
                    answered.keys()
                );
            }
            let answered = filtered(world, &format!("published:{date}"), "").await;
            let hit = answered.hits().find(|hit| hit["key"] == cases::key(name)).expect("found above");
            let shown = hit["fields"]["published"].as_str().unwrap_or_default();
            assert!(shown.starts_with(date.trim_end_matches('Z')), "{date} is shown as {shown:?}");
            assert!(
                hit["sort"][0].as_str().unwrap_or_default().starts_with(date.trim_end_matches('Z')),
                "{hit}"
            );
        }
        // In order, none wrapped into another century.
        let all = filtered(world, "published:[0000 TO 9999]", "").await;
        let keys: Vec<&str> = all.keys();
        let order: Vec<usize> = DATES
            .iter()
            .filter_map(|(name, _)| keys.iter().position(|key| *key == cases::key(name)))
            .collect();
        assert_eq!(order.len(), DATES.len());
        assert!(order.is_sorted(), "{keys:?}");
        assert_eq!(order.first(), Some(&0));
        assert_eq!(filtered(world, "published:<0001", "").await.keys(), [""; 0]);
    });
}

#[test]
fn a_day_is_the_day_of_the_zone() {
    with_world(|world| async {
        let table: [(&str, &str, &[&str]); 9] = [
            ("published:2013-03-07", "UTC", &["utc-start", "utc-last"]),
            ("published:2013-03-07", "", &["utc-start", "utc-last"]),
            ("published:2013-03-07", "-05:00", &["utc-last", "utc-next", "lima-last"]),
            ("published:2022-03-22", "Asia/Tehran", &["tehran-first", "tehran-last"]),
            ("published:2011-12-29", "Pacific/Apia", &["apia-29"]),
            ("published:2011-12-30", "Pacific/Apia", &[]),
            ("published:2011-12-31", "Pacific/Apia", &["apia-31"]),
            ("published:2024-03-31", "Europe/Berlin", &["berlin-spring-first", "berlin-spring-last"]),
            ("published:2024-10-27", "Europe/Berlin", &["berlin-autumn-first", "berlin-autumn-last"]),
        ];
        for (filter, zone, names) in table {
            let keys: Vec<String> = names.iter().map(|name| cases::key(name)).collect();
            assert_eq!(filtered(world, filter, zone).await.keys(), keys, "{filter} in {zone}");
            // The same as a range, and as the user's text.
            let day = filter.trim_start_matches("published:");
            let range = format!("published:[{day} TO {day}]");
            assert_eq!(filtered(world, &range, zone).await.keys(), keys, "{range} in {zone}");
        }
        // A date with a zone of its own needs none.
        let own =
            filtered(world, "published:[2013-03-08T00:00:00-05:00 TO 2013-03-08T06:00:00Z]", "Asia/Tehran")
                .await;
        assert_eq!(own.keys(), [cases::key("lima-next")]);
    });
}
