//! Tests of the events that sources send to the machine, without an API server.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::follow::Question;
use super::ledger::{Connectable, Ledger, Offer};
use super::milo::ProjectReader;
use super::proof::{self, UnknownNames};
use super::secrets;
use crate::client::{
    AnyObject, ClusterClient, ConnectionSpec, Connections, Credentials, KubeconfigText,
    ProjectRoot, Server,
};
use crate::config::MiloConfig;
use crate::core::contract::event::{EventKind, EventName};
use crate::core::contract::membership::{JoinRule, OfferState, SourceName};
use crate::core::data::ids::{ClusterName, Role};
use crate::metrics::Metrics;
use throughline_sim::SimClusters;
use throughline_sim::apiserver::{
    ApiVerb, Fault, Resource, ServerMode, SimApiServerSettings, SimMilo,
};

const SOURCE: SourceName = SourceName::KubeconfigSecrets;

struct Bench {
    ledger: Ledger,
    events: mpsc::Receiver<EventKind>,
    connections: Connectable,
}

impl Bench {
    fn new() -> Self {
        let (bus, events) = mpsc::channel(100);
        let roles = vec![Role::Upstream];
        let connections = Connectable::default();
        let ledger = Ledger::new(SOURCE, JoinRule::All, roles, None, bus, connections.clone());
        Self { ledger, events, connections }
    }

    /// Lists these offers; returns the missing names, and whether they are suspiciously many.
    async fn list(&mut self, offers: &[Offer]) -> (Vec<String>, bool) {
        self.ledger.new_list().await;
        for offer in offers {
            self.ledger.listed(offer.clone()).await;
        }
        let missing = self.ledger.list_finished().await;
        (missing.clusters.iter().map(ToString::to_string).collect(), missing.is_suspicious)
    }

    /// The events since the last call.
    fn told(&mut self) -> Vec<&'static str> {
        let mut told = Vec::new();
        while let Ok(event) = self.events.try_recv() {
            told.push(EventName::from(&event).as_str());
        }
        told
    }

    fn of_joined(&self, cluster: &str) -> Option<ConnectionSpec> {
        self.connections.of_joined(SOURCE, &ClusterName::from(cluster))
    }

    fn connection(&self, cluster: &str) -> Option<ConnectionSpec> {
        self.connections.get(SOURCE, &ClusterName::from(cluster))
    }
}

fn offer(cluster: &str, uid: &str, path: &str) -> Offer {
    let server = Server::Path(path.to_owned());
    Offer {
        cluster: ClusterName::from(cluster),
        uid: uid.to_owned(),
        state: OfferState::Ready,
        connection: Some(ConnectionSpec { credentials: Credentials::InCluster, server }),
        shown_by: cluster.to_owned(),
    }
}

#[tokio::test]
async fn only_news_are_told_after_a_list() {
    let mut bench = Bench::new();
    bench.list(&[offer("a", "1", "/")]).await;
    assert_eq!(bench.told(), ["discovery_started", "cluster_offered", "discovery_finished"]);
    bench.ledger.changed(offer("a", "1", "/")).await;
    assert!(bench.told().is_empty());
    let changed = Offer { state: OfferState::Deleting, ..offer("a", "1", "/") };
    bench.ledger.changed(changed).await;
    bench.ledger.changed(offer("a", "2", "/")).await;
    assert_eq!(bench.told(), ["cluster_offered", "cluster_offered"]);
    assert!(bench.ledger.withdrawn(&"a".into(), "a").await);
    assert!(!bench.ledger.withdrawn(&"a".into(), "a").await);
    assert_eq!((bench.told(), bench.connection("a")), (vec!["cluster_withdrawn"], None));
}

#[tokio::test]
async fn a_list_says_what_it_lacks_and_many_at_once_are_suspicious() {
    let mut bench = Bench::new();
    let all: Vec<_> = ["a", "b", "c", "d", "e", "f"].map(|name| offer(name, "1", "/")).into();
    bench.list(&all).await;
    assert_eq!(bench.list(&all[1..]).await, (vec!["a".to_owned()], false));
    assert_eq!(bench.list(&all[3..]).await, (vec!["b".to_owned(), "c".to_owned()], true));
    let (missing, is_suspicious) = bench.list(&[]).await;
    assert_eq!((missing.len(), is_suspicious), (3, true));
}

#[tokio::test]
async fn other_credentials_are_news_and_another_uid_is_another_cluster() {
    let mut bench = Bench::new();
    bench.list(&[offer("a", "1", "/zero")]).await;
    bench.told();
    bench.ledger.changed(offer("a", "1", "/one")).await;
    assert_eq!((bench.told(), bench.of_joined("a")), (vec!["cluster_offered"], None));
    assert_eq!(bench.connection("a"), offer("a", "1", "/one").connection);
    bench.ledger.changed(offer("a", "1", "/two")).await;
    assert_eq!(bench.of_joined("a"), offer("a", "1", "/two").connection);
    bench.ledger.changed(offer("a", "2", "/three")).await;
    assert_eq!(bench.of_joined("a"), None);
    assert_eq!(bench.connection("a"), offer("a", "2", "/three").connection);
    assert_eq!(bench.of_joined("a"), bench.connection("a"));
    bench.connections.left(&"a".into());
    assert_eq!(bench.of_joined("a"), None);
}

