//! A launch: which kernel, how many threadgroups, what is bound; and its checks before anything runs.

use crate::compile::Library;
use crate::error::EmulatorError;
use crate::machine::VariableRecord;
use crate::memory::{BufferId, Memory};
use crate::source::{Kernel, ParameterSource};

/// Threadgroup memory of Apple's chips in bytes.
pub const THREADGROUP_MEMORY: u64 = 32 << 10;
/// Buffers that a launch can bind: 31 slots, of which one is kept free for the engine's own use.
pub const BINDINGS: usize = 30;
/// Lanes of a threadgroup at most.
pub const THREADS: u32 = 1024;
/// Lanes that have a stack at once, where a launch does not say how many threadgroups run together.
const RESIDENT_LANES: u32 = 4096;

/// A launch of a kernel.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// The kernel's name.
    pub kernel: &'a str,
    /// Threadgroups in each direction of the grid.
    pub threadgroups: [u32; 3],
    /// Threads of a threadgroup in each direction.
    pub threads_per_threadgroup: [u32; 3],
    /// What is bound where.
    pub bindings: Vec<Binding>,
    /// Bytes of the threadgroup memory arguments, by index.
    pub threadgroup_memory: Vec<(u32, u32)>,
    /// Threadgroups that run together; the others wait for one of them to end. By default as many as 4096 threads
    /// hold. Threadgroups that wait for each other must run together, as on a device.
    pub resident_threadgroups: Option<u32>,
    /// Decides the order in which simdgroups and lanes take turns: same seed, same order.
    pub seed: u64,
    /// Whether to check every access.
    pub checked: bool,
    /// Turns of waiting lanes in which nobody gets any further, after which a wait is given up.
    pub wait_turns: u64,
}

/// A buffer at an index of the argument table.
#[derive(Debug, Clone, Copy)]
pub struct Binding {
    /// The `N` of `[[buffer(N)]]`.
    pub index: u32,
    /// The buffer.
    pub buffer: BufferId,
    /// The byte of the buffer that the kernel's pointer points to.
    pub offset: usize,
    /// The bytes from there that the kernel may use; none means to the end.
    pub length: Option<usize>,
}

/// What a run did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Report {
    /// Times that one simdgroup handed over to another.
    pub turns: u64,
    /// Barriers of threadgroups that were passed.
    pub barriers: u64,
    /// Accesses that were checked.
    pub accesses: u64,
    /// Bytes of threadgroup memory.
    pub threadgroup_memory: u64,
    /// Changes with the order in which simdgroups took turns.
    pub schedule: u64,
}

impl<'a> Launch<'a> {
    /// A checked launch in one direction, with nothing bound.
    pub fn new(kernel: &'a str, threadgroups: u32, threads_per_threadgroup: u32) -> Self {
        Self {
            kernel,
            threadgroups: [threadgroups, 1, 1],
            threads_per_threadgroup: [threads_per_threadgroup, 1, 1],
            bindings: Vec::new(),
            threadgroup_memory: Vec::new(),
            resident_threadgroups: None,
            seed: 0,
            checked: true,
            wait_turns: 1 << 17,
        }
    }

    /// Binds a whole buffer.
    #[must_use]
    pub fn bind(mut self, index: u32, buffer: BufferId) -> Self {
        self.bindings.push(Binding { index, buffer, offset: 0, length: None });
        self
    }

    /// Sets the seed of the order in which simdgroups take turns.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Runs without checks of accesses, at full speed.
    #[must_use]
    pub fn fast(mut self) -> Self {
        self.checked = false;
        self
    }

    /// Threads of a threadgroup.
    pub(crate) fn threads(&self) -> u32 {
        self.threads_per_threadgroup.iter().product()
    }

    /// Threadgroups of the grid.
    pub(crate) fn groups(&self) -> u32 {
        self.threadgroups.iter().product()
    }

    /// Threadgroups that run together.
    pub(crate) fn resident(&self) -> u32 {
        let by_default = (RESIDENT_LANES / self.threads()).max(1);
        self.resident_threadgroups.unwrap_or(by_default).clamp(1, self.groups())
    }

    fn refuse(&self, cause: impl Into<String>) -> EmulatorError {
        EmulatorError::Launch { kernel: self.kernel.to_owned(), cause: cause.into() }
    }

    /// Everything that can be known before the launch.
    pub(crate) fn check(&self, kernel: &Kernel, memory: &Memory) -> Result<(), EmulatorError> {
        let product = |of: [u32; 3]| of.iter().try_fold(1_u32, |all, &one| all.checked_mul(one));
        let threads = product(self.threads_per_threadgroup).unwrap_or(0);
        if threads == 0 || threads > THREADS {
            return Err(self.refuse(format!(
                "{:?} threads in a threadgroup, from 1 to {THREADS} are possible",
                self.threads_per_threadgroup
            )));
        }
        let lanes = product(self.threadgroups).and_then(|groups| groups.checked_mul(threads));
        if !lanes.is_some_and(|lanes| lanes > 0 && lanes < 1 << 31) {
            return Err(self.refuse(format!(
                "a grid of {:?} threadgroups cannot be launched",
                self.threadgroups
            )));
        }
        self.check_bindings(kernel, memory)
    }

