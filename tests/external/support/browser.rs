//! Runs headless Chromium through chromedriver, with WebDriver (w3.org/TR/webdriver2), which is JSON over HTTP.

use std::io::{self, BufRead, BufReader, Lines, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use base64ct::{Base64, Encoding};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::processes::PATIENCE;
use super::scratch;

/// A running browser with one page, stopped on drop.
pub struct Browser {
    driver: Child,
    /// Output of the driver, which would end if its pipe were closed.
    _said: Lines<BufReader<ChildStdout>>,
    port: u16,
    session: String,
    /// Directory for files of driver and browser, removed on drop.
    folder: TempDir,
}

impl Browser {
    /// Starts a browser.
    pub fn start() -> Self {
        let folder = scratch();
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver: {error}; scripts/test installs it"));
        let mut said = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = said
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| {
                let (_, port) = line.split_once("started successfully on port ")?;
                port.trim_end_matches('.').parse().ok()
            })
            .expect("chromedriver prints no port");
        let mut browser = Self {
            driver,
            _said: said,
            port,
            session: String::new(),
            folder,
        };
        // Its sandbox does not work for root, and /dev/shm is small in containers.
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-dev-shm-usage",
            "--window-size=1400,900",
        ];
        let session = browser.ask(
            "POST",
            "/session",
            &json!({"capabilities": {"alwaysMatch": {
                "goog:chromeOptions": {"args": arguments},
                "goog:loggingPrefs": {"browser": "ALL"},
            }}}),
        );
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        browser
    }

    /// Returns the directory of its temporary files.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Opens a page and waits until it is loaded.
    pub fn open(&self, page: &Path) {
        self.command("/url", &json!({"url": format!("file://{}", page.display())}));
    }

    /// Runs a script; returns its result.
    pub fn run(&self, script: &str) -> Value {
        self.command("/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Runs a script; returns the value that the script passes to its first argument, a function.
    pub fn run_async(&self, script: &str) -> Value {
        self.command("/execute/async", &json!({"script": script, "args": []}))
    }

    /// Waits until an expression is true.
    pub fn wait_for(&self, expression: &str) {
        let start = Instant::now();
        while self.run(&format!("return Boolean({expression})")) != json!(true) {
            assert!(start.elapsed() < PATIENCE, "{expression} does not become true");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Types keys into the focused element. `\u{e007}` is Enter, `\u{e00c}` is Escape (section 17.4.2 of the
    /// specification).
    pub fn press(&self, keys: &str) {
        let actions = keys.chars().flat_map(|key| {
            [
                json!({"type": "keyDown", "value": key}),
                json!({"type": "keyUp", "value": key}),
            ]
        });
        self.act(json!({"type": "key", "id": "keys", "actions": actions.collect::<Vec<_>>()}));
    }

    /// Types a key while another is held: `\u{e008}` is Shift, `\u{e00a}` is Alt.
    pub fn press_with(&self, held: char, key: &str) {
        let action = |kind: &str, key: &str| json!({"type": kind, "value": key});
        let held = held.to_string();
        let actions = [
            action("keyDown", &held),
            action("keyDown", key),
            action("keyUp", key),
            action("keyUp", &held),
        ];
        self.act(json!({"type": "key", "id": "keys", "actions": actions}));
    }

    /// Moves the pointer to a point of the page.
    pub fn point_at(&self, (x, y): (i64, i64)) {
        self.act(pointer(json!([move_to(x, y)])));
    }

    /// Clicks at a point.
    pub fn click_at(&self, (x, y): (i64, i64)) {
        self.act(pointer(json!([
            move_to(x, y),
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ])));
    }

    /// Drags from one point to another.
    pub fn drag(&self, (x, y): (i64, i64), (to_x, to_y): (i64, i64)) {
        self.act(pointer(json!([
            move_to(x, y),
            {"type": "pointerDown", "button": 0},
            move_to((x + to_x) / 2, (y + to_y) / 2),
            move_to(to_x, to_y),
            {"type": "pointerUp", "button": 0},
        ])));
    }

    /// Turns the wheel at a point; negative values scroll up.
    pub fn wheel(&self, (x, y): (i64, i64), by: i64) {
        let action = json!({"type": "scroll", "x": x, "y": y, "deltaX": 0, "deltaY": by});
        self.act(json!({"type": "wheel", "id": "wheel", "actions": [action]}));
    }

    fn act(&self, source: Value) {
        self.command("/actions", &json!({"actions": [source]}));
    }

    /// Emulates a preference for `light` or `dark` pages.
    pub fn prefer(&self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        let params = json!({"features": [feature]});
        let command = json!({"cmd": "Emulation.setEmulatedMedia", "params": params});
        self.command("/goog/cdp/execute", &command);
    }

    /// Sets the width of the page, in pixels.
    pub fn set_width(&self, width: u32) {
        let params = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        let command = json!({"cmd": "Emulation.setDeviceMetricsOverride", "params": params});
        self.command("/goog/cdp/execute", &command);
    }

    /// Returns the console messages since the last call.
    pub fn console(&self) -> Vec<String> {
        let log = self.command("/se/log", &json!({"type": "browser"}));
        let entries = log.as_array().unwrap().iter();
        entries.map(|entry| entry["message"].to_string()).collect()
    }

    /// Returns a screenshot of the page as PNG.
    pub fn screenshot(&self) -> Vec<u8> {
        let shot = self.ask(
            "GET",
            &format!("/session/{}/screenshot", self.session),
            &Value::Null,
        );
        Base64::decode_vec(shot.as_str().unwrap()).unwrap()
    }

    fn command(&self, path: &str, body: &Value) -> Value {
        self.ask("POST", &format!("/session/{}{path}", self.session), body)
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let answer = self.answer(method, path, body).unwrap();
        assert!(
            answer["value"]["error"].is_null(),
            "{method} {path} {body}: {answer}"
        );
        answer["value"].clone()
    }

    fn answer(&self, method: &str, path: &str, body: &Value) -> io::Result<Value> {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all((head + &body).as_bytes())?;
        Ok(serde_json::from_slice(&content(stream)?)?)
    }
}

/// Reads the body of a response, whose length is in the header.
fn content(stream: TcpStream) -> io::Result<Vec<u8>> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else {
            if line.trim().is_empty() {
                break;
            }
            continue;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut content = vec![0; length];
    reader.read_exact(&mut content)?;
    Ok(content)
}

fn pointer(actions: Value) -> Value {
    json!({"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions})
}

fn move_to(x: i64, y: i64) -> Value {
    json!({"type": "pointerMove", "duration": 20, "x": x, "y": y})
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The browser would outlive the driver. Errors are ignored: a failed test must not panic again here.
        if !self.session.is_empty() {
            let _ = self.answer("DELETE", &format!("/session/{}", self.session), &Value::Null);
        }
        let pid = rustix::process::Pid::from_child(&self.driver);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.driver.wait();
    }
}
