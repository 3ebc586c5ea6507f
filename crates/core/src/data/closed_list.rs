//! Closed lists: enums whose variants have names on the wire, in metrics and in reports.
//!
//! The enum itself is the only declaration: strum derives the names from it, and `closed_list!`
//! adds the methods of every list. So `ALL`, `as_str`, `parse` and serde include each new variant
//! automatically.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Deserializer, Error, Visitor};

/// Adds `ALL`, `as_str`, `parse`, `Serialize` and `Deserialize` to enums that derive `EnumString`,
/// `IntoStaticStr` (with `const_into_str`), `VariantArray` and `VariantNames`.
#[macro_export]
macro_rules! closed_list {
    ($($list:ty),+ $(,)?) => {$(
        impl $list {
            /// Every variant, in the order of declaration.
            pub const ALL: [$list; <$list as strum::VariantArray>::VARIANTS.len()] =
                match <$list as strum::VariantArray>::VARIANTS.first_chunk() {
                    Some(all) => *all,
                    None => unreachable!(),
                };

            /// The name on the wire, in metrics and in reports.
            pub const fn as_str(self) -> &'static str {
                self.into_str()
            }

            /// The inverse of [`as_str`](Self::as_str).
            pub fn parse(name: &str) -> Option<Self> {
                name.parse().ok()
            }
        }

        impl serde::Serialize for $list {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $list {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::data::closed_list::by_name(deserializer)
            }
        }
    )+};
}
pub use closed_list;

/// Reads a variant by its name. The errors are those of a derived `Deserialize`.
pub fn by_name<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr + strum::VariantNames,
    D: Deserializer<'de>,
{
    struct Name<T>(PhantomData<T>);
    impl<T: FromStr + strum::VariantNames> Visitor<'_> for Name<T> {
        type Value = T;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "one of {}", T::VARIANTS.join(", "))
        }
        fn visit_str<E: Error>(self, name: &str) -> Result<T, E> {
            name.parse().map_err(|_| E::unknown_variant(name, T::VARIANTS))
        }
    }
    deserializer.deserialize_str(Name(PhantomData))
}

#[cfg(test)]
mod tests {
    use crate::contract::action::Verb;
    use crate::contract::cause::{Cause, Hop, State};
    use crate::contract::event::{EventName, OutcomeName};
    use crate::contract::membership::{
        JoinRule, LeaveReason, MemberState, OfferStateName, SourceName,
    };
    use crate::data::ids::{Kind, Role};
    use crate::view::fleet::Source;

    /// The names are used in logs, reports, metrics and alerts outside of this repository, so they
    /// never change.
    #[test]
    fn wire_names_are_stable_and_read_back() {
        macro_rules! assert_names {
            ($list:ty, $names:literal) => {
                let names: Vec<_> = <$list>::ALL.iter().map(|entry| entry.as_str()).collect();
                assert_eq!(names.join(" "), $names);
                for entry in <$list>::ALL {
                    let json = format!("{:?}", entry.as_str());
                    assert_eq!(<$list>::parse(entry.as_str()), Some(entry));
                    assert_eq!(serde_json::to_string(&entry).unwrap(), json);
                    assert_eq!(serde_json::from_str::<$list>(&json).unwrap(), entry);
                }
            };
        }
        assert_names!(Kind, "Connector HTTPProxy Gateway HTTPRoute Namespace");
        assert_names!(Role, "upstream downstream edge");
        assert_names!(Verb, "mirror nudge touch delete");
        assert_names!(Hop, "upstream mirrored carried announced");
        assert_names!(State, "ok pending held unknown stuck");
        assert_names!(Source, "clusters instance log recording");
        assert_names!(
            Cause,
            "credentials_rejected permission_missing kind_not_served cluster_unavailable \
             kubeconfig_invalid object_unreadable discovery_failing clusters_missing \
             cluster_name_taken upstream_unknown project_missing upstream_restored no_leader \
             lease_unusable shard_unheld not_replicated labels_missing namespace_missing \
             namespace_mismatch removals_held status_too_large deferred not_mirrored write_refused \
             write_failing overwritten not_carried not_placed not_announced touches_queued \
             no_gateway connector_missing orphaned deletes_held route_settling route_unproven \
             route_protected route_not_orphaned paused rule_off config_refused event_log_failing \
             bug touch_ineffective touch_scope_wrong retention_missing permissions_excess \
             annotation_removed"
        );
        assert_names!(
            EventName,
            "cluster_added cluster_removed list_started listed list_finished applied deleted \
             unreadable watch_lost watch_resumed watch_heard went_back leadership_pending \
             leadership_acquired leadership_lost action_finished discovery_started cluster_offered \
             cluster_withdrawn discovery_finished discovery_lost discovery_resumed cluster_gone \
             timed_out recording_ended"
        );
        assert_names!(SourceName, "milo kubeconfigSecrets kubeconfigDir");
        assert_names!(JoinRule, "needed all");
        assert_names!(OfferStateName, "ready not_ready deleting broken");
        assert_names!(
            LeaveReason,
            "withdrawn not_listed replaced roles_changed not_needed name_taken"
        );
        assert_names!(MemberState, "joined held idle not_ready broken name_taken gone");
        assert_names!(
            OutcomeName,
            "applied unchanged superseded refused failed unanswered conflict not_found dropped \
             dry_run"
        );
    }

    #[test]
    fn a_role_is_also_read_by_its_new_name_and_errors_list_the_names() {
        assert_eq!(Role::parse("hub"), Some(Role::Hub));
        assert_eq!(Role::parse("Hub"), None);
        let error = serde_json::from_str::<Role>("\"x\"").unwrap_err().to_string();
        assert!(
            error.starts_with(
                "unknown variant `x`, expected one of `upstream`, `downstream`, `edge`"
            ),
            "{error}"
        );
    }
}
