//! Kept prefixes: what goes on from one gives the bits that it gives without, whatever was asked before, in whatever order, from memory or
//! from disk, and whatever became of the files.

mod support;
#[path = "support/with_text.rs"]
mod with_text;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use lithos_engine::{
    BackendKind, Draft, Engine, EngineError, EngineOptions, Fusion, PrefixDisk, PrefixOptions,
    Request, TokenId,
};
use lithos_format::Checkpoint;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use support::{cpu, folder, repository};
use tempfile::TempDir;
use with_text::model_with_text;

/// Ends a message in the models of these tests.
const END: TokenId = TokenId(7);

/// Cuts are less than this far apart: a fourth more than the regular ones.
const SPACING: usize = 320;

const FAMILIES: [&str; 5] =
    ["tiny_llama3", "tiny_qwen3", "tiny_qwen35", "tiny_qwen35_bf16", "tiny_qwen35_moe"];

fn options() -> EngineOptions {
    EngineOptions { context: Some(2048), ..cpu(Fusion::Step) }
}

fn disk(folder: &Path, quota: u64) -> PrefixOptions {
    let folder = folder.to_owned();
    PrefixOptions { memory: Some(64 << 20), disk: Some(PrefixDisk { folder, quota }) }
}

/// Tokens of which some end a message.
fn tokens(random: &mut StdRng, count: usize, vocabulary: usize) -> Vec<TokenId> {
    let token = |random: &mut StdRng| match random.random_range(0..60) {
        0 => END,
        _ => TokenId(random.random_range(0..vocabulary as u32)),
    };
    (0..count).map(|_| token(random)).collect()
}

/// What an engine says to a prompt: bits of the logits after it and after each of some tokens that follow, and how many tokens it
/// did not compute.
fn answer(engine: &mut Engine, prompt: &[TokenId], reuse: bool) -> (Vec<u32>, usize) {
    let request =
        Request { reuse, max_tokens: Some(1), ignore_end: true, ..Request::new(prompt.to_vec()) };
    let completion = engine.generate(&request, &mut |_| ()).expect("generates");
    let mut sequence = engine.sequence();
    assert_eq!(sequence.tokens(), prompt);
    let mut bits: Vec<u32> = sequence.logits().iter().map(|logit| logit.to_bits()).collect();
    for rows in [&completion.tokens[..], &prompt[..3], &prompt[3..4]] {
        bits.extend(sequence.decode(rows).expect("decodes").iter().map(|logit| logit.to_bits()));
        sequence.accept(rows.len());
    }
    (bits, completion.reused_tokens)
}

/// Asks both the same; returns how many tokens the first did not compute.
fn same(with: &mut Engine, without: &mut Engine, prompt: &[TokenId], what: &str) -> usize {
    let ((bits, reused), (wanted, computed)) =
        (answer(with, prompt, true), answer(without, prompt, false));
    assert_eq!(computed, 0);
    assert!(reused < prompt.len());
    assert!(bits == wanted, "{what}: {reused} of {} tokens were kept", prompt.len());
    reused
}

/// Branches that leave a common beginning at random places, asked in random order, several times.
fn branches(with: &mut Engine, without: &mut Engine, seed: u64, what: &str) -> usize {
    let vocabulary = with.vocabulary();
    let mut random = StdRng::seed_from_u64(seed);
    let trunk = tokens(&mut random, 1100, vocabulary);
    let branches: Vec<Vec<TokenId>> = (0..6)
        .map(|_| {
            let split = random.random_range(1..trunk.len());
            let more = random.random_range(1..500);
            [&trunk[..split], &tokens(&mut random, more, vocabulary)[..]].concat()
        })
        .collect();
    let mut reused = 0;
    for _ in 0..12 {
        let branch = &branches[random.random_range(0..branches.len())];
        // Some stop on the way.
        let count = match random.random_range(0..3) {
            0 => random.random_range(4..=branch.len().max(5)).min(branch.len()),
            _ => branch.len(),
        };
        reused += same(with, without, &branch[..count], what);
    }
    reused
}

/// Engines of a model with and without kept prefixes.
fn two(open: impl Fn() -> Engine) -> [Engine; 2] {
    [open(), open()]
}

