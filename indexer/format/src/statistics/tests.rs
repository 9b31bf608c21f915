//! Tests of `statistics`: what its module comment promises.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

type Counts = Vec<(&'static str, &'static str, u64)>;

fn stream(counts: Vec<(String, String, u64)>) -> Box<dyn Iterator<Item = Result<(Vec<u8>, u64)>> + Send> {
    let mut counts: Vec<_> = counts.into_iter().map(|(field, term, n)| (key(&field, &term), n)).collect();
    counts.sort();
    Box::new(counts.into_iter().map(Ok))
}

fn owned(counts: Counts) -> Vec<(String, String, u64)> {
    counts.into_iter().map(|(field, term, n)| (field.into(), term.into(), n)).collect()
}

struct Opened {
    statistics: Statistics,
    entry: StatisticsEntry,
    directory: tempfile::TempDir,
}

impl Opened {
    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("terms.fst")
    }
}

/// Every term is written as it is.
fn opened(documents: u64, shards: Vec<Vec<(String, String, u64)>>) -> Opened {
    let spellings = shards.iter().flatten().map(|(_, term, _)| (term.clone(), term.clone())).collect();
    opened_with(documents, shards, spellings)
}

fn opened_with(
    documents: u64,
    shards: Vec<Vec<(String, String, u64)>>,
    spellings: std::collections::BTreeSet<(String, String)>,
) -> Opened {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("terms.fst");
    let tokens = BTreeMap::from([("text".to_owned(), 1000), ("title".to_owned(), 100)]);
    let spellings = vec![stream(spellings.into_iter().map(|(spelling, term)| (spelling, term, 1)).collect())];
    let entry = write(&path, documents, tokens, shards.into_iter().map(stream).collect(), spellings).unwrap();
    let statistics = Statistics::open(&path, &entry).unwrap();
    Opened { statistics, entry, directory }
}

fn sample() -> Opened {
    let first = owned(vec![
        ("text", "cat", 5),
        ("text", "cathedral", 2),
        ("text", "dog", 9),
        ("text", "日本", 3),
        ("title", "cat", 1),
        ("titles", "cater", 1),
    ]);
    let second =
        owned(vec![("text", "cat", 4), ("text", "car", 1), ("text", "日曜日", 1), ("title", "dog", 2)]);
    opened(10, vec![first, vec![], second])
}

fn later() -> Deadline {
    Deadline::after(Duration::from_mins(10))
}

fn terms(statistics: &Statistics, field: &str, pattern: Pattern) -> Vec<String> {
    let expansion = statistics.expand(field, &pattern, 100, later());
    assert!(!expansion.truncated);
    expansion.terms.into_iter().map(|found| found.term).collect()
}

fn found(term: &str, documents: u64, edits: u8) -> Found {
    Found { term: term.into(), documents, edits, spelling: term.into() }
}

fn wildcard(pattern: &str) -> Pattern {
    Pattern::Wildcard(pattern.into())
}

fn fuzzy(word: &str, distance: u8) -> Pattern {
    Pattern::Fuzzy { word: word.into(), distance }
}

#[test]
fn shards_are_summed_and_found_again() {
    let Opened { statistics, entry, directory: _kept } = sample();
    assert_eq!((statistics.documents(), statistics.id(), entry.terms), (10, entry.id.as_str(), 9));
    assert_eq!(statistics.tokens()["title"], 100);
    assert_eq!(entry.file.path, FILE);
    for (field, term, expected) in [
        ("text", "cat", Some(9)),
        ("text", "car", Some(1)),
        ("title", "cat", Some(1)),
        ("title", "dog", Some(2)),
        ("text", "日本", Some(3)),
        ("text", "ca", None),
        ("text", "", None),
        ("", "cat", None),
        ("titl", "cat", None),
        ("none", "cat", None),
    ] {
        assert_eq!(statistics.document_frequency(field, term), expected, "{field}:{term}");
    }
}

#[test]
fn the_id_follows_the_content() {
    let shards = || vec![owned(vec![("text", "a", 1)])];
    let id = opened(10, shards()).entry.id;
    assert!(id.len() == 16 && id == opened(10, shards()).entry.id);
    assert_ne!(id, opened(11, shards()).entry.id);
    assert_ne!(id, opened(10, vec![owned(vec![("text", "a", 2)])]).entry.id);
    assert_eq!(opened(0, vec![]).entry.terms, 0);
}