/// A list that lacks everything: the machine keeps the joined clusters.
#[tokio::test]
async fn credentials_that_return_are_those_of_a_cluster_that_stayed_joined() {
    let mut bench = Bench::new();
    bench.list(&[offer("a", "1", "/one"), offer("b", "1", "/one")]).await;
    assert!(bench.connection("a").is_some());
    bench.list(&[]).await;
    assert_eq!(bench.of_joined("a"), None);
    bench.list(&[offer("a", "1", "/two"), offer("b", "1", "/two")]).await;
    assert_eq!(bench.of_joined("a"), offer("a", "1", "/two").connection);
    assert_eq!(bench.of_joined("b"), None);
}

#[tokio::test]
async fn a_broken_offer_keeps_the_connection_and_the_first_of_two_claims_counts() {
    let mut bench = Bench::new();
    bench.list(&[offer("a", "1", "/one")]).await;
    let before = bench.connection("a");
    let state = OfferState::Broken { error: "no kubeconfig".into() };
    let broken = Offer { state, connection: None, ..offer("a", "1", "") };
    bench.ledger.changed(broken).await;
    assert_eq!(bench.connection("a"), before);
    bench.told();
    let other = Offer { shown_by: "another".to_owned(), ..offer("a", "9", "/other") };
    bench.ledger.changed(other.clone()).await;
    assert!(bench.told().is_empty());
    assert!(!bench.ledger.withdrawn(&"a".into(), "another").await);
    assert_eq!(bench.connection("a"), before);
    // The other counts when the first goes, unless it is gone, too.
    bench.list(&[offer("a", "1", "/one"), other.clone()]).await;
    bench.ledger.changed(offer("a", "1", "/two")).await;
    bench.told();
    assert!(bench.ledger.withdrawn(&"a".into(), "a").await);
    assert_eq!(bench.told(), ["cluster_withdrawn", "cluster_offered"]);
    assert_eq!(bench.connection("a"), other.connection);
    bench.ledger.changed(offer("a", "1", "/one")).await;
    bench.list(&[other]).await;
    bench.told();
    assert!(bench.ledger.withdrawn(&"a".into(), "another").await);
    assert_eq!((bench.told(), bench.connection("a")), (vec!["cluster_withdrawn"], None));
}

fn secret(data: &serde_json::Value) -> AnyObject {
    let metadata = json!({ "name": "shop", "namespace": "n", "uid": "u" });
    serde_json::from_value(json!({ "metadata": metadata, "data": data })).unwrap()
}

#[test]
fn a_secret_shows_a_cluster_or_why_not() {
    let bench = Bench::new();
    let shown = |data: &serde_json::Value| {
        let offer = secrets::offer(&secret(data), &bench.ledger);
        let error = match offer.state {
            OfferState::Broken { error } => error.to_string(),
            _ => String::new(),
        };
        assert_eq!(offer.cluster.as_str(), "shop");
        (offer.uid, error, offer.connection.is_some())
    };
    let kubeconfig_at = |server: &str, user: &str| {
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             contexts: [{{name: c, context: {{cluster: a, user: u}}}}]\n\
             clusters: [{{name: a, cluster: {{server: 'https://{server}:6443'}}}}]\n\
             users: [{{name: u, user: {{{user}}}}}]\n"
        );
        json!({ "kubeconfig": base64::engine::general_purpose::STANDARD.encode(text) })
    };
    let kubeconfig = |user: &str| kubeconfig_at("one", user);
    let (uid, error, connects) = shown(&kubeconfig("token: secret-1"));
    assert!(uid.starts_with("u/") && error.is_empty() && connects, "{uid} {error}");
    assert_eq!(shown(&kubeconfig("token: secret-2")).0, uid);
    assert_ne!(shown(&kubeconfig_at("two", "token: secret-1")).0, uid, "it is another cluster");
    let elsewhere = secrets::offer(&secret(&kubeconfig("token: secret-1")), &Bench::new().ledger);
    assert_ne!(elsewhere.uid, uid, "nobody can find the server by its hash");
    for (data, word) in [
        (kubeconfig("exec: {command: /bin/sh, apiVersion: v1}"), "exec"),
        (kubeconfig("tokenFile: /etc/shadow"), "tokenFile"),
        (json!({ "kubeconfig": "%%secret%%" }), "base64"),
        (json!({ "other": "" }), "no key kubeconfig"),
        (json!(null), "no key kubeconfig"),
        (json!(7), "no key kubeconfig"),
        (json!({ "kubeconfig": 7 }), "base64"),
    ] {
        let (_, error, connects) = shown(&data);
        assert!(error.contains(word) && !error.contains("secret-") && !connects, "{error}");
    }
}

