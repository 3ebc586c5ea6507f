//! The lines about upstreams and hub Connectors that do not find each other by name: one for each name
//! while they are few, and one for all of them otherwise.

use tracing::{info, warn};

use crate::core::contract::note::{NamedUpstream, NamingProblem};
use crate::core::data::ids::ClusterName;
use crate::report::style::{count, meant, unconfigured, unreplicated};

/// So many names get a line each.
const LINES_MAX: usize = 3;

pub(super) fn log(
    problem: NamingProblem,
    over: bool,
    upstreams: &[NamedUpstream],
    unnamed: &[ClusterName],
) {
    let unnamed: Vec<_> = unnamed.iter().map(ToString::to_string).collect();
    let lines = match upstreams.len() <= LINES_MAX {
        true => {
            upstreams.iter().map(|u| line(problem, over, u, upstreams.len(), &unnamed)).collect()
        }
        false => vec![line_of_many(problem, over, upstreams)],
    };
    for line in lines {
        if over {
            info!("{line}");
        } else {
            warn!("{line}");
        }
    }
}

fn line(
    problem: NamingProblem,
    over: bool,
    NamedUpstream { cluster, connectors }: &NamedUpstream,
    unconfigured_names: usize,
    unnamed: &[String],
) -> String {
    let (upstream, connectors) = (cluster.as_str(), usize::try_from(*connectors));
    let connectors = connectors.unwrap_or(usize::MAX);
    match problem {
        NamingProblem::Unconfigured if over => {
            format!(
                "no hub Connector names upstream {upstream} any longer, or it is configured now"
            )
        }
        NamingProblem::Unconfigured => {
            let what = unconfigured(connectors, upstream);
            match meant(upstream, unconfigured_names, unnamed) {
                Some(guess) => format!("{what}; did you mean {guess}?"),
                None => format!("{what}; their annotations stay as they are"),
            }
        }
        NamingProblem::Unreplicated if over => {
            format!(
                "the hub has Connectors of upstream {upstream}, or that one has none any longer"
            )
        }
        NamingProblem::Unreplicated => format!(
            "upstream {}; look whether the replicator copies it, and under which name",
            unreplicated(connectors, upstream)
        ),
    }
}

fn line_of_many(problem: NamingProblem, over: bool, upstreams: &[NamedUpstream]) -> String {
    let connectors = upstreams.iter().map(|upstream| upstream.connectors).sum::<u64>();
    let connectors = usize::try_from(connectors).unwrap_or(usize::MAX);
    let (many, first) = (count(upstreams.len(), "upstream"), &upstreams[0].cluster);
    match (problem, over) {
        (NamingProblem::Unconfigured, true) => {
            format!(
                "{many} that were not configured are, or no hub Connector names them any longer"
            )
        }
        (NamingProblem::Unconfigured, false) => format!(
            "{} name {many} that are not configured, such as {first}; their annotations stay as they are",
            count(connectors, "hub Connector")
        ),
        (NamingProblem::Unreplicated, true) => {
            format!("{many} of which the hub had no Connector have one there, or none any longer")
        }
        (NamingProblem::Unreplicated, false) => format!(
            "the hub has no Connector of {many}, such as {first}, which hold {}; look whether the \
             replicator copies them, and under which names",
            count(connectors, "Connector")
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(cluster: &str, connectors: u64) -> NamedUpstream {
        NamedUpstream { cluster: cluster.into(), connectors }
    }

    #[test]
    fn the_lines_say_how_many_which_and_what_is_meant() {
        let say = |problem, upstream: &NamedUpstream, unnamed: &[&str]| {
            let unnamed: Vec<_> = unnamed.iter().map(ToString::to_string).collect();
            line(problem, false, upstream, 1, &unnamed)
        };
        let (wrong, copied) = (NamingProblem::Unconfigured, NamingProblem::Unreplicated);
        assert_eq!(
            say(wrong, &named("project-a", 3), &["proj-a", "west"]),
            "3 hub Connectors name upstream project-a, which is not configured; did you mean proj-a?"
        );
        assert_eq!(
            say(wrong, &named("project-a", 1), &["north", "west"]),
            "1 hub Connector names upstream project-a, which is not configured; their annotations stay \
             as they are"
        );
        assert_eq!(
            say(copied, &named("proj-a", 2), &[]),
            "upstream proj-a holds 2 Connectors, of which the hub has none; look whether the replicator \
             copies it, and under which name"
        );
        let many: Vec<_> = (0..4_000).map(|n| named(&format!("p{n}"), 2)).collect();
        assert_eq!(
            line_of_many(wrong, false, &many),
            "8,000 hub Connectors name 4,000 upstreams that are not configured, such as p0; their \
             annotations stay as they are"
        );
    }
}
