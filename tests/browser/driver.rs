//! A small WebDriver client: starts `chromedriver` on a free port, opens one headless browser, sends commands.
//!
//! Nothing may outlive the tests, however they end: a shell holds the driver and ends it when this process's end of its
//! input closes, and the browser ends with the driver because they speak over a pipe.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use canopy_cli::http::Client;
use canopy_common::net::NetIo;
use serde_json::{Value, json};

/// For one command; starting a browser on a busy machine takes longest.
const PATIENCE: Duration = Duration::from_mins(1);
const MISSING: &str = "chromedriver does not start; install the packages chromium and chromium-driver";

/// A browser with one window.
pub struct Driver {
    client: Client,
    session: String,
    /// Held open: its end ends the driver and the browser.
    _shell: Child,
    _output: BufReader<ChildStdout>,
}

/// Starts the driver; the port it took.
fn spawn() -> (Child, BufReader<ChildStdout>, String) {
    // The shell closes its own output, so that the driver's end is the end of what can be read.
    let script = "chromedriver --port=0 --log-level=SEVERE & exec >&-; read -r _; kill $!";
    let mut shell = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut output = BufReader::new(shell.stdout.take().expect("its output"));
    let mut line = String::new();
    while output.read_line(&mut line).is_ok_and(|read| read > 0) {
        if let Some((_, port)) = line.split_once("started successfully on port ") {
            let port = port.trim().trim_end_matches('.').to_owned();
            return (shell, output, port);
        }
        line.clear();
    }
    drop(shell.stdin.take());
    panic!("{MISSING}: {:?}", shell.wait());
}

impl Driver {
    /// Starts a browser that keeps what it has to keep in `profile`.
    pub async fn start(profile: &Path) -> Self {
        let (shell, output, port) = spawn();
        let client = Client::new(NetIo::tcp(), &format!("127.0.0.1:{port}"), PATIENCE);
        let mut driver = Self { client, session: String::new(), _shell: shell, _output: output };
        driver.session = driver.open(profile).await;
        driver
    }

    /// Whether the browser still lives: one may die on a machine that is short of memory.
    pub async fn lives(&self) -> bool {
        self.get("/url").await.is_ok()
    }

    async fn open(&self, profile: &Path) -> String {
        let args = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--remote-debugging-pipe",
            "--window-size=1200,900",
            &format!("--user-data-dir={}", profile.display()),
        ];
        let wanted = json!({ "capabilities": { "alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": { "browser": "ALL" },
            "goog:chromeOptions": { "args": args },
        } } });
        let session = self.send("/session", wanted).await;
        let session = session.unwrap_or_else(|error| panic!("the browser does not start: {error}"));
        session["sessionId"].as_str().expect("a session").to_owned()
    }

    async fn send(&self, path: &str, body: Value) -> Result<Value, String> {
        let answered = self.client.post(path, body.to_string().into()).await;
        Self::read(path, answered.map_err(|error| format!("{path}: {error:#}"))?)
    }

    fn read(path: &str, answered: http::Response<bytes::Bytes>) -> Result<Value, String> {
        let mut answer: Value =
            serde_json::from_slice(answered.body()).map_err(|error| format!("{path}: {error}"))?;
        let value = answer["value"].take();
        match value["error"].as_str() {
            Some(error) if !answered.status().is_success() => {
                Err(format!("{path}: {error}: {}", value["message"].as_str().unwrap_or_default()))
            }
            _ => Ok(value),
        }
    }

    /// A command of the session.
    pub async fn command(&self, path: &str, body: Value) -> Result<Value, String> {
        self.send(&format!("/session/{}{path}", self.session), body).await
    }

    /// A question of the session.
    pub async fn get(&self, path: &str) -> Result<Value, String> {
        let path = format!("/session/{}{path}", self.session);
        let answered = self.client.get(&path).await;
        Self::read(&path, answered.map_err(|error| format!("{path}: {error:#}"))?)
    }

    /// A command of the developer tools.
    pub async fn tools(&self, command: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": command, "params": parameters });
        self.command("/goog/cdp/execute", body).await.unwrap_or_else(|error| panic!("{error}"))
    }
}
