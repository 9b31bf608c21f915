//! Searching: the start page, results, their pages, languages, "why this result".

use canopy_tests::{
    api::Answered,
    cluster::{Cluster, Shape},
};

use crate::{
    page::{ENTER, Page},
    world::{EXAMPLE, NOTES, SHARDS, WEB, World, config, with_browser},
};

/// The API's answer to the same question.
async fn api(world: &World, q: &str) -> Answered {
    world.tree.root().search(WEB, &[("q", q)]).await.ok()
}

/// Every result has a title, an address and a snippet, and nothing in the snippet but text and marks.
async fn results_are_whole(page: &Page) {
    let script = "return [...document.querySelectorAll('.hit')].filter(hit =>
        !hit.querySelector('h2 a').innerText.trim() || !hit.querySelector('.address').innerText.trim() ||
        !hit.querySelector('.snippet').innerText.trim() ||
        [...hit.querySelectorAll('.snippet *')].some(inner => inner.tagName !== 'MARK')).length";
    assert_eq!(page.value(script).await, "0", "{}", page.text(".results").await);
}

#[test]
fn a_query_typed_gives_results_with_its_words_marked() {
    with_browser("typed", |world| async move {
        let page = world.page(&world.tree).await;
        page.open("/").await;
        page.picture("start").await;
        assert_eq!(page.value("return document.activeElement.id").await, "q", "the box has the focus");
        assert!(page.text("main").await.contains("日本語"), "the languages are named");
        page.leave(page.press(&format!("{EXAMPLE}{ENTER}"))).await;
        page.picture("results").await;
        assert_eq!(page.value("return document.title").await, format!("{EXAMPLE} – Canopy search"));
        assert_eq!(page.value("return document.getElementById('q').value").await, EXAMPLE);
        let answer = api(world, EXAMPLE).await;
        assert_eq!(page.addresses().await, answer.keys());
        assert_eq!(page.count().await, answer.json["total"]["value"]);
        let status = page.text(".status").await;
        assert!(status.contains(" results in ") && status.ends_with(" ms"), "{status}");
        let marks = page.texts(".snippet mark").await;
        let word =
            |mark: &String| ["replic", "slot"].iter().any(|stem| mark.to_lowercase().starts_with(stem));
        assert!(marks.len() >= 10 && marks.iter().all(word), "{marks:?}");
        results_are_whole(&page).await;
        assert_eq!(page.texts(".notice, .warnings li").await, [""; 0], "a whole answer has no notices");
        assert!(page.value("return document.querySelector('.hits a.go').rel").await.contains("noopener"));
    });
}

#[test]
fn an_example_of_the_start_page_is_a_search() {
    with_browser("example", |world| async move {
        let page = world.page(&world.tree).await;
        page.open("/").await;
        page.click(".tips summary", "Search tips").await;
        page.picture("tips").await;
        assert!(page.text(".tips").await.contains("these words in a row"));
        page.follow("nav a", EXAMPLE).await;
        assert_eq!(page.addresses().await.len(), 10);
    });
}

#[test]
fn pages_follow_each_other_without_repeating() {
    with_browser("pages", |world| async move {
        let page = world.page(&world.tree).await;
        page.open("/").await;
        page.search(EXAMPLE).await;
        let (total, first) = (page.count().await, page.addresses().await);
        let mut seen = first.clone();
        while page.texts(".pager a[rel=next]").await == ["Next"] {
            page.follow(".pager a", "Next").await;
            seen.extend(page.addresses().await);
        }
        page.picture("last-page").await;
        assert!(page.text(".status").await.contains(&format!("· page {}", total.div_ceil(10))));
        let (length, last) = (seen.len(), page.addresses().await);
        seen.sort();
        seen.dedup();
        assert_eq!((seen.len() as u64, length as u64), (total, total), "each result once");
        page.follow(".pager a", "Previous").await;
        page.follow(".pager a", "1").await;
        assert_eq!(page.addresses().await, first);
        for _ in 0..2 {
            page.back().await;
        }
        assert_eq!(page.addresses().await, last, "the history leads back");
    });
}

