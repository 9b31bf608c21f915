//! Who of a set may be asked.
//!
//! Two failures are prevented, and they pull in opposite directions: asking replicas that are known to be bad, and
//! ejecting so many that the rest drowns or nobody is left (while the caller can't tell which of the two happened).
//!
//! Rule: the ejected are not asked, but slow and failing ones are taken back, mildest and cheapest first, until half of
//! the set is in use; what can't be reached or is leaving is not, because it would bring nothing. A set of one is never
//! ejected. When all that may be asked were tried, or every replica is ejected, the least bad of those left is asked
//! (never for extra work), and if every one was ejected, the answer says `panic`.

/// Why a replica is not asked; the mildest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ejected {
    /// Far slower than its set.
    Slow,
    /// The topology service says that it fails, or has not heard of it.
    Told,
    /// It said that it is leaving.
    Draining,
    /// Too many of its calls fail.
    Failing,
    /// It can't be reached.
    Gone,
}

/// How operators see a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It gets its share.
    Healthy,
    /// New, or back after it was ejected: in slow start.
    Warming,
    /// Far slower than its set: used by shadows only.
    SubHealthy,
    /// Its breaker is open.
    Faulty,
    /// It is leaving.
    Draining,
}

impl Standing {
    /// All of them, in the order of the gauges.
    pub const ALL: [Self; 5] = [Self::Healthy, Self::Warming, Self::SubHealthy, Self::Faulty, Self::Draining];

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Warming => "warming",
            Self::SubHealthy => "sub_healthy",
            Self::Faulty => "faulty",
            Self::Draining => "draining",
        }
    }

    /// Of a node that is ejected, or in slow start, or neither.
    pub fn of(ejected: Option<Ejected>, warming: bool) -> Self {
        match ejected {
            Some(Ejected::Slow) => Self::SubHealthy,
            Some(Ejected::Draining) => Self::Draining,
            Some(Ejected::Told | Ejected::Failing | Ejected::Gone) => Self::Faulty,
            None if warming => Self::Warming,
            None => Self::Healthy,
        }
    }
}

/// One replica of a set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Member {
    /// It was asked already.
    pub tried: bool,
    /// Why it is not asked.
    pub ejected: Option<Ejected>,
    /// What a call to it costs.
    pub cost: f64,
}

/// Who may be asked, by index in the set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Eligible {
    /// These; empty: all were tried.
    These(Vec<usize>),
    /// All that may be asked were tried; this one is ejected.
    LastResort(usize),
    /// Every replica is ejected; this one is the least bad.
    Panic(usize),
}

/// Who of a set may be asked.
pub fn eligible(set: &[Member]) -> Eligible {
    let mut allowed: Vec<bool> =
        set.iter().map(|member| member.ejected.is_none() || set.len() == 1).collect();
    let mut ejected: Vec<usize> = (0..set.len()).filter(|at| !allowed[*at]).collect();
    ejected.sort_by(|a, b| {
        let (a, b) = (&set[*a], &set[*b]);
        a.ejected.cmp(&b.ejected).then(a.cost.total_cmp(&b.cost))
    });
    let soft =
        |at: &&usize| matches!(set[**at].ejected, Some(Ejected::Slow | Ejected::Told | Ejected::Failing));
    let in_use = allowed.iter().filter(|allowed| **allowed).count();
    for at in ejected.iter().filter(soft).take(set.len().div_ceil(2).saturating_sub(in_use)) {
        allowed[*at] = true;
    }
    let these: Vec<usize> = (0..set.len()).filter(|at| allowed[*at] && !set[*at].tried).collect();
    if !these.is_empty() {
        return Eligible::These(these);
    }
    match ejected.into_iter().find(|at| !set[*at].tried) {
        None => Eligible::These(Vec::new()),
        Some(at) if allowed.contains(&true) => Eligible::LastResort(at),
        Some(at) => Eligible::Panic(at),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One letter a replica: `.` in use, `s`low, `t`old of, `d`raining, `f`ailing, `g`one; capital or `!`: tried. Costs rise.
    fn of(set: &str) -> Eligible {
        let member = |(at, letter): (usize, char)| Member {
            tried: letter.is_uppercase() || letter == '!',
            ejected: match letter.to_ascii_lowercase() {
                's' => Some(Ejected::Slow),
                't' => Some(Ejected::Told),
                'd' => Some(Ejected::Draining),
                'f' => Some(Ejected::Failing),
                'g' => Some(Ejected::Gone),
                _ => None,
            },
            cost: at as f64,
        };
        eligible(&set.chars().enumerate().map(member).collect::<Vec<_>>())
    }

    #[test]
    fn each_set_has_who_it_should() {
        use Eligible::{LastResort, Panic, These};
        let table = [
            ("..", These(vec![0, 1])),
            ("!.", These(vec![1])),
            ("!!", These(vec![])),
            // A set of one is never ejected.
            ("g", These(vec![0])),
            ("G", These(vec![])),
            // One of two, one of three may be out.
            ("s.", These(vec![1])),
            ("g.", These(vec![1])),
            ("f..", These(vec![1, 2])),
            // Never below half: the mildest, then the cheapest, comes back.
            ("ss.", These(vec![0, 2])),
            ("fs.", These(vec![1, 2])),
            ("fff.", These(vec![0, 3])),
            ("ss", These(vec![0])),
            ("ff", These(vec![0])),
            ("sssss", These(vec![0, 1, 2])),
            // What is gone or leaving would bring nothing.
            ("gg.", These(vec![2])),
            ("dd.", These(vec![2])),
            ("gs", These(vec![1])),
            // All that may be asked were tried.
            ("!g", LastResort(1)),
            ("!gd", LastResort(2)),
            ("!s", LastResort(1)),
            ("!t", LastResort(1)),
            ("!dt", These(vec![2])),
            ("!.dt", These(vec![1])),
            // What the service thinks ill of is asked where this node knows that the other does not answer.
            ("t.", These(vec![1])),
            ("gt", These(vec![1])),
            // Every one is ejected.
            ("gg", Panic(0)),
            ("gd", Panic(1)),
            ("Gg", Panic(1)),
            ("GG", These(vec![])),
            ("", These(vec![])),
        ];
        for (set, expected) in table {
            assert_eq!(of(set), expected, "{set}");
        }
    }

    #[test]
    fn whatever_the_set_somebody_untried_is_found() {
        let letters = ['.', '!', 's', 'T', 'd', 'D', 't', 'F', 'g', 'G'];
        for number in 0..10_000_usize {
            let set: String = (0..4).map(|place| letters[number / 10_usize.pow(place) % 10]).collect();
            let untried = set.chars().any(|letter| letter == '.' || letter.is_lowercase());
            assert_eq!(of(&set) != Eligible::These(vec![]), untried, "{set}");
        }
    }
}
