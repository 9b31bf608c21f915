//! Layering of configuration values and the account of where each came from.
//!
//! A section is read over its defaults with every problem of every value at once ([`Checked`]): one wrong value does not
//! hide the next. Sections refuse unknown keys (`deny_unknown_fields`); unknown
//! sections are refused by [`Layers::unknown_sections`].

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::{Serialize, de::DeserializeOwned};
use toml::{Table, Value};

use super::shape::Checked;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// The documented default.
    Default,
    /// The file.
    File(String),
    /// An environment variable.
    Environment(String),
    /// `--set`.
    Argument,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => f.write_str(path),
            Self::Environment(name) => write!(f, "environment {name}"),
            Self::Argument => f.write_str("--set"),
        }
    }
}

/// Variables that other programs read too, with the section and key that they stand for. They come last: a file goes before.
/// Their values are texts, whatever they look like.
const STANDARD: [(&str, &str, &str); 7] = [
    ("AWS_ENDPOINT_URL_S3", "store", "endpoint"),
    ("AWS_ENDPOINT_URL", "store", "endpoint"),
    ("AWS_REGION", "store", "region"),
    ("AWS_DEFAULT_REGION", "store", "region"),
    ("AWS_ACCESS_KEY_ID", "store", "access_key"),
    ("AWS_SECRET_ACCESS_KEY", "store", "secret_key"),
    ("AWS_SESSION_TOKEN", "store", "session_token"),
];

/// A parser's error with its place.
fn located(error: &toml::de::Error, text: &str) -> String {
    let message = error.message().lines().collect::<Vec<_>>().join(", ");
    let Some(before) = error.span().and_then(|span| text.get(..span.start)) else { return message };
    let column = before.rsplit('\n').next().map_or(0, |begun| begun.chars().count()) + 1;
    format!("line {}, column {column}: {message}", before.split('\n').count())
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `leaf.threads`.
    pub key: String,
    /// What is wrong and what would be right.
    pub reason: String,
    /// Where the value came from.
    pub origin: Origin,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.key, self.origin, self.reason)
    }
}

/// A role's section of the file. Types use `#[serde(default, deny_unknown_fields)]`.
pub trait Section: Serialize + DeserializeOwned + Default {
    /// Name of the section: `leaf`.
    const NAME: &'static str;
    /// (key within the section, what it is, its bounds), for `canopy config schema`; one entry per key.
    const DOCS: &'static [(&'static str, &'static str)];
    /// Bounds and nonsense: (key within the section, reason).
    fn problems(&self) -> Vec<(String, String)>;
}

/// Raw values, layered; later layers win.
#[derive(Debug, Clone, Default)]
pub struct Layers {
    values: Table,
    origins: BTreeMap<String, Origin>,
}

impl Layers {
    /// Adds a file's text. The error is the parser's, with line and column, and without the line, which may hold a secret.
    pub fn file(&mut self, path: &str, text: &str) -> Result<(), Problem> {
        let table: Table = text.parse().map_err(|error: toml::de::Error| Problem {
            key: path.to_owned(),
            reason: located(&error, text),
            origin: Origin::File(path.to_owned()),
        })?;
        for (section, value) in table {
            match value {
                Value::Table(keys) => {
                    for (key, value) in keys {
                        self.put(&section, &key, value, Origin::File(path.to_owned()));
                    }
                }
                other => self.put(&section, "", other, Origin::File(path.to_owned())),
            }
        }
        Ok(())
    }

    /// Adds `CANOPY__SECTION__KEY` variables (nested keys by further `__`), and what is still open from the standard ones;
    /// others are ignored.
    pub fn environment(&mut self, variables: impl IntoIterator<Item = (String, String)>) {
        let (own, others): (Vec<_>, Vec<_>) =
            variables.into_iter().partition(|(name, _)| name.starts_with("CANOPY__"));
        for (name, text) in own {
            let path = name["CANOPY__".len()..].to_lowercase().replace("__", ".");
            self.put_path(&path, &text, Origin::Environment(name));
        }
        let others: BTreeMap<_, _> = others.into_iter().collect();
        for (name, section, key) in STANDARD {
            let given = others.get(name).filter(|text| !text.is_empty());
            let open = !self.origins.contains_key(&format!("{section}.{key}"));
            if let Some(text) = given.filter(|_| open) {
                self.put(section, key, Value::String(text.clone()), Origin::Environment(name.to_owned()));
            }
        }
    }

    /// Adds the process' environment.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the environment")]
    pub fn process_environment(&mut self) {
        self.environment(
            std::env::vars_os()
                .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
        );
    }

