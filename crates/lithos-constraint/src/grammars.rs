//! Forms compiled for one vocabulary.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::thread;

use lithos_model::text::{TokenId, Tokenizer};
use llguidance::{Matcher, ParserFactory};
use toktrie::{ApproximateTokEnv, TokEnv};

use crate::constraint::Constraint;
use crate::error::{ConstraintError, one_line};
use crate::form::Form;
use crate::words;

/// Compiles forms for one model's vocabulary. The vocabulary becomes a trie when the first form is compiled, which takes a moment;
/// clones share it.
#[derive(Clone)]
pub struct Grammars {
    shared: Arc<Shared>,
}

struct Shared {
    tokenizer: Tokenizer,
    vocabulary: usize,
    ends: Vec<TokenId>,
    factory: OnceLock<Result<ParserFactory, ConstraintError>>,
}

impl Grammars {
    /// For a model whose logits have so many places, and whose texts end with one of these tokens.
    pub fn new(tokenizer: Tokenizer, vocabulary: usize, ends: Vec<TokenId>) -> Self {
        let factory = OnceLock::new();
        Grammars { shared: Arc::new(Shared { tokenizer, vocabulary, ends, factory }) }
    }

    /// Compiles a form.
    ///
    /// # Errors
    /// [`ConstraintError::Form`], which names what is wrong or not supported; [`ConstraintError::Vocabulary`] if the model names no end
    /// token, or its vocabulary is too large.
    pub fn compile(&self, form: &Form) -> Result<Constraint, ConstraintError> {
        let Shared { tokenizer, vocabulary, ends, factory } = &*self.shared;
        let factory = factory.get_or_init(|| {
            let trie = words::trie(tokenizer, *vocabulary, ends)?;
            new_factory(Arc::new(ApproximateTokEnv::new(trie)))
        });
        compile(factory.as_ref().map_err(Clone::clone)?, form)
    }
}

impl Form {
    /// Checks that it can be compiled, before there is a model.
    ///
    /// # Errors
    /// [`ConstraintError::Form`], which names what is wrong or not supported.
    pub fn check(&self) -> Result<(), ConstraintError> {
        compile(&new_factory(ApproximateTokEnv::single_byte_env())?, self).map(|_| ())
    }
}

fn new_factory(environment: TokEnv) -> Result<ParserFactory, ConstraintError> {
    let mut factory = ParserFactory::new_simple(&environment)
        .map_err(|error| ConstraintError::Vocabulary(one_line(&error.to_string())))?;
    factory.quiet();
    factory.limits_mut().verbose_errors = false;
    Ok(factory)
}

/// The compiler goes down by itself: as deep as schemas refer to each other. This is enough for [`LONGEST`] bytes of them; memory that is
/// not reached is not taken.
const STACK: usize = 256 << 20;

/// Bytes of a form at most.
const LONGEST: usize = 256 << 10;

/// Brackets within each other in a grammar at most; each costs the compiler far more stack than a reference.
const DEEPEST: usize = 200;

fn compile(factory: &ParserFactory, form: &Form) -> Result<Constraint, ConstraintError> {
    let refused = |cause: String| ConstraintError::Form { kind: form.kind(), cause };
    let grammar = form.grammar()?;
    let bytes = form.bytes();
    if bytes > LONGEST {
        return Err(refused(format!("it has {bytes} bytes, and at most {LONGEST} are taken")));
    }
    if form.depth() > DEEPEST {
        return Err(refused(format!("its brackets are more than {DEEPEST} deep")));
    }
    let compiled = thread::scope(|scope| {
        let thread = thread::Builder::new().name("forms".into()).stack_size(STACK);
        let thread = thread.spawn_scoped(scope, || {
            let mut matcher = Matcher::new(factory.create_parser(grammar));
            // Some faults come to light only when the first tokens are looked for.
            let checked = matcher.compute_mask_or_eos();
            let fault =
                matcher.get_error().or_else(|| checked.err().map(|error| error.to_string()));
            fault.map_or(Ok(matcher), Err)
        });
        match thread.map(|thread| thread.join()) {
            Ok(Ok(compiled)) => compiled,
            Ok(Err(_)) => Err("its compiler failed".to_owned()),
            Err(error) => Err(format!("there is no memory for its compiler: {error}")),
        }
    });
    compiled.map(Constraint::new).map_err(|cause| refused(one_line(&cause)))
}

impl fmt::Debug for Grammars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grammars").finish_non_exhaustive()
    }
}
