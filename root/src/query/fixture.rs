//! A small corpus for the tests of this module: statistics made from texts by the same analysis, and a context.

use std::{collections::BTreeMap, time::Duration};

use canopy_common::{deadline::Deadline, error::Failure};
use canopy_format::{
    analysis::Analyzer,
    schema::{Field, Kind, Schema},
    statistics::{Counts, SEPARATOR, Statistics, write},
};
use canopy_proto::v1::{Query, query::Node};
use jiff::tz::TimeZone;

use super::{Newer, Parsed, QueryContext, Source, Warning, parse};

/// (language, title, body).
pub const PAGES: &[(&str, &str, &str)] = &[
    ("en", "The rust book", "the book about rust and memory, for those who run programs"),
    ("en", "Search engines", "how search engines rank the pages of the web; the who, the where"),
    ("en", "Laptops", "a laptop of 16 inches and the MacBook Pro M3; an e-mail from a.b"),
    ("en", "To be", "to be or not to be, that is the question of the play"),
    ("en", "State of the art", "state of the art systems that search and rank and run"),
    ("de", "Die Suche", "die Suchmaschine sucht die Seiten und das Buch über Rost"),
    ("de", "Häuser", "die Häuser der Stadt und ein Haus"),
    ("zh", "认证", "用户认证系统和东京大学的登录"),
    ("ja", "日本", "日本の東京大学で検索する"),
    ("ko", "사람", "사람이 검색 엔진을 만든다"),
    ("th", "ค้นหา", "ระบบค้นหาข้อมูลภาษาไทย"),
    ("he", "שלום", "שלום עולם"),
    ("ar", "مرحبا", "مرحبا بالعالم"),
    ("en", "Pears", "a pear 🍐 and a star ⭐️ and a family 👩‍👩‍👧"),
];

/// The corpus.
pub struct Fixture {
    /// The web schema with a number, a boolean and a whole number more.
    pub schema: Schema,
    /// Its statistics.
    pub statistics: Statistics,
    /// The analysis.
    pub analyzer: Analyzer,
    /// Languages of a query.
    pub languages: Vec<String>,
    /// Documents by language.
    pub corpus_languages: BTreeMap<String, u64>,
    /// Zone of a query.
    pub zone: TimeZone,
    /// Terms of one pattern.
    pub max_expansions: usize,
    /// Time for a query.
    pub budget: Duration,
    /// Where the statistics lie.
    pub _directory: tempfile::TempDir,
}

impl Fixture {
    /// The corpus, in memory until dropped.
    pub fn new() -> Self {
        Self::with(&[])
    }

    /// The corpus with more terms in the search field, written as they are.
    pub fn with(more: &[(&str, u64)]) -> Self {
        let analyzer = Analyzer::new();
        let mut tokens = BTreeMap::new();
        let mut terms: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        let mut spellings: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for (language, title, body) in PAGES {
            count(&analyzer, &["title"], &[title], language, &mut tokens, &mut terms);
            count(&analyzer, &["text"], &[title, body], language, &mut tokens, &mut terms);
            for text in [title, body] {
                analyzer.document(text, language, &mut |token| {
                    if !token.spelling.is_empty() {
                        spellings.insert(key(&token.spelling, &token.text), 1);
                    }
                });
            }
        }
        terms.extend(more.iter().map(|(term, documents)| (key("text", term), *documents)));
        spellings.extend(more.iter().map(|(term, _)| (key(term, term), 1)));
        let documents = terms.values().copied().max().unwrap_or(0).max(PAGES.len() as u64);
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("terms.fst");
        let terms: Vec<Counts> = vec![Box::new(terms.into_iter().map(Ok))];
        let spellings: Vec<Counts> = vec![Box::new(spellings.into_iter().map(Ok))];
        let entry = write(&path, documents, tokens, terms, spellings).unwrap();
        Self {
            schema: schema(),
            statistics: Statistics::open(&path, &entry).unwrap(),
            analyzer,
            languages: vec!["en".to_owned()],
            corpus_languages: languages(),
            zone: TimeZone::UTC,
            max_expansions: 128,
            budget: Duration::from_mins(1),
            _directory: directory,
        }
    }

    /// The same corpus, read in these languages.
    pub fn in_languages(languages: &[&str]) -> Self {
        Self { languages: languages.iter().map(|&code| code.to_owned()).collect(), ..Self::new() }
    }

    /// The context of a query that comes in on 2024-03-31 at noon.
    pub fn context(&self) -> QueryContext<'_> {
        QueryContext {
            schema: &self.schema,
            statistics: &self.statistics,
            analyzer: &self.analyzer,
            languages: self.languages.clone(),
            hint: "",
            corpus_languages: &self.corpus_languages,
            deadline: Deadline::after(self.budget),
            time_zone: self.zone.clone(),
            now_us: 1_711_886_400_000_000,
            max_expansions: self.max_expansions,
            newer: Newer::None,
        }
    }

    /// Documents with a term.
    pub fn documents(&self, field: &str, term: &str) -> Option<u64> {
        self.statistics.document_frequency(field, term)
    }

    /// Reads a text.
    pub fn text(&self, text: &str) -> Parsed {
        self.filtered(text, &[], 0)
    }

    /// Reads a text under filters.
    pub fn filtered(&self, text: &str, filters: &[&str], min_should_match: u32) -> Parsed {
        self.try_filtered(text, filters, min_should_match).unwrap_or_else(|e| panic!("{text:?}: {e}"))
    }

    /// The same, as it comes.
    pub fn try_filtered(&self, text: &str, filters: &[&str], wanted: u32) -> Result<Parsed, Failure> {
        let filters: Vec<String> = filters.iter().map(|&filter| filter.to_owned()).collect();
        parse(Source::Text(text), &filters, wanted, &self.context())
    }

    /// Reads a strict query.
    pub fn json(&self, json: &str) -> Result<Parsed, Failure> {
        parse(Source::Json(json), &[], 0, &self.context())
    }
}

