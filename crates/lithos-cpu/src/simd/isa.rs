//! Which instruction sets the processor has, and running a kernel under one.

#[cfg(target_arch = "aarch64")]
use super::Neon;
#[cfg(target_arch = "x86_64")]
use super::{Avx2, Avx512, Avx512Bf16, Bf16Kernel};
use super::{Portable, Simd};

/// An instruction set that this processor has. It cannot be made for one that it lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Isa(Level);

/// The levels in ascending order; a level includes what [`Level::run`] needs of the ones below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Level {
    Portable,
    #[cfg(target_arch = "aarch64")]
    Neon,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
    #[cfg(target_arch = "x86_64")]
    Avx512Bf16,
    #[cfg(target_arch = "x86_64")]
    Amx,
}

/// Work that is written once for every instruction set.
///
/// `run` must be `#[inline(always)]`, as must be all that it calls with the token.
pub trait Kernel {
    /// What the work returns.
    type Output;
    /// Does the work with the operations of `simd`.
    fn run<S: Simd>(self, simd: S) -> Self::Output;
}

impl Isa {
    /// The best instruction set of this processor.
    pub fn detect() -> Self {
        *Self::available().last().unwrap_or(&Self::portable())
    }

    /// Plain Rust, which runs everywhere.
    pub fn portable() -> Self {
        Self(Level::Portable)
    }

    /// All instruction sets of this processor, the best one last.
    pub fn available() -> Vec<Self> {
        let mut found = vec![Self::portable()];
        #[cfg(target_arch = "x86_64")]
        x86::detect(&mut found);
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            found.push(Self(Level::Neon));
        }
        found
    }

    /// The instruction set of this name, if this processor has it.
    pub fn parse(name: &str) -> Option<Self> {
        Self::available().into_iter().find(|isa| isa.name() == name)
    }

    /// Its name: `portable`, `avx2`, `avx512` (with VNNI), `avx512bf16`, `amx` or `neon`.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
            #[cfg(target_arch = "aarch64")]
            Level::Neon => "neon",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => "avx512",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Bf16 => "avx512bf16",
            #[cfg(target_arch = "x86_64")]
            Level::Amx => "amx",
        }
    }

    /// Whether tile matrix instructions (AMX with INT8 and BF16) may be used.
    pub fn has_tiles(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return self.0 == Level::Amx;
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// Whether there are products of pairs of BF16 values (of some processors with AVX-512).
    pub fn has_bf16_pairs(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return matches!(self.0, Level::Avx512Bf16 | Level::Amx);
        #[cfg(not(target_arch = "x86_64"))]
        return false;
    }

    /// Runs `kernel` under this instruction set.
    ///
    /// # Panics
    /// If the instruction set lacks products of BF16 pairs; see [`Self::has_bf16_pairs`].
    #[cfg(target_arch = "x86_64")]
    #[inline]
    pub fn run_bf16<K: Bf16Kernel>(self, kernel: K) -> K::Output {
        assert!(self.has_bf16_pairs(), "{} has no products of BF16 pairs", self.name());
        // SAFETY: an `Isa` is only made for what the processor has.
        unsafe { run_avx512bf16(kernel) }
    }

    /// Runs `kernel` under this instruction set.
    #[inline]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Level::Portable => kernel.run(Portable),
            #[cfg(target_arch = "aarch64")]
            // SAFETY: an `Isa` is only made for what the processor has.
            Level::Neon => unsafe { run_neon(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` is only made for what the processor has.
            Level::Avx2 => unsafe { run_avx2(kernel) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: an `Isa` is only made for what the processor has.
            Level::Avx512 | Level::Avx512Bf16 | Level::Amx => unsafe { run_avx512(kernel) },
        }
    }
}

/// # Safety
/// The processor must have the features named.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller's promise is the same.
    kernel.run(unsafe { Avx2::new_unchecked() })
}

/// # Safety
/// The processor must have the features named.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
unsafe fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller's promise is the same.
    kernel.run(unsafe { Avx512::new_unchecked() })
}

/// # Safety
/// The processor must have the features named.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx2,fma,f16c")]
unsafe fn run_avx512bf16<K: Bf16Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller's promise is the same.
    unsafe { kernel.run(Avx512::new_unchecked(), Avx512Bf16::new_unchecked()) }
}

/// # Safety
/// The processor must have the features named.
#[cfg(target_arch = "aarch64")]
#[target_feature(enable = "neon")]
unsafe fn run_neon<K: Kernel>(kernel: K) -> K::Output {
    // SAFETY: the caller's promise is the same.
    kernel.run(unsafe { Neon::new_unchecked() })
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Isa, Level};
    use std::sync::OnceLock;

    /// Adds the levels that this processor and its operating system offer.
    pub(super) fn detect(found: &mut Vec<Isa>) {
        let avx2 = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c");
        let avx512 = avx2
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vnni");
        let bf16 = avx512 && is_x86_feature_detected!("avx512bf16");
        for (has, level) in
            [(avx2, Level::Avx2), (avx512, Level::Avx512), (bf16, Level::Avx512Bf16)]
        {
            if has {
                found.push(Isa(level));
            }
        }
        if bf16 && tiles_permitted() {
            found.push(Isa(Level::Amx));
        }
    }

    /// Whether the processor has AMX with BF16 and INT8 and Linux lets this process use the tile registers.
    ///
    /// CPUID leaf 7, EDX bits 22 (BF16), 24 (tiles) and 25 (INT8); the permission is asked for once per process.
    fn tiles_permitted() -> bool {
        static PERMITTED: OnceLock<bool> = OnceLock::new();
        *PERMITTED.get_or_init(|| {
            let wanted = 1 << 22 | 1 << 24 | 1 << 25;
            std::arch::x86_64::__cpuid_count(7, 0).edx & wanted == wanted && ask_linux_for_tiles()
        })
    }

    /// `arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)`: Linux saves the 8 KiB of tiles only for who asked.
    #[cfg(target_os = "linux")]
    fn ask_linux_for_tiles() -> bool {
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_long = 18;
        // SAFETY: this call takes two integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
    }

    #[cfg(not(target_os = "linux"))]
    fn ask_linux_for_tiles() -> bool {
        false
    }
}
