//! How many of the matches have each value of a field: exact within the shard.
//!
//! What travels is the top of the shard's list and a bound for the rest: no omitted value has more than `omitted_max`
//! documents here. So whoever merges shards knows for each value how far its sum can be off, and an exact request gets
//! every value. A document that has a value twice counts once, like it does for a filter of that value.

use std::collections::BTreeMap;

use canopy_format::schema::Kind;
use canopy_indexer::index_schema::IndexSchema;
use canopy_proto::v1;
use tantivy::{
    DocId,
    columnar::{Cardinality, ColumnType},
    u64_to_f64, u64_to_i64,
};

use crate::{
    error::{Error, Result},
    query::fields::{ValueField, value_field},
    view::{FieldColumn, Segment},
};

/// Values of one facet that travel at most.
pub const MAX_VALUES: usize = 100_000;
/// Values that travel at least (when there are that many).
const MIN_VALUES: usize = 1000;
const PAGE: usize = 4096;
/// Numbers whose range is below this are counted in pages, others in a map.
const DENSE: u64 = 1 << 24;

/// A facet of a request.
pub struct Facet {
    field: ValueField,
    limit: usize,
}

impl Facet {
    /// Reads the facets of a request.
    pub fn read(schema: &IndexSchema, facets: &[v1::FacetBy]) -> Result<Vec<Self>> {
        let read = |facet: &v1::FacetBy| {
            let field = value_field(schema, &facet.field)?;
            if !matches!(field.kind, Kind::Keyword | Kind::Bool | Kind::I64 | Kind::U64 | Kind::Map) {
                let message = format!(
                    "field {:?} is {}; facets count keywords, bools and whole numbers",
                    field.name,
                    field.kind.name()
                );
                return Err(Error::invalid(&field.name, message));
            }
            let limit = if facet.exact {
                MAX_VALUES
            } else {
                (facet.size as usize).saturating_mul(10).max(MIN_VALUES)
            };
            Ok(Self { field, limit: limit.min(MAX_VALUES) })
        };
        facets.iter().map(read).collect()
    }
}

/// Counts of all facets in one segment.
pub struct SegmentCounts {
    facets: Vec<Vec<ColumnCounts>>,
}

struct ColumnCounts {
    column: FieldColumn,
    /// What a number has to be lowered by to be an index.
    lowest: u64,
    counts: Counts,
    multi: bool,
    seen: Vec<u64>,
}

/// Counts by number. Pages come into being when touched, so memory follows what matches, not the dictionary.
enum Counts {
    Pages(Vec<Option<Box<[u32; PAGE]>>>),
    Map(BTreeMap<u64, u32>),
}

impl Counts {
    fn add(&mut self, number: u64) {
        match self {
            Self::Map(map) => *map.entry(number).or_default() += 1,
            Self::Pages(pages) => {
                if let Some(page) = pages.get_mut(number as usize / PAGE) {
                    page.get_or_insert_with(|| Box::new([0; PAGE]))[number as usize % PAGE] += 1;
                }
            }
        }
    }

    fn into_vec(self, lowest: u64) -> Vec<(u64, u64)> {
        match self {
            Self::Map(map) => {
                map.into_iter().map(|(number, count)| (number + lowest, count.into())).collect()
            }
            Self::Pages(pages) => {
                let pages = pages.iter().enumerate().filter_map(|(at, page)| Some((at, page.as_ref()?)));
                pages
                    .flat_map(|(at, page)| {
                        let counted = page.iter().enumerate().filter(|(_, count)| **count > 0);
                        counted.map(move |(within, count)| {
                            ((at * PAGE + within) as u64 + lowest, u64::from(*count))
                        })
                    })
                    .collect()
            }
        }
    }
}

impl SegmentCounts {
    /// Empty counts.
    pub fn open(facets: &[Facet], segment: &Segment) -> Result<Self> {
        let open = |facet: &Facet| -> Result<Vec<ColumnCounts>> {
            Ok(segment.columns(&facet.field.name)?.into_iter().map(ColumnCounts::new).collect())
        };
        Ok(Self { facets: facets.iter().map(open).collect::<Result<_>>()? })
    }

    /// Counts a document.
    #[inline]
    pub fn count(&mut self, doc: DocId) {
        self.facets.iter_mut().flatten().for_each(|counts| counts.count(doc));
    }
}

impl ColumnCounts {
    fn new(column: FieldColumn) -> Self {
        let words = column.words.as_ref().map(|words| words.num_terms() as u64);
        let lowest = if words.is_some() { 0 } else { column.values.min_value() };
        let span =
            words.unwrap_or_else(|| (column.values.max_value().saturating_sub(lowest)).saturating_add(1));
        let counts = if words.is_some() || span <= DENSE {
            Counts::Pages(vec![None; (span as usize).div_ceil(PAGE)])
        } else {
            Counts::Map(BTreeMap::new())
        };
        let multi = column.values.get_cardinality() == Cardinality::Multivalued;
        Self { column, lowest, counts, multi, seen: Vec::new() }
    }

    fn count(&mut self, doc: DocId) {
        if !self.multi {
            if let Some(number) = self.column.values.first(doc) {
                self.counts.add(number - self.lowest);
            }
            return;
        }
        self.seen.clear();
        self.seen.extend(self.column.values.values_for_doc(doc));
        self.seen.sort_unstable();
        self.seen.dedup();
        self.seen.iter().for_each(|number| self.counts.add(number - self.lowest));
    }
}