#[test]
fn a_hit_equals_a_miss_in_every_family() {
    for (seed, family) in FAMILIES.into_iter().enumerate() {
        let model = model_with_text(family, &[END]);
        let open = || Engine::open(model.path(), options()).expect("opens");
        let [mut with, mut without] = two(open);
        let reused = branches(&mut with, &mut without, seed as u64, family);
        let counts = with.prefixes();
        assert!(reused > 1000, "{family}: {reused}");
        assert_eq!(counts.tokens_saved, reused as u64);
        assert!(counts.hits > 0 && counts.hits <= counts.lookups && counts.memory_bytes > 0);
        assert_eq!((without.prefixes().hits, without.prefixes().memory_bytes), (0, 0));
    }
}

#[test]
fn passes_of_any_number_of_rows_are_the_same_after_a_hit() {
    let model = model_with_text("tiny_qwen35", &[END]);
    for (seed, chunk) in [16, 100, 512].into_iter().enumerate() {
        let options = EngineOptions { chunk: Some(chunk), ..options() };
        let [mut with, mut without] = two(|| Engine::open(model.path(), options).expect("opens"));
        let reused = branches(&mut with, &mut without, 10 + seed as u64, "chunks");
        assert!(reused > 500, "{chunk}: {reused}");
    }
}

/// A drafter's context is kept too: what is drafted after a hit is what is drafted after a miss.
#[test]
fn drafts_after_a_hit_are_those_after_a_miss() {
    let scratch = tempfile::tempdir().expect("a folder");
    let model = model_with_text("tiny_qwen35", &[END]);
    let with_layer = with_prediction_layer(scratch.path(), model.path());
    let dspark = || {
        let target = Checkpoint::open(model.path()).expect("opens");
        let drafter = Checkpoint::open(&folder("tiny_dspark")).expect("opens");
        let options = EngineOptions { draft: Draft::Dspark, ..options() };
        Engine::with_drafter(target, Some(drafter), options).expect("fits")
    };
    let mtp = || {
        let options = EngineOptions { draft: Draft::Mtp, ..options() };
        Engine::from_checkpoint(with_layer(), options).expect("opens")
    };
    let openers: [(&str, &dyn Fn() -> Engine); 2] = [("dspark", &dspark), ("mtp", &mtp)];
    for (what, open) in openers {
        let [mut with, mut without] = two(open);
        assert!(branches(&mut with, &mut without, 20, what) > 500);
        let mut random = StdRng::seed_from_u64(21);
        let trunk = tokens(&mut random, 700, with.vocabulary());
        for split in [700, 650, 530, 700] {
            let prompt =
                [&trunk[..split], &tokens(&mut random, 30, with.vocabulary())[..]].concat();
            let run = |engine: &mut Engine, reuse| {
                let request = Request {
                    reuse,
                    max_tokens: Some(24),
                    ignore_end: true,
                    ..Request::new(prompt.clone())
                };
                let completion = engine.generate(&request, &mut |_| ()).expect("generates");
                assert_eq!(completion.tokens.len(), 24);
                let mut drafts: Vec<u32> = Vec::new();
                let mut sequence = engine.sequence();
                let anchor = completion.tokens[23];
                if let Some(further) = sequence.predict_further(anchor, None, 1).expect("predicts")
                {
                    drafts.extend(further.logits.iter().map(|logit| logit.to_bits()));
                } else {
                    let block = [anchor, anchor, anchor, anchor];
                    let (logits, _) = sequence.draft(&block).expect("drafts");
                    drafts.extend(logits.iter().map(|logit| logit.to_bits()));
                }
                assert!(!drafts.is_empty());
                (completion.tokens, drafts, completion.reused_tokens)
            };
            let (found, wanted) = (run(&mut with, true), run(&mut without, false));
            assert!((&found.0, &found.1) == (&wanted.0, &wanted.1), "{what}, {} kept", found.2);
        }
        assert!(with.prefixes().hits > 2);
    }
}

