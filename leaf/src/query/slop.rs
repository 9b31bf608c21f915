//! How often a phrase occurs in a document, from the positions of its tokens.
//!
//! Let `d = position - relative position` of an occurrence of a token: in an exact phrase all `d` are equal. A phrase
//! with slop s matches where one occurrence of every token can be chosen so that all `d` lie within s of each other;
//! equal tokens need different occurrences. The count is the number of occurrences of the first token that are part of
//! such a choice. Unlike the engine's rule this does not depend on which token is rarer in a segment, so every shard
//! and replica counts alike.

use crate::stop::Ticker;

/// Positions of one token of the phrase in the document, ascending, with its relative position.
pub struct Place<'a> {
    /// Where it occurs.
    pub positions: &'a [u32],
    /// Where it stands in the phrase.
    pub relative: u32,
    /// Index of the first token of the phrase that is the same word.
    pub word: usize,
}

impl Place<'_> {
    fn has(&self, d: i64) -> bool {
        let position = d + i64::from(self.relative);
        u32::try_from(position).is_ok_and(|position| self.positions.binary_search(&position).is_ok())
    }

    /// First occurrence at or after `position`.
    fn from(&self, position: i64) -> Option<i64> {
        let at = self.positions.partition_point(|p| i64::from(*p) < position);
        self.positions.get(at).map(|p| i64::from(*p))
    }
}

/// Occurrences of an exact phrase. A stopped count is too low; whoever asked has to look at the ticker.
pub fn exact(places: &[Place<'_>], ticker: &Ticker<'_>) -> u32 {
    let Some(rarest) = places.iter().min_by_key(|place| place.positions.len()) else { return 0 };
    let starts = rarest.positions.iter().map(|p| i64::from(*p) - i64::from(rarest.relative));
    let steps = 1 + places.len() as u32;
    let starts = starts.take_while(|_| ticker.tick(steps));
    starts.filter(|d| places.iter().all(|place| place.has(*d))).count() as u32
}

/// Occurrences of a phrase with slop. `order`: indexes of the places sorted by (word, relative position).
pub fn sloppy(places: &[Place<'_>], order: &[usize], slop: u32, ticker: &Ticker<'_>) -> u32 {
    let Some(first) = places.first() else { return 0 };
    let steps = (slop + 1) * places.len() as u32;
    let slop = i64::from(slop);
    let starts = first.positions.iter().map(|p| i64::from(*p) - i64::from(first.relative));
    let starts = starts.take_while(|_| ticker.tick(steps));
    starts.filter(|d| (d - slop..=*d).any(|low| fits(places, order, *d, low, slop))).count() as u32
}

/// Whether occurrences with `low <= d <= low + slop` can be chosen, the first token's being `own`.
fn fits(places: &[Place<'_>], order: &[usize], own: i64, low: i64, slop: i64) -> bool {
    let taken = own + i64::from(places[0].relative);
    // The windows of equal words start in the order of their relative positions and are equally long, so taking the
    // earliest free occurrence for each never blocks a later one.
    let mut last = (usize::MAX, i64::MIN);
    order.iter().all(|at| {
        let place = &places[*at];
        if *at == 0 {
            return true;
        }
        let start = low + i64::from(place.relative);
        let mut from = if last.0 == place.word { start.max(last.1 + 1) } else { start };
        let mut found = place.from(from);
        if place.word == places[0].word && found == Some(taken) {
            from = taken + 1;
            found = place.from(from);
        }
        match found {
            Some(position) if position <= start + slop => {
                last = (place.word, position);
                true
            }
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stop::Stop;

    fn count(words: &[(&[u32], u32, usize)], slop: u32) -> u32 {
        let places: Vec<Place<'_>> = words
            .iter()
            .map(|(positions, relative, word)| Place { positions, relative: *relative, word: *word })
            .collect();
        let mut order: Vec<usize> = (0..places.len()).collect();
        order.sort_by_key(|at| (places[*at].word, places[*at].relative));
        let stop = Stop::never();
        let ticker = Ticker::new(&stop);
        if slop == 0 { exact(&places, &ticker) } else { sloppy(&places, &order, slop, &ticker) }
    }

    #[test]
    fn exact_phrases_count_their_starts() {
        assert_eq!(count(&[(&[1, 5, 9], 0, 0), (&[2, 6, 7], 1, 1)], 0), 2);
        assert_eq!(count(&[(&[1], 0, 0), (&[3], 1, 1)], 0), 0);
        assert_eq!(count(&[(&[0, 1, 2], 0, 0), (&[0, 1, 2], 1, 0)], 0), 2);
        assert_eq!(count(&[(&[4], 2, 0)], 0), 1);
        // A relative position before the start of the text.
        assert_eq!(count(&[(&[0], 3, 0), (&[4], 7, 1)], 0), 1);
    }

    #[test]
    fn slop_bounds_how_far_apart_tokens_are() {
        let apart: [(&[u32], u32, usize); 2] = [(&[10], 0, 0), (&[14], 1, 1)];
        assert_eq!((count(&apart, 2), count(&apart, 3)), (0, 1));
        let swapped: [(&[u32], u32, usize); 2] = [(&[10], 0, 0), (&[9], 1, 1)];
        assert_eq!((count(&swapped, 1), count(&swapped, 2)), (0, 1));
    }

    #[test]
    fn equal_words_need_different_occurrences() {
        let twice = |positions: &'static [u32], slop| count(&[(positions, 0, 0), (positions, 1, 0)], slop);
        assert_eq!(twice(&[5], 4), 0);
        assert_eq!(twice(&[5, 6], 1), 1);
        assert_eq!(twice(&[5, 7], 1), 1);
        assert_eq!(twice(&[5, 20], 4), 0);
    }
}
