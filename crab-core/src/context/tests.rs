//! Tests of the derived history.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn entry(body: Body) -> Arc<Entry> {
    Arc::new(Entry { id: String::new(), parent_id: None, time: String::new(), body })
}

fn user(text: &str) -> Arc<Entry> {
    entry(Body::User { content: vec![Part::text(text)] })
}

fn text(text: &str) -> Block {
    Block::text(text)
}

fn call(id: &str) -> Block {
    Block::ToolCall(ToolCall { id: id.into(), name: "bash".into(), arguments: json!({}), extra: None })
}

fn thinking(text: &str, signature: Option<&str>) -> Block {
    Block::Thinking(Thinking {
        text: text.into(),
        signature: signature.map(Into::into),
        ..Thinking::default()
    })
}

fn said(stop: Stop, content: Vec<Block>) -> Arc<Entry> {
    let message =
        Assistant { content, provider: "p".into(), model: "m".into(), stop, ..Assistant::default() };
    entry(Body::Assistant(message))
}

fn assistant(content: Vec<Block>) -> Arc<Entry> {
    said(Stop::End, content)
}

fn result(id: &str, text: &str) -> Arc<Entry> {
    let content = vec![Part::text(text)];
    let result = ToolResult { tool_call_id: id.into(), name: "bash".into(), is_error: false, content, ms: 1 };
    entry(Body::ToolResult(result))
}

/// A history in short: `user:…`, `model:…` with its calls in brackets, `result ID:…`.
fn short(messages: &[Message]) -> Vec<String> {
    let parts = |parts: &[Part]| crate::message::text_of(parts);
    let block = |block: &Block| match block {
        Block::Text { text, .. } => text.clone(),
        Block::Thinking(thinking) => format!("({})", thinking.text),
        Block::ToolCall(call) => format!("[{}]", call.id),
    };
    let line = |message: &Message| match message {
        Message::User(content) => format!("user:{}", parts(content)),
        Message::Assistant(message) => {
            format!("model:{}", message.content.iter().map(block).collect::<String>())
        }
        Message::ToolResult(result) if parts(&result.content) == INTERRUPTED => {
            format!("lost {}", result.tool_call_id)
        }
        Message::ToolResult(result) => format!("result {}:{}", result.tool_call_id, parts(&result.content)),
    };
    messages.iter().map(line).collect()
}

#[track_caller]
fn check(path: &[Arc<Entry>], expected: &[&str]) {
    assert_eq!(short(&messages(path, "p", "m")), expected);
}

#[test]
fn a_plain_conversation_stays_as_it_is() {
    check(
        &[user("a"), assistant(vec![text("b"), call("1")]), result("1", "c"), assistant(vec![text("d")])],
        &["user:a", "model:b[1]", "result 1:c", "model:d"],
    );
}

#[test]
fn every_call_gets_its_one_result_in_its_place() {
    let calls = || assistant(vec![call("1"), call("2"), call("3")]);
    check(&[user("a"), calls()], &["user:a", "model:[1][2][3]", "lost 1", "lost 2", "lost 3"]);
    check(
        &[
            user("a"),
            calls(),
            result("3", "z"),
            user("b"),
            result("1", "x"),
            result("1", "again"),
            result("9", "?"),
        ],
        &["user:a", "model:[1][2][3]", "result 1:x", "lost 2", "result 3:z", "user:b"],
    );
    check(
        &[user("a"), result("1", "early"), calls()],
        &["user:a", "model:[1][2][3]", "lost 1", "lost 2", "lost 3"],
    );
}

#[test]
fn a_lost_result_says_what_is_known() {
    let messages = messages(&[user("a"), assistant(vec![call("1")])], "p", "m");
    let Some(Message::ToolResult(result)) = messages.last() else { panic!("{messages:?}") };
    assert!(result.is_error && result.name == "bash");
    let text = crate::message::text_of(&result.content);
    assert!(text.contains("interrupted") && text.contains("unknown"), "{text}");
}

