//! The log for people and log collectors, on standard error.

use std::fmt;
use std::io::{self, IsTerminal};

use anyhow::Context as _;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

use crate::clock::wall_clock_now;
use crate::config::{LogConfig, LogFormat};

/// Our own lines already say what the libraries' would. kube's client logs every failed request as
/// an error, even one that is retried.
const LIBRARY_LEVELS: &str = "kube_client=error,kube_client::client::builder=off,hyper=error,tower=error,\
                     h2=error,rustls=error";
const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Starts logging; to be called once. `RUST_LOG` overrides the configured level.
///
/// # Errors
/// The level or `RUST_LOG` is invalid, or logging was started before.
pub fn init(config: &LogConfig) -> anyhow::Result<()> {
    let filter = match std::env::var(EnvFilter::DEFAULT_ENV) {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text)
            .with_context(|| format!("{}={text}", EnvFilter::DEFAULT_ENV))?,
        _ => filter(&config.level).map_err(|message| anyhow::anyhow!("log.level: {message}"))?,
    };
    let terminal = io::stderr().is_terminal();
    let text = match config.format {
        LogFormat::Auto => terminal,
        LogFormat::Text => true,
        LogFormat::Json => false,
    };
    let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let style = if text { LineStyle::Text { colour } } else { LineStyle::Json };
    tracing::subscriber::set_global_default(subscriber(filter, style, io::stderr))
        .context("cannot start logging")
}

/// The filter for `level`. A bare level keeps the libraries quiet; one that names targets is used
/// unchanged.
///
/// # Errors
/// Says what was found and what is accepted.
pub fn filter(level: &str) -> Result<EnvFilter, String> {
    let accepted =
        || format!("found {level:?}; accepted: {}, or target=level,…", LEVELS.join(", "));
    let is_level = |text: &str| LEVELS.contains(&text.to_ascii_lowercase().as_str());
    // EnvFilter would take a misspelt level for the name of a target.
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

#[derive(Clone, Copy, Debug)]
enum LineStyle {
    Text { colour: bool },
    Json,
}

fn subscriber<W>(
    filter: EnvFilter,
    style: LineStyle,
    writer: W,
) -> Box<dyn Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    match style {
        LineStyle::Text { colour } => {
            Box::new(lines.with_ansi(colour).event_format(TextFormat).finish())
        }
        LineStyle::Json => Box::new(
            lines
                .with_ansi(false)
                .with_timer(UtcTime)
                .json()
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false)
                .finish(),
        ),
    }
}

/// RFC 3339 in UTC, with milliseconds.
struct UtcTime;

impl FormatTime for UtcTime {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        write!(w, "{}", wall_clock_now())
    }
}

/// Time, level, message, fields.
struct TextFormat;

impl<S, N> FormatEvent<S, N> for TextFormat
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let level = *event.metadata().level();
        let colour = match level {
            Level::ERROR => "31",
            Level::WARN => "33",
            Level::INFO => "32",
            Level::DEBUG => "34",
            Level::TRACE => "35",
        };
        let ansi = writer.has_ansi_escapes();
        let (dim, lit, plain) = if ansi { ("\x1b[2m", "\x1b[", "\x1b[0m") } else { ("", "", "") };
        write!(writer, "{dim}")?;
        UtcTime.format_time(&mut writer)?;
        write!(writer, "{plain} ")?;
        match ansi {
            true => write!(writer, "{lit}{colour}m{level:<5}{plain} ")?,
            false => write!(writer, "{level:<5} ")?,
        }
        context.field_format().format_fields(writer.by_ref(), event)?;
        writeln!(writer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::core::data::time::UnixMillis;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(level: &str, style: LineStyle, log: impl FnOnce()) -> String {
        let lines = Lines::default();
        let writer = lines.clone();
        let subscriber = subscriber(filter(level).unwrap(), style, move || writer.clone());
        tracing::subscriber::with_default(subscriber, log);
        String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
    }

    fn one_of_each() {
        let span = tracing::info_span!("noise", very = "noisy");
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
