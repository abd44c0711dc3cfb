//! The choice among experts and their sum against their equations in f64.

mod mixers_support;

use lithos_cpu::mixers::mixture;
use mixers_support::*;

/// Experts and weights on every instruction set.
fn chosen(logits: &[f32], count: usize) -> (Vec<usize>, Vec<f32>) {
    let got = on_every_isa("route", |isa| {
        let mut out = poisoned(2 * count);
        let (experts, weights) = out.split_at_mut(count);
        mixture::route(isa, logits, experts, weights);
        out
    });
    let (experts, weights) = got.split_at(count);
    (experts.iter().map(|expert| *expert as usize).collect(), weights.to_vec())
}

#[test]
fn the_largest_logits_are_chosen_and_weighed() {
    let mut random = Random::new(1);
    for (experts, count) in [(8, 2), (256, 8), (512, 10), (33, 33), (1, 1)] {
        let logits = random.values(experts, -6.0, 6.0);
        let mut order: Vec<usize> = (0..experts).collect();
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        let (found, weights) = chosen(&logits, count);
        assert_eq!(found, order[..count]);
        // The softmax over all experts, divided by the sum of those that were chosen.
        let all: f64 = logits.iter().map(|logit| f64::from(*logit).exp()).sum();
        let parts: Vec<f64> =
            found.iter().map(|expert| f64::from(logits[*expert]).exp() / all).collect();
        let sum: f64 = parts.iter().sum();
        let wanted: Vec<f64> = parts.iter().map(|part| part / sum).collect();
        assert_close(&weights, &wanted, 1e-6, &format!("{count} of {experts}"));
    }
}

#[test]
fn of_equal_logits_the_first_are_chosen() {
    let (experts, weights) = chosen(&[1.0, 3.0, f32::NAN, 3.0, -0.0, 3.0, 0.0], 2);
    assert_eq!((experts, weights), (vec![1, 3], vec![0.5, 0.5]));
    let mut logits = vec![-1.0; 40];
    (logits[9], logits[8], logits[39]) = (0.0, -0.0, f32::NAN);
    assert_eq!(chosen(&logits, 3).0, [8, 9, 0]);
    logits.fill(f32::NAN);
    assert_eq!(chosen(&logits, 3).0, [0, 1, 2]);
}

#[test]
fn experts_are_added_up_in_order() {
    let mut random = Random::new(2);
    for (width, count) in [(1, 1), (17, 2), (512, 8)] {
        let experts = random.values(width * count, -2.0, 2.0);
        let weights = random.values(count, 0.0, 1.0);
        let (shared, before) = (random.values(width, -2.0, 2.0), random.values(width, -2.0, 2.0));
        let gate = 0.75;
        let got = on_every_isa("combine", |isa| {
            let mut out = before.clone();
            mixture::combine(isa, experts.chunks(width), &weights, &shared, gate, &mut out);
            out
        });
        let sigmoid = 1.0 / (1.0 + f64::from(-gate).exp());
        let wanted: Vec<f64> = (0..width)
            .map(|column| {
                let parts = weights.iter().enumerate().map(|(place, weight)| {
                    f64::from(*weight) * f64::from(experts[place * width + column])
                });
                let shared = sigmoid * f64::from(shared[column]);
                parts.sum::<f64>() + shared + f64::from(before[column])
            })
            .collect();
        assert_close(&got, &wanted, 1e-6, &format!("{count} experts of width {width}"));
    }
}