    /// Adds one `section.key=value`.
    pub fn set(&mut self, assignment: &str) -> Result<(), Problem> {
        match assignment.split_once('=') {
            Some((path, text)) if path.contains('.') => {
                self.put_path(path.trim(), text.trim(), Origin::Argument);
                Ok(())
            }
            _ => Err(Problem {
                // Not its value, which may be a secret.
                key: assignment.split('=').next().unwrap_or_default().to_owned(),
                reason: "write --set section.key=value, such as leaf.threads=8".to_owned(),
                origin: Origin::Argument,
            }),
        }
    }

    fn put_path(&mut self, path: &str, text: &str, origin: Origin) {
        let (section, key) = path.split_once('.').unwrap_or((path, ""));
        let value = scalar(text);
        match key.split_once('.') {
            None => self.put(section, key, value, origin),
            Some((first, rest)) => {
                let mut value = value;
                for part in rest.rsplit('.') {
                    value = Value::Table(Table::from_iter([(part.to_owned(), value)]));
                }
                self.put(section, first, value, origin);
            }
        }
    }

    fn put(&mut self, section: &str, key: &str, value: Value, origin: Origin) {
        let table = self.values.entry(section).or_insert_with(|| Value::Table(Table::new()));
        if let Value::Table(table) = table {
            match (table.get_mut(key), value) {
                (Some(old @ Value::Table(_)), value @ Value::Table(_)) => merge(old, value),
                (_, value) => drop(table.insert(key.to_owned(), value)),
            }
        }
        self.origins.insert(format!("{section}.{key}"), origin);
    }

    fn origin(&self, section: &str, key: &str) -> Origin {
        self.origins.get(&format!("{section}.{key}")).cloned().unwrap_or(Origin::Default)
    }

    /// Builds a section: valid values over defaults, and every problem.
    pub fn section<T: Section>(&self) -> (T, Vec<Problem>) {
        let name = T::NAME;
        let defaults = Table::try_from(T::default()).unwrap_or_default();
        let given = self.values.get(name).and_then(Value::as_table).cloned().unwrap_or_default();
        let mut whole = defaults.clone();
        given.iter().for_each(|(key, value)| overlay(&mut whole, key, value.clone()));
        let Checked { value, misread, beyond } = Checked::of(whole, T::problems);
        let first = |path: &str| path.split(['.', '[']).next().unwrap_or(path).to_owned();
        let section = value.unwrap_or_else(|| {
            let wrong: BTreeSet<String> = misread.iter().map(|(path, _)| first(path)).collect();
            let mut good = defaults;
            let sound = given.into_iter().filter(|(key, _)| !wrong.contains(key));
            sound.for_each(|(key, value)| overlay(&mut good, &key, value));
            good.try_into().unwrap_or_default()
        });
        let problems = misread.into_iter().chain(beyond).map(|(path, reason)| Problem {
            origin: self.origin(name, &first(&path)),
            key: format!("{name}.{path}"),
            reason,
        });
        let problems = problems.collect();
        (section, problems)
    }

    /// Problems of sections that no role knows.
    pub fn unknown_sections(&self, known: &[&str]) -> Vec<Problem> {
        let unknown = self.values.keys().filter(|section| !known.contains(&section.as_str()));
        unknown
            .map(|section| Problem {
                key: section.clone(),
                reason: format!("unknown section; known are {}", known.join(", ")),
                origin: self
                    .origins
                    .iter()
                    .find(|(key, _)| key.split('.').next() == Some(section))
                    .map_or(Origin::Default, |(_, origin)| origin.clone()),
            })
            .collect()
    }

    /// Lines (`key`, value as TOML, origin) of a section, for `canopy config print`.
    pub fn print<T: Section>(&self, section: &T) -> Vec<(String, String, Origin)> {
        let table = Table::try_from(section).unwrap_or_default();
        let lines = table.into_iter().map(|(key, value)| {
            let origin = self.origin(T::NAME, &key);
            (format!("{}.{key}", T::NAME), value.to_string(), origin)
        });
        lines.collect()
    }
}

/// Every value of a section by its full key, tables taken apart: `leaf.fault.delay`.
pub fn settings<T: Section>(section: &T) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![(T::NAME.to_owned(), Value::Table(Table::try_from(section).unwrap_or_default()))];
    while let Some((key, value)) = open.pop() {
        match value {
            Value::Table(keys) => {
                open.extend(keys.into_iter().map(|(last, value)| (format!("{key}.{last}"), value)));
            }
            value => drop(found.insert(key, value.to_string())),
        }
    }
    found
}

/// A value as typed: number, bool, array or table when it reads as one, else text.
fn scalar(text: &str) -> Value {
    let document: Result<Table, _> = format!("value = {text}").parse();
    document
        .ok()
        .and_then(|mut table| table.remove("value"))
        .unwrap_or_else(|| Value::String(text.to_owned()))
}

