//! Flags for the settings that change decisions; a replay and a live run take them alike.

use clap::Args;
use throughline::config::Given;

/// Settings given here go before those in the log's header or the file, which go before the
/// defaults.
#[derive(Debug, Args)]
pub(super) struct SettingArgs {
    /// What one touch covers; `gateway-class` for mergeGateways: true only
    #[arg(long, value_name = "SCOPE", value_parser = ["gateway", "gateway-class"])]
    scope: Option<String>,
    /// What the platform's own key on a Gateway is good for
    #[arg(long, value_name = "USE", value_parser = ["observe", "write", "off"])]
    platform_key: Option<String>,
    /// What becomes of orphaned routes
    #[arg(long, value_name = "FATE", value_parser = ["off", "report", "delete"])]
    orphans: Option<String>,
    /// How long a change settles at the edge before the touch
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    window: Option<u64>,
    /// Any setting, by its path: touch.minIntervalMs=2000
    #[arg(long = "set", value_name = "PATH=VALUE")]
    set: Vec<String>,
}

impl SettingArgs {
    /// What was given; `--set` comes last.
    pub(super) fn given(&self) -> Vec<Given> {
        let scope = self.scope.as_deref().map(|scope| match scope {
            "gateway-class" => "gatewayClass",
            scope => scope,
        });
        let words = [
            ("--scope", "touch.scope", scope),
            ("--platform-key", "touch.platformKey", self.platform_key.as_deref()),
            ("--orphans", "orphans.mode", self.orphans.as_deref()),
        ];
        let words = words.into_iter().filter_map(|(flag, key, word)| Some(given(flag, key, word?)));
        let window = self.window.map(|ms| Given::Flag {
            flag: format!("--window {ms}ms"),
            key: "touch.windowMs",
            value: ms.into(),
        });
        words.chain(window).chain(self.set.iter().cloned().map(Given::Set)).collect()
    }
}

/// A flag and its word.
pub(super) fn given(flag: &str, key: &'static str, word: &str) -> Given {
    Given::Flag { flag: format!("{flag} {word}"), key, value: word.into() }
}

/// A number and its unit.
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
                "expected a number and a unit of ms, s, m or h, for example 100ms".to_owned()
            );
        }
    };
    let number: u64 = number.parse().map_err(|_| "expected a number before the unit".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "that is too long".to_owned())
}
