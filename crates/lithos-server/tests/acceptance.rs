//! What real clients ran into with other servers, each case under its number in `docs/serving.md`, against a fake model. Cases
//! that belong to one module are tested there under the same kind of name.

mod client;
mod fake;
mod fixture;

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::http::{StatusCode, header};
use client::{CHAT, DIALECTS, MESSAGES, RESPONSES, Seen, body, events, tool, user};
use fake::CONTEXT;
use fixture::{Fixture, post, read_json, read_text};
use lithos_server::ServerOptions;
use serde_json::{Value, json};

const CALL: &str = "<tool_call>\n<function=write>\n<parameter=path>\na.rs\n</parameter>\n</function>\n</tool_call>";

#[tokio::test]
async fn ac_01_a_vendors_header_changes_no_prompt() {
    let fixture = Fixture::new();
    for header in ["cc_version=2.1.332.abc; cch=1;", "cc_version=2.1.332.def; cch=2;"] {
        let header = format!("x-anthropic-billing-header: {header}");
        let blocks =
            json!([{"type": "text", "text": header}, {"type": "text", "text": "be brief"}]);
        fixture.whole(MESSAGES, user("say a"), json!({ "system": blocks })).await;
        assert_eq!(fixture.last_messages()[0], json!({"role": "system", "content": "be brief"}));
        // Also where a proxy made one text of both.
        let joined = format!("{header}\n\nbe brief");
        let messages =
            json!([{"role": "system", "content": joined}, {"role": "user", "content": "say a"}]);
        for path in [CHAT, RESPONSES] {
            fixture.whole(path, messages.clone(), json!({})).await;
            assert_eq!(fixture.last_messages()[0]["content"], "be brief", "{path}");
        }
    }
}

#[tokio::test]
async fn ac_11_counts_follow_each_dialects_convention() {
    let fixture = Fixture::new();
    for path in DIALECTS {
        let fields = json!({"enable_thinking": true});
        let answer = fixture.whole(path, user("say h m </think> a b"), fields).await;
        let usage = &answer["usage"];
        let (input, output) = match path {
            CHAT => ("prompt_tokens", "completion_tokens"),
            _ => ("input_tokens", "output_tokens"),
        };
        // One more than characters: the mark with which the prompt opens the thought.
        assert_eq!((&usage[input], &usage[output]), (&json!(21), &json!(5)), "{path}");
        if path != MESSAGES {
            assert_eq!(usage["total_tokens"], 26);
            let details = &usage[format!("{output}_details")];
            assert_eq!(details["reasoning_tokens"], 3, "{path}");
        }
    }
}

#[tokio::test]
async fn ac_13_values_of_arguments_stay_verbatim() {
    let fixture = Fixture::new();
    let value = "if a < b { \"</div>\" } & <x>\n\t&amp; </parameters>";
    let call = CALL.replace("a.rs", value);
    for path in DIALECTS {
        let seen =
            fixture.seen(path, user(&format!("say {call}")), json!({"tools": [tool(path)]})).await;
        assert_eq!(seen.calls, [("write".to_owned(), json!({ "path": value }))], "{path}");
    }
}

#[tokio::test]
async fn ac_12_a_call_without_its_outer_tag_is_one() {
    let fixture = Fixture::new();
    let call = CALL.strip_prefix("<tool_call>\n").unwrap();
    for path in DIALECTS {
        let seen =
            fixture.seen(path, user(&format!("say {call}")), json!({"tools": [tool(path)]})).await;
        assert_eq!(seen.calls, [("write".to_owned(), json!({"path": "a.rs"}))], "{path}");
        assert_eq!(seen.text, "");
    }
}

#[tokio::test]
async fn ac_17_words_and_two_calls_keep_their_order_in_every_dialect() {
    let fixture = Fixture::new();
    for path in DIALECTS {
        let said = format!("say I write.\n\n{CALL}\n{CALL}");
        let seen = fixture.seen(path, user(&said), json!({"tools": [tool(path)]})).await;
        let call = ("write".to_owned(), json!({"path": "a.rs"}));
        assert_eq!((seen.text.as_str(), &seen.calls), ("I write.", &vec![call.clone(), call]));
        let end = match path {
            CHAT => "tool_calls",
            MESSAGES => "tool_use",
            _ => "completed",
        };
        assert_eq!(seen.end, end);
    }
}

