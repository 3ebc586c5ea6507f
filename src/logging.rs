//! The log for people and log collectors, on standard error.
//!
//! Error messages of API servers, webhooks and libraries may contain addresses, keys, tokens and
//! terminal control characters. Both formats clean their fields here, so that no call can forget it.
//!
//! A task that logs about one thing runs in a span, for example `error_span!("watch", %cluster,
//! %kind)`, and each of its lines starts with the span's fields. A field of the line replaces the
//! span's field of the same name, and an inner span's field the outer one's. The span has the level
//! ERROR, because a filter that passes only warnings drops an INFO span and with it the fields of the
//! warnings. Spans of libraries add no fields: their content is unknown.

use std::fmt;
use std::io::{self, IsTerminal};

use anyhow::Context as _;
use serde_json::Value;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::{LookupSpan, Scope};

use crate::clock::wall_clock_now;
use crate::config::{LogConfig, LogFormat};
use crate::outside_text::{Secret, lines, one_line, replace_secrets};

/// Levels for libraries, whose lines repeat our own: kube's client logs every failed request as an
/// error, even one that is retried.
const LIBRARY_LEVELS: &str = "kube_client=error,kube_client::client::builder=off,kube_runtime=error,hyper=error,tower=error,\
                     h2=error,rustls=error";
/// Fields that quote texts from outside.
const QUOTES: [&str; 4] = ["error", "reason", "detail", "because"];

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Starts logging; call it once. `RUST_LOG` overrides the configured level.
///
/// # Errors
/// The level or `RUST_LOG` is invalid, or logging was started before.
pub fn init(config: &LogConfig) -> anyhow::Result<()> {
    let filter = match std::env::var(EnvFilter::DEFAULT_ENV) {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text)
            .with_context(|| format!("{}={text}", EnvFilter::DEFAULT_ENV))?,
        _ => filter(&config.level).map_err(|message| anyhow::anyhow!("log.level: {message}"))?,
    };
    // kube's client logs a body that it cannot decode, which may be a page of Secrets.
    let filter = filter.add_directive("kube_client::client=error".parse()?);
    let terminal = io::stderr().is_terminal();
    let text = match config.format {
        LogFormat::Auto => terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let style = if text { LineStyle::Text { colour } } else { LineStyle::Json };
    let subscriber = subscriber(filter, style, io::stderr);
    tracing::subscriber::set_global_default(subscriber).context("cannot start logging")
}

/// The filter for `level`. A bare level keeps the libraries quiet; a level with targets is used
/// unchanged.
///
/// # Errors
/// States the value found and the values accepted.
pub fn filter(level: &str) -> Result<EnvFilter, String> {
    let accepted =
        || format!("found {level:?}; accepted: {}, or target=level,…", LEVELS.join(", "));
    let is_level = |text: &str| LEVELS.contains(&text.to_ascii_lowercase().as_str());
    // EnvFilter takes a misspelt level for a target's name.
    if !level.split(',').all(|part| part.contains('=') || is_level(part.trim())) {
        return Err(accepted());
    }
    let quiet = match level.trim().to_ascii_lowercase().as_str() {
        one @ ("warn" | "info" | "debug" | "trace") => format!("{one},{LIBRARY_LEVELS}"),
        "error" => "error,kube_client::client::builder=off".to_owned(),
        _ => level.to_owned(),
    };
    EnvFilter::try_new(quiet).map_err(|error| format!("{} ({error})", accepted()))
}

/// The format of a line.
#[derive(Clone, Copy, Debug)]
enum LineStyle {
    /// Time, level, message, fields.
    Text { colour: bool },
    /// One object on one line: time, level, message, fields, target.
    Json,
}

fn subscriber<W>(filter: EnvFilter, style: LineStyle, writer: W) -> impl Subscriber + Send + Sync
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt::layer().with_writer(writer).fmt_fields(style);
    // If a line can't be written, nor can a message about that; it would panic in the task that logs.
    let lines = lines.event_format(style).log_internal_errors(false);
    tracing_subscriber::registry().with(lines).with(filter)
}

fn is_ours(metadata: &Metadata<'_>) -> bool {
    metadata.target().starts_with(env!("CARGO_CRATE_NAME"))
}

/// The cleaned fields of an event or a span, as text.
struct Fields {
    json: bool,
    is_ours: bool,
    message: String,
    others: Vec<(&'static str, String)>,
}

impl Fields {
    fn of(recorded: impl RecordFields, json: bool, is_ours: bool) -> Self {
        let mut fields = Self { json, is_ours, message: String::new(), others: Vec::new() };
        recorded.record(&mut fields);
        fields
    }

