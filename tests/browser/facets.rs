//! Filters: what a click on a facet does, how it is shown and taken off again.

use crate::world::with_browser;

#[test]
fn a_facet_narrows_the_results_until_it_is_taken_off() {
    with_browser("facets", |world| async move {
        let page = world.page(&world.tree).await;
        page.open("/").await;
        page.search("server").await;
        let (all, first) = (page.count().await, page.addresses().await);
        assert_eq!(page.texts(".facets h2").await, ["SITE", "LANGUAGE"]);
        let line = page.texts(".facets a").await.into_iter().find(|line| line.starts_with("Deutsch"));
        let german: u64 =
            line.as_ref().and_then(|line| line.rsplit_once('\n')?.1.parse().ok()).expect("a count");
        assert!(german > 0 && german < all, "{line:?}");

        page.follow(".facets a", "Deutsch").await;
        page.picture("filtered").await;
        assert_eq!(page.count().await, german, "the count that the facet promised");
        assert!(page.texts(".hit .meta").await.iter().all(|meta| meta.starts_with("Deutsch")));
        assert_eq!(page.texts(".chip.on").await, ["Language: Deutsch ×"]);
        assert_eq!(page.texts(".facets a[aria-current=true] span:first-child").await, ["Deutsch"]);

        let host = page.texts(".facets section:first-of-type a span:first-child").await;
        page.follow(".facets a", &host[0]).await;
        assert_eq!(page.texts(".chip.on").await.len(), 2);
        assert!(page.texts(".address").await.iter().all(|address| address.starts_with(&host[0])));
        page.follow(".facets a[aria-current]", &host[0]).await;
        assert_eq!(page.count().await, german, "a second click takes it off");

        page.search("Paket").await;
        assert_eq!(page.texts(".chip.on").await, ["Language: Deutsch ×"], "a new query keeps it");
        page.search("server").await;
        page.follow(".chip.on", "Deutsch").await;
        assert_eq!((page.count().await, page.addresses().await), (all, first));
        assert_eq!(page.texts(".chip.on").await, [""; 0]);
    });
}