#[tokio::test]
async fn ac_15_one_call_only_where_a_client_wants_one() {
    let fixture = Fixture::new();
    for path in DIALECTS {
        let mut fields = json!({"tools": [tool(path)]});
        match path {
            MESSAGES => {
                fields["tool_choice"] = json!({"type": "auto", "disable_parallel_tool_use": true});
            }
            _ => fields["parallel_tool_calls"] = false.into(),
        }
        let seen = fixture.seen(path, user(&format!("say {CALL}\n{CALL}")), fields).await;
        assert_eq!(seen.calls.len(), 1, "{path}");
    }
}

#[tokio::test]
async fn ac_16_a_failure_behind_the_headers_is_an_event_and_an_end() {
    let fixture = Fixture::new();
    for (path, last) in [
        (CHAT, "data: [DONE]\n\n"),
        (MESSAGES, "event: error\n"),
        (RESPONSES, "event: response.failed\n"),
    ] {
        let wire = fixture.wire(path, user("fail late"), json!({})).await;
        assert!(wire.contains(last), "{wire}");
        let failed = events(&wire).pop().unwrap();
        if path == CHAT {
            assert_eq!(failed["choices"][0]["finish_reason"], "error");
        }
    }
}

#[tokio::test]
async fn ac_20_schemas_of_tools_may_hold_what_is_not_enforced() {
    let fixture = Fixture::new();
    let schema = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object", "additionalProperties": false,
        "properties": {"path": {"type": "string", "pattern": "\\d+[", "format": "uri", "maxLength": 99999999u64,
            "default": "x"}, "n": {"exclusiveMinimum": 0, "maxItems": 3}}
    });
    for path in DIALECTS {
        let mut tool = tool(path);
        match path {
            CHAT => tool["function"]["parameters"] = schema.clone(),
            MESSAGES => tool["input_schema"] = schema.clone(),
            _ => tool["parameters"] = schema.clone(),
        }
        let seen = fixture.seen(path, user(&format!("say {CALL}")), json!({"tools": [tool]})).await;
        assert_eq!(seen.calls.len(), 1, "{path}");
    }
}

#[tokio::test]
async fn ac_20_a_schema_of_the_answer_fails_closed() {
    let fixture = Fixture::new();
    let format = |schema: Value| json!({"type": "json_schema", "name": "x", "schema": schema});
    let fields = |path: &str, schema: Value| match path {
        CHAT => {
            json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}})
        }
        MESSAGES => json!({"output_config": {"format": format(schema)}}),
        _ => json!({"text": {"format": format(schema)}}),
    };
    for (path, param) in [(CHAT, "response_format"), (MESSAGES, ""), (RESPONSES, "text.format")] {
        for schema in [json!({"type": "colour"}), json!({"$ref": "https://example.com/a.json"})] {
            let (status, error) = fixture.refused(path, user("say a"), fields(path, schema)).await;
            assert_eq!(status, StatusCode::BAD_REQUEST, "{error}");
            let message = error["error"]["message"].as_str().unwrap();
            assert!(message.starts_with("the JSON schema cannot be compiled: "), "{message}");
            assert!(param.is_empty() || error["error"]["param"] == param, "{error}");
        }
        assert!(fixture.control.requests.lock().unwrap().is_empty(), "nothing was begun");
    }
    for path in DIALECTS {
        fixture.seen(path, user("say {}"), fields(path, json!({"type": "object"}))).await;
        let requests = std::mem::take(&mut *fixture.control.requests.lock().unwrap());
        assert!(requests.iter().all(|request| request.constraint.is_some()), "{path}");
        assert_eq!(fixture.last_variables()["enable_thinking"], false, "{path}");
    }
}

