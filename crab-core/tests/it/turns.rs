//! The loop's invariants, each driven through the same commands and events that a front end uses.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crab_core::message::{Message, Stop, text_of};
use crab_core::protocol::{Answer, Change, Command, EndStop, Event, FailureKind};
use crab_core::provider::{Effort, Request};
use crab_core::tools::{Kind, Output, View};
use tokio::sync::Barrier;

use crate::fake::{Chat, Fake, Step, call, half_call, say, stop};

#[tokio::test(start_paused = true)]
async fn a_tool_that_never_returns_gets_a_result_when_the_turn_is_aborted() {
    let mut chat = Chat::new([vec![call("c1", "hang", "{}")], vec![say("next")]]);
    chat.tool(Fake::new("hang", Kind::Read, |_| Box::pin(std::future::pending())));
    let mut chat = chat.start();
    chat.submit("go").await;
    chat.until(|event| matches!(event, Event::CallStarted { .. })).await;
    chat.send(Command::Abort).await;
    assert_eq!(chat.end().await.stop, EndStop::Aborted);
    chat.submit("again").await;
    assert_eq!(chat.end().await.stop, EndStop::End);
    assert!(chat.results(2)[0].contains("interrupted"), "{:?}", chat.results(2));
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_panics_is_a_failed_call_and_the_turn_goes_on() {
    let mut chat = Chat::new([vec![call("c1", "boom", "{}")], vec![say("fine")]]);
    chat.tool(Fake::new("boom", Kind::Read, |_| Box::pin(async { panic!("out of cheese") })));
    let mut chat = chat.start();
    chat.submit("go").await;
    assert_eq!(chat.end().await.stop, EndStop::End);
    assert!(chat.results(2)[0].contains("out of cheese"));
}

#[tokio::test(start_paused = true)]
async fn an_abort_before_the_first_delta_ends_the_turn_and_keeps_the_prompt() {
    let mut chat = Chat::new([vec![Step::Hang], vec![say("fine")]]).start();
    chat.submit("first").await;
    chat.until(|event| matches!(event, Event::RequestStarted { .. })).await;
    chat.send(Command::Abort).await;
    assert_eq!(chat.end().await.stop, EndStop::Aborted);
    chat.submit("second").await;
    assert_eq!(chat.end().await.stop, EndStop::End);
    let Message::User(parts) = &chat.request(2).messages[0] else { panic!("no user message") };
    let text = crab_core::message::text_of(parts);
    assert!(text.contains("first") && text.contains("second"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn an_abort_between_parallel_calls_leaves_no_call_without_a_result() {
    let three = vec![call("c1", "ok", "{}"), call("c2", "ask", "{}"), call("c3", "ok", "{}")];
    let mut chat = Chat::new([three, vec![say("fine")]]);
    chat.tool(Fake::text("ok", Kind::Read, "done"));
    chat.tool(Fake::text("ask", Kind::Execute, "never"));
    let mut chat = chat.start();
    chat.submit("go").await;
    chat.until(|event| matches!(event, Event::QuestionAsked(_))).await;
    chat.send(Command::Abort).await;
    assert_eq!(chat.end().await.stop, EndStop::Aborted);
    chat.submit("again").await;
    chat.end().await;
    let results = chat.results(2);
    assert_eq!(results.len(), 3);
    assert_eq!(results[0], "done");
    assert!(results[1].contains("not run") && results[2].contains("not run"), "{results:?}");
    let (started, done) = (
        chat.count(|event| matches!(event, Event::CallStarted { .. })),
        chat.count(|event| matches!(event, Event::CallDone { .. })),
    );
    assert_eq!((started, done), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn an_abort_during_parallel_calls_answers_the_running_and_the_finished_ones() {
    let mut chat = Chat::new([
        vec![call("c1", "ok", "{}"), call("c2", "hang", "{}"), call("c3", "hang", "{}")],
        vec![say("fine")],
    ]);
    chat.tool(Fake::text("ok", Kind::Read, "done"));
    chat.tool(Fake::new("hang", Kind::Read, |cx| {
        Box::pin(async move {
            cx.cancel.cancelled().await;
            Ok(Output::text("interrupted, with what it had", ""))
        })
    }));
    let mut chat = chat.start();
    chat.submit("go").await;
    chat.until(|event| matches!(event, Event::CallDone { .. })).await;
    chat.send(Command::Abort).await;
    assert_eq!(chat.end().await.stop, EndStop::Aborted);
    chat.submit("again").await;
    chat.end().await;
    assert_eq!(chat.results(2), ["done", "interrupted, with what it had", "interrupted, with what it had"]);
}

#[tokio::test(start_paused = true)]
async fn tools_that_ignore_an_abort_share_one_grace() {
    let calls = (0..5).map(|n| call(&format!("c{n}"), "hang", "{}")).collect();
    let mut chat = Chat::new([calls]);
    chat.tool(Fake::new("hang", Kind::Read, |_| Box::pin(std::future::pending())));
    let mut chat = chat.start();
    chat.submit("go").await;
    chat.until(|event| matches!(event, Event::CallStarted { .. })).await;
    let start = tokio::time::Instant::now();
    chat.send(Command::Abort).await;
    assert_eq!(chat.end().await.stop, EndStop::Aborted);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn an_abort_within_streamed_arguments_leaves_neither_half_call_nor_orphan() {
    let mut chat = Chat::new([
        vec![say("Writing."), half_call("c1", "ok", "{\"a\": \"b"), Step::Hang],
        vec![say("fine")],
    ]);
    chat.tool(Fake::text("ok", Kind::Read, "done"));
    let mut chat = chat.start();
    chat.submit("go").await;
    chat.until(|event| matches!(event, Event::TextDelta { .. })).await;
    tokio::task::yield_now().await;
    chat.send(Command::Abort).await;
    assert_eq!(chat.end().await.stop, EndStop::Aborted);
    chat.submit("again").await;
    chat.end().await;
    let request = chat.request(2);
    assert!(chat.results(2).is_empty());
    let kept = request
        .messages
        .iter()
        .any(|m| matches!(m, Message::Assistant(a) if a.text() == "Writing." && a.calls().count() == 0));
    assert!(kept, "{:?}", request.messages);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_lags_gets_every_message_whole() {
    let deltas: Vec<Step> = (0..20_000).map(|n| say(&format!("{n} "))).collect();
    let expected: String = (0..20_000).map(|n| format!("{n} ")).collect();
    let mut chat = Chat::new([deltas]).start();
    chat.submit("go").await;
    // Nothing is received while the burst runs.
    tokio::time::sleep(Duration::from_secs(60)).await;
    let end = chat.end().await;
    assert_eq!(end.messages[0].text(), expected);
    assert!(chat.lagged > 0, "the test must make the receiver lag");
}

#[tokio::test(start_paused = true)]
async fn a_front_end_that_reads_misses_nothing_of_a_burst() {
    let deltas: Vec<Step> = (0..20_000).map(|n| say(&format!("{n} "))).collect();
    let mut chat = Chat::new([deltas]).start();
    chat.submit("go").await;
    chat.end().await;
    assert_eq!(chat.lagged, 0);
}

#[tokio::test(start_paused = true)]
async fn a_prompt_that_comes_while_a_turn_runs_waits_for_its_end() {
    let mut chat = Chat::new([vec![call("c1", "ok", "{}")], vec![say("first")], vec![say("second")]]);
    chat.tool(Fake::text("ok", Kind::Read, "done"));
    let mut chat = chat.start();
    chat.submit("one").await;
    chat.submit("two").await;
    assert_eq!(chat.end().await.messages.last().unwrap().text(), "first");
    assert_eq!(chat.end().await.messages.last().unwrap().text(), "second");
}

#[tokio::test(start_paused = true)]
async fn an_abort_leaves_the_queue_alone() {
    let mut chat = Chat::new([vec![Step::Hang], vec![say("second")]]).start();
    chat.submit("one").await;
    chat.until(|event| matches!(event, Event::RequestStarted { .. })).await;
    chat.submit("two").await;
    chat.send(Command::Abort).await;
    assert_eq!(chat.end().await.stop, EndStop::Aborted);
    assert_eq!(chat.end().await.messages.last().unwrap().text(), "second");
}

#[tokio::test(start_paused = true)]
async fn unknown_tools_and_broken_arguments_are_answered() {
    let mut chat = Chat::new([
        vec![call("c1", "nosuch", "{}"), call("c2", "ok", "{\"a\": \"unterminated")],
        vec![say("fine")],
    ]);
    chat.tool(Fake::text("ok", Kind::Read, "done"));
    let mut chat = chat.start();
    chat.submit("go").await;
    assert_eq!(chat.end().await.stop, EndStop::End);
    let results = chat.results(2);
    assert!(results[0].contains("no tool `nosuch`") && results[0].contains("ok"), "{results:?}");
    assert!(
        results[1].contains("{\"a\": \"unterminated") && results[1].contains("\"object\""),
        "{results:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_message_that_the_output_limit_cut_never_run() {
    let cut = || vec![call("c1", "ok", "{}"), half_call("c2", "ok", "{\"a\""), stop(Stop::Length)];
    let mut chat = Chat::new([cut(), cut(), cut(), vec![say("never")]]);
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    chat.tool(Fake::new("ok", Kind::Read, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(Output::text("ran", "")) })
    }));
    let mut chat = chat.start();
    chat.submit("go").await;
    let end = chat.end().await;
    assert_eq!((end.stop, end.requests), (EndStop::Limit, 3));
    assert_eq!(runs.load(Ordering::Relaxed), 0);
    assert!(chat.results(2).iter().all(|text| text.contains("output tokens")), "{:?}", chat.results(2));
    // Only the whole call of each answer is told of.
    assert_eq!(chat.count(|event| matches!(event, Event::CallStarted { .. })), 3);
    assert_eq!(chat.count(|event| matches!(event, Event::CallDone { .. })), 3);
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_refused_answer_never_run() {
    let mut chat =
        Chat::new([vec![say("I will"), call("c1", "ok", "{}"), stop(Stop::Refusal)], vec![say("fine")]]);
    chat.tool(Fake::new("ok", Kind::Read, |_| panic!("it must not run")));
    let mut chat = chat.start();
    chat.submit("go").await;
    assert_eq!(chat.end().await.error.unwrap().kind, FailureKind::Refusal);
    chat.submit("again").await;
    assert_eq!(chat.end().await.stop, EndStop::End);
}

#[tokio::test(start_paused = true)]
async fn reads_run_side_by_side_and_answer_in_order() {
    let barrier = Arc::new(Barrier::new(2));
    let mut chat = Chat::new([vec![call("c1", "slow", "{}"), call("c2", "fast", "{}")], vec![say("fine")]]);
    let first = barrier.clone();
    chat.tool(Fake::new("slow", Kind::Read, move |_| {
        let barrier = first.clone();
        Box::pin(async move {
            barrier.wait().await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(Output::text("slow", ""))
        })
    }));
    chat.tool(Fake::new("fast", Kind::Read, move |_| {
        let barrier = barrier.clone();
        Box::pin(async move {
            barrier.wait().await;
            Ok(Output::text("fast", ""))
        })
    }));
    let mut chat = chat.start();
    chat.submit("go").await;
    assert_eq!(chat.end().await.stop, EndStop::End);
    assert_eq!(chat.results(2), ["slow", "fast"]);
}

#[tokio::test(start_paused = true)]
async fn calls_that_change_things_run_one_after_another() {
    let running = Arc::new(AtomicUsize::new(0));
    let mut chat =
        Chat::new([vec![call("c1", "change", "{}"), call("c2", "change", "{}")], vec![say("fine")]]);
    chat.yolo();
    chat.tool(Fake::new("change", Kind::Execute, move |_| {
        let running = running.clone();
        Box::pin(async move {
            let others = running.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(1)).await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(Output::text(format!("{others} others"), ""))
        })
    }));
    let mut chat = chat.start();
    chat.submit("go").await;
    chat.end().await;
    assert_eq!(chat.results(2), ["0 others", "0 others"]);
}

#[tokio::test(start_paused = true)]
async fn questions_come_one_at_a_time_and_each_answer_counts_for_its_own_call() {
    let mut chat =
        Chat::new([vec![call("c1", "change", "{}"), call("c2", "change", "{}")], vec![say("fine")]]);
    chat.tool(Fake::text("change", Kind::Execute, "changed"));
    let mut chat = chat.start();
    chat.submit("go").await;
    chat.until(|event| matches!(event, Event::QuestionAsked(q) if q.call.id == "c1")).await;
    // Neither an answer to another call nor one sent ahead is taken.
    chat.send(Command::Answer { id: "c2".into(), answer: Answer::Allow }).await;
    chat.send(Command::Answer { id: "c1".into(), answer: Answer::Allow }).await;
    chat.until(|event| matches!(event, Event::QuestionAsked(q) if q.call.id == "c2")).await;
    chat.send(Command::Answer { id: "c2".into(), answer: Answer::Deny(Some("too risky".into())) }).await;
    let end = chat.end().await;
    assert_eq!(end.denied.len(), 1);
    let results = chat.results(2);
    assert_eq!(results[0], "changed");
    assert!(results[1].contains("too risky"));
}

#[tokio::test]
async fn a_command_that_the_user_changes_passes_the_gate_again_and_the_model_reads_what_ran() {
    let ask = |id| call(id, "bash", r#"{"command": "touch model"}"#);
    let mut chat = Chat::new([vec![ask("c1")], vec![ask("c2")], vec![say("fine")]]);
    chat.real_tools();
    let mut chat = chat.start();
    chat.submit("go").await;
    let asked = |command: &'static str| {
        move |event: &Event| {
            matches!(event, Event::QuestionAsked(q)
                if matches!(&q.view, View::Command { command: shown, .. } if shown == command))
        }
    };
    let edit =
        |id: &str, command: &str| Command::Answer { id: id.into(), answer: Answer::Edit(command.into()) };
    chat.until(asked("touch model")).await;
    chat.send(edit("c1", "touch user && ls")).await;
    chat.until(asked("touch user && ls")).await;
    chat.send(Command::Answer { id: "c1".into(), answer: Answer::Allow }).await;
    // What only reads needs no second question.
    chat.until(asked("touch model")).await;
    chat.send(edit("c2", "ls")).await;
    let end = chat.end().await;
    assert_eq!(end.denied.len(), 0, "{end:?}");
    let results = chat.results(3);
    assert!(
        results[0].contains("this ran: touch user && ls") && results[0].contains("user\n"),
        "{results:?}"
    );
    assert!(results[1].contains("this ran: ls") && !results[1].contains("model"), "{results:?}");
}

#[tokio::test(start_paused = true)]
async fn nobody_to_ask_is_a_denial_that_the_end_lists() {
    let mut chat = Chat::new([vec![call("c1", "change", "{}")], vec![say("fine")]]);
    chat.tool(Fake::text("change", Kind::Write, "changed"));
    let mut chat = chat.start();
    chat.submit("go").await;
    chat.until(|event| matches!(event, Event::QuestionAsked(_))).await;
    chat.send(Command::Answer { id: "c1".into(), answer: Answer::Unattended }).await;
    let end = chat.end().await;
    assert_eq!((end.stop, end.denied[0].name.as_str()), (EndStop::End, "change"));
    assert!(chat.results(2)[0].contains("nobody can be asked"));
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_requests_is_told_before_the_last_one() {
    let again = || vec![call("c", "ok", "{}")];
    let mut chat = Chat::new([again(), again(), again()]);
    chat.limits.requests = Some(2);
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    chat.tool(Fake::new("ok", Kind::Read, move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Box::pin(async { Ok(Output::text("done", "")) })
    }));
    let mut chat = chat.start();
    chat.submit("go").await;
    let end = chat.end().await;
    assert_eq!((end.stop, end.requests), (EndStop::Limit, 2));
    let Some(Message::User(parts)) = chat.request(2).messages.last().cloned() else { panic!("no note") };
    assert!(crab_core::message::text_of(&parts).contains("last request"));
    // What the note says of calls is true.
    assert_eq!(runs.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_time_stops_a_turn_as_a_limit() {
    let mut chat = Chat::new([vec![Step::Hang]]);
    chat.limits.time = Some(Duration::from_secs(30));
    let mut chat = chat.start();
    chat.submit("go").await;
    assert_eq!(chat.end().await.stop, EndStop::Limit);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_goes_round_in_circles_is_stopped() {
    let steps: Vec<Vec<Step>> = (0..50).map(|_| vec![call("same", "ok", "{\"x\":1}")]).collect();
    let mut chat = Chat::new(steps);
    chat.tool(Fake::text("ok", Kind::Read, "done"));
    let mut chat = chat.start();
    chat.submit("go").await;
    let end = chat.end().await;
    assert_eq!(end.stop, EndStop::Limit);
    assert_eq!(end.requests, 8);
}

#[tokio::test(start_paused = true)]
async fn circles_are_seen_through_the_times_of_commands_and_not_through_their_output() {
    for (text, expected) in [
        (
            Box::new(|n: usize| format!("same\n[exit 1, 0.{n} s]"))
                as Box<dyn Fn(usize) -> String + Send + Sync>,
            EndStop::Limit,
        ),
        (Box::new(|n: usize| format!("{n}\n[exit 1, 0.1 s]")), EndStop::End),
        (Box::new(|n: usize| format!("same\n[exit {n}, 0.1 s]")), EndStop::End),
    ] {
        let mut chat = Chat::new((0..12).map(|_| vec![call("same", "ok", "{}")]));
        let runs = AtomicUsize::new(0);
        chat.tool(Fake::new("ok", Kind::Read, move |_| {
            let text = text(runs.fetch_add(1, Ordering::Relaxed));
            Box::pin(async move { Ok(Output::text(text, "")) })
        }));
        let mut chat = chat.start();
        chat.submit("go").await;
        assert_eq!(chat.end().await.stop, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn an_empty_answer_is_asked_for_once_more_and_then_a_failure() {
    let mut chat = Chat::new([vec![say("  ")], vec![]]).start();
    chat.submit("go").await;
    let end = chat.end().await;
    assert_eq!((end.stop, end.requests), (EndStop::Error, 2));
    assert_eq!(end.error.unwrap().kind, FailureKind::Internal);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_all_limit_and_no_text_is_a_failure() {
    let mut chat = Chat::new([vec![stop(Stop::Length)], vec![say("Half"), stop(Stop::Length)]]).start();
    chat.submit("go").await;
    assert_eq!(chat.end().await.error.unwrap().kind, FailureKind::Overflow);
    chat.submit("again").await;
    assert_eq!(chat.end().await.stop, EndStop::End);
}

/// What the model said in a request, message by message.
fn said(request: &Request) -> Vec<String> {
    let texts = request.messages.iter().filter_map(|message| match message {
        Message::Assistant(message) => Some(message.text()),
        _ => None,
    });
    texts.collect()
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_off_is_kept_and_gone_on_with() {
    let mut chat = Chat::new([
        vec![say("Half an ans"), half_call("c1", "ok", "{}"), Step::Fail(FailureKind::Cut)],
        vec![say("wer.")],
        vec![say("fine")],
    ]);
    chat.tool(Fake::new("ok", Kind::Read, |_| panic!("it must not run")));
    let mut chat = chat.start();
    chat.submit("go").await;
    assert_eq!(chat.end().await.stop, EndStop::End);
    assert_eq!(
        chat.count(
            |event| matches!(event, Event::Warned { message } if message.contains("go on from there"))
        ),
        1
    );
    let last = chat.request(2).messages.pop().unwrap();
    assert!(matches!(&last, Message::User(parts) if text_of(parts).contains("Go on exactly")), "{last:?}");
    chat.submit("again").await;
    assert_eq!(chat.end().await.stop, EndStop::End);
    assert_eq!(said(&chat.request(3)), ["Half an answer."]);
    let told = chat
        .request(3)
        .messages
        .iter()
        .any(|m| matches!(m, Message::User(p) if text_of(p).contains("Go on exactly")));
    assert!(!told, "the note is for one request");
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_breaks_off_again_and_again_ends_the_turn() {
    let cut = |text| vec![say(text), Step::Fail(FailureKind::Cut)];
    let mut chat = Chat::new([cut("a"), cut("b"), cut("c"), vec![say("fine")]]).start();
    chat.submit("go").await;
    let end = chat.end().await;
    assert_eq!((end.error.unwrap().kind, end.requests), (FailureKind::Cut, 3));
    chat.submit("again").await;
    assert_eq!(chat.end().await.stop, EndStop::End);
    assert_eq!(said(&chat.request(4)), ["abc"]);
}

#[tokio::test(start_paused = true)]
async fn no_limit_is_passed_to_go_on() {
    let mut chat = Chat::new([vec![say("Half"), Step::Fail(FailureKind::Cut)]]);
    chat.limits.requests = Some(1);
    let mut chat = chat.start();
    chat.submit("go").await;
    assert_eq!(chat.end().await.error.unwrap().kind, FailureKind::Cut);
}

#[tokio::test(start_paused = true)]
async fn a_model_that_stays_overloaded_gives_way_for_the_rest_of_the_turn() {
    let busy = || vec![Step::Fail(FailureKind::Overloaded)];
    let mut chat = Chat::new([busy(), vec![say("back again")]]);
    chat.spare([busy()]);
    chat.spare([vec![call("c1", "ok", "{}")], vec![say("done")]]);
    chat.tool(Fake::text("ok", Kind::Read, "done"));
    let mut chat = chat.start();
    chat.submit("go").await;
    let end = chat.end().await;
    assert_eq!((end.stop, end.requests), (EndStop::End, 4));
    let models: Vec<_> = (1..=4).map(|n| chat.request(n).model).collect();
    assert_eq!(models, ["fake-model", "spare-model", "spare-model", "spare-model"]);
    assert_eq!(
        chat.count(
            |event| matches!(event, Event::Warned { message } if message.contains("`spare/spare-model`"))
        ),
        2
    );
    chat.submit("next").await;
    assert_eq!(chat.end().await.stop, EndStop::End);
    assert_eq!(chat.request(5).model, "fake-model");
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_another_model_would_share_ends_the_turn() {
    let mut chat = Chat::new([vec![Step::Fail(FailureKind::Overflow)]]);
    chat.spare([vec![say("never")]]);
    let mut chat = chat.start();
    chat.submit("go").await;
    assert_eq!(chat.end().await.error.unwrap().kind, FailureKind::Overflow);
}

#[tokio::test(start_paused = true)]
async fn repeated_call_ids_become_unique() {
    let mut chat = Chat::new([
        vec![call("call_0", "ok", "{\"n\":1}")],
        vec![call("call_0", "ok", "{\"n\":2}")],
        vec![say("fine")],
    ]);
    chat.tool(Fake::text("ok", Kind::Read, "done"));
    let mut chat = chat.start();
    chat.submit("go").await;
    chat.end().await;
    let ids = chat.request(3).messages.into_iter().filter_map(|m| match m {
        Message::ToolResult(result) => Some(result.tool_call_id),
        _ => None,
    });
    let ids: Vec<String> = ids.collect();
    assert_eq!(ids, ["call_0", "call_0-2"]);
}

#[tokio::test(start_paused = true)]
async fn secrets_reach_neither_requests_nor_events() {
    let mut chat = Chat::new([vec![call("c1", "leak", "{}")], vec![say("fine")]]);
    chat.secret("KEY", "sk-canary-12345");
    chat.tool(Fake::new("leak", Kind::Read, |cx| {
        Box::pin(async move {
            (cx.output)("live sk-can");
            (cx.output)("ary-12345 end\n");
            Ok(Output::text("it is sk-canary-12345", "sk-canary-12345"))
        })
    }));
    let mut chat = chat.start();
    chat.submit("my key is sk-canary-12345").await;
    chat.end().await;
    let requests = format!("{:?}{:?}", chat.request(1).messages, chat.request(2).messages);
    assert!(requests.contains("[redacted KEY]"));
    let events = format!("{:?}", chat.log);
    for text in [&requests, &events] {
        assert!(!text.contains("sk-canary-12345") && !text.contains("ary-12345"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn live_output_comes_whole_also_when_it_ends_like_a_secret_begins() {
    let mut chat = Chat::new([vec![call("c1", "live", "{}")], vec![say("fine")]]);
    chat.secret("KEY", "sk-canary-12345");
    chat.tool(Fake::new("live", Kind::Read, |cx| {
        Box::pin(async move {
            (cx.output)("yes sk-");
            Ok(Output::text("yes", ""))
        })
    }));
    let mut chat = chat.start();
    chat.submit("go").await;
    chat.end().await;
    let chunks = chat.log.iter().filter_map(|event| match event {
        Event::ToolOutput { chunk, .. } => Some(chunk.as_str()),
        _ => None,
    });
    assert_eq!(chunks.collect::<String>(), "yes sk-");
}

#[tokio::test(start_paused = true)]
async fn entries_are_in_the_session_before_their_events() {
    let mut chat = Chat::new([vec![say("an answer")]]);
    let file = chat.saved();
    let mut chat = chat.start();
    chat.submit("a prompt").await;
    chat.until(|event| matches!(event, Event::TurnStarted { .. })).await;
    assert!(std::fs::read_to_string(&file).unwrap().contains("a prompt"));
    chat.until(|event| matches!(event, Event::MessageDone { .. })).await;
    assert!(std::fs::read_to_string(&file).unwrap().contains("an answer"));
}

#[tokio::test(start_paused = true)]
async fn a_change_of_the_model_waits_for_the_prompts_before_it() {
    let mut chat = Chat::new([vec![say("one")], vec![say("two")], vec![say("three")]]).start();
    let other = chat.model("other-model");
    chat.submit("a").await;
    chat.submit("b").await;
    chat.send(Command::Change(Change::Model(other))).await;
    chat.send(Command::Change(Change::Effort(Some(Effort::High)))).await;
    chat.submit("c").await;
    for _ in 0..3 {
        assert_eq!(chat.end().await.stop, EndStop::End);
    }
    let asked = |n: usize| (chat.request(n).model, chat.request(n).effort);
    let old = ("fake-model".to_owned(), None);
    assert_eq!((asked(1), asked(2)), (old.clone(), old));
    assert_eq!(asked(3), ("other-model".to_owned(), Some(Effort::High)));
    assert_eq!(said(&chat.request(3)), ["one", "two"]);
}
