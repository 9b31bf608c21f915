//! Every prefix and every single damaged byte of a small log.

use super::*;

const SEGMENT: &str = "/log/0000000000000001.seg";

/// Records of three partitions, each durable on its own, and the size of the file after each.
async fn small(closed: bool) -> (World, Vec<(u32, u64, String, usize)>) {
    let world = World::default();
    let log = open(&world).unwrap();
    let mut written = Vec::new();
    for (partition, text) in [(0, "one"), (1, "two"), (0, "three"), (2, ""), (0, "five"), (1, "six")] {
        let offset = write(&log, partition, "k", text).await.unwrap();
        written.push((partition, offset, text.to_owned(), world.get(SEGMENT).len()));
    }
    if closed {
        drop(log);
        return (world, written);
    }
    (world.copy(), written)
}

#[tokio::test]
async fn every_prefix_starts_with_all_that_is_whole() {
    let (world, written) = small(false).await;
    let bytes = world.get(SEGMENT);
    for length in 0..=bytes.len() {
        let cut = world.copy();
        cut.put(SEGMENT, &bytes[..length]);
        for round in 0..2 {
            let log = open(&cut).unwrap_or_else(|error| panic!("{length}: {error}"));
            for partition in 0..P {
                let (found, bad) = texts(&log, partition).await;
                let whole = written.iter().filter(|(of, _, _, end)| *of == partition && *end <= length);
                let whole: Vec<_> = whole.map(|(_, offset, text, _)| (*offset, text.clone())).collect();
                assert!(found.starts_with(&whole), "{length} {round}: {found:?} {whole:?}");
                // The last one may be whole without the mark behind it.
                assert!(
                    found.len() <= whole.len() + 1 + round && bad.is_empty(),
                    "{length} {round}: {found:?}"
                );
            }
            let end = log.ranges().await.unwrap()[1].end;
            assert_eq!(write(&log, 1, "k", "more").await, Ok(end), "{length}");
            assert_eq!(texts(&log, 1).await.0.last(), Some(&(end, "more".to_owned())), "{length}");
        }
    }
}

#[tokio::test]
async fn every_damaged_byte_is_named_or_harmless_and_never_skipped() {
    let (world, written) = small(true).await;
    let bytes = world.get(SEGMENT);
    for byte in 0..bytes.len() {
        let damaged = world.copy();
        let mut wrong = bytes.clone();
        wrong[byte] ^= 1 << (byte % 8);
        damaged.put(SEGMENT, &wrong);
        let log = open(&damaged).unwrap_or_else(|error| panic!("{byte}: {error}"));
        check(&log, &written, byte, "opened").await;
        let damage = log.status()["damage"].as_array().unwrap().clone();
        let end = log.ranges().await.unwrap()[0].end;
        assert!(end >= 3, "{byte}: no offset is given twice");
        assert_eq!(write(&log, 0, "k", "more").await, Ok(end), "{byte}");
        drop(log);
        let again = open(&damaged).unwrap_or_else(|error| panic!("{byte}: {error}"));
        check(&again, &written, byte, "opened again").await;
        assert_eq!(texts(&again, 0).await.0.last(), Some(&(end, "more".to_owned())), "{byte}");
        assert_eq!(again.status()["damage"].as_array().unwrap().len(), damage.len(), "{byte}");
    }
}

/// All is there, but for one record at most, which is an error and stands in the status.
async fn check(log: &Embedded, written: &[(u32, u64, String, usize)], byte: usize, when: &str) {
    let mut lost = 0;
    for partition in 0..P {
        let (found, bad) = texts(log, partition).await;
        for (_, offset, text, _) in written.iter().filter(|(of, ..)| *of == partition) {
            if let Some((_, read)) = found.iter().find(|(at, _)| at == offset) {
                assert_eq!(read, text, "{byte} {when}");
            } else {
                assert!(bad.contains(offset), "{byte} {when}: offset {offset} was skipped");
                lost += 1;
            }
        }
    }
    let damage = log.status()["damage"].as_array().unwrap().len();
    assert!(lost <= 1, "{byte} {when}: {lost} lost");
    assert!(lost == 0 || damage > 0, "{byte} {when}: named");
}

#[tokio::test]
async fn damage_of_a_sealed_segment_is_named_and_goes_with_a_trim() {
    let world = World::default();
    let log = open(&world).unwrap();
    let long = "x".repeat(700);
    for _ in 0..20 {
        write(&log, 0, "k", &long).await.unwrap();
    }
    drop(log);
    let mut bytes = world.get(SEGMENT);
    let at = bytes.len() - 300;
    bytes.truncate(at);
    world.put(SEGMENT, &bytes);
    let log = open(&world).unwrap();
    let (found, bad) = texts(&log, 0).await;
    assert_eq!((found.len() + bad.len(), bad.len()), (20, 1));
    let error = log.read(0, bad[0], Slots::all(), 1).await.unwrap_err();
    assert!(error.to_string().contains(SEGMENT), "{error}");
    log.trim([(0, bad[0] + 1)].into()).await.unwrap();
    let range = log.ranges().await.unwrap()[0];
    assert_eq!((range.first, range.end), (bad[0] + 1, 20));
    assert_eq!(log.status()["damage"].as_array().unwrap().len(), 0);
    assert!(matches!(log.read(0, bad[0], Slots::all(), 1).await, Err(Error::Lost { .. })));
}

#[tokio::test]
async fn a_log_whose_offsets_are_unknown_is_refused() {
    let (world, _) = small(true).await;
    let bytes = world.get(SEGMENT);
    world.put(SEGMENT, &vec![0; bytes.len()]);
    assert!(matches!(open(&world), Err(Error::Damaged { .. })));
    let gone = World::default();
    gone.put("/log/log.meta", &world.get("/log/log.meta"));
    assert!(matches!(open(&gone), Err(Error::Damaged { .. })));
    let (world, written) = small(true).await;
    world.put("/log/log.meta", b"{}");
    check(&open(&world).unwrap(), &written, 0, "without meta").await;
    let mut headless = world.get(SEGMENT);
    headless[..frame::header_bytes(P)].fill(0);
    world.put(SEGMENT, &headless);
    let log = open(&world).unwrap();
    check(&log, &written, 0, "without header").await;
    assert_eq!(log.status()["damage"].as_array().unwrap().len(), 1);
}
