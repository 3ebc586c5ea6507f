//! Leader election: whether its timings fit each other and its Lease has a valid name and cluster.

use super::ClusterConfig;
use super::validate::Validator;
use crate::core::data::ids::Role;
use crate::core::data::shard::Shards;
use crate::leader::election::LEASE_MAX_MS;

/// Shorter pauses would only load the API server.
const RETRY_MIN_MS: u64 = 100;
/// Half a lease duration after an instance last saw that the number of shards is its own, it renews no
/// Lease: one look may fail.
const RETRIES_PER_SHARED_LEASE: u64 = 4;
/// The longest value of a label.
const LABEL_LENGTH_MAX: usize = 63;
/// Each renewal is a write to etcd. 40 shards at the default retry period make so many.
const RENEWALS_PER_SECOND_MAX: u64 = 20;

impl Validator<'_> {
    pub(super) fn leader_election(&mut self) {
        let config = self.config;
        let election = &config.leader_election;
        let hub = |cluster: &ClusterConfig| cluster.roles.contains(&Role::Hub);
        self.shards();
        if !election.enabled || !config.clusters.iter().any(hub) {
            return;
        }
        self.lease_location();
        let (lease, deadline) = (election.lease_duration_ms, election.renew_deadline_ms);
        let retry = election.retry_period_ms;
        let [lease_key, deadline_key, retry_key] =
            ["leaseDurationMs", "renewDeadlineMs", "retryPeriodMs"]
                .map(|key| format!("leaderElection.{key}"));
        let usable = [&lease_key, &deadline_key, &retry_key].map(|key| self.is_usable(key));
        if !lease.is_multiple_of(1_000) || !(1_000..=LEASE_MAX_MS).contains(&lease) {
            let message =
                format!("found {lease}; accepted: 1000 to {LEASE_MAX_MS}, a multiple of 1000");
            return self.error(lease_key, message);
        }
        if retry < RETRY_MIN_MS {
            let message = format!("found {retry}; accepted: {RETRY_MIN_MS} or more");
            return self.error(retry_key, message);
        }
        if usable != [true; 3] {
            return;
        }
        if deadline >= lease {
            let message = format!("found {deadline}; accepted: less than {lease_key} ({lease})");
            return self.error(deadline_key, message);
        }
        if retry * 2 >= deadline {
            let message = format!(
                "found {retry}; accepted: less than half of {deadline_key} ({deadline}), so that a \
                 failed renewal can be retried"
            );
            return self.error(retry_key, message);
        }
        let (gate, write) = (config.election_timings().gate_ms(), config.executor.timeout_ms);
        if retry * 2 > gate && self.is_usable("executor.timeoutMs") {
            let message = format!(
                "found {lease}; minus a tenth for clock drift and {write} for a write in flight \
                 (executor.timeoutMs), {gate} remain between renewals; accepted: a duration that \
                 leaves {} or more, twice {retry_key}",
                retry * 2
            );
            self.error(lease_key, message);
        }
    }

    fn shards(&mut self) {
        let election = &self.config.leader_election;
        let (shards, enabled) = (election.shards, election.enabled);
        let key = "leaderElection.shards";
        if Shards::try_from(shards).is_err() {
            let message = format!("found {shards}; accepted: 1 to {}", Shards::MAX);
            return self.error(key, message);
        }
        if shards > 1 && !enabled {
            let message = format!(
                "found {shards} without an election, in which every instance leads everything; accepted: \
                 1, or leaderElection.enabled: true"
            );
            return self.error(key, message);
        }
        if shards > 1 {
            self.several_shards();
        }
    }

    fn several_shards(&mut self) {
        let config = self.config;
        let election = &config.leader_election;
        let (shards_key, shards) = ("leaderElection.shards", u64::from(election.shards));
        let hub = |cluster: &ClusterConfig| cluster.roles.contains(&Role::Hub);
        if !config.clusters.iter().any(hub) && self.is_usable("clusters") {
            let message = format!("{shards} has no effect: no cluster has the role hub");
            return self.warning(shards_key, message);
        }
        let (lease, retry) = (election.lease_duration_ms, election.retry_period_ms);
        if lease < RETRIES_PER_SHARED_LEASE.saturating_mul(retry) {
            let message = format!(
                "found {lease}; accepted with several shards: {RETRIES_PER_SHARED_LEASE} times \
                 leaderElection.retryPeriodMs ({retry}) or more, so that an instance sees in time that \
                 others have another number of shards"
            );
            self.error("leaderElection.leaseDurationMs", message);
        }
        let renewals = shards * 1_000 / retry.max(1);
        if renewals > RENEWALS_PER_SECOND_MAX && self.is_usable("leaderElection.retryPeriodMs") {
            let message = format!(
                "found {shards}, which makes {renewals} writes to Leases a second \
                 (leaderElection.retryPeriodMs: {retry}); about four shards for each instance suffice"
            );
            self.warning(shards_key, message);
        }
        let name = &election.lease_name;
        if name.len() > LABEL_LENGTH_MAX {
            let message = format!(
                "found {name:?}; accepted with several shards: at most {LABEL_LENGTH_MAX} characters, \
                 because it is a label of their Leases, too"
            );
            self.error("leaderElection.leaseName", message);
        }
        let (stand_in, late) = (config.touch.stand_in_ms, config.stall.touched_ms);
        if stand_in >= late && self.is_usable("stall.touchedMs") {
            let message = format!(
                "found {stand_in}; accepted with several shards: less than stall.touchedMs ({late}), so \
                 that a touch by another instance is not late"
            );
            self.error("touch.standInMs", message);
        }
    }

    fn lease_location(&mut self) {
        let config = self.config;
        let election = &config.leader_election;
        let is_label = |text: &str| {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            (1..=63).contains(&text.len())
                && text.chars().all(plain)
                && !text.starts_with('-')
                && !text.ends_with('-')
        };
        let name = &election.lease_name;
        if name.len() > 253 || !name.split('.').all(is_label) {
            let message = format!("found {name:?}; accepted: a DNS name, such as throughline");
            self.error("leaderElection.leaseName", message);
        }
        if let Some(namespace) = election.lease_namespace.as_ref().filter(|n| !is_label(n)) {
            let message = format!("found {namespace:?}; accepted: a namespace name");
            self.error("leaderElection.leaseNamespace", message);
        }
        if let Some(name) = &election.cluster
            && self.is_usable("clusters")
            && !config.clusters.iter().any(|cluster| cluster.name == *name)
        {
            let names: Vec<_> = config.clusters.iter().map(|c| c.name.to_string()).collect();
            let message = format!(
                "found {:?}, but no cluster has this name; accepted: {}",
                name.as_str(),
                names.join(", ")
            );
            self.error("leaderElection.cluster", message);
        }
    }
}