/// A model of `tiny_qwen35`'s shape with a layer that predicts further. Any weights do.
fn with_prediction_layer(scratch: &Path, model: &Path) -> impl Fn() -> Checkpoint {
    let model = model.to_owned();
    let file = scratch.join("mtp.safetensors");
    let mut random = StdRng::seed_from_u64(4);
    let layer = |name: &str| format!("mtp.layers.0.{name}.weight");
    let shapes: [(String, &[usize]); 15] = [
        (layer("self_attn.q_proj"), &[512, 128]),
        (layer("self_attn.k_proj"), &[128, 128]),
        (layer("self_attn.v_proj"), &[128, 128]),
        (layer("self_attn.o_proj"), &[128, 256]),
        (layer("self_attn.q_norm"), &[64]),
        (layer("self_attn.k_norm"), &[64]),
        (layer("mlp.gate_proj"), &[256, 128]),
        (layer("mlp.up_proj"), &[256, 128]),
        (layer("mlp.down_proj"), &[128, 256]),
        (layer("input_layernorm"), &[128]),
        (layer("post_attention_layernorm"), &[128]),
        ("mtp.fc.weight".into(), &[128, 256]),
        ("mtp.pre_fc_norm_embedding.weight".into(), &[128]),
        ("mtp.pre_fc_norm_hidden.weight".into(), &[128]),
        ("mtp.norm.weight".into(), &[128]),
    ];
    let tensors: Vec<_> = shapes
        .iter()
        .map(|(name, shape)| {
            let count = shape.iter().product();
            let values: Vec<f32> = (0..count).map(|_| random.random_range(-0.1..0.1)).collect();
            lithos_format::OwnedTensor::from_f32(name, shape, &values)
        })
        .collect();
    let entries: Vec<_> = tensors.iter().map(lithos_format::OwnedTensor::entry).collect();
    lithos_format::write_safetensors(&file, &entries).expect("writes");
    move || {
        let layer = Checkpoint::open_safetensors_file(&file).expect("opens");
        let target = Checkpoint::open(&model).expect("opens");
        target.with_part("", layer).expect("has no layer yet")
    }
}

#[test]
fn the_built_in_model_says_the_same_after_a_hit() {
    let open = || {
        let options = EngineOptions { draft: Draft::Dspark, ..options() };
        Engine::open(&repository().join("models/lithos-mini"), options).expect("opens")
    };
    let [mut with, mut without] = two(open);
    assert!(branches(&mut with, &mut without, 30, "lithos-mini") > 1000);
}

#[test]
fn a_small_budget_keeps_what_is_asked_most_and_changes_no_answer() {
    let model = model_with_text("tiny_qwen35", &[END]);
    let [mut with, mut without] = two(|| Engine::open(model.path(), options()).expect("opens"));
    let everything = {
        branches(&mut with, &mut without, 40, "all");
        with.prefixes().memory_bytes
    };
    let budget = everything / 3;
    with.keep_prefixes(&PrefixOptions { memory: Some(budget), disk: None }).expect("is kept");
    for seed in 40..44 {
        branches(&mut with, &mut without, seed, "a third");
        assert!(with.prefixes().memory_bytes <= budget);
    }
    let counts = with.prefixes();
    assert!(counts.memory_evictions > 0 && counts.hits > 0, "{counts:?}");
    // Agents that fan out: what they share stays, though each brings more than there is room for.
    let mut random = StdRng::seed_from_u64(45);
    let vocabulary = with.vocabulary();
    let shared = tokens(&mut random, 600, vocabulary);
    let mut reused = Vec::new();
    for _ in 0..12 {
        let prompt = [&shared[..], &tokens(&mut random, 500, vocabulary)[..]].concat();
        reused.push(same(&mut with, &mut without, &prompt, "agents"));
    }
    assert!(reused[1..].iter().all(|found| *found >= reused[1] && *found >= 256), "{reused:?}");
    with.keep_prefixes(&PrefixOptions { memory: Some(0), disk: None }).expect("none is kept");
    assert_eq!(branches(&mut with, &mut without, 40, "none"), 0);
}

/// Opens a model that keeps prefixes in a folder.
fn keeping(model: &Path, to: &Path, quota: u64) -> Engine {
    let mut engine = Engine::open(model, options()).expect("opens");
    engine.keep_prefixes(&disk(to, quota)).expect("prefixes are kept");
    engine
}

