//! Recordings, written and read.

use std::sync::Arc;

use proptest::prelude::*;
use reqwest::header::HeaderMap;

use super::*;
use crate::redact::Secrets;

fn header() -> Header {
    let asked =
        Asked { provider: "p".into(), model: "m".into(), api: "openai-chat".into(), ..Asked::default() };
    Header { models: vec![asked], ..Header::default() }
}

/// What a body of these pieces is when it is played, with the key `secret-value` known.
fn played(pieces: &[&[u8]]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.jsonl");
    let secrets = Arc::new(Secrets::new(vec![("KEY".to_owned(), "secret-value".to_owned())]));
    let mut header = header();
    header.models[0].base_url = Some("http://me:pw@h/v1?key=secret-query".into());
    let recorder = Arc::new(Recorder::create(&file, &header, secrets).unwrap());
    let mut track = recorder.request(
        "http://me:pw@h/v1?key=secret-query",
        &HeaderMap::new(),
        b"{\"model\":\"secret-value\"}",
    );
    track.response(200, &HeaderMap::new());
    pieces.iter().for_each(|piece| track.data(piece));
    track.end(None);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains("secret-") && !text.contains("me:pw"), "{text}");
    let exchange = Player::open(&file).unwrap().next().unwrap();
    assert_eq!(exchange.end, Some(None));
    exchange.pieces.into_iter().flatten().collect()
}

#[test]
fn a_body_is_played_as_it_came_but_for_the_keys() {
    assert_eq!(
        played(&["a世".as_bytes(), b"\xff\xfe", "界".as_bytes()]),
        [b"a\xe4\xb8\x96\xff\xfe", "界".as_bytes()].concat()
    );
    assert_eq!(played(&[b"x secret-", b"value y"]), b"x [redacted KEY] y");
    assert_eq!(played(&[]), b"");
}

proptest! {
    #[test]
    fn any_cut_of_any_body_is_played_alike(body in prop::collection::vec(any::<u8>(), 0..80), cuts in prop::collection::vec(0usize..80, 0..6)) {
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(body.len())).chain([0, body.len()]).collect();
        cuts.sort_unstable();
        let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &body[pair[0]..pair[1]]).collect();
        prop_assert_eq!(played(&pieces), body);
    }
}

#[test]
fn a_failure_is_played_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.jsonl");
    let recorder = Arc::new(Recorder::create(&file, &header(), Arc::default()).unwrap());
    for lost in [Lost::Silent, Lost::Broke("reset".into())] {
        recorder.request("http://h/v1", &HeaderMap::new(), b"{}").end(Some(lost));
    }
    drop(recorder.request("http://h/v1", &HeaderMap::new(), b"{}"));
    let player = Player::open(&file).unwrap();
    assert_eq!(player.next().unwrap().end, Some(Some(Lost::Silent)));
    assert_eq!(player.next().unwrap().end, Some(Some(Lost::Broke("reset".into()))));
    assert_eq!(player.next().unwrap().end, None);
    assert!(player.next().unwrap_err().contains("3 of its exchanges"));
}

#[test]
fn a_newer_recording_is_refused_and_a_newer_line_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.jsonl");
    let open = |text: &str| {
        std::fs::write(&file, text).unwrap();
        Player::open(&file).map(|player| player.prompts().len())
    };
    let line =
        serde_json::to_string(&Line::Recording { version: 1, crab: "x".into(), header: header() }).unwrap();
    assert_eq!(open(&format!("{line}\n{{\"type\":\"of tomorrow\"}}\n")), Ok(0));
    assert!(open(&line.replace("\"version\":1", "\"version\":2")).unwrap_err().contains("newer crab"));
    assert!(open("{\"type\":\"session\"}\n").unwrap_err().contains("names no model"));
    assert!(open("").unwrap_err().contains("no recording"));
}

/// The texts of the recorded body of a response with this status.
fn recorded(status: u16, pieces: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.jsonl");
    let recorder = Arc::new(Recorder::create(&file, &header(), Arc::default()).unwrap());
    let mut track = recorder.request("http://h/v1", &HeaderMap::new(), b"{}");
    track.response(status, &HeaderMap::new());
    pieces.iter().for_each(|piece| track.data(piece.as_bytes()));
    track.end(None);
    let exchange = Player::open(&file).unwrap().next().unwrap();
    String::from_utf8(exchange.pieces.into_iter().flatten().collect()).unwrap()
}

#[test]
fn an_account_is_hidden_in_refusals_and_an_answer_is_what_it_was() {
    let refusal = ["for org-AbCdEfGh", "1234567890 {\"user_id\": \"user_2", "abc\"}"];
    assert_eq!(recorded(429, &refusal), "for [redacted account] {\"user_id\": \"[redacted account]\"}");
    let answer = "use org_membership_identifiers and org-download-directory-names";
    assert_eq!(recorded(200, &[answer]), answer);
    assert_eq!(recorded(400, &["no org_membership here"]), "no org_membership here");
}

#[test]
fn a_prompt_gets_the_answers_that_were_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.jsonl");
    let recorder = Arc::new(Recorder::create(&file, &header(), Arc::default()).unwrap());
    let ask = || recorder.request("http://h/v1", &HeaderMap::new(), b"{}");
    recorder.prompt(&[Part::text("one")]);
    // The turn is stopped in the middle of its second answer.
    ask().end(None);
    drop(ask());
    recorder.prompt(&[Part::text("two")]);
    ask().end(None);
    let player = Player::open(&file).unwrap();
    player.prompt();
    assert_eq!(player.next().unwrap().n, 1);
    player.prompt();
    assert_eq!(player.next().unwrap().n, 3);
    assert!(player.next().is_err());
    assert_eq!(player.prompts().len(), 2);
}

#[test]
fn an_older_recording_lives_until_the_first_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("r.jsonl");
    let create = || Recorder::create(&file, &header(), Arc::default());
    create().unwrap().prompt(&[Part::text("old")]);
    let before = std::fs::read_to_string(&file).unwrap();
    let recorder = create().unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), before);
    recorder.prompt(&[Part::text("new")]);
    assert!(std::fs::read_to_string(&file).unwrap().contains("new"));
    for foreign in ["notes on \"type\":\"recording\"\n", "{\"type\":\"recording\",\"note\":1}\n"] {
        std::fs::write(&file, foreign).unwrap();
        assert!(create().is_err(), "{foreign}");
    }
}
