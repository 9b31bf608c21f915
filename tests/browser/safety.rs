//! What documents and people write stays text, whatever it looks like.

use crate::world::with_browser;

/// What ran although it must not.
const HIT: &str = "return window.hit ?? 'nothing'";

#[test]
fn markup_in_documents_is_shown_and_does_nothing() {
    with_browser("documents", |world| async move {
        let page = world.page(&world.tree).await;
        page.open("/").await;
        page.search("zebrafinch").await;
        page.picture("hostile").await;
        assert_eq!(page.texts(".hit").await.len(), 2, "{}", page.text("main").await);
        let shown = page.text(".results").await;
        for part in ["<script>window.hit = 'script'</script>", "</title><script>", "<img src=x"] {
            assert!(shown.contains(part), "{part} is shown as text: {shown}");
        }
        assert_eq!(page.texts(".results img, .results script, .results h1").await, [""; 0]);
        let marks = page.texts("mark").await;
        assert!(!marks.is_empty() && marks.iter().all(|mark| mark == "zebrafinch"), "{marks:?}");
        let links =
            "return [...document.querySelectorAll('a')].filter(a => !/^https?:$/.test(a.protocol)).length";
        assert_eq!(page.value(links).await, "0", "links lead to the web only");
        let inline = "return document.querySelectorAll('[onmouseover],[onerror],[style]').length";
        assert_eq!(page.value(inline).await, "0");
        page.follow("#hit-1 .why", "Why").await;
        assert_eq!(page.value(HIT).await, "nothing");
    });
}

#[test]
fn markup_in_a_query_is_a_query() {
    with_browser("queries", |world| async move {
        let page = world.page(&world.tree).await;
        page.open("/").await;
        let evil = "\"><script>window.hit='query'</script> 'x' &amp; <b>replication";
        page.search(evil).await;
        page.picture("hostile-query").await;
        assert_eq!(page.value("return document.getElementById('q').value").await, evil);
        assert!(page.value("return document.title").await.starts_with("\"><script>window.hit"));
        page.open("/?q=a&filter=host:%22%3E%3Cscript%3Ewindow.hit='filter'%3C/script%3E&corpus=web").await;
        page.open("/?q=replication%20%E2%80%AE%00%07&page=-1&explain=99999999999&filter=").await;
        assert_eq!(page.value(HIT).await, "nothing");
        let complaints = page.console().await;
        assert!(complaints.iter().all(|line| line.contains("status of 400")), "{complaints:?}");
    });
}
