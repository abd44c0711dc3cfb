//! What can go wrong, each as one line that names the kernel, the place and the cause.

use std::fmt;
use std::path::PathBuf;

/// Where a lane is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The kernel's name.
    pub kernel: String,
    /// Index of the threadgroup in the grid.
    pub threadgroup: u32,
    /// Index of the simdgroup in its threadgroup.
    pub simdgroup: u32,
    /// Index of the lane in its simdgroup; none stands for several.
    pub lane: Option<u32>,
    /// Line of the text, where known.
    pub line: Option<u32>,
    /// Lines of the calls that lead there, the innermost first, as far as the compiler has put them in place.
    pub called_from: Vec<u32>,
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kernel, threadgroup, simdgroup, lane, line, called_from } = self;
        write!(out, "{kernel}")?;
        if let Some(line) = line {
            write!(out, " line {line}")?;
        }
        for line in called_from {
            write!(out, " from line {line}")?;
        }
        write!(out, " (threadgroup {threadgroup}, simdgroup {simdgroup}, ")?;
        match lane {
            Some(lane) => write!(out, "lane {lane})"),
            None => write!(out, "several lanes)"),
        }
    }
}

/// Whether an access reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessKind {
    /// A read.
    Read,
    /// A write.
    Write,
}

impl fmt::Display for AccessKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// An access to a buffer or to a threadgroup variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessPlace {
    /// Who.
    pub place: Place,
    /// Reads or writes.
    pub kind: AccessKind,
    /// The buffer, or `threadgroup NAME` for a threadgroup variable.
    pub memory: String,
    /// Bytes from its start; negative before it.
    pub offset: i64,
    /// Bytes read or written.
    pub size: u64,
}

impl fmt::Display for AccessPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, kind, memory, offset, size } = self;
        write!(out, "{place}: {kind} of {size} bytes at byte {offset} of `{memory}`")
    }
}

