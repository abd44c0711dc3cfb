//! Tokenizer, template and stop tokens of checkpoints: from GGUF metadata and from the files of a directory.

use std::fs;
use std::path::{Path, PathBuf};

use lithos_format::{Checkpoint, DType, gguf, write_safetensors};
use lithos_model::text::{
    GgufVocabulary, SpecialTokens, TemplateOptions, Text, TextError, TokenId, Tokenizer,
};
use serde_json::{Value, json};

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/text")
}

fn json_file(name: &str) -> Value {
    serde_json::from_slice(&fs::read(data().join(name)).unwrap()).unwrap()
}

/// The small vocabulary as GGUF stores one.
struct Stored {
    tokens: Vec<String>,
    types: Vec<i64>,
    merges: Vec<String>,
}

fn stored() -> Stored {
    let file = json_file("tiny_tokenizer.json");
    let mut tokens = vec![String::new(); 2007];
    let mut types = vec![1; 2007];
    for (token, id) in file["model"]["vocab"].as_object().unwrap() {
        tokens[id.as_u64().unwrap() as usize] = token.clone();
    }
    for added in file["added_tokens"].as_array().unwrap() {
        let id = added["id"].as_u64().unwrap() as usize;
        tokens[id] = added["content"].as_str().unwrap().to_owned();
        types[id] = if added["special"] == true { 3 } else { 4 };
    }
    let merge = |pair: &Value| match pair {
        Value::String(pair) => pair.clone(),
        pair => format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap()),
    };
    let merges = file["model"]["merges"].as_array().unwrap().iter().map(merge).collect();
    Stored { tokens, types, merges }
}

impl Stored {
    fn vocabulary<'a>(&'a self, pre: &'a str) -> GgufVocabulary<'a> {
        GgufVocabulary {
            model: "gpt2",
            pre,
            tokens: &self.tokens,
            token_types: self.types.clone(),
            merges: &self.merges,
            bos: Some(TokenId(2001)),
            eos: Some(TokenId(2002)),
            unknown: None,
            padding: None,
            add_bos: None,
        }
    }
}

fn texts_of(tokenizer: &Tokenizer, text: &str) -> Vec<String> {
    let ids = tokenizer.encode(text, SpecialTokens::Parse).unwrap();
    let bytes = |id: &TokenId| tokenizer.token_bytes(*id).unwrap().into_owned();
    ids.iter().map(|id| String::from_utf8(bytes(id)).unwrap()).collect()
}

#[test]
fn ids_are_those_of_the_same_vocabulary_in_json() {
    let stored = stored();
    let tokenizer = stored.vocabulary("qwen35").tokenizer().unwrap();
    for golden in json_file("tiny_tokenizer_goldens.json").as_array().unwrap() {
        let text = golden["text"].as_str().unwrap();
        let ids = tokenizer.encode(text, SpecialTokens::Parse).unwrap();
        let expected: Vec<TokenId> = serde_json::from_value(golden["ids"].clone()).unwrap();
        assert_eq!(ids, expected, "{text:?}");
    }
    assert!(tokenizer.is_special(TokenId(2001)) && !tokenizer.is_special(TokenId(2005)));
}

/// A vocabulary in which only the cuts decide what is merged.
#[test]
fn each_kind_of_cut_is_its_own() {
    let mut stored = Stored { tokens: Vec::new(), types: Vec::new(), merges: Vec::new() };
    let characters = "0123456789abcdefgABCĠĊ.'s";
    stored.tokens.extend(characters.chars().map(String::from));
    for merge in ["1 2", "12 3", "123 4", "Ċ Ċ", "Ġ a", "Ċ Ġ", ". Ċ", "' s", "a b"] {
        stored.merges.push(merge.to_owned());
        stored.tokens.push(merge.replace(' ', ""));
    }
    let with = |pre| {
        let mut vocabulary = stored.vocabulary(pre);
        vocabulary.bos = None;
        vocabulary.eos = None;
        vocabulary.tokenizer().unwrap()
    };
    let numbers = |pre| texts_of(&with(pre), "a1234");
    assert_eq!(numbers("gpt-2"), ["a", "1234"]);
    assert_eq!(numbers("llama-bpe"), ["a", "123", "4"]);
    for pre in ["smollm", "qwen2", "qwen35"] {
        assert_eq!(numbers(pre), ["a", "1", "2", "3", "4"]);
    }
    // The dot and the line end are one piece for the newer expressions, so that they merge.
    let lines = |pre| texts_of(&with(pre), "a.\n  a's");
    for pre in ["gpt-2", "smollm"] {
        assert_eq!(lines(pre), ["a", ".", "\n ", " a", "'s"]);
    }
    for pre in ["llama-bpe", "qwen2", "qwen35"] {
        assert_eq!(lines(pre), ["a", ".\n", " ", " a", "'s"]);
    }
}

