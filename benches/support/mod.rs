//! A fleet as lines of an event log: connectors in three tiers, ten in each namespace, each with its own
//! proxy and gateway and a status of about 1 KB.

use std::fmt::Write;

use throughline::core::data::objects::{
    UPSTREAM_CLUSTER_NAME, UPSTREAM_GROUP, UPSTREAM_KIND, UPSTREAM_NAME, UPSTREAM_NAMESPACE,
    UPSTREAM_STATUS,
};

/// The uid of the n-th upstream namespace.
pub(crate) fn uid(n: usize) -> String {
    format!("{n:08x}-9e1f-4d55-8b57-3a0f5c1d2e4b")
}

/// A status of about 1 KB.
pub(crate) fn status(connector: usize, online: bool, version: usize) -> String {
    let ready = if online {
        r#""lastTransitionTime":"2026-11-21T09:19:30Z","message":"The connector is ready to tunnel traffic.","observedGeneration":1,"reason":"ConnectorReady","status":"True","type":"Ready""#
    } else {
        r#""lastTransitionTime":"2026-11-21T09:19:30Z","message":"Connector lease has expired. Agent may be offline.","observedGeneration":1,"reason":"ConnectorNotReady","status":"False","type":"Ready""#
    };
    let mut addresses = String::new();
    for i in 0..6 {
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(
            addresses,
            r#"{comma}{{"address":"198.51.100.{}","port":{}}}"#,
            i + 7,
            41_000 + version % 1000
        );
    }
    format!(
        r#"{{"conditions":[{{"lastTransitionTime":"2026-11-21T09:19:30Z","message":"The connector has been accepted by the network.","observedGeneration":1,"reason":"Accepted","status":"True","type":"Accepted"}},{{{ready}}}],"connectionDetails":{{"publicKey":{{"addresses":[{addresses}],"discoveryMode":"DNS","homeRelay":"https://relay.example.test","id":"{connector:064x}"}},"type":"PublicKey"}},"leaseRef":{{"name":"connector-{connector}"}}}}"#
    )
}

fn meta(namespace: &str, name: &str, uid: &str, version: usize, extra: &str) -> String {
    format!(
        r#""metadata":{{"creationTimestamp":"2026-11-21T09:19:30Z","generation":1,"name":"{name}","namespace":"{namespace}","resourceVersion":"{version}","uid":"{uid}"{extra}}}"#
    )
}

fn object_uid(tier: usize, n: usize) -> String {
    format!("{n:08x}-{tier:04x}-4d55-8b57-3a0f5c1d2e4b")
}