#[test]
fn ids_that_come_again_are_made_unique_with_their_results() {
    check(
        &[
            user("a"),
            assistant(vec![call("1"), call("1")]),
            result("1", "x"),
            result("1", "y"),
            assistant(vec![call("1"), call("1_2"), call("")]),
            result("1_2", "w"),
            result("1", "z"),
        ],
        &[
            "user:a",
            "model:[1][1_2]",
            "result 1:x",
            "result 1_2:y",
            "model:[1_3][1_2_2][call]",
            "result 1_3:z",
            "result 1_2_2:w",
            "lost call",
        ],
    );
    // The first call stays without a result when the second one of the same id takes it.
    check(
        &[user("a"), assistant(vec![call("1")]), user("b"), assistant(vec![call("1")]), result("1", "x")],
        &["user:a", "model:[1]", "lost 1", "user:b", "model:[1_2]", "result 1_2:x"],
    );
}

#[test]
fn empty_messages_and_blank_texts_are_left_out() {
    check(
        &[user("a"), user(" \n"), assistant(vec![]), assistant(vec![text("\n\n  ")]), user("b")],
        &["user:a\nb"],
    );
    check(
        &[user("a"), assistant(vec![text("\n\n  "), call("1")]), result("1", " \n")],
        &["user:a", "model:[1]", "result 1:(no output)"],
    );
    check(&[user("a"), said(Stop::Refusal, vec![]), user("b")], &["user:a\nb"]);
    let refused = said(Stop::Refusal, vec![text("I can't"), call("1")]);
    check(&[user("a"), refused, result("1", "not run"), user("b")], &["user:a\nb"]);
    check(&[], &[]);
}

#[test]
fn two_messages_of_the_model_are_kept_apart() {
    check(
        &[assistant(vec![text("a")]), assistant(vec![text("b")]), user("c")],
        &["user:(continued)", "model:a", "user:(continued)", "model:b", "user:c"],
    );
}

#[test]
fn reasoning_goes_back_only_where_it_came_from_and_when_it_is_signed() {
    let path = [user("a"), assistant(vec![thinking("t", Some("sig")), text("b")]), user("c")];
    check(&path, &["user:a", "model:(t)b", "user:c"]);
    for (provider, model) in [("p", "other"), ("other", "m")] {
        assert_eq!(short(&messages(&path, provider, model)), ["user:a", "model:b", "user:c"]);
    }
    check(&[user("a"), assistant(vec![thinking("t", None), text("b")])], &["user:a", "model:b"]);
    check(&[user("a"), assistant(vec![thinking("t", Some("sig"))]), user("c")], &["user:a\nc"]);
    let text_then_thinking = vec![thinking("t", Some("s")), text("b"), thinking("u", Some("s"))];
    check(&[user("a"), said(Stop::Aborted, text_then_thinking)], &["user:a", "model:(t)b"]);

    let field = || {
        Block::Thinking(Thinking { text: "t".into(), field: Some("reasoning".into()), ..Thinking::default() })
    };
    check(&[user("a"), assistant(vec![field(), text("b")])], &["user:a", "model:(t)b"]);
    check(&[user("a"), said(Stop::Cut, vec![field(), text("b")])], &["user:a", "model:b"]);
}

#[test]
fn notes_and_permissions_are_no_part_of_the_conversation() {
    check(
        &[user("a"), entry(Body::note("n")), entry(Body::Title { text: "t".into() }), user("b")],
        &["user:a\nb"],
    );
}

