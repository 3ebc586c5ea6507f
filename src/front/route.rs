//! What a request is about: paths, the kinds that are served, and what a query asks for.

use axum::extract::Query;
use http::{Method, Uri};
use serde::Deserialize;

use super::status::{Failure, Invalid};
use crate::core::ids::{Kind, ObjectKey};

/// What is served: the kinds of the world, and beside them Lease for elections, and Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// Connector.
    Connectors,
    /// HTTPProxy.
    HttpProxies,
    /// Gateway.
    Gateways,
    /// HTTPRoute.
    HttpRoutes,
    /// Namespace.
    Namespaces,
    /// Lease (`coordination.k8s.io/v1`).
    Leases,
    /// Event (`v1`).
    Events,
}

impl Resource {
    /// Every resource.
    pub const ALL: [Resource; 7] = [
        Resource::Connectors,
        Resource::HttpProxies,
        Resource::Gateways,
        Resource::HttpRoutes,
        Resource::Namespaces,
        Resource::Leases,
        Resource::Events,
    ];

    /// The kind in the world; `None` for those which the machine knows nothing of.
    pub(super) const fn in_world(self) -> Option<Kind> {
        match self {
            Resource::Connectors => Some(Kind::Connector),
            Resource::HttpProxies => Some(Kind::HttpProxy),
            Resource::Gateways => Some(Kind::Gateway),
            Resource::HttpRoutes => Some(Kind::HttpRoute),
            Resource::Namespaces => Some(Kind::Namespace),
            Resource::Leases | Resource::Events => None,
        }
    }

    /// `GROUP/VERSION`, or `v1`.
    pub(super) fn api_version(self) -> &'static str {
        match self {
            Resource::Leases => "coordination.k8s.io/v1",
            _ => self.in_world().map_or("v1", Kind::api_version),
        }
    }

    /// The API group; empty for the core's.
    pub(super) fn group(self) -> &'static str {
        self.api_version().rsplit_once('/').map_or("", |(group, _)| group)
    }

    /// The kind as objects spell it.
    pub(super) fn kind(self) -> &'static str {
        match self {
            Resource::Leases => "Lease",
            _ => self.in_world().map_or("Event", Kind::as_str),
        }
    }

    /// The name in paths, e.g. `connectors`.
    pub fn plural(self) -> &'static str {
        match self {
            Resource::Leases => "leases",
            Resource::Events => "events",
            _ => self.in_world().map_or("", Kind::plural),
        }
    }

    /// Built into API servers, not defined by a CRD; some answers differ in form.
    pub(super) const fn built_in(self) -> bool {
        matches!(self, Resource::Namespaces | Resource::Leases | Resource::Events)
    }
}

impl From<Kind> for Resource {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Connector => Resource::Connectors,
            Kind::HttpProxy => Resource::HttpProxies,
            Kind::Gateway => Resource::Gateways,
            Kind::HttpRoute => Resource::HttpRoutes,
            Kind::Namespace => Resource::Namespaces,
        }
    }
}

/// What is asked of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// One object is read.
    Get,
    /// Many are.
    List,
    /// Changes are followed.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE.
    Delete,
}

impl Verb {
    /// As RBAC has it, e.g. `patch`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
        }
    }

    /// Whether it changes anything.
    pub const fn writes(self) -> bool {
        matches!(self, Verb::Create | Verb::Update | Verb::Patch | Verb::Delete)
    }
}

/// What a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) resource: Resource,
    /// `None`: all namespaces.
    pub(super) namespace: Option<String>,
    /// `None`: the collection.
    pub(super) name: Option<String>,
    /// The subresource `status`.
    pub(super) status: bool,
}

impl Target {
    /// Reads a path.
    ///
    /// # Errors
    /// 404, in the form that API servers have for it: groups that are built in answer with a
    /// Status, all others with plain text.
    pub(super) fn parse(path: &str) -> Result<Self, Failure> {
        let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
        let (api_version, rest) = match *parts {
            ["api", version, ref rest @ ..] => (version.to_owned(), rest),
            ["apis", group, version, ref rest @ ..] => (format!("{group}/{version}"), rest),
            _ => return Err(Failure::no_such_path()),
        };
        let find = |plural: &str| {
            let is = |r: &Resource| r.api_version() == api_version && r.plural() == plural;
            Resource::ALL.into_iter().find(is)
        };
        let (namespace, rest) = match *rest {
            // The only cluster-scoped kind; `…/namespaces/NS/status` is its subresource.
            ["namespaces", ns, ref rest @ ..]
                if !(rest.is_empty() || rest == ["status"] && api_version == "v1") =>
            {
                (Some(ns), rest)
            }
            _ => (None, rest),
        };
        let (plural, name, status) = match *rest {
            [plural] => (plural, None, false),
            [plural, name] => (plural, Some(name), false),
            [plural, name, "status"] => (plural, Some(name), true),
            _ => return Err(Failure::unknown_resource(&api_version)),
        };
        let resource = find(plural).ok_or_else(|| Failure::unknown_resource(&api_version))?;
        let scoped = (resource == Resource::Namespaces) == namespace.is_none();
        if !scoped && (name.is_some() || namespace.is_some()) {
            return Err(Failure::unknown_resource(&api_version));
        }
        Ok(Self {
            resource,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            status,
        })
    }