#[test]
fn every_language_is_found_and_shown_as_such() {
    with_browser("languages", |world| async move {
        let page = world.page(&world.tree).await;
        page.open("/").await;
        for (language, name, q) in [
            ("ja", "日本語", "データベース"),
            ("ko", "한국어", "데이터"),
            ("ru", "Русский", "базы данных"),
            ("zh", "中文", "表格"),
            ("de", "Deutsch", "Datenbank"),
        ] {
            page.search(&format!("{q} lang:{language}")).await;
            page.picture(&format!("language-{language}")).await;
            let hits = format!(".hit .snippet[lang={language}]");
            let snippets = page.texts(&hits).await;
            assert!(!snippets.is_empty(), "{q}: {}", page.text("main").await);
            assert_eq!(snippets.len(), page.texts(".hit").await.len(), "{q}: only {language}");
            assert!(page.texts(".hit .meta").await.iter().all(|meta| meta.starts_with(name)), "{q}");
            let marks = page.text(&format!("{hits} mark")).await.to_lowercase();
            let start: String = q.to_lowercase().chars().take(2).collect();
            assert!(marks.contains(&start), "{q}: {marks}");
            results_are_whole(&page).await;
        }
    });
}

#[test]
fn a_result_says_why_it_is_there() {
    with_browser("why", |world| async move {
        let page = world.page(&world.tree).await;
        page.open("/").await;
        page.search(EXAMPLE).await;
        let addresses = page.addresses().await;
        page.follow("#hit-2 .why", "Why this result?").await;
        page.picture("why").await;
        assert_eq!(page.addresses().await, addresses, "the same results in the same order");
        let open = page.texts("details[open].explain").await;
        assert_eq!(open.len(), 1, "one is open: {open:?}");
        for part in ["score", "replic", "slot", "Documents with it", "shard main/"] {
            assert!(open[0].contains(part), "{part}: {}", open[0]);
        }
        let top = "const box = document.getElementById('hit-2').getBoundingClientRect();
                   return box.top >= 0 && box.top < innerHeight";
        assert_eq!(page.value(top).await, "true", "it is in view");
        page.click("#hit-3 .explain summary", "Why").await;
        assert_eq!(page.texts("details[open].explain").await.len(), 2);
    });
}

#[test]
fn no_results_is_said_with_a_way_on() {
    with_browser("none", |world| async move {
        let page = world.page(&world.tree).await;
        page.open("/").await;
        page.search("zzqqxx").await;
        page.picture("none").await;
        let text = page.text(".empty").await;
        assert!(text.contains("No document matches “zzqqxx”") && text.contains("spelling"), "{text}");
        assert_eq!(page.count().await, 0);
        page.open("/?q=replication&filter=lang:%22ko%22&filter=host:%22nosuch.example%22").await;
        page.follow(".empty a", "Search without the filters").await;
        assert_eq!(page.addresses().await.len(), 10);
        page.open("/?q=replication&page=900").await;
        assert!(page.text(".empty").await.contains("There is no page 900"));
        page.follow(".empty a", "first page").await;
        assert_eq!(page.addresses().await.len(), 10);
    });
}

#[test]
fn an_odd_query_is_answered_with_a_warning() {
    with_browser("warning", |world| async move {
        let page = world.page(&world.tree).await;
        page.open("/").await;
        page.search(&format!("\"{EXAMPLE}")).await;
        page.picture("warning").await;
        let warnings = page.texts(".warnings li").await;
        assert_eq!(warnings, ["A quote without its pair was read as part of the words."]);
        assert_eq!(page.addresses().await.len(), 10);
    });
}

#[test]
fn the_corpus_is_chosen_where_there_are_several() {
    with_browser("corpus", |world| async move {
        let tree =
            Cluster::start(&world.shelf.store, &config(&Shape::flat(2, 1), &[(NOTES, 1), (WEB, SHARDS)]))
                .await;
        let page = world.page(&tree).await;
        page.open("/?corpus=web").await;
        page.click("#corpus option", NOTES).await;
        page.search("replication").await;
        page.picture("corpus").await;
        assert_eq!(page.count().await, 12);
        assert_eq!(page.value("return document.getElementById('corpus').value").await, NOTES);
        page.follow(".pager a", "Next").await;
        assert_eq!(page.addresses().await.len(), 2);
        assert!(page.addresses().await.iter().all(|address| address.starts_with("https://notes.example/")));
        tree.stop().await;
    });
}