fn any_entry() -> impl Strategy<Value = Arc<Entry>> {
    let id = || prop::sample::select(vec!["1", "2", "3", "1_2", ""]);
    let block = prop_oneof![
        prop::sample::select(vec!["", " \n", "t"]).prop_map(text),
        id().prop_map(call),
        prop::sample::select(vec![None, Some(""), Some("s")]).prop_map(|signature| thinking("t", signature)),
    ];
    let stop =
        prop::sample::select(vec![Stop::End, Stop::Cut, Stop::Aborted, Stop::Refusal, Stop::ToolCalls]);
    prop_oneof![
        prop::sample::select(vec!["", " ", "u"]).prop_map(user),
        Just(entry(Body::User { content: vec![] })),
        (stop, prop::collection::vec(block, 0..5)).prop_map(|(stop, content)| said(stop, content)),
        (id(), prop::sample::select(vec!["", "r"])).prop_map(|(id, text)| result(id, text)),
        (id(), Just("r")).prop_map(|(id, text)| result(id, text)),
        Just(entry(Body::note("n"))),
    ]
}

/// What services demand of a history.
fn assert_valid(messages: &[Message]) -> Result<(), TestCaseError> {
    let mut waiting: VecDeque<String> = VecDeque::new();
    let mut ids = HashSet::new();
    let mut before = None;
    for message in messages {
        match message {
            Message::ToolResult(result) => {
                prop_assert_eq!(waiting.pop_front(), Some(result.tool_call_id.clone()));
                prop_assert!(!result.content.iter().any(is_blank) && !result.content.is_empty());
            }
            Message::User(content) => {
                prop_assert!(waiting.is_empty());
                prop_assert!(!content.is_empty() && !content.iter().any(is_blank));
                prop_assert!(!matches!(before, Some(Message::User(_))));
            }
            Message::Assistant(message) => {
                prop_assert!(waiting.is_empty());
                prop_assert!(matches!(before, Some(Message::User(_) | Message::ToolResult(_))));
                prop_assert!(message.calls().next().is_some() || !message.text().trim().is_empty());
                let blank =
                    |block: &Block| matches!(block, Block::Text { text, .. } if text.trim().is_empty());
                prop_assert!(!message.content.iter().any(blank));
                for call in message.calls() {
                    prop_assert!(!call.id.is_empty() && ids.insert(call.id.clone()), "{} twice", call.id);
                    waiting.push_back(call.id.clone());
                }
            }
        }
        before = Some(message.clone());
    }
    prop_assert!(waiting.is_empty());
    Ok(())
}

#[test]
fn an_answer_that_broke_off_and_what_goes_on_with_it_are_one_message() {
    let cut = said(Stop::Cut, vec![thinking("t", Some("s")), text("Hello wo")]);
    let rest = said(Stop::ToolCalls, vec![thinking("t", Some("s")), text("rld."), call("c")]);
    let derived = messages(&[user("u"), cut.clone(), rest, result("c", "r")], "p", "m");
    let [_, Message::Assistant(message), Message::ToolResult(_)] = &derived[..] else {
        panic!("{derived:?}")
    };
    assert_eq!((message.text().as_str(), message.content.len()), ("Hello world.", 3));
    let asked = messages(&[user("u"), cut, user("v"), said(Stop::End, vec![text("w")])], "p", "m");
    assert_eq!(asked.len(), 4);
}

proptest! {
    #[test]
    fn any_path_gives_a_valid_history(path in prop::collection::vec(any_entry(), 0..30)) {
        let derived = messages(&path, "p", "m");
        assert_valid(&derived)?;
        assert_valid(&messages(&path, "other", "m"))?;
        prop_assert_eq!(derived, messages(&path, "p", "m"));
    }

    #[test]
    fn what_the_model_said_stays_when_the_history_grows(path in prop::collection::vec(any_entry(), 0..30), end in 0usize..30) {
        let spoken = |messages: &[Message]| -> Vec<Assistant> {
            let spoken = |message: &Message| match message {
                Message::Assistant(message) => Some(message.clone()),
                _ => None,
            };
            messages.iter().filter_map(spoken).collect()
        };
        let mut part = spoken(&messages(&path[..end.min(path.len())], "p", "m"));
        // An answer that broke off is not said to its end yet.
        part.pop_if(|last| last.stop == Stop::Cut);
        let whole = spoken(&messages(&path, "p", "m"));
        prop_assert_eq!(&whole[..part.len()], &part[..]);
    }
}
