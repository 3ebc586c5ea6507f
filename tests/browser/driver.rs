//! Drives a headless Chromium with the WebDriver protocol, as far as these tests need it.

use std::env;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const MISSING: &str = "chromedriver can't be started; install Chromium and its driver (Debian: \
                       apt-get install chromium chromium-driver), or set CHROMEDRIVER to its path";

/// One browser with one page.
pub(crate) struct Browser {
    driver: Child,
    /// Kept open, because the driver may write more.
    _output: Lines<BufReader<ChildStdout>>,
    port: u16,
    session: String,
}

impl Browser {
    pub(crate) fn start() -> Self {
        let name = env::var("CHROMEDRIVER").unwrap_or_else(|_| "chromedriver".to_owned());
        let mut driver = Command::new(name)
            .arg("--port=0")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{MISSING}: {error}"));
        let mut output = BufReader::new(driver.stdout.take().unwrap()).lines();
        // "ChromeDriver was started successfully on port 38291."
        let port = output.by_ref().map_while(Result::ok).find_map(|line| {
            line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
        });
        let port = port.expect(MISSING);
        let mut browser = Self { driver, _output: output, port, session: String::new() };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1500,1000",
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
            "timeouts": {"script": 30_000, "pageLoad": 60_000},
        }}});
        let session = browser.call("POST", "/session", &wanted);
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        browser
    }

    /// Sends a command and returns the value of its answer.
    fn call(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = body.to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = BufReader::new(stream);
        let mut length = 0;
        loop {
            let mut line = String::new();
            answer.read_line(&mut line).unwrap();
            match line.trim_end().split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.trim().parse().unwrap();
                }
                None if line.trim_end().is_empty() => break,
                _ => {}
            }
        }
        let mut text = vec![0; length];
        answer.read_exact(&mut text).unwrap();
        let mut answer: Value = serde_json::from_slice(&text).unwrap();
        let value = answer["value"].take();
        assert!(value.get("error").is_none(), "{method} {path} {body}: {value:#}");
        value
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.call("POST", &format!("{}{path}", self.session), body)
    }

    /// Opens an address and waits until the page has loaded.
    pub(crate) fn open(&self, url: &str) {
        // If only the fragment differed, the browser would not reload the page.
        self.post("/url", &json!({"url": "about:blank"}));
        self.post("/url", &json!({"url": url}));
    }

    /// Runs the body of a function in the page and returns its result.
    pub(crate) fn js(&self, body: &str) -> Value {
        self.post("/execute/sync", &json!({"script": body, "args": []}))
    }

    /// The value of an expression as text.
    pub(crate) fn text(&self, expression: &str) -> String {
        let value = self.js(&format!("return String({expression})"));
        value.as_str().unwrap().to_owned()
    }

    /// Asserts that the text of an expression has these parts; returns it.
    #[track_caller]
    pub(crate) fn assert_shows(&self, expression: &str, parts: &[&str]) -> String {
        let text = self.text(expression);
        for part in parts {
            assert!(text.contains(part), "{part:?} is missing in {text}");
        }
        text
    }

    /// Asserts the text of an expression.
    #[track_caller]
    pub(crate) fn assert_is(&self, expression: &str, expected: &str) {
        assert_eq!(self.text(expression), expected, "{expression}");
    }

    /// Waits, frame by frame, until an expression is true.
    pub(crate) fn until(&self, expression: &str) {
        let script = format!(
            "const done = arguments[0];
             (function look() {{ ({expression}) ? done(true) : requestAnimationFrame(look); }})();"
        );
        self.post("/execute/async", &json!({"script": script, "args": []}));
    }

    /// Presses keys one after another; names are WebDriver's.
    pub(crate) fn press(&self, keys: &[&str]) {
        let press = |key| {
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        };
        let actions: Vec<_> = keys.iter().flat_map(press).collect();
        self.post(
            "/actions",
            &json!({"actions": [{"type": "key", "id": "keys", "actions": actions}]}),
        );
    }

    /// Moves the pointer onto the first element that matches a selector, and clicks it if `click`.
    pub(crate) fn point(&self, selector: &str, click: bool) {
        let middle = self.js(&format!(
            "const element = document.querySelector({selector:?});
             element.scrollIntoView({{block: 'nearest', behavior: 'instant'}});
             const box = element.getBoundingClientRect();
             return [Math.round(box.left + box.width / 2), Math.round(box.top + box.height / 2)];"
        ));
        let mut actions = vec![json!({"type": "pointerMove", "x": middle[0], "y": middle[1]})];
        if click {
            actions.push(json!({"type": "pointerDown", "button": 0}));
            actions.push(json!({"type": "pointerUp", "button": 0}));
        }
        let mouse = json!({"type": "pointer", "id": "mouse", "parameters": {"pointerType": "mouse"}, "actions": actions});
        self.post("/actions", &json!({"actions": [mouse]}));
    }

    /// Sets the system's colour scheme: `light` or `dark`.
    pub(crate) fn prefer(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.post(
            "/goog/cdp/execute",
            &json!({"cmd": "Emulation.setEmulatedMedia", "params": {"features": features}}),
        );
    }

    /// What the window shows, as PNG.
    pub(crate) fn screenshot(&self, width: u32, height: u32) -> Vec<u8> {
        // The frame of the window counts, and a headless one has none.
        self.post("/window/rect", &json!({"width": width, "height": height}));
        self.js("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))");
        let shot = self.call("GET", &format!("{}/screenshot", self.session), &json!({}));
        STANDARD.decode(shot.as_str().unwrap()).unwrap()
    }

    /// The page's policy refuses markup, requests to other hosts and their images, also from the page's
    /// own scripts.
    pub(crate) fn assert_policy(&self) {
        let tried = "try { document.body.innerHTML = '<b>x</b>'; return 'taken' } catch { return 'refused' }";
        assert_eq!(self.js(tried), "refused");
        self.js(
            "window.refused = [];
             addEventListener('securitypolicyviolation', (event) => refused.push(event.effectiveDirective));
             fetch('http://127.0.0.1:9/').catch(() => {});
             document.body.append(Object.assign(document.createElement('img'), { src: 'http://127.0.0.1:9/' }))",
        );
        self.until("refused.includes('connect-src') && refused.includes('img-src')");
    }

    /// Asserts that the page asked for nothing but what begins like this, and logged nothing.
    pub(crate) fn assert_quiet(&self, allowed: &str) {
        let console = self.post("/se/log", &json!({"type": "browser"}));
        assert_eq!(console, json!([]), "the console is not empty");
        let events = self.post("/se/log", &json!({"type": "performance"}));
        let mut requested = Vec::new();
        for event in events.as_array().unwrap() {
            let event: Value = serde_json::from_str(event["message"].as_str().unwrap()).unwrap();
            if event["message"]["method"] == "Network.requestWillBeSent" {
                requested.push(
                    event["message"]["params"]["request"]["url"].as_str().unwrap().to_owned(),
                );
            }
        }
        assert!(!requested.is_empty(), "not even the page was requested, so the log is incomplete");
        requested.retain(|url| !url.starts_with(allowed) && url != "about:blank");
        assert!(requested.is_empty(), "requested {requested:?}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // On shutdown the driver ends its browser; if it were killed, the browser would stay.
        let result = TcpStream::connect(("127.0.0.1", self.port)).and_then(|mut stream| {
            write!(stream, "GET /shutdown HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")?;
            stream.read(&mut [0; 64])
        });
        if result.is_err() {
            let _ = self.driver.kill();
        }
        let _ = self.driver.wait();
    }
}