/// What can go wrong when a text is compiled and run.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// No clang of a sufficient version was found.
    #[error(
        "no clang++ of version {minimum} or later found (looked for {searched}); install one, or name it in LITHOS_CLANG"
    )]
    NoCompiler {
        /// The names that were tried.
        searched: String,
        /// The least version that will do.
        minimum: u32,
    },
    /// The compiler refused the text.
    #[error("the text does not compile: {log}")]
    Compile {
        /// The compiler's own log.
        log: String,
    },
    /// Address spaces are mixed up.
    #[error("the text mixes up address spaces: {log}")]
    AddressSpaces {
        /// The compiler's own log.
        log: String,
    },
    /// The text holds something that cannot be run here.
    #[error("line {line} of the text has {what}, which cannot be run here")]
    Source {
        /// Line of the text, from 1.
        line: u32,
        /// What was met.
        what: String,
    },
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The compiled text could not be loaded.
    #[error("the compiled text could not be loaded: {cause}")]
    Load {
        /// The cause.
        cause: String,
    },
    /// Memory could not be had.
    #[error("{bytes} bytes for {purpose} could not be allocated: {source}")]
    OutOfMemory {
        /// How much was asked for.
        bytes: usize,
        /// For what.
        purpose: String,
        /// The cause.
        source: std::io::Error,
    },
    /// The text has no kernel of this name.
    #[error("no kernel `{kernel}` in the text; it has {known}")]
    UnknownKernel {
        /// The name asked for.
        kernel: String,
        /// The names that there are.
        known: String,
    },
    /// A launch that no device would take.
    #[error("{kernel}: {cause}")]
    Launch {
        /// The kernel's name.
        kernel: String,
        /// What is wrong.
        cause: String,
    },
    /// More threadgroup memory than a threadgroup has.
    #[error("{kernel}: {bytes} bytes of threadgroup memory, at most {limit} are available")]
    TooMuchThreadgroupMemory {
        /// The kernel's name.
        kernel: String,
        /// The sum over its variables and arguments.
        bytes: u64,
        /// What a threadgroup has.
        limit: u64,
    },
    /// More buffers than a launch can bind.
    #[error("{kernel}: {count} bindings, at most {limit} are available")]
    TooManyBindings {
        /// The kernel's name.
        kernel: String,
        /// The kernel's bindings.
        count: usize,
        /// What a launch can bind.
        limit: usize,
    },
    /// A parameter of the kernel without a binding.
    #[error("{kernel}: nothing is bound to parameter `{parameter}` at index {index}")]
    NotBound {
        /// The kernel's name.
        kernel: String,
        /// The parameter's name.
        parameter: String,
        /// The index of the binding.
        index: u32,
    },
    /// An access outside of what is bound.
    #[error("out of bounds: {access}, which has {length} bytes{hint}")]
    OutOfBounds {
        /// The access.
        access: Box<AccessPlace>,
        /// Length of the buffer, or of its bound part.
        length: u64,
        /// More, where the memory nearest to the address was only guessed.
        hint: &'static str,
    },
    /// A write to memory that the kernel may only read.
    #[error("write to read-only memory: {access}")]
    ReadOnly {
        /// The access.
        access: Box<AccessPlace>,
    },
    /// An address that is not a multiple of what its type demands.
    #[error("misaligned: {access}, {alignment}-byte alignment is needed")]
    Misaligned {
        /// The access.
        access: Box<AccessPlace>,
        /// What the type demands.
        alignment: u64,
    },
    /// A read of memory that nobody has written.
    #[error("read of unwritten memory: {access}, byte {first} was never written")]
    Unwritten {
        /// The access.
        access: Box<AccessPlace>,
        /// The first byte that was not.
        first: i64,
    },
    /// Two accesses that nothing orders, one of them a write.
    #[error("race: {access} and an earlier {earlier_kind} by {earlier} are not ordered")]
    Race {
        /// The later access.
        access: Box<AccessPlace>,
        /// Who came before.
        earlier: Box<Place>,
        /// What it did.
        earlier_kind: AccessKind,
    },
    /// Lanes of a simdgroup at different operations.
    #[error(
        "divergent simdgroup: {place} is at {operation}, other lanes of the simdgroup are at {other} of line {other_line}"
    )]
    Divergent {
        /// The lane that arrived last.
        place: Box<Place>,
        /// Where it is.
        operation: &'static str,
        /// Where others are.
        other: &'static str,
        /// Line of the others; 0 where they have returned.
        other_line: u32,
    },
    /// A barrier that only a part of a threadgroup reaches.
    #[error(
        "barrier not reached by all: {place} is at {operation}, other lanes of the threadgroup are at {other}"
    )]
    BarrierNotReached {
        /// A lane at one place.
        place: Box<Place>,
        /// What it does there.
        operation: String,
        /// What others do.
        other: String,
    },
    /// A value taken from a lane that does not exist.
    #[error("{place} takes a value from lane {source_lane}, but the simdgroup has {width} lanes")]
    AbsentLane {
        /// Who asked.
        place: Box<Place>,
        /// The lane asked for.
        source_lane: u32,
        /// How many there are.
        width: u32,
    },
    /// A wait for other threadgroups that does not end.
    #[error("wait without end: after {turns} turns without progress {waiting}")]
    WaitTimedOut {
        /// How long it was tried.
        turns: u64,
        /// Who waits where.
        waiting: String,
    },
}

impl EmulatorError {
    /// The place of an access, to be told its line.
    pub(crate) fn access_place_mut(&mut self) -> Option<&mut Place> {
        match self {
            Self::OutOfBounds { access, .. }
            | Self::ReadOnly { access }
            | Self::Misaligned { access, .. }
            | Self::Unwritten { access, .. }
            | Self::Race { access, .. } => Some(&mut access.place),
            _ => None,
        }
    }
}