    /// Adds a text. In the text format it is quoted if `is_quoted`; JSON quotes all.
    fn text(&mut self, field: &Field, text: &str, is_quoted: bool) {
        let name = field.name();
        // Our messages may state the address we listen on, and list errors line by line; a library's
        // may contain anything.
        let is_quote = QUOTES.contains(&name) || (name == "message" && !self.is_ours);
        let text = replace_secrets(text, |secret, part| match secret {
            Secret::Address if !is_quote => part.to_owned(),
            _ => secret.stand_in().to_owned(),
        });
        if name == "message" {
            self.message = lines(&text).into_owned();
            return;
        }
        let spelled = match (self.json, is_quoted) {
            (true, _) => Value::from(one_line(&text)).to_string(),
            (false, true) => format!("{text:?}"),
            (false, false) => one_line(&text).into_owned(),
        };
        self.others.push((name, spelled));
    }

    fn value(&mut self, field: &Field, value: impl Into<Value>) {
        self.others.push((field.name(), value.into().to_string()));
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, text: &str) {
        self.text(field, text, true);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, &format!("{value:?}"), false);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.value(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.value(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.value(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.value(field, value);
    }
}

impl LineStyle {
    fn is_json(self) -> bool {
        matches!(self, Self::Json)
    }
}

/// Formats a span's fields once for all of its lines, one `name=value` a line. No value has a line
/// break, because all are cleaned.
impl<'w> FormatFields<'w> for LineStyle {
    fn format_fields<R: RecordFields>(&self, mut out: Writer<'w>, fields: R) -> fmt::Result {
        let fields = Fields::of(fields, self.is_json(), true);
        fields.others.iter().try_for_each(|(name, value)| writeln!(out, "{name}={value}"))
    }
}

impl<S> FormatEvent<S, LineStyle> for LineStyle
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, LineStyle>,
        mut out: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let now = wall_clock_now();
        let level = *event.metadata().level();
        let is_ours = is_ours(event.metadata());
        let Fields { message, others, .. } = Fields::of(event, self.is_json(), is_ours);
        let mut of_spans = String::new();
        for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
            if let Some(fields) = span.extensions().get::<FormattedFields<Self>>()
                && self::is_ours(span.metadata())
            {
                of_spans.push_str(&fields.fields);
            }
        }
        let of_spans = of_spans.lines().filter_map(|line| line.split_once('='));
        let own = others.iter().map(|(name, value)| (*name, &**value));
        let mut fields = Vec::new();
        for (name, value) in of_spans.chain(own) {
            fields.retain(|(outer, _)| *outer != name);
            fields.push((name, value));
        }
        let LineStyle::Text { colour } = *self else {
            let text = |text: &str| Value::from(text).to_string();
            write!(out, "{{\"timestamp\":\"{now}\",\"level\":\"{level}\",")?;
            write!(out, "\"message\":{}", text(&message))?;
            for (name, value) in fields {
                write!(out, ",\"{name}\":{value}")?;
            }
            return writeln!(out, ",\"target\":{}}}", text(event.metadata().target()));
        };
        let code = |code| if colour { code } else { "" };
        let dim = code("\x1b[2m");
        let italic = code("\x1b[3m");
        let plain = code("\x1b[0m");
        let lit = code(match level {
            Level::ERROR => "\x1b[31m",
            Level::WARN => "\x1b[33m",
            Level::INFO => "\x1b[32m",
            Level::DEBUG => "\x1b[34m",
            Level::TRACE => "\x1b[35m",
        });
        write!(out, "{dim}{now}{plain} {lit}{level:<5}{plain} {message}")?;
        for (name, value) in fields {
            write!(out, " {italic}{name}{plain}{dim}={plain}{value}")?;
        }
        writeln!(out)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::core::data::time::UnixMillis;

    fn logged(level: &str, style: LineStyle, log: impl FnOnce()) -> String {
        let (written, writer) = io::pipe().unwrap();
        let subscriber = subscriber(filter(level).unwrap(), style, Arc::new(writer));
        tracing::subscriber::with_default(subscriber, log);
        io::read_to_string(written).unwrap()
    }

    fn one_of_each() {
        let span = tracing::info_span!(target: "kube_client", "noise", very = "noisy");
        let _inside = span.enter();
        tracing::info!(cluster = %"hub", tries = 2, "mirrored");
        tracing::debug!("details");
        tracing::warn!(target: "kube_client::client", "chatter");
        tracing::error!(target: "kube_client::client::builder", "failed with status 503");
        tracing::info!(target: "hyper_util::client", "chatter");
    }

    #[test]
    fn a_text_line_is_time_level_message_fields() {
        let out = logged("info", LineStyle::Text { colour: false }, one_of_each);
        let (time, rest) = out.split_once(' ').unwrap();
        assert!(UnixMillis::parse_rfc3339(time).is_some() && time.len() == 24, "{time}");
        assert_eq!(rest, "INFO  mirrored cluster=hub tries=2\n");
    }

