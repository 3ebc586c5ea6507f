//! Tests `deploy/`, the image, and the commands of docs/how-to/install.md and docs/tutorial.md with real tools and
//! real API servers. `make deploy-test` runs them.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

mod accepted;
mod alerts;
mod chart;
#[path = "../support/cluster/mod.rs"]
mod cluster;
mod dashboard;
mod docs;
mod forms;
mod image;
mod karmada;
mod render;
#[path = "../support/temp_folder.rs"]
mod temp_folder;
mod tools;
mod transcript;
mod tutorial;
