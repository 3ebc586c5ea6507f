//! Parses requests: paths, verbs and query parameters.

use http::{Method, Uri};
use serde::Deserialize;

use super::resource::{ApiVerb, Resource};
use super::status::{Failure, FieldError};
use throughline_core::data::ids::NamespacedName;

/// The resource or object in a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestTarget {
    pub(super) resource: Resource,
    /// `None`: all namespaces.
    pub(super) namespace: Option<String>,
    /// `None`: the collection.
    pub(super) name: Option<String>,
    /// Whether the path has the subresource `status`.
    pub(super) is_status: bool,
}

impl RequestTarget {
    /// # Errors
    /// 404, in the form that API servers use: a Status for built-in groups, plain text for others.
    pub(super) fn parse(path: &str) -> Result<Self, Failure> {
        let parts: Vec<&str> = path.split('/').filter(|p| !p.is_empty()).collect();
        let (api_version, rest) = match *parts {
            ["api", version, ref rest @ ..] => (version.to_owned(), rest),
            ["apis", group, version, ref rest @ ..] => (format!("{group}/{version}"), rest),
            _ => return Err(Failure::no_such_path()),
        };
        let find = |plural: &str| {
            let matches = |r: &Resource| r.api_version() == api_version && r.plural() == plural;
            Resource::ALL.into_iter().find(matches)
        };
        let (namespace, rest) = match *rest {
            // `namespaces/NS/status` is a subresource.
            ["namespaces", ns, ref rest @ ..]
                if !(rest.is_empty() || rest == ["status"] && api_version == "v1") =>
            {
                (Some(ns), rest)
            }
            _ => (None, rest),
        };
        let (plural, name, is_status) = match *rest {
            [plural] => (plural, None, false),
            [plural, name] => (plural, Some(name), false),
            [plural, name, "status"] => (plural, Some(name), true),
            _ => return Err(Failure::unknown_resource(&api_version)),
        };
        let resource = find(plural).ok_or_else(|| Failure::unknown_resource(&api_version))?;
        let is_well_scoped = resource.is_cluster_scoped() == namespace.is_none();
        if !is_well_scoped && (name.is_some() || namespace.is_some()) {
            return Err(Failure::unknown_resource(&api_version));
        }
        Ok(Self {
            resource,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            is_status,
        })
    }

    /// The verb of an HTTP method.
    ///
    /// # Errors
    /// 405.
    pub(super) fn verb(&self, method: &Method, query: &QueryParams) -> Result<ApiVerb, Failure> {
        match (method.as_str(), &self.name) {
            ("GET", None) if query.is_watch() => Ok(ApiVerb::Watch),
            ("GET", None) => Ok(ApiVerb::List),
            ("GET", Some(_)) => Ok(ApiVerb::Get),
            ("POST", None) => Ok(ApiVerb::Create),
            ("PUT", Some(_)) => Ok(ApiVerb::Update),
            ("PATCH", Some(_)) => Ok(ApiVerb::Patch),
            ("DELETE", Some(_)) if !self.is_status => Ok(ApiVerb::Delete),
            _ => Err(Failure::method_not_allowed()),
        }
    }

    /// Namespace and name; both may be empty.
    pub(super) fn key(&self) -> NamespacedName {
        NamespacedName::new(
            self.namespace.clone().unwrap_or_default(),
            self.name.clone().unwrap_or_default(),
        )
    }
}

/// The supported query parameters.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct QueryParams {
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
    pub(super) label_selector: String,
    field_selector: String,
    dry_run: String,
}

impl QueryParams {
    /// The name to which a list is limited.
    pub(super) fn only_name(&self) -> Option<&str> {
        self.field_selector.strip_prefix("metadata.name=")
    }

    /// # Errors
    /// 400: the query is malformed, or requests an unsupported feature that must not be ignored.
    pub(super) fn parse(uri: &Uri) -> Result<Self, Failure> {
        let params: Self = serde_urlencoded::from_str(uri.query().unwrap_or_default())
            .map_err(|error| Failure::bad_request(error.to_string()))?;
        let has_other_fields = !params.field_selector.is_empty() && params.only_name().is_none();
        if has_other_fields || (params.is_watch() && !params.field_selector.is_empty()) {
            let text = "simulated clusters support only fieldSelector=metadata.name=NAME, and only in lists";
            return Err(Failure::bad_request(text));
        }
        if !params.dry_run.is_empty() {
            let text = format!("dryRun={}: simulated clusters do not support it", params.dry_run);
            return Err(Failure::bad_request(text));
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
                &FieldError {
                    reason: "FieldValueForbidden",
                    field: "resourceVersionMatch",
                    message,
                },
            ));
        }
        Ok(params)
    }

    fn is_watch(&self) -> bool {
        is_true(&self.watch)
    }

    pub(super) fn wants_bookmarks(&self) -> bool {
        is_true(&self.allow_watch_bookmarks)
    }

    pub(super) fn send_initial_events(&self) -> Option<bool> {
        (!self.send_initial_events.is_empty()).then(|| is_true(&self.send_initial_events))
    }

    /// 0: no limit.
    pub(super) fn limit(&self) -> Result<usize, Failure> {
        number(&self.limit).map(|n| usize::try_from(n).unwrap_or(usize::MAX))
    }

    /// 0: the server's default.
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
