//! The first k of one segment in the order asked, with or without groups.

use tantivy::DocId;

use super::{
    Found,
    exhaustive::Wanted,
    grouped::Grouped,
    sort::SegmentSorting,
    top::{Entry, Place, Top},
};
use crate::{
    error::Result,
    view::{FieldColumn, Segment},
};

/// Keeps them.
pub struct Keep<'a> {
    wanted: &'a Wanted,
    segment: &'a Segment,
    sorting: SegmentSorting,
    after: Option<(u128, Option<Box<[u128]>>)>,
    groups: Option<FieldColumn>,
    kept: Kept,
    /// Plain order by score: lower scores can't enter.
    pub least: f32,
}

enum Kept {
    Nothing,
    Top(Top),
    Grouped(Grouped),
}

impl<'a> Keep<'a> {
    /// Keeps nothing yet.
    pub fn open(wanted: &'a Wanted, segment: &'a Segment) -> Result<Self> {
        let sorting = wanted.sorting.in_segment(segment)?;
        let after = wanted.after.as_ref().map(|after| sorting.place_of(after)).transpose()?;
        let mut groups = None;
        if let Some(field) = &wanted.collapse {
            groups = segment.columns(&field.name)?.into_iter().find(|column| column.words.is_some());
        }
        let kept = match (wanted.k, &groups) {
            (0, _) => Kept::Nothing,
            (k, None) => Kept::Top(Top::new(k)),
            (k, Some(_)) => Kept::Grouped(Grouped::new(k)),
        };
        Ok(Self { wanted, segment, sorting, after, groups, kept, least: f32::NEG_INFINITY })
    }

    /// Offers a match. `score` is what the order needs; `late` gives the score of the hit, or nothing when time was up.
    pub fn offer(&mut self, doc: DocId, score: f32, late: &mut dyn FnMut() -> Option<f32>) {
        let worst = match &self.kept {
            Kept::Nothing => return,
            Kept::Top(top) => top.worst(),
            Kept::Grouped(grouped) => grouped.worst(),
        };
        let first = self.sorting.first(doc, score);
        if worst.is_some_and(|worst| worst.first < first)
            || self.after.as_ref().is_some_and(|after| first < after.0)
        {
            return;
        }
        let place = Place { first, rest: self.sorting.rest(doc, score), key: self.segment.key(doc) };
        if worst.is_some_and(|worst| *worst <= place) || !self.is_after(&place) {
            return;
        }
        let Some(score) = late() else { return };
        let entry = Entry { place, doc, score };
        match &mut self.kept {
            Kept::Nothing => {}
            Kept::Top(top) => {
                top.push(entry);
                if !self.wanted.sorting.values
                    && let Some(worst) = top.worst_entry()
                {
                    self.least = worst.score;
                }
            }
            Kept::Grouped(grouped) => {
                grouped.push(entry, self.groups.as_ref().and_then(|column| column.values.first(doc)));
            }
        }
    }

    fn is_after(&self, place: &Place) -> bool {
        let (Some((first, rest)), Some(after)) = (&self.after, &self.wanted.after) else { return true };
        (place.first, &place.rest, place.key) > (*first, rest, after.key)
    }

    /// The segment's list, in values.
    pub fn found(self, segment: u32) -> Result<Vec<Found>> {
        let entries = match self.kept {
            Kept::Nothing => Vec::new(),
            Kept::Top(top) => top.into_sorted().into_iter().map(|entry| (entry, None)).collect(),
            Kept::Grouped(grouped) => grouped.into_sorted(),
        };
        let mut found = Vec::with_capacity(entries.len());
        for (Entry { place, doc, score }, group) in entries {
            let mut values = Vec::new();
            if self.wanted.sorting.values {
                values = self.sorting.values(place.first, place.rest.as_deref())?;
            }
            let collapse = match (&self.groups, group) {
                (Some(column), Some(ord)) => column.word(ord)?,
                _ => String::new(),
            };
            found.push(Found { values, score, key: place.key, segment, doc, collapse });
        }
        Ok(found)
    }
}