fn overlay(table: &mut Table, key: &str, value: Value) {
    match (table.get_mut(key), value) {
        (Some(old @ Value::Table(_)), value @ Value::Table(_)) => merge(old, value),
        (_, value) => drop(table.insert(key.to_owned(), value)),
    }
}

fn merge(old: &mut Value, new: Value) {
    if let (Value::Table(old), Value::Table(new)) = (&mut *old, new) {
        for (key, value) in new {
            overlay(old, &key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Time;
    use serde::Deserialize;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Leaf {
        threads: u32,
        wait: Time,
        profiles: BTreeMap<String, u32>,
    }
    impl Default for Leaf {
        fn default() -> Self {
            Self { threads: 2, wait: Time::ms(10), profiles: BTreeMap::new() }
        }
    }
    impl Section for Leaf {
        const NAME: &'static str = "leaf";
        const DOCS: &'static [(&'static str, &'static str)] =
            &[("threads", "search threads"), ("wait", "patience"), ("profiles", "profiles")];
        fn problems(&self) -> Vec<(String, String)> {
            if self.threads == 0 { vec![("threads".into(), "must be 1 or more".into())] } else { vec![] }
        }
    }

    #[test]
    fn later_layers_win_and_tell_where_they_came_from() {
        let mut layers = Layers::default();
        layers.file("c.toml", "[leaf]\nthreads = 3\nwait = '1s'\nprofiles = {a = 1}").unwrap();
        layers.environment([("CANOPY__LEAF__THREADS".into(), "4".into()), ("PATH".into(), "x".into())]);
        layers.set("leaf.wait=20ms").unwrap();
        layers.set("leaf.profiles.b=2").unwrap();
        let (leaf, problems) = layers.section::<Leaf>();
        assert_eq!(problems, []);
        assert_eq!((leaf.threads, leaf.wait), (4, Time::ms(20)));
        assert_eq!(leaf.profiles, BTreeMap::from([("a".into(), 1), ("b".into(), 2)]));
        let lines = layers.print(&leaf);
        assert!(lines.contains(&(
            "leaf.threads".into(),
            "4".into(),
            Origin::Environment("CANOPY__LEAF__THREADS".into())
        )));
    }

    #[test]
    fn variables_of_other_programs_are_texts_and_come_after_everything() {
        #[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        struct Store {
            region: String,
            endpoint: String,
            secret_key: crate::config::Secret,
        }
        impl Section for Store {
            const NAME: &'static str = "store";
            const DOCS: &'static [(&'static str, &'static str)] = &[];
            fn problems(&self) -> Vec<(String, String)> {
                vec![]
            }
        }
        let mut layers = Layers::default();
        layers.file("c.toml", "[store]\nregion = 'here'").unwrap();
        let variables = [
            ("AWS_REGION", "there"),
            ("AWS_ENDPOINT_URL", "http://a"),
            ("AWS_ENDPOINT_URL_S3", ""),
            ("AWS_SECRET_ACCESS_KEY", "4711"),
        ];
        layers.environment(variables.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let (store, problems) = layers.section::<Store>();
        assert_eq!(problems, []);
        assert_eq!((&*store.region, &*store.endpoint), ("here", "http://a"));
        assert_eq!(store.secret_key.reveal(), "4711");
        assert!(layers.print(&store).iter().all(|(_, value, _)| !value.contains("4711")));
    }

    #[test]
    fn all_problems_are_listed() {
        let mut layers = Layers::default();
        layers.file("c.toml", "[leaf]\nthreads = 0\nwait = 10\ntypo = 1\n[lief]\nx = 1").unwrap();
        let (_, problems) = layers.section::<Leaf>();
        let keys: Vec<&str> = problems.iter().map(|p| p.key.as_str()).collect();
        assert_eq!(keys, ["leaf.typo", "leaf.wait", "leaf.threads"]);
        assert!(problems[0].reason.contains("unknown field"), "{}", problems[0]);
        assert_eq!(layers.unknown_sections(&["leaf"])[0].key, "lief");
        assert!(layers.set("threads=1").is_err());
    }

    #[test]
    fn what_can_not_be_read_is_located_and_not_repeated() {
        let mut layers = Layers::default();
        let text = "[store]\nregion = 'here'\nsecret_key = hush-hush\n";
        let error = layers.file("c.toml", text).unwrap_err().to_string();
        assert!(error.contains("line 3, column ") && !error.contains("hush"), "{error}");
        let error = layers.set("secret_key=hush-hush").unwrap_err().to_string();
        assert!(error.contains("secret_key") && !error.contains("hush"), "{error}");
    }
}
