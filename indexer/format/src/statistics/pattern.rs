//! Patterns as bit machines over characters. A state is a small set of positions in the pattern; one character moves
//! the whole set with a few word operations, and an empty set means that no continuation can match, which prunes the
//! walk. The costs depend on the pattern's length only, never on the number of stars or edits.

/// Longest word whose neighbours are looked for, characters.
pub const MAX_FUZZY_CHARS: usize = 127;
/// Words of a wildcard's set of positions.
const WORDS: usize = 8;
/// Most positions: no term (255 bytes at most) matches a pattern with more characters than this.
const MAX_POSITIONS: usize = WORDS * 64 - 1;

/// Decides about terms, character by character.
pub(super) trait Matcher {
    /// Where a term stands.
    type State: Copy;
    /// Before the first character.
    fn start(&self) -> Self::State;
    /// After another character; `None` when nothing that begins so matches.
    fn step(&self, state: &Self::State, next: char) -> Option<Self::State>;
    /// Edits to a word that ends here; `None` when it does not match.
    fn accepts(&self, state: &Self::State) -> Option<u8>;
}

/// Everything matches: the rest of a prefix.
pub(super) struct Any;

impl Matcher for Any {
    type State = ();
    fn start(&self) {}
    fn step(&self, (): &(), _: char) -> Option<()> {
        Some(())
    }
    fn accepts(&self, (): &()) -> Option<u8> {
        Some(0)
    }
}

type Set = [u64; WORDS];

/// `*` and `?`. Position i = the first i pieces are used up.
pub(super) struct Wildcard {
    /// Positions before a given character, sorted by character.
    literal: Vec<(char, Set)>,
    /// Positions before a `?`.
    one: Set,
    /// Positions before a `*`.
    run: Set,
    end: usize,
    /// Words in use.
    words: usize,
}

impl Wildcard {
    /// `None` when the pattern is longer than any term.
    pub(super) fn new(pattern: &str) -> Option<Self> {
        let mut machine = Self { literal: Vec::new(), one: [0; WORDS], run: [0; WORDS], end: 0, words: 1 };
        let mut last = ' ';
        for piece in pattern.chars() {
            if piece == '*' && last == '*' {
                continue;
            }
            last = piece;
            let at = machine.end;
            if at >= MAX_POSITIONS {
                return None;
            }
            match piece {
                '*' => put(&mut machine.run, at),
                '?' => put(&mut machine.one, at),
                _ => match machine.literal.binary_search_by_key(&piece, |(known, _)| *known) {
                    Ok(known) => put(&mut machine.literal[known].1, at),
                    Err(place) => {
                        machine.literal.insert(place, (piece, [0; WORDS]));
                        put(&mut machine.literal[place].1, at);
                    }
                },
            }
            machine.end += 1;
        }
        machine.words = machine.end / 64 + 1;
        Some(machine)
    }

    /// A star may also stand for nothing. Stars never stand side by side, so that one pass is enough.
    fn skip_stars(&self, set: &mut Set) {
        let mut carry = 0;
        for (word, run) in set.iter_mut().zip(&self.run).take(self.words) {
            let stars = *word & run;
            *word |= (stars << 1) | carry;
            carry = stars >> 63;
        }
    }
}

impl Matcher for Wildcard {
    type State = Set;

    fn start(&self) -> Set {
        let mut set = [0; WORDS];
        put(&mut set, 0);
        self.skip_stars(&mut set);
        set
    }

    fn step(&self, state: &Set, next: char) -> Option<Set> {
        let literal = self.literal.binary_search_by_key(&next, |(known, _)| *known).ok();
        let literal = literal.map(|known| &self.literal[known].1);
        let (mut set, mut carry) = ([0; WORDS], 0);
        for i in 0..self.words {
            let used = state[i] & (self.one[i] | literal.map_or(0, |literal| literal[i]));
            set[i] = (used << 1) | carry | (state[i] & self.run[i]);
            carry = used >> 63;
        }
        self.skip_stars(&mut set);
        set.iter().any(|word| *word != 0).then_some(set)
    }

    fn accepts(&self, state: &Set) -> Option<u8> {
        (state[self.end / 64] >> (self.end % 64) & 1 == 1).then_some(0)
    }
}

fn put(set: &mut Set, position: usize) {
    set[position / 64] |= 1 << (position % 64);
}

/// At most 2 edits, a swap of neighbours being one (optimal string alignment: what was swapped is not edited again).
pub(super) struct Fuzzy {
    /// Positions after a given character of the word.
    after: Vec<(char, u128)>,
    /// The position at the end of the word.
    end: u128,
    /// Positions that exist.
    all: u128,
    distance: usize,
}

impl Fuzzy {
    /// `None` when the word is longer than [`MAX_FUZZY_CHARS`].
    pub(super) fn new(word: &str, distance: u8) -> Option<Self> {
        let mut after: Vec<(char, u128)> = Vec::new();
        let mut end = 1_u128;
        for (i, letter) in word.chars().enumerate() {
            if i >= MAX_FUZZY_CHARS {
                return None;
            }
            end = 2 << i;
            match after.iter_mut().find(|(known, _)| *known == letter) {
                Some((_, positions)) => *positions |= end,
                None => after.push((letter, end)),
            }
        }
        Some(Self { after, end, all: end | (end - 1), distance: usize::from(distance.min(2)) })
    }
}

/// Where a word stands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Near {
    /// Row d: positions reached with d edits.
    reached: [u128; 3],
    /// Row d: positions, reached with d edits before the last character, behind which that character is the next but
    /// one: the next one now completes a swap.
    swapping: [u128; 2],
}

impl Matcher for Fuzzy {
    type State = Near;

    fn start(&self) -> Near {
        // With d edits, the first d characters of the word may be left out.
        Near { reached: [1, 0b11 & self.all, 0b111 & self.all], swapping: [0; 2] }
    }

    fn step(&self, state: &Near, next: char) -> Option<Near> {
        let same = self.after.iter().find(|(known, _)| *known == next).map_or(0, |(_, positions)| *positions);
        let (reached, mut rows) = (&state.reached, [0; 3]);
        rows[0] = (reached[0] << 1) & same;
        for edits in 1..=self.distance {
            let (before, fewer) = (reached[edits - 1], rows[edits - 1]);
            let equal = (reached[edits] << 1) & same;
            let (inserted, replaced, left_out) = (before, before << 1, fewer << 1);
            let swapped = ((state.swapping[edits - 1] << 1) & same) << 1;
            rows[edits] = (equal | inserted | replaced | left_out | swapped) & self.all;
        }
        let swapping = [reached[0] & (same >> 2), reached[1] & (same >> 2)];
        // Whoever waits for a swap can be reached by a replacement, too: the last row says it all.
        (rows[self.distance] != 0).then_some(Near { reached: rows, swapping })
    }

    fn accepts(&self, state: &Near) -> Option<u8> {
        (0..=self.distance).find(|edits| state.reached[*edits] & self.end != 0).map(|edits| edits as u8)
    }
}
