//! Drives a headless Chromium with the WebDriver protocol, as far as these tests need it.

use std::env;
use std::io::{BufRead, BufReader, Read, Result as IoResult, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use serde_json::{Deserializer, Value, json};

/// One browser with one page.
pub(crate) struct Browser {
    driver: Child,
    port: u16,
    session: String,
    /// What the page may ask for: what is in its folder.
    allowed: String,
}

impl Browser {
    /// A browser that has loaded this page.
    pub(crate) fn at(url: &str) -> Self {
        let name = env::var("CHROMEDRIVER").unwrap_or_else(|_| "chromedriver".to_owned());
        let mut driver = Command::new(name);
        driver.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = driver.spawn().expect("Chromium and its driver: see `make browser`");
        let mut output = BufReader::new(driver.stdout.take().unwrap()).lines();
        // "ChromeDriver was started successfully on port 38291."
        let port = output.by_ref().map_while(Result::ok).find_map(|line| {
            line.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok()
        });
        // The driver may write more.
        std::thread::spawn(|| output.for_each(drop));
        let port = port.expect("chromedriver's port");
        let allowed = url[..=url.rfind('/').unwrap()].to_owned();
        let mut browser = Self { driver, port, session: "/session".to_owned(), allowed };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--window-size=1500,1000",
        ];
        let session = browser.post(
            "",
            &json!({"capabilities": {"alwaysMatch": {
                "goog:chromeOptions": {"args": arguments},
                "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
                "timeouts": {"script": 30_000, "pageLoad": 60_000},
            }}}),
        );
        browser.session = format!("/session/{}", session["sessionId"].as_str().unwrap());
        browser.open(url);
        browser
    }

    fn send(&self, method: &str, path: &str, body: &str) -> IoResult<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
        let mut answer = BufReader::new(stream);
        answer.by_ref().lines().map_while(Result::ok).find(String::is_empty);
        // The connection stays open.
        Ok(Deserializer::from_reader(answer).into_iter().next().transpose()?.unwrap_or_default())
    }

    /// Sends a command of the session; returns the value of its answer.
    fn post(&self, path: &str, body: &Value) -> Value {
        let path = format!("{}{path}", self.session);
        let value = self.send("POST", &path, &body.to_string()).unwrap()["value"].take();
        assert!(value.get("error").is_none(), "{path} {body}: {value:#}");
        value
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

    /// Waits, frame by frame, until an expression is true, and one frame more, which draws that.
    pub(crate) fn until(&self, expression: &str) {
        self.js(&format!(
            "return new Promise(function look(done) {{
                 requestAnimationFrame(({expression}) ? done : () => look(done));
             }})"
        ));
    }

    /// Presses keys one after another; names are WebDriver's.
    pub(crate) fn press(&self, keys: &[&str]) {
        let press = |key| ["keyDown", "keyUp"].map(|step| json!({"type": step, "value": key}));
        let actions: Vec<_> = keys.iter().flat_map(press).collect();
        let keys = json!({"type": "key", "id": "keys", "actions": actions});
        self.post("/actions", &json!({"actions": [keys]}));
    }

    /// Moves the pointer onto the first element that matches a selector, and clicks it if `click`.
    pub(crate) fn point(&self, selector: &str, click: bool) {
        let element = self.js(&format!(
            "const element = document.querySelector({selector:?});
             element.scrollIntoView({{block: 'nearest', behavior: 'instant'}});
             return element;"
        ));
        let onto = json!({"type": "pointerMove", "origin": element, "x": 0, "y": 0});
        let press = |step| json!({"type": step, "button": 0});
        let mut actions = vec![onto, press("pointerDown"), press("pointerUp")];
        actions.truncate(if click { 3 } else { 1 });
        let mouse = json!({"type": "pointer", "id": "mouse", "actions": actions});
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

    /// Asserts that no name became markup, and that the page's policy refuses markup, requests to other hosts
    /// and their images, also from the page's own scripts.
    pub(crate) fn assert_harmless(&self, scripts: usize) {
        self.assert_is("document.querySelectorAll('img, iframe, [onerror]').length", "0");
        self.assert_is("document.scripts.length + typeof hacked", &format!("{scripts}undefined"));
        self.assert_quiet();
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

    /// Asserts that the page asked for nothing outside its folder, and logged nothing.
    pub(crate) fn assert_quiet(&self) {
        assert_eq!(self.post("/se/log", &json!({"type": "browser"})), json!([]), "the console");
        let events = self.post("/se/log", &json!({"type": "performance"}));
        let request = |event: &Value| {
            let event: Value = serde_json::from_str(event["message"].as_str()?).ok()?;
            let is_request = event["message"]["method"] == "Network.requestWillBeSent";
            let url = event["message"]["params"]["request"]["url"].as_str()?;
            (is_request && url != "about:blank").then(|| url.to_owned())
        };
        let requested: Vec<_> = events.as_array().unwrap().iter().filter_map(request).collect();
        let is_allowed = |url: &String| url.starts_with(&self.allowed);
        assert!(!requested.is_empty() && requested.iter().all(is_allowed), "{requested:?}");
    }

    /// Asserts that the page is accessible.
    pub(crate) fn audit(&self, of: &str) {
        self.until("document.getAnimations().length === 0");
        let wrong = self.js(include_str!("audit.js"));
        assert_eq!(wrong, json!([]), "{of}: {wrong:#}");
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // On shutdown the driver ends its browser; if it were killed, the browser would stay.
        if self.send("GET", "/shutdown", "").is_err() {
            let _ = self.driver.kill();
        }
        let _ = self.driver.wait();
    }
}
