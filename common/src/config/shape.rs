//! Reading a table of settings into a type, with every problem of every entry at once, each at its full path: `nodes[2].role`.
//!
//! The failure this prevents: a list of a hundred nodes in which one typing error a start is told, without which node it is in.
//! A deserializer ends at the first error; so what it stumbled over is told and then left out, or replaced by something of the
//! right kind, until the rest can be read and its bounds be looked at. Rules: entries keep their numbers; what is found only
//! because of a stand-in is not told: everything is read twice with different stand-ins, and what counts is found both times;
//! an entry is named by its `id` or `corpus`; values are told as the deserializer does, so that secrets stay hidden.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;
use toml::{Table, Value};

use crate::ids::valid_name;

/// Rounds of reading at most; what is wrong beyond is told once that is mended.
const MOST_ROUNDS: usize = 400;
/// Fields by which an entry of a list is named.
const NAMES: [&str; 2] = ["id", "corpus"];

/// What was read.
#[derive(Debug)]
pub struct Checked<T> {
    /// The value; `None`: something in it can't be read, see `misread`.
    pub value: Option<T>,
    /// What can't be read: path, reason.
    pub misread: Vec<(String, String)>,
    /// What can be read and is out of bounds: path, reason.
    pub beyond: Vec<(String, String)>,
}

impl<T: DeserializeOwned> Checked<T> {
    /// Reads a table; `bounds` says what is wrong with values that could be read.
    pub fn of(table: Table, bounds: impl Fn(&T) -> Vec<(String, String)>) -> Self {
        let raw = Value::Table(table);
        let Reading { value, misread } = Reading::<T>::of(raw.clone(), Order::LeaveOut);
        let mut beyond = value.as_ref().map(&bounds).unwrap_or_default();
        if !misread.is_empty() && !beyond.is_empty() {
            let other = Reading::<T>::of(raw.clone(), Order::StandIn).value;
            let again = other.as_ref().map(&bounds).unwrap_or_default();
            beyond.retain(|found| again.contains(found) && !misread.iter().any(|(path, _)| *path == found.0));
        }
        let named = |(path, reason): (String, String)| (named(&path, &raw), reason);
        Self {
            value: value.filter(|_| misread.is_empty()),
            misread: misread.into_iter().map(named).collect(),
            beyond: beyond.into_iter().map(named).collect(),
        }
    }

    /// Everything that is wrong: path, reason.
    pub fn problems(self) -> Vec<(String, String)> {
        self.misread.into_iter().chain(self.beyond).collect()
    }
}

/// A step on the way to a value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Key(String),
    At(usize),
}

/// What is tried first with a value that can't be read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    LeaveOut,
    StandIn,
}

struct Reading<T> {
    value: Option<T>,
    misread: Vec<(String, String)>,
}

impl<T: DeserializeOwned> Reading<T> {
    fn of(mut value: Value, order: Order) -> Self {
        let mut misread = Vec::new();
        let mut tries: BTreeMap<Vec<Part>, usize> = BTreeMap::new();
        for _ in 0..MOST_ROUNDS {
            let error = match serde_path_to_error::deserialize::<_, T>(value.clone()) {
                Ok(read) => return Self { value: Some(read), misread },
                Err(error) => error,
            };
            let mut path: Vec<Part> = error.path().iter().map_while(part).collect();
            let message = error.inner().message();
            let missing = quoted(message, "missing field ");
            path.extend(missing.map(|key| Part::Key(key.to_owned())));
            if (0..=path.len()).all(|end| !tries.contains_key(&path[..end])) {
                let reason = if missing.is_some() { "it is missing".to_owned() } else { said(message) };
                misread.push((joined(&path), reason));
            }
            // What has no stand-in takes what it is in with it.
            while !replace(&mut value, &path, &mut tries, message, order) {
                if path.pop().is_none() {
                    return Self { value: None, misread };
                }
            }
        }
        Self { value: None, misread }
    }
}