#[test]
fn counts_that_cannot_be_are_refused_and_leave_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("terms.fst");
    let refused = |counts: Vec<(&[u8], u64)>, expected: &str| {
        let counts: Vec<_> = counts.into_iter().map(|(key, n)| Ok((key.to_vec(), n))).collect();
        let error = write(&path, 10, BTreeMap::new(), vec![Box::new(counts.into_iter())], vec![]);
        let error = error.unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert!(!path.exists());
    };
    refused(vec![(b"text\x1fb", 1), (b"text\x1fa", 1)], "not in order");
    refused(vec![(b"text\x1fa", 1), (b"text\x1fa", 1)], "not in order");
    refused(vec![(b"text\x1fa", 0)], "in no document");
    refused(vec![(b"text\x1fa", 11)], "in 11 of 10 documents");
    for key in [&b"text"[..], b"text\x1f", b"\x1fterm", b"", b"text\x1f\xff"] {
        refused(vec![(key, 1)], "is not field, 0x1F, term");
    }
    let failing = std::iter::once(Err(Error::Invalid { field: "shard", reason: "gone".into() }));
    let error = write(&path, 10, BTreeMap::new(), vec![Box::new(failing)], vec![]).unwrap_err();
    assert!(error.to_string().contains("gone") && !path.exists());
    let nowhere = directory.path().join("none/terms.fst");
    assert!(matches!(write(&nowhere, 10, BTreeMap::new(), vec![], vec![]), Err(Error::Io { .. })));
}

#[test]
fn every_damaged_byte_is_found_before_use() {
    let opened = sample();
    let good = std::fs::read(opened.path()).unwrap();
    let reopen = |bytes: &[u8]| {
        std::fs::write(opened.path(), bytes).unwrap();
        Statistics::open(&opened.path(), &opened.entry).err().map(|error| error.to_string())
    };
    for at in 0..good.len() {
        for flip in [1, 0x80, 0xff] {
            let mut bad = good.clone();
            bad[at] ^= flip;
            assert!(reopen(&bad).is_some_and(|error| error.contains("damaged: its BLAKE3")), "{at}");
        }
    }
    for end in 0..good.len() {
        assert!(reopen(&good[..end]).is_some_and(|error| error.contains("the manifest says")), "{end}");
    }
    assert!(reopen(&[&good[..], b"x"].concat()).is_some());
    assert_eq!(reopen(&good), None);

    let with = |change: fn(&mut StatisticsEntry)| {
        let mut entry = opened.entry.clone();
        change(&mut entry);
        Statistics::open(&opened.path(), &entry).err().map(|error| error.to_string()).unwrap_or_default()
    };
    assert!(with(|entry| entry.terms += 1).contains("9 terms"));
    assert!(with(|entry| entry.documents += 1).contains("does not belong"));
    assert!(with(|entry| entry.spellings = Some(3)).contains("7 spellings, the manifest says 3"));
    assert!(!with(|entry| entry.spellings = None).is_empty());
    assert!(with(|entry| entry.id.push('0')).contains("does not belong"));
    let mut foreign = opened.entry.clone();
    std::fs::write(opened.path(), b"not a map, with the right checksum").unwrap();
    foreign.file = crate::manifest::FileEntry::of_file(&opened.path(), FILE).unwrap();
    assert!(matches!(Statistics::open(&opened.path(), &foreign), Err(Error::Damaged { .. })));
    assert!(matches!(
        Statistics::open(&opened.directory.path().join("none"), &opened.entry),
        Err(Error::Io { .. })
    ));
}

