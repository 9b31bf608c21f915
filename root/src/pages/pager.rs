//! Links to the other pages. Pages are numbered while `offset` reaches; beyond it the API's cursor goes on.

use super::{
    html::{escape, put},
    view::{PAGE, View},
};
use crate::answer::Answer;

/// Page numbers shown on either side of the present one.
const AROUND: u32 = 3;

/// The links, as HTML; empty when there is one page only.
pub fn nav(view: &View, answer: &Answer) -> String {
    let known = u32::try_from(answer.total.value.div_ceil(u64::from(PAGE))).unwrap_or(u32::MAX);
    let here = view.page;
    let more = answer.next_cursor.is_some() && here < view.last_page;
    let last = known.min(view.last_page).max(here).max(if more { here + 1 } else { here });
    if last <= 1 {
        return String::new();
    }
    let link = |page: u32, label: &str, rel: &str| {
        let address = escape(&view.at(page).address());
        format!("<li><a href=\"{address}\"{rel}>{label}</a></li>")
    };
    let mut items = String::new();
    if here > 1 {
        items += &link(here - 1, "Previous", " rel=\"prev\"");
    }
    for page in here.saturating_sub(AROUND).max(1)..=(here + AROUND).min(last) {
        if page == here {
            put!(items, "<li><span aria-current=\"page\">{page}</span></li>");
        } else {
            items += &link(page, &page.to_string(), &format!(" aria-label=\"Page {page}\""));
        }
    }
    if more {
        items += &link(here + 1, "Next", " rel=\"next\"");
    }
    format!("<nav class=\"pager\" aria-label=\"Pages\"><ul>{items}</ul></nav>")
}
