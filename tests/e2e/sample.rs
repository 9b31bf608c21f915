//! What a person meets first: the bundled sample. Every example query that is printed anywhere finds something, without
//! a warning; and clicking a facet's value gives as many documents as it said, whatever the language of the value and
//! of the query.

use std::{path::Path, sync::OnceLock};

use canopy_format::{
    schema::Schema,
    store::{Corpus, Ordering},
};
use canopy_tests::{
    api::Answered,
    cluster::{Cluster, Shape},
    publish::Shelf,
};

use crate::world::run;

const README: &str = include_str!("../../README.md");
const HELP: [&str; 2] =
    [include_str!("../../cli/src/commands/search.rs"), include_str!("../../cli/src/commands/quickstart.rs")];
const CORPUS: &str = "web";

struct Sample {
    _shelf: Shelf,
    cluster: Cluster,
}

async fn make() -> Sample {
    let shelf = Shelf::new();
    let corpus = Corpus {
        name: CORPUS.to_owned(),
        schema: Schema::web(),
        partitions: 16,
        ordering: Ordering::default(),
    };
    shelf.store.create_corpus(&corpus).await.expect("a corpus");
    let pages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/sample/web.jsonl.gz");
    shelf.build(CORPUS, 4, vec![pages]).await;
    let cluster = Cluster::start(&shelf.store, &Shape::flat(2, 1).config(&[(CORPUS, 4)])).await;
    Sample { _shelf: shelf, cluster }
}

fn with_sample<F: Future<Output = ()>>(test: impl FnOnce(&'static Sample) -> F) {
    static SAMPLE: OnceLock<Sample> = OnceLock::new();
    let sample = SAMPLE.get_or_init(|| run(make()));
    run(test(sample));
}

impl Sample {
    async fn ask(&self, q: &str, filters: &[&str]) -> Answered {
        let mut asked =
            vec![("q", q), ("k", "1"), ("total", "exact"), ("timeout_ms", "60000"), ("snippet", "false")];
        asked.push(("facets", "host,lang,topic:50"));
        asked.extend(filters.iter().map(|filter| ("filter", *filter)));
        self.cluster.root().search(CORPUS, &asked).await.ok()
    }
}

fn total(answered: &Answered) -> u64 {
    answered.json["total"]["value"].as_u64().expect("a total")
}

/// What stands between two marks, each time that both come.
fn between<'t>(text: &'t str, open: &str, close: &str) -> Vec<&'t str> {
    let parts = text.split(open).skip(1);
    parts.filter_map(|part| part.split_once(close)).map(|(inside, _)| inside).collect()
}

/// What stands between every first and second mark.
fn odd(text: &str, mark: char) -> impl Iterator<Item = &str> {
    text.split(mark).skip(1).step_by(2)
}

/// Texts of a page without the marks of HTML.
fn plain(html: &str) -> String {
    html.replace("&quot;", "\"").replace("&#34;", "\"").replace("&#39;", "'").replace("&amp;", "&")
}

#[test]
fn every_example_finds_something_in_the_sample() {
    with_sample(|sample| async {
        let (_, queries) = README.split_once("## Queries to try on the sample").expect("the section");
        let (queries, commands) = queries.split_once("```sh").expect("commands");
        let mut examples: Vec<String> = odd(queries, '`').map(str::to_owned).collect();
        for text in [commands, HELP[0], HELP[1]] {
            let text = text.replace("\\\"", "\"");
            for command in ["canopy search ", "canopy quickstart --once --json "] {
                for quote in ["\"", "'"] {
                    let quoted = between(&text, &format!("{command}{quote}"), quote);
                    examples.extend(quoted.into_iter().map(str::to_owned));
                }
            }
        }
        examples.retain(|example| !example.contains('{')); // made when the command runs
        let in_text = examples.len();
        let (_, warm) = HELP[1].split_once("const EXAMPLES: [&str; 6] =").expect("queries to warm with");
        let (warm, _) = warm.split_once("];").expect("their end");
        examples.extend(odd(warm, '"').map(str::to_owned));
        let page = sample.cluster.root().get("/").await;
        let page = String::from_utf8_lossy(&page.body).into_owned();
        let tips = between(&page, "<dt><code>", "</code></dt>");
        let counts = (in_text, examples.len() - in_text, tips.len());
        assert!(in_text > 20 && counts.1 == 6 && tips.len() > 6, "{counts:?} {examples:?}");
        examples.extend(tips.into_iter().map(plain));
        for example in examples {
            let answered = sample.ask(&example, &[]).await;
            assert!(total(&answered) > 0, "{example} finds nothing");
            // `16" laptop` is there to show that an inch mark does no harm.
            let quote = if example.contains("\" laptop") { vec!["unbalanced_quote"] } else { vec![] };
            assert_eq!(answered.warnings(), quote, "{example}");
        }
    });
}

#[test]
fn a_facet_that_is_clicked_gives_what_it_said() {
    with_sample(|sample| async {
        let queries = [
            "replication slots",
            "\"logical replication\"",
            "select for update",
            "the error of a file",
            "to be or not to be",
            "Datenbank Tabellen",
            "die Tabelle",
            "base de données",
            "enregistrer les fichiers",
            "базы данных",
            "копировать ячейки",
            "データベース",
            "셀 서식",
            "表格",
            "repl*",
            "*ation",
            "vaccum~1",
            "functions~",
            "title:index",
            "+index -gin",
        ];
        let mut clicked = 0;
        for q in queries {
            let answered = sample.ask(q, &[]).await;
            let facets = answered.json["facets"].as_object().expect("facets");
            for (field, facet) in facets {
                for value in facet["values"].as_array().into_iter().flatten() {
                    let name = value["value"].as_str().expect("a value");
                    let filter = format!("{field}:\"{name}\"");
                    let narrowed = sample.ask(q, &[&filter]).await;
                    assert_eq!(Some(total(&narrowed)), value["count"].as_u64(), "{q} {filter}");
                    clicked += 1;
                }
            }
        }
        assert!(clicked > 100, "{clicked}");
    });
}

#[test]
fn a_language_that_the_sample_lacks_is_named_with_those_it_has() {
    with_sample(|sample| async {
        for (q, filters) in [("replication lang:xx", vec![]), ("replication", vec!["lang:xx"])] {
            let answered = sample.ask(q, &filters).await;
            assert_eq!((total(&answered), answered.warnings()), (0, vec!["unknown_language"]), "{q}");
        }
        let asked = [("q", "replication slots"), ("lang", "xx"), ("timeout_ms", "60000")];
        let hinted = sample.cluster.root().search(CORPUS, &asked).await.ok();
        assert_eq!(hinted.warnings(), ["unknown_language"]);
        let message = hinted.json["warnings"][0]["message"].as_str().unwrap_or_default();
        assert!(message.contains("there are: en, de, fr"), "{message}");
        assert!(!hinted.keys().is_empty());
    });
}

#[test]
fn a_misspelt_word_is_answered_with_what_may_have_been_meant() {
    with_sample(|sample| async {
        for (q, meant) in [
            ("vaccum full", "vacuum full"),
            ("\"logcial replication\" slots", "\"logical replication\" slots"),
        ] {
            let answered = sample.ask(q, &[]).await;
            assert_eq!(answered.warnings(), ["did_you_mean"], "{q}");
            assert_eq!(answered.json["warnings"][0]["query"], meant);
            assert!(total(&sample.ask(meant, &[]).await) > total(&answered), "{q}");
        }
        assert_eq!(total(&sample.ask("vaccum", &[]).await), 0, "it changes no result");
    });
}