    #[test]
    fn colours_are_used_only_when_enabled() {
        assert!(!logged("info", LineStyle::Text { colour: false }, one_of_each).contains('\x1b'));
        let out = logged("info", LineStyle::Text { colour: true }, one_of_each);
        assert!(out.contains("\x1b[32mINFO \x1b[0m mirrored"), "{out:?}");
    }

    #[test]
    fn json_is_one_flat_object_a_line() {
        let out = logged("info", LineStyle::Json, one_of_each);
        let line: serde_json::Value = serde_json::from_str(&out).unwrap();
        let time = line["timestamp"].as_str().unwrap();
        assert!(UnixMillis::parse_rfc3339(time).is_some() && time.len() == 24, "{time}");
        let keys: Vec<_> = line.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["cluster", "level", "message", "target", "timestamp", "tries"]);
        assert_eq!((&line["level"], &line["message"]), (&"INFO".into(), &"mirrored".into()));
        assert_eq!((&line["cluster"], &line["tries"]), (&"hub".into(), &2.into()));
    }

    /// A task's lines name their object whatever the filter passes.
    #[test]
    fn a_line_has_the_fields_of_its_spans() {
        let log = || {
            let watch = tracing::error_span!("watch", cluster = %"a\nb", kind = "Gateway");
            let _watch = watch.enter();
            let _other = tracing::error_span!("one", cluster = "hub", tries = 2).entered();
            tracing::warn!(kind = "Connector", error = "gone", "lost");
        };
        for level in ["warn", "info"] {
            let out = logged(level, LineStyle::Text { colour: false }, log);
            let expected =
                " WARN  lost cluster=\"hub\" tries=2 kind=\"Connector\" error=\"gone\"\n";
            assert!(out.ends_with(expected), "{out}");
            let out = logged(level, LineStyle::Json, log);
            let rest =
                r#""message":"lost","cluster":"hub","tries":2,"kind":"Connector","error":"gone""#;
            assert!(out.contains(rest), "{out}");
            assert_eq!(out.matches("cluster").count(), 1, "{out}");
        }
    }

    /// An API server's message is cleaned and still readable.
    #[test]
    fn texts_from_outside_are_clean_in_both_formats() {
        let message = "node 0123456789abcdef0123456789abcdef01 with client_secret=hunter at 10.0.0.7:443:\n\u{202e}\x1b[2Jno \"x\"";
        let log = || {
            let text = "two\nlines";
            tracing::warn!(error = %message, reason = message, name = "a\u{202e}b", ?text, "failed");
            let because = "10.0.0.7:443 is gone";
            tracing::info!(address = %"0.0.0.0:8080", because, "listening on 0.0.0.0:8080, token=x:\n\u{202e}");
            tracing::error!(target: "kube_client", "cannot reach https://api.example.test");
        };
        let text = logged("info", LineStyle::Text { colour: false }, log);
        let quote =
            r#"node <node id> with client_secret=<secret> at <address>:\n\u{202e}\u{1b}[2Jno "x""#;
        let quoted = quote.replace('"', "\\\"");
        let expected = format!(
            "WARN  failed error={quote} reason=\"{quoted}\" name=\"a\\u{{202e}}b\" text=\"two\\nlines\"\n"
        );
        assert!(text.contains(&expected), "{text:?} has no {expected:?}");
        assert!(
            text.contains(
                "listening on 0.0.0.0:8080, token=<secret>\n\\u{202e} address=0.0.0.0:8080 \
                 because=\"<address> is gone\"\n"
            ),
            "{text:?}"
        );
        assert!(text.contains("ERROR cannot reach <address>\n"), "{text:?}");

        let json = logged("info", LineStyle::Json, log);
        let lines: Vec<serde_json::Value> =
            json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&lines[0]["error"], &lines[0]["reason"]), (&quote.into(), &quote.into()));
        assert_eq!(lines[2]["message"], "cannot reach <address>");
        assert!(!json.contains('\u{202e}') && !json.contains('\x1b'), "{json:?}");
    }

    #[test]
    fn named_targets_are_logged() {
        let style = LineStyle::Text { colour: false };
        let out = logged("warn,kube_client=warn", style, one_of_each);
        assert_eq!(out.lines().count(), 2, "{out}");
        assert_eq!(logged("debug", style, one_of_each).lines().count(), 2);
        assert_eq!(logged("off", style, one_of_each), "");
    }

    #[test]
    fn a_misspelt_level_is_not_taken_for_a_target() {
        for bad in ["inof", "", "info,throughline", "throughline=loud", "info,,debug"] {
            let error = filter(bad).map(|f| f.to_string()).unwrap_err();
            assert!(error.contains(&format!("{bad:?}")) && error.contains("trace"), "{error}");
        }
        for good in ["info", "WARN", "off", "throughline=debug,kube=warn", "info,hyper=trace"] {
            assert!(filter(good).is_ok(), "{good}");
        }
    }
}