#[tokio::test]
async fn ac_24_a_deferred_tool_is_out_of_the_prompt_until_referenced() {
    let fixture = Fixture::new();
    let mut late = tool(MESSAGES);
    late["defer_loading"] = true.into();
    let fields = json!({"tools": [late]});
    let seen = fixture.seen(MESSAGES, user(&format!("say {CALL}")), fields.clone()).await;
    assert!(seen.calls.is_empty());
    assert!(fixture.control.tools.lock().unwrap().iter().all(Option::is_none));
    let messages = json!([
        {"role": "user", "content": "find a tool"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "ToolSearch", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_reference", "tool_name": "write"}]},
            {"type": "text", "text": format!("say {CALL}")}
        ]}
    ]);
    let seen = fixture.seen(MESSAGES, messages, fields).await;
    assert_eq!(seen.calls.len(), 1);
    let told = fixture.last_messages()[2]["content"].as_str().unwrap().to_owned();
    assert!(told.contains("\"name\":\"write\""), "{told}");
}

#[tokio::test]
async fn ac_25_choices_in_every_dialect() {
    let fixture = Fixture::new();
    for path in DIALECTS {
        let choice = |name: &str| match path {
            MESSAGES => json!({ "type": name }),
            _ => json!(name),
        };
        let fields = |choice: Value| json!({"tools": [tool(path)], "tool_choice": choice});
        let seen = fixture.seen(path, user(&format!("say {CALL}")), fields(choice("none"))).await;
        assert_eq!((seen.text.as_str(), seen.calls.len()), (CALL, 0), "{path}");
        let seen = fixture.seen(path, user(&format!("say {CALL}")), fields(choice("auto"))).await;
        assert_eq!(seen.calls.len(), 1, "{path}");
        // The prompt does not tell which it was.
        let tools = std::mem::take(&mut *fixture.control.tools.lock().unwrap());
        assert!(tools.iter().all(|list| list.is_some() && *list == tools[0]));
        let required = choice(if path == MESSAGES { "any" } else { "required" });
        let named = |name: &str| match path {
            CHAT => json!({"type": "function", "function": {"name": name}}),
            MESSAGES => json!({"type": "tool", "name": name}),
            _ => json!({"type": "function", "name": name}),
        };
        for forced in [required.clone(), named("write")] {
            let seen = fixture.seen(path, user(&format!("say {CALL}")), fields(forced)).await;
            assert_eq!(seen.calls.len(), 1, "{path}");
            let requests = fixture.control.requests.lock().unwrap();
            assert!(requests.last().unwrap().constraint.is_some(), "{path}");
        }
        for (impossible, reason) in [
            (fields(named("read")), "names 'read'"),
            (json!({"tool_choice": required}), "no tools"),
        ] {
            let (status, error) = fixture.refused(path, user("say a"), impossible).await;
            assert_eq!(status, StatusCode::BAD_REQUEST);
            assert!(error["error"]["message"].as_str().unwrap().contains(reason), "{error}");
        }
    }
}

#[tokio::test]
async fn ac_26_27_instructions_stay_where_they_stand() {
    let fixture = Fixture::new();
    let messages = json!([
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "later"},
        {"role": "user", "content": "say a"}
    ]);
    for path in DIALECTS {
        fixture.whole(path, messages.clone(), json!({})).await;
        assert_eq!(fixture.last_messages(), messages, "{path}");
    }
}

#[tokio::test]
async fn ac_28_developers_give_instructions_and_leading_ones_join() {
    let fixture = Fixture::new();
    let messages = json!([
        {"role": "developer", "content": "a"},
        {"role": "developer", "content": "b"},
        {"role": "user", "content": "say c"}
    ]);
    for path in DIALECTS {
        fixture.whole(path, messages.clone(), json!({})).await;
        assert_eq!(
            fixture.last_messages()[0],
            json!({"role": "system", "content": "a\n\nb"}),
            "{path}"
        );
    }
}

#[tokio::test]
async fn ac_31_thinking_is_read_in_every_spelling() {
    let fixture = Fixture::new();
    let on = json!({"enable_thinking": true});
    let off = json!({"enable_thinking": false});
    let none = json!({"enable_thinking": false, "reasoning_effort": "none"});
    for (fields, variables) in [
        (json!({"thinking": {"type": "adaptive", "display": "omitted"}}), json!({})),
        (json!({"thinking": {"type": "enabled", "budget_tokens": 1024}}), on.clone()),
        (json!({"thinking": {"type": "disabled"}}), off.clone()),
        (json!({"thinking": {"type": "telepathic"}}), json!({})),
        (json!({"output_config": {"effort": "high"}}), json!({"reasoning_effort": "high"})),
        (json!({"reasoning": {"effort": "none", "summary": "auto"}}), none.clone()),
        (json!({"reasoning": {"effort": "enormous"}}), json!({"reasoning_effort": "enormous"})),
        (json!({"reasoning_effort": "none"}), none),
        (json!({"reasoning_effort": "low"}), json!({"reasoning_effort": "low"})),
        (json!({"enable_thinking": false}), off.clone()),
        (json!({"chat_template_kwargs": {"enable_thinking": false}}), off),
    ] {
        for path in DIALECTS {
            fixture.whole(path, user("say a"), fields.clone()).await;
            assert_eq!(fixture.last_variables(), variables, "{path}: {fields}");
        }
    }
}

