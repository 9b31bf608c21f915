//! A page as a document: the names of the web schema, addresses made absolute, text bounded.

use canopy_format::document::Reject;
use serde_json::{Map, Value};
use url::Url;

use super::{Link, charset, html, http::Response, reject};

/// Longest address that is kept, bytes.
const MAX_ADDRESS: usize = 2048;

/// What an archive record holds.
pub(super) struct Body<'a> {
    /// Where it was fetched from.
    pub(super) address: &'a str,
    /// `Content-Type` of the record.
    pub(super) content_type: &'a str,
    /// The bytes: a whole HTTP response when the type is `application/http`, else the page itself.
    pub(super) payload: &'a [u8],
}

/// A document, its links, and its own word for its address.
pub(super) struct Document {
    pub(super) object: Map<String, Value>,
    pub(super) links: Vec<Link>,
    pub(super) canonical: Option<String>,
}

/// The document of a record; `None` when it is no page: another type, an error page, an address that is not of the web.
pub(super) fn document(content: &Body<'_>) -> Result<Option<Document>, Reject> {
    let Some(address) = address(content.address)? else { return Ok(None) };
    if !kind(content.content_type).eq_ignore_ascii_case("application/http") {
        return page(&address, content.content_type, None, content.payload);
    }
    let response = Response::parse(content.payload)?;
    if !(200..300).contains(&response.status) || !may_be_page(&response.content_type) {
        return Ok(None);
    }
    let body = response.body()?;
    page(&address, &response.content_type, response.language.as_deref(), &body)
}

fn page(
    address: &Url,
    content_type: &str,
    language: Option<&str>,
    body: &[u8],
) -> Result<Option<Document>, Reject> {
    let kind = match kind(content_type).to_ascii_lowercase() {
        named if !named.is_empty() => named,
        _ if looks_like_html(body) => "text/html".to_owned(),
        _ => return Ok(None),
    };
    let charset = parameter(content_type, "charset");
    let mut found = match kind.as_str() {
        "text/html" | "application/xhtml+xml" => {
            let text = charset::decode(body, charset.as_deref(), true);
            html::read(&text)
                .map_err(|error| reject("record", format!("its HTML cannot be read: {error}")))?
        }
        "text/plain" => {
            let body = charset::decode(body, charset.as_deref(), false).trim().to_owned();
            html::Page { body, ..html::Page::default() }
        }
        _ => return Ok(None),
    };
    let base = found.base.take().and_then(|base| address.join(&base).ok()).unwrap_or_else(|| address.clone());
    let links = found.links.drain(..).filter_map(|(to, text)| {
        let url = resolve(&base, &to).filter(|url| url != address)?;
        Some(Link { url: url.into(), text })
    });
    let links = links.collect();
    let canonical = found.canonical.take().and_then(|to| resolve(&base, &to));
    let canonical = canonical.filter(|canonical| canonical != address).map(String::from);
    Ok(Some(Document { object: object(address, found, language), links, canonical }))
}

fn object(address: &Url, page: html::Page, served: Option<&str>) -> Map<String, Value> {
    let mut object = Map::new();
    let mut set = |name: &str, value: &str| {
        if !value.is_empty() {
            object.insert(name.to_owned(), Value::from(value));
        }
    };
    set("url", address.as_str());
    set("title", &page.title);
    set("body", &page.body);
    let language = page.language.as_deref().and_then(language).or_else(|| served.and_then(language));
    set("lang", &language.unwrap_or_default());
    object
}

/// The address of a page, without its fragment; `None` when it is not of the web.
fn address(text: &str) -> Result<Option<Url>, Reject> {
    let text = text.trim().trim_start_matches('<').trim_end_matches('>');
    let wrong = |reason: String| Err(reject("WARC-Target-URI", reason));
    if text.len() > MAX_ADDRESS {
        return wrong(format!("it has {} bytes, at most {MAX_ADDRESS} are allowed", text.len()));
    }
    let scheme = text.split(':').next().unwrap_or_default();
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return if text.is_empty() { wrong("missing".into()) } else { Ok(None) };
    }
    match Url::parse(text) {
        Ok(mut url) => {
            url.set_fragment(None);
            Ok(Some(url))
        }
        Err(error) => wrong(format!("{error}")),
    }
}

