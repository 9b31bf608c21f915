//! Values of a section that are others for something named, such as one corpus. They are kept as written and laid over the
//! section when it is known, so that what is not overridden follows the section, also when that is reloaded.
//!
//! Each is tried on its own, so that one wrong value is named with its key and does not hide the next.

use serde::{Deserialize, Serialize};
use toml::Table;

use super::Section;

/// Keys of a section with the values that hold instead.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Overrides(Table);

impl Overrides {
    /// `base` with these values. Wrong ones are left out; [`Overrides::problems`] names them.
    pub fn over<T: Section>(&self, base: &T) -> T {
        self.laid(base).0
    }

    /// What is wrong, as (key, reason). Only `keys` may be overridden.
    pub fn problems<T: Section>(&self, base: &T, keys: &[&str]) -> Vec<(String, String)> {
        let barred = self.0.keys().filter(|key| !keys.contains(&key.as_str())).map(|key| {
            let reason = if T::DOCS.iter().any(|(known, _)| known == key) {
                format!("holds for the whole node; set it in [{}]", T::NAME)
            } else {
                format!("is not known; known are {}", keys.join(", "))
            };
            (key.clone(), reason)
        });
        let mut problems: Vec<(String, String)> = barred.collect();
        let (laid, wrong) = self.laid(base);
        problems.extend(wrong.into_iter().filter(|(key, _)| keys.contains(&key.as_str())));
        let already = base.problems();
        problems.extend(laid.problems().into_iter().filter(|problem| !already.contains(problem)));
        problems
    }

    fn laid<T: Section>(&self, base: &T) -> (T, Vec<(String, String)>) {
        let before = Table::try_from(base).unwrap_or_default();
        let mut good = before.clone();
        let mut wrong = Vec::new();
        for (key, value) in &self.0 {
            let mut alone = before.clone();
            alone.insert(key.clone(), value.clone());
            match alone.try_into::<T>() {
                Ok(_) => drop(good.insert(key.clone(), value.clone())),
                Err(error) => wrong.push((key.clone(), error.message().to_owned())),
            }
        }
        // `before` reads as what it was written from, and each value was tried.
        (good.try_into().unwrap_or_default(), wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Time;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Policy {
        wait: Time,
        tries: u32,
        whole: bool,
    }
    impl Default for Policy {
        fn default() -> Self {
            Self { wait: Time::ms(10), tries: 3, whole: false }
        }
    }
    impl Section for Policy {
        const NAME: &'static str = "policy";
        const DOCS: &'static [(&'static str, &'static str)] = &[("wait", ""), ("tries", ""), ("whole", "")];
        fn problems(&self) -> Vec<(String, String)> {
            if self.tries > 5 { vec![("tries".into(), "is above 5".into())] } else { vec![] }
        }
    }

    fn written(text: &str) -> Overrides {
        Overrides(text.parse().unwrap())
    }

    #[test]
    fn what_is_not_overridden_follows_the_section() {
        let overrides = written("tries = 1");
        for wait in [5, 50] {
            let base = Policy { wait: Time::ms(wait), ..Policy::default() };
            assert_eq!(overrides.over(&base), Policy { tries: 1, ..base });
        }
    }

    #[test]
    fn each_wrong_value_is_named() {
        let overrides = written("wait = 10\ntries = 9\nwhole = true\ntypo = 1");
        let keys = ["wait", "tries"];
        let problems = overrides.problems(&Policy::default(), &keys);
        let named: Vec<&str> = problems.iter().map(|problem| problem.0.as_str()).collect();
        assert_eq!(named, ["typo", "whole", "wait", "tries"], "{problems:?}");
        assert!(
            problems[0].1.contains("known are wait, tries") && problems[1].1.contains("set it in [policy]")
        );
        // What the section has wrong by itself is named there.
        let base = Policy { tries: 9, ..Policy::default() };
        assert_eq!(written("wait = '1s'").problems(&base, &keys), []);
        assert_eq!(written("wait = 1\ntries = 2").over(&base), Policy { tries: 2, ..base });
    }
}