#[tokio::test]
async fn ac_32_thoughts_have_their_own_field_also_where_none_were_asked_for() {
    let fixture = Fixture::new();
    for path in DIALECTS {
        for (said, fields) in [
            ("say <think>\nh m\n</think>\n\na b", json!({"enable_thinking": false})),
            ("say h m\n</think>\n\na b", json!({"enable_thinking": true})),
        ] {
            let seen = fixture.seen(path, user(said), fields).await;
            assert_eq!((seen.thought.as_str(), seen.text.as_str()), ("h m", "a b"), "{path}");
        }
        let seen = fixture.seen(path, user("say h m"), json!({"enable_thinking": true})).await;
        assert_eq!((seen.thought.as_str(), seen.text.as_str()), ("h m", ""), "{path}");
    }
}

#[tokio::test]
async fn ac_06_65_a_history_with_thoughts_calls_and_results_is_taken_back() {
    let fixture = Fixture::new();
    for path in DIALECTS {
        let said = format!("say h m\n</think>\n\nI write.\n\n{CALL}");
        let fields = json!({"tools": [tool(path)], "enable_thinking": true});
        let answer = fixture.whole(path, user(&said), fields.clone()).await;
        // As each client sends it back: as it came.
        let mut messages = user(&said);
        let list = messages.as_array_mut().unwrap();
        match path {
            CHAT => {
                let message = answer["choices"][0]["message"].clone();
                let call = message["tool_calls"][0]["id"].clone();
                list.push(message);
                list.push(json!({"role": "tool", "tool_call_id": call, "content": [{"type": "text", "text": "say done"}]}));
            }
            MESSAGES => {
                let call = answer["content"][2]["id"].clone();
                list.push(json!({"role": "assistant", "content": answer["content"]}));
                let text = json!([{"type": "text", "text": "say done"}]);
                list.push(json!({"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": false}
                ]}));
            }
            _ => {
                let items = answer["output"].as_array().unwrap().clone();
                let call = items[2]["call_id"].clone();
                assert_ne!(items[2]["id"], call);
                list.extend(items);
                list.push(
                    json!({"type": "function_call_output", "call_id": call, "output": "say done"}),
                );
            }
        }
        let seen = fixture.seen(path, messages, fields).await;
        // What was asked for opens a thought again, and this answer does not close it.
        assert_eq!(seen.thought, "done", "{path}");
        let told = fixture.last_messages();
        assert_eq!(told[1]["reasoning_content"], "h m", "{path}: {told}");
        assert_eq!(told[1]["content"], "I write.");
        let function = &told[1]["tool_calls"][0]["function"];
        assert_eq!(*function, json!({"name": "write", "arguments": {"path": "a.rs"}}));
        assert_eq!((&told[2]["role"], &told[2]["content"]), (&json!("tool"), &json!("say done")));
    }
}

