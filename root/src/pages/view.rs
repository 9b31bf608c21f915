//! What the address of the page asks for, and the addresses of its neighbours: next page, one filter more or less.
//! The page's parameters have the API's names; unknown ones (as links collect them) are ignored.

use std::sync::Arc;

use canopy_proto::v1::QueryRequest;

use super::html::{encode, put};
use crate::{search::Root, versions::CorpusState};

/// Hits on a page.
pub const PAGE: u32 = 10;
/// Filters taken from an address.
const MAX_FILTERS: usize = 16;

/// One state of the page.
#[derive(Clone)]
pub struct View {
    /// The query text.
    pub q: String,
    /// The corpus.
    pub corpus: String,
    /// Page number, from 1.
    pub page: u32,
    /// As in the API: `host:"example.org"`.
    pub filters: Vec<String>,
    /// The hit, from 1, whose breakdown is shown; 0: none.
    pub explain: u32,
    /// All open corpora, for the choice.
    pub corpora: Vec<Arc<CorpusState>>,
    /// What is not open yet.
    pub opening: Vec<String>,
    /// Deepest page.
    pub last_page: u32,
}

/// The filter for one value of a field; `None` for a value that the filter language can't write.
pub fn filter(field: &str, value: &str) -> Option<String> {
    if !value.contains('"') && !value.is_empty() {
        return Some(format!("{field}:\"{value}\""));
    }
    let plain =
        value.trim() == value && !value.starts_with(['"', '[', '{', '<', '>']) && !value.ends_with('*');
    (plain && !value.contains(',') && !value.is_empty()).then(|| format!("{field}:{value}"))
}

/// Field and value of a filter, as people read it.
pub fn parts(filter: &str) -> (&str, &str) {
    let (field, value) = filter.split_once(':').unwrap_or(("", filter));
    (field, value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value))
}

impl View {
    /// Reads an address.
    pub fn read(pairs: Vec<(String, String)>, root: &Root) -> Self {
        let corpora = root.versions.open();
        let first = corpora.first().map_or_else(String::new, |corpus| corpus.manifest.corpus.clone());
        let last_page = (root.config.max_offset / PAGE).max(1);
        let mut view = Self {
            q: String::new(),
            corpus: first,
            page: 1,
            filters: Vec::new(),
            explain: 0,
            corpora,
            opening: root.versions.opening(),
            last_page,
        };
        for (name, value) in pairs {
            match name.as_str() {
                "q" => view.q = value,
                "corpus" if !value.is_empty() => view.corpus = value,
                "page" => view.page = value.parse().unwrap_or(1).clamp(1, last_page),
                "filter" if view.filters.len() < MAX_FILTERS => view.filters.push(value),
                "explain" => view.explain = value.parse().unwrap_or(1).min(PAGE),
                _ => {}
            }
        }
        view
    }

    /// Whether there is anything to search for.
    pub fn searches(&self) -> bool {
        !self.q.trim().is_empty() || !self.filters.is_empty()
    }

    /// The corpus, when it is open.
    pub fn state(&self) -> Option<&CorpusState> {
        self.corpora.iter().map(AsRef::as_ref).find(|corpus| corpus.manifest.corpus == self.corpus)
    }

    /// The call.
    pub fn request(&self, root: &Root) -> QueryRequest {
        let schema = self.state().map(|corpus| &corpus.manifest.schema);
        let countable = |field: &&String| {
            schema.and_then(|schema| schema.field(field)).is_some_and(|field| {
                use canopy_format::schema::Kind;
                matches!(field.kind, Kind::Keyword | Kind::Bool | Kind::I64 | Kind::U64)
            })
        };
        let facets: Vec<&str> =
            root.config.page_facets.iter().filter(countable).map(String::as_str).collect();
        QueryRequest {
            corpus: self.corpus.clone(),
            q: self.q.clone(),
            k: Some(PAGE.min(root.config.max_k)),
            offset: (self.page - 1) * PAGE,
            filter: self.filters.clone(),
            facets: facets.join(","),
            explain: self.explain > 0,
            ..Default::default()
        }
    }

    /// The address of this state; the first page and other defaults are left out.
    pub fn address(&self) -> String {
        let mut address = format!("/?{}", self.parameters());
        if self.corpora.len() > 1 {
            put!(address, "&corpus={}", encode(&self.corpus));
        }
        if self.page > 1 {
            put!(address, "&page={}", self.page);
        }
        if self.explain > 0 {
            put!(address, "&explain={}", self.explain);
        }
        address
    }

    /// The same query at the API.
    pub fn api_address(&self) -> String {
        let mut address = format!("/v1/{}/search?{}", encode(&self.corpus), self.parameters());
        if self.page > 1 {
            put!(address, "&offset={}", (self.page - 1) * PAGE);
        }
        if self.explain > 0 {
            address += "&explain=true";
        }
        address
    }

    fn parameters(&self) -> String {
        let mut text = format!("q={}", encode(&self.q));
        for filter in &self.filters {
            put!(text, "&filter={}", encode(filter));
        }
        text
    }

    /// The same search on another page.
    pub fn at(&self, page: u32) -> Self {
        Self { page, explain: 0, ..self.clone() }
    }

    /// The same search with a filter more, or less when it is on; from the first page.
    pub fn toggled(&self, filter: &str) -> Self {
        let mut next = self.at(1);
        match next.filters.iter().position(|have| have == filter) {
            Some(at) => drop(next.filters.remove(at)),
            None => next.filters.push(filter.to_owned()),
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_read_what_they_write() {
        for value in ["example.org", r#"a "quoted" \ value"#, "a, b", "a:b", "x*"] {
            assert_eq!(parts(&filter("host", value).unwrap()), ("host", value));
        }
        assert_eq!(parts("published:[2020 TO 2021]"), ("published", "[2020 TO 2021]"));
        assert!(filter("host", r#"a "b", c"#).is_none() && filter("host", "").is_none());
    }
}
