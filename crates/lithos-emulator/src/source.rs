//! Reads just enough of a Metal text to find its kernels, their parameters and their threadgroup variables.
//!
//! The text itself stays as it is but for one thing: a `threadgroup` variable inside a kernel is one variable for all
//! lanes of a threadgroup, which no C++ declaration says. Such a declaration becomes a reference into the memory of the
//! running threadgroup. Lines keep their numbers.

use crate::error::EmulatorError;
use std::fmt::Write as _;

/// A kernel of a text and what it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The function's name.
    pub name: String,
    /// The line of its definition, from 1.
    pub line: u32,
    /// Parameters in the order of the signature.
    pub parameters: Vec<Parameter>,
}

/// A parameter of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// The parameter's name.
    pub name: String,
    /// The declaration before the name, for instance `device const float*`.
    pub declaration: String,
    /// What it is bound to.
    pub source: ParameterSource,
}

/// What a kernel's parameter is bound to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParameterSource {
    /// `[[buffer(index)]]`: device or constant memory.
    Buffer {
        /// The index of the binding.
        index: u32,
        /// Whether the kernel may only read through it.
        read_only: bool,
    },
    /// `[[threadgroup(index)]]`: threadgroup memory whose length the launch gives.
    ThreadgroupMemory {
        /// The index of the argument.
        index: u32,
    },
    /// A position or size, by the attribute's name.
    Position(String),
}

/// A text with what was found in it.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub kernels: Vec<Kernel>,
    /// The text for running: threadgroup variables bound to the threadgroup's memory, an entry per kernel at the end.
    pub running: String,
    /// The text for the pass over address spaces.
    pub address_spaces: String,
    /// Names of the threadgroup variables, by kernel.
    pub variables: Vec<Vec<String>>,
}

#[derive(Debug, Clone, Copy)]
struct Token<'a> {
    text: &'a str,
    start: usize,
    line: u32,
}

impl Token<'_> {
    fn end(&self) -> usize {
        self.start + self.text.len()
    }

    fn is_word(&self) -> bool {
        self.text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    }
}

impl Source {
    /// Finds the kernels of `text`.
    ///
    /// # Errors
    ///
    /// [`EmulatorError::Source`] for what this emulator cannot run: a kernel that is a template, a parameter without a
    /// known attribute, a threadgroup variable outside a kernel.
    pub(crate) fn parse(text: &str) -> Result<Self, EmulatorError> {
        let tokens = tokens(text);
        let mut kernels = Vec::new();
        let mut edits = Vec::new();
        let mut variables = Vec::new();
        let mut at = 0;
        let mut outside = Vec::new();
        while at < tokens.len() {
            let Some(open) = kernel_head(&tokens, at)? else {
                outside.push(at);
                at += 1;
                continue;
            };
            let close = matching(&tokens, open)?;
            let kernel = Kernel {
                name: tokens[open - 1].text.to_owned(),
                line: tokens[open - 1].line,
                parameters: parameters(text, &tokens[open + 1..close])?,
            };
            let Some(body) =
                (close + 1..tokens.len()).find(|&i| matches!(tokens[i].text, "{" | ";"))
            else {
                return Err(unsupported(&tokens[close], "a kernel without a body"));
            };
            at = body + 1;
            if tokens[body].text == ";" {
                continue;
            }
            let end = matching(&tokens, body)?;
            let found =
                threadgroup_variables(text, &tokens[body..=end], kernels.len(), &mut edits)?;
            variables.push(found);
            kernels.push(kernel);
            at = end + 1;
        }
        refuse_variables_outside(&tokens, &outside)?;
        let running = with_edits(text, &edits, |edit| edit.running.as_str()) + &entries(&kernels);
        let address_spaces = with_edits(text, &edits, |edit| edit.address_spaces.as_str());
        Ok(Self { kernels, running, address_spaces, variables })
    }
}