#[test]
fn an_object_that_cannot_be_decoded_is_a_broken_offer() {
    let bench = Bench::new();
    let projects = ProjectReader::new(&MiloConfig::default());
    let read = |metadata: serde_json::Value, status: serde_json::Value| {
        serde_json::from_value::<AnyObject>(json!({ "metadata": metadata, "status": status }))
    };
    let name = json!({ "name": "shop", "uid": "u" });
    let creation = json!({ "name": "shop", "uid": "u", "creationTimestamp": 1 });
    for (metadata, status) in [
        (name.clone(), json!({ "conditions": [{ "type": "Ready", "status": 1 }] })),
        (name, json!({ "conditions": "oops" })),
        (creation, json!({})),
    ] {
        let object = read(metadata, status).unwrap();
        for offer in [projects.offer(&object), secrets::offer(&object, &bench.ledger)] {
            let is_broken = matches!(offer.state, OfferState::Broken { .. });
            assert!(is_broken && offer.connection.is_none(), "{offer:?}");
            assert_eq!((offer.cluster.as_str(), &offer.uid[..1]), ("shop", "u"));
        }
    }
    assert!(read(json!({ "uid": "u" }), json!({})).is_err(), "whose is it?");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_name_is_asked_for_once_an_hour_while_it_is_named() {
    let mut unknown = UnknownNames::default();
    let names = |names: &[&str]| names.iter().map(|name| ClusterName::from(*name)).collect();
    let mut due = |asked: &[&str]| unknown.due(names(asked));
    assert_eq!(due(&["a", "b", "Not_a.name", ""]), names(&["a", "b"]));
    assert_eq!(due(&["a", "b", "c"]), names(&["c"]));
    // A name that is no longer given is forgotten.
    assert_eq!(due(&["a"]), names(&[]));
    assert_eq!(due(&["a", "b"]), names(&["b"]));
    tokio::time::advance(Duration::from_secs(3_600)).await;
    assert_eq!(due(&["a", "b"]), names(&["a", "b"]));
}

/// A Milo root with the Project `there`.
async fn root() -> (SimMilo, Arc<ProjectRoot>) {
    let sim = Arc::new(Mutex::new(SimClusters::new(&[], 0)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let milo = SimMilo::start(sim, listener, None, SimApiServerSettings::default()).unwrap();
    milo.add_project("there", &[], true);
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: c,
          contexts: [{{name: c, context: {{cluster: a, user: u}}}}],
          clusters: [{{name: a, cluster: {{server: '{}'}}}}], users: [{{name: u, user: {{}}}}]}}",
        milo.root.url()
    );
    let credentials = Credentials::Text(KubeconfigText::parse(&text).unwrap());
    let spec = ConnectionSpec { credentials, server: Server::AsConfigured };
    let connections = Connections::default();
    let metrics = Arc::new(Metrics::new());
    let client = ClusterClient::new("root".into(), Vec::new(), spec, &connections, metrics);
    (milo, Arc::new(ProjectRoot::new(Arc::new(client), Duration::from_secs(5))))
}

fn refusal() -> Fault {
    let verbs = vec![ApiVerb::Get];
    let resource = Some(Resource::Projects);
    Fault { verbs, resource, code: 403, retry_after_s: None, executes: false }
}

#[tokio::test]
async fn only_a_404_says_that_a_project_is_gone() {
    let (milo, root) = root().await;
    let within = Duration::from_secs(5);
    let gone = async |names: &[&str]| {
        let names = names.iter().map(|name| ClusterName::from(*name)).collect();
        let mut gone = proof::gone_among(&root, names, within).await;
        gone.sort_unstable();
        gone.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(gone(&["x", "there", "y", "Not_a.name"]).await, ["x", "y"]);
    milo.root.inject(&refusal(), 1);
    assert!(gone(&["x"]).await.is_empty());
    milo.root.set_mode(ServerMode::Frozen);
    let late = proof::gone_among(&root, vec!["x".into()], Duration::from_millis(100)).await;
    assert!(late.is_empty());
}

#[tokio::test]
async fn an_answer_that_tells_nothing_is_asked_for_again() {
    let (milo, root) = root().await;
    let (ask, questions) = mpsc::unbounded_channel();
    let (bus, mut events) = mpsc::channel(10);
    let asking = tokio::spawn(proof::run(root, questions, bus));
    let mut gone = async || match events.recv().await {
        Some(EventKind::ClusterGone { cluster, .. }) => cluster.to_string(),
        event => format!("{event:?}"),
    };
    ask.send(Question::Unknown("there".into())).unwrap();
    ask.send(Question::Deleted("y".into())).unwrap();
    assert_eq!(gone().await, "y");
    milo.root.inject(&refusal(), 1);
    ask.send(Question::Unknown("x".into())).unwrap();
    assert_eq!(gone().await, "x");
    // After this many errors the state is unknown: the next list, or the next hour, asks again.
    milo.root.inject(&refusal(), 3);
    ask.send(Question::Unknown("z".into())).unwrap();
    drop(ask);
    assert_eq!(gone().await, "None");
    asking.await.unwrap();
}
