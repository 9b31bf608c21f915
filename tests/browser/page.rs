//! What a person does with the page and sees of it. Keys and clicks go through the browser's own input; what is seen is
//! read off the rendered document.

use std::{path::PathBuf, sync::Arc, time::Duration};

use base64::Engine;
use canopy_tests::{
    form::{Form, form},
    wait::wait_for,
};
use serde_json::{Value, json};

use crate::driver::Driver;

/// Enter, Tab and Escape as WebDriver writes keys.
pub const ENTER: &str = "\u{e007}";
/// Tab.
pub const TAB: &str = "\u{e004}";
/// Escape.
pub const ESCAPE: &str = "\u{e00c}";
/// For a page to arrive.
const PATIENCE: Duration = Duration::from_secs(30);

/// The window, showing pages of one root.
pub struct Page {
    driver: Arc<Driver>,
    root: String,
}

impl Page {
    /// The window as a person finds it: empty, wide, light, with scripts.
    pub async fn fresh(driver: Arc<Driver>, root: &str) -> Self {
        let page = Self { driver, root: format!("http://{root}") };
        page.driver.tools("Emulation.setScriptExecutionDisabled", json!({ "value": false })).await;
        page.driver.tools("Emulation.clearDeviceMetricsOverride", json!({})).await;
        page.dark(false).await;
        page.navigate("about:blank").await;
        page.console().await;
        page
    }

    /// The window as it is.
    pub fn of(driver: Arc<Driver>) -> Self {
        Self { driver, root: String::new() }
    }

    async fn command(&self, path: &str, body: Value) -> Value {
        self.driver.command(path, body).await.unwrap_or_else(|error| panic!("{error}"))
    }

    async fn navigate(&self, address: &str) {
        self.command("/url", json!({ "url": address })).await;
    }

    /// Opens a path of the root.
    pub async fn open(&self, path: &str) {
        self.navigate(&format!("{}{path}", self.root)).await;
    }

    /// Runs a script that returns something.
    pub async fn run(&self, script: &str, arguments: Value) -> Value {
        self.command("/execute/sync", json!({ "script": script, "args": arguments })).await
    }

    /// Does something that leads to another document, and waits until that is there.
    pub async fn leave(&self, action: impl Future<Output = ()>) {
        let before = self.value("return window.seen = String(Math.random())").await;
        action.await;
        let script = "return document.readyState === 'complete' && window.seen !== arguments[0]";
        let look = json!({ "script": script, "args": [before] });
        wait_for("another document", PATIENCE, || async {
            // Between two documents a script has nowhere to run.
            let arrived = self.driver.command("/execute/sync", look.clone()).await;
            (arrived == Ok(Value::Bool(true))).then_some(())
        })
        .await;
    }

    /// Presses keys one after another, wherever the focus is.
    pub async fn press(&self, keys: &str) {
        let strokes: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                ["keyDown", "keyUp"].map(|kind| json!({ "type": kind, "value": key.to_string() }))
            })
            .collect();
        self.command("/actions", json!({ "actions": [{ "type": "key", "id": "keys", "actions": strokes }] }))
            .await;
    }

    /// Types a query into the box in place of what is there, and Enter.
    pub async fn search(&self, text: &str) {
        let element = self.find("#q", "").await;
        self.command(&format!("/element/{element}/clear"), json!({})).await;
        self.leave(async {
            self.command(&format!("/element/{element}/value"), json!({ "text": format!("{text}{ENTER}") }))
                .await;
        })
        .await;
    }

    /// The first element of the selector whose text contains `text`.
    async fn find(&self, selector: &str, text: &str) -> String {
        let script = "return [...document.querySelectorAll(arguments[0])]\
                      .find(element => element.textContent.includes(arguments[1])) ?? null";
        let found = self.run(script, json!([selector, text])).await;
        let found = found.as_object().and_then(|element| element.values().next()).and_then(Value::as_str);
        found.unwrap_or_else(|| panic!("nothing matches {selector} with the text {text:?}")).to_owned()
    }

    /// Clicks an element that does not lead away.
    pub async fn click(&self, selector: &str, text: &str) {
        let element = self.find(selector, text).await;
        self.command(&format!("/element/{element}/click"), json!({})).await;
    }

    /// Follows a link by a click.
    pub async fn follow(&self, selector: &str, text: &str) {
        self.leave(self.click(selector, text)).await;
    }

    /// Back in the history.
    pub async fn back(&self) {
        self.leave(async {
            self.command("/back", json!({})).await;
        })
        .await;
    }

    /// Texts of all elements of a selector that are visible, as shown.
    pub async fn texts(&self, selector: &str) -> Vec<String> {
        let script = "return [...document.querySelectorAll(arguments[0])]\
                      .filter(element => element.checkVisibility()).map(element => element.innerText.trim())";
        let texts = self.run(script, json!([selector])).await;
        texts
            .as_array()
            .into_iter()
            .flatten()
            .map(|text| text.as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// All visible text of the elements of a selector.
    pub async fn text(&self, selector: &str) -> String {
        self.texts(selector).await.join("\n")
    }

    /// What a script returns, as text.
    pub async fn value(&self, script: &str) -> String {
        match self.run(script, json!([])).await {
            Value::String(text) => text,
            other => other.to_string(),
        }
    }

    /// Addresses of the results.
    pub async fn addresses(&self) -> Vec<String> {
        let script = "return [...document.querySelectorAll('.hits a.go')].map(link => link.href)";
        serde_json::from_value(self.run(script, json!([])).await).expect("addresses")
    }

    /// Results announced above them.
    pub async fn count(&self) -> u64 {
        let text = self.text(".status .count b").await;
        text.replace(',', "").parse().unwrap_or_else(|_| panic!("{text:?} is no number"))
    }

    /// A screen of `width` CSS pixels.
    pub async fn width(&self, width: u32) {
        let metrics = json!({ "width": width, "height": 740, "deviceScaleFactor": 1, "mobile": false });
        self.driver.tools("Emulation.setDeviceMetricsOverride", metrics).await;
    }

    /// Whether the person likes it dark.
    pub async fn dark(&self, dark: bool) {
        let value = if dark { "dark" } else { "light" };
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": value }] });
        self.driver.tools("Emulation.setEmulatedMedia", features).await;
    }

    /// No scripts of the page from the next document on.
    pub async fn forbid_scripts(&self) {
        self.driver.tools("Emulation.setScriptExecutionDisabled", json!({ "value": true })).await;
    }

    /// What the browser complained about since the last look: blocked content, failed loads, errors of scripts.
    pub async fn console(&self) -> Vec<String> {
        let log = self.command("/se/log", json!({ "type": "browser" })).await;
        let lines = log.as_array().into_iter().flatten();
        lines.map(|line| line["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Keeps a picture of the window for people to look at, in the long form of the tests.
    pub async fn picture(&self, name: &str) {
        if form() == Form::Long {
            self.keep_picture(name).await;
        }
    }

    /// Keeps a picture of the window; where it is.
    pub async fn keep_picture(&self, name: &str) -> PathBuf {
        let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("browser");
        std::fs::create_dir_all(&dir).expect("a writable directory");
        let path = dir.join(format!("{name}.png"));
        let image = self.driver.get("/screenshot").await.unwrap_or_else(|error| panic!("{error}"));
        let image = base64::engine::general_purpose::STANDARD.decode(image.as_str().unwrap_or_default());
        std::fs::write(&path, image.expect("base64")).expect("a writable file");
        path
    }
}
