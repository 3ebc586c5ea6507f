//! Why a hub Connector's status annotation is left as it is although upstream seems to say otherwise.

use crate::data::closed_list::closed_list;

/// Why what upstream says is not acted on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(strum::EnumString, strum::IntoStaticStr, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum HoldReason {
    NamespaceMissing,
    NamespaceDiffers,
    Unreadable,
    Restored,
    TooMany,
    Budget,
}

closed_list!(HoldReason);

impl HoldReason {
    /// The reason in words.
    pub const fn text(self) -> &'static str {
        match self {
            HoldReason::NamespaceMissing => {
                "the namespace that its labels name does not exist in the upstream cluster"
            }
            HoldReason::NamespaceDiffers => {
                "the namespace that its labels name has another uid in the upstream cluster than the \
                 one in its own namespace's name"
            }
            HoldReason::Unreadable => {
                "its Connector's status, or an object of the upstream cluster, can't be read, so \
                 what it says, or what is missing there, is not known"
            }
            HoldReason::Restored => {
                "the upstream cluster was restored from an older state, and its Connector has not \
                 changed since"
            }
            HoldReason::TooMany => {
                "too many Connectors of its upstream cluster, or of all together, are missing, so no \
                 annotation is removed"
            }
            HoldReason::Budget => "the limit of removals per minute is reached",
        }
    }

    /// What a person can do about it.
    pub const fn remedy(self) -> &'static str {
        match self {
            HoldReason::NamespaceMissing | HoldReason::NamespaceDiffers => {
                "check that the kubeconfig of the upstream cluster points to its own control plane"
            }
            HoldReason::Unreadable => "see the log for the object and what is wrong with it",
            HoldReason::Restored => {
                "nothing is removed until throughline is restarted; statuses are mirrored once their \
                 Connector changes, or after mirror.restoredSettleMs"
            }
            HoldReason::TooMany => {
                "if they are gone for good, annotate their hub namespaces with \
                 throughline.datumapis.com/allow-removals=true"
            }
            HoldReason::Budget => "nothing; they follow within minutes (limits.maxPerMinute)",
        }
    }
}
