//! What was read otherwise than written. Bounded: a paste of a whole log must not become an answer of warnings.

use super::Warning;

/// Most warnings of one code.
const MAX_ALIKE: usize = 3;

/// Warnings in order of appearance, each once.
#[derive(Debug, Default)]
pub struct Warnings(Vec<Warning>);

impl Warnings {
    /// Adds one, unless it is there already or there are enough of its code.
    pub fn add(&mut self, code: &'static str, message: impl Into<String>) {
        let warning = Warning { code, message: message.into(), query: String::new() };
        let alike = self.0.iter().filter(|other| other.code == code).count();
        if alike < MAX_ALIKE && !self.0.contains(&warning) {
            self.0.push(warning);
        }
    }

    /// The list.
    pub fn into_list(self) -> Vec<Warning> {
        self.0
    }
}