    fn check_bindings(&self, kernel: &Kernel, memory: &Memory) -> Result<(), EmulatorError> {
        for binding in &self.bindings {
            let Some(buffer) = memory.buffer(binding.buffer) else {
                return Err(self.refuse(format!("binding {} names no buffer", binding.index)));
            };
            let end = binding.offset.checked_add(binding.length.unwrap_or(0));
            if end.is_none_or(|end| end > buffer.length) {
                return Err(self.refuse(format!(
                    "binding {} begins at byte {} of `{}`, which has {} bytes",
                    binding.index, binding.offset, buffer.name, buffer.length
                )));
            }
            if !binding.offset.is_multiple_of(4) {
                return Err(self.refuse(format!(
                    "binding {} begins at byte {} of `{}`, which is not a multiple of 4",
                    binding.index, binding.offset, buffer.name
                )));
            }
            if self.bindings.iter().filter(|other| other.index == binding.index).count() > 1 {
                return Err(
                    self.refuse(format!("two buffers are bound at index {}", binding.index))
                );
            }
        }
        let count = kernel.buffers().count().max(self.bindings.len());
        let highest = kernel.buffers().map(|(_, index, _)| index);
        let highest = highest.chain(self.bindings.iter().map(|b| b.index)).max().unwrap_or(0);
        if count > BINDINGS || highest as usize > BINDINGS {
            return Err(EmulatorError::TooManyBindings {
                kernel: self.kernel.to_owned(),
                count: count.max(highest as usize + 1),
                limit: BINDINGS,
            });
        }
        for (name, index, _) in kernel.buffers() {
            if !self.bindings.iter().any(|binding| binding.index == index) {
                return Err(EmulatorError::NotBound {
                    kernel: self.kernel.to_owned(),
                    parameter: name.to_owned(),
                    index,
                });
            }
        }
        Ok(())
    }
}

impl Kernel {
    /// The buffers that it takes: name, index, whether it only reads.
    pub fn buffers(&self) -> impl Iterator<Item = (&str, u32, bool)> {
        self.parameters.iter().filter_map(|parameter| match parameter.source {
            ParameterSource::Buffer { index, read_only } => {
                Some((parameter.name.as_str(), index, read_only))
            }
            _ => None,
        })
    }

    fn threadgroup_arguments(&self) -> impl Iterator<Item = (&str, u32)> {
        self.parameters.iter().filter_map(|parameter| match parameter.source {
            ParameterSource::ThreadgroupMemory { index } => Some((parameter.name.as_str(), index)),
            _ => None,
        })
    }
}

/// Where a kernel's threadgroup variables and arguments lie in the memory of a threadgroup.
pub(crate) struct ThreadgroupLayout {
    pub(crate) variables: Vec<ThreadgroupVariable>,
    pub(crate) arguments: [u32; 32],
    /// With the gaps between them.
    pub(crate) length: usize,
    /// Without: what counts against the limit.
    pub(crate) used: u64,
}

pub(crate) struct ThreadgroupVariable {
    pub(crate) name: String,
    pub(crate) offset: usize,
    pub(crate) length: usize,
}

/// Untouchable bytes between threadgroup variables of a checked run.
const GAP: u64 = 256;

impl ThreadgroupLayout {
    /// Lays out the variables of the kernel with this index and the launch's arguments, and tells the loaded text.
    ///
    /// # Safety
    ///
    /// `records` must come from a loaded text that nothing runs in.
    pub(crate) unsafe fn new(
        library: &Library,
        launch: &Launch<'_>,
        records: &[VariableRecord],
    ) -> Result<Self, EmulatorError> {
        let (index, kernel) = library.kernel(launch.kernel)?;
        let mut layout = Self { variables: Vec::new(), arguments: [0; 32], length: 0, used: 0 };
        for record in records.iter().filter(|record| record.kernel as usize == index) {
            let names = library.variable_names(index);
            let name = names.get(record.variable as usize).cloned().unwrap_or_default();
            let offset = layout.place(name, record.size, record.alignment);
            // SAFETY: the record points to a variable of the loaded text, as the caller promises.
            unsafe { *record.offset = offset as u64 };
        }
        for (name, argument) in kernel.threadgroup_arguments() {
            let given = launch.threadgroup_memory.iter().find(|(index, _)| *index == argument);
            let (Some((_, length)), true) = (given, argument < 32) else {
                return Err(launch.refuse(format!(
                    "no length is given for threadgroup memory `{name}` at index {argument}"
                )));
            };
            let offset = layout.place(name.to_owned(), u64::from(*length), 16);
            layout.arguments[argument as usize] = offset as u32;
        }
        if layout.used > THREADGROUP_MEMORY {
            return Err(EmulatorError::TooMuchThreadgroupMemory {
                kernel: launch.kernel.to_owned(),
                bytes: layout.used,
                limit: THREADGROUP_MEMORY,
            });
        }
        Ok(layout)
    }

    fn place(&mut self, name: String, length: u64, alignment: u64) -> usize {
        self.used = self.used.next_multiple_of(alignment) + length;
        let offset = (self.length as u64 + GAP).next_multiple_of(alignment.max(16)) as usize;
        self.length = offset + length as usize;
        self.variables.push(ThreadgroupVariable { name, offset, length: length as usize });
        offset
    }
}