/// Splits a text into words, numbers, literals and single punctuation marks; comments and directives are left out.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let (mut at, mut line, mut line_start) = (0, 1, true);
    while at < bytes.len() {
        let start = at;
        let start_line = line;
        match bytes[at] {
            b'\n' => {
                at += 1;
                line += 1;
                line_start = true;
                continue;
            }
            b'#' if line_start => {
                while at < bytes.len() && bytes[at] != b'\n' {
                    if bytes[at] == b'\\' && bytes.get(at + 1) == Some(&b'\n') {
                        at += 1;
                        line += 1;
                    }
                    at += 1;
                }
                continue;
            }
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += text[at..].find('\n').unwrap_or(text.len() - at);
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let end = text[at..].find("*/").map_or(text.len(), |end| at + end + 2);
                line += text[at..end].matches('\n').count() as u32;
                at = end;
                continue;
            }
            quote @ (b'"' | b'\'') => {
                at += 1;
                while at < bytes.len() && bytes[at] != quote && bytes[at] != b'\n' {
                    at += 1 + usize::from(bytes[at] == b'\\');
                }
                at = (at + 1).min(bytes.len());
            }
            byte if byte.is_ascii_alphanumeric() || byte == b'_' => {
                while at < bytes.len() && (bytes[at].is_ascii_alphanumeric() || bytes[at] == b'_') {
                    at += 1;
                }
            }
            _ => at += text[at..].chars().next().map_or(1, char::len_utf8),
        }
        line_start = false;
        if let Some(text) = text.get(start..at) {
            tokens.push(Token { text, start, line: start_line });
        }
    }
    tokens
}

/// Whether a kernel's definition begins at `at`; the position of its opening parenthesis.
fn kernel_head(tokens: &[Token<'_>], at: usize) -> Result<Option<usize>, EmulatorError> {
    if tokens[at].text != "kernel" {
        return Ok(None);
    }
    if at > 0 && tokens[at - 1].text == ">" {
        return Err(unsupported(&tokens[at], "a kernel that is a template"));
    }
    let mut square = 0;
    for (i, token) in tokens.iter().enumerate().skip(at + 1) {
        match token.text {
            "[" => square += 1,
            "]" => square -= 1,
            "(" if square <= 0 && tokens[i - 1].is_word() => return Ok(Some(i)),
            ";" | "{" | "}" => break,
            _ => {}
        }
    }
    Err(unsupported(&tokens[at], "`kernel` without a function"))
}

/// The position of the mark that closes the one at `open`.
fn matching(tokens: &[Token<'_>], open: usize) -> Result<usize, EmulatorError> {
    let mut depth = 0_usize;
    for (i, token) in tokens.iter().enumerate().skip(open) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Ok(i);
                }
            }
            _ => {}
        }
    }
    Err(unsupported(&tokens[open], "a bracket that is never closed"))
}

/// Splits `tokens` at commas outside any brackets.
fn at_commas<'t, 'a>(tokens: &'t [Token<'a>]) -> Vec<&'t [Token<'a>]> {
    let mut parts = Vec::new();
    let (mut depth, mut start) = (0, 0);
    for (i, token) in tokens.iter().enumerate() {
        match token.text {
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" | ">" => depth -= 1,
            "," if depth == 0 => {
                parts.push(&tokens[start..i]);
                start = i + 1;
            }
            _ => {}
        }
    }
    if start < tokens.len() {
        parts.push(&tokens[start..]);
    }
    parts
}

