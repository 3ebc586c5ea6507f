//! Where `trace` and `status` look: the clusters, a running instance, or an event log.

use std::time::Duration;

use clap::Args;
use throughline::config::Config;
use throughline::core::time::UnixMillis;
use throughline::event_log::{Reader, holds_outcomes};
use throughline::trace::Snapshot;
use throughline::trace::log::{self, At};

use super::config::ClusterArgs;
use super::settings::duration_ms;

/// One of three sources; the clusters, unless another is named.
#[derive(Debug, Args)]
pub(super) struct SourceArgs {
    /// Ask a running instance, at its admin port: http://127.0.0.1:8080
    #[arg(long, value_name = "URL", conflicts_with = "log")]
    state: Option<String>,
    /// Read an event log instead, with its rotated parts
    #[arg(long, value_name = "FILE")]
    log: Option<String>,
    /// A moment of the log: RFC 3339, or +90s from its beginning [default: its end]
    #[arg(long, value_name = "TIME", requires = "log", value_parser = moment)]
    at: Option<At>,
    /// Wait so long at most for lists and answers; what did not come is unknown
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, default_value = "10s")]
    timeout: u64,
    #[command(flatten, next_help_heading = "The clusters, as for `run`")]
    config: ClusterArgs,
}

/// A source, ready to be looked at.
pub(super) enum Source<'a> {
    Live(Box<Config>),
    State(&'a str),
    Log(Box<Snapshot>),
}

impl SourceArgs {
    pub(super) fn within(&self) -> Duration {
        Duration::from_millis(self.timeout)
    }

    /// Reads the log or the configuration; what is odd goes to standard error.
    pub(super) fn open(&self) -> anyhow::Result<Source<'_>> {
        if let Some(url) = &self.state {
            return Ok(Source::State(url));
        }
        let Some(file) = &self.log else {
            return Ok(Source::Live(Box::new(self.config.load_quietly()?)));
        };
        let mut reader = Reader::open(file)?;
        // A run writes its settings into the header; a file that has none may hold outcomes all the
        // same.
        let header = reader.header();
        let acted = !header.recorded
            && (header.settings.is_some() || holds_outcomes(file).ok().flatten() == Some(true));
        let (snapshot, warnings) = log::snapshot(&mut reader, self.at.unwrap_or(At::End), acted)?;
        for warning in warnings {
            eprintln!("warning: {warning}");
        }
        Ok(Source::Log(Box::new(snapshot)))
    }
}

fn moment(text: &str) -> Result<At, String> {
    if let Some(offset) = text.strip_prefix('+') {
        return duration_ms(offset).map(At::After);
    }
    UnixMillis::parse_rfc3339(text).map(At::Time).ok_or_else(|| {
        "expected a time such as 2026-11-21T09:20:13Z, or an offset such as +90s".to_owned()
    })
}