/// The facets of a shard, from the counts of its segments.
pub fn finish(facets: &[Facet], segments: Vec<SegmentCounts>) -> Result<Vec<v1::FacetCounts>> {
    let mut by_facet: Vec<Vec<Source>> = facets.iter().map(|_| Vec::new()).collect();
    for segment in segments {
        for (sources, columns) in by_facet.iter_mut().zip(segment.facets) {
            sources.extend(columns.into_iter().map(|c| (c.column, c.counts.into_vec(c.lowest))));
        }
    }
    let finished = facets.iter().zip(by_facet).enumerate().map(|(index, (facet, sources))| {
        let (rows, omitted_max) = top(facet.limit, sources)?;
        let (values, counts) = rows.into_iter().unzip();
        Ok(v1::FacetCounts { facet: index as u32, values, counts, omitted_max })
    });
    finished.collect()
}

type Rows = Vec<(String, u64)>;
type Source = (FieldColumn, Vec<(u64, u64)>);

/// The values with the largest counts (then in order of their text), and the largest count left out.
fn top(limit: usize, mut sources: Vec<Source>) -> Result<(Rows, u64)> {
    sources.retain(|(_, counts)| !counts.is_empty());
    if sources.iter().all(|(column, _)| column.words.is_some()) {
        return words(limit, sources);
    }
    let mut sums = BTreeMap::new();
    for (column, counts) in &sources {
        for (text, count) in texts(column, counts)? {
            *sums.entry(text).or_insert(0) += count;
        }
    }
    let mut rows: Rows = sums.into_iter().collect();
    let omitted = cut(&mut rows, limit, std::cmp::Ord::cmp);
    Ok((rows, omitted))
}

/// The same for text. Everything is counted by the ordinals of the segment with the most values, so that of its words
/// only those are read that travel: ordinals are in the order of the text. The other segments' are few.
fn words(limit: usize, mut sources: Vec<Source>) -> Result<(Rows, u64)> {
    sources.sort_by_key(|(_, counts)| std::cmp::Reverse(counts.len()));
    let mut sources = sources.into_iter();
    let Some((column, mut counts)) = sources.next() else { return Ok((Rows::new(), 0)) };
    let (mut known, mut other) = (BTreeMap::new(), BTreeMap::new());
    for (source, its) in sources {
        for (text, count) in texts(&source, &its)? {
            match column.ord(&text)? {
                Some(ord) => *known.entry(ord).or_insert(0) += count,
                None => *other.entry(text).or_insert(0) += count,
            }
        }
    }
    let mut uncounted = Vec::new();
    for (ord, count) in known {
        let at = counts.binary_search_by_key(&ord, |row| row.0).ok();
        match at.and_then(|at| counts.get_mut(at)) {
            Some(row) => row.1 += count,
            None => uncounted.push((ord, count)),
        }
    }
    counts.extend(uncounted);
    let omitted = cut(&mut counts, limit, std::cmp::Ord::cmp);
    let mut rows = texts(&column, &counts)?;
    if other.is_empty() {
        return Ok((rows, omitted));
    }
    rows.extend(other);
    let more = cut(&mut rows, limit, std::cmp::Ord::cmp);
    Ok((rows, omitted.max(more)))
}

/// Sorts by count, then by value, and cuts; the largest count that was cut off.
fn cut<T>(rows: &mut Vec<(T, u64)>, limit: usize, order: impl Fn(&T, &T) -> std::cmp::Ordering) -> u64 {
    rows.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| order(&a.0, &b.0)));
    let omitted = rows.get(limit).map_or(0, |row| row.1);
    rows.truncate(limit);
    omitted
}

/// The numbers of a column as text, in the order given.
fn texts(column: &FieldColumn, counts: &[(u64, u64)]) -> Result<Rows> {
    let Some(words) = &column.words else {
        return Ok(counts.iter().map(|(number, count)| (show(column.kind, *number), *count)).collect());
    };
    // The dictionary is read forwards, once.
    let mut order: Vec<usize> = (0..counts.len()).collect();
    order.sort_unstable_by_key(|at| counts[*at].0);
    let mut rows: Rows = counts.iter().map(|(_, count)| (String::new(), *count)).collect();
    let mut at = order.iter();
    let ords: Vec<u64> = order.iter().map(|at| counts[*at].0).collect();
    let read = words.dictionary().sorted_ords_to_term_cb(&ords, |bytes| {
        if let Some(at) = at.next() {
            rows[*at].0 = String::from_utf8_lossy(bytes).into_owned();
        }
    });
    read.map_err(Error::engine("read keywords"))?;
    Ok(rows)
}

fn show(kind: ColumnType, number: u64) -> String {
    match kind {
        ColumnType::Bool => (number > 0).to_string(),
        ColumnType::I64 => u64_to_i64(number).to_string(),
        ColumnType::F64 => u64_to_f64(number).to_string(),
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_largest_count_left_out() {
        let rows = || vec![("b", 5), ("a", 5), ("c", 9), ("d", 1)];
        let mut two = rows();
        assert_eq!(cut(&mut two, 2, std::cmp::Ord::cmp), 5);
        assert_eq!(two, [("c", 9), ("a", 5)]);
        assert_eq!(cut(&mut rows(), 4, std::cmp::Ord::cmp), 0);
    }

    #[test]
    fn pages_and_map_count_alike() {
        let numbers = [0, 5000, 5000, 9999, 0, 0];
        let mut pages = Counts::Pages(vec![None; 3]);
        let mut map = Counts::Map(BTreeMap::new());
        for n in numbers {
            pages.add(n);
            map.add(n);
        }
        assert_eq!(map.into_vec(7), [(7, 3), (5007, 2), (10_006, 1)]);
        assert_eq!(pages.into_vec(7), [(7, 3), (5007, 2), (10_006, 1)]);
    }
}
