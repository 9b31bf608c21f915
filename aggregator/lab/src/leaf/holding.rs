//! What a leaf of a tree with several versions holds, and what loading one costs it: while it fetches and warms, its
//! workers are slower for whatever they are asked. Outside of rollouts nobody says what it holds, and it answers from
//! any version.

/// Of one leaf.
#[derive(Debug)]
pub(super) struct Holding {
    /// Versions that it answers from; `None`: all.
    held: Option<Vec<u64>>,
    /// Times slower, while it loads.
    slowdown: f64,
}

impl Default for Holding {
    fn default() -> Self {
        Self { held: None, slowdown: 1.0 }
    }
}

impl Holding {
    /// Times slower now.
    pub(super) fn slowdown(&self) -> f64 {
        self.slowdown
    }

    /// From now on its work takes so many times as long; 1: as usual.
    pub(super) fn slow_down(&mut self, times: f64) {
        self.slowdown = times;
    }

    /// Whether it answers from a version.
    pub(super) fn has(&self, version: u64) -> bool {
        self.held.as_ref().is_none_or(|held| held.contains(&version))
    }

    /// It holds the version too; from the first one on it answers from no other.
    pub(super) fn hold(&mut self, version: u64) {
        let held = self.held.get_or_insert_default();
        if !held.contains(&version) {
            held.push(version);
        }
    }

    /// It does not hold the version any more.
    pub(super) fn let_go(&mut self, version: u64) {
        self.held.get_or_insert_default().retain(|held| *held != version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_holds_matters_once_anything_was_said() {
        let mut holding = Holding::default();
        assert!(holding.has(1) && holding.has(7));
        holding.hold(1);
        assert!(holding.has(1) && !holding.has(7));
        holding.hold(7);
        holding.let_go(1);
        assert!(!holding.has(1) && holding.has(7));
    }
}