fn part(segment: &Segment) -> Option<Part> {
    match segment {
        Segment::Seq { index } => Some(Part::At(*index)),
        Segment::Map { key } => Some(Part::Key(key.clone())),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}

/// Leaves the value at `path` out, or puts something else there, each time something else. False: nothing is left to try.
fn replace(
    value: &mut Value,
    path: &[Part],
    tries: &mut BTreeMap<Vec<Part>, usize>,
    message: &str,
    order: Order,
) -> bool {
    let Some((last, parents)) = path.split_last() else { return false };
    let tried = tries.entry(path.to_vec()).or_insert(0);
    let turn = *tried;
    *tried += 1;
    let mut at = value;
    for parent in parents {
        let next = match parent {
            Part::Key(key) => at.get_mut(key.as_str()),
            Part::At(index) => at.get_mut(*index),
        };
        let Some(next) = next else { return false };
        at = next;
    }
    match (at, last) {
        (Value::Table(table), Part::Key(key)) => match stand_in(turn, message, order) {
            Some(StandIn::Other(other)) => drop(table.insert(key.clone(), other)),
            Some(StandIn::Nothing) => drop(table.remove(key)),
            None => return false,
        },
        (Value::Array(list), Part::At(index)) => match (stand_in(turn, message, order), list.get_mut(*index))
        {
            (Some(StandIn::Other(other)), Some(place)) => *place = other,
            // Its number is that of the ones behind it.
            (Some(StandIn::Nothing), Some(_)) => {}
            _ => return false,
        },
        _ => return false,
    }
    true
}

/// What is put in the place of a value.
enum StandIn {
    Nothing,
    Other(Value),
}

/// What is put in the place of a value at the given turn; `None`: nothing is left to try.
fn stand_in(turn: usize, message: &str, order: Order) -> Option<StandIn> {
    let (number, turn) = match order {
        Order::LeaveOut if turn == 0 => return Some(StandIn::Nothing),
        Order::LeaveOut => (1, turn - 1),
        Order::StandIn => (2, turn),
    };
    // Of words the message says which there are.
    let words = message.starts_with("unknown variant ").then(|| message.split_once(" expected ")).flatten();
    if let Some((_, words)) = words.filter(|_| turn < 4) {
        let mut known = words.split('`').skip(1).step_by(2);
        let word = known.nth(number - 1).or_else(|| words.split('`').nth(1))?;
        return Some(StandIn::Other(Value::String(word.to_owned())));
    }
    let text = |unit: &str| Value::String(format!("{number}{unit}"));
    let other = match turn {
        0 => text("s"),
        1 => text("GiB"),
        2 => Value::Integer(number as i64),
        3 => Value::Boolean(number == 1),
        4 => Value::Float(number as f64),
        5 => Value::Array(Vec::new()),
        6 => Value::Table(Table::new()),
        7 if order == Order::StandIn => return Some(StandIn::Nothing),
        _ => return None,
    };
    Some(StandIn::Other(other))
}

/// The word in backticks after `before`, at the beginning of a message.
fn quoted<'a>(message: &'a str, before: &str) -> Option<&'a str> {
    Some(message.strip_prefix(before)?.strip_prefix('`')?.split_once('`')?.0)
}

/// A deserializer's message for who writes the file: kinds of numbers in words, and what to do where it is plain.
fn said(message: &str) -> String {
    let (found, expected) = message.rsplit_once(", expected ").unwrap_or((message, ""));
    let expected = match expected {
        "u8" => "a whole number of 0 to 255",
        "u16" => "a whole number of 0 to 65535",
        "u32" | "u64" | "usize" => "a whole number, 0 or more",
        "i32" | "i64" => "a whole number",
        "f32" | "f64" => "a number",
        "a string" => "a text; write it in quotes",
        _ => return message.to_owned(),
    };
    format!("{found}, expected {expected}")
}

fn joined(path: &[Part]) -> String {
    let mut joined = String::new();
    for part in path {
        match part {
            Part::Key(key) if joined.is_empty() => joined.push_str(key),
            Part::Key(key) => joined.extend([".", key]),
            Part::At(index) => joined.push_str(&format!("[{index}]")),
        }
    }
    joined
}

