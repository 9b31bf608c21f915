//! A page's HTML as text, in one pass over a stream of tokens: title, visible text, language, links and what the page
//! says about its own address. No tree is built, so that memory and time follow the size of the page, however deep or
//! broken it is.
//!
//! What a reader does not see is dropped: scripts, styles, templates, drawings, menus (`nav`), and elements marked
//! `hidden`. Broken pages leave elements open, and dropping up to a missing end tag would drop the page; so text is
//! collected first and cut out when the end tag comes. A page that has only menus keeps them.
//!
//! Blocks end lines, everything else runs on; white space is one space, as on screen.

mod elements;
mod text;

use std::{cell::RefCell, rc::Rc};

use lol_html::{
    AsciiCompatibleEncoding, DocumentContentHandlers, ElementContentHandlers, HtmlRewriter, MemorySettings,
    Selector, Settings,
};

use self::text::Text;

/// Most links kept of a page.
pub const MAX_LINKS: usize = 2000;
/// Longest link text kept, bytes.
const MAX_LINK_TEXT: usize = 512;
/// Longest title kept, bytes.
const MAX_TITLE: usize = 4096;
/// Most memory of the tokeniser, bytes.
const MAX_MEMORY: usize = 64 << 20;

/// What was found in a page. Addresses are as written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    /// Title; empty when there is none.
    pub(super) title: String,
    /// Visible text.
    pub(super) body: String,
    /// Language of the `html` element, as written.
    pub(super) language: Option<String>,
    /// The address of record.
    pub(super) canonical: Option<String>,
    /// What links are relative to.
    pub(super) base: Option<String>,
    /// Links: address, text.
    pub(super) links: Vec<(String, String)>,
}

/// Reads a page; the error says what the tokeniser could not do.
pub(super) fn read(html: &str) -> Result<Page, String> {
    let reader = Rc::new(RefCell::new(Reader::default()));
    let all = "*".parse::<Selector>().map_err(|error| error.to_string())?;
    let (elements, texts) = (reader.clone(), reader.clone());
    let on_element = ElementContentHandlers::default().element(
        move |element: &mut lol_html::html_content::Element<'_, '_>| {
            elements::open(&elements, element);
            Ok(())
        },
    );
    let on_text =
        DocumentContentHandlers::default().text(move |chunk: &mut lol_html::html_content::TextChunk<'_>| {
            texts.borrow_mut().text(html, chunk);
            Ok(())
        });
    let memory = MemorySettings::new().with_max_allowed_memory_usage(MAX_MEMORY);
    let settings = Settings::new()
        .append_element_content_handler((std::borrow::Cow::Owned(all), on_element))
        .append_document_content_handler(on_text)
        .with_encoding(AsciiCompatibleEncoding::utf_8())
        .with_memory_settings(memory)
        .with_strict(false);
    let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
    for part in html.as_bytes().chunks(64 << 10) {
        rewriter.write(part).map_err(|error| error.to_string())?;
    }
    rewriter.end().map_err(|error| error.to_string())?;
    Ok(reader.take().finish())
}

/// State while reading.
#[derive(Default)]
struct Reader {
    page: Page,
    text: Text,
    title: Option<Text>,
    in_title: bool,
    /// Titles and summaries for pages without text of their own.
    other_title: Option<String>,
    summary: Option<String>,
    /// Menus that were cut out.
    menus: String,
    /// The link that is open: address, text.
    link: Option<(String, Text)>,
    /// The text node that is being read, entities not yet decoded.
    node: String,
    /// Where the last text ended in the page, bytes.
    end: usize,
}

impl Reader {
    /// Ends the line, and a word of the open link.
    fn line(&mut self) {
        self.text.line();
        if let Some((_, link)) = &mut self.link {
            link.space();
        }
    }

    /// A part of a text node. Entities may be split between parts, so the node is decoded as a whole.
    fn text(&mut self, html: &str, chunk: &lol_html::html_content::TextChunk<'_>) {
        use lol_html::html_content::TextType;
        let here = chunk.source_location().bytes();
        if here.start != self.end && html.get(self.end..here.start).is_some_and(elements::ends_block) {
            self.line();
        }
        self.end = here.end;
        self.node.push_str(chunk.as_str());
        if !chunk.last_in_text_node() {
            return;
        }
        let node = std::mem::take(&mut self.node);
        match chunk.text_type() {
            TextType::RCData if self.in_title => {
                self.title.get_or_insert_default().push(&htmlize::unescape(node), MAX_TITLE);
            }
            TextType::Data => self.visible(&htmlize::unescape(node)),
            TextType::CDataSection | TextType::PlainText => self.visible(&node),
            TextType::RCData | TextType::RawText | TextType::ScriptData => {}
        }
    }

    fn visible(&mut self, text: &str) {
        self.text.push(text, usize::MAX);
        if let Some((_, link)) = &mut self.link {
            link.push(text, MAX_LINK_TEXT);
        }
    }

    fn open_link(&mut self, address: String) {
        self.close_link();
        self.link = Some((address, Text::default()));
    }

    fn close_link(&mut self) {
        if let Some((address, text)) = self.link.take() {
            let text = text.finish();
            if !text.is_empty() && self.page.links.len() < MAX_LINKS {
                self.page.links.push((address, text));
            }
        }
    }

    fn finish(mut self) -> Page {
        self.close_link();
        let title = self.title.map(Text::finish).filter(|title| !title.is_empty());
        self.page.title = title.or(self.other_title).unwrap_or_default();
        self.page.body = self.text.finish();
        if self.page.body.is_empty() {
            self.page.body = self.summary.unwrap_or_default();
        }
        if self.page.body.is_empty() {
            self.page.body = self.menus.trim_end().to_owned();
        }
        self.page
    }
}

#[cfg(test)]
mod tests;