#[test]
fn patterns_find_terms_of_their_field_only() {
    let Opened { statistics, directory: _kept, .. } = sample();
    let find = |pattern| terms(&statistics, "text", pattern);
    assert_eq!(find(Pattern::Prefix("cat".into())), ["cat", "cathedral"]);
    assert_eq!(find(Pattern::Prefix("日".into())), ["日本", "日曜日"]);
    assert_eq!(find(Pattern::Prefix(String::new())).len(), 6);
    assert_eq!(find(Pattern::Prefix("x".into())), [""; 0]);
    assert_eq!(find(wildcard("c?t")), ["cat"]);
    assert_eq!(find(wildcard("日?")), ["日本"]);
    assert_eq!(find(wildcard("?本")), ["日本"]);
    assert_eq!(find(wildcard("*a*")), ["cat", "cathedral", "car"]);
    assert_eq!(find(wildcard("*日")), ["日曜日"]);
    assert_eq!(find(wildcard("c*d*l")), ["cathedral"]);
    assert_eq!(find(wildcard("cat")), ["cat"]);
    assert_eq!(find(wildcard("ca")), [""; 0]);
    assert_eq!(find(wildcard("")), [""; 0]);
    assert_eq!(find(fuzzy("cat", 1)), ["cat", "car"]);
    assert_eq!(find(fuzzy("dgo", 2)), ["dog"]);
    assert_eq!(find(fuzzy("日曜", 1)), ["日本", "日曜日"]);
    assert_eq!(find(fuzzy("cat", 0)), ["cat"]);
    assert_eq!(terms(&statistics, "title", wildcard("*")), ["dog", "cat"]);
    assert_eq!(terms(&statistics, "none", wildcard("*")), [""; 0]);
}

#[test]
fn hostile_patterns_are_answered() {
    let long = "a".repeat(200);
    let Opened { statistics, directory: _kept, .. } =
        opened(10, vec![vec![("text".into(), long.clone(), 1), ("text".into(), "b".into(), 1)]]);
    let find = |pattern| terms(&statistics, "text", pattern);
    assert_eq!(find(wildcard(&"*".repeat(100_000))).len(), 2);
    assert_eq!(find(wildcard(&"*a".repeat(200))), [long.as_str()]);
    assert_eq!(find(wildcard(&"*a".repeat(201))), [""; 0]);
    assert_eq!(find(wildcard(&"?".repeat(200))), [long.as_str()]);
    assert_eq!(find(wildcard(&"*?".repeat(100_000))), [""; 0]);
    assert_eq!(find(fuzzy(&long, 2)), [long.as_str()]);
    assert_eq!(find(fuzzy(&long[1..], 2)), [""; 0]);
    assert_eq!(find(fuzzy(&"é".repeat(100_000), 2)), [""; 0]);
    assert_eq!(find(fuzzy("", 1)), ["b"]);
    assert_eq!(find(Pattern::Prefix("\u{1f}".into())), [""; 0]);
}

#[test]
fn the_most_frequent_stay() {
    let many = (0..2000_u64).map(|i| ("text".to_owned(), format!("w{i:04}"), i % 500 + 1)).collect();
    let Opened { statistics, directory: _kept, .. } = opened(1000, vec![many]);
    let expansion = statistics.expand("text", &Pattern::Prefix("w".into()), 3, later());
    assert!(expansion.truncated);
    let expected = ["w0499", "w0999", "w1499"].map(|term| found(term, 500, 0));
    assert_eq!(expansion.terms, expected);
    let none = statistics.expand("text", &Pattern::Prefix("w".into()), 0, later());
    assert!(none.truncated && none.terms.is_empty());
    let all = statistics.expand("text", &Pattern::Prefix("w".into()), usize::MAX, later());
    assert!(!all.truncated && all.terms.len() == 2000);
}

#[test]
fn time_is_asked_for_even_when_nothing_matches() {
    let many = (0..20_000).map(|i| ("text".to_owned(), format!("{:05}", i * 7), 1)).collect();
    let Opened { statistics, directory: _kept, .. } = opened(1, vec![many]);
    let patterns =
        [wildcard("*a*"), wildcard("*☃"), wildcard("*1*"), fuzzy("ab", 2), Pattern::Prefix(String::new())];
    for pattern in patterns {
        let past = statistics.expand("text", &pattern, 10, Deadline::after(Duration::ZERO));
        assert_eq!(past, Expansion { terms: vec![], truncated: true }, "{pattern:?}");
        let mut polls = 0;
        let stopped = statistics.expand_until("text", &pattern, 100_000, || {
            polls += 1;
            polls == 3
        });
        assert!(stopped.truncated && polls == 3, "{pattern:?}");
        assert!(stopped.terms.len() <= 2 * expand::STEPS_PER_POLL as usize);
    }
    let mut polls = 0;
    let whole = statistics.expand_until("text", &wildcard("*a*"), 10, || {
        polls += 1;
        false
    });
    assert_eq!((whole, polls > 20), (Expansion::default(), true));
    let narrow = statistics.expand_until("text", &Pattern::Prefix("00007".into()), 10, || {
        polls += 1;
        false
    });
    assert_eq!(narrow.terms, [found("00007", 1, 0)]);
}

