//! What most tests use.

pub(crate) use std::time::{Duration, Instant};

pub(crate) use serde_json::{Value, json};
pub(crate) use throughline::core::contract::cause::Cause;

pub(crate) use crate::cluster::faults::{Fault, Gate, Rule};
pub(crate) use crate::cluster::fleet::{Fleet, Mirrored, Spec, app};
pub(crate) use crate::cluster::objects::{TRIGGER, UPSTREAM_STATUS, annotation};
pub(crate) use crate::cluster::rest::{CONNECTORS, GATEWAYS, Rest};
pub(crate) use crate::cluster::testbed::{Cluster, Testbed, Topology};
pub(crate) use crate::cluster::throughline::{Setup, Throughline, command, in_sync};
pub(crate) use crate::cluster::{SOON, ensure, eventually, oracle, until, wait_until_idle};