#[test]
fn a_document_begins_as_the_file_says() {
    let stored = stored();
    let start = |pre, add_bos| {
        let vocabulary = GgufVocabulary { add_bos, ..stored.vocabulary(pre) };
        vocabulary.tokenizer().unwrap().start_tokens().to_vec()
    };
    assert_eq!(start("qwen2", None), []);
    assert_eq!(start("qwen2", Some(true)), [TokenId(2001)]);
    assert_eq!(start("llama-bpe", None), [TokenId(2001)]);
    assert_eq!(start("llama-bpe", Some(false)), []);
}

#[test]
fn what_does_not_fit_is_named() {
    let stored = stored();
    let error = |vocabulary: GgufVocabulary<'_>| {
        let message = vocabulary.tokenizer().unwrap_err().to_string();
        assert_eq!(message.lines().count(), 1);
        message
    };
    let unknown = error(stored.vocabulary("martian"));
    assert!(unknown.contains("martian") && unknown.contains("smollm, llama-bpe"), "{unknown}");
    let model = error(GgufVocabulary { model: "llama", ..stored.vocabulary("qwen2") });
    assert!(model.contains("tokenizer.ggml.model") && model.contains("gpt2"), "{model}");
    let types = error(GgufVocabulary { token_types: vec![1], ..stored.vocabulary("qwen2") });
    assert!(types.contains("token types"), "{types}");
    let bos = error(GgufVocabulary { bos: Some(TokenId(9999)), ..stored.vocabulary("qwen2") });
    assert!(bos.contains("9999"), "{bos}");
    let tokens =
        error(GgufVocabulary { tokens: &[], token_types: vec![], ..stored.vocabulary("qwen2") });
    assert!(tokens.contains("no tokens"), "{tokens}");
    for merge in ["a", "a nonsense-token", "Ġthe Ġthe"] {
        let merges = [merge.to_owned()];
        let message = error(GgufVocabulary { merges: &merges, ..stored.vocabulary("qwen2") });
        assert!(message.contains(merge), "{message}");
    }
}

fn write_gguf(path: &Path, pre: &str) {
    let stored = stored();
    let mut writer = gguf::Writer::new();
    writer
        .string("general.architecture", "llama")
        .string("tokenizer.ggml.model", "gpt2")
        .string("tokenizer.ggml.pre", pre)
        .string_array("tokenizer.ggml.tokens", &stored.tokens)
        .integer_array("tokenizer.ggml.token_type", &stored.types)
        .string_array("tokenizer.ggml.merges", &stored.merges)
        .integer("tokenizer.ggml.eos_token_id", 2002)
        .integer("general.sampling.top_k", 20)
        .f32("general.sampling.temp", 0.5)
        .string(
            "tokenizer.chat_template",
            "{% for m in messages %}<|im_start|>{{ m.content }}{{ eos_token }}{% endfor %}",
        )
        .tensor(("t", DType::F32, &[1], &[0; 4]));
    writer.write(path).unwrap();
}

#[test]
fn a_gguf_file_holds_everything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    write_gguf(&path, "qwen35");
    let text = Text::load(&Checkpoint::open(&path).unwrap()).unwrap();
    // `<|endoftext|>` is not named but is a control token that ends a document.
    assert_eq!(text.defaults().eos_token_ids, [TokenId(2000), TokenId(2002)]);
    assert_eq!(text.defaults().top_k, Some(20));
    assert_eq!(text.defaults().temperature, Some(0.5));
    let messages = json!([{"role": "user", "content": "a"}]);
    let ids = text.encode_chat(&messages, None, &TemplateOptions::default()).unwrap();
    assert_eq!((ids.first(), ids.last()), (Some(&TokenId(2001)), Some(&TokenId(2002))));

    write_gguf(&path, "martian");
    let error = Text::load(&Checkpoint::open(&path).unwrap()).unwrap_err().to_string();
    assert!(error.contains("model.gguf") && error.contains("martian"), "{error}");
}