#[tokio::test]
async fn ac_21_22_namespaces_and_custom_tools_make_the_round() {
    let fixture = Fixture::new();
    let namespace = json!({"type": "namespace", "name": "n", "tools": [tool(RESPONSES)]});
    let fields =
        json!({"tools": [namespace, {"type": "custom", "name": "patch"}, {"type": "web_search"}]});
    let custom = CALL.replace("=write", "=patch").replace("=path", "=input");
    let said = format!("say {}\n{custom}", CALL.replace("=write", "=n__write"));
    let answer = fixture.whole(RESPONSES, user(&said), fields.clone()).await;
    let items = answer["output"].as_array().unwrap().clone();
    assert_eq!((&items[0]["namespace"], &items[0]["name"]), (&json!("n"), &json!("write")));
    assert_eq!(
        (&items[1]["type"], &items[1]["input"]),
        (&json!("custom_tool_call"), &json!("a.rs"))
    );
    let mut input = user(&said).as_array().unwrap().clone();
    input.extend(items.clone());
    input.push(
        json!({"type": "function_call_output", "call_id": items[0]["call_id"], "output": "fine"}),
    );
    input.push(json!({"type": "custom_tool_call_output", "call_id": items[1]["call_id"], "output": "say done"}));
    fixture.whole(RESPONSES, input.into(), fields).await;
    let calls = &fixture.last_messages()[1]["tool_calls"];
    assert_eq!(calls[0]["function"], json!({"name": "n__write", "arguments": {"path": "a.rs"}}));
    assert_eq!(calls[1]["function"], json!({"name": "patch", "arguments": {"input": "a.rs"}}));
}

#[tokio::test]
async fn ac_34_35_waiting_is_not_silence_in_any_dialect() {
    let options = ServerOptions { heartbeat: Duration::from_millis(20), ..Default::default() };
    let fixture = Fixture::with(options);
    let (held, rest) = CALL.split_once("</parameter>").unwrap();
    // In the prompt, in the queue, and while a call is held back.
    let mut readings = Vec::new();
    for path in DIALECTS {
        for said in ["silent".to_owned(), format!("hold {held} </parameter>{rest}")] {
            let fields = json!({"stream": true, "tools": [tool(path)]});
            let response = fixture.send(post(path, &body(path, user(&said), fields))).await;
            assert_eq!(response.status(), StatusCode::OK);
            readings.push((path, tokio::spawn(read_text(response))));
        }
    }
    tokio::time::sleep(Duration::from_millis(200)).await;
    fixture.control.release();
    for (path, reading) in readings {
        let events = events(&reading.await.unwrap());
        let is_beat = |event: &&Value| match path {
            CHAT => {
                event["choices"][0]["delta"] == json!({})
                    && event["choices"][0]["finish_reason"].is_null()
            }
            MESSAGES => event["type"] == "ping",
            _ => event["type"] == "response.in_progress",
        };
        assert!(events.iter().filter(is_beat).count() >= 2, "{path}");
    }
}

#[tokio::test]
async fn ac_37_a_stop_text_leaves_nothing_of_itself() {
    let fixture = Fixture::new();
    for (path, name) in [(CHAT, "stop"), (MESSAGES, "stop_sequences"), (RESPONSES, "stop")] {
        // It is spread over three tokens.
        let seen = fixture.seen(path, user("say a b c d e"), json!({ name: ["b c d"] })).await;
        assert_eq!(seen.text, "a ", "{path}");
    }
}

#[tokio::test]
async fn ac_38_39_40_chunks_have_one_id_and_an_end() {
    let fixture = Fixture::new();
    let fields = json!({"stream_options": {"include_usage": true}, "tools": [tool(CHAT)]});
    for said in ["say a b".to_owned(), format!("say {CALL}"), "fail late".to_owned()] {
        let wire = fixture.wire(CHAT, user(&said), fields.clone()).await;
        assert!(wire.ends_with("data: [DONE]\n\n"));
        let chunks = events(&wire);
        let ids: HashSet<&str> = chunks.iter().map(|chunk| chunk["id"].as_str().unwrap()).collect();
        assert_eq!(ids.len(), 1);
        let ends = chunks.iter().filter(|chunk| chunk["choices"][0]["finish_reason"].is_string());
        assert_eq!(ends.count(), 1);
        if said != "fail late" {
            let last = chunks.last().unwrap();
            assert_eq!(last["choices"], json!([]));
            assert!(last["usage"]["total_tokens"].is_u64());
        }
    }
}

#[tokio::test]
async fn ac_41_events_of_messages_are_named() {
    let fixture = Fixture::new();
    let wire = fixture
        .wire(MESSAGES, user(&format!("say a {CALL}")), json!({"tools": [tool(MESSAGES)]}))
        .await;
    for event in wire.split_terminator("\n\n") {
        let (name, data) = event.split_once("\ndata: ").unwrap();
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(name, format!("event: {}", data["type"].as_str().unwrap()));
    }
}

