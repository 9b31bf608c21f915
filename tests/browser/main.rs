//! The search page in a real browser: headless Chromium, driven over the WebDriver protocol the way a person would use
//! the page, against whole trees in this process. A missing browser is a failure. The long form of the tests
//! leaves pictures of what was seen under `target/tmp/browser`; a test that fails always does.

mod driver;
mod facets;
mod keyboard;
mod looks;
mod page;
mod results;
mod safety;
mod trouble;
mod world;