/// A directory with weights, a configuration and these further files.
fn directory(files: &[(&str, String)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| fs::write(folder.path().join(name), content).unwrap();
    write_safetensors(
        &folder.path().join("model.safetensors"),
        &[("t", DType::F32, &[1], &[0; 4])],
    )
    .unwrap();
    write("config.json", &json!({"model_type": "llama", "eos_token_id": 2000}).to_string());
    for (name, content) in files {
        write(name, content);
    }
    folder
}

fn load(folder: &tempfile::TempDir) -> Result<Text, TextError> {
    Text::load(&Checkpoint::open(folder.path()).unwrap())
}

fn tokenizer_json() -> (&'static str, String) {
    ("tokenizer.json", fs::read_to_string(data().join("tiny_tokenizer.json")).unwrap())
}

fn rendered(text: &Text) -> String {
    let messages = json!([{"role": "user", "content": "a"}]);
    text.template().unwrap().render(&messages, None, &TemplateOptions::default()).unwrap()
}

#[test]
fn a_directory_is_read_file_by_file() {
    let config = json!({
        "bos_token": {"content": "<|im_start|>"}, "eos_token": "<|im_end|>",
        "chat_template": [{"name": "rag", "template": "no"}, {"name": "default", "template": "{{ bos_token }}named"}],
        "added_tokens_decoder": {
            "2005": {"content": "<think>", "special": false},
            "2008": {"content": "<late>", "special": true},
            "2007": {"content": "<early>", "special": false},
        },
    });
    let generation = json!({"eos_token_id": [2002, 2000], "temperature": 0.7});
    let mut files = vec![
        tokenizer_json(),
        ("tokenizer_config.json", config.to_string()),
        ("generation_config.json", generation.to_string()),
    ];
    let folder = directory(&files);
    let text = load(&folder).unwrap();
    assert_eq!(text.defaults().eos_token_ids, [TokenId(2000), TokenId(2002)]);
    assert_eq!(text.defaults().temperature, Some(0.7));
    assert_eq!(rendered(&text), "<|im_start|>named");
    // Tokens that only the tokenizer's configuration names.
    assert_eq!(text.tokenizer().token_id("<late>"), Some(TokenId(2008)));
    assert!(
        text.tokenizer().is_special(TokenId(2008)) && !text.tokenizer().is_special(TokenId(2007))
    );
    assert_eq!(text.tokenizer().vocabulary_size(), 2009);
    // A file of its own comes first.
    files.push(("chat_template.jinja", "from a file".to_owned()));
    assert_eq!(rendered(&load(&directory(&files)).unwrap()), "from a file");
}

#[test]
fn what_a_directory_lacks_is_named() {
    let error = load(&directory(&[])).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json is missing"), "{error}");

    let text = load(&directory(&[tokenizer_json()])).unwrap();
    let error = text.template().unwrap_err().to_string();
    assert!(error.contains("no chat template") && error.contains("--raw"), "{error}");

    let broken = ("chat_template.jinja", "{% for %}".to_owned());
    let text = load(&directory(&[tokenizer_json(), broken])).unwrap();
    let error = text.template().unwrap_err().to_string();
    assert!(error.contains("chat template cannot be used") && error.contains("--raw"), "{error}");
}

#[test]
fn malformed_files_are_errors_of_one_line() {
    let cases = [
        ("tokenizer.json", "{".to_owned()),
        ("tokenizer_config.json", "[".to_owned()),
        ("tokenizer_config.json", json!({"chat_template": 3}).to_string()),
        ("tokenizer_config.json", json!({"chat_template": []}).to_string()),
        ("tokenizer_config.json", json!({"added_tokens_decoder": {"x": {}}}).to_string()),
        (
            "tokenizer_config.json",
            json!({"added_tokens_decoder": {"9000": {"content": "<far>"}}}).to_string(),
        ),
        ("generation_config.json", json!({"top_p": "much"}).to_string()),
    ];
    for case in cases {
        let name = case.0;
        let error = load(&directory(&[tokenizer_json(), case])).unwrap_err().to_string();
        assert!(error.contains(name), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}
