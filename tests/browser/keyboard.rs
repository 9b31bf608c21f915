//! The keyboard alone, and no scripts: both reach everything.

use crate::{
    page::{ENTER, ESCAPE, Page, TAB},
    world::{EXAMPLE, with_browser},
};

/// Names the focused element, and says so when nothing shows where the focus is.
const FOCUS: &str = "const e = document.activeElement;
    if (!e || e === document.body) return 'nothing';
    const style = getComputedStyle(e);
    const seen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
    const part = ['.skip', '.brand', '.box', '.status', '.hits', '.pager', '.facets', 'footer'].find(p => e.closest(p));
    return (seen ? '' : 'unseen ') + part + ' ' + (e.id || e.innerText.split('\\n')[0].trim())";

/// Presses Tab until the focus is on something whose name begins so; what it passed.
async fn tab_to(page: &Page, wanted: &str) -> Vec<String> {
    let mut passed = Vec::new();
    while passed.len() < 100 {
        page.press(TAB).await;
        let focus = page.value(FOCUS).await;
        assert!(!focus.starts_with("unseen"), "{focus}");
        passed.push(focus);
        if passed.last().is_some_and(|focus| focus.starts_with(wanted)) {
            return passed;
        }
    }
    panic!("{wanted} is not reached: {passed:?}");
}

#[test]
fn tab_and_enter_reach_everything_in_reading_order() {
    with_browser("tab", |world| async move {
        let page = world.page(&world.tree).await;
        page.open("/").await;
        page.leave(page.press(&format!("{EXAMPLE}{ENTER}"))).await;
        let passed = tab_to(&page, "footer this answer as JSON").await;
        let mut parts: Vec<&str> = passed.iter().map(|focus| focus.split(' ').next().unwrap_or("")).collect();
        parts.dedup();
        assert_eq!(parts, [".skip", ".brand", ".box", ".hits", ".pager", ".facets", "footer"], "{passed:?}");
        let links = passed.iter().filter(|focus| focus.starts_with(".hits")).count();
        assert_eq!(links, 20, "ten titles, ten reasons: {passed:?}");

        page.open("/").await;
        page.leave(page.press(&format!("{EXAMPLE}{ENTER}"))).await;
        let first = page.addresses().await;
        tab_to(&page, ".skip").await;
        page.picture("skip").await;
        page.press(ENTER).await;
        assert_eq!(tab_to(&page, ".hits").await.len(), 1, "the skip link leads to the results");
        tab_to(&page, ".pager Next").await;
        page.leave(page.press(ENTER)).await;
        assert_ne!(page.addresses().await, first);
        tab_to(&page, ".facets English").await;
        page.leave(page.press(ENTER)).await;
        assert_eq!(page.texts(".chip.on").await, ["Language: English ×"]);
        tab_to(&page, ".status Language").await;
        page.leave(page.press(ENTER)).await;
        assert_eq!(page.addresses().await, first);
    });
}

#[test]
fn shortcuts_walk_the_results() {
    with_browser("shortcuts", |world| async move {
        let page = world.page(&world.tree).await;
        page.open(&format!("/?q={}", EXAMPLE.replace(' ', "+"))).await;
        let addresses = page.addresses().await;
        let focused = "return document.activeElement.href ?? document.activeElement.id";
        page.press("jj").await;
        assert_eq!(page.value(focused).await, addresses[1]);
        page.press("k").await;
        assert_eq!(page.value(focused).await, addresses[0]);
        page.press("/").await;
        assert_eq!(page.value(focused).await, "q");
        page.press("jk").await;
        assert_eq!(
            page.value("return document.getElementById('q').value").await,
            "jk",
            "typing stays typing"
        );
        page.press(ESCAPE).await;
        page.press("j").await;
        assert_eq!(page.value(focused).await, addresses[0]);
    });
}

#[test]
fn everything_works_without_scripts() {
    with_browser("no-scripts", |world| async move {
        let page = world.page(&world.tree).await;
        page.forbid_scripts().await;
        page.open("/").await;
        page.search(EXAMPLE).await;
        page.press("j").await;
        let active = "return document.activeElement.className";
        assert_ne!(page.value(active).await, "go", "the page's script does not run");
        let first = page.addresses().await;
        assert_eq!(first.len(), 10);
        page.follow(".pager a", "Next").await;
        assert!(page.addresses().await.iter().all(|address| !first.contains(address)));
        page.follow(".facets a", "English").await;
        assert_eq!(page.texts(".chip.on").await, ["Language: English ×"]);
        page.follow("#hit-1 .why", "Why").await;
        assert_eq!(page.texts("details[open].explain").await.len(), 1);
        page.follow(".chip.on", "English").await;
        assert_eq!(page.addresses().await, first);
        page.width(360).await;
        page.open("/?q=replication").await;
        page.picture("no-scripts").await;
        page.click(".facets summary", "Filters").await;
        assert_eq!(page.texts(".facets a").await, [""; 0], "the filters fold without scripts");
    });
}
