//! The page and the schema of the session file say what crab writes.

use serde_json::{Value, json};

use crate::crab::Crab;

const PAGE: &str = include_str!("../../../docs/sessions.md");
const SCHEMA: &str = include_str!("../../../docs/session.schema.json");

/// What keeps a value from fitting a schema, as far as this one uses the language of schemas.
fn misfit(value: &Value, schema: &Value, root: &Value) -> Option<String> {
    if let Some(place) = schema["$ref"].as_str() {
        return misfit(value, root.pointer(place.trim_start_matches('#')).unwrap(), root);
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let fits = choices.iter().filter(|choice| misfit(value, choice, root).is_none()).count();
        return (fits != 1).then(|| format!("{fits} of {} forms fit {value}", choices.len()));
    }
    let types = schema["type"].as_array().cloned().unwrap_or_else(|| vec![schema["type"].clone()]);
    if !schema["type"].is_null() && !types.iter().any(|kind| is_a(value, kind.as_str().unwrap())) {
        return Some(format!("{value} is none of {types:?}"));
    }
    if schema.get("const").is_some_and(|only| only != value) {
        return Some(format!("{value} is not {}", schema["const"]));
    }
    if schema["enum"].as_array().is_some_and(|words| !words.contains(value)) {
        return Some(format!("{value} is none of {}", schema["enum"]));
    }
    // The only pattern is that of a time.
    if schema.get("pattern").is_some() && !value.as_str().is_some_and(is_time) {
        return Some(format!("{value} is no time"));
    }
    let missing = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|key| value.get(key.as_str().unwrap()).is_none());
    if let Some(key) = missing {
        return Some(format!("{key} is not in {value}"));
    }
    let known = schema["properties"].as_object();
    // Readers skip fields that they do not know; here each must be told of.
    let unknown = value
        .as_object()
        .into_iter()
        .flatten()
        .find(|(key, _)| known.is_some_and(|known| !known.contains_key(*key)));
    if let Some((key, _)) = unknown {
        return Some(format!("`{key}` of {value} is not in the schema"));
    }
    let fields =
        known.into_iter().flatten().filter_map(|(key, schema)| misfit(value.get(key)?, schema, root));
    let items =
        value.as_array().into_iter().flatten().filter_map(|item| misfit(item, &schema["items"], root));
    fields.chain(items).next()
}

fn is_time(text: &str) -> bool {
    let fits = |(own, like): (char, char)| if like == '0' { own.is_ascii_digit() } else { own == like };
    text.len() == 24 && text.chars().zip("0000-00-00T00:00:00.000Z".chars()).all(fits)
}

fn is_a(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "number" => value.is_number(),
        _ => value.is_null(),
    }
}

#[test]
fn each_line_of_a_session_fits_the_schema_and_each_type_is_on_the_page() {
    let crab = Crab::new();
    crab.put("a.txt", "words\n");
    crab.put("a.png", "\u{89}PNG");
    std::fs::write(
        crab.dir().join("a.png"),
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0",
    )
    .unwrap();
    crab.script(&[
        r#"{"thinking":"hm","text":"I look.","tool_calls":[{"name":"read","arguments":{"path":"a.txt"}},{"name":"read","arguments":{"path":"a.png"}},{"name":"write","arguments":{"path":"b","content":"x"}},{"name":"read","arguments_raw":"{half"}],"usage":{"input":5,"output":6,"cost_usd":0.1}}"#,
        r#"{"text":"Done."}"#,
    ]);
    crab.mock(&["-p", "go", "--allow", "write"]).ok();
    crab.script(&[
        r#"{"tool_calls":[{"name":"bash","arguments":{"command":"touch x"}}]}"#,
        r#"{"text":"Denied."}"#,
    ]);
    crab.mock(&["-c", "-p", "more"]).ok();
    let file = crab.sessions().remove(0);
    // Killed in the middle of a line: the next run notes that it was skipped.
    let torn = std::fs::read_to_string(&file).unwrap() + "{\"type\":\"us";
    std::fs::write(&file, torn).unwrap();
    crab.mock(&["-c", "-p", "again"]).ok();
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    for line in &lines {
        assert_eq!(misfit(line, &schema, &schema), None, "{line}");
        let kind = line["type"].as_str().unwrap();
        assert!(kind == "session" || PAGE.contains(&format!("| `{kind}` |")), "`{kind}` is not on the page");
    }
    for kind in ["session", "user", "assistant", "tool_result", "model", "permission", "note"] {
        assert!(lines.iter().any(|line| line["type"] == kind), "no `{kind}` in\n{text}");
    }
    assert!(text.contains("skipped_lines") && text.contains("totals"), "{text}");
    let wrong = json!({"type": "user", "id": "1", "parent_id": 7, "time": "now", "content": []});
    assert!(misfit(&wrong, &schema, &schema).is_some());
}