fn resolve(base: &Url, to: &str) -> Option<Url> {
    let mut url = base.join(to).ok()?;
    url.set_fragment(None);
    (matches!(url.scheme(), "http" | "https") && url.as_str().len() <= MAX_ADDRESS).then_some(url)
}

/// The language code of a tag such as `de-AT`.
fn language(tag: &str) -> Option<String> {
    let code = tag.split(['-', '_']).next()?.trim();
    let good = (2..=3).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_alphabetic());
    good.then(|| code.to_ascii_lowercase())
}

/// A content type without its parameters.
fn kind(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

fn may_be_page(content_type: &str) -> bool {
    let kind = kind(content_type).to_ascii_lowercase();
    matches!(kind.as_str(), "" | "text/html" | "application/xhtml+xml" | "text/plain")
}

fn parameter(content_type: &str, name: &str) -> Option<String> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (key, value) = parameter.split_once('=')?;
        key.trim().eq_ignore_ascii_case(name).then(|| value.trim().trim_matches(['"', '\'']).to_owned())
    })
}

fn looks_like_html(body: &[u8]) -> bool {
    let head = body[..body.len().min(512)].trim_ascii_start().to_ascii_lowercase();
    [&b"<!doctype html"[..], b"<html", b"<head", b"<body"].iter().any(|start| head.starts_with(start))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(address: &str, content_type: &str, payload: &str) -> Result<Option<Document>, Reject> {
        document(&Body { address, content_type, payload: payload.as_bytes() })
    }

    #[test]
    fn addresses_are_made_absolute() {
        let html = "<html lang=EN_us><base href='/dir/'><link rel=canonical href='//e.org/c#x'>\
                    <a href='a b?q=1#f'>one</a><a href='mailto:x'>two</a><a href='#top'>three</a>\
                    <a href='javascript:void'>four</a><a href='http://[bad'>five</a><a href='https://o.net'>six</a>";
        let document = read("<HTTP://E.org:80/%7Ea/ä#f>", "text/html", html).unwrap().unwrap();
        assert_eq!(document.object["url"], "http://e.org/%7Ea/%C3%A4");
        assert_eq!(document.object["lang"], "en");
        assert_eq!(document.canonical.as_deref(), Some("http://e.org/c"));
        let links: Vec<_> =
            document.links.iter().map(|link| (link.url.as_str(), link.text.as_str())).collect();
        assert_eq!(
            links,
            [
                ("http://e.org/dir/a%20b?q=1", "one"),
                ("http://e.org/dir/", "three"),
                ("https://o.net/", "six")
            ]
        );
    }

    #[test]
    fn what_is_no_page_is_left_out() {
        for (address, content_type, payload) in [
            ("dns:e.org", "text/plain", "x"),
            ("urn:x", "text/html", "x"),
            ("http://e.org/", "image/png", "x"),
            ("http://e.org/", "", "x"),
            ("http://e.org/", "application/http; msgtype=response", "HTTP/1.1 404 No\r\n\r\n<html>"),
            ("http://e.org/", "application/http", "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\n<html>"),
        ] {
            assert!(read(address, content_type, payload).unwrap().is_none(), "{address} {content_type}");
        }
        for address in ["", "  ", "<>", "http://", "http://[x", "https://e.org:99999/"] {
            assert_eq!(read(address, "text/html", "x").err().unwrap().field, "WARC-Target-URI", "{address}");
        }
        assert!(read(&format!("http://e.org/{}", "x".repeat(3000)), "text/html", "x").is_err());
    }

    #[test]
    fn types_and_charsets_are_found() {
        let plain = read("http://e.org/", "Text/Plain; Charset=\"utf-8\"", " <b>ä</b>\n").unwrap().unwrap();
        assert_eq!(plain.object["body"], "<b>ä</b>");
        assert!(!plain.object.contains_key("title") && !plain.object.contains_key("lang"));
        let guessed = read("http://e.org/", "", "\n<!DOCTYPE html><title>t</title>x").unwrap().unwrap();
        assert_eq!((&guessed.object["title"], &guessed.object["body"]), (&"t".into(), &"x".into()));
        let http = "HTTP/1.0 203 OK\r\nContent-Type: text/html\r\nContent-Language: fr, en\r\n\r\n<p>x";
        let response = read("http://e.org/", "application/http;msgtype=response", http).unwrap().unwrap();
        assert_eq!(response.object["body"], "x");
    }
}
