//! What people ask for: the program's commands, what they print, and what they need for it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test says so by failing")]

mod causes;
mod check;
mod cli_orphans;
mod cli_record;
mod cli_status;
mod config;
#[path = "../support/constants.rs"]
mod constants;
mod crash_loop;
mod demo;
#[path = "../support/every_metric.rs"]
mod every_metric;
mod html;
#[path = "../support/http.rs"]
mod http;
mod inspect;
#[path = "../browser/logs.rs"]
mod logs;
mod program;
mod readme;
#[path = "../../crates/sim/tests/support/sim_apiserver.rs"]
mod sim_apiserver;
#[path = "../../crates/core/tests/support/stage.rs"]
mod stage;
mod surface;
#[path = "../support/temp_folder.rs"]
mod temp_folder;
mod tidy;
#[path = "../deploy/transcript.rs"]
mod transcript;
mod transcripts;
#[path = "../support/waiting.rs"]
mod waiting;
