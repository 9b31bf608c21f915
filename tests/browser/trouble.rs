//! Trouble in the tree, as a person sees it: a part missing is said above the results, with no part left there is a page
//! that says so, and when the tree is well again so is the page.

use canopy_tests::{
    cluster::{Cluster, Shape},
    faulty_net::Link,
    wait::wait_for,
};

use crate::world::{SHARDS, WEB, config, with_browser};

const LEAVES: [&str; 4] = ["leaf-0", "leaf-1", "leaf-2", "leaf-3"];

#[test]
fn what_is_missing_is_said_in_words() {
    with_browser("trouble", |world| async move {
        let tree = Cluster::start(&world.shelf.store, &config(&Shape::flat(4, 1), &[(WEB, SHARDS)])).await;
        let page = world.page(&tree).await;
        page.open("/").await;
        page.search("server").await;
        let whole = page.count().await;
        assert_eq!(page.texts(".notice").await, [""; 0]);

        tree.link("leaf-2", Link::Cut);
        page.search("server").await;
        page.picture("incomplete").await;
        let notice = page.text(".notice").await;
        let documents = world.tree.root().search(WEB, &[("q", "server")]).await.ok().documents().2;
        assert!(notice.starts_with("These results are incomplete: searched "), "{notice}");
        assert!(
            notice.contains(&format!(" of {documents} documents; shard main/2 could not be reached")),
            "{notice}"
        );
        assert!(page.text(".status").await.contains(" or more results"));
        assert_eq!(page.addresses().await.len(), 10);
        page.search("zzqqxx").await;
        page.picture("incomplete-none").await;
        assert!(page.text(".empty").await.contains("could not be searched just now"));
        assert!(page.text(".empty").await.contains("No document that was searched matches “zzqqxx”"));

        for leaf in LEAVES {
            tree.link(leaf, Link::Cut);
        }
        page.search("server").await;
        page.picture("failed").await;
        let text = page.text("main").await;
        for part in [
            "There is no answer just now",
            "It may work again in a moment",
            "main/0, main/1, main/2 and 1 more",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        for leaf in LEAVES {
            tree.link(leaf, Link::Open);
        }
        page.follow(".button", "Try again").await;
        wait_for("the tree to be whole again", std::time::Duration::from_secs(30), || async {
            page.follow(".box button", "Search").await;
            (page.texts(".notice, .empty").await.is_empty() && page.count().await == whole).then_some(())
        })
        .await;
        let complaints = page.console().await;
        assert!(complaints.iter().all(|line| line.contains("status of 50")), "{complaints:?}");
        tree.stop().await;
    });
}
