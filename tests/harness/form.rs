//! How much a test does: `CANOPY_TEST_FORM` is `quick`, `short` (the default) or `long`.
//!
//! The same test runs in every form; only its numbers grow, so that what the long form finds can be seen in the short
//! one by its seed.

/// How much is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// Before a commit.
    Quick,
    /// In continuous integration.
    Short,
    /// Over night.
    Long,
}

/// The form asked for.
#[expect(clippy::disallowed_methods, reason = "a setting of the test runner, not of the product")]
pub fn form() -> Form {
    match std::env::var("CANOPY_TEST_FORM").as_deref() {
        Ok("quick") => Form::Quick,
        Ok("long") => Form::Long,
        _ => Form::Short,
    }
}

/// One number for each form.
pub fn by_form<T>(quick: T, short: T, long: T) -> T {
    match form() {
        Form::Quick => quick,
        Form::Short => short,
        Form::Long => long,
    }
}
