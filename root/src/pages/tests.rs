//! Tests of `pages`: what its module comment promises.

use axum::{body::Body, http::Request};
use canopy_common::error::ErrorClass;
use tower::ServiceExt;

use crate::{
    config::RootConfig,
    fixture::{Mood, Tree, tree},
};

async fn open(tree: &Tree, address: &str) -> (u16, String, String) {
    let request = Request::get(address).body(Body::empty()).unwrap();
    let response = tree.router.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    let policy = response.headers().get("content-security-policy");
    let policy = policy.map_or_else(String::new, |policy| policy.to_str().unwrap().to_owned());
    let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
    (status, policy, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_start_page_offers_a_box_and_examples() {
    let tree = tree(2, 10, RootConfig::default());
    let (status, policy, html) = open(&tree, "/").await;
    assert_eq!(status, 200);
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    for part in ["role=\"search\"", "autofocus", "/?q=rust+search", "20 documents", "English"] {
        assert!(html.contains(part), "{part}");
    }
    for inline in ["<style", "onclick", " style=", "javascript:"] {
        assert!(!html.contains(inline), "{inline}");
    }
}

#[tokio::test(start_paused = true)]
async fn results_show_titles_marks_facets_and_pages() {
    let tree = tree(2, 30, RootConfig::default());
    let (status, _, html) = open(&tree, "/?q=rust&utm_source=x").await;
    assert_eq!(status, 200);
    for part in [
        "<b>60</b> results",
        "Title of &lt;https://example.org/",
        "a <mark>word</mark> &amp; more",
        "href=\"https://example.org/",
        "<h2>Language</h2>",
        "aria-current=\"page\">1<",
        "rel=\"next\"",
        "Why this result?",
        "2023-11-14",
    ] {
        assert!(html.contains(part), "{part}\n{html}");
    }
    assert!(!html.contains("class=\"notice\""), "a whole answer has no notice");
    let (_, _, second) = open(&tree, "/?q=rust&page=2&filter=lang:%22en%22&explain=1").await;
    for part in [
        "· page 2</p>",
        "start=\"11\"",
        "rel=\"prev\"",
        "Remove the filter Language: English",
        "1.5",
        "id=\"hit-1\"",
        "name=\"filter\"",
    ] {
        assert!(second.contains(part), "{part}\n{second}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_misspelt_word_has_a_link_to_what_may_have_been_meant() {
    let tree = tree(2, 10, RootConfig::default());
    let (_, _, html) = open(&tree, "/?q=serach+rust&page=2&filter=lang:%22en%22").await;
    let link = "Did you mean <a href=\"/?q=search+rust&amp;filter=lang%3A%22en%22\">search rust</a>?";
    assert!(html.contains(link), "{html}");
    assert!(!html.contains("class=\"warnings\""), "{html}");
    let (_, _, html) = open(&tree, "/?q=search").await;
    assert!(!html.contains("Did you mean"), "{html}");
}

#[tokio::test(start_paused = true)]
async fn an_incomplete_answer_says_what_is_missing() {
    let tree = tree(4, 10, RootConfig::default());
    *tree.leaves[3].search.lock() = Mood::Fails(ErrorClass::DataLoss);
    let (status, _, html) = open(&tree, "/?q=rust").await;
    assert_eq!(status, 200);
    assert!(html.contains("searched 30 of 40 documents; shard main/3 failed"), "{html}");
    assert!(html.contains("or more</b> results"));
}

#[tokio::test(start_paused = true)]
async fn no_answer_and_no_match_have_pages_of_their_own() {
    let tree = tree(1, 10, RootConfig::default());
    let (status, _, html) = open(&tree, "/?q=%22%22").await;
    assert_eq!(status, 200);
    assert!(html.contains("No document matches"), "{html}");
    *tree.leaves[0].search.lock() = Mood::Hangs;
    let (status, _, html) = open(&tree, "/?q=rust").await;
    assert_eq!(status, 504);
    assert!(html.contains("There is no answer just now") && html.contains("Try again"), "{html}");
    let (status, _, html) = open(&tree, "/?q=a&corpus=%3Cscript%3E").await;
    assert_eq!(status, 404);
    assert!(!html.contains("<script>") && html.contains("can&#39;t") || html.contains("can't"));
}

#[tokio::test(start_paused = true)]
async fn nothing_from_outside_is_markup() {
    let tree = tree(1, 10, RootConfig::default());
    let evil = "%22%3E%3Cscript%3Ealert(1)%3C/script%3E";
    for address in [
        format!("/?q={evil}"),
        format!("/?q=a&filter={evil}"),
        format!("/?q=a&filter=lang:{evil}&corpus={evil}"),
    ] {
        let (_, _, html) = open(&tree, &address).await;
        assert!(!html.contains("<script>alert") && !html.contains("\"><script"), "{address}\n{html}");
    }
}

#[tokio::test(start_paused = true)]
async fn assets_are_served_with_their_types() {
    let tree = tree(1, 1, RootConfig::default());
    for (name, part) in
        [("search.css", "prefers-color-scheme"), ("search.js", "keydown"), ("icon.svg", "<svg")]
    {
        let (status, _, text) = open(&tree, &format!("/assets/{name}")).await;
        assert_eq!((status, text.contains(part)), (200, true), "{name}");
    }
    assert_eq!(open(&tree, "/favicon.ico").await.0, 200);
    assert_eq!(open(&tree, "/assets/nosuch.js").await.0, 404);
}