#[test]
fn patterns_are_held_against_words_as_written() {
    let counts = owned(vec![
        ("text", "memori", 3),
        ("text", "replic", 9),
        ("text", "replication", 2),
        ("text", "дубл", 1),
        ("title", "replic", 4),
    ]);
    let pairs = [
        ("memory", "memori"),
        ("replicated", "replic"),
        ("replication", "replic"),
        ("replication", "replication"),
        ("дубли", "дубл"),
        ("gone", "gone"),
    ];
    let spellings = pairs.iter().map(|(spelling, term)| ((*spelling).into(), (*term).into())).collect();
    let Opened { statistics, entry, directory: _kept } = opened_with(10, vec![counts], spellings);
    assert_eq!(entry.spellings, Some(5));
    let find = |pattern| terms(&statistics, "text", pattern);
    assert_eq!(find(Pattern::Prefix("replication".into())), ["replic", "replication"]);
    assert_eq!(find(Pattern::Prefix("replicat".into())), ["replic", "replication"]);
    assert_eq!(find(wildcard("*icated")), ["replic"]);
    assert_eq!(find(wildcard("*i")), [""; 0], "no word ends so, though a stem does");
    assert_eq!(find(wildcard("*и")), ["дубл"]);
    assert_eq!(find(fuzzy("memroy", 1)), ["memori"]);
    assert_eq!(find(Pattern::Prefix("gone".into())), [""; 0], "no document has it in this field");
    assert_eq!(terms(&statistics, "title", wildcard("repl*")), ["replic"]);
    let near = statistics.expand("text", &fuzzy("replicatoin", 2), 10, later());
    let expected = [("replic", 9), ("replication", 2)]
        .map(|(term, documents)| Found { spelling: "replication".into(), ..found(term, documents, 1) });
    assert_eq!(near.terms, expected);
}

#[test]
fn files_of_format_1_have_their_patterns_held_against_terms() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("terms.fst");
    let mut builder = fst::MapBuilder::new(std::fs::File::create(&path).unwrap()).unwrap();
    for (term, documents) in [("car", 1), ("cat", 12), ("dog", 2)] {
        builder.insert(key("text", term), documents).unwrap();
    }
    builder.finish().unwrap();
    let file = crate::manifest::FileEntry::of_file(&path, FILE).unwrap();
    let tokens = BTreeMap::from([("text".to_owned(), 20)]);
    let mut entry =
        StatisticsEntry { id: String::new(), file, documents: 10, tokens, terms: 3, spellings: None };
    entry.id = merge::id(&entry);
    let statistics = Statistics::open(&path, &entry).unwrap();
    let near = statistics.expand("text", &fuzzy("cta", 1), 10, later());
    assert_eq!(near.terms, [found("cat", 10, 1)]);
    assert_eq!(terms(&statistics, "text", wildcard("ca?")), ["cat", "car"]);
    assert_eq!(terms(&statistics, "title", wildcard("*")), [""; 0]);
}

type Edits<'a> = Box<dyn Fn(&str) -> Option<usize> + 'a>;

fn matches(pattern: &[char], term: &[char]) -> bool {
    match (pattern.first(), term.first()) {
        (None, None) => true,
        (Some('*'), _) => matches(&pattern[1..], term) || (!term.is_empty() && matches(pattern, &term[1..])),
        (Some('?'), Some(_)) => matches(&pattern[1..], &term[1..]),
        (Some(a), Some(b)) if a == b => matches(&pattern[1..], &term[1..]),
        _ => false,
    }
}

/// Edits by the whole table, a swap of neighbours being one.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            let swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            table[i][j] = match (i, j) {
                (0, _) | (_, 0) => i + j,
                _ => {
                    let replaced = table[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                    let best = replaced.min(table[i - 1][j] + 1).min(table[i][j - 1] + 1);
                    if swapped { best.min(table[i - 2][j - 2] + 1) } else { best }
                }
            };
        }
    }
    table[a.len()][b.len()]
}

