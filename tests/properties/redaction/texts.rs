//! Texts from outside: what of them must not leave the process, and what must not reach a terminal.

use std::borrow::Cow;

use throughline::event_log::redact::Redactor;
use throughline::outside_text::{brief, lines, one_line, without_secrets};

#[test]
fn messages_lose_what_must_not_leave() {
    let id = "0123456789abcdef".repeat(4);
    let jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl";
    let aws = "AKIAIOSFODNN7EXAMPLE";
    let slack = "xoxb-2048-4096-AbCdEf";
    for (message, expected) in [
        ("dial tcp 10.20.0.7:6443: connect: no", "dial tcp <address>: connect: no"),
        ("read tcp 10.0.0.1:52->10.96.0.1:443: i/o", "read tcp <address>-><address>: i/o"),
        ("Get \"https://api.example.test/apis?x=1\": EOF", "Get \"<address>\": EOF"),
        ("tried (https://[2001:db8::1]:6443/x), ip=10.0.0.9", "tried (<address>), ip=<address>"),
        ("etcd-0.etcd:2379, localhost:80, [::1]:443.", "<address>, <address>, <address>."),
        ("no route to fe80::1%eth0, 10.0.0.0/8!", "no route to <address>, <address>!"),
        (&format!("node {id} is unknown"), "node <node id> is unknown"),
        (&format!("node_id={id}, gone"), "node_id=<node id>, gone"),
        ("client_secret=hunter, scope=all", "client_secret=<secret>, scope=all"),
        (r#"{"clientSecret":"two words","id":7}"#, r#"{"clientSecret":"<secret>","id":7}"#),
        (r#"body: {\"password\": \"hunter\"}"#, r#"body: {\"password\": \"<secret>\"}"#),
        ("db.password = 'a b c' is wrong", "db.password = '<secret>' is wrong"),
        (&format!("aws_access_key_id={aws}&x=1"), "aws_access_key_id=<secret>&x=1"),
        (&format!("found {aws}, which leaks"), "found <secret>, which leaks"),
        (&format!("token: {slack}"), "token: <secret>"),
        (&format!("posting as ({slack}) failed"), "posting as (<secret>) failed"),
        (&format!("Authorization: Bearer {jwt}"), "Authorization: Bearer <secret>"),
        ("Authorization: Bearer abcdef123456", "Authorization: Bearer <secret>"),
        ("token=Bearer abcdef, retrying", "token=<secret>, retrying"),
        ("apiKey=a+b/c==", "apiKey=<secret>"),
        ("secret=10.0.0.1:443,x", "secret=<secret>,x"),
        ("größer: \u{2028}192.168.7.7!", "größer: \u{2028}<address>!"),
    ] {
        assert_eq!(without_secrets(message), expected);
    }
}

#[test]
fn messages_keep_their_words() {
    for kept in [
        "",
        "the token has expired; token: expired; Token review failed; secret= ; key=",
        "connectors.networking.datumapis.com \"home-lab\" is forbidden: User \
         \"system:serviceaccount:throughline-system:throughline\" cannot list resource \"connectors\" \
         in API group \"networking.datumapis.com\" at the cluster scope",
        "spec.secretKeyRef.key: Invalid value; metadata.annotations[key]: Required value",
        "Secret throughline-system/member-token: 401 Unauthorized",
        "uid 7a0f3b4a-dbd4-4c7d-91a3-d1688bc3926c of ns-7a0f3b4a-dbd4-4c7d-91a3-d1688bc3926c",
        "/apis/gateway.networking.k8s.io/v1/namespaces/project-a-1234/httproutes/a-very-long-name-1",
        "mutatingwebhookconfigurationsandevenmorelongerwords größer kPqX0bYz3mWlV9sT1uRg5hJc7nDfE2",
        "410 Gone\n\"too old\": expired at 10:30:00, 2026-05-01T10:00:00,5Z, line:7; https is off; a:b, :80, -:, [",
    ] {
        assert_eq!(without_secrets(kept), kept);
        assert_eq!(Redactor::new().error(kept), kept);
    }
}

/// The time is that of one pass, whatever the text repeats: of eight times the text it is eight times as
/// long, where one search for each part would take 64 times.
#[test]
fn long_texts_are_judged_in_one_pass() {
    for part in ["key:", "key=", "\"", "key: ", "key\"", "a", "=", "token:x ", "://", "key:\\\""] {
        let time_of = |bytes: usize| {
            let text = part.repeat(bytes / part.len());
            let took = (0..3).map(|_| {
                let started = std::time::Instant::now();
                let _ = without_secrets(&text);
                started.elapsed()
            });
            took.min().unwrap()
        };
        let ratio = time_of(200_000).as_secs_f64() / time_of(25_000).as_secs_f64();
        assert!(ratio < 24.0, "{part}: {ratio:.1} times the time for eight times the text");
    }
}

#[test]
fn errors_keep_their_words_and_lose_their_secrets() {
    let redactor = Redactor::new();
    let error = "dial tcp 10.20.0.7:6443: client_secret=hunter2hunter2";
    let hidden = redactor.error(error).into_owned();
    assert!(hidden.starts_with("dial tcp ~") && hidden.len() == error.len(), "{hidden}");
    assert!(hidden.contains(": client_secret=~") && !hidden.contains("hunter2"), "{hidden}");
    assert_eq!(redactor.error(error), hidden, "equal values have equal stand-ins");
    let id = "0123456789abcdef".repeat(4);
    assert!(redactor.error(&format!("node {id}: no")).starts_with("node redacted-"));
}

#[test]
fn deceptive_characters_are_escaped() {
    let text = "a\u{202e}b\x1b[2J\u{2066}c\r\nd\u{feff}größer 日本";
    let expected = "a\\u{202e}b\\u{1b}[2J\\u{2066}c\\r\\nd\\u{feff}größer 日本";
    assert_eq!(one_line(text), expected);
    assert_eq!(lines(text), expected.replace("\\n", "\n"));
    assert!(matches!(one_line("plain größer"), Cow::Borrowed(_)));
}

#[test]
fn of_a_very_long_message_the_middle_is_left_out() {
    assert_eq!(brief("found \"\x1b\""), "found \"\\u{1b}\"");
    let long = |n: usize| format!("found \"{}\"; say why", "ä".repeat(n));
    assert_eq!(brief(&long(800)), long(800));
    let short = brief(&long(40_000_000)).into_owned();
    assert!(short.starts_with("found \"ää") && short.ends_with("ä\"; say why"), "{short}");
    assert_eq!(short.chars().count(), 600 + 1 + 300);
}