    /// What the method means here.
    ///
    /// # Errors
    /// 405.
    pub(super) fn verb(&self, method: &Method, query: &Params) -> Result<Verb, Failure> {
        match (method.as_str(), &self.name) {
            ("GET", None) if query.watches() => Ok(Verb::Watch),
            ("GET", None) => Ok(Verb::List),
            ("GET", Some(_)) => Ok(Verb::Get),
            ("POST", None) => Ok(Verb::Create),
            ("PUT", Some(_)) => Ok(Verb::Update),
            ("PATCH", Some(_)) => Ok(Verb::Patch),
            ("DELETE", Some(_)) if !self.status => Ok(Verb::Delete),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    /// Namespace and name; both may be empty.
    pub(super) fn key(&self) -> ObjectKey {
        ObjectKey::new(
            self.namespace.clone().unwrap_or_default(),
            self.name.clone().unwrap_or_default(),
        )
    }
}

/// The query's parameters that mean something here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Params {
    watch: String,
    pub(super) resource_version: String,
    pub(super) resource_version_match: String,
    limit: String,
    #[serde(rename = "continue")]
    pub(super) continue_: String,
    allow_watch_bookmarks: String,
    send_initial_events: String,
    timeout_seconds: String,
    pub(super) field_manager: String,
    label_selector: String,
    field_selector: String,
    dry_run: String,
}

impl Params {
    /// The one name that a list is about.
    pub(super) fn only_name(&self) -> Option<&str> {
        self.field_selector.strip_prefix("metadata.name=")
    }

    /// Reads a query.
    ///
    /// # Errors
    /// 400: it can't be read, or asks for something that the front does not do and must not
    /// seem to do.
    pub(super) fn parse(uri: &Uri) -> Result<Self, Failure> {
        let Query(params) = Query::<Params>::try_from_uri(uri)
            .map_err(|error| Failure::bad_request(error.to_string()))?;
        let has_other_fields = !params.field_selector.is_empty() && params.only_name().is_none();
        let is_watch = matches!(&*params.watch, "1" | "true");
        if has_other_fields || (is_watch && !params.field_selector.is_empty()) {
            let text = "clusters in memory know fieldSelector=metadata.name=NAME, of lists";
            return Err(Failure::bad_request(text));
        }
        for (name, value) in
            [("labelSelector", &params.label_selector), ("dryRun", &params.dry_run)]
        {
            if !value.is_empty() {
                let text = format!("{name}={value}: clusters in memory do not know {name}");
                return Err(Failure::bad_request(text));
            }
        }
        if params.send_initial_events() == Some(true)
            && params.resource_version_match != "NotOlderThan"
        {
            let message = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to \
                           NotOlderThan";
            let details = serde_json::json!({"group": "meta.k8s.io", "kind": "ListOptions"});
            return Err(Failure::invalid(
                "ListOptions.meta.k8s.io",
                "",
                details,
                &Invalid { reason: "FieldValueForbidden", field: "resourceVersionMatch", message },
            ));
        }
        Ok(params)
    }

    fn watches(&self) -> bool {
        is_true(&self.watch)
    }

    pub(super) fn bookmarks(&self) -> bool {
        is_true(&self.allow_watch_bookmarks)
    }

    pub(super) fn send_initial_events(&self) -> Option<bool> {
        (!self.send_initial_events.is_empty()).then(|| is_true(&self.send_initial_events))
    }

    /// 0 means no limit.
    pub(super) fn limit(&self) -> Result<usize, Failure> {
        number(&self.limit).map(|n| usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// 0 means the server's own.
    pub(super) fn timeout_seconds(&self) -> Result<u64, Failure> {
        number(&self.timeout_seconds)
    }
}

fn is_true(value: &str) -> bool {
    matches!(value, "1" | "true")
}

fn number(text: &str) -> Result<u64, Failure> {
    if text.is_empty() {
        return Ok(0);
    }
    text.parse().map_err(|_| {
        Failure::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax"))
    })
}
