//! How long searching a shard takes here, by class, so that what can't be in time is refused before any work.
//!
//! A plain page of hits and one that sorts, counts facets or counts every match differ by an order of magnitude: one
//! percentile for both would refuse the quick ones for the slow ones' sake. The class is read off the request alone,
//! since admission comes before the shard is looked at.

use std::time::Duration;

use canopy_common::limit::Times;
use canopy_proto::v1::{SearchRequest, TotalMode};

/// What kind of work a search is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The best hits by score.
    Page,
    /// Every match is looked at: sorted, grouped or counted.
    Whole,
}

impl Class {
    /// The class of a request.
    pub fn of(request: &SearchRequest) -> Self {
        let whole = !request.sort.is_empty()
            || !request.facets.is_empty()
            || !request.collapse.is_empty()
            || request.total == TotalMode::TotalExact as i32;
        if whole { Self::Whole } else { Self::Page }
    }
}

/// Times of finished searches of one shard.
#[derive(Default)]
pub struct ServiceTimes([Times; 2]);

impl ServiceTimes {
    /// One search of a shard ended by itself after `took`.
    pub fn record(&self, class: Class, took: Duration) {
        self.0[class as usize].record(took);
    }

    /// Nine of ten searches of the class took no longer; zero when that is unknown.
    pub fn p90(&self, class: Class) -> Duration {
        self.0[class as usize].p90()
    }

    /// Smoothed time of one search of any class; zero when there was none.
    pub fn mean(&self) -> Duration {
        self.0.iter().map(Times::mean).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use canopy_proto::v1::SortBy;

    use super::*;

    #[test]
    fn slow_kinds_of_queries_do_not_speak_for_quick_ones() {
        let times = ServiceTimes::default();
        let sorted = SearchRequest { sort: vec![SortBy::default()], ..Default::default() };
        assert_eq!((Class::of(&SearchRequest::default()), Class::of(&sorted)), (Class::Page, Class::Whole));
        for _ in 0..50 {
            times.record(Class::Page, Duration::from_millis(2));
            times.record(Class::Whole, Duration::from_millis(90));
        }
        assert!(times.p90(Class::Page) <= Duration::from_millis(2));
        assert!(times.p90(Class::Whole) >= Duration::from_millis(70));
        assert!(times.mean() > Duration::from_millis(70));
    }
}
