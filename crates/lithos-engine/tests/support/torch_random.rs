//! The numbers that torch draws on a processor: with a seed, tests have the weights of a reference without a file of them.

use std::f64::consts::TAU;

/// The generator MT19937 (Matsumoto and Nishimura 1998).
pub struct Generator {
    state: Vec<u32>,
    at: usize,
}

impl Generator {
    /// As `manual_seed`.
    pub fn new(seed: u32) -> Self {
        let mut state = vec![seed];
        for index in 1..624u32 {
            let last = state[index as usize - 1];
            state.push(1_812_433_253u32.wrapping_mul(last ^ (last >> 30)).wrapping_add(index));
        }
        Generator { state, at: 624 }
    }

    fn word(&mut self) -> u32 {
        if self.at == 624 {
            for index in 0..624 {
                let upper = self.state[index] & 0x8000_0000;
                let mixed = upper | (self.state[(index + 1) % 624] & 0x7fff_ffff);
                let odd = if mixed & 1 == 1 { 0x9908_b0df } else { 0 };
                self.state[index] = self.state[(index + 397) % 624] ^ (mixed >> 1) ^ odd;
            }
            self.at = 0;
        }
        let mut word = self.state[self.at];
        self.at += 1;
        word ^= word >> 11;
        word ^= (word << 7) & 0x9d2c_5680;
        word ^= (word << 15) & 0xefc6_0000;
        word ^ (word >> 18)
    }

    /// As `randn` of a multiple of sixteen elements: Box and Muller 1958, over eight pairs of 24-bit numbers at a time.
    pub fn normal(&mut self, count: usize) -> Vec<f32> {
        assert!(count.is_multiple_of(16), "torch draws the rest in another way");
        let mut values = Vec::with_capacity(count);
        for _ in 0..count / 16 {
            let uniform: Vec<f64> =
                (0..16).map(|_| f64::from(self.word() & 0xff_ffff) / f64::from(1 << 24)).collect();
            let pair = |index: usize| {
                ((-2.0 * (1.0 - uniform[index]).ln()).sqrt(), TAU * uniform[index + 8])
            };
            values.extend((0..8).map(pair).map(|(radius, angle)| (radius * angle.cos()) as f32));
            values.extend((0..8).map(pair).map(|(radius, angle)| (radius * angle.sin()) as f32));
        }
        values
    }
}