/// One line of a log.
pub(crate) fn line(at_ms: u64, event: &str, cluster: &str, object: &str) -> String {
    format!(r#"{{"at_ms":{at_ms},"event":"{event}","cluster":"{cluster}","object":{object}}}"#)
}

/// An upstream Connector.
pub(crate) fn source(n: usize, online: bool, version: usize) -> String {
    let meta = meta(
        &format!("project-{}", n / 10),
        &format!("connector-{n}"),
        &object_uid(1, n),
        version,
        "",
    );
    let status = status(n, online, version);
    format!(
        r#"{{"apiVersion":"networking.datumapis.com/v1alpha1","kind":"Connector",{meta},"spec":{{"connectorClassName":"datum-connect"}},"status":{status}}}"#
    )
}

/// The hub Connector (`tier` 2) or edge Connector (`tier` 3) made from it.
pub(crate) fn replica(
    tier: usize,
    n: usize,
    online: bool,
    status_version: usize,
    version: usize,
) -> String {
    let ns = n / 10;
    let annotation = serde_json::to_string(&status(n, online, status_version)).expect("a string");
    let extra = format!(
        r#","labels":{{"{UPSTREAM_CLUSTER_NAME}":"cluster-project-a","{UPSTREAM_GROUP}":"networking.datumapis.com","{UPSTREAM_KIND}":"Connector","{UPSTREAM_NAME}":"connector-{n}","{UPSTREAM_NAMESPACE}":"project-{ns}"}},"annotations":{{"{UPSTREAM_STATUS}":{annotation}}}"#
    );
    let meta = meta(
        &format!("ns-{}", uid(ns)),
        &format!("connector-{n}"),
        &object_uid(tier, n),
        version,
        &extra,
    );
    format!(
        r#"{{"apiVersion":"networking.datumapis.com/v1alpha1","kind":"Connector",{meta},"spec":{{"connectorClassName":"datum-connect"}}}}"#
    )
}

fn proxy(n: usize) -> String {
    let meta = meta(&format!("ns-{}", uid(n / 10)), &format!("app-{n}"), &object_uid(4, n), 1, "");
    format!(
        r#"{{"apiVersion":"networking.datumapis.com/v1alpha","kind":"HTTPProxy",{meta},"spec":{{"hostnames":["app-{n}.example.test"],"rules":[{{"backends":[{{"connector":{{"name":"connector-{n}"}},"endpoint":"http://localhost:8080"}}]}}]}}}}"#
    )
}

fn gateway(n: usize) -> String {
    let stamp = format!(
        r#","annotations":{{"networking.datumapis.com/connector-ready-generation":"true/{n:064x}"}}"#
    );
    let meta =
        meta(&format!("ns-{}", uid(n / 10)), &format!("app-{n}"), &object_uid(5, n), 1, &stamp);
    format!(
        r#"{{"apiVersion":"gateway.networking.k8s.io/v1","kind":"Gateway",{meta},"spec":{{"gatewayClassName":"edge","listeners":[{{"name":"http","port":80,"protocol":"HTTP"}}]}}}}"#
    )
}

fn namespace(n: usize) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"project-{n}","uid":"{}","resourceVersion":"1"}}}}"#,
        uid(n)
    )
}

/// The header of every log here.
pub(crate) const HEADER: &str = r#"{"log":"throughline","version":1,"clusters":[{"name":"project-a","roles":["upstream"]},{"name":"hub","roles":["downstream"]},{"name":"edge-1","roles":["edge"]}]}"#;

/// The initial lists of a settled fleet, line by line.
pub(crate) fn settled(connectors: usize, at_ms: u64) -> impl Iterator<Item = String> {
    type Make = fn(usize) -> String;
    let namespaces = connectors.div_ceil(10);
    let lists: [(&str, &str, usize, Make); 8] = [
        ("project-a", "Namespace", namespaces, namespace),
        ("project-a", "Connector", connectors, |n| source(n, true, 1)),
        ("project-a", "Gateway", 0, namespace),
        ("hub", "Connector", connectors, |n| replica(2, n, true, 1, 1)),
        ("hub", "HTTPRoute", 0, namespace),
        ("edge-1", "Connector", connectors, |n| replica(3, n, true, 1, 1)),
        ("edge-1", "HTTPProxy", connectors, proxy),
        ("edge-1", "Gateway", connectors, gateway),
    ];
    lists.into_iter().flat_map(move |(cluster, kind, count, make)| {
        let mark = move |event: &str| {
            format!(
                r#"{{"at_ms":{at_ms},"event":"{event}","cluster":"{cluster}","kind":"{kind}"}}"#
            )
        };
        std::iter::once(mark("list_started"))
            .chain((0..count).map(move |n| line(at_ms, "listed", cluster, &make(n))))
            .chain(std::iter::once(mark("list_finished")))
    })
}

/// The `i`-th change, as events of the three tiers: a flip or, every third time, a new address. The hub
/// follows after 100 ms and the edge after 600 ms, as on real platforms.
pub(crate) fn change(connectors: usize, i: usize, at_ms: u64) -> [String; 3] {
    let (n, round) = (i.wrapping_mul(7919) % connectors, i / connectors);
    let (version, online) = (round + 2, !(round + n).is_multiple_of(3));
    let v = i + 2;
    [
        line(at_ms, "applied", "project-a", &source(n, online, version)),
        line(at_ms + 100, "applied", "hub", &replica(2, n, online, version, v)),
        line(at_ms + 600, "applied", "edge-1", &replica(3, n, online, version, v)),
    ]
}