fn languages() -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for (language, ..) in PAGES {
        *found.entry((*language).to_owned()).or_insert(0) += 1;
    }
    found
}

fn schema() -> Schema {
    let mut schema = Schema::web();
    let plain = |name: &str, kind| Field {
        name: name.to_owned(),
        kind,
        weight: 0,
        query: false,
        show: true,
        multi: false,
    };
    let more = [("price", Kind::F64), ("stock", Kind::U64), ("level", Kind::I64), ("open", Kind::Bool)];
    schema.fields.extend(more.map(|(name, kind)| plain(name, kind)));
    schema
}

fn key(field: &str, term: &str) -> Vec<u8> {
    [field.as_bytes(), &[SEPARATOR], term.as_bytes()].concat()
}

fn count(
    analyzer: &Analyzer,
    fields: &[&str],
    texts: &[&str],
    language: &str,
    tokens: &mut BTreeMap<String, u64>,
    terms: &mut BTreeMap<Vec<u8>, u64>,
) {
    for field in fields {
        let mut seen = std::collections::BTreeSet::new();
        for text in texts {
            analyzer.document(text, language, &mut |token| {
                *tokens.entry((*field).to_owned()).or_insert(0) += 1;
                seen.insert(key(field, &token.text));
            });
        }
        for term in seen {
            *terms.entry(term).or_insert(0) += 1;
        }
    }
}

/// The codes of warnings.
pub fn codes(warnings: &[Warning]) -> Vec<&'static str> {
    warnings.iter().map(|warning| warning.code).collect()
}

/// A query in short: `+[..] a b -[..] #[..] ~2`; terms by their first token, phrases in quotes.
pub fn show(query: &Query) -> String {
    let field = |name: &str| if name == "text" { String::new() } else { format!("{name}:") };
    let weight = |boost: f32| if boost == 1.0 { String::new() } else { format!("^{boost}") };
    match &query.node {
        None => "?".to_owned(),
        Some(Node::All(_)) => "ALL".to_owned(),
        Some(Node::None(_)) => "NONE".to_owned(),
        Some(Node::Term(t)) => format!("{}{}{}", field(&t.field), t.tokens.join("|"), weight(t.boost)),
        Some(Node::Phrase(p)) => {
            let each: Vec<String> = p.alternatives.iter().map(|form| form.tokens.join(" ")).collect();
            let slop = if p.slop == 0 { String::new() } else { format!("~{}", p.slop) };
            format!("{}\"{}\"{slop}{}", field(&p.field), each.join("|"), weight(p.boost))
        }
        Some(Node::Expanded(e)) => {
            let mut tokens = e.tokens.clone();
            tokens.sort();
            format!("{}<{}>{}", field(&e.field), tokens.join("|"), weight(e.boost))
        }
        Some(Node::Keyword(k)) => {
            let values: Vec<String> = k.values.iter().map(value).collect();
            format!("{}={}", k.field, values.join("|"))
        }
        Some(Node::Range(r)) => {
            let end = |bound: &Option<canopy_proto::v1::Bound>, signs: [&str; 2]| {
                let Some(bound) = bound else { return String::new() };
                let sign = signs[usize::from(bound.inclusive)];
                format!("{sign}{}", bound.value.as_ref().map(value).unwrap_or_default())
            };
            format!("{}{}{}", r.field, end(&r.lower, [">", ">="]), end(&r.upper, ["<", "<="]))
        }
        Some(Node::Bool(b)) => {
            let list = |sign: &str, clauses: &[Query]| {
                let each: Vec<String> = clauses.iter().map(show).collect();
                if each.is_empty() { None } else { Some(format!("{sign}{}", each.join(" "))) }
            };
            let bracket =
                |sign: &str, clauses: &[Query]| list("", clauses).map(|text| format!("{sign}[{text}]"));
            let parts = [
                bracket("+", &b.must),
                list("", &b.should),
                bracket("-", &b.must_not),
                bracket("#", &b.filter),
                (b.min_should_match > 0).then(|| format!("~{}", b.min_should_match)),
            ];
            format!("({})", parts.into_iter().flatten().collect::<Vec<_>>().join(" "))
        }
    }
}

fn value(value: &canopy_proto::v1::Value) -> String {
    use canopy_proto::v1::value::Kind::{Bool, DateUs, F64, I64, Text, U64};
    match &value.kind {
        Some(Text(text)) => text.clone(),
        Some(I64(n)) => n.to_string(),
        Some(U64(n)) => format!("{n}u"),
        Some(F64(x)) => format!("{x}f"),
        Some(Bool(b)) => b.to_string(),
        Some(DateUs(us)) => format!("@{}", us / 1_000_000),
        None => "?".to_owned(),
    }
}
