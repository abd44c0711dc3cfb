//! Legacy Completions, against a fake model.

#[allow(dead_code, reason = "only some of what a model sees is looked at")]
mod fake;
#[allow(dead_code, reason = "nothing is only got")]
mod fixture;

use axum::http::StatusCode;
use fixture::{Fixture, post, read_json, read_text};
use serde_json::{Value, json};

const PATH: &str = "/v1/completions";

async fn ask(fixture: &Fixture, body: Value) -> (StatusCode, Value) {
    read_json(fixture.send(post(PATH, &body)).await).await
}

#[tokio::test]
async fn a_prompt_is_continued_as_it_is() {
    let fixture = Fixture::new();
    let ids: Vec<u32> = "say <think> a".chars().map(u32::from).collect();
    for prompt in [json!("say <think> a"), json!(["say <think> a"]), json!(ids)] {
        let (status, answer) =
            ask(&fixture, json!({"model": "lithos/fake", "prompt": prompt})).await;
        assert_eq!(status, StatusCode::OK, "{answer}");
        assert!(answer["id"].as_str().unwrap().starts_with("cmpl-"));
        assert_eq!(answer["object"], "text_completion");
        let choice =
            json!({"text": "<think> a", "index": 0, "logprobs": null, "finish_reason": "stop"});
        assert_eq!(answer["choices"], json!([choice]));
        assert_eq!(answer["usage"]["prompt_tokens"], 13);
        assert_eq!(answer["usage"]["completion_tokens"], 2);
    }
    assert!(fixture.control.conversations.lock().unwrap().is_empty(), "no template was asked");
    let (_, cut) = ask(&fixture, json!({"prompt": "forever"})).await;
    assert_eq!(
        (&cut["choices"][0]["finish_reason"], &cut["usage"]["completion_tokens"]),
        (&json!("length"), &json!(16))
    );
}

#[tokio::test]
async fn a_stream_adds_up_to_the_whole() {
    let fixture = Fixture::new();
    for include_usage in [false, true] {
        let body = json!({"prompt": "say one two three", "stream": true, "stream_options": {"include_usage": include_usage}});
        let response = fixture.send(post(PATH, &body)).await;
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let wire = read_text(response).await;
        let mut data: Vec<&str> = wire
            .split_terminator("\n\n")
            .map(|event| event.strip_prefix("data: ").unwrap())
            .collect();
        assert_eq!(data.pop(), Some("[DONE]"));
        let mut chunks: Vec<Value> =
            data.iter().map(|data| serde_json::from_str(data).unwrap()).collect();
        assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"] && chunk["object"] == "text_completion"));
        if include_usage {
            let last = chunks.pop().unwrap();
            assert_eq!(
                (&last["choices"], &last["usage"]["completion_tokens"]),
                (&json!([]), &json!(3))
            );
        }
        let text: String =
            chunks.iter().map(|chunk| chunk["choices"][0]["text"].as_str().unwrap()).collect();
        assert_eq!(text, "one two three");
        let reasons = chunks.iter().filter(|chunk| !chunk["choices"][0]["finish_reason"].is_null());
        assert_eq!(reasons.count(), 1);
        assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "stop");
    }
    let late = fixture.send(post(PATH, &json!({"prompt": "fail late", "stream": true}))).await;
    let wire = read_text(late).await;
    assert!(
        wire.contains("\"finish_reason\":\"error\"") && wire.ends_with("data: [DONE]\n\n"),
        "{wire}"
    );
}

#[tokio::test]
async fn what_cannot_be_answered_names_its_field() {
    let fixture = Fixture::new();
    for (body, param) in [
        (json!({"prompt": ""}), "prompt"),
        (json!({"prompt": ["a", "b"]}), "prompt"),
        (json!({"prompt": "a ".repeat(3000)}), "prompt"),
        (json!({"prompt": "a", "echo": true}), "echo"),
        (json!({"prompt": "a", "logprobs": 1}), "logprobs"),
        (json!({"prompt": "a", "model": "gpt"}), "model"),
        (json!({"prompt": "a", "structured_outputs": {"regex": "("}}), "structured_outputs"),
    ] {
        let (status, error) = ask(&fixture, body.clone()).await;
        assert!(status.is_client_error() && error["error"]["param"] == param, "{body}: {error}");
    }
    // Held to a form as chats are.
    let form = json!({"prompt": "say ab", "structured_outputs": {"regex": "ab"}});
    assert_eq!(ask(&fixture, form).await.0, StatusCode::OK);
    assert!(fixture.control.requests.lock().unwrap().last().unwrap().constraint.is_some());
}