fn parameters(text: &str, tokens: &[Token<'_>]) -> Result<Vec<Parameter>, EmulatorError> {
    at_commas(tokens).into_iter().map(|tokens| parameter(text, tokens)).collect()
}

fn parameter(text: &str, tokens: &[Token<'_>]) -> Result<Parameter, EmulatorError> {
    let attribute = tokens
        .windows(2)
        .position(|pair| pair[0].text == "[" && pair[1].text == "[")
        .filter(|&at| at >= 2 && at + 2 < tokens.len());
    let Some(attribute) = attribute else {
        return Err(unsupported(&tokens[0], "a kernel parameter without an attribute"));
    };
    let name = &tokens[attribute - 1];
    let declaration = text[tokens[0].start..name.start].trim().to_owned();
    let argument = || tokens.get(attribute + 4).and_then(|token| token.text.parse().ok());
    let has = |word: &str| tokens[..attribute].iter().any(|token| token.text == word);
    let source = match tokens[attribute + 2].text {
        "buffer" => match argument() {
            Some(index) => ParameterSource::Buffer {
                index,
                read_only: has("constant") || points_to_const(&tokens[..attribute - 1]),
            },
            None => return Err(unsupported(name, "a buffer attribute without a number")),
        },
        "threadgroup" => match argument() {
            Some(index) => ParameterSource::ThreadgroupMemory { index },
            None => return Err(unsupported(name, "a threadgroup attribute without a number")),
        },
        other => ParameterSource::Position(other.to_owned()),
    };
    Ok(Parameter { name: name.text.to_owned(), declaration, source })
}

/// Whether `const` stands before the first `*` or `&` of a declaration, so that what it points to is constant.
fn points_to_const(tokens: &[Token<'_>]) -> bool {
    tokens.iter().take_while(|token| !matches!(token.text, "*" | "&")).any(|t| t.text == "const")
}

/// A replacement of a range of the text.
struct Edit {
    start: usize,
    end: usize,
    running: String,
    address_spaces: String,
}

/// Finds the declarations of threadgroup variables in a kernel's body and records how they are replaced.
fn threadgroup_variables(
    text: &str,
    body: &[Token<'_>],
    kernel: usize,
    edits: &mut Vec<Edit>,
) -> Result<Vec<String>, EmulatorError> {
    let mut names = Vec::new();
    for at in 1..body.len() {
        if body[at].text != "threadgroup" || !starts_statement(body, at) {
            continue;
        }
        let Some(length) = body[at..].iter().position(|token| token.text == ";") else { continue };
        let declaration = &body[at + 1..at + length];
        if declaration.iter().any(|token| matches!(token.text, "*" | "&" | "=")) {
            continue;
        }
        let (type_text, declarators) = declarators(text, declaration)?;
        let mut running = String::new();
        for (name, dimensions) in &declarators {
            let _ = write!(
                running,
                "typedef {type_text} lithos_type_{name} {dimensions}; lithos_type_{name}& {name} = \
                 lithos::threadgroup_variable<lithos_type_{name}, {kernel}, {}>();",
                names.len()
            );
            names.push(name.clone());
        }
        let end = body[at + length].end();
        edits.push(Edit {
            start: body[at].start,
            end,
            // A declaration over several lines keeps them.
            running: running + &"\n".repeat(text[body[at].start..end].matches('\n').count()),
            address_spaces: format!("static {}", &text[body[at].start..end]),
        });
    }
    Ok(names)
}

fn starts_statement(body: &[Token<'_>], at: usize) -> bool {
    let before = |back: usize| at.checked_sub(back).map_or("", |i| body[i].text);
    matches!(before(1), "{" | "}" | ";") || (before(1) == ")" && before(4) == "alignas")
}

/// The type and each `(name, dimensions)` of a declaration without initialiser.
fn declarators(
    text: &str,
    declaration: &[Token<'_>],
) -> Result<(String, Vec<(String, String)>), EmulatorError> {
    let parts = at_commas(declaration);
    let mut type_text = String::new();
    let mut declarators = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        let square = part.iter().position(|token| token.text == "[").unwrap_or(part.len());
        let Some(name) = square.checked_sub(1).map(|at| part[at]).filter(Token::is_word) else {
            return Err(unsupported(
                declaration.first().unwrap_or(&Token { text: "", start: 0, line: 0 }),
                "a threadgroup variable without a name",
            ));
        };
        if i == 0 {
            type_text = text[part[0].start..name.start].trim().to_owned();
        }
        let dimensions =
            part[square..].iter().map(|token| token.text).collect::<Vec<_>>().join(" ");
        declarators.push((name.text.to_owned(), dimensions));
    }
    Ok((type_text, declarators))
}

/// Metal allows threadgroup variables in kernels only.
fn refuse_variables_outside(tokens: &[Token<'_>], outside: &[usize]) -> Result<(), EmulatorError> {
    for &at in outside {
        if tokens[at].text != "threadgroup"
            || at == 0
            || !matches!(tokens[at - 1].text, "{" | "}" | ";")
        {
            continue;
        }
        let statement: Vec<&str> = tokens[at..]
            .iter()
            .map(|token| token.text)
            .take_while(|text| !matches!(*text, ";" | "{" | "="))
            .collect();
        if !statement.iter().any(|text| matches!(*text, "*" | "&" | "(")) {
            return Err(unsupported(&tokens[at], "a threadgroup variable outside a kernel"));
        }
    }
    Ok(())
}

fn with_edits(text: &str, edits: &[Edit], replacement: impl Fn(&Edit) -> &str) -> String {
    let mut result = String::with_capacity(text.len() + 256);
    let mut at = 0;
    for edit in edits {
        result.push_str(&text[at..edit.start]);
        result.push_str(replacement(edit));
        at = edit.end;
    }
    result.push_str(&text[at..]);
    result
}

/// One function per kernel that a lane starts in, with the kernel's arguments taken from the lane.
fn entries(kernels: &[Kernel]) -> String {
    let mut text = String::from("\n#line 1 \"entries\"\n");
    for kernel in kernels {
        let arguments: Vec<String> = kernel.parameters.iter().map(argument).collect();
        let _ = writeln!(
            text,
            "extern \"C\" __attribute__((visibility(\"default\"))) void lithos_entry_{0}(lithos::Lane* \
             lithos_own) {{ lithos::live(lithos_own, [](lithos::Lane* lithos_own) {{ {0}({1}); }}); }}",
            kernel.name,
            arguments.join(", ")
        );
    }
    text
}

fn argument(parameter: &Parameter) -> String {
    let memory = |call: String| match parameter.declaration.strip_suffix('&') {
        Some(referred) => format!("*({referred}*){call}"),
        None => format!("({}){call}", parameter.declaration),
    };
    match &parameter.source {
        ParameterSource::Buffer { index, .. } => {
            memory(format!("lithos::buffer_argument(lithos_own, {index})"))
        }
        ParameterSource::ThreadgroupMemory { index } => {
            memory(format!("lithos::group_memory_argument(lithos_own, {index})"))
        }
        ParameterSource::Position(attribute) => position(attribute).to_owned(),
    }
}

/// The expression of a position attribute; an unknown one is left for the compiler to name.
fn position(attribute: &str) -> &str {
    match attribute {
        "thread_index_in_simdgroup" => "lithos::index_in_simdgroup(lithos_own)",
        "simdgroup_index_in_threadgroup" => "lithos::simdgroup_in_group(lithos_own)",
        "thread_index_in_threadgroup" => "lithos::index_in_group(lithos_own)",
        "threadgroup_position_in_grid" => "lithos::in_grid(lithos_own)",
        "threadgroups_per_grid" => "lithos::grid_size(lithos_own)",
        "threads_per_threadgroup" => "lithos::group_size(lithos_own)",
        "thread_position_in_threadgroup" => "lithos::in_group(lithos_own)",
        "thread_position_in_grid" => "lithos::thread_in_grid(lithos_own)",
        "threads_per_grid" => "lithos::threads_in_grid(lithos_own)",
        "simdgroups_per_threadgroup" => "lithos::simdgroups_in_group(lithos_own)",
        "threads_per_simdgroup" => "32",
        other => other,
    }
}

fn unsupported(token: &Token<'_>, what: &str) -> EmulatorError {
    EmulatorError::Source { line: token.line, what: what.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "#include <metal_stdlib>\nusing namespace metal;\n// kernel in a comment\n\
        static float g(threadgroup float* p) { return p[0]; }\n\
        kernel void add(device const float* a [[buffer(0)]], device float *b [[buffer(3)]],\n\
        constant Size& size [[buffer(1)]], uint lane [[thread_index_in_simdgroup]]) {\n\
        threadgroup float partial[4][8], total;\n    threadgroup float* p = partial[0];\n}\n";

    #[test]
    fn finds_kernels_and_their_parameters() {
        let source = Source::parse(TEXT).unwrap();
        assert_eq!(source.kernels.len(), 1);
        let kernel = &source.kernels[0];
        assert_eq!((kernel.name.as_str(), kernel.line), ("add", 5));
        let sources: Vec<_> = kernel.parameters.iter().map(|p| p.source.clone()).collect();
        assert_eq!(
            sources,
            [
                ParameterSource::Buffer { index: 0, read_only: true },
                ParameterSource::Buffer { index: 3, read_only: false },
                ParameterSource::Buffer { index: 1, read_only: true },
                ParameterSource::Position("thread_index_in_simdgroup".into()),
            ]
        );
        assert_eq!(kernel.parameters[2].declaration, "constant Size&");
        assert_eq!(source.variables, [vec!["partial".to_owned(), "total".to_owned()]]);
    }

    #[test]
    fn keeps_lines_and_all_else() {
        let source = Source::parse(TEXT).unwrap();
        let lines: Vec<_> = source.running.lines().collect();
        for (i, line) in TEXT.lines().enumerate().filter(|(i, _)| *i != 6) {
            assert_eq!(lines[i], line);
        }
        assert!(lines[6].contains("lithos_type_partial [ 4 ] [ 8 ];"), "{}", lines[6]);
    }

    #[test]
    fn refuses_what_it_cannot_run() {
        for (text, what) in [
            ("template<int N> kernel void f() {}", "template"),
            ("kernel void f(device float* a) {}", "attribute"),
            ("void f() { threadgroup float x[4]; }", "outside a kernel"),
            ("kernel void f(", "never closed"),
            ("kernel int x;", "without a function"),
        ] {
            let error = Source::parse(text).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