/// All files of kept prefixes.
fn files(of: &Path) -> Vec<PathBuf> {
    let entries = |of: &Path| -> Vec<PathBuf> {
        fs::read_dir(of).expect("a folder").map(|entry| entry.expect("an entry").path()).collect()
    };
    let models = entries(of).into_iter().filter(|path| path.is_dir());
    let mut all: Vec<PathBuf> = models.flat_map(|folder| entries(&folder)).collect();
    all.sort();
    all
}

#[test]
fn a_later_run_goes_on_from_disk() {
    for family in ["tiny_llama3", "tiny_qwen35"] {
        let model = model_with_text(family, &[END]);
        let kept = TempDir::new().expect("a folder");
        let mut random = StdRng::seed_from_u64(50);
        let prompt = tokens(&mut random, 1700, 500);
        let mut without = Engine::open(model.path(), options()).expect("opens");
        let mut first = keeping(model.path(), kept.path(), 1 << 30);
        assert_eq!(same(&mut first, &mut without, &prompt, "first"), 0);
        drop(first);
        let mut second = keeping(model.path(), kept.path(), 1 << 30);
        let reused = same(&mut second, &mut without, &prompt, "second");
        assert!(reused + SPACING >= prompt.len(), "{reused}");
        let counts = second.prefixes();
        assert_eq!((counts.disk_hits, counts.rejected_files), (1, 0));
        // Then it is in memory.
        same(&mut second, &mut without, &prompt, "again");
        assert_eq!((second.prefixes().hits, second.prefixes().disk_hits), (2, 1));
        // Other numerics are another model.
        let chunks = EngineOptions { chunk: Some(64), ..options() };
        let mut other = Engine::open(model.path(), chunks).expect("opens");
        other.keep_prefixes(&disk(kept.path(), 1 << 30)).expect("prefixes are kept");
        let mut plain = Engine::open(model.path(), chunks).expect("opens");
        assert_eq!(same(&mut other, &mut plain, &prompt, "other"), 0);
        // So are other weights.
        let changed = model_with_text(family, &[END]);
        let weights = changed.path().join("model.safetensors");
        let mut bytes = fs::read(&weights).expect("reads");
        let last = bytes.len() - 3;
        bytes[last] ^= 1;
        fs::write(&weights, bytes).expect("writes");
        let mut other = keeping(changed.path(), kept.path(), 1 << 30);
        let mut plain = Engine::open(changed.path(), options()).expect("opens");
        assert_eq!(same(&mut other, &mut plain, &prompt, "weights"), 0);
        #[cfg(unix)]
        for file in files(kept.path()) {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(file).expect("is there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
    }
}

#[test]
fn whatever_became_of_a_file_changes_no_answer() {
    let model = model_with_text("tiny_qwen35", &[END]);
    let kept = TempDir::new().expect("a folder");
    let mut random = StdRng::seed_from_u64(60);
    let prompt = tokens(&mut random, 800, 500);
    let mut without = Engine::open(model.path(), options()).expect("opens");
    let whole = {
        let mut engine = keeping(model.path(), kept.path(), 1 << 30);
        same(&mut engine, &mut without, &prompt, "first");
        drop(engine);
        let read = |path: PathBuf| (fs::read(&path).expect("reads"), path);
        files(kept.path()).into_iter().map(read).collect::<Vec<_>>()
    };
    assert!(whole.len() >= 6, "{}", whole.len());
    type Damage = fn(&[u8], &mut StdRng) -> Vec<u8>;
    let damages: [Damage; 6] = [
        |bytes, random| {
            let mut bytes = bytes.to_vec();
            let place = random.random_range(0..bytes.len());
            bytes[place] ^= 1 << random.random_range(0..8);
            bytes
        },
        |bytes, random| bytes[..random.random_range(0..bytes.len())].to_vec(),
        |_, _| Vec::new(),
        |bytes, _| [bytes, b"more"].concat(),
        |bytes, _| vec![0; bytes.len()],
        |_, _| b"foreign".to_vec(),
    ];
    for round in 0..24 {
        for (bytes, path) in &whole {
            fs::write(path, bytes).expect("writes");
        }
        // One file, or all of them.
        let hurt = random.random_range(0..whole.len());
        for (index, (bytes, path)) in whole.iter().enumerate() {
            if index == hurt || round % 6 == 5 {
                let damage = damages[random.random_range(0..damages.len())];
                fs::write(path, damage(bytes, &mut random)).expect("writes");
            }
        }
        let mut engine = keeping(model.path(), kept.path(), 1 << 30);
        let reused = same(&mut engine, &mut without, &prompt, "damaged");
        let counts = engine.prefixes();
        if round % 6 == 5 {
            assert_eq!(reused, 0);
        }
        // Of a file that is not needed nobody learns. One that was read is whole again, or gone.
        assert!(counts.rejected_files > 0 || reused + SPACING >= prompt.len());
        drop(engine);
        if counts.rejected_files > 0 && round % 6 != 5 {
            assert_eq!(fs::read(&whole[hurt].1).ok().as_deref(), Some(&whole[hurt].0[..]));
        }
    }
    // A file in another one's place.
    for (bytes, path) in &whole {
        fs::write(path, bytes).expect("writes");
    }
    for pair in whole.chunks(2) {
        if let [(bytes, _), (_, path)] = pair {
            fs::write(path, bytes).expect("writes");
        }
    }
    let mut engine = keeping(model.path(), kept.path(), 1 << 30);
    same(&mut engine, &mut without, &prompt, "exchanged");
    assert!(engine.prefixes().rejected_files > 0);
}

#[test]
fn files_stay_within_their_quota_and_others_are_left_alone() {
    let model = model_with_text("tiny_qwen35", &[END]);
    let kept = TempDir::new().expect("a folder");
    let note = kept.path().join("note.txt");
    fs::write(&note, "not ours").expect("writes");
    let mut random = StdRng::seed_from_u64(70);
    let prompts: Vec<_> = (0..6).map(|_| tokens(&mut random, 1200, 500)).collect();
    let size = |file: PathBuf| fs::metadata(file).expect("is there").len();
    let bytes = || files(kept.path()).into_iter().map(size).sum::<u64>();
    let mut quota = 1 << 30;
    for prompt in &prompts {
        // Hours pass before the next.
        for file in files(kept.path()) {
            let file = fs::File::options().append(true).open(file).expect("opens");
            let modified = file.metadata().expect("has").modified().expect("is known");
            file.set_modified(modified - Duration::from_secs(7200)).expect("is set");
        }
        answer(&mut keeping(model.path(), kept.path(), quota), prompt, true);
        assert!(bytes() <= quota);
        // Two have room, and not three.
        quota = quota.min(bytes() * 5 / 2);
    }
    assert!(note.exists());
    let mut again = keeping(model.path(), kept.path(), quota);
    assert_eq!(again.prefixes().disk_bytes, bytes());
    let reused: Vec<usize> =
        prompts.iter().rev().map(|prompt| answer(&mut again, prompt, true).1).collect();
    assert!(reused[0] + SPACING >= 1200 && reused[4..] == [0, 0], "{reused:?}");
}

#[test]
fn what_cannot_be_kept_is_said() {
    let model = model_with_text("tiny_llama3", &[END]);
    let kept = TempDir::new().expect("a folder");
    let file = kept.path().join("file");
    fs::write(&file, "no folder").expect("writes");
    let mut engine = Engine::open(model.path(), options()).expect("opens");
    let error = engine.keep_prefixes(&disk(&file, 1)).expect_err("it is a file").to_string();
    assert!(error.contains("file") && error.contains("prefixes"), "{error}");
    let oracle = EngineOptions { backend: BackendKind::Interpreter, ..options() };
    let mut oracle = Engine::open(model.path(), oracle).expect("opens");
    let error = oracle.keep_prefixes(&disk(kept.path(), 1)).expect_err("it cannot");
    assert!(matches!(error, EngineError::NoSaving(BackendKind::Interpreter)), "{error}");
    // It works without.
    let prompt: Vec<TokenId> = (0..10).map(TokenId).collect();
    assert_eq!(answer(&mut oracle, &prompt, true).1, 0);
    assert_eq!(oracle.prefixes().memory_bytes, 0);
}