#[tokio::test]
async fn ac_43_a_prompt_that_is_too_long_is_refused_with_both_numbers() {
    let fixture = Fixture::new();
    for path in DIALECTS {
        let (status, error) =
            fixture.refused(path, user(&"x".repeat(CONTEXT + 5)), json!({})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("prompt is too long: 4101 tokens > 4096 maximum"), "{message}");
        match path {
            MESSAGES => assert_eq!(error["error"]["type"], "invalid_request_error"),
            _ => assert_eq!(error["error"]["code"], "context_length_exceeded"),
        }
    }
    assert_eq!(fixture.control.begun.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn ac_44_45_the_limit_may_exceed_the_room_and_is_all_of_it_by_default() {
    let fixture = Fixture::new();
    for (path, name) in
        [(CHAT, "max_tokens"), (MESSAGES, "max_tokens"), (RESPONSES, "max_output_tokens")]
    {
        let seen = fixture.seen(path, user("say a b"), json!({ name: 1_000_000 })).await;
        assert_eq!(seen.text, "a b", "{path}");
    }
    let request = fixture.control.requests.lock().unwrap().len();
    fixture.whole(CHAT, user("say a"), json!({})).await;
    assert_eq!(fixture.control.requests.lock().unwrap()[request].max_tokens, None);
}

#[tokio::test]
async fn ac_46_counting_takes_everything_and_no_generation() {
    let fixture = Fixture::new();
    let fields = json!({"system": "s", "tools": [tool(MESSAGES)]});
    let request = body(MESSAGES, user("say a"), fields);
    let (status, count) =
        read_json(fixture.send(post("/v1/messages/count_tokens", &request)).await).await;
    assert_eq!((status, count), (StatusCode::OK, json!({"input_tokens": 5})));
    // What the template counts: instructions and tools reached it.
    assert_eq!(fixture.last_messages()[0]["content"], "s");
    assert!(fixture.control.tools.lock().unwrap()[0].is_some());
    assert_eq!(fixture.control.begun.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn ac_47_48_requests_wait_and_past_the_bound_come_again() {
    let options = ServerOptions {
        queue_capacity: 1,
        heartbeat: Duration::from_millis(20),
        ..Default::default()
    };
    let fixture = Fixture::with(options);
    let send = async |said: &str| {
        let request = body(CHAT, user(said), json!({"stream": true}));
        fixture.send(post(CHAT, &request)).await
    };
    let (running, waiting) = (send("silent").await, send("say a").await);
    assert_eq!((running.status(), waiting.status()), (StatusCode::OK, StatusCode::OK));
    let turned_away = send("say b").await;
    assert!(turned_away.headers().contains_key(header::RETRY_AFTER));
    let (status, error) = read_json(turned_away).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(error["error"]["message"].is_string());
    fixture.control.release();
    assert_eq!(Seen::of_stream(CHAT, &read_text(waiting).await).text, "a");
}

#[tokio::test]
async fn ac_50_an_unknown_model_is_not_found() {
    let fixture = Fixture::new();
    for path in DIALECTS {
        let (status, error) =
            fixture.refused(path, user("say a"), json!({"model": "claude-x"})).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
        match path {
            MESSAGES => assert_eq!(error["error"]["type"], "not_found_error"),
            _ => assert_eq!(error["error"]["code"], "model_not_found"),
        }
    }
}

#[tokio::test]
async fn ac_51_faults_name_their_field_and_the_server_goes_on() {
    let fixture = Fixture::new();
    for path in DIALECTS {
        let (status, error) = fixture.refused(path, user("say a"), json!({"tools": [3]})).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(error["error"]["message"].as_str().unwrap().contains("tools[0]"), "{error}");
        assert_eq!(fixture.refused(path, user("panic"), json!({})).await.0.as_u16(), 500);
        assert_eq!(fixture.seen(path, user("say a"), json!({})).await.text, "a");
    }
}

#[tokio::test]
async fn ac_63_an_image_is_refused_by_its_place() {
    let fixture = Fixture::new();
    let image = json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}});
    let messages = json!([
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "Read", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [image]}]}
    ]);
    let (status, error) = fixture.refused(MESSAGES, messages, json!({})).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("messages[2].content[0].content[0]") && message.contains("text only"),
        "{message}"
    );
}
