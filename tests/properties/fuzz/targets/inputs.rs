//! What people and other programs write: the Lease, kubeconfigs, the configuration, `/state`.

use serde_json::Value;
use throughline::client::KubeconfigText;
use throughline::config::ConfigSource;
use throughline::core::data::ids::NamespacedName;
use throughline::core::view::fleet::Fleet;
use throughline::inspect::{find, status, trace};
use throughline::leader::lease;
use throughline::report::ReportOptions;

use super::{check_length, check_message};

/// What a renewal writes of a Lease.
const WRITTEN: [&str; 5] =
    ["holderIdentity", "acquireTime", "leaseDurationSeconds", "leaseTransitions", "renewTime"];

/// A renewal says what it must, and keeps whatever else is in the Lease.
pub(super) fn lease(data: &[u8]) {
    let (object, record, version) = match lease::read(data) {
        Ok(lease) => lease,
        Err(error) => return check_length(&error.failure().to_string()),
    };
    assert!(!version.is_empty());
    let mut renewed = object.clone();
    lease::fill(&mut renewed, &record);
    let (again, read, _) = lease::read(renewed.to_string().as_bytes()).unwrap();
    assert_eq!((&read.holder, &read.renew_time), (&record.holder, &record.renew_time));
    assert_eq!(read.lease_ms, record.lease_ms);
    assert_eq!(read.transitions, record.transitions.min(i32::MAX.unsigned_abs()));
    let others = |mut object: Value| {
        WRITTEN.iter().for_each(|key| object["spec"][key] = Value::Null);
        object
    };
    assert_eq!(others(again), others(object));
}

/// A token that corpora hold once.
const TOKEN: &str = "canary-5f2b7c9d1e";

/// A kubeconfig that somebody else wrote never makes an error that shows its token.
pub(super) fn kubeconfig(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match KubeconfigText::parse(text) {
        Ok(usable) => {
            assert_eq!(KubeconfigText::parse(text), Ok(usable.clone()));
            assert!(!format!("{usable:?}").contains(TOKEN));
        }
        Err(error) => {
            let error = error.to_string();
            check_message(&error);
            let is_token = |line: &str| line.trim_start().starts_with(&format!("token: {TOKEN}"));
            let is_only_token = text.matches(TOKEN).count() == 1
                && text.lines().any(is_token)
                && !text.contains(['"', '\'', '|', '>', '&', '*', '?']);
            assert!(!is_only_token || !error.contains(TOKEN), "{error}");
        }
    }
}

/// A configuration that is accepted can be printed, and reads as the same.
pub(super) fn config(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let load = |text: &str| ConfigSource::default().load_text(text);
    match load(text) {
        Ok(config) => {
            let printed = serde_json::to_string(&config).unwrap();
            let again = load(&printed).unwrap_or_else(|e| panic!("{e}: {printed}"));
            assert_eq!(again, config, "{printed}");
        }
        Err(error) => error.to_string().lines().for_each(check_message),
    }
}

/// The state of another instance can be written again and shown, whatever it says.
pub(super) fn state(data: &[u8]) {
    let Ok(fleet) = serde_json::from_slice::<Fleet>(data) else { return };
    let written = serde_json::to_string(&fleet).unwrap();
    let again: Fleet = serde_json::from_str(&written).unwrap_or_else(|e| panic!("{e}: {written}"));
    assert_eq!(again, fleet);
    check_fleet(&fleet);
}

/// Everything that prints a fleet can print it.
pub(super) fn check_fleet(fleet: &Fleet) {
    let options = ReportOptions::default();
    let mut out = Vec::new();
    let mut connectors = fleet.connectors.clone();
    status::sort(&mut connectors);
    status::rows(fleet, &connectors, true, &options, &mut out).unwrap();
    status::summary(fleet, &connectors, &options, &mut out).unwrap();
    let names = connectors.iter().filter_map(|connector| connector.name.clone());
    for name in names.take(3).chain([NamespacedName::new("shop", "home-lab")]) {
        let found = [find::connector(fleet, &name, None), find::gateway(fleet, &name, None)];
        for found in found.into_iter().flatten() {
            trace::connectors(fleet, &found, &|_| None, &options, &mut out).unwrap();
        }
    }
}
