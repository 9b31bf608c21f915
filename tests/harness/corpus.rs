//! Generated web pages, the same for the same seed: several languages, Zipf's words, ties (families of pages with one
//! text), missing titles, bodies and dates, values of every type.
//!
//! A page is kept as what it means, not as what a reader made of it, so that the oracle shares nothing with the code
//! under test but the analysis of text.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use canopy_common::{ids::KeyHash, rng::Dice};
use serde_json::{Map, Value, json};

use crate::vocabulary::{EMOJI, LANGUAGES, Language};

/// A page.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Page {
    /// Its URL.
    pub key: String,
    /// Language of its words.
    pub language: String,
    /// Whether the record says which language it is; else the reader has to find out.
    pub says_language: bool,
    /// Title; `None`: the record has none.
    pub title: Option<String>,
    /// Body.
    pub body: Option<String>,
    /// Texts of links to it.
    pub anchors: Vec<String>,
    /// Host.
    pub host: Option<String>,
    /// Topics.
    pub topics: Vec<String>,
    /// Microseconds since 1970 UTC.
    pub published: Option<i64>,
    /// 0..1.
    pub static_rank: Option<f64>,
    /// Attributes.
    pub attributes: Map<String, Value>,
}

/// 2001-09-09, microseconds since 1970 UTC.
const EPOCH_US: i64 = 1_000_000_000_000_000;
const HOUR_US: i64 = 3_600_000_000;

impl Page {
    /// A page with a title and a body in English and nothing else.
    pub fn plain(key: &str, title: &str, body: &str) -> Self {
        Self {
            key: key.to_owned(),
            language: "en".to_owned(),
            says_language: true,
            title: Some(title.to_owned()),
            body: Some(body.to_owned()),
            ..Self::default()
        }
    }

    /// Hash of the key.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(&self.key)
    }

    /// The record that an indexer reads.
    pub fn record(&self) -> Value {
        let mut record = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            value.map(|value| record.insert(name.to_owned(), value));
        };
        put("url", Some(json!(self.key)));
        put("title", self.title.as_ref().map(|title| json!(title)));
        put("body", self.body.as_ref().map(|body| json!(body)));
        put("anchors", (!self.anchors.is_empty()).then(|| json!(self.anchors)));
        put("host", self.host.as_ref().map(|host| json!(host)));
        put("lang", self.says_language.then(|| json!(self.language)));
        put("topic", (!self.topics.is_empty()).then(|| json!(self.topics)));
        put("published", self.published.map(|us| json!(instant(us))));
        put("static_rank", self.static_rank.map(|rank| json!(rank)));
        put("attributes", (!self.attributes.is_empty()).then(|| Value::Object(self.attributes.clone())));
        Value::Object(record)
    }
}

/// RFC 3339 of microseconds since 1970 UTC.
pub fn instant(us: i64) -> String {
    jiff::Timestamp::from_microsecond(us).expect("a year that exists").to_string()
}

/// Draws pages.
struct Author {
    dice: Dice,
}

impl Author {
    fn chance(&self, of_hundred: u64) -> bool {
        self.dice.below(100) < of_hundred
    }

    /// An index below `bound`; small ones are much more likely.
    fn zipf(&self, bound: usize) -> usize {
        let drawn = (bound as f64 + 1.0).powf(self.dice.unit()) - 1.0;
        (drawn as usize).min(bound - 1)
    }

    fn language(&self) -> &'static Language {
        let mut left = self.dice.below(100) as u32;
        for language in LANGUAGES {
            if left < language.share {
                return language;
            }
            left -= language.share;
        }
        &LANGUAGES[0]
    }

    fn words(&self, language: &Language, count: usize) -> String {
        let mut text = String::new();
        for n in 0..count {
            if n > 0 {
                text.push_str(if self.chance(8) { ". " } else { language.space });
            }
            text.push_str(language.words[self.zipf(language.words.len())]);
        }
        if self.chance(5) {
            text.push(' ');
            text.push_str(EMOJI[self.dice.below(EMOJI.len() as u64) as usize]);
        }
        text
    }

    fn length(&self) -> usize {
        match self.dice.below(100) {
            0..3 => 300 + self.dice.below(500) as usize,
            3..10 => self.dice.below(5) as usize,
            _ => 8 + self.dice.below(60) as usize,
        }
    }

    fn attributes(&self) -> Map<String, Value> {
        let mut attributes = Map::new();
        let mut put = |name: &str, value| attributes.insert(name.to_owned(), value);
        if self.chance(70) {
            put("color", json!(["red", "green", "blue", "Grün", "black & white"][self.zipf(5)]));
        }
        if self.chance(60) {
            put("price", json!(self.dice.below(40) as i64 - 5));
        }
        if self.chance(30) {
            put("weight", json!(self.dice.below(20) as f64 / 4.0));
        }
        if self.chance(40) {
            put("stock", json!(self.chance(50)));
        }
        if self.chance(20) {
            put(
                "size",
                if self.chance(50) {
                    json!(self.dice.below(5))
                } else {
                    json!(["S", "M", "3"][self.zipf(3)])
                },
            );
        }
        attributes
    }

    fn page(&self, number: usize) -> Page {
        let language = self.language();
        let host = format!("host-{}.example", self.zipf(40));
        // Where the script gives the language away the record need not say it.
        let silent = ["ko", "th", "he"].contains(&language.code) && self.chance(30);
        Page {
            key: format!("https://{host}/page/{number}"),
            language: language.code.to_owned(),
            says_language: !silent,
            title: (!self.chance(4)).then(|| self.words(language, 1 + self.dice.below(7) as usize)),
            body: (silent || !self.chance(4)).then(|| self.words(language, self.length().max(3))),
            anchors: (0..self.zipf(4)).map(|_| self.words(language, 1 + self.zipf(3))).collect(),
            host: Some(host),
            topics: (0..self.zipf(4)).map(|_| format!("topic-{}", self.zipf(12))).collect(),
            published: (!self.chance(10)).then(|| EPOCH_US + self.dice.below(2000) as i64 * 37 * HOUR_US),
            static_rank: (!self.chance(8)).then(|| self.dice.below(21) as f64 / 20.0),
            attributes: self.attributes(),
        }
    }
}

/// `count` pages. One in twenty is the head of a family: the next four have its text, so that their scores tie.
pub fn generate(seed: u64, count: usize) -> Vec<Page> {
    let author = Author { dice: Dice::seeded(seed) };
    let mut pages: Vec<Page> = Vec::with_capacity(count);
    while pages.len() < count {
        let head = author.page(pages.len());
        let twins = if author.chance(5) { 4 } else { 0 };
        for _ in 0..twins.min(count - pages.len() - 1) {
            let other = author.page(pages.len());
            let (title, body, anchors) = (head.title.clone(), head.body.clone(), head.anchors.clone());
            let (language, says_language) = (head.language.clone(), head.says_language);
            pages.push(Page { language, says_language, title, body, anchors, ..other });
        }
        let key = format!("https://{}/page/{}", head.host.as_deref().unwrap_or("nowhere"), pages.len());
        pages.push(Page { key, ..head });
    }
    pages
}

/// Writes records as JSON lines.
pub fn write(path: &Path, records: &[Value]) -> PathBuf {
    let file = std::fs::File::create(path).expect("a writable directory");
    let mut out = std::io::BufWriter::new(file);
    for record in records {
        writeln!(out, "{record}").expect("written");
    }
    out.flush().expect("written");
    path.to_owned()
}
