//! What each element means for the text.

use std::{cell::RefCell, rc::Rc};

use lol_html::html_content::{Element, EndTag};

use super::{MAX_LINK_TEXT, Reader};

/// The namespace of HTML elements.
const HTML: &str = "http://www.w3.org/1999/xhtml";

type Shared = Rc<RefCell<Reader>>;

/// An element begins.
pub(super) fn open(reader: &Shared, element: &mut Element<'_, '_>) {
    let name = element.tag_name();
    let html = element.namespace_uri() == HTML;
    if element.has_attribute("hidden") || (html && unseen(&name)) || name == "svg" {
        let mark = reader.borrow_mut().text.mark();
        let menu = name == "nav";
        at_end(reader, element, move |reader| {
            let cut = reader.text.cut(mark);
            if menu {
                reader.menus.push_str(&cut);
            }
        });
    } else if html {
        meaning(reader, element, &name);
        if block(&name) {
            reader.borrow_mut().line();
        }
    }
    if html && name == "a" {
        link(reader, element);
    }
}

fn meaning(reader: &Shared, element: &mut Element<'_, '_>, name: &str) {
    let mut state = reader.borrow_mut();
    match name {
        "html" => {
            let language = attribute(element, "lang").or_else(|| attribute(element, "xml:lang"));
            state.page.language = state.page.language.take().or(language);
        }
        "title" if state.title.is_none() => {
            state.in_title = true;
            drop(state);
            at_end(reader, element, |reader| reader.in_title = false);
        }
        "base" => {
            let base = attribute(element, "href");
            state.page.base = state.page.base.take().or(base);
        }
        "link" => {
            let relations = attribute(element, "rel").unwrap_or_default();
            let canonical =
                relations.split_ascii_whitespace().any(|word| word.eq_ignore_ascii_case("canonical"));
            if canonical && state.page.canonical.is_none() {
                state.page.canonical = attribute(element, "href");
            }
        }
        "meta" => meta(&mut state, element),
        "img" => {
            if let (Some((_, text)), Some(alt)) = (&mut state.link, attribute(element, "alt")) {
                text.space();
                text.push(&alt, MAX_LINK_TEXT);
                text.space();
            }
        }
        "br" => state.line(),
        "td" | "th" | "button" | "input" | "label" | "option" => state.text.space(),
        _ => {}
    }
}

fn meta(state: &mut Reader, element: &Element<'_, '_>) {
    let name = attribute(element, "name").or_else(|| attribute(element, "property"));
    let slot = match name.unwrap_or_default().to_ascii_lowercase().as_str() {
        "og:title" => &mut state.other_title,
        "description" | "og:description" => &mut state.summary,
        _ => return,
    };
    if slot.is_none() {
        let mut text = super::Text::default();
        text.push(&attribute(element, "content").unwrap_or_default(), super::MAX_TITLE);
        *slot = Some(text.finish()).filter(|text| !text.is_empty());
    }
}

fn link(reader: &Shared, element: &mut Element<'_, '_>) {
    let Some(address) = attribute(element, "href") else { return };
    reader.borrow_mut().open_link(address);
    at_end(reader, element, Reader::close_link);
}

/// Runs when the element's end tag comes; not at all when it never does.
fn at_end(reader: &Shared, element: &mut Element<'_, '_>, end: impl FnOnce(&mut Reader) + 'static) {
    let reader = reader.clone();
    if let Some(handlers) = element.end_tag_handlers() {
        handlers.push(Box::new(move |_: &mut EndTag<'_>| {
            end(&mut reader.borrow_mut());
            Ok(())
        }));
    }
}

fn attribute(element: &Element<'_, '_>, name: &str) -> Option<String> {
    let value = element.get_attribute(name)?;
    let value = htmlize::unescape_attribute(value.trim()).into_owned();
    (!value.is_empty()).then_some(value)
}

/// Elements whose content is not part of the page's text.
fn unseen(name: &str) -> bool {
    matches!(
        name,
        "template"
            | "nav"
            | "select"
            | "datalist"
            | "audio"
            | "video"
            | "canvas"
            | "object"
            | "iframe"
            | "dialog"
    )
}

/// Whether a block ends in what lies between two texts. End tags that nothing opened count too: they end the line on
/// screen, and without them two words would become one.
pub(super) fn ends_block(between: &str) -> bool {
    between.match_indices("</").any(|(at, _)| {
        let name = between[at + 2..].split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        name.len() <= 10 && block(&name.to_ascii_lowercase())
    })
}

/// Elements that stand on lines of their own.
fn block(name: &str) -> bool {
    matches!(
        name,
        "address"
            | "article"
            | "aside"
            | "blockquote"
            | "body"
            | "caption"
            | "center"
            | "dd"
            | "details"
            | "dir"
            | "div"
            | "dl"
            | "dt"
            | "fieldset"
            | "figcaption"
            | "figure"
            | "footer"
            | "form"
            | "h1"
            | "h2"
            | "h3"
            | "h4"
            | "h5"
            | "h6"
            | "header"
            | "hgroup"
            | "hr"
            | "legend"
            | "li"
            | "main"
            | "menu"
            | "ol"
            | "p"
            | "pre"
            | "search"
            | "section"
            | "summary"
            | "table"
            | "tbody"
            | "tfoot"
            | "thead"
            | "tr"
            | "ul"
    )
}