/// The path with the names of entries: `nodes[2] (leaf-1).role`.
fn named(path: &str, raw: &Value) -> String {
    let (mut named, mut at) = (String::new(), Some(raw));
    for (number, piece) in path.split('.').enumerate() {
        let (key, indexes) = piece.split_once('[').unwrap_or((piece, ""));
        named.extend([if number == 0 { "" } else { "." }, key]);
        at = at.and_then(|value| value.get(key));
        for index in indexes.split('[').filter(|index| !index.is_empty()) {
            named.extend(["[", index]);
            at = index.trim_end_matches(']').parse().ok().and_then(|index: usize| at?.get(index));
            let name = NAMES.iter().find_map(|key| at?.get(key)?.as_str()).filter(|name| valid_name(name));
            if let Some(name) = name {
                named.extend([" (", name, ")"]);
            }
        }
    }
    named
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::config::{Size, Time};

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Role {
        Root,
        Leaf,
        Other,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Node {
        id: String,
        role: Role,
        port: u32,
        #[serde(default)]
        wait: Option<Time>,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Tree {
        nodes: Vec<Node>,
        leaves: Vec<String>,
        room: Option<Size>,
    }

    fn bounds(tree: &Tree) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (at, node) in
            tree.nodes.iter().enumerate().filter(|(_, node)| node.port > 65535 && node.wait.is_none())
        {
            found.push((format!("nodes[{at}].port"), format!("{} is above 65535", node.port)));
        }
        for (at, leaf) in tree.leaves.iter().enumerate() {
            let node = tree.nodes.iter().find(|node| node.id == *leaf);
            match node.map(|node| &node.role) {
                Some(Role::Leaf) => {}
                Some(role) => found.push((format!("leaves[{at}]"), format!("{leaf} is {role:?}"))),
                None => found.push((format!("leaves[{at}]"), format!("there is no {leaf}"))),
            }
        }
        found
    }

    fn read(text: &str) -> Vec<String> {
        let checked = Checked::of(text.parse().unwrap(), bounds);
        assert_eq!(checked.value.is_some(), checked.misread.is_empty());
        checked.problems().into_iter().map(|(path, reason)| format!("{path}: {reason}")).collect()
    }

    #[test]
    fn all_problems_of_all_entries_are_told_with_where_they_are() {
        let text = "leaves = ['leaf-1', 7, 'leaf-9']\nroom = 12\ntypo = 1\n\
                    [[nodes]]\nid = 'root'\nrole = 'root'\nport = 99999\n\
                    [[nodes]]\nid = 'leaf-1'\nrole = 'laef'\nport = '7'\nwait = 10\n\
                    [[nodes]]\nid = 5\nprot = 1\n";
        let found = read(text);
        for part in [
            "leaves[1]: invalid type: integer `7`, expected a text; write it in quotes",
            "room: 12 has no unit",
            "typo: unknown field `typo`",
            "nodes[0] (root).port: 99999 is above 65535",
            "nodes[1] (leaf-1).role: unknown variant `laef`, expected one of `root`, `leaf`, `other`",
            "nodes[1] (leaf-1).port: invalid type: string \"7\", expected a whole number, 0 or more",
            "nodes[1] (leaf-1).wait: 10 has no unit",
            "nodes[2].id: invalid type: integer `5`",
            "nodes[2].prot: unknown field `prot`",
            "nodes[2].role: it is missing",
            "nodes[2].port: it is missing",
            "leaves[2]: there is no leaf-9",
        ] {
            assert!(found.iter().any(|line| line.starts_with(part)), "{part} in {found:#?}");
        }
        // Neither that `leaf-1` is no leaf, nor anything of a stand-in.
        assert_eq!(found.len(), 12, "{found:#?}");
    }

    #[test]
    fn what_is_no_table_or_list_at_all_is_told_once() {
        assert_eq!(read("nodes = [3, { id = 'a', role = 'leaf', port = 1 }]\nleaves = ['a']").len(), 1);
        assert_eq!(read("nodes = 'a'\nleaves = []").len(), 1);
        assert_eq!(read("[[nodes]]\nid = 'a'\nrole = 'leaf'\nport = 1").len(), 0);
        // Bounded work, however much is wrong.
        let many = "[[nodes]]\n".repeat(1_000);
        assert!(!read(&many).is_empty());
    }
}
