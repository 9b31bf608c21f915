//! How it looks: narrow screens, light and dark, and whether everything can be read.

use serde_json::{Value, json};

use crate::{page::Page, world::with_browser};

/// One page of each kind.
const KINDS: [(&str, &str); 5] = [
    ("start", "/"),
    ("results", "/?q=%22replication+slots&filter=lang:%22en%22"),
    ("why", "/?q=replication+slots&explain=1"),
    ("none", "/?q=zzqqxxwithaverylongwordthatnoscreeniswideenoughforhoweverlargeitmaybe"),
    ("pages", "/?q=%E3%83%87%E3%83%BC%E3%82%BF+server&page=4"),
];

/// Texts whose contrast with what is behind them is below 4.5 to 1 (WCAG 2 AA).
const PALE: &str = r"
    const light = c => { const v = c / 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
    const parts = text => (text.match(/[\d.]+/g) ?? []).map(Number);
    const luminance = ([r, g, b]) => 0.2126 * light(r) + 0.7152 * light(g) + 0.0722 * light(b);
    const ground = e => {
        for (; e; e = e.parentElement) {
            const c = parts(getComputedStyle(e).backgroundColor);
            if (c.length === 3 || c[3] === 1) return c;
        }
        return [255, 255, 255];
    };
    const pale = [];
    for (const e of document.querySelectorAll('body *')) {
        const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
        if (!own || !e.checkVisibility() || e.closest('.hidden, .skip')) continue;
        const [a, b] = [luminance(parts(getComputedStyle(e).color)), luminance(ground(e))];
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 4.5) pale.push(`${e.tagName}.${e.className} ${contrast.toFixed(2)}: ${e.innerText.slice(0, 30)}`);
    }
    return pale";

/// Whatever sticks out to the right of the screen.
const WIDE: &str = "return document.documentElement.scrollWidth <= innerWidth ? [] :
    [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 0.5)
        .map(e => `${e.tagName}.${e.className}`)";

/// The check must see a fault, or it proves nothing.
async fn sees(page: &Page, check: &str, fault: &str) {
    page.run(fault, json!([])).await;
    assert_ne!(page.run(check, json!([])).await, Value::Array(Vec::new()), "{fault}");
}

async fn none(page: &Page, script: &str, what: &str) {
    let found = page.run(script, json!([])).await;
    assert_eq!(found, Value::Array(Vec::new()), "{what}");
}

#[test]
fn narrow_screens_scroll_one_way_only() {
    with_browser("narrow", |world| async move {
        let page = world.page(&world.tree).await;
        page.width(360).await;
        for (kind, path) in KINDS {
            page.open(path).await;
            page.picture(&format!("narrow-{kind}")).await;
            assert_eq!(page.value("return innerWidth").await, "360");
            none(&page, WIDE, kind).await;
        }
        sees(&page, WIDE, "document.querySelector('.hit h2').style.width = '400px'").await;
        page.open("/?q=replication").await;
        assert_eq!(page.texts(".facets a").await, [""; 0], "the filters start folded");
        page.click(".facets summary", "Filters").await;
        page.picture("narrow-filters").await;
        assert!(page.texts(".facets a").await.len() > 3);
        none(&page, WIDE, "with filters").await;
        page.follow(".facets a", "English").await;
        assert_eq!(page.texts(".chip.on").await, ["Language: English ×"]);
    });
}

#[test]
fn everything_can_be_read_in_light_and_dark() {
    with_browser("contrast", |world| async move {
        let page = world.page(&world.tree).await;
        for dark in [false, true] {
            page.dark(dark).await;
            for (kind, path) in KINDS {
                page.open(path).await;
                if dark {
                    page.picture(&format!("dark-{kind}")).await;
                }
                none(&page, PALE, &format!("{kind}, dark: {dark}")).await;
            }
            sees(&page, PALE, "document.querySelector('.snippet').style.color = '#777'").await;
            let ground = page.value("return getComputedStyle(document.body).backgroundColor").await;
            let first: u32 = ground
                .trim_start_matches(|c: char| !c.is_ascii_digit())
                .split(',')
                .next()
                .and_then(|number| number.parse().ok())
                .expect("a colour");
            assert_eq!(first < 60, dark, "{ground}");
        }
    });
}

#[test]
fn every_page_has_its_landmarks() {
    with_browser("landmarks", |world| async move {
        let page = world.page(&world.tree).await;
        for (kind, path) in KINDS {
            page.open(path).await;
            for landmark in ["h1", "main", "[role=search]"] {
                assert_eq!(page.texts(landmark).await.len(), 1, "{kind}: {landmark}");
            }
            let unnamed =
                "return [...document.querySelectorAll('input:not([type=hidden]), select, nav, aside')]
                .filter(e => !e.labels?.length && !e.ariaLabel).map(e => e.outerHTML)";
            none(&page, unnamed, kind).await;
            let doubled = "const ids = [...document.querySelectorAll('[id]')].map(e => e.id);
                return ids.filter((id, at) => ids.indexOf(id) !== at)";
            none(&page, doubled, kind).await;
        }
    });
}