#[test]
fn a_swap_of_neighbours_is_one_edit() {
    let words = ["abcd", "acbd", "abdc", "badc", "bcad", "dbca", "ca", "abc"];
    let Opened { statistics, directory: _kept, .. } =
        opened(10, vec![words.iter().map(|word| ("text".into(), (*word).into(), 1)).collect()]);
    let near = |word: &str, edits| {
        let found = statistics.expand("text", &fuzzy(word, edits), 100, later()).terms;
        found.into_iter().map(|found| (found.term, found.edits)).collect::<Vec<_>>()
    };
    let pairs = |list: &[(&str, u8)]| {
        list.iter().map(|(term, edits)| ((*term).to_owned(), *edits)).collect::<Vec<_>>()
    };
    assert_eq!(near("abcd", 1), pairs(&[("abcd", 0), ("abc", 1), ("abdc", 1), ("acbd", 1)]));
    assert_eq!(near("ac", 1), pairs(&[("abc", 1), ("ca", 1)]));
    assert!(near("abcd", 2).contains(&("badc".to_owned(), 2)));
    // Swapped letters are not edited again: `ca` to `abc` are three edits.
    assert!(!near("ca", 2).iter().any(|(term, _)| term == "abc"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_walk_equals_trying_every_term(
        words in proptest::collection::btree_map("[abé日]{1,6}", 1_u64..50, 1..40),
        pattern in "[abé日*?]{0,6}",
        word in "[abé日]{0,6}",
        edits in 1_u8..=2,
        limit in 1_usize..30,
    ) {
        let counts = words.iter().map(|(word, n)| ("text".to_owned(), word.clone(), *n)).collect();
        let Opened { statistics, directory: _kept, .. } = opened(50, vec![counts]);
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        let cases: [(Pattern, Edits); 3] = [
            (wildcard(&pattern), Box::new(|term| matches(&chars(&pattern), &chars(term)).then_some(0))),
            (fuzzy(&word, edits), Box::new(|term| {
                Some(distance(&chars(&word), &chars(term))).filter(|found| *found <= usize::from(edits))
            })),
            (Pattern::Prefix(word.clone()), Box::new(|term| term.starts_with(&word).then_some(0))),
        ];
        for (pattern, edits) in cases {
            let near = words.iter().filter_map(|(term, n)| Some(found(term, *n, edits(term)? as u8)));
            let mut expected: Vec<_> = near.collect();
            expected.sort_by_key(|one| (one.edits, std::cmp::Reverse(one.documents), one.term.clone()));
            let truncated = expected.len() > limit;
            expected.truncate(limit);
            let found = statistics.expand("text", &pattern, limit, later());
            prop_assert_eq!(found, Expansion { terms: expected, truncated });
        }
    }

    #[test]
    fn terms_are_found_by_their_closest_spelling(
        pairs in proptest::collection::btree_set(("[ab]{1,5}", "[ab]{1,3}"), 1..40),
        word in "[ab]{1,5}",
        limit in 1_usize..10,
    ) {
        let terms: std::collections::BTreeSet<_> = pairs.iter().map(|(_, term)| term.clone()).collect();
        let counts = terms.iter().map(|term| ("text".into(), term.clone(), term.len() as u64)).collect();
        let Opened { statistics, directory: _kept, .. } = opened_with(50, vec![counts], pairs.clone());
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        let mut expected: Vec<Found> = Vec::new();
        for term in &terms {
            let spellings = pairs.iter().filter(|(_, of)| of == term).map(|(spelling, _)| spelling);
            let near = spellings.map(|spelling| (distance(&chars(&word), &chars(spelling)), spelling)).min();
            let Some((edits @ 0..=2, spelling)) = near else { continue };
            let (term, documents) = (term.clone(), term.len() as u64);
            expected.push(Found { term, documents, edits: edits as u8, spelling: spelling.clone() });
        }
        expected.sort_by_key(|one| (one.edits, std::cmp::Reverse(one.documents), one.term.clone()));
        let truncated = expected.len() > limit;
        expected.truncate(limit);
        let found = statistics.expand("text", &fuzzy(&word, 2), limit, later());
        prop_assert_eq!(found, Expansion { terms: expected, truncated });
    }
}

#[test]
fn a_file_that_is_cut_after_opening_changes_nothing() {
    let opened = sample();
    std::fs::File::create(opened.path()).unwrap();
    assert_eq!(opened.statistics.document_frequency("text", "cat"), Some(9));
    assert_eq!(terms(&opened.statistics, "text", Pattern::Prefix("cat".into())), ["cat", "cathedral"]);
}
