//! Flags for the settings that change decisions; `replay` and `run` share them.

use clap::Args;
use throughline::config::FlagValue;

/// Any key of the configuration.
#[derive(Debug, Args)]
pub(super) struct KeyArgs {
    /// Set any key by its path, for example touch.minIntervalMs=2000
    #[arg(long = "set", value_name = "PATH=VALUE")]
    set: Vec<String>,
}

impl KeyArgs {
    pub(super) fn values(&self) -> Vec<FlagValue> {
        self.set.iter().cloned().map(FlagValue::Set).collect()
    }
}

/// The settings that also decide how the state of a connector is judged.
#[derive(Debug, Args)]
pub(super) struct TouchArgs {
    /// Touch every gateway, or one per GatewayClass (requires mergeGateways: true)
    #[arg(long, value_name = "SCOPE", value_parser = ["gateway", "gateway-class"])]
    scope: Option<String>,
    /// Observe the platform's own Gateway annotation, write it too, or ignore it
    #[arg(long, value_name = "USE", value_parser = ["observe", "write", "off"])]
    platform_key: Option<String>,
}

impl TouchArgs {
    pub(super) fn values(&self) -> Vec<FlagValue> {
        let scope = self.scope.as_deref().map(|scope| match scope {
            "gateway-class" => "gatewayClass",
            scope => scope,
        });
        let flags = [
            ("--scope", "touch.scope", scope),
            ("--platform-key", "touch.platformKey", self.platform_key.as_deref()),
        ];
        let flags = flags.into_iter();
        flags.filter_map(|(flag, key, value)| Some(flag_value(flag, key, value?))).collect()
    }
}

/// These override the settings from the log's header or from the file, which override the defaults.
#[derive(Debug, Args)]
pub(super) struct SettingArgs {
    #[command(flatten)]
    touch: TouchArgs,
    /// Ignore, report or delete orphaned routes
    #[arg(long, value_name = "MODE", value_parser = ["off", "report", "delete"])]
    orphans: Option<String>,
    /// How long to wait after a change at the edge before touching
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    window: Option<u64>,
    #[command(flatten)]
    keys: KeyArgs,
}

impl SettingArgs {
    /// The values that were given; `--set` comes last.
    pub(super) fn values(&self) -> Vec<FlagValue> {
        let orphans = self.orphans.as_deref();
        let orphans = orphans.map(|mode| flag_value("--orphans", "orphans.mode", mode));
        let window = self.window.map(|ms| FlagValue::Named {
            flag: format!("--window {ms}ms"),
            key: "touch.windowMs",
            value: ms.into(),
        });
        let flags = self.touch.values().into_iter().chain(orphans).chain(window);
        flags.chain(self.keys.values()).collect()
    }
}

/// A flag that sets `key` to a string.
pub(super) fn flag_value(flag: &str, key: &'static str, value: &str) -> FlagValue {
    FlagValue::Named { flag: format!("{flag} {value}"), key, value: value.into() }
}

/// Parses a number and its unit.
pub(super) fn duration_ms(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => {
            return Err(
                "expected a number and a unit (ms, s, m or h), for example 100ms".to_owned()
            );
        }
    };
    let number: u64 = number.parse().map_err(|_| "expected a number before the unit".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "the duration is too long".to_owned())
}
