//! What is tried, what is refused and what a shape is.

use std::sync::atomic::Ordering;

use canopy_common::error::ErrorClass;

use super::*;
use crate::{
    config::RootConfig,
    fixture::{Mood, Tree, tree},
    search::Asked,
};

fn asked(tree: &Tree, q: &str) -> Asked {
    let request = v1::QueryRequest {
        corpus: "web".into(),
        q: q.into(),
        timeout_ms: 1000,
        snippet: Some(false),
        ..Default::default()
    };
    Asked { query: tree.root.dice.query_id(), arrival: Instant::now(), limit: None, request }
}

fn seen(tree: &Tree) -> usize {
    tree.leaves.iter().map(|leaf| leaf.seen.lock().len()).sum()
}

#[tokio::test(start_paused = true)]
async fn a_new_shape_is_tried_on_one_leaf_and_a_known_one_is_not() {
    let tree = tree(4, 5, RootConfig { canary: true, ..RootConfig::default() });
    let answer = tree.root.search(&asked(&tree, "rust search")).await.unwrap();
    assert!(answer.coverage.complete);
    assert_eq!(seen(&tree), 1 + 4);
    tree.root.search(&asked(&tree, "search tree")).await.unwrap();
    assert_eq!(seen(&tree), 5 + 4, "other words, the same shape");
    tree.root.search(&asked(&tree, "\"search tree\"")).await.unwrap();
    assert_eq!(seen(&tree), 9 + 1 + 4, "a phrase is another");
}

#[tokio::test(start_paused = true)]
async fn a_shape_that_cost_a_leaf_costs_no_second_one() {
    let tree = tree(4, 5, RootConfig { canary: true, ..RootConfig::default() });
    for leaf in &tree.leaves {
        *leaf.search.lock() = Mood::Fails(ErrorClass::Internal);
    }
    let (first, second) = (asked(&tree, "rust"), asked(&tree, "tree"));
    let both = tokio::join!(tree.root.search(&first), tree.root.search(&second));
    for refused in [both.0.unwrap_err(), both.1.unwrap_err()] {
        assert_eq!((refused.http_status(), refused.code()), (503, "UNAVAILABLE"));
        assert!(refused.to_string().contains("lost a leaf"), "{refused}");
    }
    assert_eq!(seen(&tree), 1, "the one that came meanwhile waited for the verdict");
    // The leaves are well again, and the shape is given another chance after a while.
    for leaf in &tree.leaves {
        *leaf.search.lock() = Mood::Answers;
        assert_eq!(leaf.running.load(Ordering::SeqCst), 0);
    }
    assert!(tree.root.search(&asked(&tree, "rust")).await.is_err());
    tokio::time::advance(REFUSED).await;
    assert!(tree.root.search(&asked(&tree, "rust")).await.unwrap().coverage.complete);
}

#[tokio::test(start_paused = true)]
async fn a_leaf_that_refuses_or_is_late_says_nothing_of_the_shape() {
    let tree = tree(1, 5, RootConfig { canary: true, ..RootConfig::default() });
    for mood in [Mood::Fails(ErrorClass::Overloaded), Mood::Hangs] {
        *tree.leaves[0].search.lock() = mood;
        let error = tree.root.search(&asked(&tree, "rust")).await.unwrap_err();
        assert!(matches!(error, Error::NothingAnswered { .. }), "{error}");
    }
    *tree.leaves[0].search.lock() = Mood::Answers;
    assert!(tree.root.search(&asked(&tree, "rust")).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn those_that_waited_in_vain_do_not_wait_for_one_another() {
    let tree = tree(1, 5, RootConfig { canary: true, ..RootConfig::default() });
    *tree.leaves[0].search.lock() = Mood::Hangs;
    let ten: Vec<Asked> = (0..10).map(|_| asked(&tree, "rust")).collect();
    let answers = futures::future::join_all(ten.iter().map(|asked| tree.root.search(asked)));
    // The first try has said nothing after half of the time, 500 ms.
    let later = async {
        tokio::time::sleep(Duration::from_millis(600)).await;
        tree.leaves[0].running.load(Ordering::SeqCst)
    };
    let (answers, running) = tokio::join!(answers, later);
    assert_eq!(running, 10, "one tries once more; whoever tried first and all others search");
    assert!(answers.iter().all(Result::is_err));
}

#[tokio::test(start_paused = true)]
async fn the_oldest_shape_is_forgotten() {
    let mut shapes = Shapes::default();
    let now = Instant::now();
    for shape in 0..=MOST as u64 {
        assert_eq!(shapes.ask(shape, now), Verdict::Try);
        shapes.told(shape, &Sign::Lives, now);
    }
    assert_eq!((shapes.ask(1, now), shapes.ask(0, now)), (Verdict::Go, Verdict::Try));
    assert_eq!(shapes.ask(0, now), Verdict::Wait);
    shapes.told(0, &Sign::Unknown, now);
    assert_eq!(shapes.ask(0, now), Verdict::Try);
    assert!(shapes.known.len() <= MOST && shapes.order.len() <= MOST);
}
